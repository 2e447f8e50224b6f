"""Two replicas on one Redis or Valkey server, and a third party that writes poison under the keys of one principal and
under those that all share.

Two principals start jobs and follow them on the other replica. Of the one whose own keys are spared each event has to
arrive, once and in order. The other one gets an answer to each request, and never anything of the first. No replica
ends, and each starts again with the poison still there.
"""

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import httpx2
import redis

from mcp_hub.stores.redis.keys import hashed
from rigs.chaos.hubs import Fleet, Hub
from rigs.poison.values import EVERY, KINDS, Poison, kind_of
from rigs.report import crashes
from tests.e2e.client import HttpClient
from tests.redis_server import RedisServer

SPARED: Final = "spared"
TARGET: Final = "target"
TOKENS: Final = {SPARED: "spared-0123456789abcdef", TARGET: "target-0123456789abcdef"}
_PREFIX: Final = "mcp-hub:"
_ANSWER: Final = 30.0
"""Seconds in which each request is answered."""
_FOLLOWED: Final = 20
"""Seconds that a reader waits for events; fewer than `_ANSWER`, since a poisoned stream has none."""
_OF_ONE: Final = frozenset({"st_", "st_:e", "st_:p", "st_:m", "p:", "k:", "d:", "d::s", "d:*"})
"""Kinds of keys that belong to one principal; every other kind is shared."""
_BY_OTHERS: Final = frozenset({"d:", "d::s", "d:*", "h:"})
"""Kinds that these clients do not use; the tests of the store poison them."""
_STEPS: Final = 8
_PAUSE: Final = 0.02
"""Seconds between two poisons."""


@dataclass(frozen=True)
class Plan:
    """`most` poisons, taken evenly from all; `restarts` of a replica, each with all shared keys poisoned."""

    most: int = len(EVERY)
    restarts: int = 4
    lease: float = 2.0
    seed: int = 1


@dataclass
class Outcome:
    """What a run came to."""

    written: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    answers: Counter[int] = field(default_factory=Counter)
    set_aside: Counter[str] = field(default_factory=Counter)
    past: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    seconds: float = 0.0
    faults: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        missing = sorted(set(KINDS) - set(self.written) - _BY_OTHERS)
        return [
            f"{self.written.total()} poisons under {len(self.written)} kinds of keys, in {self.seconds:.0f} s"
            + (f" (no such key: {', '.join(missing)})" if missing else ""),
            f"{self.jobs[SPARED]} jobs of the spared principal, each event once and in order",
            f"{self.jobs[TARGET]} jobs of the other, answered with "
            + ", ".join(f"{code} ({count})" for code, count in sorted(self.answers.items())),
            f"past calls shown with their arguments: {self.past[SPARED]} and {self.past[TARGET]}",
            f"set aside: {self.set_aside.total()} times, of {len(self.set_aside)} kinds of keys",
            f"{self.restarts} starts with the poison there",
        ]


class _Site:
    """The server and its replicas, while clients work and keys are poisoned."""

    def __init__(self, server: RedisServer, fleet: Fleet, plan: Plan) -> None:
        self.server = server
        self.fleet = fleet
        self.rng = random.Random(plan.seed)
        self.outcome = Outcome()
        self.is_over = False
        self.streams: dict[str, set[str]] = {SPARED: set(), TARGET: set()}

    def pair(self) -> tuple[Hub, Hub]:
        first, second = self.rng.sample(self.fleet.hubs, 2)
        return first, second

    def fault(self, text: str) -> None:
        self.outcome.faults.append(text)

    # -- clients

    async def work(self, principal: str) -> None:
        """Starts jobs and follows them, one after the other."""
        headers = {"authorization": f"Bearer {TOKENS[principal]}"}
        async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=_ANSWER, verify=False) as http:
            while not self.is_over:
                starts, follows = self.pair()
                try:
                    with anyio.fail_after(2 * _ANSWER):
                        await self._job(principal, http, starts.url, follows.url)
                        await self._listed(principal, http, follows.url)
                    await self._looked_back(principal, http, follows.url)
                except TimeoutError:
                    self.fault(f"{principal}: no answer within {2 * _ANSWER:g} s")
                except httpx2.HTTPError as error:
                    if not (starts.life.is_killed or follows.life.is_killed):
                        self.fault(f"{principal}: {type(error).__name__} {error}")
                    await anyio.sleep(0.1)
                self.outcome.jobs[principal] += 1

    async def _job(self, principal: str, http: httpx2.AsyncClient, url: str, other: str) -> None:
        key = f"{principal}-{self.rng.getrandbits(64):x}"
        body = {"arguments": {"steps": _STEPS, "seconds": self.rng.uniform(0.3, 1.0)}}
        headers = {"prefer": "wait=0", "idempotency-key": key, "accept": "application/json"}
        answer = await http.post(f"{url}/v1/tools/run_job/call", json=body, headers=headers)
        if not self._is_good(principal, answer.status_code, answer.text, (200, 202)):
            return
        stream = answer.json().get("stream", "")
        self.streams[principal].add(stream)
        if principal == TARGET and self.rng.random() < 0.3:
            answer = await http.delete(f"{other}/v1/streams/{stream}")
            self._is_good(principal, answer.status_code, answer.text, (200, 202))
        events: list[dict[str, Any]] = []
        path = f"{other}/v1/streams/{stream}/events?after=0&wait={_FOLLOWED}"
        async with http.stream("GET", path, headers={"accept": "application/x-ndjson"}) as following:
            if not self._is_good(principal, following.status_code, "following", (200,)):
                return
            async for line in following.aiter_lines():
                if line.strip() and "seq" in (event := json.loads(line)):
                    events.append(event)
                    if event["type"] in ("end", "error"):
                        break
        if principal == SPARED:
            self._compare(stream, events)

    def _is_good(self, principal: str, status: int, text: str, good: Sequence[int]) -> bool:
        if principal == TARGET:
            self.outcome.answers[status] += 1
            if status == 500:
                self.fault(f"target: 500 {text[:200]}")
        elif status not in good:
            self.fault(f"spared: {status} {text[:300]}")
        return status in good

    def _compare(self, stream: str, events: list[dict[str, Any]]) -> None:
        numbers = [event["seq"] for event in events]
        text = "".join(
            block["text"] for event in events if event["type"] == "delta" for block in event["data"]["content"]
        )
        whole = "".join(f"step {step} done\n" for step in range(1, _STEPS + 1))
        last = events[-1] if events else {"type": "nothing"}
        if numbers != list(range(1, len(numbers) + 1)) or last["type"] != "end" or text != whole:
            self.fault(f"spared: {stream} came as {numbers}, with {text!r}, and ended with {last}")

    async def _listed(self, principal: str, http: httpx2.AsyncClient, url: str) -> None:
        """Neither lists nor reads show anything of the other principal."""
        answer = await http.get(f"{url}/v1/streams")
        if answer.status_code == 200:
            foreign = self.streams[SPARED if principal == TARGET else TARGET]
            if any(id_ in answer.text for id_ in list(foreign)):
                self.fault(f"{principal} sees a stream of the other principal in its list")
        other = self.streams[SPARED]
        if principal == TARGET and other:
            answer = await http.get(f"{url}/v1/streams/{self.rng.choice(sorted(other))}")
            if answer.status_code not in (404, 503):
                self.fault(f"target reads a stream of the spared principal: {answer.status_code}")

    async def _looked_back(self, principal: str, http: httpx2.AsyncClient, url: str) -> None:
        """The history shows neither calls of the other principal nor those of a tool whose `history` is off."""
        words = await http.post(f"{url}/v1/tools/count_words/call", json={"arguments": {"text": "a b"}})
        self._is_good(principal, words.status_code, words.text, (200,))
        for path in ("history?details=1&limit=100", "history?failed=1", "history/figures?span=7d"):
            answer = await http.get(f"{url}/v1/{path}")
            if answer.status_code not in (200, 503):
                self.fault(f"{principal}: {path} was answered with {answer.status_code} {answer.text[:300]}")
            elif answer.status_code == 200:
                self._compare_history(principal, answer.json())

    def _compare_history(self, principal: str, answer: dict[str, Any]) -> None:
        calls = answer.get("calls", answer.get("rows"))
        assert isinstance(calls, list)
        if [call for call in calls if call.get("principal", principal) != principal]:
            self.fault(f"{principal} sees a call of somebody else in the history")
        if any(call["tool"] == "count_words" for call in calls):
            self.fault(f"{principal} sees a call of a tool that is not kept in the history")
        self.outcome.past[principal] += sum("arguments" in call for call in calls)

    async def talk(self, principal: str) -> None:
        """Handshake sessions, each begun at one replica and used at both."""
        while not self.is_over:
            first, second = self.pair()
            try:
                with anyio.fail_after(2 * _ANSWER):
                    async with HttpClient(f"{first.url}/mcp", TOKENS[principal], seconds=_ANSWER) as client:
                        await client.initialize()
                        answer = await client.request("tools/list", {})
                        if answer.status == 200 and "result" not in answer.last:
                            self.fault(f"{principal}: tools/list was answered with {answer.last}")
                        client.url = f"{second.url}/mcp"
                        status = (await client.request("ping", {})).status
                        if status not in (200, 404, 503):
                            self.fault(f"{principal}: ping at another replica was answered with {status}")
            except TimeoutError:
                self.fault(f"{principal}: a session has no answer")
            except (httpx2.HTTPError, AssertionError, KeyError):
                await anyio.sleep(0.1)
            await anyio.sleep(0.1)

    # -- poison

    def poison(self, client: redis.Redis, poison: Poison) -> bool:
        """Writes it under a key of its kind; False if there is none that takes it."""
        keys = [key for key in self._keys(client) if kind_of(key) == poison.kind and self._is_open(client, key)]
        if not keys:
            return False
        try:
            poison.write(client, _PREFIX + self.rng.choice(keys))
        except redis.ResponseError:  # the key is poisoned already
            return False
        self.outcome.written[poison.kind] += 1
        return True

    def _keys(self, client: redis.Redis) -> list[str]:
        """Those that are there, and those that may be: messages come and go."""
        found = {key.decode("utf-8", "replace").removeprefix(_PREFIX) for key in client.scan_iter(count=1000)}
        fixed = {f"{{{name}}}" for name in ("replicas", "every", "ended", "secret", "sessions")}
        streams = {f"{{{stream}}}{suffix}" for stream in sorted(self.streams[TARGET])[-20:] for suffix in (":m", ":p")}
        replicas = {key.replace(":w", ":m") for key in found if kind_of(key) == "in_:w"}
        return sorted(found | fixed | streams | replicas | {"{sessions}:x", "{sessions}:c"})

    def _is_open(self, client: redis.Redis, key: str) -> bool:
        """Whether the key is shared, or belongs to the target."""
        kind = kind_of(key)
        if kind not in _OF_ONE:
            return True
        tag = key[1 : key.index("}")]
        if kind.startswith("st_"):
            return tag in self.streams[TARGET]
        return tag.split(":")[1] == hashed(TARGET)

    async def write(self, plan: Plan, say: Callable[[str], None]) -> None:
        """All that the plan asks for; a kind without a key yet is tried once more at the end."""
        step = max(len(EVERY) // plan.most, 1)
        waiting = [poison for poison in EVERY[::step] if poison.kind not in _BY_OTHERS]
        self.rng.shuffle(waiting)
        with self.server.client as client:
            for attempt in range(3):
                left = []
                for number, poison in enumerate(waiting):
                    if not await anyio.to_thread.run_sync(self.poison, client, poison):
                        left.append(poison)
                    await anyio.sleep(_PAUSE)
                    if number % 50 == 49:
                        say(f"{self.outcome.written.total()} poisons")
                        self._look(f"after {poison.kind}: {poison.name}")
                waiting = left
                if attempt < 2:
                    await anyio.sleep(0.5)

    async def restart(self, number: int) -> None:
        """Kills a replica, poisons what all share, and starts it again."""
        hub = self.fleet.hubs[number % len(self.fleet.hubs)]
        hub.life.kill()
        await anyio.to_thread.run_sync(hub.life.process.wait)
        with self.server.client as client:
            for kind in KINDS:
                if kind not in _OF_ONE and not kind.startswith(("in_", "h:")):
                    poisons = [poison for poison in EVERY if poison.kind == kind]
                    await anyio.to_thread.run_sync(self.poison, client, self.rng.choice(poisons))
        began = time.monotonic()
        hub.life = self.fleet.started(hub.port)
        await self.fleet.serving(hub, began)
        self.outcome.restarts += 1

    def _look(self, after: str) -> None:
        for hub in self.fleet.hubs:
            if hub.life.process.poll() is not None and not hub.life.is_killed:
                self.fault(f"a replica has ended {after}")

    def read_logs(self) -> None:
        """Takes crashes from the logs, and what was set aside."""
        for hub in self.fleet.hubs:
            text = (self.fleet.folder / f"hub-{hub.port}.log").read_text(errors="replace")
            for crash in crashes(text):
                self.fault(f"the log of a replica has: {crash[:600]}")
            for line in text.splitlines():
                if '"record_set_aside"' in line:
                    self.outcome.set_aside[kind_of(json.loads(line)["key"].removeprefix(_PREFIX))] += 1


async def poisoned(plan: Plan, say: Callable[[str], None] = lambda line: None) -> Outcome:
    """Raises `NotInstalled` without a server."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mcp-hub-poison-") as name:
        folder = Path(name)
        with RedisServer(folder / "server", "--appendfsync", "no") as server:
            store = {"url": server.url, "lease": plan.lease}
            tokens = [{"token": token, "principal": principal} for principal, token in TOKENS.items()]
            settings = {"tokens": tokens, "history": {"arguments": "full"}}
            fleet = Fleet(folder, 2, random.Random(plan.seed), store, settings)
            try:
                for hub in fleet.hubs:
                    await fleet.serving(hub, began)
                site = _Site(server, fleet, plan)
                async with anyio.create_task_group() as tasks:
                    for principal in TOKENS:
                        for work in (site.work, site.work, site.talk):
                            tasks.start_soon(work, principal)
                    await site.write(plan, say)
                    site.is_over = True
                for number in range(plan.restarts):
                    await site.restart(number)
                site.is_over = False
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(site.work, SPARED)
                    await anyio.sleep(1.5 * plan.lease + 1)
                    site.is_over = True
                site._look("at the end")
            finally:
                fleet.stop()
            site.read_logs()
    site.outcome.seconds = time.monotonic() - began
    return site.outcome

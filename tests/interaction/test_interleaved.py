"""Everything at once, at random: questions, logs, progress, subscriptions, changed lists, lost connections.

Two or three clients share one process of each server. Whatever a client is sent, on any stream, must be its own, and
it must get all that is. `INTERLEAVE_EXAMPLES` is how many schedules are tried (more in `make long`), and
`INTERLEAVE_SEED` which.
"""

import itertools
import json
import os
import random
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import Hub
from tests.interaction import interleaving
from tests.interaction.fronts import HANDSHAKE, MODERN, connected, http_hub
from tests.interaction.hearing import ID, UPDATED
from tests.interaction.interleaved_schedule import Life, draw
from tests.interaction.interleaving import LEG, Call, Client, Ear, Plan, living
from tests.upstreams.launch import argv, servers_yaml, starts
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

EXAMPLES = int(os.environ.get("INTERLEAVE_EXAMPLES", "9"))
SEED = int(os.environ.get("INTERLEAVE_SEED", random.randrange(1 << 30)))
LANES = 5
"""Schedules that run side by side, each at two servers of its own."""
SERVERS = [(f"h{i}", f"m{i}") for i in range(6)]
"""One of each era; in its first schedule a handshake server has not asked anything before."""
NONCE = re.compile(r"s\d+p\d+l\d+e\.\d+")
SECRET = re.compile(r"s\d+p\d+l\d+e")
SUPPRESSED = re.compile(r"\d+ log messages suppressed: the reader was too slow")
LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
NOBODY = "nobody to ask"
NO_TURN = "another session has been using it"
OVER = ("the call has ended", "the question was withdrawn")
"""A question of one of several calls of one session is asked during the newest of them, which may end first."""
ASKS = {"ask_form": ["form"], "ask_two": ["first", "second"], "ask_then_wait": ["form"]}
PATIENCE = 600.0
"""Seconds that one schedule may take."""


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Hub, Path]]:
    root = tmp_path_factory.mktemp("interleaved")
    eras = {name: era for pair in SERVERS for name, era in zip(pair, (HANDSHAKE, MODERN), strict=True)}
    servers = {name: argv(name=name, era=era, journal=root / f"{name}.journal") for name, era in eras.items()}
    config = servers_yaml(servers, hub={"limits": {"question_timeout": "5s"}})
    async with http_hub(config, root) as running:
        async with connected(running, HANDSHAKE) as peer:
            await peer.names()
        yield running, root
        for name, era in eras.items():  # a modern one is started once more to find that out
            assert starts(root / f"{name}.journal") == 1 + (era == MODERN), name


# -- playing a schedule


async def act(client: Client, life: Life) -> None:
    """Everything that it does in this life, up to the end of its calls or until it vanishes."""
    with anyio.move_on_after(life.vanish) as staying:
        async with anyio.create_task_group() as tasks:
            for plan in life.calls:
                tasks.start_soon(client.make, plan)
            for what, value in life.turns:
                match what:
                    case "subscribe":
                        await client.subscribe(value)
                    case "unsubscribe":
                        await client.unsubscribe(value)
                    case "level":
                        await client.set_level(value)
                    case "away":
                        await client.be_away(value)
                    case _:
                        await anyio.sleep(value)
    if staying.cancelled_caught:
        for call in client.calls:
            call.is_given_up |= not call.answers


class Play:
    """One schedule: its clients, dead ones included, and what becomes of them."""

    def __init__(self, hub: Hub, number: int, servers: tuple[str, str]) -> None:
        self.hub = hub
        self.number = number
        self.servers = servers
        self.uris = [f"test://{server}/item/{number}{x}" for server in servers for x in "ab"]
        self.clients: list[Client] = []

    async def run(self, schedule: list[list[Life]]) -> None:
        ready: list[Client] = []
        is_over = anyio.Event()

        async def party(number: int, lives: list[Life]) -> None:
            for i, life in enumerate(lives):
                async with living(self.hub.url, life.era, f"s{self.number}p{number}l{i}e", self.servers[1]) as client:
                    self.clients.append(client)
                    await act(client, life)
                    if i == len(lives) - 1:
                        ready.append(client)
                        if len(ready) == len(schedule):
                            await self._end(ready)
                            is_over.set()
                        await is_over.wait()
                    if client.era == HANDSHAKE and life.vanish is None:
                        await client.wire.delete()

        async with anyio.create_task_group() as tasks:
            for number, lives in enumerate(schedule):
                tasks.start_soon(party, number, lives)

    async def _end(self, ready: list[Client]) -> None:
        """Every resource is updated once more: those who are subscribed hear of it, and nobody else."""
        await self._fence(ready)
        starts = {ear: len(ear.heard) for client in ready for ear in client.ears}
        for uri in self.uris:
            await ready[0].make(Plan("touch", uri.split("/")[2], {"uri": uri}))
        await self._fence(ready)
        for client in ready:
            for ear in client.ears:
                wanted = client.subscribed if client.era == HANDSHAKE else ear.uris
                assert set(ear.updated(starts[ear])) & set(self.uris) == wanted & set(self.uris), client.secret

    async def _fence(self, ready: list[Client]) -> None:
        async with anyio.create_task_group() as tasks:
            for client in ready:
                tasks.start_soon(client.fence)


# -- what must hold


def secrets_in(value: Any) -> Iterator[str]:
    return iter(SECRET.findall(json.dumps(value)))


def check_ear(client: Client, ear: Ear) -> None:
    uris = client.ever_subscribed if client.era == HANDSHAKE else ear.uris
    for message in ear.heard:
        method, params = message["method"], message.get("params", {})
        assert "id" not in message, message
        assert set(secrets_in(message)) <= {client.secret}, message
        assert params.get("_meta", {}).get(ID) == ear.id, message
        if method == UPDATED:
            assert params["uri"] in uris, message
        elif method.endswith("list_changed"):
            assert ear.id is None or (ear.wants_tools and "/tools/" in method), message
        else:
            assert method == "notifications/subscriptions/acknowledged" and message is ear.heard[0], message


def check_call(client: Client, call: Call, *, is_new: bool) -> None:
    """`is_new`: the server had not asked anything before this schedule."""
    for message in call.messages:
        assert set(secrets_in(message)) <= {client.secret}, message
    mine = {call.nonce} if client.era == MODERN else {one.nonce for one in client.calls}
    assert {question["_meta"]["example.org/nonce"] for question in call.questions} <= mine
    asked = {message["id"] for message in call.messages if message.get("method") == "elicitation/create"}
    if call.plan.drop is None:  # else the connection may have been lost with the question
        assert {params["requestId"] for params in call.notified("cancelled")} <= asked
    check_logs(client, call, mine)
    check_progress(call)
    known = ("elicitation/create", *(f"notifications/{kind}" for kind in ("cancelled", "message", "progress")))
    assert all(message.get("method", known[0]) in known for message in call.messages)
    assert all(message["id"] % LEG == call.id for message in call.messages if "method" not in message)
    assert len(call.answers) <= 1
    if not call.is_given_up:
        (answer,) = call.answers
        assert call.messages[-1] is answer
        check_answer(client, call, answer, is_new=is_new)


def check_logs(client: Client, call: Call, mine: set[str]) -> None:
    by_nonce = {one.nonce: one for one in client.calls}
    for params in call.notified("message"):
        if params.get("logger") == "mcp-hub":
            assert SUPPRESSED.fullmatch(params["data"]), params  # of a flood, on a busy machine
            continue
        assert params["data"] in mine, params
        levels = by_nonce[params["data"]].levels
        is_wanted = any(level is not None and LEVELS.index(params["level"]) >= LEVELS.index(level) for level in levels)
        assert is_wanted or (client.era == HANDSHAKE and None in levels), (params, levels)


def check_progress(call: Call) -> None:
    told = call.notified("progress")
    assert all(params["progressToken"] == call.id for params in told)
    values = [params["progress"] for params in told]
    assert values == sorted(set(values))
    # but for heartbeats after 10 s without progress, on a busy machine: 0, or a hair above a value of the server
    told = [params for params in told if params["progress"] > 0 and params["progress"] % 1 == 0]
    assert all(params.get("message", f"{call.nonce} ").startswith(f"{call.nonce} ") for params in told)
    # while a connection was down the newest stood for those before it
    merged = [1 + params.get("_meta", {}).get("dev.mcp-hub/coalesced", 0) for params in told]
    assert [params["progress"] for params in told] == list(itertools.accumulate(merged))
    assert call.plan.drop is not None or set(merged) <= {1}
    is_unmade = call.is_given_up or has_no_turn(call) or is_late(call)
    if not is_unmade and call.plan.tool in ("progress", "ask_then_wait"):
        assert sum(merged) == call.plan.arguments.get("n", 3), call


def has_no_turn(call: Call) -> bool:
    """Its turn did not come within 30 s: after each call that was given up the next session waits for 5."""
    return call.plan.server.startswith("h") and any(NO_TURN in json.dumps(answer) for answer in call.answers)


def is_late(call: Call) -> bool:
    """A machine was so busy that its client's answer took longer than `question_timeout`."""
    errors = [answer["error"].get("data") or {} for answer in call.answers if "error" in answer]
    return bool(call.questions) and any(data.get("limit") == "question_timeout" for data in errors)


def check_answer(client: Client, call: Call, answer: Message, *, is_new: bool) -> None:
    tool = call.plan.tool
    if tool == "remove_tool" and "error" in answer:
        return  # another client was faster
    if has_no_turn(call) or is_late(call):
        return
    assert "result" in answer, answer
    if tool in ("progress", "slow", "echo"):
        assert call.nonce in json.dumps(answer["result"])
    if tool not in ASKS:
        return
    told = answer["result"]["structuredContent"]
    assert (told["nonce"], list(told["answers"])) == (call.nonce, ASKS[tool])
    for outcome in told["answers"].values():
        if "error" not in outcome:
            assert outcome["result"]["content"]["answer"] == client.secret
            continue
        reason = outcome["error"]["message"]
        assert call.plan.server.startswith("h"), reason
        assert any(part in reason for part in OVER) or (is_new and NOBODY in reason), (reason, call)


def arrivals(journal: Path, start: int) -> Counter[str]:
    """How often each call of a schedule reached the server, by nonce; from this place of its journal on."""
    with journal.open("rb") as file:
        file.seek(start)
        calls = [line for line in file.read().decode().splitlines() if '"tools/call"' in line]
    return Counter(found for line in calls for found in set(NONCE.findall(line)))


def check(play: Play, root: Path, start: int, *, is_new: bool) -> Counter[str]:
    """All of it; counts what happened."""
    counts: Counter[str] = Counter()
    reached = arrivals(root / f"{play.servers[0]}.journal", start)
    for client in play.clients:
        for ear in [*client.ears, *client.closed]:
            check_ear(client, ear)
            counts["updates"] += len(ear.updated())
            counts["changed lists"] += sum(message["method"].endswith("list_changed") for message in ear.heard)
        for call in client.calls:
            check_call(client, call, is_new=is_new)
            if call.plan.server == play.servers[0] and interleaving.NONCE in call.plan.arguments.values():
                is_unmade = call.is_given_up or has_no_turn(call)
                assert reached[call.nonce] == 1 or (is_unmade and not reached[call.nonce]), call
            counts["questions"] += len(call.questions)
            counts["log messages"] += len(call.notified("message"))
            counts["progress"] += len(call.notified("progress"))
            counts["declined"] += NOBODY in json.dumps(call.messages)
            counts["ended before the answer"] += any(part in json.dumps(call.messages) for part in OVER)
            counts["given up"] += call.is_given_up
            counts["no turn"] += has_no_turn(call)
            counts["late"] += is_late(call)
            counts["resumed"] += call.plan.drop is not None and bool(call.answers)
            counts["calls"] += 1
    return counts


async def test_nothing_reaches_the_wrong_client_whatever_they_do(hub: tuple[Hub, Path]) -> None:
    print(f"INTERLEAVE_SEED={SEED}")
    running, root = hub
    numbers = iter(range(EXAMPLES))
    free = deque((name, True) for name in SERVERS)
    counts: Counter[str] = Counter()

    async def lane() -> None:
        for number in numbers:
            servers, is_new = free.popleft()
            play = Play(running, number, servers)
            schedule = draw(random.Random(f"{SEED} {number}"), servers, play.uris)
            start = (root / f"{servers[0]}.journal").stat().st_size
            try:
                with anyio.fail_after(PATIENCE):
                    await play.run(schedule)
                counts.update(check(play, root, start, is_new=is_new))
            except Exception:
                print(f"schedule {number} at {servers}:", *itertools.chain(*schedule), sep="\n  ")
                raise
            calls = [call for client in play.clients for call in client.calls if call.plan.server == servers[0]]
            has_asked = any(call.questions for call in calls)
            free.append((servers, is_new and not has_asked))

    async with anyio.create_task_group() as tasks:
        for _ in range(LANES):
            tasks.start_soon(lane)
    print(dict(counts))
    assert counts["late"] <= counts["calls"] // 10
    assert counts["no turn"] <= counts["calls"] // 10
    assert EXAMPLES < 10 or all(
        counts[what] for what in ("questions", "log messages", "progress", "updates", "resumed")
    )

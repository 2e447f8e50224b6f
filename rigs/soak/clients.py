"""What one client does and what it must be answered: every kind of call over every front, each answer judged."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import anyio

from rigs.client import JudgingClient
from tests.e2e.answers import Answers, form
from tests.e2e.client import HttpClient, SseEvent
from tests.e2e.rest_client import RestClient, cut, lines
from tests.interaction.fronts import MODERN, Peer
from tests.upstreams.child import PeerClosed
from tests.upstreams.messages import Message

PATIENCE = 240.0
"""Seconds after which a call that has not been answered is lost."""
BIG = 60_000
_nonces = itertools.count()


def answers() -> Answers:
    return Answers({"elicitation/create": form(name="Ada")})


class Wrong(Exception):
    """An answer that breaks a promise."""


@dataclass(frozen=True)
class Job:
    """One call; `is_safe` if its server is never killed, so that nothing but the right answer will do."""

    kind: str
    server: str
    nonce: str
    is_safe: bool

    @property
    def tool(self) -> str:
        names = {"cancel": "slow", "question": "ask_form", "large": "big", "tool error": "tool_error"}
        names |= {"resume": "progress", "detached": "progress"}
        return f"{self.server}_{names.get(self.kind, self.kind)}"

    @property
    def arguments(self) -> Message:
        known: dict[str, Message] = {
            "echo": {"text": self.nonce},
            "progress": {"n": 8, "nonce": self.nonce},
            "resume": {"n": 10, "nonce": self.nonce, "delay": 0.02},
            "detached": {"n": 12, "nonce": self.nonce, "delay": 0.01},
            "large": {"bytes": BIG},
            "error": {"code": -32050, "message": self.nonce},
            "tool error": {"text": self.nonce},
            "cancel": {"seconds": 30, "nonce": self.nonce},
            "question": {"nonce": self.nonce},
        }
        return known[self.kind]

    def judged(self, message: Message) -> str:
        """What a JSON-RPC answer comes to. Raises `Wrong`."""
        if "error" in message:
            return self._judged_error(message["error"])
        result = message.get("result")
        if not isinstance(result, dict) or not isinstance(result.get("content"), list):
            raise Wrong(f"neither result nor error: {str(message)[:300]}")
        self._check(result, "".join(block.get("text", "") for block in result["content"]))
        return "ok"

    def _judged_error(self, error: Any) -> str:
        if not isinstance(error.get("code"), int) or not error.get("message"):
            raise Wrong(f"an error without code or message: {error}")
        if self.kind == "error" and error["message"] == self.nonce:
            return "ok"  # a code that the caller's era has no room for comes as another one
        return self.failed(error["code"], error)

    def failed(self, code: object, said: object) -> str:
        """What a failure comes to. Raises `Wrong`."""
        if self.is_safe or not code:
            raise Wrong(f"{self.tool} of server {self.server}: {str(said)[:300]}")
        return f"error {code}"

    def _check(self, result: Message, text: str) -> None:
        checks: dict[str, Callable[[], bool]] = {
            "echo": lambda: result.get("structuredContent") == {"text": self.nonce},
            "large": lambda: text == "x" * BIG,
            "tool error": lambda: result.get("isError") is True and text == self.nonce,
            "question": lambda: self.nonce in text and "Ada" in text,
            "cancel": lambda: False,
        }
        good = checks.get(self.kind, lambda: bool(json.loads(text)["nonce"] == self.nonce))
        if not good():
            raise Wrong(f"{self.tool} {self.nonce} was answered with {str(result)[:300]}")

    def last_of(self, messages: Iterable[Message]) -> Message | None:
        """The answer among the messages of a call, whose progress has to be in order. Raises `Wrong`."""
        *before, last = [*messages] or [{}]
        steps = [one["params"]["progress"] for one in before if one.get("method") == "notifications/progress"]
        if steps != sorted(set(steps)) or not all("method" in one for one in before):
            raise Wrong(f"{self.tool}: before the answer came {str(before)[:300]}")
        return last if last and "method" not in last else None


class Client:
    """Makes calls one after the other; `kinds` are those that its front has."""

    kinds: tuple[str, ...] = ()

    def __init__(self, rng: Random, wire: HttpClient | RestClient | None = None) -> None:
        """`wire` has to be open while it calls."""
        self.rng = rng
        self.wire = wire

    async def call(self, job: Job) -> str:
        """Makes the call and tells what came of it. Raises `Wrong`."""
        raise NotImplementedError

    async def leave(self) -> None:
        """The client goes away: politely, or not."""

    def moment(self) -> float:
        """Seconds in which something has begun, or has not."""
        return self.rng.uniform(0, 0.08)


def new_job(kind: str, server: str, is_safe: bool) -> Job:
    return Job(kind, server, f"n{next(_nonces)}", is_safe)


class HandshakeHttp(Client):
    """With a session, whose streams are resumed; a session lasts for some dozens of calls."""

    kinds: tuple[str, ...] = ("echo", "progress", "large", "error", "tool error", "cancel", "question", "resume")

    def __init__(self, url: str, rng: Random) -> None:
        self._wire = HttpClient(url, seconds=PATIENCE)
        super().__init__(rng, self._wire)
        self._wire.answers = answers()
        self._left = 0

    async def call(self, job: Job) -> str:
        if self._left <= 0:
            await self._begin()
        self._left -= 1
        message = self._wire.message("tools/call", {"name": job.tool, "arguments": job.arguments})
        id_ = message["id"]
        if job.kind in ("progress", "resume"):
            message["params"]["_meta"] = {"progressToken": id_}
        giving_up = asyncio.ensure_future(self._give_up(id_)) if job.kind == "cancel" else None
        answer = job.last_of(event.message for event in await self._events(job, message) if event.data)
        if giving_up is not None:
            await giving_up
            if answer is None:
                return "cancelled"
        if answer is None or answer.get("id") not in (id_, None):
            raise Wrong(f"{job.tool}: request {id_} was answered with {str(answer)[:300]}")
        return job.judged(answer)

    async def _events(self, job: Job, message: Message) -> list[SseEvent]:
        """All that comes; a connection is broken off and resumed if that is what the job is about."""
        async with self._wire.stream(message) as stream:
            if job.kind != "resume":
                await stream.rest(PATIENCE)
                return stream.events
            with suppress(PeerClosed):
                await cut(stream, self.rng.randint(1, 6))
        if stream.last_id is None or stream.events[-1].data and "method" not in stream.events[-1].message:
            return stream.events
        async with self._wire.listen(stream.last_id) as rest:
            said = await rest.rest(PATIENCE)
            if said.status != 200:
                raise Wrong(f"resuming after {stream.last_id}: {said.status} {said.text}")
        return stream.events + rest.events

    async def _give_up(self, id_: int) -> None:
        """Before anything has come: a quiet call has no answer to be read yet."""
        await anyio.sleep(self.moment())
        told = await self._wire.notify("notifications/cancelled", {"requestId": id_})
        if told.status not in (200, 202):
            raise Wrong(f"a cancellation was met with {told.status} {told.text}")

    async def leave(self) -> None:
        """One session in ten is just not heard of again."""
        if self._wire.session and self.rng.random() < 0.9:
            await self._wire.delete()
        self._wire.session, self._wire.version, self._left = None, None, 0

    async def _begin(self) -> None:
        await self.leave()
        answer = await self._wire.initialize()
        if answer.status != 200 or not self._wire.session:
            raise Wrong(f"no session: {answer.status}")
        self._left = self.rng.randint(5, 80)


class ModernHttp(HandshakeHttp):
    """Without a session; a call is cancelled by closing its response."""

    kinds = HandshakeHttp.kinds[:-1]

    async def call(self, job: Job) -> str:
        peer = Peer(self._wire, MODERN, answers())
        token = job.nonce if job.kind == "progress" else None
        with anyio.move_on_after(self.moment() if job.kind == "cancel" else None):
            seen = await peer.call(job.tool, job.arguments, token=token)
            answer = job.last_of([*seen.before, seen.answer])
            assert answer is not None
            return job.judged(answer)
        return "cancelled"

    async def leave(self) -> None:
        """There is nothing to end."""


class Rest(Client):
    """Calls that are waited for, and detached ones that are followed, left and followed again."""

    kinds = ("echo", "progress", "large", "tool error", "cancel", "detached")

    def __init__(self, url: str, rng: Random) -> None:
        self._wire = RestClient(url)
        super().__init__(rng, self._wire)

    async def call(self, job: Job) -> str:
        is_detached = job.kind in ("detached", "cancel")
        prefer = {"prefer": "wait=0"} if is_detached else {}
        answer = await self._wire.call(job.tool, job.arguments, accept="application/json", **prefer)
        body = answer.json()
        if answer.status_code == 200 and "result" in body:
            return job.judged(body)
        if answer.status_code != 202 or not is_detached:
            return job.failed(body.get("code"), body)
        if job.kind == "cancel":
            await anyio.sleep(self.moment())
            gone = await self._wire.ask("DELETE", f"/streams/{body['stream']}")
            if gone.status_code not in (200, 202):
                raise Wrong(f"DELETE was met with {gone.status_code}")
        return await self._followed(job, body["stream"])

    async def _followed(self, job: Job, stream: str) -> str:
        """To its end, from wherever the connection was lost: every event once and in order."""
        events: list[Message] = []
        while not events or events[-1]["type"] not in ("end", "error"):
            path = f"/streams/{stream}/events?after={len(events)}&wait=20"
            async with self._wire.events(path) as response:
                if response.status != 200:
                    raise Wrong(f"{path} was met with {response.status} {(await response.rest()).text}")
                with suppress(PeerClosed):
                    await cut(response, self.rng.randint(1, 20))
            events += lines(response.events)
        if [event["seq"] for event in events] != list(range(1, len(events) + 1)):
            raise Wrong(f"{stream}: events came as {[event['seq'] for event in events]}")
        data = events[-1]["data"]
        if events[-1]["type"] == "error":
            return job.failed(data.get("code"), data)
        if data["outcome"] == "cancelled" and job.kind == "cancel":
            return "cancelled"
        return job.judged({"result": data.get("result")})


class Stdio(Client):
    """One of many callers on one pipe, which judges progress and strays itself."""

    kinds = ("echo", "progress", "large", "error", "tool error", "cancel", "question")

    def __init__(self, pipe: JudgingClient, rng: Random) -> None:
        super().__init__(rng)
        self._pipe = pipe

    async def call(self, job: Job) -> str:
        asked = await self._pipe.ask("tools/call", {"name": job.tool, "arguments": job.arguments})
        if job.kind == "cancel":
            await anyio.sleep(self.moment())
            if asked.answer is None:
                await self._pipe.give_up(asked)
                return "cancelled"
        await asked.arrived.wait()
        assert asked.answer is not None
        return job.judged(asked.answer.message)

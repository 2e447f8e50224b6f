"""A client of the hub on stdio that judges every line it gets, and is quick enough not to be what is measured."""

import json
import math
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from tests.e2e.answers import EVERYTHING, Answers
from tests.upstreams.child import Child, Chunks
from tests.upstreams.messages import CLIENT, Message

_HUGE = 8 << 20
"""Bytes of a line above which it is not decoded: only who it answers is looked at."""
_HEAD = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+),"(result|error)":')
ENDINGS = {1001: "unavailable", 1002: "lost", 1003: "overdue", 1004: "busy", -32602: "unknown"}


@dataclass(frozen=True)
class Answer:
    """The answer to one request, and the progress before it; `message` is empty for one too large to decode."""

    ending: str
    seconds: float
    size: int
    message: Message
    progress: list[float]

    @property
    def text(self) -> str:
        return str(self.message.get("result", {}).get("content", [{}])[0].get("text", ""))


@dataclass
class Asked:
    """A request that was sent; `arrived` is set with its `answer`."""

    id: int
    began: float = field(default_factory=time.perf_counter)
    progress: list[float] = field(default_factory=list)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


class JudgingClient(Child):
    """`wrongs` collects what no client may ever see. Questions are counted, and left open without `answers`."""

    def __init__(self, argv: list[str], env: Mapping[str, str], answers: Answers | None = None) -> None:
        super().__init__(argv, env)
        self.wrongs: list[str] = []
        self.asked = 0
        self.said: Counter[str] = Counter()
        self._answers = answers
        self._last_id = 0
        self._open: dict[int, Asked] = {}
        self._given_up: set[int] = set()
        self._writing = anyio.Lock()

    async def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": EVERYTHING, "clientInfo": CLIENT}
        await self.request("initialize", params, seconds=10)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, seconds: float) -> Answer:
        """`tools/call` with a progress token. Raises: `TimeoutError`."""
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {})}, seconds=seconds)

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Answer:
        with anyio.fail_after(seconds):
            asked = await self.ask(method, params)
            await asked.arrived.wait()
        assert asked.answer is not None
        return asked.answer

    async def ask(self, method: str, params: Mapping[str, Any]) -> Asked:
        """A request that is not waited for. Its time begins when the pipe is free: what is sent here is no delay."""
        self._last_id += 1
        asked = self._open[self._last_id] = Asked(self._last_id)
        meta = {"_meta": {"progressToken": asked.id}} if method == "tools/call" else {}
        message = {"jsonrpc": "2.0", "id": asked.id, "method": method, "params": {**params, **meta}}
        await self.send(message, asked)
        return asked

    async def give_up(self, asked: Asked) -> None:
        """Cancel a request: it gets no answer, or one that was on its way."""
        if self._open.pop(asked.id, None) is not None:
            self._given_up.add(asked.id)
        await self.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": asked.id}})

    async def close(self, seconds: float) -> int:
        """End of input, and the exit code. Raises: `TimeoutError`."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.wait(seconds)

    def unanswered(self) -> list[int]:
        return list(self._open)

    async def send(self, message: Message, asked: Asked | None = None) -> None:
        assert self.process.stdin is not None
        line = json.dumps(message).encode() + b"\n"
        async with self._writing:
            if asked is not None:
                asked.began = time.perf_counter()
            await self.process.stdin.send(line)

    async def _collect_stdout(self) -> None:
        parts: list[bytes] = []
        async for chunk in Chunks(self.process.stdout):
            first, *rest = chunk.split(b"\n")
            parts.append(first)
            for piece in rest:
                self._take(b"".join(parts))
                parts = [piece]

    def _take(self, line: bytes) -> None:
        if len(line) > _HUGE:
            found = _HEAD.match(line)
            if found is None:
                self.wrongs.append(f"a line of {len(line)} bytes that is no answer: {line[:100]!r}")
            else:
                self._answered(int(found[1]), found[2].decode(), {}, len(line))
            return
        try:
            message = json.loads(line, parse_constant=_refuse, parse_int=_integer)
        except (ValueError, RecursionError) as exc:
            self.wrongs.append(f"a line that is no JSON ({exc}): {line[:200]!r}")
            return
        if "id" in message and "method" in message:
            self.asked += 1
            if self._answers is not None:
                self._tasks.start_soon(self._answers.answer, message, self.send)
        elif "id" in message:
            ending = "result" if "result" in message else ENDINGS.get(message["error"]["code"], "error")
            self._answered(message["id"], ending, message, len(line))
        elif message.get("method") == "notifications/progress":
            self._progress(message["params"])
        else:
            self.said[message.get("method", "?")] += 1

    def _answered(self, id_: Any, ending: str, message: Message, size: int) -> None:
        asked = self._open.pop(id_, None)
        if asked is not None:
            asked.answer = Answer(ending, time.perf_counter() - asked.began, size, message, asked.progress)
            asked.arrived.set()
        elif id_ in self._given_up:
            self._given_up.discard(id_)  # it was on its way
        else:
            self.wrongs.append(f"request {id_} was answered twice, or never sent: {message}"[:300])

    def _progress(self, params: Message) -> None:
        asked, value = self._open.get(params["progressToken"]), params["progress"]
        if asked is None:
            if params["progressToken"] not in self._given_up:
                self.wrongs.append(f"progress after the answer, or for nobody: {params}"[:300])
        elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.wrongs.append(f"progress that is no number: {params}"[:300])
        elif asked.progress and value <= asked.progress[-1]:
            self.wrongs.append(f"progress {value} after {asked.progress[-1]}")
        else:
            asked.progress.append(value)


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) < 400 else math.inf

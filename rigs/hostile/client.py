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

from tests.upstreams.child import Child, Chunks
from tests.upstreams.messages import CLIENT

_HUGE = 8 << 20
"""Bytes of a line above which it is not decoded: only who it answers is looked at."""
_HEAD = re.compile(rb'\{"jsonrpc":"2\.0","id":(\d+),"(result|error)":')
_ASKS: dict[str, Any] = {"elicitation": {"form": {}}, "roots": {}, "sampling": {}}


@dataclass(frozen=True)
class Answer:
    """The answer to one request, and the progress before it; `message` is empty for one too large to decode."""

    ending: str
    seconds: float
    size: int
    message: dict[str, Any]
    progress: list[float]

    @property
    def text(self) -> str:
        return str(self.message.get("result", {}).get("content", [{}])[0].get("text", ""))


@dataclass
class _Asked:
    began: float
    progress: list[float] = field(default_factory=list)
    arrived: anyio.Event = field(default_factory=anyio.Event)
    answer: Answer | None = None


ENDINGS = {1001: "unavailable", 1002: "lost", 1003: "overdue", 1004: "busy", -32602: "unknown"}


class JudgingClient(Child):
    """`wrongs` collects what no client may ever see; questions of servers are counted and left open."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        super().__init__(argv, env)
        self.wrongs: list[str] = []
        self.asked = 0
        self.said: Counter[str] = Counter()
        self._requests: dict[int, _Asked] = {}
        self._writing = anyio.Lock()

    async def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": _ASKS, "clientInfo": CLIENT}
        await self.request("initialize", params, seconds=10)
        await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, arguments: Mapping[str, Any] | None = None, *, seconds: float) -> Answer:
        """`tools/call` with a progress token. Raises: `TimeoutError`."""
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {})}, seconds=seconds)

    async def request(self, method: str, params: Mapping[str, Any], *, seconds: float) -> Answer:
        id_ = len(self._requests) + 1
        asked = self._requests[id_] = _Asked(time.perf_counter())
        meta = {"_meta": {"progressToken": id_}} if method == "tools/call" else {}
        with anyio.fail_after(seconds):
            message = {"jsonrpc": "2.0", "id": id_, "method": method, "params": {**params, **meta}}
            await self._send(message, asked)
            await asked.arrived.wait()
        assert asked.answer is not None
        return asked.answer

    async def close(self, seconds: float) -> int:
        """End of input, and the exit code. Raises: `TimeoutError`."""
        assert self.process.stdin is not None
        await self.process.stdin.aclose()
        return await self.wait(seconds)

    def unanswered(self) -> list[int]:
        return [id_ for id_, asked in self._requests.items() if asked.answer is None]

    async def _send(self, message: dict[str, Any], asked: _Asked | None = None) -> None:
        """Its time begins when the pipe is free: what this client sends itself is not the hub's delay."""
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
        elif "id" in message:
            ending = "result" if "result" in message else ENDINGS.get(message["error"]["code"], "error")
            self._answered(message["id"], ending, message, len(line))
        elif message.get("method") == "notifications/progress":
            self._progress(message["params"])
        else:
            self.said[message.get("method", "?")] += 1

    def _answered(self, id_: Any, ending: str, message: dict[str, Any], size: int) -> None:
        asked = self._requests.get(id_)
        if asked is None or asked.answer is not None:
            self.wrongs.append(f"request {id_} {'was answered twice' if asked else 'was never sent'}: {message}"[:300])
            return
        asked.answer = Answer(ending, time.perf_counter() - asked.began, size, message, asked.progress)
        asked.arrived.set()

    def _progress(self, params: dict[str, Any]) -> None:
        asked, value = self._requests.get(params["progressToken"]), params["progress"]
        if asked is None or asked.answer is not None:
            self.wrongs.append(f"progress {'after the answer' if asked else 'for nobody'}: {params}"[:300])
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

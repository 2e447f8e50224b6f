"""`python -m bench --trace`: the way of one quick call over stdio, function by function, and the passes of the loop.

The hub runs in this process between two pipes, on plain asyncio, with the echo server as a child. Counted are calls of
functions of `mcp_hub`, frames of comprehensions left out, for the 50th of equal calls (Python 3.11; the shortest of
ten, since timers may ring), and how often the event loop turns between the bytes of a call and those of its answer, as
the median of 1,000 calls.
"""

import asyncio
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import IO

import msgspec

import mcp_hub
from mcp_hub.app.build import open_app
from mcp_hub.config.load.load import load
from mcp_hub.fronts.stdio import StdioFront
from mcp_hub.sessions.session import Caller

PACKAGE = f"{Path(mcp_hub.__file__).parent}{os.sep}"
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
WARM, LOOKS, PASSES = 49, 10, 1000
QUIET = 0.002
"""Seconds after an answer in which the hub may still tidy up; the next timer of an idle hub is later."""


class Trace(msgspec.Struct, frozen=True):
    """`functions` in the order of their calls, each as `module:name`; `passes` of the loop, the median."""

    functions: tuple[str, ...]
    passes: float

    @property
    def modules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.partition(":")[0] for name in self.functions))


class _Recorder:
    """Counts on the thread of the hub while `is_on`."""

    def __init__(self) -> None:
        self.is_on = False
        self.found: list[str] = []
        self.passes = 0
        self._names: dict[CodeType, str | None] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_on and event == "call":
            code = frame.f_code
            if code not in self._names:
                self._names[code] = _name(code)
            if (name := self._names[code]) is not None:
                self.found.append(name)

    @contextmanager
    def recording(self) -> Iterator[None]:
        self.found, self.passes, self.is_on = [], 0, True
        yield
        time.sleep(QUIET)
        self.is_on = False


def _name(code: CodeType) -> str | None:
    if not code.co_filename.startswith(PACKAGE) or code.co_name in COMPREHENSIONS:
        return None
    module = code.co_filename.removeprefix(PACKAGE).removesuffix(".py").replace(os.sep, ".")
    return f"{module}:{code.co_qualname}"


class _Client:
    """A client on the other ends of the pipes, in a thread of its own."""

    def __init__(self, write: IO[bytes], read: IO[bytes]) -> None:
        self._write, self._read = write, read
        self._id = 0

    def ask(self, method: str, params: object) -> dict[str, object]:
        self._id += 1
        frame = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._write.write(json.dumps(frame).encode() + b"\n")
        self._write.flush()
        while True:
            answer: dict[str, object] = json.loads(self._read.readline())
            if answer.get("id") == self._id:
                return answer

    def tell(self, method: str) -> None:
        self._write.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")
        self._write.flush()

    def close(self) -> None:
        self._write.close()


def _drive(client: _Client, recorder: _Recorder, result: list[Trace]) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "trace", "version": "1"}}
    client.ask("initialize", hello)
    client.tell("notifications/initialized")
    client.ask("tools/list", {})
    call = {"name": "echo", "arguments": {"text": "hello"}}
    for _ in range(WARM):
        answer = client.ask("tools/call", call)
    found = []
    for _ in range(LOOKS):
        with recorder.recording():
            answer = client.ask("tools/call", call)
        assert "result" in answer, answer
        found.append(tuple(recorder.found))
    functions = min(found, key=len)  # a timer of the hub may ring during one of them
    passes = []
    for _ in range(PASSES):
        before = recorder.passes
        client.ask("tools/call", call)
        passes.append(recorder.passes - before)
    result.append(Trace(functions, statistics.median(passes)))
    client.close()


class _CountingLoop(asyncio.SelectorEventLoop):
    """Counts its passes."""

    recorder: _Recorder

    def _run_once(self) -> None:
        self.recorder.passes += 1
        super()._run_once()  # type: ignore[misc]  # of BaseEventLoop, where no stub has it


async def _serve(config: str, read: IO[bytes], write: IO[bytes], folder: Path) -> None:
    path = folder / "servers.yaml"
    path.write_text(config)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "MCP_HUB_STATE_DIR": str(folder / "state")}
    async with open_app(load(path, env), env) as app:
        front = StdioFront(app.hub, app.binding, Caller(has_own_hub=True), lambda: 0.0)
        await front.serve(read, write, app.settings.hub.limits.line)
        front.close()


def written(trace: Trace) -> str:
    """The functions in the order of their calls, a line for each stretch within one module, and the sums."""
    lines: list[str] = []
    module = ""
    for function in trace.functions:
        found, _, name = function.partition(":")
        if found != module:
            lines.append(f"{found}: {name}")
            module = found
        else:
            lines[-1] += f", {name}"
    calls, modules = len(trace.functions), len(trace.modules)
    sums = f"{calls} calls of functions in {modules} modules; {trace.passes:g} passes of the loop"
    return "\n".join([*lines, "", sums])


def traced() -> Trace:
    """Runs a hub with the echo server, whose tool `echo` is called, and a client in another thread."""
    server = [sys.executable, str(Path(__file__).with_name("echo_server.py"))]
    recorder, result = _Recorder(), list[Trace]()
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    client = _Client(os.fdopen(in_write, "wb"), os.fdopen(out_read, "rb"))
    config = json.dumps({"servers": {"echo": {"command": server[0], "args": server[1:]}}})
    loop = _CountingLoop()
    loop.recorder = recorder
    driver = threading.Thread(target=_drive, args=(client, recorder, result), daemon=True)
    driver.start()
    with TemporaryDirectory() as folder:
        sys.setprofile(recorder)
        try:
            files = os.fdopen(in_read, "rb", buffering=0), os.fdopen(out_write, "wb", buffering=0)
            loop.run_until_complete(_serve(config, *files, Path(folder)))
        finally:
            sys.setprofile(None)
            loop.close()
    driver.join(10)
    return result[0]

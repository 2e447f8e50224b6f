"""`python -m bench --trace`: the way of one quick call over stdio, function by function, and the passes of the loop.

The hub runs in this process between two pipes, on plain asyncio, with the echo server as a child. Counted are calls of
functions of `mcp_hub`, frames of comprehensions left out, for the 50th of equal calls (Python 3.11; the shortest of a
hundred, since timers may ring), and how often the event loop turns between the bytes of a call and those of its answer,
as the median of 1,000 calls.
"""

import asyncio
import json
import os
import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import IO, Any

import msgspec

import mcp_hub
from mcp_hub.app.build import open_app
from mcp_hub.config.load.load import load
from mcp_hub.fronts.stdio import StdioFront
from mcp_hub.sessions.session import Caller

PACKAGE = f"{Path(mcp_hub.__file__).parent}{os.sep}"
ECHO = (sys.executable, str(Path(__file__).with_name("echo_server.py")))
COMPREHENSIONS = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}
WARM, LOOKS, PASSES = 49, 100, 1000
START = "40s"
"""The time for the server to start, on a busy machine, too: longer than clients usually wait for the first list."""
QUIET = 0.002
"""Seconds after an answer in which the hub may still tidy up; the next timer of an idle hub is later."""


class TraceFailed(Exception):
    """A run without a trace: the server did not start, or the hub answered with an error or not at all."""


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

    def ask(self, method: str, params: object) -> dict[str, Any]:
        """The answer to a request. Raises: `TraceFailed` if the hub ends without one."""
        self._id += 1
        frame = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        self._write.write(json.dumps(frame).encode() + b"\n")
        self._write.flush()
        while True:
            if not (line := self._read.readline()):
                raise TraceFailed(f"the hub ended without an answer to {method}")
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == self._id:
                return answer

    def tell(self, method: str) -> None:
        self._write.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")
        self._write.flush()

    def close(self) -> None:
        self._write.close()


def _drive(client: _Client, recorder: _Recorder) -> Trace:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "trace", "version": "1"}}
    client.ask("initialize", hello)
    client.tell("notifications/initialized")
    listed = client.ask("tools/list", {})
    if "echo" not in str(listed):
        raise TraceFailed(f"the server did not start within {START}, so that its tool is not listed")
    call = {"name": "echo", "arguments": {"text": "hello"}}
    for _ in range(WARM):
        client.ask("tools/call", call)
    found = []
    for _ in range(LOOKS):
        with recorder.recording():
            answer = client.ask("tools/call", call)
        if "result" not in answer:
            raise TraceFailed(f"the hub answered a call with an error: {answer['error']}")
        found.append(tuple(recorder.found))
    functions = min(found, key=len)  # a timer of the hub may ring during one of them
    passes = []
    for _ in range(PASSES):
        before = recorder.passes
        client.ask("tools/call", call)
        passes.append(recorder.passes - before)
    return Trace(functions, statistics.median(passes))


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


def _outcome(client: _Client, recorder: _Recorder, outcome: "Future[Trace]") -> None:
    """Runs the client. The hub's input is closed in any case: a hub whose client fails would wait for ever."""
    try:
        outcome.set_result(_drive(client, recorder))
    except Exception as problem:
        outcome.set_exception(problem)
    finally:
        client.close()


def traced(server: Sequence[str] = ECHO) -> Trace:
    """Runs a hub with a server, whose tool `echo` is called, and a client in another thread. Raises: `TraceFailed`."""
    recorder, outcome = _Recorder(), Future[Trace]()
    (in_read, in_write), (out_read, out_write) = os.pipe(), os.pipe()
    answers = os.fdopen(out_read, "rb")
    client = _Client(os.fdopen(in_write, "wb"), answers)
    servers = {"echo": {"command": server[0], "args": list(server[1:])}}
    config = json.dumps({"hub": {"first_list_wait": START}, "servers": servers})
    loop = _CountingLoop()
    loop.recorder = recorder
    threading.Thread(target=_outcome, args=(client, recorder, outcome), daemon=True).start()
    files = os.fdopen(in_read, "rb", buffering=0), os.fdopen(out_write, "wb", buffering=0)
    with TemporaryDirectory() as folder, files[0], files[1], answers:
        sys.setprofile(recorder)
        try:
            loop.run_until_complete(_serve(config, *files, Path(folder)))
        finally:
            sys.setprofile(None)
            loop.close()
        return outcome.result(10)

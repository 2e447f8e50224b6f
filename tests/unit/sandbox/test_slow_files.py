"""A file system that does not answer: it holds a thread of its server, and neither the event loop nor other calls."""

import os
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.from_thread
import pytest

from mcp_hub.errors import StartFailed
from mcp_hub.sandbox import connector, server
from mcp_hub.sandbox.learning import Learning
from mcp_hub.sandbox.rules import Rule
from mcp_hub.types import Cause
from tests.unit.sandbox.confined import SECONDS, TRY, needs_sandbox, python, sandbox_of
from tests.unit.sandbox.test_learning import no_proxy

pytestmark = [needs_sandbox(), pytest.mark.anyio, pytest.mark.processes]


class SlowVariables(dict[str, str]):
    """An environment whose readers wait: a thread of a start that looks at a file system which does not answer."""

    def __init__(self) -> None:
        super().__init__(PATH="/bin")
        self.readers = 0
        self.is_read = anyio.Event()
        self.released = threading.Event()

    def get(self, name: str, default: str | None = None) -> str | None:  # type: ignore[override]
        """Raises `TimeoutError` if nothing releases it."""
        if not self.released.is_set():
            self.readers += 1
            anyio.from_thread.run_sync(self.is_read.set)
            if not self.released.wait(SECONDS):
                raise TimeoutError
        return super().get(name, default)


async def test_a_slow_file_system_holds_one_thread_of_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandbox, slow = sandbox_of(tmp_path), SlowVariables()
    begin = partial(sandbox.begin, ["/bin/true"], slow, "/", is_spare=False)
    try:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(begin)
                await slow.is_read.wait()  # so the loop runs on
                tasks.cancel_scope.cancel()
            monkeypatch.setattr(server, "_LOOKING", 0.1)
            with pytest.raises(StartFailed) as failed:
                await begin()
            assert (failed.value.code, slow.readers) == ("start_timeout", 1)
            monkeypatch.setattr(server, "_EXPLAINING", 0.1)
            assert await sandbox.explained(Cause("crashed", "x")) == Cause("crashed", "x")
            slow.released.set()
            monkeypatch.undo()
            assert await begin() is not None
    finally:
        slow.released.set()


class SlowPath:
    """`os.path.realpath` on a file system that does not answer below one path; only in threads."""

    def __init__(self, path: Path) -> None:
        self.path, self.usual = str(path), os.path.realpath
        self.is_read = anyio.Event()
        self.released = threading.Event()

    def __call__(self, path: str, **options: Any) -> str:
        """Raises `RuntimeError` on the event loop, `TimeoutError` if nothing releases it."""
        if str(path).startswith(self.path) and not self.released.is_set():
            anyio.from_thread.run_sync(self.is_read.set)
            if not self.released.wait(SECONDS):
                raise TimeoutError
        return self.usual(path, **options)


@pytest.mark.parametrize("learns", [False, True])
async def test_a_path_of_the_server_on_a_slow_file_system_holds_up_its_own_calls_alone(
    tmp_path: Path, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, lines = SlowPath(tmp_path / "slow"), list[str]()
    monkeypatch.setattr(os.path, "realpath", slow)
    learning = Learning(no_proxy) if learns else None
    sandbox = sandbox_of(tmp_path, Rule(write=(), sockets=(str(tmp_path / "agent"),)), learning=learning)

    async def run(code: str) -> None:
        lines.extend((await python(sandbox, TRY + code)).splitlines())

    try:
        with socket.create_server(("127.0.0.1", 0)) as listening, anyio.fail_after(SECONDS):
            listening.settimeout(SECONDS)
            code = f"""
import threading
def connect(path): socket.socket(socket.AF_UNIX).connect(path)
with socket.create_connection({listening.getsockname()}) as first:
    threading.Thread(target=attempt, args=("slow", connect, "{tmp_path}/slow/x")).start()
    first.recv(1)
    {"attempt('later', connect, '" + str(tmp_path) + "/slow/y')" if not learns else ""}
attempt("tcp", socket.create_connection, {listening.getsockname()})
"""
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, code)
                first, _ = await anyio.to_thread.run_sync(listening.accept, abandon_on_cancel=True)
                await slow.is_read.wait()  # so the loop runs on
                monkeypatch.setattr(connector, "_LOOKING", 0.1)  # not sooner: a thread may begin late
                with first:
                    first.sendall(b"x")
                    if learns:
                        slow.released.set()
                    second, _ = await anyio.to_thread.run_sync(listening.accept, abandon_on_cancel=True)
                second.close()
                slow.released.set()
    finally:
        slow.released.set()
    assert sorted(lines) == [*(["later 13"] if not learns else []), "slow 13", "tcp open"]

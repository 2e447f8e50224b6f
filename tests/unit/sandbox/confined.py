"""Commands in a real sandbox of this kernel, or a skip with the reason."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from mcp_hub.sandbox.confinement import Unsupported, support
from mcp_hub.sandbox.learning import Learning
from mcp_hub.sandbox.network.interface import Proxy
from mcp_hub.sandbox.rules import Rule, Surroundings
from mcp_hub.sandbox.server import SandboxedStart, ServerSandbox

SECONDS = 240.0
PYTHON = os.path.realpath(sys.executable)
TRY = """
import ctypes, os, socket, subprocess, sys
libc = ctypes.CDLL(None, use_errno=True)
def attempt(name, call, *args):
    try:
        answer = call(*args)
    except OSError as problem:
        print(name, problem.errno)
    else:
        print(name, "open" if not isinstance(answer, int) or answer >= 0 else ctypes.get_errno())
"""


def needs_sandbox() -> pytest.MarkDecorator:
    """Skips where the kernel has no sandbox."""
    try:
        support("hosts")
    except Unsupported as problem:
        return pytest.mark.skipif(True, reason=str(problem))
    return pytest.mark.skipif(False, reason="")


def sandbox_of(
    folder: Path, rule: Rule | None = None, proxy: Proxy | None = None, learning: Learning | None = None
) -> ServerSandbox:
    """A sandbox of a user whose home folder is `folder/user`."""
    (folder / "user").mkdir(exist_ok=True)
    around = Surroundings(str(folder / "user"), (str(folder / "state"),))
    made = rule or Rule(write=())
    make_proxy = None if proxy is None else lambda: proxy
    return ServerSandbox("test", made, str(folder / "state/private"), around, make_proxy, learning)


def spawned(start: SandboxedStart, cwd: str = "/", inherited: Sequence[int] = ()) -> "subprocess.Popen[bytes]":
    """The process of a start, its outputs in one pipe, with further descriptors that it has to close."""
    with start.launch as launch:
        return subprocess.Popen(
            launch.argv, env=launch.env, pass_fds=[*launch.descriptors, *inherited], cwd=cwd, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip


async def output(
    sandbox: ServerSandbox,
    argv: Sequence[str],
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    inherited: Sequence[int] = (),
) -> str:
    """What a command writes to both of its outputs, and its exit code unless that is 0."""
    variables = {"PATH": f"{os.path.dirname(PYTHON)}:/usr/bin:/bin", **(env or {})}
    start = sandbox.prepare(argv, variables, cwd, is_spare=False)
    assert start is not None
    process = spawned(start, cwd, inherited)
    try:
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                await start.begin(tasks)
                written, _ = await anyio.to_thread.run_sync(process.communicate, abandon_on_cancel=True)
                tasks.cancel_scope.cancel()
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
    text = written.decode(errors="replace")
    return text + f"exit {process.returncode}" * bool(process.returncode)


async def python(sandbox: ServerSandbox, code: str, cwd: str = "/") -> str:
    """What a program in Python writes."""
    return (await output(sandbox, [PYTHON, "-I", "-S", "-c", code], cwd=cwd)).strip()


@contextmanager
def listener(path: Path) -> Iterator[socket.socket]:
    """A Unix socket that answers each connection with its path."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()

        def answer() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, suppress(BrokenPipeError):  # the hub may close what it has connected
                    connection.sendall(str(path).encode())

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()

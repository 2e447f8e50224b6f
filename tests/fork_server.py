"""A fork server for the `mcp-hub` command: a start costs a fork instead of a third of a second for imports.

Each command is a process of its own, forked from one that has imported the hub and done nothing else. Tests that are
about the start itself, about pids, closed streams or limits run the real command. The server declines what would make
Python itself start in another way (`PYTHON…`, the locale). It ends when its stdin does.

A client with the variable `FORKS` has its background hub started in this way, too.
"""

import atexit
import gc
import os
import pkgutil
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from mcp_hub.cli import commands

if sys.platform != "win32":
    import fcntl
    import termios

ROOT: Final = Path(__file__).parents[1]
_IMPORTED: Final = ("mcp_hub.__main__", "mcp_hub.app.http")
"""Beside the modules of the commands."""
_OPTIONAL: Final = "mcp_hub.cli.commands.running.operate"
"""A module that needs what may not be installed."""
_STAND_IN: Final = "forked_command.py"
FORKS: Final = "MCP_HUB_TESTS_FORK"
_MOST: Final = 4 << 20
"""Bytes of a request: the environment and the arguments of a process."""


class _Request(NamedTuple):
    arguments: list[str]
    folder: bytes
    umask: int
    env: dict[bytes, bytes]


def _text(env: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables that Python itself reads at its start, but for those of modules, their caches and buffers."""
    read = (b"PYTHON", b"LC_", b"LANG")
    done = (b"PYTHONPATH", b"PYTHONDONTWRITEBYTECODE", b"PYTHONUNBUFFERED")
    found = {key: value for key, value in env.items() if key.startswith(read) and key not in done and value}
    if not any(key.startswith(b"LANG") for key in found) and found.get(b"LC_CTYPE", b"C.UTF-8") == b"C.UTF-8":
        return {**found, b"LANG": b"C.UTF-8", b"LC_CTYPE": b"C.UTF-8"}  # as Python has it without a locale (PEP 538)
    return {b"LC_CTYPE": found[b"LANG"], **found} if b"LANG" in found else found


def _read(connection: socket.socket) -> tuple[_Request, list[int]]:
    data, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    size = 12 + int(data[:12])
    if size > _MOST:
        raise ValueError("the request is too large")
    while len(data) < size:
        data += connection.recv(size - len(data))
    folder, umask, count, *parts = data[12:].split(b"\0")
    arguments = [os.fsdecode(part) for part in parts[: int(count)]]
    env = dict(part.partition(b"=")[::2] for part in parts[int(count) :])
    return _Request(arguments, folder, int(umask), env), streams


def _forked_hubs(path: str) -> None:
    """A background hub that this process starts is forked by the server of this socket."""
    execute = os.execve

    def execve(program: str, line: list[str], env: dict[str, str]) -> NoReturn:
        if line[1:4] == ["-m", "mcp_hub", "attached-hub"]:
            line = [line[0], "-I", "-S", str(Path(__file__).with_name(_STAND_IN)), path, *line[3:]]
        execute(program, line, env)

    os.execve = execve  # type: ignore[assignment]


def _become(request: _Request, streams: list[int], path: str) -> NoReturn:
    """Runs the command in this process, which was just forked by the server of this socket."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.setsid()
    with suppress(OSError):  # no terminal, or that of who runs the tests
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request.folder)
    os.umask(request.umask)
    os.environb.clear()
    os.environb.update(request.env)
    if os.environ.pop(FORKS, None):
        _forked_hubs(path)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    text = sys.__stdout__.encoding if sys.__stdout__ else "utf-8"
    sys.stdin = sys.__stdin__ = open(0, encoding=text, closefd=False)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = open(1, "w", encoding=text, closefd=False)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = open(2, "w", 1, text, "backslashreplace", closefd=False)  # type: ignore[misc]
    folders = os.fsdecode(request.env.get(b"PYTHONPATH", b"")).split(os.pathsep)
    sys.path[:1] = [os.fsdecode(request.folder), *filter(None, folders)]  # as `python -m` does
    sys.argv = [str(ROOT / "mcp_hub" / "__main__.py"), *request.arguments]
    program = sys.modules["__main__"] = import_module("mcp_hub.__main__")
    program.main()
    sys.exit()


class _Server:
    """Forks in turn, and says how each process ended. A process whose connection is closed is killed."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self._running: dict[int, socket.socket] = {}
        self._wake, signalled = socket.socketpair()
        self._wake.setblocking(False)
        signalled.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(signalled.fileno(), warn_on_full_buffer=False)
        self._signalled = signalled
        for file in (0, listener, self._wake):
            self._selector.register(file, selectors.EVENT_READ)

    def serve(self) -> tuple[_Request, list[int]] | None:
        """Serves until stdin ends (None). Returns what to run in a process that was forked."""
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == 0:
                    self._end()
                    return None
                if key.fileobj is self._listener:
                    if (forked := self._fork()) is not None:
                        return forked
                elif key.fileobj is self._wake:
                    self._reap()
                elif not isinstance(key.fileobj, int) and key.fileobj in self._running.values():
                    self._hear(key.data)

    def _fork(self) -> tuple[_Request, list[int]] | None:
        connection, _ = self._listener.accept()
        connection.settimeout(10)
        try:
            request, streams = _read(connection)
        except (OSError, ValueError):
            connection.close()
            return None
        pid = os.fork() if _text(request.env) == _text(dict(os.environb)) else -1
        if pid == 0:
            for other in (connection, self._listener, self._wake, self._signalled, *self._running.values()):
                other.close()
            self._selector.close()
            return request, streams
        for stream in streams:
            os.close(stream)
        if pid < 0:
            connection.close()
            return None
        self._running[pid] = connection
        self._selector.register(connection, selectors.EVENT_READ, pid)
        with suppress(OSError):
            connection.sendall(b"%d\n" % pid)
        return None

    def _hear(self, pid: int) -> None:
        """Its starter says once that it passes signals on; it is gone if there is no more to read."""
        connection = self._running[pid]
        with suppress(OSError):
            if connection.recv(1):
                return
        self._selector.unregister(connection)
        os.kill(pid, signal.SIGKILL)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            self._wake.recv(4096)
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    return
                connection = self._running.pop(pid)
                with suppress(KeyError):
                    self._selector.unregister(connection)
                with suppress(OSError), connection:
                    connection.sendall(b"%d\n" % status)

    def _end(self) -> None:
        for pid in self._running:
            os.kill(pid, signal.SIGKILL)


def _main(path: str) -> None:
    found = pkgutil.walk_packages(commands.__path__, f"{commands.__name__}.")
    for name in (*_IMPORTED, *(module.name for module in found if module.name != _OPTIONAL)):
        import_module(name)
    gc.collect()
    gc.freeze()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(64)
        print("ready", flush=True)
        work = _Server(listener).serve()
    if work is not None:
        _become(*work, path)


@cache
def forked_command() -> tuple[str, ...]:
    """The command line of `mcp-hub` by way of the fork server, which the first call starts."""
    if sys.platform == "win32":
        return (sys.executable, "-m", "mcp_hub")
    folder = tempfile.mkdtemp(prefix="mcp-hub-fork-")
    path = os.path.join(folder, "s")
    pipe = subprocess.PIPE
    server = subprocess.Popen([sys.executable, __file__, path], stdin=pipe, stdout=pipe, cwd=ROOT)
    atexit.register(_stop, server, folder)
    assert server.stdout is not None and server.stdout.readline() == b"ready\n"
    return (sys.executable, "-I", "-S", str(Path(__file__).with_name(_STAND_IN)), path)


def forked_pid(line: Sequence[str], pid: int) -> int:
    """The process of the command that a process with this command line stands for; itself for any other."""
    if len(line) < 5 or not line[3].endswith(_STAND_IN):
        return pid
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with suppress(FileNotFoundError):
            return int(Path(f"{line[4]}.{pid}").read_text())
        time.sleep(0.001)
    return pid


def _stop(server: "subprocess.Popen[bytes]", folder: str) -> None:
    with server:
        assert server.stdin is not None
        server.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main(sys.argv[1])

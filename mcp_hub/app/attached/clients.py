"""Clients of a background hub: their hello, its answer, and the two pipes that they hand over."""

import os
import socket
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final, TypeVar

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.attach import hello
from mcp_hub.attach.hello import NEWEST, OLDEST, is_newer
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import id_key
from mcp_hub.sessions.session import Caller

with suppress(ImportError):  # Windows
    import fcntl

MOST_CLIENTS: Final = 256
"""Clients of one hub; further ones get their own."""
_MOST_STREAMS: Final = 1024

log = get_logger(__name__)

_GREETING: Final = 5.0
"""Seconds for a client's hello, and again for its pipes."""
_T = TypeVar("_T")


class Hello(msgspec.Struct, frozen=True):
    """A client's introduction. `streams`: its open requests' streams, by request id. `path`: its search path."""

    build: str
    protocol: tuple[int, int]
    caller: Caller
    pid: int = 0
    is_final: bool = False
    streams: dict[int | str, str] = {}
    path: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> "Hello":
        """Raises `ValueError` for invalid fields."""
        caller = Caller(
            profile=fields.get("profile"),
            has_own_hub=True,  # as over stdio: whoever is at the other end is a client of a person, not a program
            client=fields.get("client"),
            directory=fields.get("cwd") or "/",
        )
        streams: dict[int | str, str] = {}
        for line in fields.get("streams", "").splitlines()[:_MOST_STREAMS]:
            raw_id, _, stream = line.rpartition(" ")
            streams[id_key(raw_id.encode())] = stream
        protocol = int(fields["oldest"]), int(fields["newest"])
        final, pid = fields.get("final") == "1", int(fields.get("pid", "0"))
        return cls(
            build=fields["build"],
            protocol=protocol,
            caller=caller,
            pid=pid,
            is_final=final,
            streams=streams,
            path=fields.get("path", ""),
        )


def answer(hello: Hello, build: str, settings: Settings, *, clients: int, is_idle: bool) -> dict[str, str]:
    """The answer's fields; `status` is `ok`, `retire`, `busy` or `refused`.

    A busy, older hub adds its `build`, so that newer clients share another hub.
    """
    oldest, newest = hello.protocol
    is_apart = newest < OLDEST or oldest > NEWEST
    if is_newer(hello.build, build) and not hello.is_final:
        if is_idle:
            return {"status": "retire"}
        message = f"clients still use the background hub of version {build}, which is older than this program "
        message += f"({hello.build}). Restart these clients, or run mcp-hub stop"
        return {"status": "busy", "why": message, "build": build}
    if clients >= MOST_CLIENTS:
        return {"status": "busy", "why": f"the background hub has {clients} clients already"}
    if is_apart:
        return {"status": "refused", "why": f"the background hub ({build}) speaks another version of the protocol"}
    caller = hello.caller
    if caller.profile is not None and caller.profile not in settings.profiles:
        return {"status": "refused", "why": f'the background hub has no profile "{caller.profile}"'}
    try:
        if caller.client is not None:
            settings.client_table.require(caller.client)
    except ConfigError:
        return {"status": "refused", "why": f'the background hub has no kind of client "{caller.client}"'}
    return {"status": "ok", "build": build, "resumes": "1"}


async def greeted(connection: socket.socket) -> tuple[dict[str, str], bytes]:
    """The fields of a hello. Raises `ValueError`, `OSError`, `TimeoutError`."""
    data = b""
    with anyio.fail_after(_GREETING):
        while not hello.is_whole(data):
            portion = await _received(connection, lambda: connection.recv(1 << 16))
            if not portion:
                raise ValueError("the connection ended without a hello")
            data += portion
    return hello.decoded(data)


async def pipes(connection: socket.socket) -> tuple[IO[bytes], IO[bytes]]:
    """The client's pipes, to read and to write. Raises `ValueError`, `OSError`, `TimeoutError`."""
    if sys.platform == "win32":
        raise NotImplementedError
    with anyio.fail_after(_GREETING):
        _, files, flags, _ = await _received(connection, lambda: socket.recv_fds(connection, 1, 2))
    for file in files:
        os.set_inheritable(file, False)
    if flags & socket.MSG_CTRUNC or not _are_pipes(files):
        for file in files:
            os.close(file)
        raise ValueError("the client did not hand over two pipes, one to read and one to write")
    return os.fdopen(files[0], "rb", buffering=0), os.fdopen(files[1], "wb", buffering=0)


def _are_pipes(files: Sequence[int]) -> bool:
    if sys.platform == "win32":
        raise NotImplementedError
    if len(files) != 2:
        return False
    statuses = [os.fstat(file) for file in files]
    modes = [fcntl.fcntl(file, fcntl.F_GETFL) & os.O_ACCMODE for file in files]
    are_two = (statuses[0].st_dev, statuses[0].st_ino) != (statuses[1].st_dev, statuses[1].st_ino)
    return are_two and modes == [os.O_RDONLY, os.O_WRONLY] and all(stat.S_ISFIFO(each.st_mode) for each in statuses)


async def gone(connection: socket.socket) -> None:
    """Returns once the client has closed the connection."""
    with suppress(OSError):
        while await _received(connection, lambda: connection.recv(1 << 12)):
            await anyio.lowlevel.checkpoint()


async def _received(connection: socket.socket, receive: Callable[[], _T]) -> _T:
    while True:
        await anyio.wait_readable(connection)
        try:
            return receive()
        except BlockingIOError:
            continue

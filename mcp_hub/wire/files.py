"""The ends of a pipe: files, sockets, and the write side."""

import asyncio
import contextlib
import os
import select
import socket
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import IO, Any, Final, Protocol, cast

if sys.platform == "linux":
    import fcntl
    import termios


class _HasFileno(Protocol):
    def fileno(self) -> int: ...


def has_reader(file: _HasFileno) -> bool:
    """Whether the other end is open; true where there is none, and on Windows."""
    if sys.platform == "win32":
        return True
    else:
        poll = select.poll()
        poll.register(file, 0)
        return not poll.poll(0)


class _FileWriter:
    """Writes to a file that cannot be polled; blocks."""

    def __init__(self, file: IO[bytes], on_failure: Callable[[str, str], None]) -> None:
        self._file = file
        self._on_failure = on_failure

    def writelines(self, parts: Iterable[bytes | memoryview]) -> None:
        for part in parts:
            self.write(part)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file.fileno(), view) :]
        except OSError as exc:
            self._on_failure(f"writing failed: {exc}", "closed")

    def close(self) -> None:
        self._file.close()


class PipeOutput(asyncio.Protocol):
    """The write side of a pipe or a socket.

    `on_pressure` gets True when more than `limit` bytes wait, False when the peer has read them. Calls `close` after
    `patience` seconds without reading, and `on_lost` if the peer closes a pipe.
    """

    def __init__(
        self,
        limit: int,
        patience: float | None,
        *,
        on_pressure: Callable[[bool], None],
        on_lost: Callable[[], None],
        close: Callable[[str, str], None],
    ) -> None:
        self.writer: asyncio.WriteTransport | _FileWriter | None = None
        self._limit = limit
        self._patience = patience
        self._on_pressure = on_pressure
        self._on_lost = on_lost
        self._close = close
        self._is_under_pressure = False

    async def attach(self, file: IO[bytes]) -> None:
        """Writes to a file, and owns it even if it fails."""
        loop = asyncio.get_running_loop()
        try:
            widen(file)
            if can_poll(file):
                await loop.connect_write_pipe(lambda: self, owned_by(loop, file))
            else:
                self.writer = _FileWriter(file, self._close)
        except BaseException:
            file.close()
            raise

    async def connect(self, connection: socket.socket, reader: asyncio.Protocol) -> None:
        """Writes to a socket; `reader` gets what comes from it."""
        await asyncio.get_running_loop().connect_accepted_socket(lambda: _SocketSide(self, reader), connection)

    @property
    def has_reader(self) -> bool:
        """Whether the peer may still read."""
        if self.writer is None or isinstance(self.writer, _FileWriter):
            return self.writer is not None
        return has_reader(self.writer.get_extra_info("pipe") or self.writer.get_extra_info("socket"))

    def close(self) -> None:
        self._is_under_pressure = False
        if self.writer is not None:
            self.writer.close()

    # -- asyncio.Protocol -----------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = self.writer = cast(asyncio.WriteTransport, transport)  # uvloop's is of no class of asyncio
        writer.set_write_buffer_limits(high=self._limit)

    def pause_writing(self) -> None:
        """More than `limit` bytes wait."""
        self._is_under_pressure = True
        self._on_pressure(True)
        if self._patience is not None:
            self._look_later(self._patience)

    def resume_writing(self) -> None:
        """The peer has read most of them."""
        self._is_under_pressure = False
        self._on_pressure(False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()

    @property
    def _unsent(self) -> int:
        return 0 if self.writer is None or isinstance(self.writer, _FileWriter) else self.writer.get_write_buffer_size()

    def _look_later(self, patience: float) -> None:
        asyncio.get_running_loop().call_later(patience, self._look_at_peer, patience, self._unsent)

    def _look_at_peer(self, patience: float, before: int) -> None:
        if self._is_under_pressure:
            if self._unsent >= before:
                self._close(f"it has not read its input for {patience:g} s", "not_reading")
            else:
                self._look_later(patience)


class _SocketSide(asyncio.Protocol):
    """Both sides of a socket; stays open when the peer stops sending."""

    def __init__(self, output: PipeOutput, reader: asyncio.Protocol) -> None:
        self._output = output
        self._reader = reader

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._output.connection_made(transport)
        self._reader.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        self._reader.data_received(data)

    def eof_received(self) -> bool:
        self._reader.eof_received()
        return True

    def pause_writing(self) -> None:
        self._output.pause_writing()

    def resume_writing(self) -> None:
        self._output.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._output._close("the peer closed the connection", "connection_lost")


async def read_from(file: IO[bytes], reader: asyncio.Protocol) -> None:
    """Feeds `reader` from a file, which it owns then."""
    loop = asyncio.get_running_loop()
    widen(file)
    if can_poll(file):
        await loop.connect_read_pipe(lambda: reader, owned_by(loop, file))
    else:
        read_in_thread(file, reader, loop)


def read_in_thread(file: IO[bytes], protocol: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
    """Feeds `protocol` from a file that cannot be polled."""

    def read() -> None:
        with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: the loop is closed
            while chunk := os.read(file.fileno(), 65536):
                loop.call_soon_threadsafe(protocol.data_received, chunk)
            loop.call_soon_threadsafe(protocol.eof_received)

    threading.Thread(target=read, name="pipe-reader", daemon=True).start()


def can_poll(file: IO[Any]) -> bool:
    """Whether the event loop can wait for it."""
    mode = os.fstat(file.fileno()).st_mode
    return sys.platform != "win32" and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file.fileno()))


class _WithCopy:
    """A file with a copy of its descriptor for uvloop to close, whose number cannot become another file's."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._copy = os.dup(file.fileno())

    def fileno(self) -> int:
        return self._copy

    def close(self) -> None:
        self._file.close()


def owned_by(loop: asyncio.AbstractEventLoop, file: IO[bytes]) -> Any:
    """The file, for a transport that closes it once."""
    return file if isinstance(loop, asyncio.BaseEventLoop) else _WithCopy(file)


_WIDE: Final = weakref.WeakSet[IO[bytes]]()
_MOST_WIDE: Final = 32
"""Pipes with a large buffer. Beyond 64 MiB of a user's buffers, Linux gives all new pipes of that user 8 KiB."""


def widen(file: IO[bytes]) -> None:
    """Gives a Linux pipe a buffer of 1 MiB, unless 32 open ones have such a buffer."""
    if sys.platform == "linux" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
        if sum(not wide.closed for wide in _WIDE) >= _MOST_WIDE:
            return
        with contextlib.suppress(OSError):
            fcntl.fcntl(file.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)
            _WIDE.add(file)


def unread(pipe: IO[bytes]) -> int | None:
    """The unread bytes in a pipe, 0 for a closed one, None if unknown."""
    if sys.platform == "linux":
        try:
            return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        except (OSError, ValueError):
            return 0
    else:
        return None

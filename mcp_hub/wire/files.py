"""The files at the ends of a pipe."""

import asyncio
import contextlib
import os
import select
import stat
import sys
import threading
from collections.abc import Callable
from typing import IO, Any, Protocol

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


class FileWriter:
    """Writes to a file that cannot be polled; blocks."""

    def __init__(self, file: IO[bytes], on_failure: Callable[[str], None]) -> None:
        self._file = file
        self._on_failure = on_failure

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._file.fileno(), view) :]
        except OSError as exc:
            self._on_failure(f"writing failed: {exc}")

    def close(self) -> None:
        self._file.close()


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


def widen(file: IO[Any]) -> None:
    """Gives a Linux pipe a buffer of 1 MiB."""
    if sys.platform == "linux" and stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
        with contextlib.suppress(OSError):
            fcntl.fcntl(file.fileno(), fcntl.F_SETPIPE_SZ, 1 << 20)


def unread(pipe: IO[bytes]) -> int | None:
    """The unread bytes in a pipe, 0 for a closed one, None if unknown."""
    if sys.platform == "linux":
        try:
            return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        except (OSError, ValueError):
            return 0
    else:
        return None

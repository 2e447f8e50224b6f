"""Bounded reading of regular files at untrusted paths, and removal of folders that other programs fill."""

import errno
import os
import shutil
import stat
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final, NamedTuple

HISTORY_FILE: Final = "history.db"
LARGEST_OWN: Final = 1 << 20
"""Bytes of a file of the hub: thousands of servers."""
LARGEST_OF_CLIENTS: Final = 16 << 20
"""Bytes of another program's file."""
SECONDS: Final = 5.0
"""Disks take milliseconds; a lost network file system never answers."""
_LONGEST: Final = 3800
"""Bytes: the kernel takes 4095, with an entry's name."""
_PORTION: Final = 1 << 20
_FLAGS: Final = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_BINARY"))
"""Opening does not block on a pipe put there meanwhile."""


_ROOM: Final[dict[tuple[str, int], int]] = {}


def may_be_full(folder: Path, limit: int) -> bool:
    """Whether a folder may have more than `limit` files. To be asked once for each new file.

    At a start each server has a new file, and reading all names for each would take seconds.
    """
    _ROOM[str(folder), limit] = room = _ROOM.get((str(folder), limit), 0) - 1
    return room <= 0


def note_count(folder: Path, limit: int, count: int) -> None:
    """`may_be_full` once a quarter of the room is used, since other processes use it, too."""
    _ROOM[str(folder), limit] = (limit - count) // 4


def encoded(text: str) -> bytes:
    """A text as the file system's bytes, else UTF-8."""
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


class _FileContent(NamedTuple):
    """A file's bytes, and its state at that time."""

    data: bytes
    stat: os.stat_result


def read_file(path: Path | str, largest: int, seconds: float = SECONDS) -> _FileContent:
    """Reads a regular file; blocks for at most `seconds`.

    Raises `OSError` with `strerror`: `EFBIG` beyond `largest` bytes, `FileNotFoundError`.
    """
    outcome: list[_FileContent | OSError] = []

    def read() -> None:
        try:
            outcome.append(_read(path, largest))
        except OSError as problem:
            outcome.append(problem)
        except ValueError:
            outcome.append(OSError(errno.EINVAL, "its name holds a character that no name can"))

    reader = threading.Thread(target=read, name="file-reader", daemon=True)  # a system call cannot be given up
    reader.start()
    reader.join(seconds)
    if not outcome:
        raise OSError(errno.ETIMEDOUT, f"it does not arrive within {seconds:g} s")
    (result,) = outcome
    if isinstance(result, OSError):
        raise result
    return result


def _read(path: Path | str, largest: int) -> _FileContent:
    _check(os.stat(path))
    file = os.open(path, _FLAGS)
    try:
        state = os.fstat(file)
        _check(state)
        data = bytearray()
        while portion := os.read(file, min(_PORTION, largest + 1 - len(data))):
            data += portion
            if len(data) > largest:
                raise OSError(errno.EFBIG, f"larger than {largest} bytes")
        return _FileContent(bytes(data), state)
    finally:
        os.close(file)


def _check(state: os.stat_result) -> None:
    if stat.S_ISDIR(state.st_mode):
        raise IsADirectoryError(errno.EISDIR, "it is a directory, not a regular file")
    if not stat.S_ISREG(state.st_mode):
        raise OSError(errno.EINVAL, "it is a pipe, a socket or a device, not a regular file")


def open_null(flags: int) -> int:
    """The null device, or a closed pipe without it. Raises `OSError`."""
    try:
        return os.open(os.devnull, flags)
    except FileNotFoundError:
        read, write = os.pipe()
        end, spare = (write, read) if flags & os.O_WRONLY else (read, write)
        os.close(spare)
        return end


def entries_below(folder: str) -> Iterator[os.DirEntry[str] | None]:
    """All readable entries below a folder, nearest first, links not followed; None for too long paths."""
    folders = deque([(folder, "")])  # the folder above is one text for all in it, which may be many
    while folders:
        path = os.path.join(*folders.popleft())
        if len(os.fsencode(path)) > _LONGEST:
            yield None
            continue
        with suppress(OSError), os.scandir(path) as entries:
            for entry in entries:
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    folders.append((path, entry.name))


def is_larger(folder: str, limit: int, entries_limit: int) -> bool:
    """Whether a folder takes more than `limit` bytes on disk, or too many or deep entries."""
    if sys.platform == "win32":
        raise NotImplementedError
    total = 0
    for number, entry in enumerate(entries_below(folder)):
        if entry is None or number >= entries_limit:
            return True
        with suppress(OSError):
            if not entry.is_dir(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_blocks * 512
        if total > limit:
            return True
    return False


def remove_tree(path: str | Path) -> None:
    """Removes a file, link or folder of any depth. Follows no links. Raises `OSError` if something stays.

    Folders move up one by one, which bounds paths and descriptors.
    """
    if not os.path.isdir(path) or os.path.islink(path):
        os.unlink(path)
        return
    if sys.platform == "win32":
        shutil.rmtree(path)
    else:
        top = _opened_folder(path)
        try:
            _empty(top)
        finally:
            os.close(top)
        os.rmdir(path)


def _empty(top: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    numbers, passed = count(), set[str]()
    while names := [name for name in os.listdir(top) if name not in passed]:
        for name in names:
            passed.add(name)
            with suppress(OSError):
                if not stat.S_ISDIR(os.lstat(name, dir_fd=top).st_mode):
                    os.unlink(name, dir_fd=top)
                    continue
                inner = _opened_folder(name, top)
                try:
                    _raise(inner, top, numbers)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)


def _opened_folder(path: str | Path, base: int | None = None) -> int:
    """Opens a folder, made readable and writable. Raises `OSError`."""
    if sys.platform == "win32":
        raise NotImplementedError
    flags = os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        folder = os.open(path, os.O_RDONLY | flags, dir_fd=base)
    except PermissionError:
        if sys.platform != "linux":
            raise
        opened = os.open(path, os.O_PATH | flags, dir_fd=base)  # which no other name can take the place of
        try:
            os.chmod(f"/proc/self/fd/{opened}", 0o700)
        finally:
            os.close(opened)
        return os.open(path, os.O_RDONLY | flags, dir_fd=base)
    with suppress(OSError):
        os.fchmod(folder, 0o700)
    return folder


def _raise(folder: int, top: int, numbers: Iterator[int]) -> None:
    """Moves inner folders to the top, removes other entries."""
    for name in os.listdir(folder):
        with suppress(OSError):
            if stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode):
                os.close(_opened_folder(name, folder))  # one that cannot be changed cannot be moved
                os.rename(name, f".removed-{os.getpid()}-{next(numbers)}", src_dir_fd=folder, dst_dir_fd=top)
            else:
                os.unlink(name, dir_fd=folder)

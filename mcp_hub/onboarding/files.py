"""Replaces one file at once; links, modes and others' changes survive."""

import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from errno import EACCES, EBUSY, EFBIG, EPERM
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import BYTES
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN, read_file
from mcp_hub.stores.locks import lock_file, remove, take

BACKUP: Final = ".mcp-hub-backup"
"""The suffix of the private copy beside a file, with its content before the last change."""
LARGEST: Final = 64 << 20
"""Bytes of an edited file: Claude Code keeps its history in it."""
_PATIENCE: Final = 5.0
_STEP: Final = 0.01
_ATTEMPTS: Final = 2
"""Attempts if somebody changes the file meanwhile."""


Undo = Callable[[], None]
"""Puts a file's bytes back, unless it has changed since. Raises as `edit_file` does."""


class FileRefused(Exception):
    """A file is not changed; the message names it. `code` is stable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def target_of(path: Path) -> Path:
    """The file behind all links. Raises `FileRefused` for a dangling link, or anything but a file."""
    try:
        target = Path(os.path.realpath(path, strict=os.path.islink(path)))
        mode = target.stat().st_mode
    except FileNotFoundError:
        if path.is_symlink():
            message = f"{path} is a link to a file that does not exist. Remove the link, or create the file."
            raise FileRefused("dangling_link", message) from None
        return path.parent.resolve() / path.name
    except OSError as problem:
        raise unreadable(path, problem) from None
    if not stat.S_ISREG(mode):
        raise FileRefused("client_file_unreadable", f"{path} is not a file. Move it away.")
    return target


def content_of(path: Path, largest: int = LARGEST) -> bytes | None:
    """The content of a file from `target_of`; None if missing. Raises `FileRefused`."""
    try:
        return read_file(path, largest).data
    except FileNotFoundError:
        return None
    except OSError as problem:
        if problem.errno == EFBIG:
            message = f"{path} has more than {largest >> 20} MiB. Check what it is."
            raise FileRefused("client_file_unreadable", message) from None
        raise unreadable(path, problem) from None


@contextmanager
def locked(path: Path, folder: Path) -> Iterator[None]:
    """Locks the file against other hub processes, by a lock in `folder`. Raises `FileRefused`."""
    try:
        make_folder(folder)
        lock = lock_file(folder / f"{sha256(os.fsencode(path)).hexdigest()[:32]}.lock")
    except OSError as problem:
        raise unwritable(folder, problem) from None
    try:
        for _ in range(int(_PATIENCE / _STEP)):
            if take(lock, shared=False):
                break
            time.sleep(_STEP)
        else:
            raise FileRefused("client_file_changed", f"Another mcp-hub changes {path}. Try again.")
        yield
    finally:
        os.close(lock)


def replace(path: Path, before: bytes | None, after: bytes | None) -> bool:
    """Writes the file, or removes it for None. False, and no change, if it does not hold `before`.

    Raises `FileRefused`; then it is unchanged.
    """
    try:
        if after is None:
            if not _holds(path, before):
                return False
            path.unlink(missing_ok=True)
        else:
            make_folder(path.parent)
            with _temporary(path, after) as fresh:
                if not _holds(path, before):
                    return False
                fresh.replace(path)
        _flush_folder(path.parent)
    except OSError as problem:
        raise unwritable(path, problem) from None
    return True


def missing_folders(path: Path) -> list[str]:
    """The missing folders above the file, innermost first."""
    return [str(folder) for folder in path.parents if not os.path.lexists(folder)]


def drop_folders(folders: Iterable[str]) -> None:
    """Removes the empty ones."""
    for folder in sorted(folders, key=len, reverse=True):
        with suppress(OSError):
            os.rmdir(folder)


def back_up(path: Path, content: bytes) -> None:
    """Writes a copy beside the file. Raises `FileRefused`."""
    backup = path.with_name(path.name + BACKUP)
    try:
        with _temporary(backup, content, mode=0o600) as fresh:
            fresh.replace(backup)
    except OSError as problem:
        raise unwritable(backup, problem) from None


def drop_backup(path: Path, content: bytes | None) -> None:
    """Removes the copy beside the file if it holds `content`."""
    backup = path.with_name(path.name + BACKUP)
    with suppress(OSError):
        if content is not None and read_file(backup, len(content)).data == content:
            backup.unlink()


def unreadable(path: Path, problem: OSError) -> FileRefused:
    return FileRefused("client_file_unreadable", f"{path} cannot be read: {problem.strerror}. Check its permissions.")


def unwritable(path: Path, problem: OSError) -> FileRefused:
    """The refusal of a file that cannot be written."""
    busy = ", and whether another program has it open" if problem.errno in (EACCES, EPERM, EBUSY) else ""
    message = f"{path} cannot be written: {problem.strerror}. Check the permissions of its folder, the disk{busy}."
    return FileRefused("client_file_unwritable", message)


def _holds(path: Path, content: bytes | None) -> bool:
    return content_of(path, max(LARGEST, len(content or b""))) == content


@contextmanager
def _temporary(path: Path, content: bytes, mode: int | None = None) -> Iterator[Path]:
    """A flushed file in the same folder, with mode and owner of `path` or 0600."""
    try:
        status = path.stat() if mode is None else None
    except FileNotFoundError:
        status = None
    if status is not None and not status.st_mode & 0o222:  # a rename would do it, but somebody meant it
        raise PermissionError(EACCES, "it is read-only")
    fresh = path.with_name(f".{path.name}.{os.getpid()}.mcp-hub")
    remove(fresh)  # of a process that was killed
    try:
        file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | BYTES, 0o600)
        with open(file, "wb") as out:
            out.write(content)
            out.flush()
            if status is not None:
                _take_over(fresh, status)
            elif mode is not None:
                _chmod(fresh, mode)
            os.fsync(out.fileno())
        yield fresh
    finally:
        remove(fresh)


def _take_over(fresh: Path, status: os.stat_result) -> None:
    if sys.platform != "win32" and (status.st_uid, status.st_gid) != (os.geteuid(), os.getegid()):
        with suppress(PermissionError):
            os.chown(fresh, status.st_uid, status.st_gid)
    _chmod(fresh, stat.S_IMODE(status.st_mode))


def _chmod(path: Path, mode: int) -> None:
    with suppress(PermissionError):
        os.chmod(path, mode)


def _flush_folder(folder: Path) -> None:
    """Some mounts, such as drives in WSL, cannot flush folders."""
    if sys.platform != "win32":
        with suppress(OSError):  # the file itself is on the disk
            file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(file)
            finally:
                os.close(file)


def edit_file(path: Path, change: Callable[[bytes | None], bytes], state: Path) -> Undo | None:
    """Writes `change(bytes)`, None for a missing file; returns what undoes it, or None without a change.

    `state` has the locks. A new file has mode 0600. Raises `ConfigError`, or what `change` raises, and changes nothing.
    """
    try:
        target = target_of(path)
        make_folder(target.parent)
        with locked(target, state / "clients" / "locks"):
            for _ in range(_ATTEMPTS):
                before = content_of(target, LARGEST_OWN)
                after = change(before)
                if after == before:
                    return None
                if replace(target, before, after):
                    return partial(_restore, target, before or b"", after, state)
    except FileRefused as refused:
        raise ConfigError(ConfigFinding(refused.code, str(refused))) from None
    except OSError as problem:
        message = f"cannot be written: {problem.strerror}. Check its folder and permissions."
        raise ConfigError(ConfigFinding("output_unwritable", message, str(path))) from None
    raise ConfigError(ConfigFinding("file_busy", "another program changes the file. Try again.", str(path)))


def _restore(path: Path, before: bytes, after: bytes, state: Path) -> None:
    """Puts the bytes back, unless the file has changed since."""
    edit_file(path, lambda data: before if data == after else data or b"", state)

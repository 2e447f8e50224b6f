"""A file of a person that is changed as a whole: read, changed, and put in its place at once, by one command at a time.

A link is followed and stays. Owner and rights of the file stay. Whoever reads meanwhile sees the old file or the new
one, also when the machine stops in between.
"""

import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.app.limits import state_dir
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.stores.locks import lock_file, make_folder, take

_PATIENCE: Final = 10.0
_LOOK: Final = 0.05
"""Seconds to wait for another command that edits a file, and between two looks."""
_ATTEMPTS: Final = 2
"""A file that somebody changes while it is edited is edited once more."""


class FileEdit(msgspec.Struct, frozen=True):
    """One file that was written: its bytes before, None for a new one, and after. Both may be secret."""

    path: Path
    before: bytes | None
    after: bytes


def edit_file(path: Path, change: Callable[[bytes | None], bytes], env: Mapping[str, str]) -> FileEdit | None:
    """Writes what `change` makes of the bytes, None for a file that is not there. None if nothing changes.

    A new file is for nobody else's eyes. Raises `ConfigError`, and whatever `change` raises; then nothing has changed.
    """
    try:
        target = _target(path)
        with _alone(env):
            for _ in range(_ATTEMPTS):
                before = _read(target)
                after = change(before)
                if after == before:
                    return None
                if _put(target, before, after):
                    return FileEdit(target, before, after)
    except OSError as problem:
        said = f"cannot be written: {problem.strerror}. Check its folder and permissions."
        raise ConfigError(ConfigFinding("output_unwritable", said, str(path))) from None
    raise ConfigError(ConfigFinding("file_busy", "another program changes the file. Try again.", str(path)))


def _target(path: Path) -> Path:
    """The file itself, behind all links."""
    found = Path(os.path.realpath(path))
    if path.is_symlink() and not found.exists():
        said = f"is a link to {found}, which does not exist. Remove the link, or create that file."
        raise ConfigError(ConfigFinding("output_unwritable", said, str(path)))
    return found


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _put(path: Path, before: bytes | None, after: bytes) -> bool:
    """Whether the file was as it was read, and is as it should be now."""
    make_folder(path.parent)
    file, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    try:
        with open(file, "wb") as out:
            if before is not None:
                _like(path, name)
            out.write(after)
            out.flush()
            os.fsync(out.fileno())
        if _read(path) != before:
            os.unlink(name)
            return False
        os.replace(name, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise
    _sync(path.parent)
    return True


def _like(path: Path, name: str) -> None:
    """Gives the new file the rights of the old one and, as far as this user may, its owner."""
    found = path.stat()
    if not os.access(path, os.W_OK):
        raise PermissionError(13, "the file is read-only", str(path))
    with suppress(OSError, AttributeError):
        os.chown(name, found.st_uid, found.st_gid)
    os.chmod(name, stat.S_IMODE(found.st_mode))


def _sync(folder: Path) -> None:
    """The new name lasts, too; Windows has no such step."""
    with suppress(OSError):
        file = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


@contextmanager
def _alone(env: Mapping[str, str]) -> Iterator[None]:
    """Holds the lock of all commands that edit files."""
    place = state_dir(env) / "edits.lock"
    make_folder(place.parent)
    file = lock_file(place)
    try:
        waited = 0.0
        while not take(file, shared=False):
            if waited >= _PATIENCE:
                said = "another mcp-hub command edits a file. Try again when it has ended."
                raise ConfigError(ConfigFinding("file_busy", said, str(place)))
            time.sleep(_LOOK)
            waited += _LOOK
        yield
    finally:
        os.close(file)

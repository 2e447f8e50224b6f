"""Regular files of a folder, found and opened without following links."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mcp_hub.attach.system import NO_LINK, NO_WAIT
from mcp_hub.types import FileStamp

MOST_FILES: Final = 5000
"""The largest folder of skills."""
_DEEPEST: Final = 16
"""Levels of folders."""
_FLAGS: Final = os.O_RDONLY | NO_LINK | NO_WAIT
"""A pipe that is put there between the look and the opening does not hold up the hub."""


class _TooManyFiles(OSError):
    """Also raised for folders more than `_DEEPEST` deep."""


def files_in(root: Path, limit: int = MOST_FILES) -> dict[str, FileStamp]:
    """Regular files below a real path, by relative path with `/`, sorted; none behind a dot or a link. Raises
    `OSError`.
    """
    stamps: dict[str, FileStamp] = {}
    for path, stamp in _walk(str(root), "", _DEEPEST):
        stamps[path] = stamp
        if len(stamps) > limit:
            raise _TooManyFiles(f"it has more than {limit} files")
    return dict(sorted(stamps.items()))


def _walk(folder: str, prefix: str, depth: int) -> Iterator[tuple[str, FileStamp]]:
    if not depth:
        raise _TooManyFiles(f"its folders are more than {_DEEPEST} deep")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(".") or entry.is_symlink():
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{prefix}{entry.name}/", depth - 1)
            elif entry.is_file(follow_symlinks=False):
                yield prefix + entry.name, stamp_of(entry.stat(follow_symlinks=False))


def stamp_of(status: os.stat_result) -> FileStamp:
    """The fingerprint of a file."""
    return FileStamp(
        device=status.st_dev,
        inode=status.st_ino,
        modified=status.st_mtime_ns,
        changed=status.st_ctime_ns,
        size=status.st_size,
    )


def read_file(root: Path, path: str, limit: int) -> tuple[bytes, FileStamp]:
    """The content and fingerprint of a regular file below a real path.

    Raises `OSError` for links, devices and files of more than `limit` bytes.
    """
    full = os.path.join(str(root), *path.split("/"))
    if not stat.S_ISREG(os.lstat(full).st_mode):
        raise OSError("it is not a regular file")
    with open(os.open(full, _FLAGS), "rb") as file:
        status = os.fstat(file.fileno())
        # looked at after it was opened: whatever is swapped on the way, the open file is the one at the real path
        if os.path.realpath(full) != full or not os.path.samestat(status, os.lstat(full)):
            raise OSError("a link leads to it")
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it has more than {limit} bytes")
    return content, stamp_of(status)

"""Names, sizes and rotation of server logs: 5 files of 1 MiB for a server, 200 servers."""

import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.stores.locks import lock_file, open_plain, remove, take
from mcp_hub.types import JsonObject

LARGEST: Final = 1 << 20
"""Bytes of a file."""
GENERATIONS: Final = 5
"""Files of a server: the current one, and `.1` to `.4`, the oldest."""
MOST: Final = 200
"""Servers of all configurations that have logs."""
_NAME: Final = 40
"""Characters of a server's name that are in the name of its file."""
_PATIENCE: Final = 2.0
"""Seconds to wait for the lock, which others hold for milliseconds."""
_STEP: Final = 0.01


class LogRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of stderr, or an event of the hub (pid `hub`); `time` is ISO 8601 in UTC."""

    time: str
    server: str
    hub: int
    stderr: str | None = None
    event: str = ""
    level: str = ""
    data: JsonObject = {}


def log_folder(state: Path, config: str, kind: str = "logs") -> Path:
    return state / kind / hashlib.sha256(config.encode(errors="surrogateescape")).hexdigest()[:16]


def log_file(folder: Path, server: str) -> Path:
    """The server's current file, unique for any name."""
    key = hashlib.sha256(server.encode(errors="surrogatepass")).hexdigest()[:8]
    return folder / f"{re.sub(r'[^A-Za-z0-9_-]', '_', server)[:_NAME]}-{key}.jsonl"


def generations(path: Path) -> list[Path]:
    """Oldest first."""
    return [*(path.with_suffix(f".jsonl.{age}") for age in range(GENERATIONS - 1, 0, -1)), path]


def append(path: Path, text: bytes) -> None:
    """Appends whole lines, at most `LARGEST` bytes. Raises `OSError`, also without the lock for 2 s."""
    make_folder(path.parent.parent)
    make_folder(path.parent)
    with _locked(path.parent.parent / "lock"):
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            size = 0
            _make_room(path)
        if size + len(text) > LARGEST:
            _rotate(path)
        file = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            os.write(file, text)
        finally:
            os.close(file)


def _rotate(path: Path) -> None:
    older = generations(path)
    for to, of in zip(older, older[1:], strict=False):
        with suppress(FileNotFoundError):
            of.replace(to)


def _make_room(path: Path) -> None:
    logs: list[tuple[float, Path]] = []
    for log in path.parent.parent.glob("*/*.jsonl"):
        with suppress(OSError):
            logs.append((log.stat().st_mtime, log))
    for _, log in sorted(logs)[: max(0, len(logs) + 1 - MOST)]:
        for file in generations(log):
            remove(file)
        if log.parent != path.parent:
            with suppress(OSError):
                log.parent.rmdir()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    file = lock_file(path)
    try:
        for _ in range(int(_PATIENCE / _STEP)):
            if take(file, shared=False):
                break
            time.sleep(_STEP)
        else:
            raise OSError(f"{path} is locked by another process for more than {_PATIENCE:g} s")
        yield
    finally:
        os.close(file)

"""Raises the limit of open files, and refuses a server before it is reached."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from mcp_hub.errors import StartFailed
from mcp_hub.logs import get_logger

with suppress(ImportError):  # Windows
    import resource

log = get_logger(__name__)

PER_SERVER: Final = 10
"""Descriptors of one process: its pipes with a copy of each, its exit, one that is open for a moment, and those of a
sandbox: its notifications and its private home.
"""
HUB: Final = 48
"""Descriptors of the hub itself: 28, and some for reading files."""
_COPIES: Final = 4
"""Descriptors that a process which is being started still opens."""
_SPARE: Final = 16
_ROOM: Final = 4096
"""The limit is raised at least to this, for sessions and connections."""


class _Starts:
    count = 0


_STARTS: Final = _Starts()


def provide(needed: int) -> None:
    """Raises the process's limit to `needed` if possible."""
    if sys.platform != "win32":
        _raise_limit(needed)


def _raise_limit(needed: int) -> None:
    if sys.platform == "win32":
        raise NotImplementedError
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    more = max(needed, _ROOM) if hard == resource.RLIM_INFINITY else min(hard, max(needed, _ROOM))
    if more > soft:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))
            log.info("open_files_raised", before=soft, now=more, needed=needed)
        except (OSError, ValueError) as problem:
            log.debug("open_files_not_raised", reason=str(problem))
            more = soft
    if more < needed:
        log.warning("open_files_few", allowed=more, needed=needed, fix="raise the hard limit: ulimit -Hn")


@contextmanager
def room_for_server() -> Iterator[None]:
    """Reserves the descriptors of one process. Raises `StartFailed` if too few are left."""
    limit, count = _limit(), _open_files()
    if limit is not None and count is not None:
        needed = count + PER_SERVER + _STARTS.count * _COPIES + _SPARE
        if needed > limit:
            reason = f"the hub may open {limit} files, and needs {needed} with this server. Raise the limit: ulimit -n"
            raise StartFailed("too_many_files", reason)
    _STARTS.count += 1
    try:
        yield
    finally:
        _STARTS.count -= 1


def _limit() -> int | None:
    if sys.platform == "win32":
        return None
    else:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if soft == resource.RLIM_INFINITY else soft


def _open_files() -> int | None:
    try:
        return len(os.listdir("/dev/fd"))
    except OSError:
        return None

"""Adopts and reaps orphans of servers (Linux).

A stamp distinguishes them from other children: an odd soft limit of RLIMIT_RTTIME, too high to limit anything.
Descendants inherit it and zombies still show it.
"""

import os
import sys
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from mcp_hub.upstreams.process.child import LEADERS
from mcp_hub.upstreams.process.watchdog_program import has_mark, processes

if sys.platform == "linux":
    import resource

_SET_SUBREAPER: Final = 36
_GET_SUBREAPER: Final = 37
"""prctl(2)."""
_STAMPS: Final = 1 << 62
"""Stamps are at or above it: microseconds, a hundred thousand years of them."""

_hubs = 0
"""Hubs of this process that have asked for it; the attribute belongs to the whole process."""


def adopt_orphans() -> bool:
    """Makes orphans children of this process (prctl(2)). Calls nest; False if impossible."""
    global _hubs
    if sys.platform == "linux":
        if _hubs or (not _is_subreaper() and _prctl(_SET_SUBREAPER, 1)):  # a process that is one already remains one
            _hubs += 1
            return True
    return False


def disown_orphans() -> None:
    """Undoes a successful `adopt_orphans`."""
    global _hubs
    _hubs -= 1
    if not _hubs:
        _prctl(_SET_SUBREAPER, 0)


def new_stamp() -> int:
    return _STAMPS | (int.from_bytes(os.urandom(8), "big") >> 2)


def stamp(pid: int, value: int) -> None:
    """Stamps a new child and its children, unless they have limits."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            soft, hard = resource.prlimit(pid, resource.RLIMIT_RTTIME)
            if hard == resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft >= _STAMPS):
                resource.prlimit(pid, resource.RLIMIT_RTTIME, (value, hard))
            for child in _children(pid):
                stamp(child, value)


def stamp_adopted(value: int, mark: bytes) -> None:
    """Stamps adopted children with `mark` in their environment."""
    inherited = _limit(0)
    for pid in _children(os.getpid()):
        if pid not in LEADERS and not _has_stamp(pid, inherited) and has_mark(pid, frozenset([mark])):
            stamp(pid, value)


def reap_adopted(pids: Collection[int] = ()) -> None:
    """Reaps dead adopted children: `pids` and stamped ones. Never blocks."""
    if sys.platform == "linux" and _has_dead_children():
        inherited = _limit(0)  # ours, and that of every program that something else in this process has started
        for pid in processes():
            if pid not in LEADERS and (pid in pids or _has_stamp(pid, inherited)):
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _has_dead_children() -> bool:
    if sys.platform != "linux":
        raise NotImplementedError
    try:
        return os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _has_stamp(pid: int, inherited: int) -> bool:
    limit = _limit(pid)
    return limit >= _STAMPS and limit != inherited


def _children(pid: int) -> list[int]:
    """Children of its first thread, which adopts."""
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children") as children:
        return [int(child) for child in children.read().split()]
    return []


def _limit(pid: int) -> int:
    if sys.platform == "linux":
        with suppress(OSError):
            return resource.prlimit(pid, resource.RLIMIT_RTTIME)[0]
    return 0


def _is_subreaper() -> bool:
    import ctypes  # three milliseconds that only a hub pays which starts servers

    answer = ctypes.c_int()
    return _prctl(_GET_SUBREAPER, ctypes.addressof(answer)) and bool(answer.value)


def _prctl(option: int, value: int) -> bool:
    import ctypes

    try:
        prctl = ctypes.CDLL(None).prctl
    except (OSError, AttributeError):
        return False
    return int(prctl(ctypes.c_int(option), ctypes.c_ulong(value), *[ctypes.c_ulong(0)] * 3)) == 0

"""Every case by its name, and how one is run."""

import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from rigs.attach import builds, deaths, files, isolation, memory, starts
from rigs.attach.desktop import Skipped
from rigs.attach.place import Fault
from rigs.attach.trial import Trial
from rigs.clients.install import NotInstalled
from tests.upstreams.child import PeerClosed

SECONDS = 300.0
"""For one case."""

CASES: Mapping[str, Callable[[Trial], Awaitable[None]]] = {
    "fifty clients at once": starts.many_at_once,
    "two clients start at once": starts.two_starters,
    "nothing of the first client sticks": starts.first_caller,
    "clients with other search paths": starts.other_path,
    "a session of its own": starts.own_session,
    "a scope of its own under systemd": starts.control_group,
    "the hub is killed in the middle of calls": deaths.hub_killed,
    "the hub is killed each time it comes": deaths.hub_dies_each_time,
    "a client is killed in the middle of a call": deaths.client_killed,
    "a stopped hub is waited for": deaths.stopped_hub,
    "nothing is left after stop": deaths.nothing_left,
    "nothing is left after the idle time": deaths.nothing_left_when_idle,
    "each build meets each build": builds.matrix,
    "two builds by turns": builds.alternate,
    "both builds are shown": builds.skew_is_seen,
    "the socket is deleted": files.socket_deleted,
    "the folder is deleted": files.folder_deleted,
    "a stale record with a reused pid": files.reused_pid,
    "a full disk": files.disk_full,
    "folders that cannot be written": files.read_only,
    "a file where the folder should be": files.folder_is_a_file,
    "files of another user": files.foreign,
    "another user's process at the socket": files.foreign_listener,
    "other values of a variable": isolation.other_values,
    "a process for each session": isolation.own_process,
    "nothing crosses": isolation.nothing_crosses,
    "three real clients at once": isolation.three_real_clients,
    "memory of five clients": memory.five_clients,
}
LONG = frozenset({"three real clients at once"})
"""What has no short form."""


@dataclass
class Outcome:
    """What a case came to; it was kept if there is no `fault`. `skipped` says why it was not tried."""

    name: str
    fault: str = ""
    skipped: str = ""
    figures: list[str] = field(default_factory=list)
    seconds: float = 0.0


async def run(name: str, is_short: bool) -> Outcome:
    """One case, in a new folder. Raises nothing for what the hub does wrong."""
    outcome = Outcome(name)
    began = anyio.current_time()
    with tempfile.TemporaryDirectory(prefix="att-", ignore_cleanup_errors=True) as folder:
        trial = Trial(Path(folder), is_short, outcome.figures)
        try:
            with anyio.fail_after(SECONDS):
                await CASES[name](trial)
        except* (Skipped, NotInstalled) as reasons:
            outcome.skipped = str(_first(reasons))
        except* (Fault, PeerClosed, AssertionError, TimeoutError, OSError) as faults:
            outcome.fault = f"{type(_first(faults)).__name__}: {_first(faults)}"
    outcome.seconds = anyio.current_time() - began
    return outcome


def _first(group: BaseException) -> BaseException:
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group

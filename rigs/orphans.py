"""`make orphans`: kills servers, their children, guards and hubs, and looks for what is left; exit code 1 for any.

This process is a subreaper: whatever outlives a hub becomes a child of it. So after the end of a hub it must have no
children at all, without killing any.
"""

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from rigs.report import arguments, reported, sandbox_option, sandboxed, say
from tests.upstreams import family
from tests.upstreams.family import start_time
from tests.upstreams.launch import argv, patient

SECONDS = 60.0
"""That anything may take to be gone; the hub looks for zombies every 2 s."""
_SERVERS = 2
_WEIGHTS = {"server": 30, "child": 30, "hub": 30, "guard": 10}


@dataclass
class Outcome:
    """What was killed how often, what went wrong, and the seconds until nothing was left of a killed hub."""

    kills: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_WEIGHTS, 0))
    faults: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    processes: int = 0

    @property
    def total(self) -> int:
        return sum(self.kills.values())

    def lines(self) -> list[str]:
        told = ", ".join(f"{count} {kind}s" for kind, count in self.kills.items())
        slowest = max(self.seconds, default=0)
        return [
            f"{self.total} kills ({told}) in {self.processes} families",
            f"after the kill of a hub nothing was left within {slowest:.2f} s at most",
        ]


def orphans(kills: int, seed: int, folder: Path) -> Outcome:
    """Kills so many processes; at the end the last hub is asked to stop."""
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0, "no subreapers here"
    rng, outcome = random.Random(seed), Outcome()
    while outcome.total < kills:
        with Life(folder / f"hub-{outcome.kills['hub']}", rng, outcome) as life:
            ends = rng.randint(2, 6)
            time.sleep(rng.random())  # it may be killed while it starts
            while life.is_running and outcome.total < kills:
                if ends == 0 or outcome.total == kills - 1:
                    life.kill_hub()
                else:
                    life.kill_something()
                ends -= 1
                say(f"{outcome.total}: {outcome.kills} {len(outcome.faults)} faults")
    with Life(folder / "last", rng, outcome) as life:
        life.families(wanted=_SERVERS)
        life.stop_hub()
    return outcome


class Life:
    """One process of a hub over stdio with its servers, each of which has a family."""

    def __init__(self, folder: Path, rng: random.Random, outcome: Outcome) -> None:
        self.folder, self._rng, self._outcome = folder, rng, outcome
        folder.mkdir()
        self._families = folder / "families"
        command = [sys.executable, family.__file__, str(self._families), *argv()]
        restart = {"intensity": 1000, "period": "1s"}
        servers = {
            f"s{number}": {"command": command[0], "args": command[1:], "restart": restart, "cwd": os.getcwd()}
            for number in range(_SERVERS)
        }
        config = folder / "servers.yaml"
        config.write_text(json.dumps(sandboxed(patient({"servers": servers}), self._families)))
        self._log = (folder / "hub.log").open("wb")
        self.hub = subprocess.Popen(
            [sys.executable, "-m", "mcp_hub", "serve", "--client", "mcp-hub", "--config", str(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**os.environ, "MCP_HUB_STATE_DIR": str(folder / "state")},
        )

    def __enter__(self) -> "Life":
        return self

    def __exit__(self, *error: object) -> None:
        if self.is_running:
            self.hub.kill()
            self.hub.wait()
        for pipe in (self.hub.stdin, self.hub.stdout, self._log):
            assert pipe is not None
            pipe.close()
        self._outcome.processes += len(list(self._families.glob("*.json")))

    @property
    def is_running(self) -> bool:
        return self.hub.returncode is None

    def families(self, wanted: int = 1, seconds: float = 120) -> list[dict[str, dict[str, int]]]:
        """The records of those whose server runs, once there are so many, or after a while."""
        found: list[dict[str, dict[str, int]]] = []

        def enough() -> bool:
            records = [json.loads(path.read_text()) for path in self._families.glob("*.json")]
            found[:] = [record for record in records if _runs(record["pids"]["server"], record["starts"]["server"])]
            return len(found) >= wanted

        _until(enough, seconds)
        return found

    def kill_something(self) -> None:
        """A process chosen at random, and looks what becomes of it and of those that belong to it."""
        kind = self._rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
        families = self.families()
        if kind == "hub" or not families:
            self.kill_hub()
        elif kind == "guard":
            self._kill_guard()
        elif kind == "server":
            self._kill_server(self._rng.choice(families))
        else:
            self._kill_child(self._rng.choice(families))

    def kill_hub(self) -> None:
        """SIGKILL: its output ends, and soon this process has no children."""
        self._outcome.kills["hub"] += 1
        began = time.monotonic()
        os.kill(self.hub.pid, signal.SIGKILL)
        assert self.hub.stdout is not None
        os.set_blocking(self.hub.stdout.fileno(), False)
        if not _until(self._is_at_end, SECONDS):
            self._outcome.faults.append("something holds the output of a killed hub open")
        self.hub.wait()
        if _until(_has_no_children, SECONDS):
            self._outcome.seconds.append(time.monotonic() - began)
        else:
            self._fault("hub", _children(os.getpid()))

    def stop_hub(self) -> None:
        """SIGTERM: when it is gone, so is everything else, its guard included."""
        self.hub.terminate()
        if (code := self.hub.wait(SECONDS)) != 0:
            self._outcome.faults.append(f"the hub ended with {code}: {(self.folder / 'hub.log').read_text()[-2000:]}")
        if not _has_no_children():
            self._fault("hub that was asked to stop", _children(os.getpid()))

    def _kill_server(self, family: dict[str, dict[str, int]]) -> None:
        self._kill(family, "server")
        if not _until(lambda: not _left(family), SECONDS):
            self._fault("server", _left(family))

    def _kill_child(self, family: dict[str, dict[str, int]]) -> None:
        kind = self._rng.choice([kind for kind in family["pids"] if kind != "server"])
        pid, start = family["pids"][kind], family["starts"][kind]
        is_adopted = pid in _children(self.hub.pid)
        self._kill(family, kind)
        if is_adopted and not _until(lambda: start_time(pid) != start, SECONDS):
            self._fault("child", [pid])

    def _kill(self, family: dict[str, dict[str, int]], kind: str) -> None:
        pid = family["pids"][kind]
        if start_time(pid) == family["starts"][kind]:
            os.kill(pid, signal.SIGKILL)
            self._outcome.kills["server" if kind == "server" else "child"] += 1

    def _kill_guard(self) -> None:
        guards = self._guards()
        if len(guards) != 1:
            self._fault("guard: there is not one but", guards)
            return
        os.kill(guards[0], signal.SIGKILL)
        self._outcome.kills["guard"] += 1
        if not _until(lambda: (new := self._guards()) != guards and len(new) == 1, SECONDS):
            self._fault("guard", self._guards())

    def _guards(self) -> list[int]:
        return [pid for pid in _children(self.hub.pid) if b"watchdog_program" in _read(pid, "cmdline")]

    def _is_at_end(self) -> bool:
        assert self.hub.stdout is not None
        try:
            return os.read(self.hub.stdout.fileno(), 65536) == b""
        except BlockingIOError:
            return False

    def _fault(self, killed: str, left: list[int]) -> None:
        shown = [f"{pid} {_read(pid, 'stat').decode()[:60]!r} {_read(pid, 'cmdline')[:200]!r}" for pid in left]
        self._outcome.faults.append(f"after the kill of a {killed}: " + "; ".join(shown))
        for pid in left:  # or it would be counted again
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _left(family: dict[str, dict[str, int]]) -> list[int]:
    """What there still is of a family, zombies included."""
    pids, starts = family["pids"], family["starts"]
    item = f"MCP_HUB_CHILD={family['mark']}".encode()
    named = [pid for kind, pid in pids.items() if start_time(pid) == starts[kind]]
    return [*named, *(pid for pid in _pids() if item in _read(pid, "environ").split(b"\0"))]


def _has_no_children() -> bool:
    """Reaps those that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return True
    return False


def _children(parent: int) -> list[int]:
    found = []
    for pid in _pids():
        fields = _read(pid, "stat").rpartition(b")")[2].split()
        if fields and int(fields[1]) == parent:
            found.append(pid)
    return found


def _runs(pid: int, start: int) -> bool:
    return start_time(pid) == start and _read(pid, "stat").rpartition(b")")[2].split()[:1] not in ([b"Z"], [])


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.01)
    return True


def main() -> int:
    parser = arguments("orphans", __doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    sandbox_option(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = orphans(given.kills, given.seed, Path(folder))
    return reported(outcome.lines(), outcome.faults, is_complete=outcome.total >= given.kills)


if __name__ == "__main__":
    sys.exit(main())

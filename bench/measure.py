"""CPU, memory and wall time of a relay, and a description of the machine.

CPU is user + system time of the relay's own processes, their threads included and its upstreams not. It is read
from each process's CPU clock, which the kernel keeps in nanoseconds; `/proc/<pid>/stat` shows the same in
steps of 10 ms and is used where that clock cannot be read.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path

# what the command line of an upstream has, and that of no relay
UPSTREAM = b"echo_server.py"
PACKAGES = ("mcp", "anyio", "uvloop", "httptools", "uvicorn", "starlette", "msgspec", "pydantic")


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far."""
    try:
        # how the kernel names another process's CPU clock: see clock_getcpuclockid(3)
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Resident memory in MB (10⁶ bytes)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def python_process(leader: int) -> int:
    """The Python process that relays: the leader itself, or the first one below a launcher."""
    level = [leader]
    while level:
        for pid in level:
            if Path(os.readlink(f"/proc/{pid}/exe")).name.startswith("python"):
                return pid
        level = [child for pid in level for child in children(pid)]
    return leader


def children(pid: int) -> list[int]:
    """The processes that any thread of it has started; none of one that has ended."""
    try:
        lists = [file.read_text() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:
        return []
    return [int(child) for text in lists for child in text.split()]


def is_upstream(pid: int) -> bool:
    """Whether this is an upstream of the benchmark, or the shell in which a relay starts one."""
    try:
        return UPSTREAM in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


class OwnProcesses:
    """The processes of a relay: the one that was started and all below it, without the upstreams.

    Those that have ended keep the CPU that was last seen of them, so that the sum does not fall.
    """

    def __init__(
        self,
        root: int,
        below: Callable[[int], list[int]] = children,
        leaves_out: Callable[[int], bool] = is_upstream,
        cpu: Callable[[int], float] | None = None,
    ) -> None:
        self._root = root
        self._below = below
        self._leaves_out = leaves_out
        self._cpu = cpu or cpu_seconds
        self._seen: dict[int, float] = {}

    def pids(self) -> list[int]:
        """Of those that run now; the root first, whatever it is."""
        found, level = [self._root], [self._root]
        while level:
            level = [child for pid in level for child in self._below(pid) if not self._leaves_out(child)]
            found += level
        return found

    def cpu_seconds(self) -> float:
        """User and system time of all so far."""
        for pid in self.pids():
            try:
                self._seen[pid] = self._cpu(pid)
            except OSError:
                continue
        return sum(self._seen.values())

    def rss_mb(self) -> float:
        """Resident memory of those that run, in MB; pages that they share count for each."""
        return sum(map(rss_mb, self.pids()))


def median(values: Iterable[float]) -> float:
    return statistics.median(values)


def machine() -> dict[str, str]:
    """What the figures depend on: processor, cores, Python and package versions."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.split(":", 1)[1].strip() for line in info.splitlines() if "model name" in line), "")
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version}" for name in PACKAGES if (version := version_of(name))),
    }


def version_of(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""

"""CPU, memory and wall time of a relay, and a description of the machine.

CPU is user + system time of the relay's own process, its threads included and its children not. It is read
from the process's CPU clock, which the kernel keeps in nanoseconds; `/proc/<pid>/stat` shows the same in
steps of 10 ms and is used where that clock cannot be read.
"""

import os
import platform
import statistics
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

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
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


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

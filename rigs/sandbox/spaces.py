"""Namespaces in which the rig runs: a network whose every address is the rig's own, processes, mounts, a host name and
objects of the kernel that nothing else uses. What a successful attack does stays in there.
"""

import os
import subprocess
import sys
from pathlib import Path

from rigs.sandbox.world import ADDRESSES

_MARK = "MCP_HUB_RIG_IN_NAMESPACES"
_SHARED = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--kill-child")


def enter() -> None:
    """Goes on in namespaces, as a process of its own whose exit code is this one's; returns within them.

    It needs uid 0, or a system that lets users have namespaces. Raises: `SystemExit`.
    """
    if os.environ.get(_MARK):
        return
    options = _SHARED if os.geteuid() == 0 else ("--user", "--map-root-user", *_SHARED)
    command = ["unshare", *options, sys.executable, "-m", "rigs.sandbox", *sys.argv[1:]]
    try:
        done = subprocess.run(command, env={**os.environ, _MARK: "1"}, check=False)
    except FileNotFoundError:
        raise SystemExit("rigs.sandbox needs Linux and unshare of util-linux") from None
    raise SystemExit(done.returncode)


def prepare(folder: Path) -> None:
    """Addresses on the loopback interface, and a name server of ours. Raises: `CalledProcessError`."""
    _run("ip", "link", "set", "lo", "up")
    for address in ADDRESSES:
        _run("ip", "addr", "add", address, "dev", "lo", *(["nodad"] if ":" in address else []))
    Path("/proc/sys/net/ipv4/tcp_fastopen").write_text("3")
    Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 0")
    for path, text in (
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ):
        replacement = folder / os.path.basename(path)
        replacement.write_text(text)
        _run("mount", "--bind", str(replacement), path)
    _run("mount", "-t", "tmpfs", "none", "/var/spool")
    Path("/var/spool/cron/crontabs").mkdir(parents=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

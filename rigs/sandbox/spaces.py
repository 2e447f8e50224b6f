"""Namespaces in which the rig runs: a network whose every address is the rig's own, processes, mounts, a host name and
objects of the kernel that nothing else uses. What a successful attack does stays in there.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from mcp_hub.sandbox.confinement import landlock_abi

GOOD, EVIL, PRIVATE, METADATA = "93.184.216.34", "93.184.216.35", "10.0.0.5", "169.254.169.254"
EVIL6, NAT64 = "2a00:1450:4001::5", f"64:ff9b::{PRIVATE}"
ADDRESSES = [f"{one}/32" for one in (GOOD, EVIL, PRIVATE, METADATA)] + [f"{one}/128" for one in (EVIL6, NAT64)]
VOLUME = "/usr/src"
"""A folder that every server reads; here a file system of its own where there is a program that makes one."""
_VOLUME = 128 << 20
_ABI = 6
_MARK = "MCP_HUB_RIG_IN_NAMESPACES"
_SHARED = ("--net", "--mount", "--pid", "--fork", "--mount-proc", "--uts", "--ipc", "--kill-child")


def enter() -> None:
    """Continues in namespaces, as a process of its own whose exit code is this one's; returns within them.

    Raises: `SystemExit`.
    """
    if os.environ.get(_MARK):
        return
    command = [*_unshare(), sys.executable, "-m", "rigs.sandbox", *sys.argv[1:]]
    try:
        done = subprocess.run(command, env={**os.environ, _MARK: "1"}, check=False)
    except FileNotFoundError:
        raise SystemExit("rigs.sandbox needs Linux and unshare of util-linux") from None
    raise SystemExit(done.returncode)


def _unshare() -> list[str]:
    """As uid 0, or where the system lets users have namespaces."""
    options = _SHARED if os.geteuid() == 0 else ("--user", "--map-root-user", *_SHARED)
    return ["unshare", *options]


def can_have_namespaces() -> bool:
    """Whether the rig can run on this machine: namespaces, Landlock 6, and the programs that set up a network."""
    if landlock_abi() < _ABI or not all(map(shutil.which, ("unshare", "nsenter", "ip", "mount"))):
        return False
    return subprocess.run([*_unshare(), "ip", "link"], capture_output=True, check=False).returncode == 0


def prepare(folder: Path) -> None:
    """A loopback interface, a name server of ours, and folders of the system. Raises: `CalledProcessError`."""
    _run("ip", "link", "set", "lo", "up")
    Path("/proc/sys/net/ipv4/tcp_fastopen").write_text("3")
    Path("/proc/sys/net/ipv4/ping_group_range").write_text("0 65535")
    Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").write_text("0")
    for path, text in (
        ("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
        ("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"),
    ):
        replacement = folder / os.path.basename(path)
        replacement.write_text(text)
        _run("mount", "--bind", str(replacement), path)
    for path in ("/var/spool", "/dev/shm"):
        _run("mount", "-t", "tmpfs", "none", path)
    Path("/var/spool/cron/crontabs").mkdir(parents=True)
    if shutil.which("mkfs.btrfs"):
        _mount_volume(folder / "volume")


def _mount_volume(image: Path) -> None:
    """A file system with subvolumes in a system folder."""
    with image.open("wb") as file:
        file.truncate(_VOLUME)
    _run("mkfs.btrfs", "-q", str(image))
    _run("mount", "-o", "loop", str(image), VOLUME)
    os.chmod(VOLUME, 0o777)


def give(folder: Path, user: str) -> None:
    """Makes a folder, and what is in it, that user's."""
    if user:
        _run("chown", "--recursive", "--no-dereference", f"{user}:{user}", str(folder))


def become(user: str) -> list[str]:
    """The beginning of a command that runs as this user, without any right of root."""
    return ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--bounding-set=-all"] if user else []


def connect(process: str) -> None:
    """Joins our network to that of another process, which gets all addresses of the world; everything is routed there.

    Raises: `CalledProcessError`.
    """
    there = ("nsenter", "--net", "--target", process)
    _run("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", process)
    for address in ADDRESSES:
        _run(*there, "ip", "addr", "add", address, "dev", "far", *(["nodad"] if ":" in address else []))
    for interface in ("lo", "far"):
        _run(*there, "ip", "link", "set", interface, "up")
    _run(*there, "sh", "-c", "echo 3 > /proc/sys/net/ipv4/tcp_fastopen")
    for option, own, width in (("-4", "192.168.77.2", "32"), ("-6", "fd77::2", "128")):
        _run("ip", option, "addr", "add", f"{own}/{width}", "dev", "near", *(["nodad"] if option == "-6" else []))
        _run("ip", "link", "set", "near", "up")
        _run("ip", option, "route", "add", "default", "dev", "near")
        _run(*there, "ip", option, "route", "add", own, "dev", "far")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)

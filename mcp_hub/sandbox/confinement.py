"""A sandbox, resolved: the rules of one start, the support of this kernel, and the plan of the confining program.

Landlock's rights by version of its ABI: 1 has files, 2 links between folders, 3 truncation, 4 TCP ports, 5 device
controls, 6 signals and abstract sockets. What an older one lacks is refused by the seccomp filter, except for signals
and abstract sockets: below 6 a server can send signals to other processes of its user.
"""

import ctypes
import marshal
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Final

import msgspec

from mcp_hub.sandbox.filters import ARCHITECTURES, SECCOMP, Net, has_listener, seccomp_filter
from mcp_hub.sandbox.network.interface import PROXY_URL, PROXY_VARIABLES, HostRule

_EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (1 << bit for bit in range(6, 13))
_REFER, _TRUNCATE, _IOCTL_DEV = (1 << bit for bit in range(13, 16))
READ: Final = _EXECUTE | READ_FILE | READ_DIR
WRITE: Final = (
    WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SOCK | _MAKE_FIFO | _MAKE_SYM
) | (_REFER | _TRUNCATE)
DEVICE: Final = READ_FILE | WRITE_FILE | READ_DIR | _TRUNCATE | _IOCTL_DEV
SHARED: Final = DEVICE | _MAKE_REG | _REMOVE_FILE
"""The rights for `/dev/shm`: locks that processes share are files there."""
_HANDLED: Final = READ | WRITE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV
_SINCE: Final = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
"""Rights that only this version of the ABI, and later ones, know."""
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_NEWEST: Final = 7
_CREATE_RULESET: Final = 444
_GET_VERSION: Final = 1
ABI_LIMIT: Final = "MCP_HUB_TEST_LANDLOCK_ABI"
"""A variable for tests: the hub behaves as on a kernel whose Landlock is not newer than this. It only takes away."""
_SIGNALS_SINCE: Final = 6
_USUAL: Final = ("/dev/", "/etc/")
"""Beginnings of paths that are not listed one by one."""


class Unsupported(Exception):
    """The kernel or the machine lacks what a rule needs; the text says what, and what to do."""


class PathRight(msgspec.Struct, frozen=True):
    """A path without links, the rights for it and what is below it, and whether a start without it is an error."""

    path: str
    access: int
    is_needed: bool = False


_WITHOUT_RULE: Final = _MAKE_BLOCK | _REFER
_MOVING: Final = (PathRight("/", _REFER),)
"""Rights that a learning run handles, and its grant: under Landlock a process reads no memory of others. Block devices
need a capability that it lacks, and links between folders are allowed.
"""


class Confinement(msgspec.Struct, frozen=True):
    """All that the process of a server may reach: files by `grants`, the network by `net` and `hosts`, and `sockets`.

    `home` is its private home folder; `variables` go over its environment, and those in `removed` are left out. `abi`
    is the version of Landlock; below 6 it `shrinks`. `learns`: a learning run, which has the filter and no rule of
    files; its calls with paths and its connections are handed to the supervisor.
    """

    grants: tuple[PathRight, ...]
    net: Net
    abi: int
    machine: str
    hosts: tuple[HostRule, ...] = ()
    sockets: tuple[str, ...] = ()
    home: str = ""
    variables: Mapping[str, str] = msgspec.field(default_factory=dict)
    removed: tuple[str, ...] = ()
    learns: bool = False

    @property
    def has_listener(self) -> bool:
        """Whether the supervisor has calls to answer."""
        return self.learns or has_listener(self.net, has_sockets=bool(self.sockets))

    @property
    def shrinks(self) -> str:
        """A sentence about what this kernel cannot close; empty from ABI 6 on."""
        return "" if self.abi >= _SIGNALS_SINCE else "this kernel lets it send signals to other processes of the user"

    @property
    def writable(self) -> list[str]:
        """The paths that the server may write, without devices."""
        return [grant.path for grant in self._granted() if grant.access & WRITE_FILE]

    @property
    def readable(self) -> list[str]:
        """The other paths that it may read, without those of each server in `/dev` and `/etc`."""
        return [grant.path for grant in self._granted() if not grant.access & WRITE_FILE]

    def _granted(self) -> Iterator[PathRight]:
        return (grant for grant in self.grants if not grant.path.startswith(_USUAL))

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The environment of the server, from the one that it would have without a sandbox."""
        inherited = {name: value for name, value in env.items() if name not in self.removed}
        return {**inherited, **self.variables}

    def plan(self, argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> bytes:
        """The plan for the confining program. `argv[0]` is an absolute path."""
        net: Net = "any" if self.learns and self.net == "hosts" else self.net
        files = _supported(_WITHOUT_RULE if self.learns else _HANDLED, self.abi)
        grants = _MOVING if self.learns else self.grants
        rules = [
            (os.fsencode(grant.path), access, grant.is_needed) for grant in grants if (access := grant.access & files)
        ]
        ports = 0 if net == "any" or self.abi < 4 else _BIND_TCP | _CONNECT_TCP
        scopes = _ABSTRACT_SOCKETS | _SIGNALS if self.abi >= _SIGNALS_SINCE else 0
        has_sockets = self.learns or bool(self.sockets)
        code = seccomp_filter(self.machine, net, self.abi, has_sockets=has_sockets, observes=self.learns)
        return marshal.dumps(
            {
                "argv": list(argv),
                "env": dict(env),
                "rules": rules,
                "handled": (files, ports, scopes),
                "seccomp": SECCOMP[self.machine],
                "filter": code,
                "has_listener": self.has_listener,
            }
        )

    def allows(self, path: str, access: int = READ_FILE) -> PathRight | None:
        """The grant by which a path, which has no links, may be read, or None."""
        for grant in self.grants:
            is_inside = path == grant.path or path.startswith(grant.path.rstrip("/") + "/")
            if is_inside and grant.access & access == access:
                return grant
        return None


def _supported(rights: int, abi: int) -> int:
    for version, right in _SINCE.items():
        if abi < version:
            rights &= ~right
    return rights


def proxy_variables() -> dict[str, str]:
    """The variables by which programs take the hub's proxy, whatever they name."""
    return {**dict.fromkeys(PROXY_VARIABLES, PROXY_URL), "NODE_USE_ENV_PROXY": "1"}


def support(net: Net = "any", *, has_sockets: bool = False) -> tuple[int, str]:
    """The version of Landlock to use, and the machine. Raises `Unsupported`."""
    if sys.platform == "darwin":
        if net == "hosts":
            raise Unsupported("limiting hosts needs Linux. On macOS net is none or any.")
        return _NEWEST, sys.platform
    elif sys.platform == "linux":
        return _support_of_linux(net, has_sockets=has_sockets)
    else:
        raise Unsupported("a sandbox needs Linux 5.13 or newer, or macOS. Remove the key, or set it to prefer.")


def _support_of_linux(net: Net, *, has_sockets: bool) -> tuple[int, str]:
    if sys.platform != "linux":
        raise NotImplementedError
    machine = os.uname().machine
    if machine not in ARCHITECTURES or sys.maxsize < 1 << 32:
        raise Unsupported(f"a sandbox needs a 64-bit Linux on x86-64 or ARM, and this is {machine}")
    if not sys.executable or getattr(sys, "frozen", False):
        raise Unsupported("a sandbox needs a Python interpreter to start from, and this hub is a frozen program")
    abi = landlock_abi()
    if limit := os.environ.get(ABI_LIMIT):
        abi = min(abi, int(limit))
    if abi < 1:
        raise Unsupported(
            "this kernel has no Landlock: it is older than 5.13, or its list of security modules omits it"
        )
    if not _has_seccomp():
        raise Unsupported("this kernel has no seccomp filters")
    if has_listener(net, has_sockets=has_sockets) and not _has_notifications():
        raise Unsupported("limiting hosts or allowing sockets needs Linux 5.9 (seccomp notifications)")
    return abi, machine


@cache
def landlock_abi() -> int:
    """The version of Landlock's ABI in this kernel; 0 if it is absent or switched off."""
    if sys.platform == "linux":  # elsewhere the number is another call's
        try:
            call = ctypes.CDLL(None).syscall
        except (OSError, AttributeError):
            return 0
        version = call(ctypes.c_long(_CREATE_RULESET), None, ctypes.c_size_t(0), ctypes.c_long(_GET_VERSION))
        return min(max(0, int(version)), _NEWEST)
    return 0


def _actions() -> list[str]:
    try:
        with open("/proc/sys/kernel/seccomp/actions_avail") as file:
            return file.read().split()
    except OSError:
        return []


@cache
def _has_seccomp() -> bool:
    return "errno" in _actions()


@cache
def _has_notifications() -> bool:
    """Whether a notification can be answered with a descriptor: since Linux 5.9, two versions after they came."""
    return "user_notif" in _actions() and _release() >= (5, 9)


def _release() -> tuple[int, ...]:
    if sys.platform == "win32":
        raise NotImplementedError
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())

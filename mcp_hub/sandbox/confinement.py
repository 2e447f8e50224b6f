"""A resolved sandbox: rights, this kernel's support, and the confining program's plan.

Landlock's ABI adds: 1 files, 2 links between folders, 3 truncation, 4 TCP ports, 5 device controls, 6 signals and
abstract sockets. The filter refuses what an older one lacks, except the last two.
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
"""Rights for `/dev/shm`, which has shared locks."""
_HANDLED: Final = READ | WRITE | _MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV
_SINCE: Final = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}
"""Rights by the ABI that introduced them."""
_BIND_TCP, _CONNECT_TCP = 1, 2
_ABSTRACT_SOCKETS, _SIGNALS = 1, 2
_NEWEST: Final = 7
_CREATE_RULESET: Final = 444
_GET_VERSION: Final = 1
ABI_LIMIT: Final = "MCP_HUB_TEST_LANDLOCK_ABI"
"""A variable for tests that lowers Landlock's version."""
_SIGNALS_SINCE: Final = 6
_USUAL: Final = ("/dev/", "/etc/")
"""Paths that are not listed one by one."""


class Unsupported(Exception):
    """The system lacks what a rule needs."""


class PathRight(msgspec.Struct, frozen=True):
    """Rights for a real path and all below it. `is_needed`: a start without it fails."""

    path: str
    access: int
    is_needed: bool = False


_WITHOUT_RULE: Final = _MAKE_BLOCK | _REFER
_MOVING: Final = (PathRight("/", _REFER),)
"""A learning run's grant: links between folders. Landlock also keeps a process from others' memory."""


class Confinement(msgspec.Struct, frozen=True):
    """All that a process may reach: `grants` for files, `net` and `hosts`, Unix `sockets`.

    `variables` override its environment, without `removed` ones. `learns`: no rule of files, and the supervisor sees
    calls with paths.
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
        return self.learns or has_listener(self.net, has_sockets=bool(self.sockets))

    @property
    def shrinks(self) -> str:
        """A sentence about what this kernel cannot close; empty from ABI 6 on."""
        return "" if self.abi >= _SIGNALS_SINCE else "this kernel lets it send signals to other processes of the user"

    @property
    def writable(self) -> list[str]:
        """Writable paths, without devices."""
        return [grant.path for grant in self._granted() if grant.access & WRITE_FILE]

    @property
    def readable(self) -> list[str]:
        """Read-only paths, without those of every server in `/dev` and `/etc`."""
        return [grant.path for grant in self._granted() if not grant.access & WRITE_FILE]

    def _granted(self) -> Iterator[PathRight]:
        return (grant for grant in self.grants if not grant.path.startswith(_USUAL))

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The server's environment, from the unconfined one."""
        inherited = {name: value for name, value in env.items() if name not in self.removed}
        return {**inherited, **self.variables}

    def plan(self, argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> bytes:
        """The confining program's plan. `argv[0]` is absolute."""
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
        """The grant for a real path, or None."""
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
    return {**dict.fromkeys(PROXY_VARIABLES, PROXY_URL), "NODE_USE_ENV_PROXY": "1"}


def support(net: Net = "any", *, has_sockets: bool = False) -> tuple[int, str]:
    """Landlock's version and the machine. Raises `Unsupported`."""
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
    """This kernel's Landlock ABI; 0 if absent or off."""
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
    """Whether a notification can be answered with a descriptor: Linux 5.9."""
    return "user_notif" in _actions() and _release() >= (5, 9)


def _release() -> tuple[int, ...]:
    if sys.platform == "win32":
        raise NotImplementedError
    numbers = os.uname().release.split("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())

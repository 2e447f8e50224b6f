"""The seccomp filter as BPF code, for x86-64 and 64-bit ARM.

Calls of other architectures kill the process. It closes what Landlock misses: Unix sockets, other protocols, io_uring,
debugging, namespaces.
"""

import struct
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Final, Literal

import msgspec

Net = Literal["none", "any", "hosts"]

EPERM, EACCES, ENOSYS, EAFNOSUPPORT = 1, 13, 38, 97
_LOAD, _AND, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _NOTIFY, _KILL, _ERROR = 0x7FFF0000, 0x7FC00000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`; arguments have 8 bytes, lower half first."""
_X32: Final = 0x40000000

AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_STREAM, _DATAGRAM, _SEQPACKET, _TYPE_MASK = 1, 2, 5, 0xF
_TCP, _UDP = 6, 17
_FAST_OPEN: Final = 0x20000000
_NAMESPACES: Final = 0x7E020000
"""CLONE_NEW* of `clone`."""
_TRUNCATE, _ACCESS_MODE = 0o1000, 3
_INJECTING: Final = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which write into a terminal's input."""
_KIND: Final = 0xFF00
"""Bits of an `ioctl` request that name the driver."""
_OF_FILE_SYSTEMS: Final[Mapping[int, tuple[int, ...]]] = MappingProxyType(
    {
        0x9400: (0x40049409, 0x4020940D, 0xC0189436),  # btrfs: FICLONE, FICLONERANGE, FIDEDUPERANGE
        0xBC00: (),  # bcachefs
        0x6600: (0x80086601, 0x80046601, 0xC020660B),  # ext4 and others: FS_IOC_GETFLAGS, FS_IOC_FIEMAP
        0x7600: (0x80087601, 0x80047601),  # FS_IOC_GETVERSION
        0x5800: (0x801C581F,),  # xfs and others: FS_IOC_FSGETXATTR
        0xF500: (),  # f2fs
    }
)
"""Drivers with requests that change files by a read-only descriptor, unseen by Landlock; and the allowed requests."""
_ENOTTY: Final = 25

_TCP_OPTIONS: Final = (19, 23, 30, 31)
"""TCP_REPAIR, TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, and TCP_ULP (SMC)."""
_PRIO_PROCESS, _IOPRIO_PROCESS = 0, 1
_SET_UID: Final = 0o4000
"""Set-uid: Landlock does not see `chmod`."""
_OF_PROCESS: Final = ("prlimit64", "sched_setparam", "sched_setscheduler", "sched_setaffinity", "sched_setattr")


class _Architecture(msgspec.Struct, frozen=True):
    audit: int
    numbers: Mapping[str, int]


_SAME: Final = {
    **{"io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429},
    **{"fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "clone3": 435, "openat2": 437},
    **{"pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443},
    **{"process_mrelease": 448, "fchmodat2": 452, "open_tree_attr": 467, "file_setattr": 469},
}
_X86: Final = {
    **{"open": 2, "ioctl": 16, "shmget": 29, "shmat": 30, "shmctl": 31, "socket": 41, "connect": 42, "sendto": 44},
    **{"sendmsg": 46, "bind": 49, "listen": 50, "socketpair": 53, "setsockopt": 54, "clone": 56},
    **{"semget": 64, "semop": 65, "semctl": 66, "shmdt": 67, "msgget": 68, "msgsnd": 69, "msgrcv": 70, "msgctl": 71},
    **{"semtimedop": 220, "truncate": 76, "setpriority": 141, "sched_setparam": 142, "sched_setscheduler": 144},
    **{"sched_setaffinity": 203, "ioprio_set": 251, "sched_setattr": 314},
    **{"chmod": 90, "fchmod": 91, "fchmodat": 268},
    **{"ptrace": 101, "syslog": 103, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155, "chroot": 161, "acct": 163},
    **{"settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169},
    **{"sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173, "init_module": 175},
    **{"delete_module": 176, "quotactl": 179, "clock_settime": 227, "mq_open": 240, "kexec_load": 246},
    **{"add_key": 248, "request_key": 249, "keyctl": 250, "migrate_pages": 256, "openat": 257, "unshare": 272},
    **{"move_pages": 279, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302, "open_by_handle_at": 304},
    **{"clock_adjtime": 305, "sendmmsg": 307, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311},
    **{"kcmp": 312, "finit_module": 313, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323},
}
_ARM: Final = {
    **{
        "fchmod": 52,
        "fchmodat": 53,
        "ioctl": 29,
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "truncate": 45,
        "chroot": 51,
        "openat": 56,
    },
    **{"vhangup": 58, "quotactl": 60, "acct": 89, "unshare": 97, "kexec_load": 104, "init_module": 105},
    **{"delete_module": 106, "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161},
    **{
        "setdomainname": 162,
        "settimeofday": 170,
        "mq_open": 180,
        "msgget": 186,
        "msgctl": 187,
        "msgrcv": 188,
        "msgsnd": 189,
        "semctl": 191,
        "semtimedop": 192,
        "semop": 193,
        "shmget": 194,
        "shmctl": 195,
    },
    **{"shmat": 196, "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "connect": 203, "sendto": 206},
    **{"sendmsg": 211, "add_key": 217, "request_key": 218, "keyctl": 219, "clone": 220, "swapon": 224},
    **{"swapoff": 225, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "prlimit64": 261},
    **{"fanotify_init": 262, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "sendmmsg": 269},
    **{"process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "bpf": 280},
    **{"userfaultfd": 282, "kexec_file_load": 294, "ioprio_set": 30, "sched_setparam": 118},
    **{"sched_setscheduler": 119, "sched_setaffinity": 122, "setpriority": 140, "semget": 190, "setsockopt": 208},
    **{"sched_setattr": 274, "shmdt": 197},
}
ARCHITECTURES: Final[Mapping[str, _Architecture]] = MappingProxyType(
    {
        "x86_64": _Architecture(0xC000003E, MappingProxyType({**_SAME, **_X86})),
        "aarch64": _Architecture(0xC00000B7, MappingProxyType({**_SAME, **_ARM})),
    }
)
"""By machine name."""
_OBSERVED_X86: Final = """
    open 2  creat 85  openat 257  openat2 437  execve 59  execveat 322  mkdir 83  mkdirat 258  rmdir 84  unlink 87
    unlinkat 263  rename 82  renameat 264  renameat2 316  link 86  linkat 265  symlink 88  symlinkat 266  mknod 133
    mknodat 259  truncate 76
    """
_OBSERVED_ARM: Final = """
    openat 56  openat2 437  execve 221  execveat 281  mkdirat 34  unlinkat 35  renameat 38  renameat2 276  linkat 37
    symlinkat 36  mknodat 33  truncate 45
    """


def _numbers(text: str) -> Mapping[str, int]:
    words = text.split()
    return MappingProxyType(dict(zip(words[::2], map(int, words[1::2]), strict=True)))


OBSERVED: Final[Mapping[str, Mapping[str, int]]] = MappingProxyType(
    {"x86_64": _numbers(_OBSERVED_X86), "aarch64": _numbers(_OBSERVED_ARM)}
)
"""Calls with paths, for a learning run's supervisor."""
SECCOMP: Final[Mapping[str, int]] = MappingProxyType({"x86_64": 317, "aarch64": 277})
"""The number of `seccomp`."""
_SPECIAL: Final = frozenset(
    """
    open ioctl socket connect sendto sendmsg bind listen socketpair clone truncate openat prlimit64 sendmmsg clone3
    openat2 setsockopt setpriority sched_setparam sched_setscheduler sched_setaffinity sched_setattr ioprio_set
    chmod fchmod fchmodat fchmodat2
    """.split()
)
"""Calls refused by argument or by rule; all other listed ones are always refused."""
REFUSED: Final = frozenset((*_SAME, *_X86, *_ARM)) - _SPECIAL


class _Code:
    """BPF code under construction."""

    def __init__(self) -> None:
        self.instructions: list[tuple[int, int, int, int]] = []

    def load(self, offset: int) -> None:
        self.instructions.append((_LOAD, 0, 0, offset))

    def argument(self, index: int, mask: int | None = None) -> None:
        self.load(_ARGUMENTS + 8 * index)
        if mask is not None:
            self.instructions.append((_AND, 0, 0, mask))

    def returns(self, action: int) -> None:
        self.instructions.append((_RETURN, 0, 0, action))

    def when(self, jump: int, value: int, body: "_Code") -> None:
        assert len(body.instructions) < 256
        self.instructions.append((jump, 0, len(body.instructions), value))
        self.instructions += body.instructions

    def encoded(self) -> bytes:
        return b"".join(struct.pack("=HBBI", *instruction) for instruction in self.instructions)


@cache
def seccomp_filter(machine: str, net: Net, abi: int, *, has_sockets: bool = False, observes: bool = False) -> bytes:
    """The filter for a rule: an array of `struct sock_filter`. Raises `KeyError` for an unknown machine.

    It also refuses what Landlock's `abi` misses. `observes`: the supervisor sees calls with paths.
    """
    architecture, observed = ARCHITECTURES[machine], OBSERVED[machine] if observes else {}
    code = _Code()
    code.load(_ARCHITECTURE)
    foreign = _Code()
    foreign.returns(_KILL)
    code.instructions.append((_JUMP_EQUAL, 1, 0, architecture.audit))
    code.instructions += foreign.instructions
    code.load(_NUMBER)
    code.when(_JUMP_GREATER_EQUAL, _X32, foreign)
    special = {**_special(net, abi, has_sockets=has_sockets), **dict.fromkeys(observed, _returning(_NOTIFY))}
    for name, number in sorted({**architecture.numbers, **observed}.items(), key=lambda entry: entry[1]):
        body = special.get(name)
        if body is None and name in REFUSED:
            body = _returning(_ERROR | EPERM)
        if body is not None:
            code.when(_JUMP_EQUAL, number, body)
    code.returns(_ALLOW)
    return code.encoded()


def has_listener(net: Net, *, has_sockets: bool) -> bool:
    return net == "hosts" or has_sockets


def _special(net: Net, abi: int, *, has_sockets: bool) -> Mapping[str, _Code]:
    bodies = {
        "socket": _socket(net, has_sockets=has_sockets),
        "socketpair": _socketpair(),
        "sendto": _without(3, _FAST_OPEN),
        "sendmsg": _without(2, _FAST_OPEN),
        "sendmmsg": _without(3, _FAST_OPEN),
        "clone": _without(0, _NAMESPACES, EPERM),
        "clone3": _returning(_ERROR | ENOSYS),  # its flags are in memory; libc falls back to clone
        **dict.fromkeys(_OF_PROCESS, _only_own(0)),
        "setpriority": _only_own(1, kind=_PRIO_PROCESS),
        "ioprio_set": _only_own(1, kind=_IOPRIO_PROCESS),
        **dict.fromkeys(("chmod", "fchmod"), _without(1, _SET_UID, EPERM)),
        **dict.fromkeys(("fchmodat", "fchmodat2"), _without(2, _SET_UID, EPERM)),
        "setsockopt": _setsockopt(),
        "ioctl": _ioctl(),
    }
    if has_listener(net, has_sockets=has_sockets):
        bodies["connect"] = _returning(_NOTIFY)
    elif net == "none":
        bodies["connect"] = _returning(_ERROR | EACCES)
    if net != "any":
        bodies["listen"] = _returning(_ERROR | EACCES)
        if abi < 4:  # later on Landlock refuses it to TCP alone
            bodies["bind"] = _returning(_ERROR | EACCES)
    if abi < 3:
        bodies |= {"truncate": _returning(_ERROR | EACCES), "openat2": _returning(_ERROR | ENOSYS)}
        bodies |= {"open": _no_reading_truncation(1), "openat": _no_reading_truncation(2)}
    return bodies


def _returning(action: int) -> _Code:
    code = _Code()
    code.returns(action)
    return code


def _without(argument: int, flags: int, error: int = EACCES) -> _Code:
    code = _Code()
    code.argument(argument)
    code.when(_JUMP_SET, flags, _returning(_ERROR | error))
    code.returns(_ALLOW)
    return code


def _equal(argument: int, values: tuple[int, ...], mask: int | None = None, error: int = EACCES) -> _Code:
    code = _Code()
    code.argument(argument, mask)
    for value in values:
        code.when(_JUMP_EQUAL, value, _returning(_ALLOW))
    code.returns(_ERROR | error)
    return code


def _socket(net: Net, *, has_sockets: bool) -> _Code:
    """Allows TCP, UDP unless hosts are limited, and netlink's interface queries."""
    internet = _Code()
    internet.argument(1, _TYPE_MASK)
    internet.when(_JUMP_EQUAL, _STREAM, _equal(2, (0, _TCP)))
    if net == "any":
        internet.when(_JUMP_EQUAL, _DATAGRAM, _equal(2, (0, _UDP)))
    internet.returns(_ERROR | EACCES)
    code = _Code()
    code.argument(0)
    if net != "none":
        code.when(_JUMP_EQUAL, _AF_INET, internet)
        code.when(_JUMP_EQUAL, _AF_INET6, internet)
    else:
        code.when(_JUMP_EQUAL, _AF_INET, _returning(_ERROR | EACCES))
        code.when(_JUMP_EQUAL, _AF_INET6, _returning(_ERROR | EACCES))
    code.when(_JUMP_EQUAL, _AF_NETLINK, _equal(2, (0,)))
    code.when(_JUMP_EQUAL, AF_UNIX, _returning(_NOTIFY if has_sockets else _ERROR | EACCES))
    code.returns(_ERROR | EAFNOSUPPORT)
    return code


def _socketpair() -> _Code:
    """Allows stream pairs: a datagram half could send to any path."""
    streams = _equal(1, (_STREAM, _SEQPACKET), _TYPE_MASK)
    code = _Code()
    code.argument(0)
    code.when(_JUMP_EQUAL, AF_UNIX, streams)
    code.returns(_ERROR | EAFNOSUPPORT)
    return code


def _only_own(argument: int, kind: int | None = None) -> _Code:
    """Allows calls about the process itself; `kind` is the first argument that means a process."""
    code = _Code()
    if kind is not None:
        process = _only_own(argument)
        code.argument(0)
        code.when(_JUMP_EQUAL, kind, process)
        code.returns(_ERROR | EPERM)
        return code
    code.argument(argument)
    code.when(_JUMP_EQUAL, 0, _returning(_ALLOW))
    code.returns(_ERROR | EPERM)
    return code


def _setsockopt() -> _Code:
    """Refuses options that change a TCP socket's kind or connect it."""
    options = _Code()
    options.argument(2)
    for option in _TCP_OPTIONS:
        options.when(_JUMP_EQUAL, option, _returning(_ERROR | EACCES))
    options.returns(_ALLOW)
    code = _Code()
    code.argument(1)
    code.when(_JUMP_EQUAL, _TCP, options)
    code.returns(_ALLOW)
    return code


def _ioctl() -> _Code:
    code = _Code()
    code.argument(1)
    for request in _INJECTING:
        code.when(_JUMP_EQUAL, request, _returning(_ERROR | EPERM))
    code.argument(1, _KIND)
    for kind, requests in _OF_FILE_SYSTEMS.items():
        code.when(_JUMP_EQUAL, kind, _equal(1, requests, error=_ENOTTY))
    code.returns(_ALLOW)
    return code


def _no_reading_truncation(argument: int) -> _Code:
    """Refuses reading with truncation, which needs no write right before ABI 3."""
    both = _Code()
    both.argument(argument, _ACCESS_MODE)
    both.when(_JUMP_EQUAL, 0, _returning(_ERROR | EACCES))
    both.returns(_ALLOW)
    code = _Code()
    code.argument(argument)
    code.when(_JUMP_SET, _TRUNCATE, both)
    code.returns(_ALLOW)
    return code

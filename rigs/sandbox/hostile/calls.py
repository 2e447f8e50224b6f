"""System calls by number, and the one way in which an escape says what came of it."""

import ctypes
import errno
import os
import platform
from collections.abc import Callable, Mapping

World = Mapping[str, str]
"""Paths, addresses, process ids and the canary that the rig has laid out, by name."""
Escape = Callable[[World], str]
"""Tries one way out; returns what it got. Raises: `OSError`, `Refused`."""

ESCAPES: dict[str, Escape] = {}
_X86 = {
    "open": 2, "ioctl": 16, "socket": 41, "sendto": 44, "sendmsg": 46, "clone": 56, "kill": 62, "truncate": 76,
    "ptrace": 101, "syslog": 103, "pivot_root": 155, "chroot": 161, "mount": 165, "iopl": 172, "init_module": 175,
    "sched_setaffinity": 203, "io_setup": 206, "add_key": 248, "request_key": 249, "keyctl": 250, "ioprio_set": 251,
    "migrate_pages": 256, "openat": 257, "unshare": 272, "splice": 275, "move_pages": 279, "perf_event_open": 298,
    "fanotify_init": 300, "prlimit64": 302, "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308,
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "finit_module": 313, "memfd_create": 319,
    "bpf": 321, "execveat": 322, "userfaultfd": 323, "sched_setscheduler": 144, "setpriority": 141, "tgkill": 234,
    "rt_sigqueueinfo": 129, "swapon": 167, "acct": 163, "personality": 135, "sendmmsg": 307, "quotactl": 179,
    "kexec_load": 246, "sethostname": 170, "mq_open": 240, "shmget": 29, "shmat": 30, "msgget": 68, "msgrcv": 70,
    "semget": 64, "semctl": 66, "kexec_file_load": 320, "modify_ldt": 154,
}  # fmt: skip
_ARM = {
    "ioctl": 29, "socket": 198, "sendto": 206, "sendmsg": 211, "clone": 220, "kill": 129, "truncate": 45,
    "ptrace": 117, "syslog": 116, "pivot_root": 41, "chroot": 51, "mount": 40, "init_module": 105,
    "sched_setaffinity": 122, "io_setup": 0, "add_key": 217, "request_key": 218, "keyctl": 219, "ioprio_set": 30,
    "migrate_pages": 238, "openat": 56, "unshare": 97, "splice": 76, "move_pages": 239, "perf_event_open": 241,
    "fanotify_init": 262, "prlimit64": 261, "name_to_handle_at": 264, "open_by_handle_at": 265, "setns": 268,
    "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279,
    "bpf": 280, "execveat": 281, "userfaultfd": 282, "sched_setscheduler": 119, "setpriority": 140, "tgkill": 131,
    "rt_sigqueueinfo": 138, "swapon": 224, "acct": 89, "personality": 92, "sendmmsg": 269, "quotactl": 60,
    "kexec_load": 104, "sethostname": 161, "mq_open": 180, "shmget": 194, "shmat": 196, "msgget": 186, "msgrcv": 188,
    "semget": 190, "semctl": 191, "kexec_file_load": 294,
}  # fmt: skip
_COMMON = {
    "pidfd_send_signal": 424, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "pidfd_open": 434, "clone3": 435,
    "openat2": 437, "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "process_mrelease": 448,
}  # fmt: skip
NUMBERS = {**(_X86 if platform.machine() == "x86_64" else _ARM), **_COMMON}
"""Numbers of system calls on this machine."""
_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long


class Refused(Exception):
    """The way is closed, and no system call says so."""


def escape(name: str) -> Callable[[Escape], Escape]:
    """Enters an escape under its name."""

    def entered(function: Escape) -> Escape:
        ESCAPES[name] = function
        return function

    return entered


def call(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """A system call. Raises: `OSError`; `Refused` where this machine has no such call."""
    if name not in NUMBERS:
        raise Refused(f"no call {name} on this machine")
    passed = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result: int = _LIBC.syscall(ctypes.c_long(NUMBERS[name]), *passed)
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def buffer(size: int | bytes) -> ctypes.Array[ctypes.c_char]:
    """Memory that a call may write to."""
    return ctypes.create_string_buffer(size)


def address(memory: ctypes.Array[ctypes.c_char]) -> int:
    """Where a buffer is."""
    return ctypes.addressof(memory)


def loot(world: World, text: bytes | str) -> str:
    """The text, if it holds the canary. Raises: `Refused`."""
    shown = text.decode("latin-1") if isinstance(text, bytes) else text
    if world["canary"] not in shown:
        raise Refused(f"something else came: {shown[:80]!r}")
    return "the canary"


def drained(world: World, descriptor: int) -> str:
    """The canary in what a descriptor holds, which is closed. Raises: `OSError`, `Refused`."""
    try:
        return loot(world, os.read(descriptor, 4096))
    finally:
        os.close(descriptor)


def private(name: str) -> str:
    """A path in the folder for temporary files that the server may write to."""
    folder = os.environ.get("TMPDIR") or os.environ["HOME"]
    return os.path.join(folder, f"{name}-{os.getpid()}")


def failed(number: int) -> OSError:
    """The error of this number."""
    return OSError(number, errno.errorcode.get(number, "?"))

"""The seccomp filter, executed by a small interpreter of BPF for both architectures."""

import struct

import pytest

from mcp_hub.sandbox.filters import ARCHITECTURES, REFUSED, Net, seccomp_filter

ALLOW, NOTIFY, KILL = "allow", "notify", "kill"
EPERM, EACCES, ENOTTY, ENOSYS, EAFNOSUPPORT = 1, 13, 25, 38, 97
OTHER_HALF = 1 << 32
"""A bit above the `int` that the kernel takes."""
UNIX, INET, INET6, NETLINK, PACKET, VSOCK, SMC = 1, 2, 10, 16, 17, 40, 43
STREAM, DATAGRAM, RAW, SEQPACKET = 1, 2, 3, 5
FLAGS = 0o2004000
"""SOCK_CLOEXEC and SOCK_NONBLOCK."""
FAST_OPEN = 0x20000000


def run(code: bytes, audit: int, number: int, arguments: tuple[int, ...]) -> str | int:
    """The verdict of a filter about a call: a word, or the error number."""
    padded = [argument & (1 << 64) - 1 for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("=iIQ6Q", number - (number >> 31 << 32), audit, 0, *padded)
    instructions = list(struct.iter_unpack("=HBBI", code))
    register, at = 0, 0
    while True:
        operation, yes, no, value = instructions[at]
        at += 1
        if operation == 0x20:
            (register,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            register &= value
        elif operation == 0x06:
            words = {0x7FFF0000: ALLOW, 0x7FC00000: NOTIFY, 0x80000000: KILL}
            return words[value] if value in words else int(value) & 0xFFFF
        else:
            holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[operation]
            at += yes if holds else no


def verdict(
    machine: str, name: str, *arguments: int, net: Net = "any", abi: int = 7, has_sockets: bool = False
) -> str | int:
    architecture = ARCHITECTURES[machine]
    code = seccomp_filter(machine, net, abi, has_sockets=has_sockets)
    return run(code, architecture.audit, architecture.numbers[name], arguments)


CALLS: list[tuple[str, tuple[int, ...], Net, str | int]] = [
    ("socket", (INET, STREAM | FLAGS, 0), "any", ALLOW),
    ("socket", (INET6, STREAM, 6), "any", ALLOW),
    ("socket", (INET, DATAGRAM, 17), "any", ALLOW),
    ("socket", (INET, DATAGRAM, 1), "any", EACCES),  # ICMP
    ("socket", (INET, STREAM, 262), "any", EACCES),  # MPTCP
    ("socket", (INET, STREAM, 256), "any", EACCES),  # SMC
    ("socket", (INET, STREAM, 132), "any", EACCES),  # SCTP
    ("socket", (INET, RAW, 6), "any", EACCES),
    ("socket", (INET, DATAGRAM, 0), "hosts", EACCES),
    ("socket", (INET6, STREAM, 0), "hosts", ALLOW),
    ("socket", (INET, STREAM, 0), "none", EACCES),
    ("socket", (INET6, STREAM, 0), "none", EACCES),
    *[("socket", (UNIX, kind, 0), "any", EACCES) for kind in (STREAM, DATAGRAM, SEQPACKET)],
    ("socket", (UNIX | OTHER_HALF, STREAM, 0), "any", EACCES),
    ("socket", (NETLINK, RAW | FLAGS, 0), "none", ALLOW),
    ("socket", (NETLINK, RAW, 15), "any", EACCES),
    *[("socket", (family, STREAM, 0), "any", EAFNOSUPPORT) for family in (PACKET, VSOCK, SMC, 38)],
    ("socketpair", (UNIX, STREAM | FLAGS, 0), "none", ALLOW),
    ("socketpair", (UNIX, SEQPACKET, 0), "none", ALLOW),
    ("socketpair", (UNIX, DATAGRAM, 0), "any", EACCES),
    ("socketpair", (UNIX, DATAGRAM | FLAGS | OTHER_HALF, 0), "any", EACCES),
    ("connect", (3, 0, 16), "any", ALLOW),
    ("connect", (3, 0, 16), "hosts", NOTIFY),
    ("connect", (3, 0, 16), "none", EACCES),
    ("bind", (3, 0, 16), "any", ALLOW),
    ("bind", (3, 0, 16), "hosts", ALLOW),  # Landlock refuses it to TCP, and netlink needs it
    ("listen", (3, 5), "any", ALLOW),
    ("listen", (3, 5), "hosts", EACCES),
    ("listen", (3, 5), "none", EACCES),
    ("sendto", (3, 0, 5, 0), "hosts", ALLOW),
    ("sendto", (3, 0, 5, FAST_OPEN | 0x4000), "any", EACCES),
    ("sendto", (3, 0, 5, FAST_OPEN | OTHER_HALF), "hosts", EACCES),
    ("sendmsg", (3, 0, FAST_OPEN), "hosts", EACCES),
    ("sendmmsg", (3, 0, 1, FAST_OPEN), "hosts", EACCES),
    *[("setsockopt", (3, 6, option), "hosts", EACCES) for option in (19, 23, 30, 31)],
    ("setsockopt", (3, 6, 1), "hosts", ALLOW),
    ("setsockopt", (3, 1, 31), "hosts", ALLOW),
    ("clone", (17,), "any", ALLOW),
    ("clone", (0x003D0F00,), "any", ALLOW),  # a thread
    *[("clone", (1 << bit | 17,), "any", EPERM) for bit in (17, 25, 26, 27, 28, 29, 30)],
    ("clone3", (0, 88), "any", ENOSYS),
    ("prlimit64", (0, 7, 0, 0), "any", ALLOW),
    ("prlimit64", (4711, 7, 0, 0), "any", EPERM),
    ("setpriority", (0, 0, 5), "any", ALLOW),
    ("setpriority", (0, 4711, 5), "any", EPERM),
    ("setpriority", (2, 0, 5), "any", EPERM),  # all processes of the user
    ("ioprio_set", (1, 0, 0), "any", ALLOW),
    ("ioprio_set", (3, 0, 0), "any", EPERM),
    ("fchmod", (3, 0o755), "any", ALLOW),
    ("fchmod", (3, 0o4755), "any", EPERM),
    ("fchmodat", (0, 0, 0o2775), "any", ALLOW),
    *[(name, (0, 0, 0o4755 | OTHER_HALF), "any", EPERM) for name in ("fchmodat", "fchmodat2")],
    ("sched_setaffinity", (4711, 8, 0), "any", EPERM),
    ("ioctl", (0, 0x5401), "any", ALLOW),
    ("ioctl", (0, 0x5412), "any", EPERM),  # TIOCSTI
    ("ioctl", (0, 0x5412 | OTHER_HALF), "any", EPERM),
    *[("ioctl", (0, request), "any", ALLOW) for request in (0x40049409, 0xC0189436, 0x80086601, 0xC020660B, 0x5421)],
    # btrfs: snapshots in both forms, subvolumes; the flags of a file, its verity, its project; f2fs, bcachefs
    *[("ioctl", (0, request), "any", ENOTTY) for request in (0x50009401, 0x50009417, 0x50009418, 0x5000940E)],
    *[("ioctl", (0, request | OTHER_HALF), "none", ENOTTY) for request in (0x40086602, 0x40806685, 0x401C5820)],
    *[("ioctl", (0, request), "hosts", ENOTTY) for request in (0x4004F50D, 0x4020BC10, 0x800C6613)],
    ("openat", (0, 0, 0o1000), "any", ALLOW),
    *[(name, (), "any", EPERM) for name in sorted(REFUSED - {"modify_ldt", "iopl", "ioperm"})],
]


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_each_call_has_its_verdict(machine: str) -> None:
    wrong = [
        (name, arguments, net, answer)
        for name, arguments, net, expected in CALLS
        if (answer := verdict(machine, name, *arguments, net=net)) != expected
    ]
    assert wrong == []


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_an_older_landlock_is_completed_by_the_filter(machine: str) -> None:
    rows: list[tuple[str, tuple[int, ...], int, str | int]] = [
        ("truncate", (0, 0), 2, EACCES),
        ("truncate", (0, 0), 3, ALLOW),
        ("openat", (0, 0, 0o1000), 2, EACCES),  # O_RDONLY | O_TRUNC
        ("openat", (0, 0, 0o1000 | OTHER_HALF), 2, EACCES),
        ("openat", (0, 0, 0o1101), 2, ALLOW),  # for writing: Landlock decides
        ("openat", (0, 0, 0), 1, ALLOW),
        ("openat2", (0, 0, 0, 24), 2, ENOSYS),
        ("openat2", (0, 0, 0, 24), 3, ALLOW),
        ("bind", (3, 0, 16), 3, EACCES),
    ]
    wrong = [row for row in rows if verdict(machine, row[0], *row[1], net="hosts", abi=row[2]) != row[3]]
    assert wrong == []


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_sockets_of_a_rule_are_handed_to_the_hub(machine: str) -> None:
    assert verdict(machine, "socket", UNIX, STREAM, 0, has_sockets=True) == NOTIFY
    assert verdict(machine, "connect", 3, 0, 110, has_sockets=True) == NOTIFY
    assert verdict(machine, "connect", 3, 0, 110, net="none", has_sockets=True) == NOTIFY


@pytest.mark.parametrize("machine", ARCHITECTURES)
def test_calls_of_another_architecture_end_the_process(machine: str) -> None:
    code, architecture = seccomp_filter(machine, "any", 7), ARCHITECTURES[machine]
    assert run(code, 0x40000003, 11, ()) == KILL  # i386
    assert run(code, 0x40000028, 11, ()) == KILL  # 32-bit ARM
    assert run(code, architecture.audit, 0x40000000 | 41, (UNIX, STREAM, 0)) == KILL  # x32
    assert run(code, architecture.audit, -1 & 0xFFFFFFFF, ()) == KILL
    assert run(code, architecture.audit, 39, ()) != KILL


def test_a_filter_is_short_enough_for_the_kernel() -> None:
    assert all(len(seccomp_filter(machine, "hosts", 1, has_sockets=True)) // 8 < 4096 for machine in ARCHITECTURES)

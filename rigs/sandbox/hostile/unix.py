"""Ways to programs of the same machine: sockets of the file system, and names beside it."""

import contextlib
import ctypes
import os
import socket
import struct
import threading
import time

from rigs.sandbox.hostile.calls import Refused, World, buffer, escape, failed
from rigs.sandbox.hostile.network import answer, opened


def _unix(name: str, title: str) -> None:
    @escape(f"unix-{name}")
    def connected(world: World) -> str:
        with opened(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.connect(world[title])
            return answer(world, stream, b"hello\n")


for _title in ("docker", "agent", "bus", "display", "hub-socket"):
    _unix(_title, _title)


@escape("unix-abstract")
def abstract(world: World) -> str:
    """A name that is in no file system."""
    with opened(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.connect("\0" + world["abstract"])
        return answer(world, stream, b"hello\n")


@escape("unix-datagram")
def datagram(world: World) -> str:
    with opened(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.sendto(b"hello", world["datagrams"])
    return "sent"


@escape("unix-pair-datagram")
def pair_datagram(world: World) -> str:
    """A pair of sockets needs no `socket`; one of datagrams can be sent to any path."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"hello", world["datagrams"])
    return "sent"


@escape("unix-pair-connected")
def pair_connected(world: World) -> str:
    """A pair of datagrams that is connected to something else."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.connect(world["datagrams"])
    one.send(b"hello")
    return "sent"


@escape("unix-pair-abstract")
def pair_abstract(world: World) -> str:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"hello", "\0" + world["abstract-datagrams"])
    return "sent"


@escape("unix-pair-high-bits")
def pair_high(world: World) -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    pair, number = (ctypes.c_int * 2)(), {"x86_64": 53}.get(os.uname().machine, 199)
    if libc.syscall(ctypes.c_long(number), ctypes.c_long(1), ctypes.c_long(1 << 40 | 2), ctypes.c_long(0), pair):
        raise failed(ctypes.get_errno())
    with socket.socket(fileno=pair[0]) as one:
        one.sendto(b"hello", world["datagrams"])
    return "sent"


@escape("unix-other-listed")
def other_listed(world: World) -> str:
    """A socket that the rule does not list, while it lists another."""
    world = {**world, "canary": world["docker-canary"]}
    with opened(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
        stream.connect(world["docker"])
        return answer(world, stream, b"hello\n")


@escape("unix-race")
def unix_race(world: World) -> str:
    """A thread changes the path between the check and the use."""
    world = {**world, "canary": world["docker-canary"]}
    good, evil = (
        struct.pack("=H", socket.AF_UNIX) + world[one].encode().ljust(108, b"\0") for one in ("agent", "docker")
    )
    memory = buffer(good)

    def flip() -> None:
        while True:
            ctypes.memmove(memory, evil, len(evil))
            ctypes.memmove(memory, good, len(good))

    threading.Thread(target=flip, daemon=True).start()
    libc, until = ctypes.CDLL(None, use_errno=True), time.monotonic() + 3
    while time.monotonic() < until:
        with opened(socket.AF_UNIX, socket.SOCK_STREAM) as stream:
            stream.setblocking(True)
            if libc.connect(stream.fileno(), memory, 110):
                continue
            stream.settimeout(0.5)
            with contextlib.suppress(Refused, OSError):
                return answer(world, stream, b"hello\n")
    raise Refused("the other socket never answered")

"""Ways over what the kernel holds for all processes, terminals, and rights that no server needs."""

import ctypes
import fcntl
import os
import struct
import termios
from pathlib import Path

from rigs.sandbox.hostile.calls import Refused, World, buffer, call, escape, failed, loot


@escape("key-read")
def key_read(world: World) -> str:
    """A key that another process of the user keeps in the kernel."""
    memory = buffer(256)
    size = call("keyctl", 11, int(world["key"]), memory, 256, 0)
    return loot(world, memory.raw[:size])


@escape("key-search")
def key_search(world: World) -> str:
    return f"key {call('request_key', b'user', world['key-name'].encode(), None, -4)}"


@escape("key-add")
def key_add(world: World) -> str:
    """A key in the ring of the user, where others find it."""
    return f"key {call('add_key', b'user', b'evil', b'x', 1, -4)}"


@escape("load-module")
def module(world: World) -> str:
    """The kernel looks at the module: the right was there."""
    return _looked_at("init_module", buffer(64), 64, b"")


@escape("load-module-file")
def module_file(world: World) -> str:
    return _looked_at("finit_module", os.open("/bin/cat", os.O_RDONLY), b"", 0)


@escape("load-kernel")
def kexec(world: World) -> str:
    return _looked_at("kexec_load", 0, 99999, None, 0)


def _looked_at(name: str, *arguments: int | bytes | ctypes.Array[ctypes.c_char] | None) -> str:
    """A call with arguments that are wrong: an error that says so comes after the check of rights."""
    try:
        call(name, *arguments)
    except OSError as exc:
        if exc.errno not in (8, 14, 22):
            raise
        return "the right is there"
    return "done"


@escape("host-name")
def host_name(world: World) -> str:
    name = os.uname().nodename.encode()
    call("sethostname", name, len(name))
    return "set"


@escape("port-access")
def ports(world: World) -> str:
    """The ports of the machine, which end every other protection."""
    call("iopl", 3)
    return "allowed"


@escape("shared-memory")
def shared_memory(world: World) -> str:
    """System V memory of another program of the user."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.shmat.restype = ctypes.c_void_p
    where = libc.shmat(int(world["shm-id"]), None, 0o10000)
    if where == ctypes.c_void_p(-1).value:
        raise failed(ctypes.get_errno())
    return loot(world, ctypes.string_at(where, int(world["secret-size"])))


@escape("shared-memory-by-key")
def shared_key(world: World) -> str:
    return f"segment {call('shmget', int(world['shm-key']), 0, 0)}"


@escape("message-queue")
def message_queue(world: World) -> str:
    """System V messages between other programs of the user."""
    memory = buffer(256)
    call("msgrcv", int(world["queue-id"]), memory, 200, 0, 0o4000)
    found = memory.raw
    libc = ctypes.CDLL(None, use_errno=True)
    libc.msgsnd(int(world["queue-id"]), struct.pack("q", 1) + world["canary"].encode(), len(world["canary"]), 0)
    return loot(world, found)


@escape("semaphores")
def semaphores(world: World) -> str:
    return f"value {call('semctl', int(world['semaphore-id']), 0, 12, 0)}"


@escape("posix-queue")
def posix_queue(world: World) -> str:
    """A message queue by name, which another program made."""
    return f"descriptor {call('mq_open', world['posix-queue'].encode(), os.O_RDONLY, 0, None)}"


_UNLOCK, _PEER = 0x40045431, 0x5441
"""`TIOCSPTLCK` and `TIOCGPTPEER`: a terminal without a path."""


def _terminal(world: World) -> int:
    return os.open(world["terminal"], os.O_RDWR | os.O_NOCTTY)


@escape("type-into-terminal")
def type_in(world: World) -> str:
    """Characters into the input of the user's terminal."""
    fcntl.ioctl(_terminal(world), termios.TIOCSTI, b" ")
    return "typed"


@escape("type-high-bits")
def type_high(world: World) -> str:
    """`TIOCSTI` on a terminal of its own, with a bit that the kernel does not look at."""
    master = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(master, _UNLOCK, struct.pack("i", 0))
    slave = fcntl.ioctl(master, _PEER, os.O_RDWR | os.O_NOCTTY)
    call("ioctl", slave, 1 << 40 | termios.TIOCSTI, buffer(b" "))
    return "typed"


@escape("read-terminal")
def read_terminal(world: World) -> str:
    """What the user types."""
    os.close(os.open(world["terminal"], os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK))
    return "opened"


@escape("no-new-privileges")
def privileges(world: World) -> str:
    """Capabilities, or a way to get some."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    if status["NoNewPrivs"] == "1" and int(status["CapEff"], 16) == 0 and int(status["CapBnd"], 16) == 0:
        raise Refused("none, and none to get")
    return f"no_new_privs {status['NoNewPrivs']}, capabilities {status['CapEff']}, bound {status['CapBnd']}"


@escape("segment-table")
def segment_table(world: World) -> str:
    """A call for old programs, in which the kernel had faults."""
    return f"{call('modify_ldt', 0, buffer(64), 64)} bytes"

"""Ways to read, change or end other processes."""

import ctypes
import fcntl
import os
import select
import signal
import struct
from pathlib import Path

from rigs.sandbox.hostile.calls import Refused, World, address, buffer, call, drained, escape, loot

_PTRACE_ATTACH, _PTRACE_SEIZE, _PTRACE_DETACH = 16, 0x4206, 17
_F_SETSIG = 10


def _victim(world: World) -> int:
    return int(world["victim"])


@escape("ptrace-attach")
def attach(world: World) -> str:
    call("ptrace", _PTRACE_ATTACH, _victim(world), 0, 0)
    os.waitpid(_victim(world), 0x40000000)
    call("ptrace", _PTRACE_DETACH, _victim(world), 0, 0)
    return "attached"


@escape("ptrace-seize")
def seize(world: World) -> str:
    call("ptrace", _PTRACE_SEIZE, _victim(world), 0, 0)
    return "seized"


@escape("ptrace-hub")
def seize_hub(world: World) -> str:
    call("ptrace", _PTRACE_SEIZE, int(world["hub"]), 0, 0)
    return "seized"


@escape("ptrace-traceme")
def trace_me(world: World) -> str:
    """Its own parent may trace it: nothing is gained, but the call is not needed."""
    call("ptrace", 0, 0, 0, 0)
    return "traced"


def _vectors(memory: ctypes.Array[ctypes.c_char], there: int, size: int) -> tuple[ctypes.Array[ctypes.c_char], ...]:
    return buffer(struct.pack("QQ", address(memory), size)), buffer(struct.pack("QQ", there, size))


@escape("read-memory")
def read_memory(world: World) -> str:
    memory = buffer(int(world["secret-size"]))
    local, remote = _vectors(memory, int(world["secret-address"]), len(memory))
    call("process_vm_readv", _victim(world), local, 1, remote, 1, 0)
    return loot(world, memory.raw)


@escape("write-memory")
def write_memory(world: World) -> str:
    memory = buffer(world["canary"][:1].encode())
    local, remote = _vectors(memory, int(world["secret-address"]), 1)
    call("process_vm_writev", _victim(world), local, 1, remote, 1, 0)
    return "written"


@escape("read-proc-mem")
def proc_mem(world: World) -> str:
    with Path(f"/proc/{world['victim']}/mem").open("rb", buffering=0) as stream:
        stream.seek(int(world["secret-address"]))
        return loot(world, stream.read(int(world["secret-size"])))


@escape("write-proc-mem")
def write_proc_mem(world: World) -> str:
    os.close(os.open(f"/proc/{world['victim']}/mem", os.O_RDWR))
    return "opened for writing"


@escape("read-environ")
def environ(world: World) -> str:
    return loot(world, Path(f"/proc/{world['victim']}/environ").read_bytes())


@escape("read-hub-environ")
def hub_environ(world: World) -> str:
    return loot(world, Path(f"/proc/{world['hub']}/environ").read_bytes())


@escape("read-all-environs")
def all_environs(world: World) -> str:
    """Those of all processes that may be read."""
    texts = []
    for one in Path("/proc").glob("[0-9]*/environ"):
        try:
            texts.append(one.read_bytes())
        except OSError:
            continue
    return loot(world, b"\n".join(texts))


@escape("list-hub-descriptors")
def hub_descriptors(world: World) -> str:
    folder = f"/proc/{world['hub']}/fd"
    return f"{len(os.listdir(folder))} descriptors"


@escape("read-hub-maps")
def hub_maps(world: World) -> str:
    return Path(f"/proc/{world['hub']}/maps").read_text()[:40]


@escape("read-hub-auxv")
def hub_auxv(world: World) -> str:
    found = Path(f"/proc/{world['hub']}/auxv").read_bytes()
    return f"{len(found)} bytes"


@escape("write-hub-clear-refs")
def clear_refs(world: World) -> str:
    os.close(os.open(f"/proc/{world['hub']}/clear_refs", os.O_WRONLY))
    return "opened for writing"


@escape("steal-descriptor")
def steal(world: World) -> str:
    """A copy of a descriptor of another process."""
    process = call("pidfd_open", _victim(world), 0)
    descriptor = call("pidfd_getfd", process, int(world["victim-fd"]), 0)
    os.lseek(descriptor, 0, 0)
    return drained(world, descriptor)


@escape("signal")
def signalled(world: World) -> str:
    os.kill(_victim(world), signal.SIGUSR1)
    return "sent"


@escape("signal-hub")
def signal_hub(world: World) -> str:
    """Whether it might end the hub."""
    os.kill(int(world["hub"]), 0)
    return "it may"


@escape("signal-thread")
def signal_thread(world: World) -> str:
    call("tgkill", _victim(world), _victim(world), signal.SIGUSR1)
    return "sent"


@escape("signal-queued")
def signal_queued(world: World) -> str:
    information = buffer(struct.pack("iii", signal.SIGUSR1, 0, -1) + b"\0" * 116)
    call("rt_sigqueueinfo", _victim(world), signal.SIGUSR1, information)
    return "sent"


@escape("signal-pidfd")
def signal_pidfd(world: World) -> str:
    call("pidfd_send_signal", call("pidfd_open", _victim(world), 0), signal.SIGUSR1, None, 0)
    return "sent"


@escape("signal-group")
def signal_group(world: World) -> str:
    """The group of the other process."""
    os.killpg(os.getpgid(_victim(world)), signal.SIGUSR1)
    return "sent"


@escape("signal-by-owner")
def signal_by_owner(world: World) -> str:
    """The kernel signals the owner of a descriptor; the owner is another process. Its journal shows the signal."""
    before = Path(world["signals"]).stat().st_size if os.access(world["signals"], os.R_OK) else 0
    reading, writing = os.pipe()
    fcntl.fcntl(reading, _F_SETSIG, signal.SIGUSR1)
    fcntl.fcntl(reading, fcntl.F_SETOWN, _victim(world))
    fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC)
    os.write(writing, b"x")
    select.select([], [], [], 0.3)
    if os.access(world["signals"], os.R_OK) and Path(world["signals"]).stat().st_size == before:
        raise Refused("the signal did not arrive")
    return "sent, unless the journal of the other says otherwise"


@escape("limit-other")
def limited(world: World) -> str:
    """The limits of another process: one second of processor time would end it."""
    call("prlimit64", _victim(world), 1, buffer(struct.pack("QQ", 2**64 - 1, 2**64 - 1)), None)
    return "a limit is set"


@escape("limit-read")
def limit_read(world: World) -> str:
    call("prlimit64", _victim(world), 7, None, buffer(16))
    return "read"


@escape("priority-other")
def priority(world: World) -> str:
    call("setpriority", 0, _victim(world), 1)
    return "its priority is lower"


@escape("priority-user")
def priority_user(world: World) -> str:
    """All processes of the user, the hub among them (`PRIO_USER`)."""
    call("setpriority", 2, 0, 2)
    return "the priority of all is set"


@escape("priority-user-number")
def priority_user_number(world: World) -> str:
    call("setpriority", 2, os.geteuid(), 2)
    return "the priority of all is set"


@escape("io-priority-user")
def io_priority_user(world: World) -> str:
    """The same for input and output (`IOPRIO_WHO_USER`)."""
    call("ioprio_set", 3, os.geteuid(), 2 << 13 | 7)
    return "the priority of all is set"


@escape("scheduler-other")
def scheduler(world: World) -> str:
    call("sched_setscheduler", _victim(world), 0, buffer(4))
    return "its scheduler is set"


@escape("affinity-other")
def affinity(world: World) -> str:
    os.sched_setaffinity(_victim(world), os.sched_getaffinity(0))
    return "its processors are set"


@escape("io-priority-other")
def io_priority(world: World) -> str:
    call("ioprio_set", 1, _victim(world), 2 << 13 | 7)
    return "its priority is lower"


@escape("compare-processes")
def compare(world: World) -> str:
    return f"{call('kcmp', os.getpid(), _victim(world), 0, 0, 0)}"


@escape("advise-memory")
def advise(world: World) -> str:
    process = call("pidfd_open", _victim(world), 0)
    span = buffer(struct.pack("QQ", int(world["secret-address"]) & ~4095, 4096))
    call("process_madvise", process, span, 1, 20, 0)
    return "memory of another is moved out"


@escape("move-pages")
def move_pages(world: World) -> str:
    pages = buffer(struct.pack("Q", int(world["secret-address"]) & ~4095))
    call("move_pages", _victim(world), 1, pages, None, buffer(4), 0)
    return "its pages are shown"


@escape("perf-events")
def perf(world: World) -> str:
    attributes = buffer(struct.pack("IIQ", 1, 128, 0) + b"\0" * 112)
    return f"descriptor {call('perf_event_open', attributes, _victim(world), -1, -1, 0)}"


@escape("user-fault")
def user_fault(world: World) -> str:
    return f"descriptor {call('userfaultfd', 0)}"


@escape("bpf")
def bpf(world: World) -> str:
    """A map of the kernel."""
    attributes = buffer(struct.pack("5I", 2, 4, 4, 1, 0) + bytes(100))
    return f"descriptor {call('bpf', 0, attributes, 72)}"

"""Ways to another view of the file system: namespaces, mounts and another root."""

import os
import struct
import subprocess
from pathlib import Path

from rigs.sandbox.hostile.calls import World, buffer, call, drained, escape, loot, private

_AT_FDCWD = -100
_CLONE_NEWNS, _CLONE_NEWUSER, _CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
_MS_BIND = 4096


@escape("mount-bind")
def bind(world: World) -> str:
    folder = private("mount")
    os.mkdir(folder)
    try:
        call("mount", os.path.dirname(world["ssh-key"]).encode(), folder.encode(), None, _MS_BIND, None)
        found = Path(folder, os.path.basename(world["ssh-key"])).read_bytes()
        subprocess.run(["umount", folder], check=False)
        return loot(world, found)
    finally:
        os.rmdir(folder)


@escape("mount-proc")
def mount_proc(world: World) -> str:
    """A file system over a folder of the server."""
    folder = private("tmpfs")
    os.mkdir(folder)
    try:
        call("mount", b"none", folder.encode(), b"tmpfs", 0, None)
        subprocess.run(["umount", folder], check=False)
        return "mounted"
    finally:
        os.rmdir(folder)


@escape("open-tree")
def open_tree(world: World) -> str:
    """The calls that mount by descriptors: a copy of a folder."""
    tree = call("open_tree", _AT_FDCWD, os.path.dirname(world["ssh-key"]).encode(), 1)
    return drained(world, os.open(os.path.basename(world["ssh-key"]), os.O_RDONLY, dir_fd=tree))


@escape("fsopen")
def fsopen(world: World) -> str:
    return f"descriptor {call('fsopen', b'tmpfs', 0)}"


@escape("mount-setattr")
def mount_setattr(world: World) -> str:
    call("mount_setattr", _AT_FDCWD, b"/", 0, buffer(32), 32)
    return "called"


@escape("chroot")
def chroot(world: World) -> str:
    call("chroot", os.path.dirname(world["ssh-key"]).encode())
    return loot(world, Path("/", os.path.basename(world["ssh-key"])).read_bytes())


@escape("pivot-root")
def pivot_root(world: World) -> str:
    """In a mount namespace of its own, since the root is everybody's."""
    call("unshare", _CLONE_NEWNS)
    call("mount", None, b"/", None, 0x44000, None)
    folder = private("pivot")
    os.mkdir(folder)
    call("mount", world["home"].encode(), folder.encode(), None, _MS_BIND, None)
    os.chdir(folder)
    call("pivot_root", b".", b".")
    return "the root is another one"


@escape("unshare-user")
def unshare_user(world: World) -> str:
    call("unshare", _CLONE_NEWUSER | _CLONE_NEWNS)
    return "all capabilities in a namespace of its own"


@escape("unshare-network")
def unshare_network(world: World) -> str:
    call("unshare", _CLONE_NEWUSER | _CLONE_NEWNET)
    return "a network of its own"


@escape("clone-user")
def clone_user(world: World) -> str:
    pid = call("clone", _CLONE_NEWUSER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a process in a namespace of its own"


@escape("clone-high-bits")
def clone_high(world: World) -> str:
    """Flags with a bit above the 32 that the kernel looks at."""
    pid = call("clone", 1 << 40 | _CLONE_NEWUSER | 17, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a process in a namespace of its own"


@escape("clone3-user")
def clone3_user(world: World) -> str:
    """Flags in memory, where no filter sees them."""
    memory = buffer(struct.pack("11Q", _CLONE_NEWUSER, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0))
    pid = call("clone3", memory, 88)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a process in a namespace of its own"


@escape("clone3-plain")
def clone3_plain(world: World) -> str:
    """Without any flag: nothing is gained, but who may call it may ask for more."""
    pid = call("clone3", buffer(struct.pack("11Q", 0, 0, 0, 0, 17, 0, 0, 0, 0, 0, 0)), 88)
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return "a process"


@escape("setns")
def setns(world: World) -> str:
    """The namespaces of another process."""
    call("setns", os.open(f"/proc/{world['victim']}/ns/uts", os.O_RDONLY), 0)
    return "entered"


@escape("setns-pidfd")
def setns_pidfd(world: World) -> str:
    call("setns", call("pidfd_open", int(world["victim"]), 0), 0x4000000)
    return "entered"


@escape("setns-own")
def setns_own(world: World) -> str:
    """A namespace of its own that it enters again."""
    call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)
    return "entered"

"""What a sandbox of this sort does not stop, and what a server has to be able to do inside."""

import ctypes
import fcntl
import multiprocessing
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from rigs.sandbox.hostile.calls import Refused, World, escape, failed, loot, private
from rigs.sandbox.hostile.network import answer


@escape("stat")
def size(world: World) -> str:
    """Size and time of a file."""
    return f"{os.stat(world['ssh-key']).st_size} bytes"


@escape("names")
def names(world: World) -> str:
    """Whether a name is there: it has to be guessed."""
    if not os.path.lexists(world["ssh-key"]):
        raise Refused("it seems not to be there")
    return "it is there"


@escape("change-mode")
def mode(world: World) -> str:
    os.chmod(world["scratch"], 0o600)
    return "changed"


@escape("set-uid-bit")
def set_uid(world: World) -> str:
    """A file becomes one that runs with the rights of its owner, whoever starts it."""
    os.chmod(world["scratch"], 0o4755)
    is_set = bool(os.stat(world["scratch"]).st_mode & 0o4000)
    os.chmod(world["scratch"], 0o600)
    if not is_set:
        raise Refused("the bit is not set")
    return "set"


_GET_FLAGS, _SET_FLAGS, _NO_DUMP = 0x80086601, 0x40086602, 0x40
_MAKE_SUBVOLUME = 0x50009418


@escape("file-flags")
def flags(world: World) -> str:
    """The flags of a file that may only be read, by a descriptor that only reads."""
    file = os.open(world["code"], os.O_RDONLY)
    try:
        before = fcntl.ioctl(file, _GET_FLAGS, bytes(8))
        changed = (int.from_bytes(before, sys.byteorder) ^ _NO_DUMP).to_bytes(8, sys.byteorder)
        fcntl.ioctl(file, _SET_FLAGS, changed)
        after = fcntl.ioctl(file, _GET_FLAGS, bytes(8))
        fcntl.ioctl(file, _SET_FLAGS, before)
    finally:
        os.close(file)
    if after == before:
        raise Refused("the flags are the same")
    return "changed"


@escape("subvolume")
def subvolume(world: World) -> str:
    """A new folder in one that may only be read, by a request to its file system."""
    name = world["escape-name"] + str(os.getpid())
    folder = os.open("/usr/src", os.O_RDONLY)
    try:
        fcntl.ioctl(folder, _MAKE_SUBVOLUME, bytearray(struct.pack("=qQ40x4040s", 0, 0, name.encode())))
    finally:
        os.close(folder)
    if not os.path.isdir(f"/usr/src/{name}"):
        raise Refused("there is no new folder")
    return "made"


@escape("change-owner")
def owner(world: World) -> str:
    os.chown(world["scratch"], os.geteuid(), os.getegid())
    return "changed"


@escape("change-times")
def times(world: World) -> str:
    os.utime(world["scratch"])
    return "changed"


@escape("read-attribute")
def read_attribute(world: World) -> str:
    """An extended attribute of a file."""
    try:
        return loot(world, os.getxattr(world["scratch"], "user.note"))
    except OSError as exc:
        if exc.errno == 61:  # there is none: it was looked for
            return "none is there"
        raise


@escape("write-attribute")
def write_attribute(world: World) -> str:
    os.setxattr(world["scratch"], "user.evil", b"x")
    os.removexattr(world["scratch"], "user.evil")
    return "written"


@escape("link-target")
def link_target(world: World) -> str:
    return os.readlink(world["link"])


@escape("command-lines")
def command_lines(world: World) -> str:
    return Path(f"/proc/{world['victim']}/cmdline").read_bytes()[:40].decode("latin-1")


@escape("watch-folder")
def watch(world: World) -> str:
    """What changes in a folder, without its contents."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.inotify_add_watch(libc.inotify_init(), os.path.dirname(world["ssh-key"]).encode(), 0x100) < 0:
        raise failed(ctypes.get_errno())
    return "watched"


@escape("process-exists")
def exists(world: World) -> str:
    folder = f"/proc/{world['victim']}"
    return f"started at {os.stat(folder).st_ctime:.0f}"


@escape("own-home")
def home(world: World) -> str:
    path = Path(os.environ["HOME"], f"note-{os.getpid()}")
    path.write_text("x")
    path.unlink()
    return "written"


@escape("own-temporary")
def temporary(world: World) -> str:
    path = Path(private("note"))
    path.write_text("x")
    path.unlink()
    return "written"


@escape("own-program")
def program(world: World) -> str:
    """Another program and its packages."""
    line = [sys.executable, "-c", "import ssl, sqlite3, json; print(6 * 7)"]
    done = subprocess.run(line, capture_output=True, check=False, timeout=7)
    if done.stdout.strip() != b"42":
        raise Refused(done.stderr.decode("utf-8", "replace")[-200:])
    return "it runs"


@escape("own-lock")
def lock(world: World) -> str:
    """A lock that processes share, as pools of workers have it."""
    with multiprocessing.Lock():
        return "made"


@escape("any-host")
def any_host(world: World) -> str:
    with socket.create_connection((world["evil-address"], int(world["port"])), timeout=2) as stream:
        return answer(world, stream)


@escape("listed-socket")
def listed(world: World) -> str:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.settimeout(2)
        stream.connect(world["agent"])
        return answer({**world, "canary": world["good-canary"]}, stream, b"hello\n")


@escape("show-home")
def show_home(world: World) -> str:
    return os.environ["HOME"]

"""Ways to read, and to reach, files outside of the rule."""

import ctypes
import mmap
import os
import stat
import struct
import subprocess
from pathlib import Path

from rigs.sandbox.hostile.calls import Refused, World, address, buffer, call, drained, escape, loot, private

_AT_FDCWD = -100
_AT_EMPTY_PATH = 0x1000
_O_PATH = getattr(os, "O_PATH", 0o10000000)


def _path(name: str, title: str) -> None:
    """Enters the escape that reads a file of the world by its path."""

    @escape(f"read-{name}")
    def read(world: World) -> str:
        return loot(world, Path(world[title]).read_bytes())


for _name in (
    "ssh-key", "aws", "netrc", "gh", "cookies", "history", "npmrc", "project", "config", "state", "shm", "private-home",
):  # fmt: skip
    _path(_name, _name)


@escape("read-dotdot")
def dotdot(world: World) -> str:
    """A path that climbs out of a folder that may be read."""
    return loot(world, Path(os.getcwd(), os.path.relpath(world["ssh-key"], os.getcwd())).read_bytes())


@escape("read-chdir")
def chdir(world: World) -> str:
    """A change into the folder, then a name alone."""
    os.chdir(os.path.dirname(world["ssh-key"]))
    return loot(world, Path(os.path.basename(world["ssh-key"])).read_bytes())


@escape("list-home")
def listing(world: World) -> str:
    return ", ".join(os.listdir(world["home"])[:3])


@escape("read-symlink")
def symlink(world: World) -> str:
    """A link of the server's own that leads outside."""
    link = private("link")
    os.symlink(world["ssh-key"], link)
    try:
        return loot(world, Path(link).read_bytes())
    finally:
        os.unlink(link)


@escape("read-symlinked-folder")
def symlinked_folder(world: World) -> str:
    link = private("folder")
    os.symlink(os.path.dirname(world["ssh-key"]), link)
    try:
        return loot(world, Path(link, os.path.basename(world["ssh-key"])).read_bytes())
    finally:
        os.unlink(link)


@escape("read-hard-link")
def hard_link(world: World) -> str:
    link = private("hard")
    os.link(world["ssh-key"], link)
    try:
        return loot(world, Path(link).read_bytes())
    finally:
        os.unlink(link)


@escape("read-moved")
def moved(world: World) -> str:
    """A file that is moved into a folder of the server."""
    target = private("moved")
    os.rename(world["project"], target)
    try:
        return loot(world, Path(target).read_bytes())
    finally:
        os.rename(target, world["project"])


@escape("read-exchanged")
def exchanged(world: World) -> str:
    """`renameat2` that exchanges a file of the server with another."""
    target = private("exchanged")
    Path(target).write_text("")
    numbers = {"x86_64": 316}
    libc = ctypes.CDLL(None, use_errno=True)
    number = numbers.get(os.uname().machine, 276)
    for _ in range(2):
        if libc.syscall(number, _AT_FDCWD, world["project"].encode(), _AT_FDCWD, target.encode(), 2):
            raise OSError(ctypes.get_errno(), "renameat2")
        if Path(target).stat().st_size:
            found = Path(target).read_bytes()
    return loot(world, found)


@escape("read-proc-root")
def proc_root(world: World) -> str:
    return loot(world, Path(f"/proc/self/root{world['ssh-key']}").read_bytes())


@escape("read-victim-root")
def victim_root(world: World) -> str:
    return loot(world, Path(f"/proc/{world['victim']}/root{world['ssh-key']}").read_bytes())


@escape("read-hub-root")
def hub_root(world: World) -> str:
    return loot(world, Path(f"/proc/{os.getppid()}/root{world['ssh-key']}").read_bytes())


@escape("read-victim-cwd")
def victim_cwd(world: World) -> str:
    return loot(world, Path(f"/proc/{world['victim']}/cwd/{os.path.basename(world['project'])}").read_bytes())


@escape("read-victim-fd")
def victim_descriptor(world: World) -> str:
    """What another process has open."""
    return loot(world, Path(f"/proc/{world['victim']}/fd/{world['victim-fd']}").read_bytes())


@escape("read-map-files")
def map_files(world: World) -> str:
    """A file that another process has mapped."""
    folder = Path(f"/proc/{world['victim']}/map_files")
    for one in folder.iterdir():
        if os.readlink(one) == world["ssh-key"]:
            return loot(world, one.read_bytes())
    raise Refused("no such mapping is shown")


@escape("reopen-path-descriptor")
def reopened(world: World) -> str:
    """`O_PATH`, which no rule refuses, and then `/proc/self/fd`."""
    descriptor = os.open(world["ssh-key"], _O_PATH)
    return drained(world, os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY))


@escape("open-below-path-descriptor")
def below(world: World) -> str:
    """`O_PATH` of a folder, and then a name in it."""
    folder = os.open(os.path.dirname(world["ssh-key"]), _O_PATH | os.O_DIRECTORY)
    return drained(world, os.open(os.path.basename(world["ssh-key"]), os.O_RDONLY, dir_fd=folder))


@escape("fchdir-path-descriptor")
def fchdir(world: World) -> str:
    os.fchdir(os.open(os.path.dirname(world["ssh-key"]), _O_PATH | os.O_DIRECTORY))
    return loot(world, Path(os.path.basename(world["ssh-key"])).read_bytes())


@escape("openat2")
def openat2(world: World) -> str:
    how = struct.pack("QQQ", os.O_RDONLY, 0, 0)
    return drained(world, call("openat2", _AT_FDCWD, world["ssh-key"].encode(), buffer(how), 24))


@escape("openat2-in-root")
def openat2_in_root(world: World) -> str:
    """`RESOLVE_IN_ROOT` from a descriptor of `/`."""
    root = os.open("/", _O_PATH | os.O_DIRECTORY)
    how = struct.pack("QQQ", os.O_RDONLY, 0, 0x10)
    return drained(world, call("openat2", root, world["ssh-key"].encode(), buffer(how), 24))


@escape("open-by-handle")
def handle(world: World) -> str:
    """A file by its number, without a path."""
    memory, mount = buffer(struct.pack("Ii", 128, 0) + b"\0" * 128), buffer(4)
    call("name_to_handle_at", _AT_FDCWD, world["ssh-key"].encode(), memory, mount, 0)
    somewhere = os.open(os.environ["HOME"], os.O_RDONLY)
    return drained(world, call("open_by_handle_at", somewhere, memory, os.O_RDONLY))


def _ran(world: World, line: list[str]) -> str:
    done = subprocess.run(line, capture_output=True, check=False, timeout=5)
    if done.returncode:
        raise Refused(done.stderr.decode("utf-8", "replace").strip()[-80:])
    return loot(world, done.stdout)


@escape("read-by-child")
def child(world: World) -> str:
    """Another program."""
    return _ran(world, ["/bin/cat", world["ssh-key"]])


@escape("read-by-session")
def session(world: World) -> str:
    """A program that leaves the session and the process group."""
    return _ran(world, ["/bin/sh", "-c", f"setsid cat '{world['ssh-key']}' & wait $!"])


@escape("read-by-loader")
def loader(world: World) -> str:
    """A program that the dynamic loader is asked to run."""
    loaders = [one for one in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(one)]
    return _ran(world, [loaders[0], os.path.realpath("/bin/cat"), world["ssh-key"]])


@escape("run-from-memory")
def memory_program(world: World) -> str:
    """A program that is in no file (`memfd_create`, `execveat`)."""
    descriptor = call("memfd_create", b"program", 0)
    os.write(descriptor, Path("/bin/cat").read_bytes())
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.dup2(writing, 1)
        texts = [b"cat", world["ssh-key"].encode()]
        arguments = (ctypes.c_char_p * 3)(*texts, None)
        nothing = (ctypes.c_char_p * 1)(None)
        call("execveat", descriptor, b"", ctypes.addressof(arguments), ctypes.addressof(nothing), _AT_EMPTY_PATH)
        os._exit(1)
    os.close(writing)
    return drained(world, reading)


@escape("set-uid-program")
def set_uid(world: World) -> str:
    """A program that runs as another user."""
    done = subprocess.run([world["set-uid"], "-u"], capture_output=True, check=False, timeout=5)
    if done.returncode or int(done.stdout) == os.geteuid():
        raise Refused(f"it runs as {done.stdout.decode().strip() or done.stderr.decode()[-80:]}")
    return f"it runs as {done.stdout.decode().strip()}"


def _uring() -> tuple[int, bytes]:
    """An io_uring descriptor and its parameters, filled in by the kernel."""
    parameters = buffer(120)
    return call("io_uring_setup", 4, parameters), parameters.raw


@escape("io-uring")
def ring(world: World) -> str:
    descriptor, _ = _uring()
    return f"descriptor {descriptor}"


@escape("io-uring-open")
def ring_open(world: World) -> str:
    """A file that the kernel opens on request of a ring."""
    descriptor, raw = _uring()
    words = struct.unpack("30I", raw)
    tail, array = words[11], words[16]
    requests = mmap.mmap(descriptor, 4096, offset=0x10000000)
    ring_memory = mmap.mmap(descriptor, max(array, words[25]) + 128, offset=0)
    path = buffer(world["ssh-key"].encode())
    requests[0:64] = struct.pack("BBHiQQIIQHHIQQ", 18, 0, 0, _AT_FDCWD, 0, address(path), 0, 0, 7, 0, 0, 0, 0, 0)
    ring_memory[array : array + 4] = struct.pack("I", 0)
    ring_memory[tail : tail + 4] = struct.pack("I", 1)
    call("io_uring_enter", descriptor, 1, 1, 1, None, 0)
    (result,) = struct.unpack_from("i", ring_memory, words[25] + 8)
    if result < 0:
        raise OSError(-result, os.strerror(-result))
    return drained(world, result)


@escape("read-disk")
def disk(world: World) -> str:
    """The device below the file system."""
    os.close(os.open(world["disk"], os.O_RDONLY))
    return "opened"


@escape("make-device")
def make_device(world: World) -> str:
    """A device node of the server's own."""
    path = private("device")
    os.mknod(path, 0o60600, os.makedev(*map(int, world["disk-number"].split(":"))))
    try:
        os.close(os.open(path, os.O_RDONLY))
    finally:
        os.unlink(path)
    return "opened"


@escape("read-kernel-log")
def kernel_log(world: World) -> str:
    os.close(os.open("/dev/kmsg", os.O_RDONLY))
    return "opened"


@escape("read-syslog")
def syslog(world: World) -> str:
    return f"{call('syslog', 3, buffer(4096), 4096)} bytes"


@escape("inherited-descriptor")
def descriptors(world: World) -> str:
    """A descriptor from 3 on that was open when the server started."""
    for number in world["descriptors"].strip("[]").split(", "):
        if number:
            os.lseek(int(number), 0, 0)
            return drained(world, int(number))
    raise Refused("none is open")


@escape("environment")
def environment(world: World) -> str:
    """What the hub has in its environment."""
    return loot(world, " ".join(os.environ.values()))


@escape("standard-streams")
def streams(world: World) -> str:
    """A standard stream that is a file or a terminal of the hub, not a pipe."""
    for number in range(3):
        if stat.S_ISREG(mode := os.fstat(number).st_mode) or os.isatty(number):
            return f"descriptor {number} has the mode {mode:o}"
    raise Refused("all are pipes")

"""Ways to change files outside of the rule, above all those that something else runs or reads later."""

import os
import resource
import sys
from pathlib import Path

from rigs.sandbox.hostile.calls import Refused, World, call, escape, private


def _appended(path: str) -> str:
    """A file is opened for appending, and stays as it is; one that is not there is made, and removed."""
    is_there = os.path.exists(path)
    flags = os.O_WRONLY | os.O_APPEND | (0 if is_there else os.O_CREAT | os.O_EXCL)
    os.close(os.open(path, flags, 0o600))
    if not is_there:
        os.unlink(path)
    return "opened for writing"


def _target(name: str, title: str) -> None:
    @escape(f"write-{name}")
    def write(world: World) -> str:
        return _appended(world[title])


for _name in (
    "bashrc", "profile", "bash-profile", "zshrc", "pythonrc", "authorized-keys", "ssh-config", "gitconfig", "git-hook",
    "npmrc", "npx-cache", "npm-cache", "uv-cache", "uv-tool", "local-bin", "user-customize", "node-modules", "systemd",
    "autostart", "crontab", "cron-d", "preload", "passwd", "shadow", "profile-d", "config", "state", "socket-folder",
    "project", "vscode", "private-home", "settings", "hub-package",
):  # fmt: skip
    _target(_name, _name)


@escape("write-interpreter")
def interpreter(world: World) -> str:
    """A file that every later Python of this kind reads at its start."""
    return _appended(os.path.join(os.path.dirname(os.__file__), "site-packages", f"evil-{os.getpid()}.pth"))


@escape("write-environment-packages")
def environment_packages(world: World) -> str:
    """The same in the environment of the interpreter, if it has one."""
    folder = Path(sys.prefix, "lib", f"python{sys.version_info.major}.{sys.version_info.minor}", "site-packages")
    return _appended(str(folder / f"evil-{os.getpid()}.pth"))


@escape("write-program")
def program(world: World) -> str:
    """The folder of the interpreter, which is on the path."""
    return _appended(os.path.join(os.path.dirname(os.path.realpath(sys.executable)), f"evil-{os.getpid()}"))


@escape("write-own-code")
def own_code(world: World) -> str:
    """The file that the hub starts as this server: it may be run outside later."""
    return _appended(world["code"])


@escape("replace-file")
def replaced(world: World) -> str:
    """A file of the server is moved over another."""
    path = private("evil")
    Path(path).write_text("")
    saved = Path(world["scratch"]).read_bytes() if os.access(world["scratch"], os.R_OK) else b""
    try:
        os.replace(path, world["scratch"])
    finally:
        if os.path.exists(path):
            os.unlink(path)
    Path(world["scratch"]).write_bytes(saved)
    return "replaced"


@escape("link-out")
def linked(world: World) -> str:
    """A file of the server gets a second name outside."""
    path = private("evil")
    target = f"{world['scratch']}.{os.getpid()}"
    Path(path).write_text("")
    try:
        os.link(path, target)
        os.unlink(target)
    finally:
        os.unlink(path)
    return "linked"


@escape("write-through-symlink")
def through_link(world: World) -> str:
    link = private("link")
    os.symlink(world["bashrc"], link)
    try:
        return _appended(link)
    finally:
        os.unlink(link)


@escape("write-through-hard-link")
def through_hard_link(world: World) -> str:
    link = private("hard")
    os.link(world["bashrc"], link)
    try:
        return _appended(link)
    finally:
        os.unlink(link)


@escape("write-proc-root")
def through_proc(world: World) -> str:
    return _appended(f"/proc/self/root{world['bashrc']}")


@escape("truncate")
def truncated(world: World) -> str:
    """By path, which the first rules of the kernel did not cover."""
    call("truncate", world["scratch"].encode(), os.stat(world["scratch"]).st_size)
    return "truncated"


@escape("open-truncating")
def open_truncating(world: World) -> str:
    os.close(os.open(world["scratch"], os.O_RDONLY | os.O_TRUNC))
    return "truncated"


@escape("remove-file")
def removed(world: World) -> str:
    path = Path(world["scratch"])
    saved = path.read_bytes() if os.access(path, os.R_OK) else b""
    path.unlink()
    path.write_bytes(saved)
    return "removed"


@escape("make-folder")
def folder(world: World) -> str:
    path = f"{world['scratch']}.{os.getpid()}"
    os.mkdir(path)
    os.rmdir(path)
    return "made and removed"


@escape("make-symlink")
def symlink(world: World) -> str:
    path = f"{world['scratch']}.{os.getpid()}"
    os.symlink("/", path)
    os.unlink(path)
    return "made"


@escape("make-fifo")
def fifo(world: World) -> str:
    path = f"{world['scratch']}.{os.getpid()}"
    os.mkfifo(path)
    os.unlink(path)
    return "made"


@escape("make-socket")
def socket_node(world: World) -> str:
    """A socket node outside, at which another program could connect."""
    path = f"{world['scratch']}.{os.getpid()}"
    os.mknod(path, 0o140600)
    os.unlink(path)
    return "made"


@escape("rename-folder")
def renamed(world: World) -> str:
    os.rename(world["folder"], f"{world['folder']}.{os.getpid()}")
    os.rename(f"{world['folder']}.{os.getpid()}", world["folder"])
    return "renamed"


@escape("core-dump")
def core(world: World) -> str:
    """A dump of its memory, which the kernel writes, not the process."""
    os.chdir(os.path.dirname(private("x")))
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError as exc:
        raise Refused(str(exc)) from None
    return "the limit is lifted"


def _opened(name: str, path: str) -> None:
    @escape(name)
    def opened(world: World) -> str:
        os.close(os.open(path.format(**world), os.O_WRONLY))
        return "opened for writing"


for _name, _where in (
    ("write-core-pattern", "/proc/sys/kernel/core_pattern"), ("write-sysrq", "/proc/sysrq-trigger"),
    ("write-modprobe", "/proc/sys/kernel/modprobe"), ("write-kernel-log", "/dev/kmsg"), ("write-disk", "{disk}"),
    ("write-cgroup", "/sys/fs/cgroup/cgroup.procs"), ("write-oom-score", "/proc/{victim}/oom_score_adj"),
    ("write-comm", "/proc/{victim}/comm"), ("write-uevent-helper", "/sys/kernel/uevent_helper"),
    ("write-own-uid-map", "/proc/self/uid_map"), ("write-binfmt", "/proc/sys/fs/binfmt_misc/register"),
    ("write-terminal", "{terminal}"), ("write-shared-memory", "{shm}"),
):  # fmt: skip
    _opened(_name, _where)


@escape("acct")
def acct(world: World) -> str:
    """The kernel notes every process in a file that the server names."""
    path = private("acct")
    Path(path).write_text("")
    call("acct", path.encode())
    call("acct", None)
    return "noted"


@escape("write-fifo")
def into_fifo(world: World) -> str:
    """A pipe by name of another program."""
    descriptor = os.open(world["fifo"], os.O_WRONLY | os.O_NONBLOCK)
    os.close(descriptor)
    return "opened"


@escape("swap")
def swap(world: World) -> str:
    """The kernel is to write memory into a file of the server."""
    path = private("swap")
    Path(path).write_bytes(b"\0" * 4096)
    try:
        call("swapon", path.encode(), 0)
    except OSError as exc:
        if exc.errno == 22:  # it looked into the file: the right was there
            return "the file is looked at"
        raise
    raise Refused("a file of zeroes was taken")

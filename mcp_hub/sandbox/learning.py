"""A learning run: notes what a server uses beyond its rule.

Without the rule of files, calls with paths and connections are noted and continue, which protects nothing: only for
trusted servers. Unix sockets are still connected by the supervisor, secret places refused. A person sees the notes
before they become a rule.
"""

import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from typing import Final, Literal, Protocol

import anyio.from_thread
import msgspec

from mcp_hub.aio import ServerThread
from mcp_hub.masking import hide_head
from mcp_hub.sandbox.confinement import READ, READ_DIR, READ_FILE, WRITE_FILE, Confinement
from mcp_hub.sandbox.connector import CONTINUE, SocketConnector, SystemCall
from mcp_hub.sandbox.filters import EACCES, OBSERVED
from mcp_hub.sandbox.network.dial import HostPort, Observe
from mcp_hub.sandbox.network.interface import PROXY_URL, HostRule, Proxy, Refusals
from mcp_hub.sandbox.places import is_inside, secret_of, usual_path, why_closed
from mcp_hub.sandbox.rules import Subject

PATHS: Final = 4096
"""Paths noted; later ones are counted."""
TARGETS: Final = 256
"""Secret places, sockets, hosts and addresses noted, each."""
_LONGEST_PATH: Final = 4096
_LONGEST_PROGRAM: Final = 120
_PAGE: Final = 4096
_HERE: Final = -100
"""AT_FDCWD."""
_PROXY_PLACE: Final = (PROXY_URL.rpartition(":")[0].rpartition("/")[2], int(PROXY_URL.rpartition(":")[2]))
_O_PATH, _O_TMPFILE, _O_ACCMODE = 0o10000000, 0o20200000, 0o3
_TERMINALS: Final = ("/dev/pts/", "/dev/tty", "/dev/vc", "/dev/console")
"""There a server could change the proposal that the user sees."""
_Making = Literal["makes", "removes", "replaces"]
_Entry = tuple[int | None, int, _Making]
_CHANGED: Final[Mapping[str, tuple[_Entry, ...]]] = {
    **dict.fromkeys("mkdir mknod".split(), ((None, 0, "makes"),)),
    **dict.fromkeys("mkdirat mknodat".split(), ((0, 1, "makes"),)),
    **{"symlink": ((None, 1, "makes"),), "symlinkat": ((1, 2, "makes"),)},
    **dict.fromkeys(("rmdir", "unlink"), ((None, 0, "removes"),)),
    **{"unlinkat": ((0, 1, "removes"),), "rename": ((None, 0, "removes"), (None, 1, "replaces"))},
    **dict.fromkeys(("renameat", "renameat2"), ((0, 1, "removes"), (2, 3, "replaces"))),
    **{"link": ((None, 0, "removes"), (None, 1, "makes")), "linkat": ((0, 1, "removes"), (2, 3, "makes"))},
}
"""Calls that change folders: arguments of base descriptor and path."""
_OPENED: Final[Mapping[str, tuple[int | None, int]]] = {
    **{"open": (None, 0), "creat": (None, 0), "truncate": (None, 0), "openat": (0, 1), "openat2": (0, 1)},
    **{"execve": (None, 0), "execveat": (0, 1)},
}
"""Calls about one file."""


class _AnyHost(HostRule, frozen=True):
    """A rule for every host and port, for a learning run."""

    def matches(self, host: str, port: int) -> bool:
        return True


class Sighting(msgspec.Struct):
    """Uses of a path that the rule refuses, and the first program."""

    path: str
    program: str
    is_folder: bool = False
    count: int = 1


class _Missed(msgspec.Struct):
    """Uses `beyond` bounds, and unreadable calls (`unseen`)."""

    beyond: int = 0
    unseen: int = 0


class _MakeProxy(Protocol):
    def __call__(self, *, observe: Observe) -> Proxy: ...


class Learning:
    """Bounded notes of one server's uses. `subject` and `confinement` are the latest start's."""

    def __init__(self, make_proxy: _MakeProxy) -> None:
        self._make_proxy = make_proxy
        self.subject: Subject | None = None
        self.confinement: Confinement | None = None
        self.reads: dict[str, Sighting] = {}
        self.writes: dict[str, Sighting] = {}
        self.secrets: dict[str, Sighting] = {}
        self.sockets: dict[str, Sighting] = {}
        self.hosts: dict[str, HostPort] = {}
        self.addresses: dict[str, str] = {}
        self.missed = _Missed()

    def begin(self, subject: Subject, confinement: Confinement) -> Confinement:
        """The confinement of a learning start."""
        self.subject, self.confinement = subject, confinement
        return msgspec.structs.replace(confinement, learns=True)

    def proxy(self) -> Proxy:
        """A proxy that notes each host."""
        return self._make_proxy(observe=self._note_host)

    def connector(
        self, listener: int, server: str, confinement: Confinement, proxy: Proxy | None, refusals: Refusals,
        thread: ServerThread | None = None,
    ) -> "_LearningConnector":  # fmt: skip
        """Serves one start's notifications."""
        assert self.subject is not None
        judge = _Judge(self.subject, confinement)
        open_hosts = msgspec.structs.replace(confinement, hosts=(_AnyHost("*"),))
        return _LearningConnector(
            learning=self, judge=judge, listener=listener, server=server, confinement=open_hosts, proxy=proxy,
            refusals=refusals, thread=thread,
        )  # fmt: skip

    def note(self, table: dict[str, Sighting], path: str, program: Callable[[], str], *, is_folder: bool) -> None:
        if (sighting := table.get(path)) is not None:
            sighting.count += 1
            sighting.is_folder = sighting.is_folder or is_folder
        elif len(table) >= (PATHS if table is self.reads or table is self.writes else TARGETS):
            self.missed.beyond += 1
        else:
            table[path] = Sighting(path, program(), is_folder)

    def note_address(self, text: str, program: Callable[[], str]) -> None:
        """Notes an address reached without the proxy."""
        if text not in self.addresses and len(self.addresses) >= TARGETS:
            self.missed.beyond += 1
        else:
            self.addresses.setdefault(text, program())

    def _note_host(self, target: HostPort, address: str | None) -> None:
        rules = self.confinement.hosts if self.confinement is not None else ()
        matching = [rule for rule in rules if rule.matches(target.host, target.port)]
        entries = [] if matching else [target.entry]
        if address is not None and not any(rule.is_private for rule in matching):
            entries.append(address)
        for entry in entries:
            if entry not in self.hosts and len(self.hosts) >= TARGETS:
                self.missed.beyond += 1
            else:
                self.hosts.setdefault(entry, target)


class _Use(msgspec.Struct, frozen=True):
    """A call's use of a path, and what a rule must open."""

    path: str
    opened: str
    access: int
    is_folder: bool


class _Judge:
    """Compares uses with the rule."""

    def __init__(self, subject: Subject, confinement: Confinement) -> None:
        self._confinement = confinement
        self._home = os.path.realpath(subject.around.home)
        self._hub = [os.path.realpath(folder) for folder in subject.around.hub]
        self._config = os.path.realpath(subject.around.config) if subject.around.config else None

    def allows(self, use: _Use) -> bool:
        return self._confinement.allows(use.opened, use.access) is not None

    def is_secret(self, path: str) -> bool:
        """Whether it is in a secret place or the hub's."""
        if path == self._config or any(is_inside(path, folder) for folder in self._hub):
            return True
        if is_inside(path, "/etc") or path.startswith(_TERMINALS):
            return True  # the usual rule opens what is not secret there
        secret = secret_of(path, self._home)
        return secret is not None and is_inside(usual_path(path, self._home).lower(), secret.lower())


class _LearningConnector(SocketConnector):
    """Answers a learning process, in the server's thread."""

    rate = 50_000.0
    calls_per_turn = 64
    is_aside = True

    def __init__(
        self, learning: Learning, judge: _Judge, listener: int, server: str, confinement: Confinement,
        proxy: Proxy | None, refusals: Refusals, thread: ServerThread | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            listener=listener, server=server, confinement=confinement, proxy=proxy, refusals=refusals, thread=thread
        )
        self._learning = learning
        self._judge = judge
        self._names = {number: name for name, number in OBSERVED[confinement.machine].items()}

    def hand_over(self, proxy: Proxy, far: socket.socket) -> None:
        anyio.from_thread.run_sync(super().hand_over, proxy, far)

    def outcome(self, call: SystemCall) -> tuple[int, int]:
        name = self._names.get(call.number)
        if name is not None:
            self._note_paths(call, name)
            return 0, CONTINUE
        if call.number == self.connect_number and call.inode() not in self.halves:
            return self._to_internet(call)
        return super().outcome(call)

    def _note_paths(self, call: SystemCall, name: str) -> None:
        """Raises `OSError` for secret places."""
        try:
            uses = list(_uses(call, name))
        except (OSError, ValueError):  # the process is gone, or hides its memory
            self._learning.missed.unseen += 1
            return
        for use in uses:
            if self._judge.allows(use) or _is_byte_code(use):
                continue
            learning = self._learning
            if self._judge.is_secret(use.path):
                learning.note(learning.secrets, use.path, call_program(call), is_folder=use.is_folder)
                raise OSError(EACCES, "a secret place")
            table = learning.writes if use.access & WRITE_FILE else learning.reads
            learning.note(table, use.opened, call_program(call), is_folder=use.is_folder)

    def _to_internet(self, call: SystemCall) -> tuple[int, int]:
        address = _internet_address(call.address())
        if address is None:
            return 0, CONTINUE
        if self.proxy is not None and address == _PROXY_PLACE:
            self.reconnect(call)
            return 0, 0
        if call.is_stream():
            host = f"[{address[0]}]" if ":" in address[0] else address[0]
            self._learning.note_address(f"{host}:{address[1]}", call_program(call))
        return 0, CONTINUE

    def connected_to(self, path: str, call: SystemCall) -> socket.socket:
        """A connection to any Unix socket that may be listed. Raises `OSError`."""
        real = os.path.realpath(_absolute(call, path, _HERE)) if path else ""
        learning = self._learning
        if not real or not _is_socket(real):
            raise OSError(EACCES, "not a socket with a path")
        self._check_socket(real, call)
        connection, bound = self.connection_to(real)
        try:
            self._check_socket(bound, call)
        except OSError:
            connection.close()
            raise
        if real not in self.sockets:
            learning.note(learning.sockets, real, call_program(call), is_folder=False)
        return connection

    def _check_socket(self, path: str, call: SystemCall) -> None:
        if why_closed(path) is not None or self._judge.is_secret(path):
            learning = self._learning
            learning.note(learning.secrets, path, call_program(call), is_folder=False)
            raise OSError(EACCES, "a closed socket")


def _is_byte_code(use: _Use) -> bool:
    """Whether it is Python's byte code: a rule for it would open the source beside it."""
    return use.access == WRITE_FILE and "__pycache__" in use.path.split("/")


def call_program(call: SystemCall) -> Callable[[], str]:
    """The command line behind a call, cut and masked."""

    def program() -> str:
        with suppress(OSError):
            with open(f"/proc/{call.pid}/cmdline", "rb") as file:
                words = file.read(4 * _LONGEST_PROGRAM).rstrip(b"\0").replace(b"\0", b" ")
            return hide_head(words, _LONGEST_PROGRAM)
        return ""

    return program


def _uses(call: SystemCall, name: str) -> Iterator[_Use]:
    """Paths that a call uses or makes. Raises `OSError`."""
    if name in _CHANGED:
        for base, index, making in _CHANGED[name]:
            yield from _changed(_path(call, base, index), making)
        return
    path = _path(call, *_OPENED[name])
    if name.startswith("exec"):
        real = os.path.realpath(path)
        if os.path.isfile(real) and os.access(real, os.X_OK):
            yield _Use(real, real, READ & ~READ_DIR, is_folder=False)
        return
    yield from _opened(path, _flags(call, name))


def _opened(path: str, flags: int) -> Iterator[_Use]:
    if flags & _O_PATH:
        return
    follows = not flags & getattr(os, "O_NOFOLLOW", 0) and flags & (os.O_CREAT | os.O_EXCL) != os.O_CREAT | os.O_EXCL
    real = os.path.realpath(path) if follows else _without_last_link(path)
    mode = flags & _O_ACCMODE
    writes = mode != os.O_RDONLY or bool(flags & os.O_TRUNC)
    try:
        status = os.lstat(real)
    except OSError:
        if flags & os.O_CREAT:
            yield from _changed(real, "makes")
        return
    is_folder = stat.S_ISDIR(status.st_mode)
    if is_folder and writes and flags & _O_TMPFILE != _O_TMPFILE:
        return
    if mode != os.O_WRONLY and os.access(real, os.R_OK):
        yield _Use(real, real, READ_DIR if is_folder else READ_FILE, is_folder)
    if writes and os.access(real, os.W_OK):
        yield _Use(real, real, WRITE_FILE, is_folder)


def _changed(path: str, making: _Making) -> Iterator[_Use]:
    """The folder that a new or removed entry changes, unless the call fails."""
    real = _without_last_link(path)
    folder = os.path.dirname(real)
    fails = making != "replaces" and os.path.lexists(real) == (making == "makes")
    if not fails and os.path.isdir(folder) and os.access(folder, os.W_OK):
        yield _Use(real, folder, WRITE_FILE, is_folder=True)


def _without_last_link(path: str) -> str:
    folder, name = os.path.split(path.rstrip("/") or "/")
    return os.path.join(os.path.realpath(folder), name) if name not in ("", ".", "..") else os.path.realpath(path)


def _flags(call: SystemCall, name: str) -> int:
    if name == "creat":
        return os.O_CREAT | os.O_WRONLY | os.O_TRUNC
    if name == "truncate":
        return os.O_WRONLY
    if name == "openat2":
        return int.from_bytes(call.memory(call.arguments[2], 8), sys.byteorder)
    return int(call.arguments[1 if name == "open" else 2]) & 0xFFFFFFFF


def _path(call: SystemCall, base: int | None, index: int) -> str:
    """An argument's absolute path. Raises `OSError`, `ValueError`."""
    start, text = call.arguments[index], b""
    while b"\0" not in text:
        if len(text) >= _LONGEST_PATH:
            raise ValueError("a path without an end")
        part = call.memory(start + len(text), _PAGE - (start + len(text)) % _PAGE)
        if not part:
            raise OSError(EACCES, "unreadable")
        text += part
    descriptor = _HERE if base is None else int(call.arguments[base]) & 0xFFFFFFFF
    return _absolute(call, os.fsdecode(text.partition(b"\0")[0]), descriptor)


def _absolute(call: SystemCall, path: str, descriptor: int) -> str:
    """A path from the process's point of view."""
    process = f"/proc/{call.pid}"
    if not path.startswith("/"):
        is_here = descriptor in (_HERE, _HERE & 0xFFFFFFFF)
        path = os.path.join(os.readlink(f"{process}/cwd" if is_here else f"{process}/fd/{descriptor}"), path)
    for alias in ("/proc/self", "/proc/thread-self", "/dev/fd"):
        if is_inside(path, alias):
            return (f"{process}/fd" if alias == "/dev/fd" else process) + path[len(alias) :]
    return path


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _internet_address(data: bytes) -> tuple[str, int] | None:
    family, port = int.from_bytes(data[:2], sys.byteorder), int.from_bytes(data[2:4])
    if family == socket.AF_INET and len(data) >= 8:
        return str(ip_address(data[4:8])), port
    if family == socket.AF_INET6 and len(data) >= 24:
        address = ip_address(data[8:24])
        return str(getattr(address, "ipv4_mapped", None) or address), port
    return None

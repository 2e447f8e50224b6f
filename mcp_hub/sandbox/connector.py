"""Answers the `connect` calls of a sandboxed process, handed over as seccomp notifications.

The process never executes them. The connector replaces its descriptor by an end of a connection to the proxy, or to an
allowed Unix socket. The address in the process's memory only chooses between allowed sockets. A `socket` call for a
Unix socket gets half of a closed pair, to be replaced later.

Calls beyond 100 a second wait in the kernel; all fail when the hub ends.
"""

import ctypes
import os
import select
import socket
import struct
import sys
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Final

import anyio

from mcp_hub.aio import ServerThread
from mcp_hub.clock import Clock, SystemClock
from mcp_hub.logs import get_logger
from mcp_hub.sandbox.confinement import WRITE_FILE, Confinement
from mcp_hub.sandbox.filters import AF_UNIX, ARCHITECTURES, EACCES
from mcp_hub.sandbox.network.interface import Proxy, Refusals, loopback_pair
from mcp_hub.sandbox.places import why_closed

with suppress(ImportError):  # Windows
    import fcntl

log = get_logger(__name__)

_RECEIVE, _SEND, _IS_VALID, _ADD = 0xC0502100, 0xC0182101, 0x40082102, 0x40182103
"""Requests of seccomp_unotify(2)."""
_NOTIFICATION: Final = struct.Struct("=QIIiIQ6Q")
_RESPONSE: Final = struct.Struct("=QqiI")
_DESCRIPTOR: Final = struct.Struct("=QIIII")
_PIDFD_GETFD: Final = 438
CONTINUE: Final = 1
_OVER: Final = 1
"""Flags: the kernel executes the call; the descriptor replaces one."""
_ENOENT, _EBADF, _ENOTSOCK, _EISCONN, _ECONNREFUSED = 2, 9, 88, 106, 111
RATE: Final = 100.0
"""Calls a second."""
_CONNECTED: Final = 4096
"""Latest sockets remembered per process."""
_LONGEST_ADDRESS: Final = 110
_CALLS_PER_TURN: Final = 8
_LOOKING: Final = 5.0
"""Seconds for looking at paths, before other calls are answered."""


class SystemCall:
    """A system call that waits for its answer."""

    def __init__(self, data: bytes) -> None:
        self.id, self.pid, _, self.number, _, _, *self.arguments = _NOTIFICATION.unpack(data)

    @property
    def descriptor(self) -> int:
        return int(self.arguments[0]) & 0xFFFFFFFF

    def inode(self) -> int:
        """Identifies the socket. Raises `OSError` with the process's error number."""
        try:
            target = os.readlink(f"/proc/{self.pid}/fd/{self.descriptor}")
        except FileNotFoundError:
            raise OSError(_EBADF, "no descriptor") from None
        if not target.startswith("socket:["):
            raise OSError(_ENOTSOCK, "not a socket")
        return int(target[8:-1])

    def flags(self) -> int:
        """The descriptor's flags."""
        with open(f"/proc/{self.pid}/fdinfo/{self.descriptor}") as file:
            for line in file:
                if line.startswith("flags:"):
                    return int(line.split()[1], 8)
        raise OSError(_EBADF, "no flags")

    def memory(self, address: int, size: int) -> bytes:
        """Bytes of the process, maybe fewer, which may change. Raises `OSError`."""
        if sys.platform == "win32":
            raise NotImplementedError
        memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(memory, size, address)
        finally:
            os.close(memory)

    def address(self) -> bytes:
        return self.memory(self.arguments[1], min(self.arguments[2] & 0xFFFFFFFF, _LONGEST_ADDRESS))

    def unix_path(self) -> str:
        """The address's path, or empty; it may change."""
        address = self.address()
        is_unix = int.from_bytes(address[:2], sys.byteorder) == AF_UNIX
        return os.fsdecode(address[2:].partition(b"\0")[0]) if is_unix else ""

    def is_stream(self) -> bool:
        """Whether it is TCP; a UDP `connect` sends nothing."""
        if sys.platform != "linux":
            raise NotImplementedError
        try:
            with open(f"/proc/{self.pid}/status") as file:
                group = next(int(line.split()[1]) for line in file if line.startswith("Tgid:"))
            process = os.pidfd_open(group)
            try:
                copy = ctypes.CDLL(None).syscall(_PIDFD_GETFD, process, self.descriptor, 0)
            finally:
                os.close(process)
            if copy < 0:
                return True
            with socket.socket(fileno=copy) as end:
                return end.type == socket.SOCK_STREAM
        except (OSError, StopIteration):
            return True


class _CallRate:
    """A token bucket of `rate` calls a second."""

    def __init__(self, clock: Clock, rate: float = RATE) -> None:
        self._clock = clock
        self._rate = rate
        self._tokens, self._filled = rate, clock.now()

    def pause(self) -> float:
        """Seconds until the next token."""
        time = self._clock.now()
        self._tokens = min(self._rate, self._tokens + (time - self._filled) * self._rate)
        self._filled = time
        return 0.0 if self._tokens >= 1 else (1 - self._tokens) / self._rate

    def take(self) -> bool:
        has_token = self.pause() == 0
        self._tokens -= has_token
        return has_token


class _Listener:
    """Notifications' descriptor, and the server's thread."""

    def __init__(self, number: int, thread: ServerThread) -> None:
        self.number = number
        self._thread = thread
        self._in_use = Lock()
        self._is_over = False

    def answer(self, call: SystemCall, error: int, value: int = 0, flags: int = 0) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        with suppress(OSError):
            fcntl.ioctl(self.number, _SEND, _RESPONSE.pack(call.id, value, error, flags))

    async def aside(self, works: Sequence[Callable[[], None]]) -> bool:
        """Works in the thread; whether any began within 5 s."""
        begun: list[Callable[[], None]] = []
        with anyio.move_on_after(_LOOKING):
            await self._thread.run(partial(self._do, works, begun))
        return bool(begun)

    def _do(self, works: Sequence[Callable[[], None]], begun: list[Callable[[], None]]) -> None:
        with self._in_use:
            for work in works:
                begun.append(work)
                if not self._is_over:
                    work()
        if self._is_over:
            self.close()

    def close(self) -> None:
        """Closes the descriptor, once unused. Idempotent."""
        self._is_over = True
        if self._in_use.acquire(blocking=False):
            try:
                if self.number >= 0:
                    os.close(self.number)
                    self.number = -1
            finally:
                self._in_use.release()


class SocketConnector:
    """Serves the notifications of a process and its children. Owns `listener`.

    `calls_per_turn` are answered between other tasks. Calls about files use `thread`; while one hangs, others wait up
    to 5 s, and later ones about files are refused.
    """

    rate = RATE
    calls_per_turn = _CALLS_PER_TURN
    is_aside = False
    """Whether all calls are answered in the thread."""

    def __init__(
        self,
        listener: int,
        server: str,
        confinement: Confinement,
        proxy: Proxy | None,
        refusals: Refusals,
        clock: Clock | None = None,
        thread: ServerThread | None = None,
    ) -> None:
        self._listener = _Listener(listener, thread or ServerThread())
        self._server = server
        self._confinement = confinement
        self.proxy = proxy
        self._refusals = refusals
        self.sockets = frozenset(confinement.sockets)
        self.connect_number = ARCHITECTURES[confinement.machine].numbers["connect"]
        self._connected: OrderedDict[int, None] = OrderedDict()
        self.halves: OrderedDict[int, None] = OrderedDict()
        self._rate = _CallRate(clock or SystemClock(), self.rate)

    async def run(self) -> None:
        """Serves until the last process ends."""
        try:
            while True:
                await anyio.wait_readable(self._listener.number)
                slow: list[SystemCall] = []
                is_open = self._serve_some(slow)
                if slow and not await self._listener.aside([partial(self._answer, call) for call in slow]):
                    log.warning("sandbox_path_slow", upstream=self._server)
                    for call in slow:
                        self._listener.answer(call, -EACCES)
                if not is_open:
                    return
                await anyio.sleep(self._rate.pause())
        finally:
            self._listener.close()

    def _serve_some(self, slow: list[SystemCall]) -> bool:
        """Answers calls, or adds them to `slow`; False without a process."""
        if sys.platform == "win32":
            raise NotImplementedError
        waiting, listener = select.poll(), self._listener.number
        waiting.register(listener, select.POLLIN)
        for _ in range(self.calls_per_turn):
            events = dict(waiting.poll(0)).get(listener, 0)
            if not events & select.POLLIN:
                return not events & (select.POLLHUP | select.POLLERR | select.POLLNVAL)
            if not self._rate.take():
                return True
            data = bytearray(_NOTIFICATION.size)
            try:
                fcntl.ioctl(listener, _RECEIVE, data)
            except OSError:
                continue  # the process was killed or interrupted meanwhile
            call = SystemCall(bytes(data))
            if self._looks_at_files(call):
                slow.append(call)
            else:
                self._answer(call)
        return True

    def _looks_at_files(self, call: SystemCall) -> bool:
        if self.is_aside:
            return True
        with suppress(OSError):
            return bool(self.halves) and call.number == self.connect_number and call.inode() in self.halves
        return False

    def _answer(self, call: SystemCall) -> None:
        error, value, flags = 0, 0, 0
        try:
            value, flags = self.outcome(call)
        except OSError as problem:
            error = problem.errno or EACCES
        except Exception:
            log.exception("sandbox_call_failed", upstream=self._server)
            error = EACCES
        self._listener.answer(call, -error, value, flags)

    def outcome(self, call: SystemCall) -> tuple[int, int]:
        """The call's result and flags of the answer. Raises `OSError` with the process's error number."""
        if call.number != self.connect_number:
            return self._half(call), 0
        if self._is_continued(call):
            return 0, CONTINUE
        self.reconnect(call)
        return 0, 0

    def _is_continued(self, call: SystemCall) -> bool:
        return self._confinement.net == "any" and call.inode() not in self.halves

    def reconnect(self, call: SystemCall) -> None:
        """Replaces the call's socket. Raises `OSError` with the process's error number."""
        inode, flags = call.inode(), call.flags()
        if inode in self._connected:
            raise OSError(_EISCONN, "connected already")
        if inode in self.halves:
            self._put(call, self.connected_to(call.unix_path(), call), flags)
            return
        if self.proxy is None or self._confinement.net != "hosts":
            raise OSError(EACCES, "no way out")
        try:
            near, far = loopback_pair()
        except OSError as problem:
            log.warning("sandbox_connect_failed", upstream=self._server, reason=str(problem))
            raise OSError(_ECONNREFUSED, "no connection") from None
        try:
            self._put(call, near, flags)
            self.hand_over(self.proxy, far)
        except BaseException:
            far.close()
            raise

    def hand_over(self, proxy: Proxy, far: socket.socket) -> None:
        proxy.serve(far, self._server, self._confinement.hosts, self._refusals)

    def connected_to(self, path: str, call: SystemCall) -> socket.socket:
        """A connection to an allowed Unix socket. Raises `OSError`."""
        real = os.path.realpath(path) if path else ""
        if real not in self.sockets:
            reason = why_closed(path) if path else "its address is not a path"
            if reason is None and self._confinement.allows(os.path.dirname(real), WRITE_FILE) is not None:
                reason = "the server may write there, and put another one in its place"
            entry = path if reason is None and os.path.isabs(path) else ""
            self._refusals.note(
                "socket", path or "(abstract)", reason or "it is not among the sockets of the rule", entry
            )
            raise OSError(EACCES, "not listed")
        connection, bound = self.connection_to(real)
        if (reason := why_closed(bound)) is not None:
            connection.close()
            self._refusals.note("socket", path, reason)
            raise OSError(EACCES, "a closed socket")
        return connection

    def connection_to(self, path: str) -> tuple[socket.socket, str]:
        """A connection to the Unix socket at a real path, and the path that its listener has bound. Raises `OSError`.

        Judge the bound path: the other may lead elsewhere meanwhile.
        """
        connection = socket.socket(AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.setblocking(False)  # a listener without room must not stop the hub
            connection.connect(path)
        except OSError as problem:
            connection.close()
            raise OSError(problem.errno or _ECONNREFUSED, "not connected") from None
        bound = connection.getpeername()
        return connection, bound if isinstance(bound, str) else os.fsdecode(bound)

    def _put(self, call: SystemCall, connection: socket.socket, flags: int) -> None:
        if sys.platform == "win32":
            raise NotImplementedError
        with connection:
            connection.setblocking(not flags & os.O_NONBLOCK)
            inode = os.fstat(connection.fileno()).st_ino
            self._add(call, connection, _OVER, call.descriptor, flags & os.O_CLOEXEC)
        _remember(self._connected, inode)

    def _half(self, call: SystemCall) -> int:
        """The descriptor of a Unix socket that can only be replaced."""
        if sys.platform != "linux":
            raise NotImplementedError
        kind = call.arguments[1] & 0xFFFFFFFF
        if kind & 0xF != socket.SOCK_STREAM:
            raise OSError(EACCES, "only streams")
        half, gone = socket.socketpair()
        gone.close()
        with half:
            half.setblocking(not kind & socket.SOCK_NONBLOCK)
            number = self._add(call, half, 0, 0, os.O_CLOEXEC if kind & socket.SOCK_CLOEXEC else 0)
            _remember(self.halves, os.fstat(half.fileno()).st_ino)
        return number

    def _add(self, call: SystemCall, connection: socket.socket, flags: int, number: int, new_flags: int) -> int:
        if sys.platform == "win32":
            raise NotImplementedError
        fcntl.ioctl(self._listener.number, _IS_VALID, struct.pack("=Q", call.id))
        addition = bytearray(_DESCRIPTOR.pack(call.id, flags, connection.fileno(), number, new_flags))
        return int(fcntl.ioctl(self._listener.number, _ADD, addition))


def _remember(inodes: OrderedDict[int, None], inode: int) -> None:
    inodes[inode] = None
    while len(inodes) > _CONNECTED:
        inodes.popitem(last=False)

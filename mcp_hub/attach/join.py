"""Joins a folder's hub: connect, exchange hellos, hand over two pipes, start a hub if none holds the lock.

A slow hub is waited for `PATIENCE` seconds, never replaced. Pipes cost less than a socket.
"""

import os
import sys
import time

from mcp_hub.attach import hello
from mcp_hub.attach.folder import SOCKET, Untrusted, check_peer, check_socket, is_alive, take_start
from mcp_hub.attach.hello import BUILD, NEWEST, OLDEST
from mcp_hub.attach.system import set_blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable, Mapping


_FILE = 4
"""Bytes of a file's number in a message."""
PATIENCE = 15.0
_LOOK = 0.02


class HubPipes:
    """Our non-blocking ends; -1: closed. `fields`: the hub's hello."""

    __slots__ = ("_socket", "fields", "read", "write")

    def __init__(self, read: int, write: int, socket: "_socket.socket | None" = None) -> None:
        self.read = read
        self.write = write
        self.fields: dict[str, str] = {}
        self._socket = socket
        set_blocking(read, False)
        set_blocking(write, False)

    def end(self) -> None:
        """Closes the writing end."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self) -> None:
        """Closes both ends and the socket."""
        self.end()
        os.close(self.read)
        if self._socket is not None:
            self._socket.close()


def piped(socket: "_socket.socket | None" = None) -> tuple[HubPipes, tuple[int, int]]:
    """New pipes: our ends, and the hub's. `socket` lives as long as they do."""
    (theirs_read, ours_write), (ours_read, theirs_write) = os.pipe(), os.pipe()
    return HubPipes(ours_read, ours_write, socket), (theirs_read, theirs_write)


def handed(socket: "_socket.socket") -> HubPipes:
    """New pipes, whose other ends `socket` took to the hub. Raises `OSError`."""
    if sys.platform == "win32":
        raise NotImplementedError
    import _socket

    ours, theirs = piped(socket)
    files = b"".join(file.to_bytes(_FILE, sys.byteorder) for file in theirs)
    try:
        socket.sendmsg([b"\0"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
    except OSError:
        ours.close()
        raise
    finally:
        for file in theirs:
            os.close(file)
    return ours


class NotJoined(Exception):
    """No hub could be joined. `is_older`: one of an older build is in use and does not retire."""

    def __init__(self, reason: str, *, is_older: bool = False) -> None:
        super().__init__(reason)
        self.is_older = is_older


def join(
    folder: str, hello: "Mapping[str, str]", start: "Callable[[float], None]", patience: float = PATIENCE
) -> HubPipes:
    """Joins the folder's hub, which `start` starts if needed. Raises `NotJoined`, and what `start` raises."""
    until = time.monotonic() + patience
    has_retired = False
    try:
        while True:
            greeted = _greeted(folder, {**hello, "final": "1"} if has_retired else hello, until)
            if greeted is not None:
                connection, fields = greeted
                if fields.get("status") != "ok":
                    connection.close()
                    has_retired = _retires(fields)
                elif (pipes := _handed(connection)) is not None:
                    pipes.fields = fields
                    return pipes
            if time.monotonic() >= until:
                raise NotJoined(f"the background hub did not answer within {patience:g} s")
            if greeted is not None or is_alive(folder) or not _started(folder, start, until):
                time.sleep(_LOOK)
    except (OSError, Untrusted, ValueError) as problem:
        raise NotJoined(str(problem)) from None


def ensure(folder: str, start: "Callable[[float], None]", patience: float = PATIENCE) -> None:
    """Returns once the folder's hub runs. Raises `NotJoined`."""
    until = time.monotonic() + patience
    try:
        while not is_alive(folder) and not _started(folder, start, until):
            if time.monotonic() >= until:
                raise NotJoined(f"the background hub did not start within {patience:g} s")
            time.sleep(_LOOK)
    except (OSError, Untrusted, ValueError) as problem:
        raise NotJoined(str(problem)) from None


def request(folder: str, wants: str, patience: float = PATIENCE) -> dict[str, str]:
    """Sends `stop` or `dashboard`. Raises `NotJoined`."""
    try:
        greeted = _greeted(folder, {"wants": wants}, time.monotonic() + patience)
    except (OSError, Untrusted, ValueError) as problem:
        raise NotJoined(str(problem)) from None
    if greeted is None:
        raise NotJoined("nobody listens")
    connection, fields = greeted
    connection.close()
    if fields.get("status") != "ok":
        raise NotJoined(fields.get("why") or "it refused")
    return fields


def _handed(connection: "_socket.socket") -> "HubPipes | None":
    try:
        return handed(connection)
    except ConnectionError:
        connection.close()
        return None


def _retires(fields: "Mapping[str, str]") -> bool:
    if fields.get("status") == "busy" and "build" in fields:
        raise NotJoined(fields.get("why") or "an older hub is in use", is_older=True)
    if fields.get("status") != "retire":
        raise NotJoined(fields.get("why") or "the background hub refused this client")
    return True


def _started(folder: str, start: "Callable[[float], None]", until: float) -> bool:
    lock = take_start(folder)
    if lock is None:
        return False
    try:
        if is_alive(folder):  # started meanwhile by the one who had this lock
            return False
        start(until)
        return True
    finally:
        os.close(lock)


def _greeted(folder: str, said: "Mapping[str, str]", until: float) -> "tuple[_socket.socket, dict[str, str]] | None":
    """The hub's hello; None if nobody listens."""
    if sys.platform == "win32":
        raise NotImplementedError
    import _socket  # the module `socket` loads `selectors` and `enum`, which takes longer than all the rest

    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    path = os.path.join(folder, SOCKET)
    try:
        check_socket(path)
        connection.settimeout(max(until - time.monotonic(), 0.1))
        connection.connect(path)
        check_peer(connection)
        build = {"build": BUILD, "oldest": str(OLDEST), "newest": str(NEWEST), "pid": str(os.getpid())}
        connection.sendall(hello.encoded({**build, **said}))
        answer = b""
        while not hello.is_whole(answer):
            portion = connection.recv(1 << 16)
            if not portion:
                raise ConnectionResetError
            answer += portion
    except TimeoutError:
        connection.close()
        raise NotJoined("the background hub does not answer") from None
    except (FileNotFoundError, ConnectionError):  # not yet there, or on its way out
        connection.close()
        return None
    except BaseException:
        connection.close()
        raise
    return connection, hello.decoded(answer)[0]

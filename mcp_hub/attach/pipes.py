"""The two pipes between a shim and its hub, which cost less than a socket."""

import os
import sys

from mcp_hub.attach.system import set_blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

_FILE = 4
"""Bytes of a file's number in a message."""


class HubPipes:
    """Our non-blocking ends. -1: closed."""

    __slots__ = ("_socket", "read", "write")

    def __init__(self, read: int, write: int, socket: "_socket.socket | None" = None) -> None:
        self.read = read
        self.write = write
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

"""The two pipes between a shim and its hub, which gets its ends of them over the socket on which it was joined.

A line takes less of both processes through a pipe than through a socket.
"""

import os
import sys

from mcp_hub.attach.system import set_blocking

TYPE_CHECKING = False
if TYPE_CHECKING:
    import _socket

_FILE = 4
"""Bytes of a file's number in a message."""


class HubPipes:
    """Our ends, which do not block: `read` what the hub writes, and the other way round. -1: closed."""

    __slots__ = ("_socket", "read", "write")

    def __init__(self, read: int, write: int, socket: "_socket.socket | None" = None) -> None:
        self.read = read
        self.write = write
        self._socket = socket
        set_blocking(read, False)
        set_blocking(write, False)

    def end(self) -> None:
        """Nothing more will be written."""
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    def close(self) -> None:
        """Closes all of it."""
        self.end()
        os.close(self.read)
        if self._socket is not None:
            self._socket.close()


def piped(socket: "_socket.socket | None" = None) -> tuple[HubPipes, tuple[int, int]]:
    """New pipes: our ends, and those that the hub reads and writes. `socket` is kept for as long as they."""
    (theirs_read, ours_write), (ours_read, theirs_write) = os.pipe(), os.pipe()
    return HubPipes(ours_read, ours_write, socket), (theirs_read, theirs_write)


def handed(socket: "_socket.socket") -> HubPipes:
    """Pipes whose other ends the hub has got over this connection. Raises `OSError`."""
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

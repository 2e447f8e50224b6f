"""One start in a sandbox: the confining program in place of the command, and what it reports."""

import marshal
import os
import re
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import anyio

from mcp_hub.attach.machine import interpreter
from mcp_hub.errors import StartFailed
from mcp_hub.sandbox.confinement import WRITE_FILE, Confinement

_PROGRAM: Final = Path(__file__).with_name("confine_program.py")
"""Read and never imported: its first lines look for functions that only Linux has."""
_MOST_BYTES: Final = 1 << 17
"""Bytes of a plan, as the program has it, too."""
_BUFFER: Final = 1 << 18
_REPORT: Final = 4096
_LOADER: Final = "LD_LIBRARY_PATH"


_BEGIN: Final = (
    "import _socket,marshal,sys;s=_socket.socket(fileno=int(sys.argv[1]));"
    f"c=s.recv({_MOST_BYTES});s.detach();exec(marshal.loads(c))"
)
"""The command of the interpreter: it receives the confining program, so that nothing is compiled at a start."""


@cache
def _code() -> bytes:
    """The confining program, compiled."""
    return marshal.dumps(compile(_PROGRAM.read_bytes(), str(_PROGRAM), "exec", optimize=2))


class StepFailed(Exception):
    """A step of the confining program that failed, so that nothing was executed; `path` where the step has one."""

    def __init__(self, step: str, number: int, path: str) -> None:
        self.step = step
        self.number = number
        self.path = path
        reason = os.strerror(number) if number else ""
        super().__init__(": ".join(filter(None, (step, path, reason))))


class Launch:
    """The program that is spawned in place of a command: `argv`, `env` and the inherited `descriptor`.

    A context manager: the hub's copy of the descriptor is closed behind the block, which spawns the process.
    Descriptors are opened by entering it, so that a launch that is never entered leaves none.
    """

    def __init__(self, confinement: Confinement, argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
        """`argv[0]` is an absolute path. Raises `OSError`."""
        self._messages = (_code(), confinement.plan(argv, env))
        self._confinement = confinement
        self._has_listener = confinement.has_listener
        self._sockets: tuple[socket.socket, ...] = ()
        if len(self._messages[1]) > _MOST_BYTES:
            raise OSError(7, "the rule has too many paths")

    @property
    def descriptor(self) -> int:
        """The end of the process."""
        return self._sockets[1].fileno()

    @property
    def descriptors(self) -> list[int]:
        """Those that the process inherits."""
        return [self.descriptor]

    @property
    def argv(self) -> list[str]:
        """The confining program. Its name in a list of processes is that of the command as soon as it runs."""
        return [interpreter() or sys.executable, "-I", "-S", "-c", _BEGIN, str(self.descriptor)]

    @property
    def env(self) -> dict[str, str]:
        """The environment of the confining program; that of the command is in the plan."""
        folders = filter(self._is_of_loader, re.split("[:;]", os.environ.get(_LOADER, "")))
        return {"LC_ALL": "C", **({_LOADER: loaded} if (loaded := ":".join(folders)) else {})}

    def _is_of_loader(self, folder: str) -> bool:
        """Not the working directory, which an empty entry means, and nothing that the server can write."""
        return os.path.isabs(folder) and self._confinement.allows(os.path.realpath(folder), WRITE_FILE) is None

    def __enter__(self) -> "Launch":
        """Raises `StartFailed`."""
        if sys.platform == "win32":
            raise NotImplementedError
        try:
            self._sockets = (near, _) = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            near.setblocking(False)
            near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            for message in self._messages:
                near.send(message)
        except OSError as problem:
            self.close()
            raise StartFailed("sandbox_unsupported", f"the sandbox cannot be made: {problem}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """Without a process there will be no report."""
        self._sockets[1].close()
        if kind is not None:
            self.close()

    async def executed(self, serve: Callable[[int], None]) -> None:
        """Returns when the command was executed.

        The descriptor of its notifications, if it has them, goes to `serve` before that: a call may have to be answered
        before the command runs. Raises `StepFailed`. Its own time limit is that of the caller.
        """
        if sys.platform == "win32":
            raise NotImplementedError
        has_served = False
        try:
            while True:
                await anyio.wait_readable(self._sockets[0])
                try:
                    message, descriptors, _, _ = socket.recv_fds(self._sockets[0], _REPORT, 1)
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    message, descriptors = b"", []
                if message == b"n" and descriptors and not has_served:
                    has_served = True
                    os.set_inheritable(descriptors[0], False)
                    serve(descriptors[0])
                    self._sockets[0].send(b"y")
                elif message.startswith(b"e"):
                    raise StepFailed(*marshal.loads(message[1:]))
                elif self._has_listener and not has_served:
                    raise StepFailed("end", 0, "the confining program ended early")
                else:
                    return
        finally:
            self.close()

    def close(self) -> None:
        """Closes both ends. Idempotent."""
        for end in self._sockets:
            with suppress(OSError):
                end.close()

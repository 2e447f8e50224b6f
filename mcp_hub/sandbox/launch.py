"""One sandboxed start: on Linux the confining program and its report, on macOS a profile for `sandbox-exec`.

Of the profile, where later rules win, only the text is tested. Hosts cannot be limited there.
"""

import marshal
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import anyio

from mcp_hub.attach.machine import interpreter
from mcp_hub.errors import StartFailed
from mcp_hub.sandbox.confinement import WRITE_FILE, Confinement

_PROGRAM: Final = Path(__file__).with_name("confine_program.py")
"""Never imported: it needs Linux."""
_MOST_BYTES: Final = 1 << 17
"""Bytes of a plan, as in the program."""
_BUFFER: Final = 1 << 18
_REPORT: Final = 4096
_LOADER: Final = "LD_LIBRARY_PATH"


_BEGIN: Final = (
    "import _socket,marshal,sys;s=_socket.socket(fileno=int(sys.argv[1]));"
    f"c=s.recv({_MOST_BYTES});s.detach();exec(marshal.loads(c))"
)
"""The interpreter's command: receives the compiled program."""


@cache
def _code() -> bytes:
    return marshal.dumps(compile(_PROGRAM.read_bytes(), str(_PROGRAM), "exec", optimize=2))


class StepFailed(Exception):
    """A step failed; nothing was executed."""

    def __init__(self, step: str, number: int, path: str) -> None:
        self.step = step
        self.number = number
        self.path = path
        reason = os.strerror(number) if number else ""
        super().__init__(": ".join(filter(None, (step, path, reason))))


class Launch:
    """The program to spawn for a command.

    A context manager around the spawn; leaving it closes the hub's copy of `descriptor`.
    """

    def __init__(self, confinement: Confinement, argv: Sequence[bytes], env: Mapping[bytes, bytes]) -> None:
        self._messages = (_code(), confinement.plan(argv, env))
        self._confinement = confinement
        self._has_listener = confinement.has_listener
        self._sockets: tuple[socket.socket, ...] = ()
        if len(self._messages[1]) > _MOST_BYTES:
            raise OSError(7, "the rule has too many paths")

    @property
    def descriptor(self) -> int:
        return self._sockets[1].fileno()

    @property
    def descriptors(self) -> list[int]:
        return [self.descriptor]

    @property
    def argv(self) -> list[str]:
        """The confining program's command line."""
        return [interpreter() or sys.executable, "-I", "-S", "-c", _BEGIN, str(self.descriptor)]

    @property
    def env(self) -> dict[str, str]:
        """The confining program's environment."""
        folders = filter(self._is_of_loader, re.split("[:;]", os.environ.get(_LOADER, "")))
        return {"LC_ALL": "C", **({_LOADER: loaded} if (loaded := ":".join(folders)) else {})}

    def _is_of_loader(self, folder: str) -> bool:
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
        self._sockets[1].close()
        if kind is not None:
            self.close()

    async def executed(self, serve: Callable[[int], None]) -> None:
        """Returns once the command is executed, without a time limit. Raises `StepFailed`.

        Before, `serve` gets the notifications' descriptor.
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


SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"
_SERVICES: Final = (
    *("com.apple.system.logger", "com.apple.logd", "com.apple.system.notification_center", "com.apple.trustd.agent"),
    *(
        "com.apple.system.opendirectoryd.libinfo",
        "com.apple.system.opendirectoryd.membership",
        "com.apple.cfprefsd.agent",
    ),
    "com.apple.bsd.dirhelper",
)
"""Mach services for the C library and TLS, without the keychain."""
_NAMES: Final = "/private/var/run/mDNSResponder"
"""The resolver's socket."""
_SECRETS: Final = ("/Library/Keychains", "/private/etc/master.passwd", "/private/etc/sudoers", "/private/etc/ssh")


def seatbelt_launch(confinement: Confinement, argv: Sequence[str], env: Mapping[str, str]) -> "AnyLaunch":
    """The program to spawn for a command on macOS."""
    return _SeatbeltLaunch(confinement, argv, env)


class _SeatbeltLaunch:
    descriptors: Sequence[int] = ()

    def __init__(self, confinement: Confinement, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self.argv = [SANDBOX_EXEC, "-p", profile(confinement), *argv]
        self.env = dict(env)

    def __enter__(self) -> "_SeatbeltLaunch":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is held."""

    def close(self) -> None:
        """Nothing is held."""

    async def executed(self, serve: Callable[[int], None]) -> None:
        """Returns at once: a bad profile ends the process with a line on stderr."""


AnyLaunch = Launch | _SeatbeltLaunch


def profile(confinement: Confinement) -> str:
    """A profile's text."""
    readable = [grant.path for grant in confinement.grants]
    writable = [grant.path for grant in confinement.grants if grant.access & WRITE_FILE]
    lines = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-info* (target same-sandbox))",
        "(allow signal (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow ipc-posix-sem)",
        "(allow file-read-metadata)",
        "(allow pseudo-tty)",
        f"(allow mach-lookup {' '.join(f'(global-name {_quoted(name)})' for name in _SERVICES)})",
        f"(allow file-read* process-exec file-map-executable {_subpaths(readable)})",
        f"(allow file-write* {_subpaths(writable)})",
        f"(deny file-read* file-write* {_subpaths(_SECRETS)})",
    ]
    if confinement.net == "any":
        lines += [
            '(allow network-outbound (remote ip "*:*"))',
            '(allow network-bind network-inbound (local ip "*:*"))',
            f"(allow network-outbound (literal {_quoted(_NAMES)}))",
        ]
    lines += [f"(allow network-outbound (literal {_quoted(path)}))" for path in confinement.sockets]
    return "\n".join(lines) + "\n"


def _subpaths(paths: Iterable[str]) -> str:
    return " ".join(f"(subpath {_quoted(path)})" for path in paths)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'

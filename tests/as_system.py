"""Runs the hub in this process as on another system, as far as its own modules can see: a start of them, not a proof.

`python -m tests.as_system win32 mcp-hub serve …`: a command; `python -m tests.as_system imports`: every module on macOS
and on Windows, each failure on a line. What is loaded before the modules of the hub, the standard library among it,
sees the real system. Modules and functions that the other system lacks are taken away, and its calls are those of a
stand-in.
"""

import _ctypes
import asyncio
import ctypes
import fcntl
import importlib
import importlib.abc
import importlib.util
import os
import pkgutil
import select
import signal
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NoReturn

import mcp_hub

PRELOADED: Final = """
    anyio anyio._backends._asyncio httpx2 pydantic starlette.applications uvicorn.server structlog msgspec yaml json5
    uvicorn.protocols.http.httptools_impl uvicorn.lifespan.on click rich.console platformdirs jwt mcp mcp.types
    prometheus_client subprocess multiprocessing sqlite3 ssl tempfile getpass webbrowser shutil socket
    """.split()
"""What the hub needs, and what that would otherwise load from the wrong system."""
OPTIONAL: Final = ("psutil", "redis.asyncio", "opentelemetry.sdk.trace.export", "textual.app", "uv", "keyring")
"""As `PRELOADED`, where they are installed."""
NOT_IMPORTED: Final = ("mcp_hub.sandbox.confine_program",)
"""Guarded modules: programs of their own, which nothing imports."""
LACKS_MODULES: Final = ("fcntl", "termios", "pwd", "grp", "resource", "tty", "pty", "uvloop", "posix")
LACKS: Final[dict[Any, list[str]]] = {
    os: """
        fork setsid getsid killpg getuid geteuid getgid getegid getpgid chown fchown mkfifo uname sysconf tcgetpgrp
        O_NOFOLLOW O_DIRECTORY O_CLOEXEC O_NONBLOCK O_NOCTTY pidfd_open waitid WNOHANG P_PID P_ALL WEXITED WNOWAIT
        """.split(),
    signal: "SIGKILL SIGHUP SIGQUIT SIGCHLD SIGUSR1 SIGUSR2 SIGALRM SIGPIPE pthread_sigmask".split(),
    select: "poll epoll kqueue kevent".split(),
    asyncio.SelectorEventLoop: "add_signal_handler connect_read_pipe connect_write_pipe".split(),
}
"""What Windows does not have; the methods of the event loop exist there and raise `NotImplementedError`."""
LINUX_CALLS: Final = ("pidfd_open", "O_PATH", "O_TMPFILE", "memfd_create", "sched_getaffinity", "getrandom")
LINUX_FUNCTIONS: Final = ("prctl", "capget", "capset")
USER: Final = "S-1-5-21-1-2-3-1001"


class Library:
    """A DLL whose functions do nothing and succeed."""

    def __init__(self, name: str, **options: object) -> None:
        self.name = name

    def __getattr__(self, name: str) -> Any:
        function = types.SimpleNamespace()
        setattr(self, name, function)
        return function


class WindowsCalls:
    """The calls of Windows (`mcp_hub.windows.Calls`) by those of this system."""

    def __init__(self) -> None:
        self._flock = fcntl.flock

    def lock(self, file: int, flags: int, offset: int) -> int:
        try:
            self._flock(file, (fcntl.LOCK_EX if flags & 2 else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return 33
        return 0

    def descriptor(self, path: str) -> str:
        """Of a private file."""
        return f"O:{USER}D:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;{USER})"

    def user(self) -> str:
        return USER


class _Lacking(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None) -> None:
        if name in LACKS_MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def _refused(*arguments: object, **options: object) -> NoReturn:
    raise NotImplementedError


def become(system: str) -> None:
    """From now on modules see that system. Nothing of the hub but its package may be loaded."""
    for name in PRELOADED:
        importlib.import_module(name)
    for name in OPTIONAL:
        if importlib.util.find_spec(name.partition(".")[0]) is not None:
            importlib.import_module(name)
    if system == "win32":
        _become_windows()
    else:
        for name in LINUX_CALLS:
            vars(os).pop(name, None)
        _ctypes.dlsym = _without_linux(_ctypes.dlsym)
    sys.platform = system


def _without_linux(dlsym: Callable[[int, str], int]) -> Callable[[int, str], int]:
    def found(library: int, name: str) -> int:
        if name in LINUX_FUNCTIONS:
            raise OSError(f"{name}: symbol not found")
        return dlsym(library, name)

    return found


def _become_windows() -> None:
    windows = importlib.import_module("mcp_hub.windows")
    windows.Kernel = WindowsCalls  # type: ignore[attr-defined]
    signal.SIGBREAK = signal.SIGQUIT  # type: ignore[attr-defined]
    for owner, names in LACKS.items():
        for name in names:
            if owner is asyncio.SelectorEventLoop:
                setattr(owner, name, _refused)
            else:
                vars(owner).pop(name, None)
    for name in LACKS_MODULES:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Lacking())


def modules() -> Iterator[str]:
    """The names of all modules of the hub."""
    return (module.name for module in pkgutil.walk_packages(mcp_hub.__path__, "mcp_hub."))


def import_all(system: str) -> None:
    """Imports every module of the hub anew, `mcp_hub.windows` with libraries that do nothing."""
    become(system)
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp_hub"]:
        del sys.modules[name]
    sys.modules["msvcrt"] = types.ModuleType("msvcrt")
    ctypes.WinDLL = Library  # type: ignore[attr-defined]
    ctypes.WINFUNCTYPE = lambda *types, **options: lambda name: None  # type: ignore[attr-defined]
    for name in modules():
        try:
            if name not in NOT_IMPORTED:
                importlib.import_module(name)
        except BaseException as problem:
            print(f"{system}: {name}: {problem!r}")


def main() -> None:
    if sys.argv[1] == "imports":
        import_all("darwin")
        import_all("win32")
        return
    become(sys.argv[1])
    sys.argv[:] = sys.argv[2:]
    importlib.import_module("mcp_hub.__main__").main()


if __name__ == "__main__":
    main()

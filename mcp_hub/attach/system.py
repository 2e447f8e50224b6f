"""Facts of the operating system: user, folders, file locks.

Calls that a system lacks stand behind a condition on `sys.platform`, for mypy.
"""

import os
import sys

if sys.platform == "win32":
    from mcp_hub.windows import lock_region
else:
    import fcntl

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "mcp-hub"


def _flags(*names: str) -> int:
    return sum(getattr(os, name, 0) for name in names)


BYTES = _flags("O_CLOEXEC", "O_BINARY")
"""Flags of `os.open` for every file, those that the system has: Windows would change line ends."""
NO_LINK = BYTES | _flags("O_NOFOLLOW")
NO_TERMINAL = BYTES | _flags("O_NOCTTY")
NO_WAIT = NO_TERMINAL | _flags("O_NONBLOCK")
"""A pipe or a terminal at that place does not block."""


def user() -> int | None:
    """The effective user id; None on Windows."""
    if sys.platform == "win32":
        return None
    else:
        return os.geteuid()


def account(number: int | None) -> tuple[str, str, str, int] | None:
    """Name, home, shell and group id; None without an account, and on Windows."""
    if sys.platform == "win32" or number is None:
        return None
    else:
        import pwd  # few starts need it

        try:
            entry = pwd.getpwuid(number)
        except KeyError:
            return None
        return entry.pw_name, entry.pw_dir, entry.pw_shell, entry.pw_gid


def lock(file: int, *, shared: bool) -> bool:
    """Takes a lock until this process ends; False if another one has it.

    Raises `OSError` where the file system has no locks.
    """
    if sys.platform == "win32":
        return lock_region(file, shared=shared)
    else:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def set_blocking(file: int, is_blocking: bool) -> None:
    """Does nothing on Windows."""
    if sys.platform != "win32":
        os.set_blocking(file, is_blocking)


def user_folder(kind: str, env: "Mapping[str, str]", platform: str = sys.platform) -> str:
    """The folder for `config` or `state`, as in platformdirs: a relative `$XDG_…_HOME` does not count."""
    if platform == "win32":
        home = env.get("USERPROFILE") or os.path.expanduser("~")
        return "\\".join((env.get("LOCALAPPDATA") or f"{home}\\AppData\\Local", NAME, NAME))
    home = env.get("HOME") or os.path.expanduser("~")
    usual = {"config": ".config", "state": ".local/state"}[kind]
    if platform == "darwin":
        usual = "Library/Application Support"
    chosen = env.get(f"XDG_{kind.upper()}_HOME", "").strip()
    return os.path.join(chosen if os.path.isabs(chosen) else os.path.join(home, usual), NAME)

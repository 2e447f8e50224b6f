"""The system below this process, by the facts that every part of the hub needs: its user, its folders, locks on files.

Decisions are functions of the platform, as `sys.platform` names it, and of the environment. Here and elsewhere, calls
that one system lacks are behind a condition on `sys.platform`, or in a function that begins with an assertion about it
and is not called there: mypy reads both (`make types`).
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
    """The number of the effective user; None on Windows, where users have names."""
    if sys.platform == "win32":
        return None
    else:
        return os.geteuid()


def account(number: int | None) -> tuple[str, str, str, int] | None:
    """Name, home folder, shell and group of a user; None for a number without an account, and on Windows."""
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
    """Takes a lock on an open file, which ends with the process, however that ends; False if another process has it.

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
    """As `os.set_blocking`, which Windows lacks."""
    if sys.platform != "win32":
        os.set_blocking(file, is_blocking)


def user_folder(kind: str, env: "Mapping[str, str]", platform: str = sys.platform) -> str:
    """The user's folder for `config` or `state`, as platformdirs has it on Linux, macOS and Windows."""
    if platform == "win32":
        home = env.get("USERPROFILE") or os.path.expanduser("~")
        return "\\".join((env.get("LOCALAPPDATA") or f"{home}\\AppData\\Local", NAME, NAME))
    home = env.get("HOME") or os.path.expanduser("~")
    usual = {"config": ".config", "state": ".local/state"}[kind]
    if platform == "darwin":
        usual = "Library/Application Support"
    return os.path.join(env.get(f"XDG_{kind.upper()}_HOME", "").strip() or os.path.join(home, usual), NAME)

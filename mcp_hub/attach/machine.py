"""Replacements for an unusable working directory, home or state folder, as in containers.

Children inherit them by `HOME` and `MCP_HUB_STATE_DIR`. A state folder that the user has set stays.
"""

import os
import sys

from mcp_hub.attach import folder as folders
from mcp_hub.attach.arguments import state_folder
from mcp_hub.attach.system import account, user

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

_STATE = "MCP_HUB_STATE_DIR"
DUMPABLE = "MCP_HUB_DUMPABLE"
"""The variable that leaves this program open to debuggers."""
_SET_DUMPABLE = 4
"""prctl(2)."""
_SELF = "/proc/self/exe"


def use_machine(env: "MutableMapping[str, str]", warn: "Callable[[str], None]") -> None:
    """Makes the folders usable and resets signals; `warn` gets each replacement."""
    _use_directory(warn)
    if sys.platform != "win32":
        _use_signals()
        _use_home(env, warn)
        _use_state(env, warn)


def use_text(arguments: "list[str]") -> None:
    """Restarts in UTF-8 mode if Python would read the arguments as ASCII."""
    if sys.getfilesystemencoding() == "ascii" and not all(map(str.isascii, arguments)):
        try:
            os.execv(interpreter(), [sys.orig_argv[0], "-X", "utf8", *sys.orig_argv[1:]])
        except OSError:
            return  # the arguments stay as Python has read them


def hide_process(env: "Mapping[str, str]") -> None:
    """Hides the process's memory from the user's other programs, by prctl(2) of Linux.

    Prevents core dumps and debuggers, too; `MCP_HUB_DUMPABLE=1` turns it off. Child programs are not hidden.
    """
    if sys.platform == "linux" and env.get(DUMPABLE) != "1":
        try:
            import _ctypes  # a third of a millisecond; ctypes takes four times as long

            program = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # dlopen(3) takes NULL
            prctl = _ctypes.dlsym(program, "prctl")
            _ctypes.call_function(prctl, (_SET_DUMPABLE, 0, 0, 0, 0))
        except (ImportError, OSError, AttributeError):
            return  # an interpreter without it, or another C library


def interpreter() -> str:
    """The interpreter's file, even where `sys.executable` is inaccessible."""
    if (sys.executable and os.access(sys.executable, os.X_OK)) or not os.path.exists(_SELF):
        return sys.executable
    return _SELF


def _use_directory(warn: "Callable[[str], None]") -> None:
    """Relative paths must open nothing."""
    try:
        os.getcwd()
    except OSError:
        folder = _spare("empty") or os.path.sep
        os.chdir(folder)
        warn(f"the working directory does not exist any more. This program works in {folder}")


def _use_signals() -> None:
    """A parent's ignored SIGCHLD loses exit codes."""
    import _signal  # type: ignore[import-not-found]  # `signal` loads `enum`; there are no stubs of this one

    if _signal.getsignal(_signal.SIGCHLD) == _signal.SIG_IGN:
        _signal.signal(_signal.SIGCHLD, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _use_home(env: "MutableMapping[str, str]", warn: "Callable[[str], None]") -> None:
    home = env.get("HOME", "")
    if os.path.isabs(home):
        return
    if (entry := account(user())) is not None:
        env["HOME"] = entry[1] or os.path.sep
    else:
        env["HOME"] = _spare() or os.path.sep
        reason = f"HOME is not set, and user {user()} does not have an account"
        warn(f"{reason}. It is {env['HOME']} now. Set HOME to a folder of yours")
        return
    if home:
        warn(f"HOME is not an absolute path: {home}. It is {env['HOME']} now")


def _use_state(env: "MutableMapping[str, str]", warn: "Callable[[str], None]") -> None:
    if env.get(_STATE):
        return
    folder = state_folder(env)
    if _can_be_made(folder):
        return
    if (spare := _spare("state")) is not None:
        env[_STATE] = spare
        warn(f"{folder} cannot be written. State is in {spare} now. Set {_STATE} to a folder of yours to keep it")
    else:
        warn(f"{folder} cannot be written. Nothing is kept. Set {_STATE} to a folder of yours")


def _can_be_made(folder: str) -> bool:
    while not os.path.lexists(folder) and folder != os.path.dirname(folder):
        folder = os.path.dirname(folder)
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _spare(name: str = "") -> str | None:
    folder = os.path.join(folders.SHORT, f"mcp-hub-{user()}")
    path = os.path.join(folder, name) if name else folder
    try:
        folders.make_private(folder)
        folders.make_private(path)
    except (OSError, folders.Untrusted):
        return None
    return path

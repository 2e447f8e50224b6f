"""The hub's own folder and a project's; checks who could have written a configuration, or the hub's files."""

import os
import shlex
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mcp_hub.attach.system import account, user_folder
from mcp_hub.attach.system import user as effective_user
from mcp_hub.errors import ConfigError, ConfigFinding

if TYPE_CHECKING:
    from mcp_hub.config.schema.settings import Settings
    from mcp_hub.windows import Right

OVERRIDE: Final = "MCP_HUB_TRUST_CONFIG"
"""1 trusts any file, for containers with files of unknown users. Not a key of the file, which cannot vouch for itself.
"""

_MOST_LINKS: Final = 40
"""Links on the way to a file, as in Linux."""
SECRETS: Final = "secrets"
"""The folder beside a configuration with its secrets."""
STATE_FOLDERS: Final = (
    *(
        "access",
        "approvals",
        "audit",
        "clients",
        "clients/acts",
        "clients/locks",
        "clients/saved",
        "executors",
        "hubs",
        "instances",
        "keys",
        "lists",
    ),
    *("logs", "oauth", "oauth/accounts", "proposals", "results"),
)
"""The hub's folders in the state folder, and in that of the store."""


def problem_of_config(
    status: os.stat_result,
    env: Mapping[str, str],
    user: int | None = None,
    power: str = "have the hub run any command",
    fix: str = "Run chmod go-w on it",
    path: Path | str | None = None,
) -> str | None:
    """Why this file must not be used, with the fix; None if it may.

    `user`: the hub's, default the effective one. `power`: what another writer could do. `fix`: how others lose the
    right. `path`: for Windows.
    """
    user = effective_user() if user is None else user
    if env.get(OVERRIDE) == "1":
        return None
    if user is None:
        problem = None if path is None else _problem_on_windows("write", path, f", who could {power}")
        return None if problem is None else f"{problem}, or set {OVERRIDE}=1 if you trust them"
    if status.st_uid not in (user, 0):
        return (
            f"belongs to user {_name(status.st_uid)}, who could {power} as {_name(user)}. "
            f"Change its owner (chown), or set {OVERRIDE}=1 if you trust everybody who can write it"
        )
    writers = _who_else(status, stat.S_IWGRP, stat.S_IWOTH)
    if writers is not None:
        return f"can be written by {writers}, who could {power}. {fix}, or set {OVERRIDE}=1 if you trust them"
    return None


def problem_of_commands(status: os.stat_result, path: Path) -> str | None:
    """Why no `${cmd:…}` of this configuration runs, with the fix; None if it may. On Windows None.

    Without override, only the owner (the user or root) may write the file, and nobody else may replace anything on its
    path, links included.
    """
    user = effective_user()
    if user is None:
        return None
    if status.st_uid not in (user, 0):
        fix = f"chown {_word(_name(user))} {_word(path)}"
        return f"the file belongs to user {_name(status.st_uid)} (to change that: {fix}), so no command in it is run"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        fix = f"chmod go-w {_word(path)}"
        return f"others than its owner can write the file (to change that: {fix}), so no command in it is run"
    for folder in _folders_to(path):
        try:
            around = folder.stat()
        except OSError:
            continue
        is_open = _who_else(around, stat.S_IWGRP, stat.S_IWOTH) is not None and not around.st_mode & stat.S_ISVTX
        if is_open or around.st_uid not in (user, 0):
            fix = f"chmod go-w {_word(folder)}" if is_open else f"chown {_word(_name(user))} {_word(folder)}"
            return f"others can replace what is in {folder} (to change that: {fix}), so no command of the file is run"
    return None


def _problem_on_windows(right: "Right", path: Path | str, power: str) -> str | None:
    from mcp_hub.windows import others_who_may

    accounts = others_who_may(right, path)
    if not accounts:
        return None
    verb = "read" if right == "read" else "written"
    inherited = "(OI)(CI)F" if os.path.isdir(path) else "F"
    fix = f'icacls "{path}" /inheritance:r /grant:r "%USERNAME%:{inherited}"'
    return f"can be {verb} by {', '.join(accounts)}{power}. Run {fix}"


def _folders_to(path: Path) -> list[Path]:
    folder, words = Path(path.absolute().anchor), [*path.absolute().parts[:0:-1]]
    folders, links = dict[Path, None](), 0
    while words and links <= _MOST_LINKS:
        word = words.pop()
        if word == os.pardir:
            folder = folder.parent
            continue
        folders[folder] = None
        if os.path.islink(folder / word):
            links, target = links + 1, Path(os.readlink(folder / word))
            folder = Path(target.anchor) if target.anchor else folder
            words += target.parts[:0:-1] if target.anchor else target.parts[::-1]
        else:
            folder /= word
    return [*folders][::-1]


def _word(text: object) -> str:
    return shlex.quote(str(text))


def check_state(homes: Iterable[Path], env: Mapping[str, str]) -> None:
    """Raises `ConfigError` for folders that others may write."""
    if untrusted := untrusted_state(homes, env):
        raise ConfigError(
            *(ConfigFinding("state_untrusted", reason, str(folder)) for folder, reason in untrusted.items())
        )


def untrusted_state(homes: Iterable[Path], env: Mapping[str, str]) -> dict[Path, str]:
    """State folders that others may write, with problem and fix."""
    folders = [folder for home in sorted({*homes}) for folder in (home, *(home / name for name in STATE_FOLDERS))]
    return dict(_untrusted(folders, env))


def _untrusted(folders: Iterable[Path], env: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    power = "read and replace what the hub remembers, logins and approvals among it"
    for folder in folders:
        try:
            status = folder.stat()
        except OSError:
            continue
        fix = f"Run mcp-hub doctor --fix, or chmod go-w {folder}"
        if not stat.S_ISDIR(status.st_mode):
            continue
        if (problem := problem_of_config(status, env, power=power, fix=fix, path=folder)) is not None:
            yield folder, problem


def is_of_project(status: os.stat_result, folder: str) -> bool:
    """Whether the user, root or the folder's owner owns the file."""
    user = effective_user()
    if user is None or status.st_uid in (user, 0):
        return True
    try:
        return status.st_uid == os.stat(folder).st_uid
    except OSError:
        return False


def close_folder(folder: Path) -> bool:
    """Takes write access from others; False if not permitted."""
    try:
        folder.chmod(stat.S_IMODE(folder.stat().st_mode) & ~0o022)
    except OSError:
        return False
    return True


def problem_of_secret(status: os.stat_result, path: Path | str | None = None) -> str | None:
    """Why others can read the file, else None. `path`: for Windows."""
    if effective_user() is None:
        return None if path is None else _problem_on_windows("read", path, "")
    readers = _who_else(status, stat.S_IRGRP, stat.S_IROTH)
    return None if readers is None else f"can be read by {readers}. Run chmod go-rwx on it."


def _who_else(status: os.stat_result, of_group: int, of_all: int) -> str | None:
    if status.st_mode & of_all:
        return "everybody on this machine"
    if status.st_mode & of_group and not _is_private_group(status):
        return "its group"
    return None


def _is_private_group(status: os.stat_result) -> bool:
    """Whether the owner is the group's only member."""
    if sys.platform == "win32":
        raise NotImplementedError
    import grp

    owner = account(status.st_uid)
    if owner is None or owner[3] != status.st_gid:
        return False
    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    return owner[0] == group.gr_name and set(group.gr_mem) <= {owner[0]}


def _name(user: int) -> str:
    entry = account(user)
    return str(user) if entry is None else entry[0]


def state_dir(env: Mapping[str, str]) -> Path:
    """The state folder: `MCP_HUB_STATE_DIR`, else the platform's."""
    return Path(env.get("MCP_HUB_STATE_DIR") or user_folder("state", env))


def own_folders(settings: "Settings | None", env: Mapping[str, str]) -> list[Path]:
    """The state folder and, with settings, the store's."""
    return [state_dir(env), *([] if settings is None else [store_folder(settings, env)])]


def store_folder(settings: "Settings", env: Mapping[str, str]) -> Path:
    """The folder of streams, results and history."""
    path = settings.hub.store.path
    return state_dir(env) if path is None else Path(path)


def overrides_of(config: Path) -> Path:
    return config.with_name(f"{config.stem}.overrides.yaml")


OVERLAY: Final = ".mcp-hub.yaml"
_MOST_PARENTS: Final = 64
"""Parent folders searched for a project's root."""


def project_of(folder: str) -> str:
    """The nearest folder with `.git`, upwards but below home, else this folder.

    Not cached. Another user's `.git` counts only in that user's folder.
    """
    home, path = os.path.expanduser("~"), folder
    for _ in range(_MOST_PARENTS):
        if path == home or path == os.path.dirname(path):
            break
        with suppress(OSError):
            if is_of_project(os.lstat(os.path.join(path, ".git")), folder):
                return path
        path = os.path.dirname(path)
    return folder

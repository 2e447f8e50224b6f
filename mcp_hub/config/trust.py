"""Whose word a configuration is: it names commands that will run, so only its user may have written it."""

import os
import stat
import sys
from collections.abc import Mapping
from typing import Final

__all__ = ["OVERRIDE", "problem_of_config", "problem_of_secret"]

OVERRIDE: Final = "MCP_HUB_TRUST_CONFIG"
"""Set to 1, any file is trusted: for containers, where the files of the host belong to somebody unknown. A variable
and no key of the file, which cannot vouch for itself.
"""


def problem_of_config(
    found: os.stat_result, env: Mapping[str, str], user: int | None = None, power: str = "have the hub run any command"
) -> str | None:
    """Why what this file says must not be done, and how to mend it; None if it may.

    `user` is who runs the hub, by default the effective user; `power` is what somebody else could do by the file. Not
    checked where there are no owners (Windows).
    """
    user = _user() if user is None else user
    if user is None or env.get(OVERRIDE) == "1":
        return None
    if found.st_uid not in (user, 0):
        return (
            f"belongs to user {_name(found.st_uid)}, who could {power} as {_name(user)}; "
            f"make it yours (chown), or set {OVERRIDE}=1 if you trust everybody who can write it"
        )
    writers = _others(found, stat.S_IWGRP, stat.S_IWOTH)
    if writers is not None:
        return (
            f"can be written by {writers}, who could {power}; mend it with chmod go-w, "
            f"or set {OVERRIDE}=1 if you trust them"
        )
    return None


def problem_of_secret(found: os.stat_result) -> str | None:
    """Who else can read a file that holds a secret; None if nobody, or if there are no owners here."""
    if _user() is None:
        return None
    readers = _others(found, stat.S_IRGRP, stat.S_IROTH)
    return None if readers is None else f"can be read by {readers}; mend it with chmod go-rwx"


def _others(found: os.stat_result, of_group: int, of_all: int) -> str | None:
    if found.st_mode & of_all:
        return "everybody on this machine"
    if found.st_mode & of_group and not _is_private_group(found):
        return "its group"
    return None


def _is_private_group(found: os.stat_result) -> bool:
    """Whether the group is that of the owner alone, as many systems make one for each user."""
    import grp
    import pwd

    try:
        owner, group = pwd.getpwuid(found.st_uid), grp.getgrgid(found.st_gid)
    except KeyError:
        return False
    return owner.pw_gid == found.st_gid and owner.pw_name == group.gr_name and set(group.gr_mem) <= {owner.pw_name}


def _user() -> int | None:
    return None if sys.platform == "win32" else os.geteuid()


def _name(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)

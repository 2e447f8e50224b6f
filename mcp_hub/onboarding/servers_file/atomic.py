"""A file of the hub's configuration, changed by one command at a time: read, changed, and put in its place at once."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.app.limits import state_dir
from mcp_hub.attach.folder import make_folder
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.onboarding.files import Changed, FileRefused, content_of, locked, replace, target_of

_ATTEMPTS: Final = 2
"""A file that somebody changes while it is edited is edited once more."""


class FileEdit(msgspec.Struct, frozen=True):
    """One file that was written: its bytes before, None for a new one, and after. Both may be secret."""

    path: Path
    before: bytes | None
    after: bytes


def edit_file(path: Path, change: Callable[[bytes | None], bytes], env: Mapping[str, str]) -> FileEdit | None:
    """Writes what `change` makes of the bytes, None for a file that is not there. None if nothing changes.

    A new file is for nobody else's eyes. Raises `ConfigError`, and whatever `change` raises; then nothing has changed.
    """
    try:
        target = target_of(path)
        make_folder(target.parent)
        with locked(target, state_dir(env) / "clients" / "locks"):
            for _ in range(_ATTEMPTS):
                before = content_of(target, LARGEST_OWN)
                after = change(before)
                if after == before:
                    return None
                try:
                    replace(target, before, after)
                except Changed:
                    continue
                return FileEdit(target, before, after)
    except FileRefused as refused:
        raise ConfigError(ConfigFinding(refused.code, str(refused))) from None
    except OSError as problem:
        said = f"cannot be written: {problem.strerror}. Check its folder and permissions."
        raise ConfigError(ConfigFinding("output_unwritable", said, str(path))) from None
    raise ConfigError(ConfigFinding("file_busy", "another program changes the file. Try again.", str(path)))

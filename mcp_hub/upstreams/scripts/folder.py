"""Reads the scripts of a folder: its regular files NAME.py, within bounds."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from mcp_hub.config.trust import problem_of_config
from mcp_hub.errors import ConfigFinding
from mcp_hub.masking import hide, hide_head
from mcp_hub.types import FileStamp
from mcp_hub.upstreams.folders import read_file, stamp_of
from mcp_hub.upstreams.scripts.source import Script, read_script

MOST_SCRIPTS: Final = 200
"""Of one folder."""
LARGEST: Final = 64 << 10
"""Bytes of a script."""
_MOST_ENTRIES: Final = 5000
"""Entries of a folder, scripts or not."""
_SUFFIX: Final = ".py"
_POWER: Final = "have it call any tool"


def read_folder(folder: str, env: Mapping[str, str], before: Mapping[str, Script]) -> dict[str, Script]:
    """The scripts by name, also those with a fault; files that did not change since `before` are not read. Blocks.

    Links and names that begin with a dot or `_` are no scripts. Raises `OSError`.
    """
    root = Path(folder).resolve(strict=True)
    if (problem := problem_of_config(os.stat(root), env, power=_POWER, path=root)) is not None:
        raise OSError(f"it {problem}")
    scripts: dict[str, Script] = {}
    for name, stamp in sorted(_files(root).items()):
        known = before.get(name)
        scripts[name] = known if known is not None and known.stamp == stamp else _read(root, name, env, stamp)
    return scripts


def _files(root: Path) -> dict[str, FileStamp]:
    stamps: dict[str, FileStamp] = {}
    with os.scandir(root) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES or len(stamps) > MOST_SCRIPTS:
                raise OSError(f"it has more than {MOST_SCRIPTS} scripts, or {_MOST_ENTRIES} files")
            name = entry.name.removesuffix(_SUFFIX)
            if name != entry.name and name[:1] not in (".", "_", "") and entry.is_file(follow_symlinks=False):
                stamps[name] = stamp_of(entry.stat(follow_symlinks=False))
    return stamps


def _read(root: Path, name: str, env: Mapping[str, str], stamp: FileStamp) -> Script:
    file = root / f"{name}{_SUFFIX}"
    try:
        if (problem := problem_of_config(os.stat(file), env, power=_POWER, path=file)) is not None:
            return Script(name, stamp, fault=f"it {problem}")
        content, stamp = read_file(root, file.name, LARGEST)
        return read_script(name, content.decode("utf-8-sig"), stamp)
    except UnicodeError:
        return Script(name, stamp, fault="it is not UTF-8 text")
    except OSError as problem:
        return Script(name, stamp, fault=hide(str(problem.strerror or problem)))


def findings_of(folder: str, scripts: Mapping[str, Script], unknown: Mapping[str, list[str]]) -> list[ConfigFinding]:
    """What is wrong with each script; `unknown`: names by script that neither Python nor a tool has."""
    found: list[ConfigFinding] = []
    for name, script in scripts.items():
        file = os.path.join(folder, f"{name}{_SUFFIX}")
        if script.fault:
            found.append(ConfigFinding("script_invalid", hide_head(script.fault, 500), file, script.line))
        for missing in unknown.get(name, ()):
            reason = f"there is no tool {hide_head(missing, 100)!r}. Correct its name, or define it."
            found.append(ConfigFinding("script_unknown_tool", reason, file, script.names[missing]))
    return found

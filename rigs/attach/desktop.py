"""Commands as on a desktop: where no container is seen, so that `auto` attaches."""

import os
from collections.abc import Sequence
from pathlib import Path

_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))
VARIABLES = {"CI": "", "MCP_HUB_ATTACH": ""}
"""What to set beside, for `auto` to be as on a desktop."""

# the same files under the same paths, but for the mark: a root of its own, in which everything else is mounted
_WITHOUT_MARK = """
set -e
root=$1; shift
mkdir -p "$root"
mount -t tmpfs -o size=64k,mode=755 tmpfs "$root"
for entry in /* /.[!.]*; do
    case $entry in "/.dockerenv"|"/.[!.]*") continue;; esac
    if [ -L "$entry" ]; then cp -P "$entry" "$root$entry"
    elif [ -d "$entry" ]; then mkdir "$root$entry"; mount --rbind "$entry" "$root$entry"
    else : > "$root$entry"; mount --bind "$entry" "$root$entry"; fi
done
exec chroot "$root" /usr/bin/env -C "$PWD" "$@"
"""


class Skipped(Exception):
    """A case needs what this machine or user does not have; the message says what."""


def on_desktop(line: Sequence[str], root: Path) -> list[str]:
    """The command line by which this command sees no container; its process has the same pid.

    `root` is a folder that is not used for anything else. Raises `Skipped` where that cannot be done.
    """
    if not any(mark.exists() for mark in _MARKS):
        return [*line]
    if os.geteuid() != 0 or _MARKS[1].exists():
        raise Skipped("`auto` does not attach in a container, and only root can hide it")
    return ["unshare", "--mount", "sh", "-c", _WITHOUT_MARK, "sh", str(root), *line]


def in_place_of(path: str, program: Path, line: Sequence[str]) -> list[str]:
    """The command line by which this command, and what it starts, finds another program at that place.

    Raises `Skipped` where that cannot be done.
    """
    if os.geteuid() != 0 or not os.path.exists(path):
        raise Skipped(f"only root, where there is a {path}, can put another one there")
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh", str(program), path, *line]

"""The exported names of a profile's tools over time: renamed ones are logged, removed ones remembered."""

from collections.abc import Collection, Mapping
from typing import Final

from mcp_hub.logs import get_logger
from mcp_hub.types import Origin

log = get_logger(__name__)

_MOST_LOGGED: Final = 20  # tools that are named in one line of the log
_MOST_REMOVED: Final = 4096  # names: those of the largest servers, some times over


class ExportedNames:
    """The names that tools have now, and those that were removed; the oldest of more than 4,096 are forgotten."""

    def __init__(self) -> None:
        self._now: Mapping[Origin, str] = {}
        self._removed: dict[str, None] = {}

    @property
    def removed(self) -> Collection[str]:
        """Stays up to date."""
        return self._removed.keys()

    def note(self, names: Mapping[Origin, str], profile: str | None) -> None:
        """Takes the names as they are from now on."""
        before, self._now = self._now, names
        changed = [f"{before[origin]} -> {name}" for origin, name in names.items() if before.get(origin, name) != name]
        if changed:
            log.warning("tools_renamed", profile=profile, count=len(changed), tools=changed[:_MOST_LOGGED])
        listed = frozenset(names.values())
        self._removed |= dict.fromkeys(name for name in before.values() if name not in listed)
        for name in [*(name for name in self._removed if name in listed), *[*self._removed][:-_MOST_REMOVED]]:
            self._removed.pop(name, None)

"""Allow and deny globs over names and URIs; matching takes time linear in the text for each pattern."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from functools import lru_cache

__all__ = ["EVERYTHING", "Filter"]


@dataclass(frozen=True, slots=True)
class Filter:
    """Case-sensitive globs (`*`, `?`, `[a-z]`; `*` also crosses `/`). No `allow` means all; `deny` wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()

    def admits(self, *names: str) -> bool:
        """Whether something known by these names (the upstream's, the exported one) may be seen and used."""
        if self.denies(*names):
            return False
        return not self.allow or any(map(_matcher(self.allow), names))

    def denies(self, *names: str) -> bool:
        return bool(self.deny) and any(map(_matcher(self.deny), names))


EVERYTHING = Filter()


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    # translate() makes each `*` atomic, so nothing is tried twice; consecutive ones are one
    return re.compile("|".join(map(translate, patterns))).match

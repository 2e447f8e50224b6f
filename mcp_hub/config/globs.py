"""Which of several names and globs is the one for a name; matching takes time linear in the name for each glob."""

import re
from collections.abc import Callable, Collection
from fnmatch import translate
from functools import lru_cache

__all__ = ["best_match", "is_glob"]


def best_match(name: str, patterns: Collection[str]) -> str | None:
    """The pattern that is `name` itself, else the first glob that matches it. Case matters."""
    if name in patterns:
        return name
    return next((pattern for pattern in patterns if _matcher(pattern)(name)), None)


def is_glob(pattern: str) -> bool:
    """Whether it can match anything but itself."""
    return "*" in pattern or "?" in pattern or ("[" in pattern and "]" in pattern)


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> Callable[[str], object]:
    # translate() makes each `*` atomic, so nothing is tried twice
    return re.compile(translate(pattern)).match

"""Globs (`*`, `?`, `[a-z]`; case matters; `*` also crosses `/`), and regular expressions that cost a start nothing.

Matching a glob takes time linear in the name.
"""

import re
from collections.abc import Callable, Collection, Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Any, AnyStr, cast


def any_matches(patterns: Collection[str], names: Iterable[str]) -> bool:
    """Whether one of the names matches one of the globs."""
    return bool(patterns) and any(map(_matcher(tuple(patterns)), names))


def first_match(name: str, patterns: Collection[str]) -> str | None:
    """The pattern that is `name` itself, else the first glob that matches it."""
    if name in patterns:
        return name
    if not any_matches(patterns, (name,)):
        return None
    return next(pattern for pattern in patterns if is_glob(pattern) and _matcher((pattern,))(name))


def is_glob(pattern: str) -> bool:
    """Whether it can match anything but itself."""
    return "*" in pattern or "?" in pattern or ("[" in pattern and "]" in pattern)


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    """Plain names are looked up: to compile 2,000 of them takes a tenth of a second."""
    globs = [pattern for pattern in patterns if is_glob(pattern)]
    names = frozenset(patterns).difference(globs)
    if not globs:
        return names.__contains__
    # translate() makes each `*` atomic, so nothing is tried twice
    match = re.compile("|".join(map(translate, globs))).match
    return (lambda name: name in names or match(name)) if names else match


class _Late:
    """Has the methods of a regular expression from its first use on."""

    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self._text, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled: re.Pattern[Any] = re.compile(self._text, self._flags)
        method = self.__dict__[name] = getattr(compiled, name)
        return method


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile` at the first use: a start of the hub would spend a twentieth of its time on patterns of rare texts.

    What is wrong with the pattern shows at its first use, too.
    """
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))

"""Globs (`*` crosses `/`; case matters) in linear time, and late regular expressions."""

import re
from collections.abc import Callable, Collection, Iterable
from fnmatch import translate
from functools import lru_cache
from typing import Any, AnyStr, cast


def any_matches(patterns: Collection[str], names: Iterable[str]) -> bool:
    """Whether any name matches any glob."""
    return bool(patterns) and any(map(_matcher(tuple(patterns)), names))


def first_match(name: str, patterns: Collection[str]) -> str | None:
    """The pattern equal to `name`, else the first matching glob."""
    if name in patterns:
        return name
    if not any_matches(patterns, (name,)):
        return None
    return next(pattern for pattern in patterns if is_glob(pattern) and _matcher((pattern,))(name))


def is_glob(pattern: str) -> bool:
    return "*" in pattern or "?" in pattern or ("[" in pattern and "]" in pattern)


@lru_cache(maxsize=1024)
def _matcher(patterns: tuple[str, ...]) -> Callable[[str], object]:
    globs = [pattern for pattern in patterns if is_glob(pattern)]
    names = frozenset(patterns).difference(globs)
    if not globs:
        return names.__contains__
    # translate() makes each `*` atomic, so nothing is tried twice
    match = re.compile("|".join(map(translate, globs))).match
    return (lambda name: name in names or match(name)) if names else match


class _Late:
    def __init__(self, pattern: str | bytes, flags: int) -> None:
        self.pattern, self._flags = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled: re.Pattern[Any] = re.compile(self.pattern, self._flags)
        method = self.__dict__[name] = getattr(compiled, name)
        return method


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """`re.compile` at the first use, errors included."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))

"""Patterns of RE2, bounded in size and memory: they run in linear time (github.com/google/re2/wiki/Syntax)."""

import re
from typing import TYPE_CHECKING, Final

from mcp_hub.errors import InvalidParams
from mcp_hub.masking import hide_head

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]  # ships no types

_MOST_PATTERN: Final = 1000
_MOST_PROGRAM: Final = 1000
"""Instructions of RE2: at this number it reads 200 KB a second."""
_MOST_REPEATS: Final = 1000
"""RE2 refuses more itself."""
_MEMORY: Final = 4 << 20
_TRIED: Final = 256 << 10
"""Bytes for a first try: RE2 takes 2 ms to see that a pattern needs more, and 50 ms with `_MEMORY`."""
_ESCAPED: Final = re.compile(r"\\(?:[xpP]\{[^}]*\}|.)", re.DOTALL)
_REPEATED: Final = re.compile(r"\{([0-9]{1,9}),?([0-9]{0,9})\}")


def compiled(pattern: str, key: str, *, by_line: bool) -> "re2._Regexp":
    """A pattern over UTF-8 bytes, line by line with `by_line`. Raises `InvalidParams`, which names `key`."""
    import re2  # 30 ms, which no start needs

    if len(pattern) > _MOST_PATTERN:
        raise InvalidParams(f"{key}: the pattern has {len(pattern)} characters; {_MOST_PATTERN} are allowed")
    too_large = f"{key}: {hide_head(pattern, 100)!r} is too large a pattern. Use fewer repetitions."
    repeats = [int(upper or lower) for lower, upper in _REPEATED.findall(_ESCAPED.sub("", pattern))]
    if sum(count for count in repeats if count <= _MOST_REPEATS) > _MOST_PROGRAM:  # RE2 would take seconds to see it
        raise InvalidParams(too_large)
    tried = _limited(re2.Options(), _TRIED, by_line=by_line)
    try:
        if re2.compile(pattern, tried).programsize > _MOST_PROGRAM:  # as it came, so that an error shows it so
            raise InvalidParams(too_large)
        regexp = re2.compile(
            f"(?m){pattern}" if by_line else pattern, _limited(re2.Options(), _MEMORY, by_line=by_line)
        )
    except re2.error as problem:
        message = problem.args[0]
        reason = message.decode("utf-8", "replace") if isinstance(message, bytes) else str(message)
        raise InvalidParams(
            f"{key}: {hide_head(pattern, 100)!r} is not a pattern of RE2: {_printable(hide_head(reason, 200))}"
        ) from None
    finally:
        re2.purge()  # its cache is bounded by number only
    if regexp.programsize > _MOST_PROGRAM:
        raise InvalidParams(too_large)
    return regexp


def _limited(options: "re2.Options", memory: int, *, by_line: bool) -> "re2.Options":
    options.log_errors = False
    options.never_nl = by_line
    options.never_capture = True
    options.max_mem = memory
    return options


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text)

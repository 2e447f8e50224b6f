"""Nesting depth of JSON in linear time, without parsing or recursion."""

import re
from typing import Final

_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(set(range(256)) - set(b"[]{}"))
_RUNS: Final = re.compile(rb"\[+|\]+")
_WINDOW: Final = 1 << 20
"""Bytes that are cut up at a time."""
_PEELED: Final = 2
"""Innermost levels that are taken off at once: what is wide is seldom deeper."""


def is_deeper(text: bytes, most: int) -> bool:
    """Whether valid JSON is nested deeper than `most`."""
    if len(text) < 2 * (most + 1) or text.count(b"[") + text.count(b"{") <= most:
        return False
    brackets = _outside_strings(text).translate(_ALIKE, _OTHERS)
    level = 0
    for _ in range(min(_PEELED, most)):
        brackets = brackets.replace(b"[]", b"")
        level += bool(brackets)
    for run in _RUNS.finditer(brackets):
        size = run.end() - run.start()
        if brackets[run.start()] == ord("["):
            level += size
            if level > most:
                return True
        else:
            level -= size
    return False


def _outside_strings(text: bytes) -> bytes:
    bare = text.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in text else text
    kept = []
    inside = 0
    for start in range(0, len(bare), _WINDOW):
        pieces = bare[start : start + _WINDOW].split(b'"')
        kept += pieces[inside::2]
        inside ^= (len(pieces) - 1) & 1
    return b"".join(kept)

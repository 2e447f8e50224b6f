"""JSON that is not parsed: ids and kinds of unreadable messages, from both ends of the line, and nesting depth.

Linear in time, without recursion.
"""

from typing import Final

import msgspec

from mcp_hub.globs import late

_LOOK: Final = 4096
"""Bytes that are looked at, at either end of a line."""
_WHOLE: Final = 1 << 20
"""Bytes of a line whose brackets are worth counting."""
_JSONRPC: Final = rb'"jsonrpc"\s*:\s*"2\.0"'
_ID: Final = rb'"id"\s*:\s*(-?\d{1,19}(?![\d.eE])|"(?:[^"\\\x00-\x1f]|\\.){0,256}")'
_IDS: Final = late(_ID)
_FIRST: Final = late(
    rb"(?:\xef\xbb\xbf)?\s*\{\s*(?:%b\s*,\s*%b|%b\s*,\s*%b)\s*,\s*\"(?!id\")" % (_JSONRPC, _ID, _ID, _JSONRPC)
)
"""A message that begins with its version and its id, and has no second id right behind them."""
_FIRST_ID: Final = late(rb"\s*\{\s*" + _ID)
_LAST: Final = late(rb",\s*(?:%b\s*,\s*%b|%b\s*,\s*%b|%b)\s*\}\s*\Z" % (_JSONRPC, _ID, _ID, _JSONRPC, _ID))
"""A message that ends with its id; the third group is of one without the version beside it."""
_STRINGS: Final = late(rb'"[^"]*"?')
"""In text that is `flat`."""
_KIND: Final = late(rb'"(method|result|error)"(\s*:\s*")?')
_RESULT: Final = late(rb'"(?:result|error)"\s*:')
_MEMBER: Final = late(rb'"(method|params|result|error)"')
_OWN_MEMBER: Final = late(rb'"(?:method"\s*:\s*"|params"|(result|error)")')
"""A method that is none (`null`, a number) says nothing of what a message was to be."""


def flat(text: bytes) -> bytes:
    """JSON of equal length without escaped quotes, for simple patterns."""
    return text.replace(rb"\\", b"__").replace(rb"\"", b"__") if b"\\" in text else text


def salvage_id(line: bytes) -> bytes | None:
    """The id; None if missing or ambiguous."""
    head, tail = line[:_LOOK], line[-_LOOK:]
    first = _FIRST.match(head)
    id_ = (first[1] or first[2]) if first is not None else _last_id(line, head, tail)
    if id_ is None:
        found = set(_IDS.findall(line if len(line) <= 2 * _LOOK else head + b"\n" + tail))
        id_ = found.pop() if len(found) == 1 else b""
    try:
        msgspec.json.decode(id_)  # it is echoed: no "\q", no 01, nothing that is not UTF-8
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return id_


def _last_id(line: bytes, head: bytes, tail: bytes) -> bytes | None:
    last = _LAST.search(tail)
    if last is None or (last[3] is not None and not _is_closed(line)):
        return None
    id_ = last[1] or last[2] or last[3]
    first = _FIRST_ID.match(head)
    return id_ if first is None or first[1] == id_ else None


def _is_closed(line: bytes) -> bool:
    """A truncated line may end with an id of the payload."""
    if len(line) > _WHOLE:
        return False
    bare = _STRINGS.sub(b"", flat(line))
    return bare.count(b"{") == bare.count(b"}") and bare.count(b"[") == bare.count(b"]")


def is_answer(line: bytes, *, is_huge: bool = False) -> bool:
    """Whether this is a broken answer, not stray text or a request. `is_huge`: the end is missing."""
    head = line[:_LOOK]
    if b'"jsonrpc"' in head:
        return not _is_request(head)
    member = _MEMBER.search(head)
    if member is None or member[1] not in (b"result", b"error"):
        return False
    return is_huge or b'"jsonrpc"' in line[-_LOOK:]


def is_own_answer(line: bytes) -> bool:
    """Whether this is a broken answer, on an answer's stream."""
    head = line[:_LOOK]
    member = _OWN_MEMBER.search(head)
    if member is None:
        return b'"jsonrpc"' in head and b'"method"' not in head
    return member[1] is not None


def _is_request(head: bytes) -> bool:
    kind = _KIND.search(head)
    if kind is None or kind[1] != b"method":
        return False
    return kind[2] is not None or _RESULT.search(head, kind.end()) is None


_ALIKE: Final = bytes.maketrans(b"{}", b"[]")
_OTHERS: Final = bytes(set(range(256)) - set(b"[]{}"))
_RUNS: Final = late(rb"\[+|\]+")
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

"""Fuzz targets of what clients send to name things: places in streams, states, patterns and paths into results."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from mcp_hub.call import Call
from mcp_hub.calls.pending_input import PendingInput, is_pending
from mcp_hub.calls.results import paging
from mcp_hub.calls.results.truncate import LEAST, cut
from mcp_hub.errors import InvalidParams
from mcp_hub.protocol.sse import Cursor
from mcp_hub.selection.engine import select
from mcp_hub.types import CallId, Era
from rigs.fuzz.mutate import json_bytes, mutated, mutated_json
from rigs.fuzz.target import Target, seeded

# -- cursors and request states

_STREAM = "st_01JABCDEFGHJKMNPQRSTVWXYZ0"
_NAMES = (
    f"{_STREAM}:0",
    f"{_STREAM}:17",
    f"{_STREAM}:999999999999999",
    "up1.state",
    "hub1.c1.leg.seal",
    "hub1...",
    "17",
)
_PIECES = (
    *(b"st_", b":", b"hub1.", b"up1.", b".", b"0", b"\xd9\xa0", b"\xef\xbc\x90", b"I", b"O", b" ", b"\n", b"+"),
    b"-",
)


@dataclass(frozen=True)
class _Questions:
    open: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Pending:
    """As much of a call's record as pending looks at."""

    call: Call
    questions: _Questions = _Questions()


class _Clock:
    def now(self) -> float:
        return 0.0


def _call(principal: str = "p") -> Call:
    params = {"name": msgspec.Raw(b'"t"'), "arguments": msgspec.Raw(b'{"a":1}')}
    return Call(CallId("c1"), "u", "tools/call", params, {}, "s", principal, Era.MODERN, {})


def make_names(rng: Random) -> bytes:
    return mutated(rng.choice(_NAMES).encode(), _PIECES, [name.encode() for name in _NAMES], rng)


def check_cursors(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    try:
        found = Cursor.parse(text)
    except ValueError as problem:
        assert str(problem).startswith("not a place in a stream")
    else:
        assert str(found) == text and 0 <= found.seq < 10**15 and text.isascii()
    _check_marks(text)
    _check_states(data.decode("utf-8", "replace"), seeded(data))  # in JSON there are no halves of characters


def _check_marks(text: str) -> None:
    """A server's own state comes back to its client as it was, and is nobody else's."""
    pending = PendingInput(_Clock(), 60.0, lambda record, reason: None)
    state = pending.mark(_call(), text)
    assert pending.unmark(_call(), state) == text and not is_pending(state)
    for given, call in ((text, _call()), (state, _call("other"))):
        try:
            pending.unmark(call, given)
        except InvalidParams:
            continue
        raise AssertionError("a state that was never given is taken")


def _check_states(text: str, rng: Random) -> None:
    """Of a parked call only its own state, from its own principal, opens anything; and that once."""
    pending = PendingInput(_Clock(), 60.0, lambda record, reason: None)
    state = pending.hold(_Pending(_call()), 0)  # type: ignore[arg-type]
    forged = mutated(state.encode(), _PIECES, [state.encode(), text.encode()], rng)
    for given, call in ((text, _call()), (forged.decode("utf-8", "replace"), _call()), (state, _call("other"))):
        if given == state and call.principal == "p":
            continue
        assert _fetched(pending, given, call) is False, "a state that was never given opens a call"
    assert _fetched(pending, state, _call()) and not _fetched(pending, state, _call())


def _fetched(pending: PendingInput, state: str, call: Call) -> bool:
    if not is_pending(state):  # as those ask who take states
        return False
    try:
        pending.fetch(state, call)
    except InvalidParams:
        return False
    return True


# -- patterns and paths

_DOCUMENT: Any = {
    "items": [{"id": n, "name": f"n{n}", "tags": ["a", "é"], "deep": {"x": [n, {"y": None}]}} for n in range(12)],
    "a.b": {"": [True, False, None, 1.5, -0.0, 10**25]},
}
_TEXT = ("line one\nLINE two é🐎\r\n\n" + "x" * 900 + "\n\0end").encode()
_PATHS = (
    *("$", "$..*", "$.items[*].name", "$['a.b']['']", "$.items[?@.id > 3].deep.x[-1:]", "$.items[::2, 0]", "$..[?@.y]"),
    *("$.items[?length(@.tags) == 2 && count(@..*) > 1]", "$[?@.a == $.b]", "$..[?value(@..id) < 3 || !@.x]"),
)
_PATTERNS = (
    *("line", "(?i)LINE", "^$", "x{3,}", "(a|b)*c", r"\bone\b", r"\pL+", "[^\\n]*", "(?m)^.*$", "(x+x+)+y"),
    *("x{1000}", "\0"),
    *("(?:" * 20 + ")" * 20, "é", r"\x{10FFFF}", "[[:alpha:]]", "", r"\Q.*\E", "(?P<n>a)", "(?s).", r"\C"),
)
_ODDMENTS = (
    *(b"..*", b"[?", b"@", b"$", b"[", b"]", b"(", b")", b"*", b"..", b"[*]", b"&&", b"||", b"==", b"!", b"'"),
    *(b"length(",),
    *(b"{2,999}", b"(?i)", b"\\p{Greek}", b"|", b"^", b"\\", b"[^", b"9" * 30, b"(" * 200, b"[?@" * 100, b"..[*]" * 20),
)


def make_wish(rng: Random) -> bytes:
    """A document, a path into it and a pattern, apart by a byte that UTF-8 does not have."""
    if rng.random() < 0.3:
        document = json_bytes(mutated_json(_DOCUMENT, ("items", "id", "a.b", ""), rng))
    else:
        document = rng.choice((json_bytes(_DOCUMENT), _TEXT, mutated(_TEXT, _ODDMENTS, [_TEXT], rng)))
    path, pattern = rng.choice(_PATHS).encode(), rng.choice(_PATTERNS).encode()
    if rng.random() < 0.8:
        path = mutated(path, _ODDMENTS, [text.encode() for text in _PATHS], rng)
    if rng.random() < 0.8:
        pattern = mutated(pattern, _ODDMENTS, [text.encode() for text in _PATTERNS], rng)
    return b"\xff".join(part.replace(b"\xff", b"") for part in (path, pattern, document))


def check_reading(data: bytes) -> None:
    path, pattern, body = ([*data.split(b"\xff"), b"", b""])[:3]
    body = body.decode("utf-8", "replace").encode()  # what is kept was a string before
    rng = seeded(data)
    try:
        found = select(body, path.decode("utf-8", "replace"), _fuse(4_000))
    except InvalidParams as problem:
        assert str(problem).startswith("path:") and len(str(problem)) < 1000
    else:
        lines = list(found.values)
        for line in lines:
            msgspec.json.decode(line)
    _check_grep(body, pattern.decode("utf-8", "replace"), rng)
    _check_pages(body, rng)


def _fuse(most: int) -> Callable[[], bool]:
    """Says that the time is over after so many questions, so that a check needs no clock. Paths ask every 64 nodes."""
    left = iter(range(most))
    return lambda: next(left, None) is None


def _check_grep(body: bytes, pattern: str, rng: Random) -> None:
    tokens, most = rng.choice((64, 1000, 8000)), rng.choice((1, 50))
    start, seen = 0, list[tuple[int, int]]()
    for _ in range(200):
        try:
            lines, following, _ = paging.grep(body, pattern, start, most, tokens, len, _fuse(1000))
        except InvalidParams as problem:
            assert str(problem).startswith("grep:") and len(str(problem)) < 1000
            return
        assert len(lines) <= most and sum(map(len, lines)) <= tokens
        for line in lines:
            number, offset, _ = line.split(":", 2)
            seen.append((int(number), int(offset)))
        if following is None:
            break
        assert start < following <= len(body) or not lines, "the search does not get on"
        if following == start:
            break  # not even one line fits
        start = following


def _check_pages(body: bytes, rng: Random) -> None:
    tokens, at, told = rng.choice((4, 60, 8000)), 0, 0
    for _ in range(100):
        if at >= len(body):
            break
        first = max(at - paging.MARGIN, 0)
        part = body[first : at + 16 * tokens + 8]
        text, start, end = paging.page(part, first, at, rng.choice((None, 1, 30)), tokens, len)
        assert start == at < end and body[start:end].decode() == text
        at, told = end, told + len(text)


# -- long results

_RESULT: Any = {
    "content": [
        {"type": "text", "text": "a line of text\n" * 200},
        {"type": "text", "text": json.dumps([{"id": n, "name": "x" * 20} for n in range(90)])},
        {"type": "resource", "resource": {"uri": "x:1", "text": "é🐎" * 300}},
        {"type": "image", "data": "AAAA", "mimeType": "image/png"},
    ],
    "structuredContent": {"rows": [[1, 2.50, "x"]] * 50},
    "isError": False,
}


def make_result(rng: Random) -> bytes:
    keys = ("content", "type", "text", "resource", "structuredContent", "isError")
    result = json_bytes(mutated_json(_RESULT, keys, rng))
    return result if rng.random() < 0.8 else mutated(result, [b'"text":', b"\\n", b"[", b"{"], [result], rng)


def check_cutting(data: bytes) -> None:
    limit = seeded(data).choice((LEAST, 400, 1000, 8000))
    data = data.decode("utf-8", "replace").encode()  # as every line is read
    made = cut(data, limit, len)
    if made is None:
        return
    msgspec.json.decode(made.result, type=dict[str, msgspec.Raw])
    kept = {one.id: one.body for one in made.documents}
    assert all(id_.encode() in made.result for id_ in kept), "what was cut is nowhere named"
    again = cut(data, limit, len)
    assert again is not None and again.result == made.result


CALL_TARGETS = (
    Target("cursors", make_names, check_cursors),
    Target("paging", make_wish, check_reading),
    Target("cutting", make_result, check_cutting),
)

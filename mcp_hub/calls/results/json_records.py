"""Finds an array in a JSON text, and the borders of its items. Pure."""

from typing import Final

import msgspec

from mcp_hub.globs import late

_SPACE: Final = late(rb"[ \t\r\n]*")
_BETWEEN: Final = late(rb"[ \t\r\n,]*")
_GAP: Final = b" \t\r\n,"
_MOST_COMMAS: Final = 2_000_000
"""Commas of a parsed text: each value costs some 80 bytes."""
_PLAIN: Final = late(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_DEPTH: Final = 8
"""Objects around an array."""
_MOST_KEY: Final = 64

_array = msgspec.json.Decoder(list[msgspec.Raw]).decode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Records(msgspec.Struct, frozen=True):
    """An array in a text: its place with brackets, lengths of items, JSON path."""

    body: bytes
    start: int
    end: int
    lengths: tuple[int, ...]
    path: str

    def head(self, limit: int) -> tuple[int, int]:
        """Number of first records before byte `limit`, and their end."""
        end, count = self.start + 1, 0
        for length in self.lengths:
            between = _BETWEEN.match(self.body, end, max(limit, end))
            at = between.end() if between else end
            if at + length > limit:
                break
            end, count = at + length, count + 1
        return count, end

    def tail(self, least: int) -> tuple[int, int]:
        """Number of last records from byte `least`, and their start."""
        start, count = self.end - 1, 0
        for length in reversed(self.lengths):
            at = start
            while at > least and self.body[at - 1] in _GAP:
                at -= 1
            if at - length < least:
                break
            start, count = at - length, count + 1
        return count, start


def json_records(body: bytes) -> Records | None:
    """The array that `body` is, or its largest member; else None."""
    start, end, path = 0, len(body), "$"
    if body.lstrip()[:1] not in (b"[", b"{") or body.count(b",") > _MOST_COMMAS:
        return None
    try:
        for _ in range(_DEPTH):
            space = _SPACE.match(body, start)
            start = space.end() if space else start
            if body[start : start + 1] == b"[":
                lengths = tuple(memoryview(item).nbytes for item in _array(memoryview(body)[start:end]))
                return Records(
                    body=body, start=start, end=body.rindex(b"]", start, end) + 1, lengths=lengths, path=path
                )
            if body[start : start + 1] != b"{":
                return None
            members = _object(memoryview(body)[start:end])
            name, value = max(members.items(), key=lambda member: memoryview(member[1]).nbytes)
            start = body.index(bytes(value), start, end)  # nothing that is as long can hold it
            end = start + memoryview(value).nbytes
            path += _step(name)
    except (ValueError, RecursionError):  # no JSON, or an object without members
        pass
    return None


def _step(name: str) -> str:
    if _PLAIN.fullmatch(name):
        return f".{name}"
    if len(name) > _MOST_KEY:
        raise ValueError("a member with a long name")
    return f"[{msgspec.json.encode(name).decode()}]"

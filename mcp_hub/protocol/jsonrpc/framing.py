"""Newline framing in linear time and bounded memory.

Source: specification, transports/stdio.
"""

import re
from binascii import a2b_base64
from collections.abc import Iterable
from typing import Final

import msgspec

_HEAD = 4096
"""Bytes kept of a line that is too long: enough to read its id, which every writer we know puts first."""


_SHORT: Final = 1 << 20
_LENGTH = re.compile(rb"\s*Content-(?:Length|Type)\s*:", re.IGNORECASE)


_WIDE, _WIDER, _QUOTED = "UTF-16 text", "UTF-32 text", "JSON with single quotes, as Python prints a dict"
_BASE64: Final = "messages in Base64"
UNREADABLE: Final = frozenset((_WIDE, _WIDER, _QUOTED, _BASE64))
"""Forms of lines that were surely meant for messages."""
_STRING: Final = re.compile(rb'"[^"]*"')
_WORD: Final = re.compile(rb"-?\d[\d.eE+-]*|true|false|null")
_OBJECT: Final = (b"ey", b"ew")
"""The first characters of an object in Base64."""
_BLANKS: Final = bytes.maketrans(b"{}[]:,", b"      ")


def depth(line: bytes) -> int | None:
    """Opening minus closing brackets in linear time; None if not part of JSON."""
    bare = _STRING.sub(b" ", line.replace(b"\\\\", b"").replace(b'\\"', b""))
    if not all(map(_WORD.fullmatch, set(bare.translate(_BLANKS).split()))):
        return None
    return bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")


def foreign(line: bytes) -> str | None:
    """The known format of an invalid line, if any."""
    head = line[:_HEAD]
    if b"\0" in head and b"jsonrpc" in (bare := head.replace(b"\0", b"")) and 3 * len(bare) < 2 * len(head):
        return _WIDE if 3 * len(bare) > len(head) else _WIDER
    if b"'jsonrpc'" in head:
        return _QUOTED
    if head.startswith(_OBJECT) and _is_answer_in_base64(line):
        return _BASE64
    if _LENGTH.match(line):
        return "Content-Length before each message, as language servers do"
    if head.lstrip()[:1] in (b"{", b'"') and line[-_HEAD:].rstrip()[-1:] in (b"{", b"[", b",", b":"):
        return "JSON over several lines"
    return None


def _is_answer_in_base64(line: bytes) -> bool:
    """Answers only: a request may be the hub's own, echoed by a log."""
    head = line.strip()[:_HEAD]
    try:
        text = a2b_base64(head[: len(head) // 4 * 4])
    except ValueError:
        return False
    return b'"jsonrpc"' in text and (b'"result"' in text or b'"error"' in text) and b'"method"' not in text


class TooLong(msgspec.Struct, frozen=True):
    """A line over the limit: its beginning, and size so far."""

    head: bytes
    size: int


def head_of(parts: Iterable[bytes]) -> bytes:
    """The first 4 KiB, without joining all parts."""
    head = b""
    for part in parts:
        head += part[: _HEAD - len(head)]
        if len(head) == _HEAD:
            break
    return head


class Framer:
    """Cuts chunks into non-blank lines.

    A line over `limit` bytes becomes one `TooLong` at once.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | TooLong]:
        """The lines completed by `chunk`."""
        if not (self._size or self._skipping) and len(chunk) <= self._limit and chunk[-1:] == b"\n":
            if chunk.find(b"\n") != len(chunk) - 1:
                return [line for line in chunk.split(b"\n") if line and not line.isspace()]
            line = chunk[:-1]  # one whole line, as a peer writes that waits for its answer
            return [line] if line and not line.isspace() else []
        first, *rest = chunk.split(b"\n")
        frames = self._keep(first)
        if rest:
            frames += self.finish()
            last = rest.pop()
            for line in rest:
                if len(line) > self._limit:
                    frames.append(TooLong(line[:_HEAD], len(line)))
                elif line and not line.isspace():
                    frames.append(line)
            frames += self._keep(last)
        return frames

    @property
    def rest(self) -> bytes:
        """The incomplete line; empty above 1 MiB."""
        return b"".join(self._parts) if self._size <= _SHORT else b""

    def finish(self) -> list[bytes | TooLong]:
        """Ends the stream; its unterminated line."""
        line = b"".join(self._parts)
        self._parts, self._size, self._skipping = [], 0, False
        return [line] if line and not line.isspace() else []

    def _keep(self, piece: bytes) -> list[bytes | TooLong]:
        if self._skipping or not piece:
            return []
        self._parts.append(piece)
        self._size += len(piece)
        if self._size <= self._limit:
            return []
        found = TooLong(head_of(self._parts), self._size)
        self._parts, self._size, self._skipping = [], 0, True
        return [found]

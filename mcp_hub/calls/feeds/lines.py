"""Topics of feeds, and the form of their lines and cursors. Pure.

A line has its time in Unix seconds, and an occurrence (`e`) or a `gap`, before which something may be missing.
"""

import re
from hashlib import blake2b
from typing import Final

import msgspec

from mcp_hub.errors import InvalidParams
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import CallId, RawJson, RawObject

RUNNING: Final = "run"
"""The idempotency key of the stream that is being written: one at a time."""
_PREFIX: Final = "\x1ffeed "
"""Begins the principal of a feed's streams; no principal of a client has a control character."""
MOST_ARGUMENTS: Final = 16 << 10
"""Bytes of a subscription's arguments."""
_CURSOR: Final = re.compile(r"(st_[0-9A-Z]{26})\.(\d{1,16})")


class Topic(msgspec.Struct, frozen=True):
    """The events of one subscription: a server's own `name`, canonical `arguments`, and the account that asks.

    `account` is a principal at servers with accounts, else empty.
    """

    server: str
    name: str
    arguments: bytes
    account: str = ""

    @property
    def key(self) -> str:
        """The principal of the feed's durable streams."""
        text = msgspec.json.encode([self.server, self.name, self.arguments.decode(), self.account])
        return _PREFIX + blake2b(text, digest_size=16).hexdigest()


def topic(server: str, name: str, arguments: RawJson, account: str = "") -> Topic:
    """Raises `InvalidParams` for arguments that are no object or too long."""
    if len(arguments) > MOST_ARGUMENTS:
        raise InvalidParams(f"arguments have over {MOST_ARGUMENTS} bytes")
    try:
        members = msgspec.json.decode(arguments)
        canonical = msgspec.json.encode(members, order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError) as problem:
        raise InvalidParams(f"arguments cannot be read: {problem}") from None
    if not isinstance(members, dict):
        raise InvalidParams("arguments must be an object")
    return Topic(server, name, canonical, account)


class _Line(msgspec.Struct, frozen=True):
    at: float = 0.0
    e: msgspec.Raw = msgspec.Raw(b"")
    gap: bool = False


def line_of(at: float, occurrence: RawObject) -> bytes:
    return msgspec.json.encode({"at": at, "e": occurrence})


def mark_line(at: float, *, gap: bool) -> bytes:
    """The first line of a durable stream, or a `gap`."""
    return msgspec.json.encode({"at": at, "gap": gap})


def read_line(text: bytes) -> tuple[float, RawObject | None, bool]:
    """Time, occurrence, and whether something may be missing before it; an unreadable line is a gap."""
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.DecodeError, RecursionError):
        return 0.0, None, True
    return line.at, (raw_object(line.e) if line.e else None), line.gap


def cursor_of(stream: CallId, seq: int) -> str:
    return f"{stream}.{seq}"


def cursor_in(text: str) -> tuple[CallId, int] | None:
    """The stream and the number of the last line that was read; None for no cursor of a feed."""
    match = _CURSOR.fullmatch(text)
    return None if match is None else (CallId(match[1]), int(match[2]))

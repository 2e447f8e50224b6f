"""Media types that a client accepts, and the POSTed message."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import anyio

from mcp_hub.fronts.http.response import ClientGone, Headers, HttpError, HttpExchange, Receive
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.jsonrpc.rpc_errors import PARSE_ERROR

COMPRESSED: Final = "The hub reads no compressed bodies. Send the body without Content-Encoding."
_HUGE: Final = 19
"""Digits of a Content-Length that no limit has."""
_QUALITY_ZERO: Final = re.compile(r"q\s*=\s*0?(?:\.0*)?")
_USUAL: Final = 200
"""Bytes of an Accept header whose meaning is remembered."""
_DISCARD: Final = 1.0
"""Seconds that the rest of a body over the limit is read and thrown away."""


def accepts(headers: Headers) -> tuple[bool, bool]:
    """Whether the client accepts JSON, and SSE; both without an Accept header."""
    accept = headers.get(b"accept", b"")
    return _json_and_sse(accept) if len(accept) <= _USUAL else _json_and_sse.__wrapped__(accept)


@lru_cache(maxsize=64)
def _json_and_sse(accept: bytes) -> tuple[bool, bool]:
    ranges = media_ranges(accept.decode("latin-1")) or {"*/*": True}
    return takes(ranges, "application/json"), takes(ranges, "text/event-stream")


def takes(ranges: Mapping[str, bool], media: str) -> bool:
    """Whether a media type's most specific range accepts it."""
    names = (media, media.partition("/")[0] + "/*", "*/*")
    return next((ranges[name] for name in names if name in ranges), False)


def media_ranges(accept: str) -> dict[str, bool]:
    """The ranges of an Accept header, False for quality 0 (RFC 9110 §12.5.1). `*` counts as `*/*`."""
    ranges: dict[str, bool] = {}
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        if media:
            is_taken = not any(_QUALITY_ZERO.fullmatch(parameter) for parameter in parameters)
            ranges["*/*" if media == "*" else media] = is_taken
    return ranges


def media_type(headers: Headers) -> bytes:
    return headers.get(b"content-type", b"").partition(b";")[0].strip(b" \t").lower()


def is_compressed(encoding: str) -> bool:
    return encoding.strip(" \t").lower() not in ("", "identity")


async def read_text(http: HttpExchange, max_body: int) -> bytes:
    """The body of a POST, on one line. Raises `HttpError` 415 and 413, `ClientGone`."""
    headers = http.headers
    if media_type(headers) != b"application/json":
        raise HttpError(415, "unsupported_media_type", "Content-Type must be application/json")
    if b"content-encoding" in headers and is_compressed(headers[b"content-encoding"].decode("latin-1")):
        raise HttpError(415, "unsupported_media_type", COMPRESSED)
    declared = headers.get(b"content-length", b"0")
    body = await read_body(http.receive, max_body) if len(declared) < _HUGE and int(declared) <= max_body else None
    if body is None:
        if b"expect" not in headers:  # else it waits for permission to send
            await discard(http.receive)
        reason = f"body over the limit of {max_body} bytes"
        raise HttpError(413, "body_too_large", reason, headers=[(b"connection", b"close")])
    return envelope.one_line(body)


def understood(text: bytes) -> Envelope:
    """The message in a body. Raises `HttpError` 400."""
    message = envelope.decode(text) if text else BadMessage(PARSE_ERROR, "empty body")
    if isinstance(message, BadMessage):
        raise HttpError(400, None, message.reason, message.code, id_=message.id)
    return message


async def read_body(receive: Receive, max_body: int) -> bytes | None:
    """A body; None if too long. Raises `ClientGone`."""
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise ClientGone
        part = event.get("body", b"")
        size += len(part)
        if size > max_body:
            return None
        parts.append(part)
        if not event.get("more_body"):
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def discard(receive: Receive) -> None:
    """Lets a client finish sending, so that it reads the response."""
    with anyio.move_on_after(_DISCARD):
        while (event := await receive())["type"] == "http.request" and event.get("more_body"):
            pass

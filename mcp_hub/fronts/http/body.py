"""Bodies over HTTP: which kinds a client takes, and the message that it POSTs, read within a limit."""

from collections.abc import Mapping
from typing import Final

import anyio

from mcp_hub.fronts.http.request import json_error
from mcp_hub.fronts.http.response import ClientGone, Receive, Send, respond
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST, PARSE_ERROR

_HUGE: Final = 19
"""Digits of a Content-Length that no limit has."""
_DISCARD: Final = 1.0
"""Seconds that the rest of a body over the limit is read and thrown away."""


def accepts(headers: Mapping[bytes, bytes]) -> tuple[bool, bool]:
    """Whether the client takes JSON, and SSE. No Accept header takes anything (RFC 9110 §12.5.1)."""
    accept = headers.get(b"accept")
    if accept is None:
        return True, True
    accept = accept.lower()
    anything = b"*/*" in accept
    return (
        anything or b"application/json" in accept or b"application/*" in accept,
        anything or b"text/event-stream" in accept or b"text/*" in accept,
    )


async def read_text(headers: Mapping[bytes, bytes], receive: Receive, send: Send, max_body: int) -> bytes | None:
    """The body of a POST, on one line; None after an error answer: 415, or 413.

    Raises `ClientGone`.
    """
    if not headers.get(b"content-type", b"").lower().startswith(b"application/json"):
        reason = "Content-Type must be application/json"
        await respond(send, 415, json_error(None, INVALID_REQUEST, reason, "unsupported_media_type"))
        return None
    declared = headers.get(b"content-length", b"0")
    body = await read_body(receive, max_body) if len(declared) < _HUGE and int(declared) <= max_body else None
    if body is None:
        if b"expect" not in headers:  # else it waits for permission to send
            await discard(receive)
        refusal = json_error(None, INVALID_REQUEST, f"body over the limit of {max_body} bytes", "body_too_large")
        await respond(send, 413, refusal, [(b"connection", b"close")])
    return body


async def understood(text: bytes, send: Send) -> Envelope | None:
    """The message that a body is; None after a 400 for what is none."""
    message = envelope.decode(text) if text else BadMessage(PARSE_ERROR, "empty body")
    if isinstance(message, BadMessage):
        await respond(send, 400, json_error(message.id, message.code, message.reason))
        return None
    return message


async def read_body(receive: Receive, max_body: int) -> bytes | None:
    """A body on one line (line breaks may only stand between tokens of JSON); None if it is too long.

    Raises `ClientGone`.
    """
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
    return envelope.one_line(parts[0] if len(parts) == 1 else b"".join(parts))


async def discard(receive: Receive) -> None:
    """Reads what a client still sends, for a moment: one that cannot finish sending would miss the answer."""
    with anyio.move_on_after(_DISCARD):
        while (event := await receive())["type"] == "http.request" and event.get("more_body"):
            pass

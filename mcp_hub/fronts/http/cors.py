"""Cross-origin requests of configured pages (Fetch standard, "CORS protocol"), without credentials."""

from collections.abc import MutableMapping
from typing import Any, Final

from mcp_hub.fronts.http.response import Fields, Headers, Send

_REQUESTED_METHOD: Final = b"access-control-request-method"
_REQUESTED_HEADERS: Final = b"access-control-request-headers"
_METHODS: Final = b"GET, POST, PUT, DELETE"
_EXPOSED: Final = b"Allow, Location, Mcp-Session-Id, Retry-After, WWW-Authenticate"
"""Headers of responses that a page may read besides the usual ones."""
_MAX_AGE: Final = b"600"
"""Seconds for which a browser remembers the answer to a preflight."""


def is_preflight(headers: Headers) -> bool:
    return _REQUESTED_METHOD in headers


def preflight(headers: Headers) -> Fields:
    """Response headers: all methods, and the page's headers."""
    fields = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-allow-headers", headers.get(_REQUESTED_HEADERS, b"")),
        (b"access-control-max-age", _MAX_AGE),
    ]
    if b"access-control-request-private-network" in headers:  # from a public page to an address of a private network
        fields.append((b"access-control-allow-private-network", b"true"))
    return fields


def readable(send: Send, origin: bytes) -> Send:
    """Sends responses that pages of this origin may read."""
    fields = [(b"access-control-allow-origin", origin), (b"access-control-expose-headers", _EXPOSED)]

    async def with_headers(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *fields, (b"vary", b"Origin")]}
        await send(message)

    return with_headers

"""Limits of one principal over HTTP, media types that a client accepts, and the POSTed message.

Nothing queues: a request over a limit is refused.
"""

import re
from collections import OrderedDict
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import anyio

from mcp_hub.clock import Clock
from mcp_hub.errors import Busy
from mcp_hub.fronts.http.response import ClientGone, Headers, HttpError, HttpExchange, Message, Receive
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope
from mcp_hub.protocol.jsonrpc.rpc_errors import PARSE_ERROR

_BURST: Final = 10
"""Seconds' worth that may come at once: clients all reconnect when a hub restarts."""
_MOST_PRINCIPALS: Final = 4096
"""Principals whose rates are remembered; a forgotten one starts anew."""
_LARGE: Final = 6
"""Digits of a Content-Length from which on a body is counted: 100,000 bytes."""


class Rate:
    """A limit per second and principal; 10 s' worth may come at once. 0: no limit."""

    def __init__(self, per_second: int, unit: str, setting: str, clock: Clock) -> None:
        self._per_second = per_second
        self._unit = unit
        self._setting = setting
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: str) -> None:
        """Raises `Busy`, 429 over HTTP."""
        if not self._per_second:
            return
        now = self._clock.now()
        capacity = float(self._per_second * _BURST)
        tokens, since = self._buckets.pop(principal, (capacity, now))
        tokens = min(tokens + (now - since) * self._per_second, capacity)
        self._buckets[principal] = (max(tokens - 1, 0.0) if tokens >= 1 else tokens), now
        if len(self._buckets) > _MOST_PRINCIPALS:
            self._buckets.popitem(last=False)
        if tokens < 1:
            reason = f"more than {self._per_second} {self._unit} a second"
            raise Busy.at(reason, self._setting, self._per_second, retry_after=1, is_rate=True)


class Admission:
    """Counts the principals' requests.

    Limits per principal: requests in flight, bytes of large bodies; per second: requests, sessions, operations.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        requests: int = 3072,
        bodies: int = 256 << 20,
        request_rate: int = 0,
        session_rate: int = 100,
        admin_rate: int = 1,
    ) -> None:
        self._most_requests = requests
        self._most_bytes = bodies
        self._request_rate = request_rate
        self._open: dict[str, int] = {}
        self._bytes: dict[str, int] = {}
        self._requests = Rate(request_rate, "requests", "hub.http.request_rate", clock)
        self.sessions = Rate(session_rate, "new sessions", "hub.http.session_rate", clock)
        self.restarts = Rate(admin_rate, "restarts", "admin_rate", clock)
        self.reloads = Rate(admin_rate, "reloads", "admin_rate", clock)

    @property
    def under_way(self) -> int:
        return sum(self._open.values())

    def enter(self, principal: str) -> None:
        """Counts a request until `leave`. Raises `Busy`."""
        under_way = self._open.get(principal, 0)
        limit = self._most_requests
        if under_way >= limit:
            reason = f"{limit} requests of this client are being answered"
            raise Busy.at(reason, "hub.http.requests_per_principal", limit)
        if self._request_rate:
            self._requests.take(principal)
        self._open[principal] = under_way + 1

    def leave(self, principal: str) -> None:
        """Ends a request."""
        in_flight = self._open[principal] - 1
        if in_flight:
            self._open[principal] = in_flight
        else:
            del self._open[principal]

    def body(self, principal: str, headers: Mapping[bytes, bytes], receive: Receive) -> "_Body | None":
        """Counts a body's bytes; None for a small body."""
        length = headers.get(b"content-length")
        is_small = len(length) < _LARGE if length is not None else b"transfer-encoding" not in headers
        return None if is_small else _Body(self._bytes, principal, self._most_bytes, receive)


class _Body:
    """A `Receive` that counts bytes for its principal until closed."""

    def __init__(self, counts: dict[str, int], principal: str, limit: int, receive: Receive) -> None:
        self._counts = counts
        self._principal = principal
        self._limit = limit
        self._receive = receive
        self._size = 0

    async def __call__(self) -> Message:
        """Raises `Busy`."""
        event = await self._receive()
        size = len(event.get("body", b""))
        total = self._counts.get(self._principal, 0) + size
        if total > self._limit:
            reason = f"the bodies of this client's requests have over {self._limit} bytes"
            raise Busy.at(reason, "hub.http.bodies_per_principal", self._limit)
        if size:
            self._counts[self._principal] = total
            self._size += size
        return event

    def close(self) -> None:
        total = self._counts.get(self._principal, 0) - self._size
        if total > 0:
            self._counts[self._principal] = total
        else:
            self._counts.pop(self._principal, None)


COMPRESSED: Final = "The hub reads no compressed bodies. Send the body without Content-Encoding."
_HUGE: Final = 19
"""Digits of a Content-Length that no limit has."""
_QUALITY_ZERO: Final = re.compile(r"q\s*=\s*0?(?:\.0*)?")
_USUAL: Final = 200
"""Bytes of an Accept header whose meaning is remembered."""
_DISCARD: Final = 1.0
"""Seconds that the rest of a body over the limit is read and thrown away."""


def accepts(headers: Headers) -> tuple[bool, bool]:
    """Whether JSON and SSE are accepted; both without an Accept header."""
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

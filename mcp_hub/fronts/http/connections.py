"""Limits of HTTP connections: number, slow requests, large heads, slow readers.

Deadlines are checked once a second, without timers. Refusals are problems (RFC 9457). Only this module knows uvicorn's
internals.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any, Final, Literal

import anyio
import httptools
import msgspec
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from mcp_hub.errors import Busy
from mcp_hub.fronts.http.response import TAKES_PARTS
from mcp_hub.types import JsonObject

if sys.platform != "win32":
    import resource

_SPARE: Final = 256
"""File descriptors for servers, stores and logs; and connections over the limit that get a response."""
_LEAST: Final = 64
_PIPELINED: Final = 16
"""Requests that may wait on a connection; above it, nothing is read."""
_VERSION: Final = b"HTTP/"
"""A part of each request's head."""
_IDLE: Final = 1.0
"""Seconds without a request after which a connection may have to make room for a new one."""
_TICK: Final = 1.0
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://([^/?#]*)")
"""A request target that names a host (RFC 9112 §3.2.2), as for a proxy."""


class _ConnectionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of `hub.http`. `stalled`: seconds without reading."""

    max_connections: int = 4096
    max_headers: int = 64 << 10
    header_timeout: float = 20.0
    body_timeout: float = 60.0
    stalled: float = 60.0


_Part = Literal["head", "body"]


class _Refused(Exception):
    """Ends the parsing of a refused request."""


class _Trailers(list[tuple[bytes, bytes]]):
    """Drops headers behind a body."""

    def append(self, header: tuple[bytes, bytes]) -> None:
        """Drops it."""


class _Flow(FlowControl):
    """Creates its event late: it holds 0.7 kB. `behind` is unparsed input."""

    behind = b""

    def __init__(self, transport: Any) -> None:
        super().__init__(transport)
        self._is_writable_event: Any = None

    def resume_reading(self) -> None:
        if self.read_paused and not self.behind:  # called twice for each request
            super().resume_reading()

    def pause_writing(self) -> None:
        if not self.write_paused:
            self.write_paused = True
            self._is_writable_event = anyio.Event()


class _Unread:
    """Measures how long nothing is read."""

    __slots__ = ("_bytes", "_since")

    def __init__(self, since: float) -> None:
        self._bytes = 0
        self._since = since

    def seconds(self, waiting: int, now: float) -> float:
        if not self._bytes or waiting < self._bytes:
            self._since = now
        self._bytes = waiting
        return now - self._since


class _Joined:
    """Sends a head with a length together with its body."""

    __slots__ = ("_head", "_transport", "is_closing")

    def __init__(self, transport: Any) -> None:
        self._transport = transport
        self._head = b""
        self.is_closing = transport.is_closing

    def write(self, data: bytes | Iterable[bytes | memoryview]) -> None:
        if not isinstance(data, bytes):  # as the scope allows
            self._transport.writelines((self._head, *data))
            self._head = b""
        elif self._head:
            self._transport.writelines((self._head, data))
            self._head = b""
        elif data.startswith(b"HTTP/1.1 ") and b"\r\ncontent-length: " in data:
            self._head = data
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._transport.write(self._head)
        self._transport.close()


class _Bounded(HttpToolsProtocol):
    """One connection. `since`: the start of waiting, head or body."""

    # in the instance's dict they would be too many for one that shares its keys: 1.5 kB a connection
    __slots__ = (
        "_is_surplus", "_is_upgrade", "_overhead", "_part", "_running", "_unread", "since",
    )  # fmt: skip
    limits = _ConnectionLimits()
    flow: _Flow

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.since = self.loop.time()
        self._part: _Part | None = "head"  # of a request that is being received
        self._overhead = 0  # bytes of the head, or since the last ones of the body: chunk extensions, trailers
        self._is_upgrade = self._is_surplus = False
        self._running: RequestResponseCycle | None = None
        self._unread = _Unread(self.since)

    @property
    def is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and (not cycle.response_complete or self.transport.get_write_buffer_size() > 0)

    # -- what comes (asyncio.Protocol) ----------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """Over the limit, refuses with 503."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        over = len(self.connections) - self.limits.max_connections
        if over > 0 and not _make_room(self.connections, self.loop.time()):
            self._is_surplus = True
            if over > _SPARE:
                transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Ends the request in progress."""
        running, self._running = self._running, None
        self.pipeline.clear()
        self.flow.behind = b""
        if running is not None and running is not self.cycle and not running.response_complete:
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Checks the head's size; pipelined requests wait."""
        self._unset_keepalive_if_required()
        is_much = self.pipeline or self.flow.behind or data.count(_VERSION) > _PIPELINED
        for part in self._parts(data) if is_much else (data,):
            if self._part is None:
                self._enter("head")
            self._overhead += len(part)
            try:
                self._feed(part)
            except httptools.HttpParserError as error:
                if not isinstance(error.__context__, _Refused):
                    self.refuse(400, "malformed_request", "this is not an HTTP/1.1 request")
            else:
                if self._overhead > self.limits.max_headers:
                    self._refuse_head()

    def _parts(self, data: bytes) -> Iterator[bytes]:
        if self.flow.behind:
            self.flow.behind += data
            return
        while data and not self.transport.is_closing():
            if len(self.pipeline) >= _PIPELINED:
                self.flow.behind = data
                self.flow.pause_reading()
                return
            end = _end_of_requests(data, _PIPELINED - len(self.pipeline))
            yield data[:end]
            data = data[end:]

    def _enter(self, part: _Part | None) -> None:
        self._part, self._overhead = part, 0
        if part is not None:
            self.since = self.loop.time()

    def _feed(self, data: bytes) -> None:
        """Ignores upgrades (RFC 9110 §7.8): Java asks for h2c."""
        while True:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if not self._is_upgrade:  # CONNECT, which has been answered
                    return
                head, self._is_upgrade = self._plain_head(), False
                self.parser = httptools.HttpRequestParser(self)
                data = head + data[upgrade.args[0] :]

    def _plain_head(self) -> bytes:
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                value = b", ".join(part for part in map(bytes.strip, value.split(b",")) if part.lower() != b"upgrade")
            if name != b"upgrade":
                lines.append(b"%b: %b" % (name, value))
        return b"\r\n".join((*lines, b"", b""))

    # -- what it is (callbacks of the parser) ---------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        """The body counts from here on."""
        if self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self._is_upgrade = True
            return
        if self._overhead > self.limits.max_headers:
            self._check_head()
        if self._is_surplus:
            limit = self.limits.max_connections
            busy = Busy.at(f"{limit} connections are open", "hub.http.max_connections", limit)
            self.refuse(503, "busy", str(busy), **(busy.data or {}))
            raise _Refused
        if len(self.pipeline) > _PIPELINED:  # of another protocol that the parser takes, too
            self.transport.close()
            raise _Refused
        if not self.url.startswith(b"/"):
            self._check_target()
        super().on_headers_complete()
        self.headers = _Trailers()
        self._enter("body")

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._overhead = 0
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._is_upgrade:
            return
        self._enter(None)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Reads what has waited."""
        if self._part != "body":
            self.since = self.loop.time()
        super().on_response_complete()
        if self.flow.behind and len(self.pipeline) < _PIPELINED:
            behind, self.flow.behind = self.flow.behind, b""
            self.since = self.loop.time()
            self.data_received(behind)
            self.flow.resume_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        if cycle.scope["method"] != "HEAD":  # such a head has no body to leave with
            joined: Any = _Joined(self.transport)
            cycle.transport = joined
            cycle.scope["extensions"] = {TAKES_PARTS: {}}
        super()._start_asgi_task(cycle, app)

    # -- what is too much -----------------------------------------------------------------------------------------

    def refuse(self, status: int, code: str, detail: str, **members: Any) -> None:
        """Closes the connection, with a problem if possible."""
        if self.transport.is_closing():
            return
        running = self._running
        if running is None or running.response_complete or not running.response_started:
            self.transport.write(_problem(status, code, detail, members))
        self.transport.close()

    def _check_head(self) -> None:
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self.limits.max_headers:
            self._refuse_head()
            raise _Refused

    def _check_target(self) -> None:
        match = _ABSOLUTE.match(self.url)
        if match is not None and dict(self.headers).get(b"host", b"").lower() != match[1].lower():
            self.refuse(421, "misdirected", "the request target names another host than the Host header")
            raise _Refused

    def _refuse_head(self) -> None:
        limit = self.limits.max_headers
        self._refuse_over(
            431, "head_too_large", f"request line and headers have over {limit} bytes", "max_headers", limit
        )

    def look(self, now: float) -> None:
        """Closes the connection if a deadline is over."""
        limits = self.limits
        limit = "header_timeout" if self._part == "head" else "body_timeout"
        seconds: float = getattr(limits, limit)
        if self._part is not None and not self.flow.behind and now - self.since > seconds:
            reason = f"the {self._part} of the request did not arrive within {seconds:g} s"
            self._refuse_over(408, "request_timeout", reason, limit, seconds)
        if self._unread.seconds(self.transport.get_write_buffer_size(), now) > limits.stalled:
            self.transport.abort()

    def _refuse_over(self, status: int, code: str, reason: str, limit: str, value: float) -> None:
        setting = f"hub.http.{limit}"
        self.refuse(status, code, f"{reason} ({setting})", limit=limit, value=value, setting=setting)


def _end_of_requests(data: bytes, limit: int) -> int:
    """The end of at most `limit` requests."""
    end = -1
    for _ in range(limit + 1):
        end = data.find(_VERSION, end + 1)
        if end < 0:
            return len(data)
    return end


def bounded(**limits: float) -> type[_Bounded]:
    """A protocol class for uvicorn's `http`; other limits are the usual ones."""
    return type("Bounded", (_Bounded,), {"limits": msgspec.convert(limits, _ConnectionLimits)})


async def look_after(connections: Iterable[Any]) -> None:
    """Checks each second until cancelled."""
    while True:
        await anyio.sleep(_TICK)
        now = anyio.current_time()
        for connection in list(connections):
            connection.look(now)


def affordable(connections: int) -> int:
    """Connections that the limit on open files allows."""
    if sys.platform != "win32":
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if limit != resource.RLIM_INFINITY:
            return min(connections, max(limit - _SPARE * 2, _LEAST))
    return connections


def _make_room(connections: Iterable[Any], now: float) -> bool:
    idle = [
        connection for connection in connections if not (connection.is_answering or connection.transport.is_closing())
    ]
    oldest = min(idle, key=lambda connection: connection.since, default=None)
    if oldest is None or now - oldest.since < _IDLE:
        return False
    oldest.transport.close()
    return True


def _problem(status: int, code: str, detail: str, members: JsonObject) -> bytes:
    title = HTTPStatus(status).phrase
    body = msgspec.json.encode({"title": title, "status": status, "code": code, "detail": detail, **members})
    retry = b"retry-after: %d\r\n" % members["retryAfter"] if "retryAfter" in members else b""
    return (
        b"HTTP/1.1 %d %b\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n%b"
        b"connection: close\r\n\r\n%b"
    ) % (status, title.encode(), len(body), retry, body)

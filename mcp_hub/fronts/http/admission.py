"""Limits of one principal over HTTP. Nothing queues: a request over a limit is refused."""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from mcp_hub.clock import Clock
from mcp_hub.errors import Busy
from mcp_hub.fronts.http.response import Message, Receive

_BURST: Final = 10
"""Seconds' worth that may come at once: clients all reconnect when a hub restarts."""
_MOST_PRINCIPALS: Final = 4096
"""Principals whose rates are remembered; a forgotten one starts anew."""
_LARGE: Final = 6
"""Digits of a Content-Length from which on a body is counted: 100,000 bytes."""


class TooFast(Busy):
    """Too many requests per second: 429 over HTTP."""


class Rate:
    """A limit per second and principal; 10 s' worth may come at once. 0: no limit."""

    def __init__(self, per_second: int, unit: str, setting: str, clock: Clock) -> None:
        self._per_second = per_second
        self._unit = unit
        self._setting = setting
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, principal: str) -> None:
        """Raises `TooFast`."""
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
            raise TooFast.at(reason, self._setting, self._per_second, retry_after=1)


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
        """Counts a request until `leave`. Raises `Busy`, `TooFast`."""
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
        """Ends the count."""
        total = self._counts.get(self._principal, 0) - self._size
        if total > 0:
            self._counts[self._principal] = total
        else:
            self._counts.pop(self._principal, None)

"""The resources that clients want watched and those that a server watches. No I/O.

After a gap each counts as updated once.
"""

from collections import Counter

import anyio

from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import Notices

log = get_logger(__name__)


class _SubscribeAttempt:
    """Its callers share the outcome."""

    def __init__(self) -> None:
        self._ended = anyio.Event()
        self._error: RpcError | None = None

    def settle(self, error: RpcError | None) -> None:
        self._error = error
        self._ended.set()

    async def outcome(self) -> None:
        await self._ended.wait()
        if self._error is not None:
            raise self._error


class WantedResources:
    """Resources by the server's URIs: `reference_counts` counts references, `watched` are confirmed."""

    def __init__(self, server: str, changes: Notices) -> None:
        self._server = server
        self._changes = changes
        self.reference_counts: Counter[str] = Counter()
        self._calls: dict[tuple[str, str], list[Call]] = {}
        self.watched: set[str] = set()
        self._attempts: dict[str, _SubscribeAttempt] = {}
        self._missed: set[str] = set()
        self._touched: set[str] = set()
        self._news = anyio.Event()

    @property
    def references(self) -> tuple[tuple[str, Call], ...]:
        return tuple((uri, call) for (uri, _), calls in self._calls.items() for call in calls)

    def want(self, uri: str, call: Call) -> None:
        """Adds a reference for the session of `call`."""
        self._calls.setdefault((uri, call.session), []).append(call)
        self.reference_counts[uri] += 1

    def release(self, uri: str, session: str) -> bool:
        """Drops a reference; False without one."""
        calls = self._calls.get((uri, session))
        if calls is None:  # it was taken before the server was disabled for a while
            return False
        calls.pop()
        if not calls:
            del self._calls[uri, session]
        self.reference_counts[uri] -= 1
        if not self.reference_counts[uri]:
            del self.reference_counts[uri]
            self._missed.discard(uri)
            self._touch(uri)
        return True

    def attempt(self, uri: str) -> _SubscribeAttempt:
        """Starts or joins one."""
        if uri not in self._attempts:
            self._attempts[uri] = _SubscribeAttempt()
            self._touch(uri)
        return self._attempts[uri]

    def attempt_missing(self) -> None:
        for uri in self.reference_counts.keys() - self.watched:
            self.attempt(uri)

    def is_due(self, uri: str) -> bool:
        return uri in self.reference_counts and uri not in self.watched and uri in self._attempts

    def settle(self, uri: str, error: RpcError | None = None) -> None:
        """Notes that the server watches, or refuses."""
        if error is None:
            self.watched.add(uri)
            if uri in self._missed:
                self._missed.discard(uri)
                self._changes.note((self._server, uri), uri)
        else:
            self.watched.discard(uri)
            log.info("upstream_subscription_refused", upstream=self._server, uri=hide_head(uri, 200), reason=str(error))
        self._end_attempt(uri, error)

    def drop(self, uri: str) -> None:
        self.watched.discard(uri)
        self._end_attempt(uri, None)

    def lapse(self) -> None:
        """Notes that the server stopped watching."""
        self._missed |= self.watched & self.reference_counts.keys()
        self.watched.clear()

    def fail(self, error: RpcError) -> None:
        for uri in list(self._attempts):
            self._end_attempt(uri, error)

    def _end_attempt(self, uri: str, error: RpcError | None) -> None:
        if uri in self._attempts:
            self._attempts.pop(uri).settle(error)

    def _touch(self, uri: str) -> None:
        self._touched.add(uri)
        self.wake()

    def wake(self) -> None:
        self._news.set()

    async def touched(self) -> set[str]:
        """Waits for changed URIs; empty if only woken."""
        await self._news.wait()
        self._news = anyio.Event()
        touched, self._touched = self._touched, set()
        return touched

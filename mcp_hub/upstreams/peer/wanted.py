"""The resources of one server that clients want to be watched, and those that the server watches. No I/O.

After a gap (a restart, a stream that broke) each wanted resource counts as updated once: it may have changed unseen.
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
    """One try to have a resource watched; all callers that wait for it share its outcome."""

    def __init__(self) -> None:
        self._done = anyio.Event()
        self._error: RpcError | None = None

    def settle(self, error: RpcError | None) -> None:
        self._error = error
        self._done.set()

    async def outcome(self) -> None:
        """Returns when the try succeeded. Raises its `RpcError`."""
        await self._done.wait()
        if self._error is not None:
            raise self._error


class WantedResources:
    """Resources of one server by its own URIs: `wanted` counts references, `watched` are those that it confirmed."""

    def __init__(self, server: str, changes: Notices) -> None:
        self._server = server
        self._changes = changes
        self.wanted: Counter[str] = Counter()
        self._calls: dict[tuple[str, str], list[Call]] = {}
        self.watched: set[str] = set()
        self._attempts: dict[str, _SubscribeAttempt] = {}
        self._missed: set[str] = set()
        self._touched: set[str] = set()
        self._news = anyio.Event()

    @property
    def references(self) -> tuple[tuple[str, Call], ...]:
        """Each reference: the resource, and a call of the session that wants it."""
        return tuple((uri, call) for (uri, _), calls in self._calls.items() for call in calls)

    def want(self, uri: str, call: Call) -> None:
        """Takes a reference for the session of `call`, which `release` gives back."""
        self._calls.setdefault((uri, call.session), []).append(call)
        self.wanted[uri] += 1

    def release(self, uri: str, session: str) -> bool:
        """Gives a reference of the session back; after the last one the subscription ends. False without one."""
        calls = self._calls.get((uri, session))
        if calls is None:  # it was taken before the server was disabled for a while
            return False
        calls.pop()
        if not calls:
            del self._calls[uri, session]
        self.wanted[uri] -= 1
        if not self.wanted[uri]:
            del self.wanted[uri]
            self._missed.discard(uri)
            self._touch(uri)
        return True

    def attempt(self, uri: str) -> _SubscribeAttempt:
        """Has the resource tried, unless that is under way."""
        if uri not in self._attempts:
            self._attempts[uri] = _SubscribeAttempt()
            self._touch(uri)
        return self._attempts[uri]

    def attempt_missing(self) -> None:
        """Has everything tried that is wanted and not watched."""
        for uri in self.wanted.keys() - self.watched:
            self.attempt(uri)

    def is_due(self, uri: str) -> bool:
        """Whether the server is to be asked to watch it."""
        return uri in self.wanted and uri not in self.watched and uri in self._attempts

    def settle(self, uri: str, error: RpcError | None = None) -> None:
        """The server watches the resource, or refuses to."""
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
        """No client wants it any more, and the server no longer watches it."""
        self.watched.discard(uri)
        self._end_attempt(uri, None)

    def lapse(self) -> None:
        """The server unexpectedly watches nothing any more."""
        self._missed |= self.watched & self.wanted.keys()
        self.watched.clear()

    def fail(self, error: RpcError) -> None:
        """Nothing can be tried any more."""
        for uri in list(self._attempts):
            self._end_attempt(uri, error)

    def _end_attempt(self, uri: str, error: RpcError | None) -> None:
        if uri in self._attempts:
            self._attempts.pop(uri).settle(error)

    def _touch(self, uri: str) -> None:
        self._touched.add(uri)
        self.wake()

    def wake(self) -> None:
        """Wakes the task that waits in `touched`."""
        self._news.set()

    async def touched(self) -> set[str]:
        """Waits for changed URIs and says which; none if it was only woken."""
        await self._news.wait()
        self._news = anyio.Event()
        touched, self._touched = self._touched, set()
        return touched

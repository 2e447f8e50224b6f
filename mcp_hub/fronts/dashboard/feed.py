"""`GET /api/feed`: news as an event stream, at most ten batches a second. Cursors are `epoch:seq`."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import anyio
import msgspec
from msgspec import UNSET, UnsetType

from mcp_hub.fronts.dashboard.ports import HubView, Login
from mcp_hub.fronts.http.response import KEEP_ALIVE, ClientGone, HttpResponse
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.masking import hide_head
from mcp_hub.protocol import sse
from mcp_hub.protocol.rest.overview import CallSummary, DashboardBatch, LoginNews
from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.sessions.session import Caller

MOST_FEEDS: Final = 32
"""Feeds of operators that are open at once, and as many of all other callers."""
EACH_FEEDS: Final = 8
"""Feeds of one principal that does not operate the hub."""
_LAST_FEEDS: Final = 8
"""The feeds, of the 32, that only principals without any other can open."""
_BATCH: Final = 0.1
"""Seconds between two batches."""
_SERVERS: Final = 10
"""Batches between two looks at the servers."""
_CURSOR: Final = re.compile(r"([0-9A-Za-z_-]{1,32}):([0-9]{1,15})")


class OpenFeeds:
    """Counts feeds: of operators, and of each other principal."""

    def __init__(self) -> None:
        self._operators = 0
        self.logins: dict[str, anyio.Event] = {}
        """Logins that wait, by server."""
        self._by_principal: Counter[str] = Counter()

    @contextmanager
    def opened(self, caller: Caller) -> Iterator[None]:
        """Counts a feed meanwhile. Raises `Problem` 503."""
        if caller.operates:
            if self._operators >= MOST_FEEDS:
                raise _busy(f"{MOST_FEEDS} dashboards are open already.")
            self._operators += 1
            try:
                yield
            finally:
                self._operators -= 1
            return
        self._enter(caller.principal)
        try:
            yield
        finally:
            self._by_principal -= Counter((caller.principal,))

    def _enter(self, principal: str) -> None:
        mine, free = self._by_principal[principal], MOST_FEEDS - self._by_principal.total()
        if mine >= EACH_FEEDS:
            raise _busy(f"{EACH_FEEDS} of your dashboards are open already. Close one of them.")
        if free <= (_LAST_FEEDS if mine else 0):
            raise _busy(f"{MOST_FEEDS - free} dashboards are open. The others are for those who have none.")
        self._by_principal[principal] = mine + 1


def _busy(reason: str) -> Problem:
    return Problem(503, "busy", reason, headers=((b"retry-after", b"5"),))


def feed_of(
    watched: HubView, caller: Caller, cursor: str, lasts: Callable[[], Awaitable[bool]] | None = None
) -> Callable[[HttpResponse], Coroutine[None, None, None]]:
    """Sends a caller's news as long as it `lasts`. Raises `Problem` 400 for a malformed cursor."""
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise Problem(400, "invalid_cursor", f"a cursor is an epoch and a number, not {hide_head(cursor, 50)!r}")
    return _Feed(watched, caller, epoch=match[1], seq=int(match[2]), lasts=lasts).send


class _Feed:
    """News for a caller."""

    def __init__(
        self, watched: HubView, caller: Caller, *, epoch: str, seq: int, lasts: Callable[[], Awaitable[bool]] | None
    ) -> None:
        self._watched = watched
        self._lasts = lasts
        self._caller = caller
        self._epoch, self._seq = epoch, seq
        self._live: list[CallSummary] | None = None  # the client's are not known: the first batch has them
        self._stamp: object = None
        self._rounds = 0

    async def send(self, response: HttpResponse) -> None:
        """Sends batches until the client leaves; `reset` if the cursor is too old."""
        await response.start()
        silent = 0.0
        while True:
            batch = await self._next()
            if batch is None:
                await response.end(b"event: reset\ndata: {}\n\n")
                return
            if batch != DashboardBatch():
                head = b"id: %s:%d\nevent: batch\ndata: " % (self._epoch.encode(), self._seq)
                await response.write(head + msgspec.json.encode(batch) + b"\n\n")
                silent = 0.0
            elif (silent := silent + _BATCH) >= KEEP_ALIVE:
                await response.write(sse.COMMENT)
                silent = 0.0
            await anyio.sleep(_BATCH)

    async def _next(self) -> DashboardBatch | None:
        if self._lasts is not None and self._rounds % _SERVERS == 0 and not await self._lasts():
            return None
        ended = self._watched.ended(self._caller, self._epoch, self._seq)
        if ended is None:
            return None
        self._seq = self._watched.position[1]
        live = self._watched.live(self._caller)
        is_same, self._live = live == self._live, live
        servers: ServerList | UnsetType = UNSET
        if self._rounds % _SERVERS == 0 and (stamp := self._watched.servers_stamp()) != self._stamp:
            self._stamp = stamp
            servers = await self._watched.servers(self._caller)
        self._rounds += 1
        tools = self._watched.tools if servers else UNSET
        return DashboardBatch(ended, UNSET if is_same else live, servers, tools)


async def send_login(login: Login, response: HttpResponse) -> None:
    """A client that leaves ends the login."""
    give, take = anyio.create_memory_object_stream[LoginNews](2)

    async def run() -> None:
        await give.send(await login(give.send))

    async with anyio.create_task_group() as tasks, give, take:
        tasks.start_soon(run)
        with suppress(ClientGone):
            await response.start()
            while True:
                news: LoginNews | None = None
                with anyio.move_on_after(KEEP_ALIVE):
                    news = await take.receive()
                if news is None:
                    await response.write(sse.COMMENT)
                    continue
                event = b"event: login\ndata: " + msgspec.json.encode(news) + b"\n\n"
                if news.type == "ended":
                    await response.end(event)
                    break
                await response.write(event)
        tasks.cancel_scope.cancel()

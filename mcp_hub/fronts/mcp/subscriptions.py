"""`subscriptions/listen` of a modern client, from the acknowledgement to the end.

Source: specification 2026-07-28, basic/patterns/subscriptions.
"""

from typing import Final

import anyio
import msgspec

from mcp_hub.errors import Busy, RpcError
from mcp_hub.fronts.mcp.announcer import Announcer
from mcp_hub.fronts.mcp.task_notices import MOST_TASKS, TaskNotices
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import notification_frame, object_bytes, result_frame
from mcp_hub.protocol.notifications import ACKNOWLEDGED, SUBSCRIPTION_ID, ListenFilter
from mcp_hub.sessions.session import Session
from mcp_hub.sessions.subscriptions import MOST_SUBSCRIPTIONS

log = get_logger(__name__)

_PATIENCE: Final = 10.0
"""Seconds that upstreams have to accept; the resources of those that take longer are not acknowledged."""


class ListenStream:
    """Notifications, pulled with `next` until `scope` is cancelled. The first `next` subscribes at servers."""

    def __init__(self, hub: HubPort, session: Session, id_: bytes, filter: ListenFilter) -> None:
        self.session = session
        self.scope = anyio.CancelScope()
        self.is_cancelled = False
        self._hub = hub
        self.id = id_
        self._filter = filter
        self._announcer = Announcer(hub, session, filter.list_methods, id_)
        self._tasks = TaskNotices(hub, session, self._meta()) if filter.taskIds else None
        self._speakers: list[Announcer | TaskNotices] = []
        self._is_acknowledged = False

    async def next(self) -> list[bytes]:
        """Waits for messages; repeats them until `sent`."""
        self._speakers = []
        if not self._is_acknowledged:
            return [await self._acknowledged()]
        if self._tasks is None:
            return await self._heard(self._announcer)
        frames: list[bytes] = []
        async with anyio.create_task_group() as tasks:

            async def hear(source: Announcer | TaskNotices) -> None:
                frames.extend(await self._heard(source))
                tasks.cancel_scope.cancel()

            tasks.start_soon(hear, self._announcer)
            tasks.start_soon(hear, self._tasks)
        return frames

    async def _heard(self, source: Announcer | TaskNotices) -> list[bytes]:
        frames = await source.next()
        self._speakers.append(source)
        return frames

    def sent(self) -> None:
        """Confirms the last `next`."""
        for source in self._speakers:
            source.sent()
        self._is_acknowledged = True

    def cancel(self) -> None:
        """Ends it without a response."""
        self.is_cancelled = True
        self.scope.cancel()

    def completed(self) -> bytes:
        """The response at the end ("Graceful Closure")."""
        return result_frame(self.id, object_bytes({"resultType": "complete", "_meta": self._meta()}))

    def close(self) -> None:
        """Ends the subscriptions."""
        if self._tasks is not None:
            self._tasks.close()
        self._hub.end(self.session)

    def _meta(self) -> dict[str, msgspec.Raw]:
        return {SUBSCRIPTION_ID: msgspec.Raw(self.id)}

    async def _acknowledged(self) -> bytes:
        """Honours resources whose servers accept in time."""
        uris = dict.fromkeys(self._filter.resourceSubscriptions)
        accepted: set[str] = set()
        watched = await self._tasks.watch(self._filter.taskIds) if self._tasks is not None else ()
        with anyio.move_on_after(_PATIENCE):
            async with anyio.create_task_group() as tasks:
                for uri in uris:
                    tasks.start_soon(self._subscribe, uri, accepted)
        honoured = tuple(uri for uri in uris if uri in accepted)
        granted = msgspec.structs.replace(self._filter, resourceSubscriptions=honoured, taskIds=watched)
        return notification_frame(ACKNOWLEDGED, object_bytes({"_meta": self._meta(), "notifications": granted}))

    async def _subscribe(self, uri: str, accepted: set[str]) -> None:
        try:
            await self._hub.subscribe(self.session, uri)
            accepted.add(uri)
        except RpcError as error:
            log.info("subscription_refused", uri=hide_head(uri, 200), reason=str(error))


class ListenStreams:
    """The open streams of all clients; `limit` per principal."""

    def __init__(self, hub: HubPort, limit: int) -> None:
        self._hub = hub
        self._limit = limit
        self._open: set[ListenStream] = set()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, session: Session, id_: bytes, filter: ListenFilter) -> ListenStream:
        """A new stream, to be closed. Raises `Busy`."""
        if len(filter.resourceSubscriptions) > MOST_SUBSCRIPTIONS:
            raise Busy(f"resourceSubscriptions has over {MOST_SUBSCRIPTIONS} URIs, the most that one stream may have")
        if len(filter.taskIds) > MOST_TASKS:
            raise Busy(f"taskIds has over {MOST_TASKS} ids, the most that one stream may have")
        of_client = [stream for stream in self._open if stream.session.caller.principal == session.caller.principal]
        if sum(not stream.scope.cancel_called for stream in of_client) >= self._limit:
            reason = f"{self._limit} subscriptions/listen streams are open, the most that one client may have"
            raise Busy.at(reason, "listens", self._limit)
        listening = ListenStream(self._hub, session, id_, filter)
        self._open.add(listening)
        return listening

    def close(self, listening: ListenStream) -> None:
        self._open.discard(listening)
        listening.close()

    def complete(self) -> None:
        """Ends all streams."""
        for listening in self._open:
            listening.scope.cancel()

"""`notifications/tasks`: changes of a `subscriptions/listen`, debounced.

Source: SEP-2663, "Task Status Notifications".
"""

from collections.abc import Iterable
from typing import Final

import anyio

from mcp_hub.call import Reader
from mcp_hub.errors import HubError
from mcp_hub.fronts.mcp.tasks import detailed_task
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import notification_frame, object_bytes
from mcp_hub.protocol.shape.tasks import NOTICE
from mcp_hub.sessions.session import Session
from mcp_hub.types import JsonObject, RawObject

log = get_logger(__name__)

MOST_TASKS: Final = 256
"""Tasks of one listen stream: more than one client may run."""
_DEBOUNCE: Final = 0.1
"""Seconds between a change and its notification: people do not read faster."""

_Face = tuple[str, str | None, tuple[str, ...]]
"""The parts of a task whose changes are announced: status, message, open questions."""


class _Watched:
    """One task's stream, and its last sent state."""

    def __init__(self, stream: StreamHandle, reader: Reader) -> None:
        self.stream = stream
        self.reader = reader
        self.sent: _Face | None = None
        self.latest: _Face | None = None


class TaskNotices:
    """One listener's tasks, pulled with `next`; a first state is sent, too. `stamp`: the `_meta` of notifications."""

    def __init__(self, hub: HubPort, session: Session, stamp: RawObject) -> None:
        self._hub = hub
        self._session = session
        self._stamp = stamp
        self._watched: dict[str, _Watched] = {}
        self._news = anyio.Event()
        self._changes = 0

    async def watch(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Adds tasks; returns those that are the client's."""
        caller = self._session.caller
        for id_ in dict.fromkeys(ids).keys() - self._watched.keys():
            try:
                stream = await self._hub.stream(caller.principal, id_, caller.profile)
                reader = stream.follow(self._wake, stream.info.last)
            except HubError as refused:
                log.info("task_not_listened_to", stream=hide_head(id_, 100), reason=str(refused))
            else:
                self._watched[id_] = _Watched(stream, reader)
        self._wake()
        return tuple(id_ for id_ in dict.fromkeys(ids) if id_ in self._watched)

    async def next(self) -> list[bytes]:
        """Waits for notifications; repeats them until `sent`."""
        while True:
            await self._news.wait()
            await anyio.sleep(_DEBOUNCE)
            seen = self._changes
            frames = [frame for id_ in list(self._watched) if (frame := await self._frame(id_)) is not None]
            if frames:
                return frames
            if seen == self._changes:
                self._news = anyio.Event()

    def sent(self) -> None:
        """Confirms the last `next`."""
        for watched in self._watched.values():
            watched.sent = watched.latest

    def close(self) -> None:
        """Ends listening; tasks without another client become orphans. Idempotent."""
        for id_ in list(self._watched):
            self._leave(id_)

    def _wake(self) -> None:
        self._changes += 1
        self._news.set()

    async def _frame(self, id_: str) -> bytes | None:
        """None if the task has not changed."""
        watched = self._watched[id_]
        try:
            _catch_up(watched.reader)
            row = watched.stream.info
            detailed = await detailed_task(self._hub, self._session, watched.stream)
        except HubError as problem:
            log.info("task_lost", stream=id_, reason=str(problem))
            self._leave(id_)
            return None
        watched.latest = face = _face(detailed)
        if face == watched.sent:
            if row.has_ended:
                self._leave(id_)
            return None
        return notification_frame(NOTICE, object_bytes({"_meta": self._stamp, **detailed}))

    def _leave(self, id_: str) -> None:
        watched = self._watched.pop(id_)
        watched.reader.close()
        watched.stream.let_go(is_last=True)


def _face(detailed: JsonObject) -> _Face:
    return detailed["status"], detailed.get("statusMessage"), tuple(detailed.get("inputRequests", ()))


def _catch_up(reader: Reader) -> None:
    """Only the current state counts. Raises the reader's `HubError`."""
    while reader.has_more:
        reader.take_entries()
    if reader.failed is not None:
        raise reader.failed

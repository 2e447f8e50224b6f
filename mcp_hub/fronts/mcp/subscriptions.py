"""Changes for one client: lists and resources, pulled, compared by content and debounced, and tasks.

`subscriptions/listen` of a modern client (specification 2026-07-28, basic/patterns/subscriptions).
"""

import sys
from collections.abc import Iterable, Iterator
from time import perf_counter
from typing import Final

import anyio
import msgspec

from mcp_hub.call import Reader
from mcp_hub.errors import Busy, HubError, RpcError
from mcp_hub.fronts.limits import LISTENS
from mcp_hub.fronts.mcp.events import EventStream, Opening
from mcp_hub.fronts.mcp.tasks import detailed_task
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import Origin
from mcp_hub.protocol.jsonrpc.envelope import id_key, notification_frame, object_bytes, raw_object, result_frame
from mcp_hub.protocol.notifications import ACKNOWLEDGED, SUBSCRIPTION_ID, UPDATED, ListenFilter, list_changed
from mcp_hub.protocol.shape.occurrences import exhausted
from mcp_hub.protocol.shape.tasks import NOTICE
from mcp_hub.sessions.session import MOST_SUBSCRIPTIONS, Session
from mcp_hub.types import JsonObject, Kind, RawObject

_DEBOUNCE: Final = 0.05
"""Seconds between a change and its announcement: servers come up together, resources change in bursts."""
_LONGEST: Final = 1.0
_SHARE: Final = 0.05
"""The share of time in which lists are compared while they keep changing, at most `_LONGEST` seconds apart."""
EVERY_LIST: Final = frozenset(map(list_changed, Kind))

log = get_logger(__name__)

MOST_TASKS: Final = 256
"""Tasks of one listen stream: more than one client may run."""
_GATHERING: Final = 0.1
"""Seconds between a change of a task and its notification: people do not read faster."""
_Face = tuple[str, str | None, tuple[str, ...]]
"""The parts of a task whose changes are announced: status, message, open questions."""
_PATIENCE: Final = 10.0
"""Seconds that upstreams have to accept; the resources of those that take longer are not acknowledged."""


class Announcer:
    """Announces lists of `methods` and subscriptions. `stamp`: the id of a `subscriptions/listen`."""

    def __init__(
        self, hub: HubPort, session: Session, methods: frozenset[str] = EVERY_LIST, stamp: bytes | None = None
    ) -> None:
        self._hub = hub
        self._session = session
        self._methods = methods
        self._stamp: RawObject = {} if stamp is None else {SUBSCRIPTION_ID: msgspec.Raw(stamp)}
        self._position = hub.changes.version, hub.changes.noted
        self._lists = session.offer.follow(self._digests())
        self._unsent: tuple[dict[Kind, int], tuple[int, int]] = {}, self._position
        self._due = 0.0

    async def next(self) -> list[bytes]:
        """Waits for notifications; repeats them until `sent`."""
        while True:
            is_due = await self._changed_or_noted()
            version, position = self._position[0], (self._hub.changes.version, self._hub.changes.noted)
            lists = self._unsent[0]
            if is_due:
                lists = self._compared() if position[0] != version else {}
            self._unsent = lists, position if is_due else (version, position[1])
            messages = self._hub.changes.messages(self._session.id, self._position[1])
            frames = [*self._changed(lists), *self._updated(), *messages]
            if frames:
                return frames
            self.sent()

    async def _changed_or_noted(self) -> bool:
        """Waits for a notice, or for the time to compare changed lists, which it then returns."""
        changes, (version, noted) = self._hub.changes, self._position
        await changes.wait_any(version, noted)
        if not changes.messages(self._session.id, noted):
            await anyio.sleep(_DEBOUNCE)
        pause = self._due - perf_counter()
        if changes.version == version or pause <= 0:
            return True
        with anyio.move_on_after(pause) as scope:
            await changes.wait_any(sys.maxsize, noted)
        return scope.cancelled_caught

    def _compared(self) -> dict[Kind, int]:
        began = perf_counter()
        lists = self._digests()
        ended = perf_counter()
        self._due = ended + min((ended - began) / _SHARE, _LONGEST)
        return lists

    def sent(self) -> None:
        """Confirms the last `next`."""
        lists, self._position = self._unsent
        self._lists.update(lists)
        self._unsent = {}, self._position

    def _digests(self) -> dict[Kind, int]:
        return {kind: self._hub.views.digest(self._session, kind) for kind in Kind}

    def _changed(self, lists: dict[Kind, int]) -> Iterator[bytes]:
        methods = {list_changed(kind): None for kind, digest in lists.items() if digest != self._lists[kind]}
        params = object_bytes({"_meta": self._stamp}) if self._stamp else None
        return (notification_frame(method, params) for method in methods if method in self._methods)

    def _updated(self) -> Iterator[bytes]:
        noted = self._position[1]
        for origin, subscribed in self._session.subscriptions.items():
            for uri, params in self._hub.subscriptions.updates(self._session, origin, noted):
                if (exported := self._exported_uri(origin, subscribed, uri)) is not None:
                    yield notification_frame(UPDATED, self._readdressed(exported, params))

    def _exported_uri(self, origin: Origin, subscribed: str, uri: str) -> str | None:
        """The client's URI of a resource; None if it may not read it."""
        server, original = origin
        view = self._hub.views.of(self._session)
        if uri != original or view.resolve_uri(subscribed) != origin:
            subscribed = view.exported_uri(server, uri)
        return subscribed if view.resolve_uri(subscribed) == (server, uri) else None

    def _readdressed(self, exported: str, params: bytes) -> bytes:
        members = raw_object(params) or {}
        meta = raw_object(members.pop("_meta", msgspec.UNSET)) or {}
        meta.pop(SUBSCRIPTION_ID, None)
        meta.update(self._stamp)
        readdressed = {**members, "uri": msgspec.Raw(object_bytes(exported))}
        return object_bytes({"_meta": meta, **readdressed} if meta else readdressed)


class _Watched:
    def __init__(self, stream: StreamHandle, reader: Reader) -> None:
        self.stream = stream
        self.reader = reader
        self.sent: _Face | None = None
        self.latest: _Face | None = None


class _TaskNotices:
    """One listener's tasks, also their first state. `stamp`: the `_meta` of notifications."""

    def __init__(self, hub: HubPort, session: Session, stamp: RawObject) -> None:
        self._hub = hub
        self._session = session
        self._stamp = stamp
        self._watched: dict[str, _Watched] = {}
        self._news = anyio.Event()
        self._changes = 0

    async def watch(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Adds tasks; returns the client's."""
        caller = self._session.caller
        for id_ in dict.fromkeys(ids).keys() - self._watched.keys():
            try:
                stream = await self._hub.durable.open(caller.principal, id_, caller.profile)
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
            await anyio.sleep(_GATHERING)
            seen = self._changes
            frames = [frame for id_ in list(self._watched) if (frame := await self._frame(id_)) is not None]
            if frames:
                return frames
            if seen == self._changes:
                self._news = anyio.Event()

    def sent(self) -> None:
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


class _ListenStream:
    """Notifications, pulled with `next` until `scope` is cancelled. The first `next` subscribes at servers."""

    def __init__(self, hub: HubPort, session: Session, id_: bytes, filter: ListenFilter) -> None:
        self.session = session
        self.scope = anyio.CancelScope()
        self.is_cancelled = False
        self._hub = hub
        self.id = id_
        self._filter = filter
        self._announcer = Announcer(hub, session, filter.list_methods, id_)
        self._tasks = _TaskNotices(hub, session, self._meta()) if filter.taskIds else None
        self._speakers: list[Announcer | _TaskNotices] = []
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

            async def hear(source: Announcer | _TaskNotices) -> None:
                frames.extend(await self._heard(source))
                tasks.cancel_scope.cancel()

            tasks.start_soon(hear, self._announcer)
            tasks.start_soon(hear, self._tasks)
        return frames

    async def _heard(self, source: Announcer | _TaskNotices) -> list[bytes]:
        frames = await source.next()
        self._speakers.append(source)
        return frames

    def sent(self) -> None:
        for source in self._speakers:
            source.sent()
        self._is_acknowledged = True

    def cancel(self) -> None:
        self.is_cancelled = True
        self.scope.cancel()

    def completed(self) -> bytes:
        """The response at the end ("Graceful Closure")."""
        return result_frame(self.id, object_bytes({"resultType": "complete", "_meta": self._meta()}))

    def close(self) -> None:
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


Listening = _ListenStream | EventStream
"""A request whose answer is a stream of notifications."""


class ListenStreams:
    """The open streams of all clients."""

    def __init__(self, hub: HubPort) -> None:
        self._hub = hub
        self._open: set[Listening] = set()
        self._is_complete = False

    def __len__(self) -> int:
        return len(self._open)

    def open(self, session: Session, id_: bytes, filter: ListenFilter | Opening) -> Listening:
        """A new stream, to be closed. Raises `Busy`, and the extension's ResourceExhausted."""
        listening = self._opened(session, id_, filter)
        if self._is_complete:  # the hub stops
            listening.scope.cancel()
        return listening

    def _opened(self, session: Session, id_: bytes, filter: ListenFilter | Opening) -> Listening:
        if not isinstance(filter, ListenFilter):
            return self._add(filter(id_))
        if len(filter.resourceSubscriptions) > MOST_SUBSCRIPTIONS:
            raise Busy(f"resourceSubscriptions has over {MOST_SUBSCRIPTIONS} URIs, the most that one stream may have")
        if len(filter.taskIds) > MOST_TASKS:
            raise Busy(f"taskIds has over {MOST_TASKS} ids, the most that one stream may have")
        if self._count(session, _ListenStream) >= LISTENS:
            reason = f"{LISTENS} subscriptions/listen streams are open, the most that one client may have"
            raise Busy.at(reason, "listens", LISTENS)
        listening = _ListenStream(self._hub, session, id_, filter)
        self._open.add(listening)
        return listening

    def _add(self, stream: EventStream) -> EventStream:
        if self._count(stream.session, EventStream) >= LISTENS:
            stream.close()
            raise exhausted("streams", LISTENS)
        self._open.add(stream)
        return stream

    def _count(self, session: Session, kind: type[Listening]) -> int:
        principal = session.caller.principal
        of_client = [
            each for each in self._open if isinstance(each, kind) and each.session.caller.principal == principal
        ]
        return sum(not stream.scope.cancel_called for stream in of_client)

    def cancel(self, session: Session, key: int | str | None) -> None:
        """Ends the streams of a handshake session's request."""
        for stream in self._open:
            if stream.session is session and id_key(stream.id) == key:
                stream.cancel()

    def close(self, listening: Listening) -> None:
        self._open.discard(listening)
        listening.close()

    def complete(self) -> None:
        """Ends all streams, also those opened afterwards."""
        self._is_complete = True
        for listening in self._open:
            listening.scope.cancel()

"""Keeps the subscriptions at one server equal to its clients', over all its connections.

Source: specification 2025-11-25, server/resources "Subscriptions".
"""

from typing import Final

import anyio
import anyio.abc
import msgspec

from mcp_hub.call import Call, Heard
from mcp_hub.errors import DeadlineExceeded, InvalidParams, RpcError, UpstreamLost, method_not_found
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import Notices
from mcp_hub.protocol.definitions.messages import repaired_params
from mcp_hub.protocol.jsonrpc.envelope import id_key, object_bytes, raw_object, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import METHOD_NOT_FOUND
from mcp_hub.protocol.notifications import (
    ACKNOWLEDGED,
    CANCELLED,
    OF_EVENTS,
    SUBSCRIPTION_ID,
    UPDATED,
    ListenFilter,
    covering,
)
from mcp_hub.types import Era, Kind, RawJson, RawObject
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.wanted import WantedResources
from mcp_hub.wire.base import Pending

log = get_logger(__name__)

_FIRST: Final = 1.0
"""Seconds to wait for the first acknowledgement before the lists are read."""
_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds until a failed stream is tried again; doubled up to the second."""
_HEALTHY: Final = 60.0
"""Seconds after which the end of a stream is not a failure."""
_NOTHING: Final = ListenFilter()


class _Listen:
    """`granted` is None until acknowledged; `settled` also marks the end."""

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.scope = anyio.CancelScope()
        self.since = anyio.current_time()
        self.settled = anyio.Event()
        self.granted: frozenset[str] | None = None
        self.error: RpcError | None = None
        self.has_ended = False


class _ByListen:
    """Subscriptions over one connection. `timeout`: seconds for an acknowledgement."""

    def __init__(self, peer: Peer, resources: WantedResources, timeout: float) -> None:
        self._peer = peer
        self._resources = resources
        self._timeout = timeout
        self._requested = _NOTHING
        self._current: _Listen | None = None
        self._by_id: dict[int | str, _Listen] = {}
        self._is_refused = False
        self._pause = _PAUSE
        self._has_gap = False
        """Lists may have changed unseen since they were read."""
        self._tasks: anyio.abc.TaskGroup

    async def run(self, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Works until cancelled; counts as started when lists may be read."""
        first = anyio.Event()
        async with anyio.create_task_group() as self._tasks:
            self._tasks.start_soon(self._keep_open, first)
            with anyio.move_on_after(_FIRST):
                await first.wait()
            self._has_gap |= not first.is_set()
            task_status.started()

    def on_notice(self, method: str, params: RawObject) -> None:
        if method == CANCELLED:
            listen = self._named(params.get("requestId"))
            if listen is not None:
                listen.scope.cancel()
        elif method == ACKNOWLEDGED:
            meta = raw_object(params.get("_meta", msgspec.UNSET)) or {}
            listen = self._named(meta.get(SUBSCRIPTION_ID))
            if listen is not None and listen.granted is None:
                acknowledged = read_as(params.get("notifications", b""), ListenFilter)
                listen.granted = frozenset(acknowledged.resourceSubscriptions if acknowledged is not None else ())
                listen.settled.set()

    def _named(self, id_: msgspec.Raw | None) -> _Listen | None:
        return self._by_id.get(id_key(bytes(id_))) if id_ is not None else None

    async def _keep_open(self, first: anyio.Event) -> None:
        is_due = False
        while True:
            listen_filter = self._filter()
            if is_due or listen_filter != self._requested:
                await self._replace(listen_filter)
            first.set()
            touched: set[str] = set()
            with anyio.move_on_after(self._next_pause()) as waiting:
                touched = await self._resources.touched()
            for uri in touched - self._resources.reference_counts.keys():
                self._resources.drop(uri)
            is_due = waiting.cancelled_caught or any(map(self._resources.is_due, touched))
            if self._current is not None and self._current.has_ended:
                self._lapse(self._current)
                self._current = None

    def _filter(self) -> ListenFilter:
        info = self._peer.info
        tools, prompts, resources = (info.announces(name, "listChanged") for name in ("tools", "prompts", "resources"))
        uris = tuple(sorted(self._resources.reference_counts)) if info.can_watch else ()
        return ListenFilter(tools, prompts, resources, uris, eventsListChanged=info.announces_events)

    def _next_pause(self) -> float | None:
        if self._current is not None or self._requested == _NOTHING or self._is_refused:
            return None
        pause, self._pause = self._pause, min(2 * self._pause, _LONGEST_PAUSE)
        return pause

    def _lapse(self, ended: _Listen) -> None:
        log.info("upstream_listen_ended", upstream=self._peer.name, reason=str(ended.error or "ended by the server"))
        if anyio.current_time() - ended.since > _HEALTHY:
            self._pause = _PAUSE
        self._has_gap = True
        self._resources.lapse()

    async def _replace(self, listen_filter: ListenFilter) -> None:
        """Keeps the old stream if the new one fails."""
        old, self._requested = self._current, listen_filter
        try:
            fresh = await self._open(listen_filter) if listen_filter != _NOTHING else None
        except RpcError as error:
            self._failed(listen_filter, error)
            return
        granted = fresh.granted if fresh is not None and fresh.granted is not None else ()
        self._is_refused = False
        self._current = fresh
        if old is not None:
            if old.has_ended:
                self._lapse(old)
            old.scope.cancel()
        for uri in listen_filter.resourceSubscriptions:
            refused = InvalidParams(
                f'server "{self._peer.name}" does not watch {hide_head(uri, 500)}.', data={"uri": uri}
            )
            self._resources.settle(uri, None if uri in granted else refused)
        if self._has_gap and listen_filter.list_methods:
            self._has_gap = False
            self._peer.messages.list_changes.announce(Kind)

    async def _open(self, listen_filter: ListenFilter) -> _Listen:
        params = {"notifications": msgspec.Raw(object_bytes(listen_filter))}
        listen = _Listen(self._peer.send("subscriptions/listen", params))
        self._by_id[listen.pending.id] = listen
        self._tasks.start_soon(self._until_end, listen)
        with anyio.move_on_after(self._timeout):
            await listen.settled.wait()
        if listen.granted is not None:
            return listen
        listen.scope.cancel()
        text = f'server "{self._peer.name}" did not acknowledge subscriptions/listen within {self._timeout:g} s.'
        raise listen.error or DeadlineExceeded(text)

    async def _until_end(self, listen: _Listen) -> None:
        try:
            with listen.scope:
                await self._peer.answer(listen.pending)
        except RpcError as error:
            listen.error = error
        finally:
            del self._by_id[listen.pending.id]
            listen.has_ended = True
            listen.settled.set()
            self._resources.wake()

    def _failed(self, listen_filter: ListenFilter, error: RpcError) -> None:
        log.warning("upstream_listen_failed", upstream=self._peer.name, reason=str(error))
        self._is_refused = error.code == METHOD_NOT_FOUND
        self._has_gap |= self._current is None
        for uri in set(listen_filter.resourceSubscriptions) - self._resources.watched:
            self._resources.settle(uri, error)


_AT_ONCE: Final = 16
"""Requests to one handshake server at a time; each resource has at most one under way."""
_RETRY: Final = 30.0
"""Seconds until a handshake server is asked again for what it refused after a restart."""


class ServerSubscriptions:
    """The subscriptions of one server to wanted `resources`; an `Observer`."""

    def __init__(self, server: str, changes: Notices) -> None:
        self.resources = WantedResources(server, changes)
        self._server = server
        self._changes = changes
        self._peer: Peer | None = None
        self._listen: _ByListen | None = None
        self._heard: dict[int | str, Heard] = {}

    async def confirmed(self, uri: str) -> None:
        """Waits until the server watches a resource. Raises `RpcError`, also `method_not_found`."""
        if uri in self.resources.watched:
            return
        if self._peer is None:
            raise self._gone()
        if not self._peer.info.can_watch:
            raise method_not_found(f'server "{self._server}" does not support subscriptions to its resources.')
        await self.resources.attempt(uri).outcome()

    @property
    def are_asked(self) -> bool:
        """Whether a subscription to events is open."""
        return bool(self._heard)

    async def ask(self, peer: Peer, call: Call, heard: Heard | None) -> RawJson:
        """An `Upstream.ask` over one connection."""
        pending = peer.send(call.method, call.params)
        if heard is not None:
            self._heard[pending.id] = heard
        try:
            return await peer.answer(pending)
        finally:
            self._heard.pop(pending.id, None)

    async def follow(self, peer: Peer, patience: float, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Works until cancelled; each response may take `patience` seconds.

        Counts as started when lists may be read.
        """
        self._peer = peer
        if peer.info.can_watch:
            self.resources.attempt_missing()
        try:
            if peer.info.era is Era.MODERN:
                self._listen = _ByListen(peer, self.resources, patience)
                await self._listen.run(task_status)
            else:
                task_status.started()
                await _ByRequest(peer, self.resources, patience).run()
        finally:
            self._peer = self._listen = None
            self.resources.lapse()
            self.resources.fail(self._gone())

    def on_notice(self, method: str, params: RawObject) -> None:
        if method == UPDATED:
            self._updated(params)
        elif method in OF_EVENTS:
            self._take_event(method, params)
        elif self._listen is not None:
            self._listen.on_notice(method, params)

    def _take_event(self, method: str, params: RawObject) -> None:
        meta = raw_object(params.get("_meta", msgspec.UNSET)) or {}
        raw = meta.get(SUBSCRIPTION_ID)
        heard = None if raw is None else self._heard.get(id_key(bytes(raw)))
        if heard is not None:
            heard(method, params)

    def _updated(self, params: RawObject) -> None:
        uri = read_as(params.get("uri", b""), str)
        if uri is not None:
            for whole in self.resources.reference_counts.keys() & covering(uri):
                self._changes.note((self._server, whole), uri, object_bytes(repaired_params(UPDATED, params)))

    def _gone(self) -> UpstreamLost:
        return UpstreamLost(f'server "{self._server}" lost its connection.')


class _ByRequest:
    """`timeout`: seconds for a response."""

    def __init__(self, peer: Peer, resources: WantedResources, timeout: float) -> None:
        self._peer = peer
        self._resources = resources
        self._timeout = timeout
        self._limit = anyio.CapacityLimiter(_AT_ONCE)
        self._busy: set[str] = set()
        self._sent: set[str] = set()
        """Resources that the server may watch, confirmed or not."""

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._retry)
            while True:
                for uri in await self._resources.touched() - self._busy:
                    self._busy.add(uri)
                    tasks.start_soon(self._align, uri)

    async def _retry(self) -> None:
        while True:
            await anyio.sleep(_RETRY)
            if self._peer.info.can_watch:
                self._resources.attempt_missing()

    async def _align(self, uri: str) -> None:
        try:
            async with self._limit:
                while True:
                    if self._resources.is_due(uri):
                        self._sent.add(uri)
                        error = await self._ask("resources/subscribe", uri)
                        if error is not None and error.raw is not None:  # refused by the server: it does not watch
                            self._sent.discard(uri)
                        self._resources.settle(uri, error)
                    elif uri not in self._resources.reference_counts and uri in self._sent:
                        self._sent.discard(uri)
                        self._resources.drop(uri)
                        await self._ask("resources/unsubscribe", uri)
                    else:
                        break
                if uri not in self._resources.reference_counts:
                    self._resources.drop(uri)
        finally:
            self._busy.discard(uri)

    async def _ask(self, method: str, uri: str) -> RpcError | None:
        try:
            with anyio.move_on_after(self._timeout):
                await self._peer.answer(self._peer.send(method, {"uri": msgspec.Raw(object_bytes(uri))}))
                return None
        except RpcError as error:
            return error
        return DeadlineExceeded(f'server "{self._peer.name}" did not answer {method} within {self._timeout:g} s.')

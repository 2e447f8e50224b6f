"""The methods of MCP Events (SEP-3415), and the stream of notifications that `events/stream` opens."""

from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.errors import RpcError, StoreError, method_not_found
from mcp_hub.hub import HubPort
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, result_frame
from mcp_hub.protocol.notifications import HOOK, SUBSCRIPTION_ID
from mcp_hub.protocol.shape.occurrences import EventParams, delivered, error_member, event_frame, event_params
from mcp_hub.sessions.session import Session
from mcp_hub.types import RawObject

if TYPE_CHECKING:
    from mcp_hub.hub import FeedReader

HEARTBEAT: Final = 25.0
"""Seconds without a message after which one says that the stream is alive."""
_AT_ONCE: Final = 256
"""Occurrences that are written together."""


class EventStream:
    """The notifications of one `events/stream`, pulled with `next` until `scope` is cancelled."""

    def __init__(self, hub: HubPort, session: Session, params: EventParams, reader: "FeedReader", id_: bytes) -> None:
        self.session = session
        self.id = id_
        self.scope = anyio.CancelScope()
        self.is_cancelled = False
        self._hub = hub
        self._params = params
        self._reader = reader
        self._unsent: list[bytes] = []
        self._state = _State()

    async def next(self) -> list[bytes]:
        """Waits for messages; repeats them until `sent`."""
        while not self._unsent:
            if self._state.is_over:
                self.scope.cancel()
                await anyio.lowlevel.checkpoint()
            self._unsent = await self._frames()
        return self._unsent

    def sent(self) -> None:
        """Confirms the last `next`."""
        self._unsent = []
        self._state.due = anyio.current_time() + HEARTBEAT

    async def _frames(self) -> list[bytes]:
        try:
            self._hub.events().check(self.session, self._params.name, self._reader)
            before = self._state.cursor or self._reader.cursor  # a client may leave between two messages
            occurrences, is_truncated = await self._reader.read(_AT_ONCE)
        except StoreError as problem:  # the next stream of this client continues behind its cursor
            self._state.is_over = True
            return [self._error("error", RpcError(problem.public))]
        except RpcError as problem:
            return self._over(problem)
        frames: list[bytes] = []
        if is_truncated or not self._state.is_active:
            self._state.is_active = True
            frames.append(self._frame("active", {"cursor": before, "truncated": is_truncated}))
        for occurrence, cursor in occurrences:
            frames.append(event_frame("event", delivered(occurrence, self._params.name, cursor), self.id))
        self._state.cursor = self._reader.cursor
        if self._reader.problem is not self._state.problem:
            self._state.problem = self._reader.problem
            if self._state.problem is not None:
                frames.append(self._error("error", self._state.problem))
        if self._reader.ended is not None and not occurrences:
            frames += self._over(self._reader.ended)
        return frames or await self._waited()

    async def _waited(self) -> list[bytes]:
        with anyio.move_on_after(max(0.0, self._state.due - anyio.current_time())):
            await self._reader.wait()
            return []
        return [self._frame("heartbeat", {"cursor": self._reader.cursor})]

    def _over(self, error: RpcError) -> list[bytes]:
        self._state.is_over = True
        return [self._error("terminated", error)]

    def _error(self, kind: str, error: RpcError) -> bytes:
        return self._frame(kind, {"error": error_member(self._hub.events().public(self.session, error))})

    def _frame(self, kind: str, members: dict[str, object]) -> bytes:
        return event_frame(kind, {name: msgspec.Raw(object_bytes(value)) for name, value in members.items()}, self.id)

    def cancel(self) -> None:
        """Ends it without a response."""
        self.is_cancelled = True
        self.scope.cancel()

    def completed(self) -> bytes:
        """The response at the end."""
        meta = {SUBSCRIPTION_ID: msgspec.Raw(self.id)}
        return result_frame(self.id, object_bytes({"resultType": "complete", "_meta": meta}))

    def close(self) -> None:
        """Ends the subscription."""
        self._reader.close()


class _State:
    """`due`: the next heartbeat; `cursor`: behind all that was read."""

    def __init__(self) -> None:
        self.is_active = False
        self.is_over = False
        self.cursor = ""
        self.problem: RpcError | None = None
        self.due = anyio.current_time() + HEARTBEAT


Opening = Callable[[bytes], EventStream]
"""Makes the stream that answers a request with this id."""


Answer = Callable[[Session, RawObject], Coroutine[object, object, bytes | Opening]]
"""Answers a request by its params without `_meta`. Raises `RpcError`."""


def event_methods(hub: HubPort) -> Mapping[str, Answer]:
    """The methods by name; each raises `method_not_found` if no server has events."""

    async def poll(session: Session, params: RawObject) -> bytes:
        return await hub.events().poll(session, await _checked(hub, session, params, "events/poll"))

    async def stream(session: Session, params: RawObject) -> Opening:
        checked = await _checked(hub, session, params, "events/stream")
        reader = await hub.events().open(session, checked)
        return lambda id_: EventStream(hub=hub, session=session, params=checked, reader=reader, id_=id_)

    async def subscribe(session: Session, params: RawObject) -> bytes:
        return await hub.events().subscribe(session, await _checked(hub, session, params, HOOK))

    async def unsubscribe(session: Session, params: RawObject) -> bytes:
        return await hub.events().unsubscribe(session, await _checked(hub, session, params, "events/unsubscribe"))

    return {"events/poll": poll, "events/stream": stream, HOOK: subscribe, "events/unsubscribe": unsubscribe}


def session_has_events(hub: HubPort, session: Session) -> bool:
    """Whether a server of the profile has events."""
    servers = hub.catalog.rules(session.caller.profile).servers
    return hub.have_events(hub.upstreams, servers, hub.views.lists(session.caller))


async def _checked(hub: HubPort, session: Session, params: RawObject, method: str) -> EventParams:
    await hub.views.settled(session)
    if not session_has_events(hub, session):
        raise method_not_found(f"Method not found: {method}")
    return event_params(params, method)

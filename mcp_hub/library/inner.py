"""The hub behind the library."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Final

import anyio
import anyio.lowlevel
import msgspec
from anyio.abc import TaskGroup
from msgspec import Raw

from mcp_hub.aio import Bell
from mcp_hub.app.build import App, open_app
from mcp_hub.app.http import HttpFront, is_authenticated
from mcp_hub.app.readiness import all_settled, wait_until
from mcp_hub.call import Call, Reader
from mcp_hub.catalog.offers.definitions import in_era
from mcp_hub.catalog.search.ranker import Hit
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.client.in_process import Application
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.trust import check_state, own_folders
from mcp_hub.errors import HubMisuse, HubStopping, RpcError, UpstreamUnavailable
from mcp_hub.events import CallEvent, Completed, Failed, InputRequired, Started
from mcp_hub.fronts.http.auth import is_loopback
from mcp_hub.fronts.http.response import Receive, Scope, Send, respond
from mcp_hub.fronts.mcp.message_queue import InProcessFront
from mcp_hub.fronts.prefix import below
from mcp_hub.hub import CallHandle, StreamHandle
from mcp_hub.ids import new_session_id
from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import SUPERSET
from mcp_hub.protocol.jsonrpc.envelope import object_bytes
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.protocol.meta import RequestMeta, path_of
from mcp_hub.protocol.shape.occurrences import EventParams, delivered
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.types import PROGRAM, RUN_CODE, CallId, Era, JsonObject, Kind, RawJson, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.hub import FeedReader

_TOKEN: Final = b'"library"'
"""Progress is wanted; each server gets the hub's own token."""
_BATCH: Final = 256
"""Events that are taken at once."""
_CANCELLED: Final = "cancelled by its caller"


@asynccontextmanager
async def opened(loaded: Loaded, env: Mapping[str, str], profile: str | None, wait: float) -> AsyncIterator["InnerHub"]:
    """Starts the servers without waiting; on exit calls end. Raises `ConfigError` if others may write its folders."""
    check_state(own_folders(loaded.settings, env), env)
    async with anyio.create_task_group() as tasks:
        async with open_app(loaded, env, has_executors=True, owns_process=False) as app:
            inner = InnerHub(app, tasks, profile, wait)
            try:
                yield inner
            finally:
                inner.stop()
        inner.close()  # clients in this process have the endings of their calls
        tasks.cancel_scope.cancel()


class InnerHub:
    """One running hub. Servers may take `wait` seconds to start."""

    def __init__(self, app: App, tasks: TaskGroup, profile: str | None, wait: float) -> None:
        self._app = app
        self._hub = app.hub
        self._tasks = tasks
        self._caller = Caller(profile=profile, is_operator=True)
        self._wait = wait
        self._session_id = new_session_id()
        self._http: HttpFront | None = None
        self._clients: list[InProcessFront] = []
        self._readers: set[FeedReader] = set()

    def statuses(self) -> list[UpstreamStatus]:
        return [status for status in self._hub.statuses() if status.server in self._app.settings.servers]

    async def tools(self) -> list[bytes]:
        await wait_until(self._hub, lambda: all_settled(self._hub), self._wait)
        return [_definition(entry) for entry in self._hub.views.of(self._session()).entries(Kind.TOOL)]

    async def search(self, query: str, limit: int) -> list[tuple[bytes, Hit]]:
        await wait_until(self._hub, lambda: all_settled(self._hub), self._wait)
        results = await self._hub.catalog.search(self._caller.profile, query, limit)
        view = self._hub.views.of(self._session())
        entries = ((view.find(Kind.TOOL, hit.id), hit) for hit in results)
        return [(_definition(entry), hit) for entry, hit in entries if entry is not None]

    # -- events

    async def event_types(self) -> list[JsonObject]:
        """The types, once the servers are ready or have failed."""
        await wait_until(self._hub, lambda: all_settled(self._hub), self._wait)
        entries = self._hub.views.of(self._session()).entries(Kind.EVENT)
        return [msgspec.json.decode(entry.definition(Era.MODERN)) for entry in entries]

    async def events(self, name: str, arguments: bytes, after: str | None) -> AsyncGenerator[JsonObject, None]:
        """Raises `RpcError` for an unknown type, a refusal, and at the end of the subscription."""
        session, params = self._session(), EventParams(name, Raw(arguments), after)
        await self._listed(name, Kind.EVENT)
        reader = await self._hub.events().open(session, params)
        self._readers.add(reader)
        has_missed = False
        try:
            while True:
                self._hub.events().check(session, name, reader)
                occurrences, is_truncated = await reader.read(_BATCH)
                has_missed = has_missed or is_truncated
                for occurrence, cursor in occurrences:
                    event: JsonObject = msgspec.json.decode(object_bytes(delivered(occurrence, name, cursor)))
                    yield {**event, "truncated": True} if has_missed else event
                    has_missed = False
                if not occurrences and reader.ended is not None:
                    raise reader.ended
                if not occurrences:
                    await reader.wait()
        finally:
            self._readers.discard(reader)
            reader.close()

    # -- calls

    async def begin(self, name: str, arguments: bytes, meta: Mapping[str, Raw], *, asks: bool) -> "CallFollower":
        """Starts a call that ends with its follower. `asks`: questions can be answered. Raises `RpcError`."""
        return _LiveCall(self, await self._started(name, arguments, meta, asks=asks))

    async def begin_stream(self, name: str, arguments: bytes, meta: Mapping[str, Raw], *, asks: bool) -> "CallFollower":
        """Starts a call that outlives its follower. Raises `HubError`."""
        call = await self._started(name, arguments, meta, asks=asks)
        return _StreamFollower(self, await call.begin_stream(), 0)

    async def follow(self, id_: str, after: int) -> "CallFollower":
        """Raises `UnknownStream`, `EventsGone`, `InvalidParams` beyond its end, `Busy`, `StoreError`."""
        stream = await self._hub.durable.open(self._caller.principal, id_, self._caller.profile, after)
        return _StreamFollower(self, stream, after)

    async def _started(self, name: str, arguments: bytes, meta: Mapping[str, Raw], *, asks: bool) -> CallHandle:
        session = self._session(asks=asks)
        await self._listed(name, Kind.TOOL)
        params, members = {"name": Raw(msgspec.json.encode(name)), "arguments": Raw(arguments)}, dict(meta)
        request_meta = RequestMeta(
            token=_TOKEN,
            version=None,
            client_info=None,
            capabilities=None,
            log_level=None,
            path=path_of(members),
            rest=members,
            takes_events=True,
        )
        return self._hub.call(session, "tools/call", params, request_meta)

    async def _listed(self, name: str, kind: Kind) -> None:
        hub = self._hub

        def is_there() -> bool:
            return hub.views.of(self._session()).find(kind, name) is not None

        # a script may call any tool
        await wait_until(hub, lambda: (name != RUN_CODE and is_there()) or all_settled(hub), self._wait)
        if not is_there() and (unlisted := hub.catalog.unlisted(self._caller.profile, name)) is not None:
            reason = unlisted.reason or "still starting"
            raise UpstreamUnavailable(f'server "{unlisted.server}" is {unlisted.state.value}: {reason}')

    def _session(self, *, asks: bool = False) -> Session:
        return Session(
            id=self._session_id,
            caller=self._caller,
            era=Era.HANDSHAKE,
            version=eras.LATEST_HANDSHAKE,
            capabilities=SUPERSET if asks else {},
            offer=ClientOffer(PROGRAM, "full"),
        )

    def result(self, id_: CallId, server: str, completed: Completed) -> bytes:
        """The result with exported resource URIs."""
        call = Call(
            id=id_,
            upstream=server,
            method="tools/call",
            params={},
            meta={},
            session=self._session_id,
            principal=self._caller.principal,
            era=completed.era,
            capabilities={},
        )
        return bytes(self._hub.exported(self._session(), call, completed.result))

    # -- fronts

    async def serve_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one HTTP request."""
        if self._http is None:
            self._http = HttpFront(
                self._app,
                self._caller.profile,
                is_local=lambda settings: not settings.hub.http.allow_public,  # `mounted` refuses others without tokens
            )
            self._tasks.start_soon(self._http.run, name="library http front")
        await self._http.endpoints(scope, receive, send)

    @property
    def is_guarded(self) -> bool:
        """Whether clients need tokens, or `allow_public` is set."""
        return is_authenticated(self._app.settings) or self._app.settings.hub.http.allow_public

    @asynccontextmanager
    async def client(self) -> AsyncIterator[InProcessFront]:
        front = InProcessFront(self._hub, self._app.binding, self._caller)
        self._clients.append(front)
        try:
            async with front.serving():
                yield front
        finally:
            self._clients.remove(front)

    def stop(self) -> None:
        """Ends event streams, before `close`."""
        for reader in list(self._readers):
            reader.end(HubStopping("the hub is stopping"))
        if self._http is not None:
            self._http.close()
        self._hub.end(self._session())

    def close(self) -> None:
        """Ends in-process connections."""
        for client in self._clients:
            client.close("the hub has stopped")


def _definition(entry: Entry) -> bytes:
    return bytes(in_era(Kind.TOOL, entry.raw, Era.MODERN))


class CallFollower(ABC):
    """Follows one call. `id` is its stream's; `cursor`: the last event's number. Its owner calls `close`."""

    def __init__(self, inner: InnerHub, id_: CallId, server: str, reader: Reader, bell: Bell) -> None:
        self.id = id_
        self.cursor = reader.cursor
        self._inner = inner
        self._server = server
        self._reader = reader
        self._bell = bell
        self._taken: list[CallEvent] = []

    async def next(self) -> CallEvent | None:
        """The next event; None after the ending. Raises a final `HubError`."""
        while True:
            while not self._taken:
                reader = self._reader
                if not reader.has_more and reader.at_end:
                    return None
                if not reader.has_more and reader.failed is not None:
                    raise reader.failed
                if reader.has_more:
                    await anyio.lowlevel.checkpoint()
                else:
                    await self._bell.wait()
                self._taken = reader.take(_BATCH)[::-1]
            event = self._taken.pop()
            self.cursor += 1
            if not isinstance(event, Started):
                if isinstance(event, Failed):
                    return Failed(for_caller(event.error, Era.HANDSHAKE, self._server))
                return event

    def result(self, completed: Completed) -> bytes:
        return self._inner.result(self.id, self._server, completed)

    @abstractmethod
    async def answer(self, key: str, answer: RawJson | RpcError) -> None:
        """Answers an open question; others are ignored."""

    @abstractmethod
    async def cancel(self) -> None:
        """Cancels the call, also at its server. Idempotent."""

    @abstractmethod
    async def questions(self) -> list[InputRequired]:
        """Open ones, oldest first."""

    def close(self) -> None:
        self._reader.close()


class _LiveCall(CallFollower):
    """`close` cancels the call."""

    def __init__(self, inner: InnerHub, call: CallHandle) -> None:
        bell = Bell()
        super().__init__(
            inner=inner, id_=call.call.id, server=call.call.upstream, reader=call.reader(bell.ring), bell=bell
        )
        self._call = call

    async def answer(self, key: str, answer: RawJson | RpcError) -> None:
        self._call.answer(key, answer)

    async def cancel(self) -> None:
        self._call.cancel(_CANCELLED)

    async def questions(self) -> list[InputRequired]:
        return [
            InputRequired(key, question.method, question.params) for key, question in self._call.open_questions.items()
        ]

    def close(self) -> None:
        if not self._call.has_ended:
            self._call.cancel(_CANCELLED)
        super().close()


class _StreamFollower(CallFollower):
    """Gives only stored events, so that cursors stay valid."""

    def __init__(self, inner: InnerHub, stream: StreamHandle, after: int) -> None:
        bell = Bell()
        super().__init__(
            inner=inner, id_=stream.id, server=stream.info.server, reader=stream.follow(bell.ring, after), bell=bell
        )
        self._stream = stream

    async def answer(self, key: str, answer: RawJson | RpcError) -> None:
        await self._stream.answer(key, answer)

    async def cancel(self) -> None:
        await self._stream.cancel(_CANCELLED)

    async def questions(self) -> list[InputRequired]:
        return list((await self._stream.questions()).values())

    def close(self) -> None:
        super().close()
        self._stream.let_go()


def mounted(running: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]]) -> Application:
    """The HTTP front as an application for any mount."""
    return _MountedHub(running, owning)


class _MountedHub:
    """`running` returns the hub; `owning` makes it the owner of a request's secrets."""

    def __init__(self, running: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]]) -> None:
        self._running = running
        self._owning = owning

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._serve(scope, receive, send)
            case "websocket":
                await send({"type": "websocket.close", "code": 1000})
            case _:
                await _live(receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            inner = self._running()
        except HubMisuse as error:
            await _refuse(send, 503, error.code, str(error))
            return
        if not (inner.is_guarded or _is_local(scope)):
            message = (
                "This hub has no tokens, so only this machine may use it. Set hub.tokens or hub.http.oauth, "
                "or hub.http.allow_public if the host program guards it."
            )
            await _refuse(send, 403, "not_public", message)
            return
        with self._owning():
            await inner.serve_http(*below(scope, receive, send))


def _is_local(scope: Scope) -> bool:
    client = scope.get("client")
    return client is not None and is_loopback(client[0])


async def _refuse(send: Send, status: int, code: str, detail: str) -> None:
    await respond(send, status, msgspec.json.encode({"code": code, "detail": detail}))


async def _live(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})

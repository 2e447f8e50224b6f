"""The hub as an MCP server, in both eras on every front."""

from collections.abc import Callable, Coroutine
from copy import copy
from functools import partial
from typing import Final, TypeVar

import msgspec

from mcp_hub.call import MakeInfo
from mcp_hub.errors import InvalidParams, RpcError, UnknownEntry, method_not_found
from mcp_hub.events import Completed
from mcp_hub.fronts.mcp.events import Opening, event_methods
from mcp_hub.fronts.mcp.subscriptions import ListenStreams
from mcp_hub.fronts.mcp.tasks import stream_methods, task_methods
from mcp_hub.hub import CallHandle, HubPort
from mcp_hub.ids import new_session_id
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol import eras
from mcp_hub.protocol.capabilities import BY_LIST_METHOD, KINDS
from mcp_hub.protocol.jsonrpc.envelope import Envelope, object_bytes, read_as
from mcp_hub.protocol.jsonrpc.rpc_errors import UNSUPPORTED_VERSION
from mcp_hub.protocol.meta import SERVER_INFO, TASKS, RequestMeta, declares, hub_capabilities, take_params
from mcp_hub.protocol.notifications import ROOTS_CHANGED, ListenFilter
from mcp_hub.protocol.shape.results import call_result
from mcp_hub.protocol.shape.tasks import missing_tasks
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.types import Era, JsonObject, Kind, RawJson, RawObject

log = get_logger(__name__)


Settled = bytes | CallHandle | ListenFilter | Opening
"""A call: the answer is its ending, its other events come before. Else, but for bytes: a stream of notifications."""
Deferred = Coroutine[object, object, bytes | CallHandle | Opening]
"""The response comes in a moment."""
Reply = Settled | Deferred
Instructions = Callable[[str | None], str | None]
"""The text for clients with this profile."""
_T = TypeVar("_T")

_MOST_PROFILES: Final = 1024  # whose discoveries are remembered; each project is one
_DISCOVERY_TTL: Final = 60_000
"""Milliseconds: what `server/discover` says changes only with the configuration, but no client hears when it does."""


class Binding:
    """Answers requests for a `HubPort`; `server_info` and `instructions` introduce the hub. `added`: the methods of
    extensions.
    """

    def __init__(self, hub: HubPort, server_info: JsonObject, instructions: Instructions) -> None:
        self.streams = ListenStreams(hub)
        self._hub = hub
        self._server_info = server_info
        self._instructions = instructions
        self._listable: dict[str | None, frozenset[Kind]] = {}  # by profile, what clients may think that they can list
        self.added = {**task_methods(hub), **stream_methods(hub), **event_methods(hub)}

    def initialize(self, caller: Caller, params: RawObject) -> tuple[Session, bytes]:
        """Opens a handshake session without waiting. Invalid members of `params` count as absent."""
        agreement = _agreement(params, "", {}, {})
        session = Session(new_session_id(), caller, Era.HANDSHAKE, *agreement, offer=ClientOffer(apps={}))
        return session, self._introduction(session)

    def _introduction(self, session: Session) -> bytes:
        """The result of `initialize`. A session may repeat it: the last one counts."""
        result: JsonObject = {
            "protocolVersion": session.version,
            "capabilities": self._capabilities(session),
            "serverInfo": self._server_info,
        }
        if text := self._instructions(session.caller.profile):
            result["instructions"] = text
        return object_bytes(result)

    def _capabilities(self, session: Session) -> JsonObject:
        """Declared without waiting for a server."""
        hub, caller = self._hub, session.caller
        servers = hub.servers_have(hub.catalog, hub.upstreams, hub.views.lists(caller), caller.profile)
        return hub_capabilities(session.version, servers)

    def introduced(self, version: str) -> "Binding":
        """A copy with another version in `serverInfo`."""
        binding = copy(self)
        binding._server_info = {**self._server_info, "version": version}
        return binding

    def handle(
        self, session: Session, method: str, params: RawObject, meta: RequestMeta, info: MakeInfo | None = None
    ) -> Reply:
        """Answers a request; `info` is for its call's stream. Raises `method_not_found` if the era lacks it, and any
        `RpcError`.
        """
        if method not in eras.CALL_METHODS:
            return self._answer_other(session, method, params, meta, info)
        if method == "resources/read" and self._hub.catalog.starting(session.caller.profile):
            return self._read(session, params, partial(self._call, session, method, params, meta, info))
        try:
            return self._hub.call(session, method, params, meta, info=info)
        except UnknownEntry as problem:
            call = partial(self._call, session, method, params, meta, info)
            if problem.about_upstream.get("state") == "starting":
                return self._listed(str(problem.about_upstream["server"]), call)
            if not self._is_settled(session):
                # its server may be on its way up: wait as long as a list would
                return self._settled(session, call)
            if problem.symbol == "tool_removed":
                return _removed(problem, session.era)
            raise

    def notice(self, session: Session, message: Envelope) -> None:
        """Notes changed roots; passes other notifications of a handshake client on by a server's `passthrough`."""
        if message.method == ROOTS_CHANGED:
            session.offer.change_roots()
            return
        try:
            params, meta = take_params(message.params)
            self._hub.call(session, message.method, params, meta, in_place=False, is_notice=True)
        except RpcError as refused:
            log.debug("notice_dropped", method=hide_head(message.method, 200), reason=refused.message)

    def _call(
        self, session: Session, method: str, params: RawObject, meta: RequestMeta, info: MakeInfo | None
    ) -> bytes | CallHandle:
        try:
            return self._hub.call(session, method, params, meta, info=info)
        except UnknownEntry as problem:
            if problem.symbol == "tool_removed" or (method == "tools/call" and self._hub.runner_of(params)):
                return _removed(problem, session.era)
            raise

    def _answer_other(
        self, session: Session, method: str, params: RawObject, meta: RequestMeta, info: MakeInfo | None
    ) -> Reply:
        if method in self.added:
            return self.added[method](session, params)
        if not eras.serves(session.era, method):
            return self._hub.call(session, method, params, meta, info=info)  # some server may let it through
        kind = BY_LIST_METHOD.get(method)
        if kind is not None:
            self._check_declared(session, kind)
            return self._list(session, kind, params)
        if method in eras.SUBSCRIPTION_METHODS:
            return self._subscription(session, method, params)
        match method:
            case "resources/directory/read" | "skills/get":
                result = _skill_result if method == "skills/get" else _directory_result
                call = partial(result, self._hub, session, params, meta, info)
                return self._settled(session, call, Kind.SKILL)
            case "server/discover":
                return self._discover(session)
            case "logging/setLevel":
                self._hub.set_log_level(session, _level(params.get("level"), "params.level"))
                return b"{}"
            case "ping":
                return b"{}"
            case _:  # a further initialize
                agreement = _agreement(params, session.version, session.capabilities, session.client_info)
                session.agree(*agreement)
                return self._introduction(session)

    def _is_settled(self, session: Session, kind: Kind | None = None) -> bool:
        return self._hub.views.is_settled(session, kind)

    async def _settled(
        self, session: Session, answer: Callable[[], bytes | CallHandle], kind: Kind | None = None
    ) -> bytes | CallHandle:
        await self._hub.views.settled(session, kind)
        return answer()

    async def _listed(self, server: str, answer: Callable[[], bytes | CallHandle]) -> bytes | CallHandle:
        await self._hub.catalog.settled(servers=(server,))
        return answer()

    async def _read(
        self, session: Session, params: RawObject, answer: Callable[[], bytes | CallHandle]
    ) -> bytes | CallHandle:
        if (uri := read_as(params.get("uri", b""), str)) is not None:
            await self._hub.uri_settled(self._hub.catalog, session.caller.profile, uri)
        return answer()

    def _list(self, session: Session, kind: Kind, params: RawObject) -> Reply:
        cursor = _decoded(params, _Page, "params.cursor").cursor or None  # an empty one is the first page's

        def page() -> bytes:
            return self._hub.views.page(session, kind, cursor)

        return page() if self._is_settled(session, kind) else self._settled(session, page, kind)

    def _subscription(self, session: Session, method: str, params: RawObject) -> Reply:
        if method == "subscriptions/listen":
            filter = _decoded(params, _ListenParams, method).notifications
            if filter.taskIds and not declares(session.capabilities, session.era, TASKS):
                raise missing_tasks()
            return filter
        uri = _decoded(params, _Resource, method).uri
        return self._subscribe(session, uri, wants=method == "resources/subscribe")

    async def _subscribe(self, session: Session, uri: str, *, wants: bool) -> bytes:
        """Deferred for both, to keep their order."""
        if wants:
            await self._hub.subscribe(session, uri)
        else:
            self._hub.unsubscribe(session, uri)
        return b"{}"

    def _check_declared(self, session: Session, kind: Kind) -> None:
        """Raises `method_not_found` to a modern client for an undeclared list (2026-07-28, server/prompts
        "Capabilities"), unless declared before: clients keep what they discovered.
        """
        if session.era is Era.HANDSHAKE or kind is Kind.TOOL:
            return
        was_declared = kind in self._listable.get(session.caller.profile, ())
        if not (was_declared or KINDS[kind].is_offered(self._capabilities(session))):
            method = KINDS[kind].list_method
            raise method_not_found(
                f"Method not found: {method}. No server here has it, and the hub does not declare it."
            )

    def _discover(self, session: Session) -> bytes:
        capabilities, profile = self._capabilities(session), session.caller.profile
        declared = self._listable.pop(profile, frozenset())
        if len(self._listable) >= _MOST_PROFILES:
            self._listable.pop(next(iter(self._listable)))
        self._listable[profile] = declared | {kind for kind in Kind if KINDS[kind].is_offered(capabilities)}
        result: JsonObject = {
            "resultType": "complete",
            "supportedVersions": list(eras.MODERN_VERSIONS),
            "capabilities": capabilities,
            "_meta": {SERVER_INFO: self._server_info},
            "ttlMs": _DISCOVERY_TTL,
            "cacheScope": "private",
        }
        if text := self._instructions(session.caller.profile):
            result["instructions"] = text
        return object_bytes(result)


def modern_session(caller: Caller, meta: RequestMeta, key: str, apps: dict[str, None] | None = None) -> Session:
    """The session of one modern request; `key` identifies the client.

    `apps`: the servers whose apps the client has read. Raises `InvalidParams` for an incomplete envelope, `RpcError`
    -32022 for an unsupported version.
    """
    version = _value(meta.version, "protocolVersion", str)
    if meta.capabilities is None:
        raise InvalidParams("params._meta lacks io.modelcontextprotocol/clientCapabilities")
    if version not in eras.MODERN_VERSIONS:
        raise RpcError("Unsupported protocol version", code=UNSUPPORTED_VERSION, data=eras.unsupported_version(version))
    capabilities = _value(meta.capabilities, "clientCapabilities", dict)
    client_info = _value(meta.client_info, "clientInfo", dict) if meta.client_info is not None else {}
    level = _level(meta.log_level, "logLevel") if meta.log_level is not None else None
    offer = ClientOffer(apps=apps)
    return Session(
        id=key,
        caller=caller,
        era=Era.MODERN,
        version=version,
        capabilities=capabilities,
        client_info=client_info,
        log_level=level,
        offer=offer,
    )


def uninitialized(method: str) -> bytes:
    """The response before `initialize`. Raises `InvalidParams` except for `ping`."""
    if method == "ping":
        return b"{}"
    if not eras.serves(Era.HANDSHAKE, method):
        raise method_not_found(f"Method not found: {hide_head(method, 200)}")
    raise InvalidParams("not initialized: send initialize first, or _meta with a protocol version (2026-07-28)")


class _Resource(msgspec.Struct):
    uri: str


class _ListenParams(msgspec.Struct):
    notifications: ListenFilter


class _Page(msgspec.Struct):
    cursor: str | None = None


def _decoded(params: RawObject, shape: type[_T], method: str) -> _T:
    try:
        return msgspec.json.decode(object_bytes(params), type=shape)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidParams(f"{method}: {exc}") from None


def _agreement(
    params: RawObject, version: str, capabilities: JsonObject, client_info: JsonObject
) -> tuple[str, JsonObject, JsonObject]:
    requested = _lenient(params.get("protocolVersion"), str, version)
    declared = _lenient(params.get("capabilities"), dict, capabilities)
    declared = {name: settings or {} for name, settings in declared.items() if settings is not None}
    return eras.negotiate(requested), declared, _lenient(params.get("clientInfo"), dict, client_info)


def _lenient(raw: RawJson | None, kind: type[_T], absent: _T) -> _T:
    try:
        return msgspec.json.decode(raw or b"", type=kind)
    except (msgspec.DecodeError, RecursionError):
        return absent


def _value(raw: RawJson | None, member: str, kind: type[_T]) -> _T:
    try:
        return msgspec.json.decode(raw or b"", type=kind)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise InvalidParams(f"params._meta io.modelcontextprotocol/{member}: {exc}") from None


def _removed(problem: UnknownEntry, era: Era) -> bytes:
    text = {"content": [{"type": "text", "text": problem.message}], "isError": True}
    return b"".join(call_result("tools/call", Completed(object_bytes(text)), era))


def _level(raw: RawJson | None, member: str) -> str:
    level = _value(raw, member, str) if raw is not None else ""
    if level not in eras.LOG_LEVELS:
        raise InvalidParams(
            f"{member}: unknown log level {hide_head(level, 50)!r}; known: {', '.join(eras.LOG_LEVELS)}"
        )
    return level


def _skill_result(
    hub: HubPort, session: Session, params: RawObject, meta: RequestMeta, info: MakeInfo | None
) -> bytes | CallHandle:
    """A server need not list every skill: else call it."""
    uri = _uri("skills/get", params)
    view = hub.views.of(session)
    entry = view.find(Kind.SKILL, uri)
    if entry is None:
        return hub.call(session, "skills/get", params, meta, info=info)
    hint = view.hints[Kind.SKILL]
    caching = {"ttlMs": hint.ttl_ms, "cacheScope": "public" if hint.public else "private"}
    return object_bytes({"resultType": "complete", "skill": msgspec.Raw(entry.raw), **caching})


def _directory_result(
    hub: HubPort, session: Session, params: RawObject, meta: RequestMeta, info: MakeInfo | None
) -> bytes | CallHandle:
    view = hub.views.of(session)
    result = view.resources.directory(_uri("resources/directory/read", params), view.entries(Kind.SKILL))
    return hub.call(session, "resources/directory/read", params, meta, info=info) if result is None else result


def _uri(method: str, params: RawObject) -> str:
    try:
        return msgspec.json.decode(params.get("uri", b""), type=str)
    except (msgspec.DecodeError, RecursionError):
        raise InvalidParams(f"{method}: params.uri must be a string") from None

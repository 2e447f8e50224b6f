"""The Streamable HTTP endpoint `/mcp`. `MCP-Protocol-Version` names the era.

Source: specification 2025-11-25 and 2026-07-28, basic/transports/streamable-http.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.errors import HubStopping, RpcError
from mcp_hub.fronts.http.admission import Admission, accepts, read_text, understood
from mcp_hub.fronts.http.endpoints import Serve
from mcp_hub.fronts.http.handshake import HandshakeHttp
from mcp_hub.fronts.http.request import Housekeeper, HttpRequest, answer_call
from mcp_hub.fronts.http.response import HttpError, HttpExchange, as_events, respond
from mcp_hub.fronts.limits import check_depth
from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.hub import HubPort
from mcp_hub.protocol import eras
from mcp_hub.protocol.headers import NAMED_BY, check_arguments, check_request, check_version, repeated
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Unset, raw_object
from mcp_hub.protocol.jsonrpc.repair import is_array
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Caller, ClientOffer, Session, Sessions
from mcp_hub.types import Era, JsonObject, Kind, RawObject

_CLIENTS: Final = 64
"""Clients whose last envelope is remembered; the one seen first makes room."""
_ENVELOPE: Final = 4096
"""Bytes: larger envelopes are not remembered."""


def modern_sessions() -> Callable[[Caller, RequestMeta], Session]:
    """Begins one session per request. An envelope that the caller has sent before is not parsed again.

    The function raises as `modern_session`.
    """
    templates: dict[tuple[object, ...], Session] = {}
    numbers = count(1)

    def begin(caller: Caller, meta: RequestMeta) -> Session:
        id_ = f"http#{next(numbers)}"
        parts = [b"" if raw is None else bytes(raw) for raw in meta.envelope]
        key = (caller, *parts)
        if (template := templates.get(key)) is not None:
            if template.offer.mode is not None:
                template = templates[key] = replace(template, offer=ClientOffer())
            return replace(template, id=id_, subscriptions={}, presence="connected")
        session = modern_session(caller, meta, id_)
        if sum(map(len, parts)) <= _ENVELOPE:
            if len(templates) >= _CLIENTS:
                del templates[next(iter(templates))]
            templates[key] = session
        return session

    return begin


class _ModernHttp:
    """Serves POSTs with any other version header."""

    def __init__(self, hub: HubPort, binding: Binding, housekeeper: Housekeeper) -> None:
        self._hub = hub
        self._binding = binding
        self._housekeeper = housekeeper
        self._begin = modern_sessions()

    async def post(self, request: HttpRequest) -> None:
        if request.message.is_answer:
            raise RpcError("a client of this protocol version sends no responses", code=INVALID_REQUEST)
        headers = {
            name.decode("latin-1"): value.decode("latin-1").strip(" \t") for name, value in request.headers.items()
        }
        if request.message.kind == "notification":
            # the era has no client notifications over HTTP; they are acknowledged and dropped
            check_version(headers["mcp-protocol-version"])
            await request.accepted()
            return
        id_ = request.id()
        try:
            session, params = self._agreed(request, headers)
            await answer_call(self._hub, self._binding, self._housekeeper, request, session, id_, params)
        except RpcError as error:
            await request.refused(id_, error, Era.MODERN)

    def close(self) -> None:
        self._binding.streams.complete()

    def _agreed(
        self, request: HttpRequest, headers: Mapping[str, str]
    ) -> tuple[Session, tuple[RawObject, RequestMeta]]:
        """Session and params, once headers and envelope agree. Raises `RpcError`."""
        is_folded = len(request.scope["headers"]) != len(request.headers)
        twice = (
            repeated(name.decode("latin-1") for name, _ in request.scope["headers"]) if is_folded else frozenset[str]()
        )
        method = request.message.method
        body = _outline(request, method)
        check_request(method, body, headers, twice)
        params = request.params()
        session = self._begin(request.caller, params[1])
        if method == "tools/call":
            self._check_arguments(session, request, body, headers, twice)
        return session, params

    def _check_arguments(
        self,
        session: Session,
        request: HttpRequest,
        body: JsonObject,
        headers: Mapping[str, str],
        twice: frozenset[str],
    ) -> None:
        """Checks against the listed schema, if any."""
        name = body.get("name")
        entry = self._hub.views.of(session).find(Kind.TOOL, name) if isinstance(name, str) else None
        if entry is None or not entry.has_header_params:
            return
        schema = msgspec.json.decode(entry.raw).get("inputSchema")
        params = raw_object(request.message.params) or {}
        arguments = _loose(params.get("arguments"))
        if isinstance(arguments, dict | None):
            check_arguments(schema, arguments, headers, twice)


def _outline(request: HttpRequest, method: str) -> JsonObject:
    params = raw_object(request.message.params) or {}
    keys = ("_meta", NAMED_BY[method]) if method in NAMED_BY else ("_meta",)
    return {key: _loose(params[key]) for key in keys if key in params}


def _loose(raw: msgspec.Raw | None) -> object:
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None


class StreamableHttp:
    """The endpoint. `max_body` in bytes, `close_streams_after` in seconds (None: never)."""

    def __init__(
        self,
        hub: HubPort,
        binding: Binding,
        *,
        max_body: int,
        max_sessions: int,
        sessions_per_principal: int | None = None,
        admission: Admission | None = None,
        close_streams_after: float | None = None,
    ) -> None:
        self._max_body = max_body
        self._housekeeper = Housekeeper()
        self._handshake = HandshakeHttp(
            hub,
            binding,
            self._housekeeper,
            sessions=Sessions(max_sessions, sessions_per_principal),
            session_rate=admission.sessions if admission is not None else None,
            close_streams_after=close_streams_after,
        )
        self._modern = _ModernHttp(hub, binding, self._housekeeper)
        self._is_over = False

    @property
    def sessions(self) -> int:
        return self._handshake.sessions

    async def run(self) -> None:
        """Runs the housekeeper until cancelled."""
        await self._housekeeper.run()

    def close(self) -> None:
        """Ends open streams. A request that still waits when the server ends it is refused."""
        self._is_over = True
        self._handshake.close()
        self._modern.close()

    @property
    def routes(self) -> Mapping[str, Serve]:
        return {"/mcp": self._serve}

    async def _serve(self, http: HttpExchange) -> None:
        version = http.headers.get(b"mcp-protocol-version", b"").decode("latin-1").strip(" \t")
        is_modern = bool(version) and version not in eras.HANDSHAKE_VERSIONS
        match http.scope["method"]:
            case "POST":
                await self._post(http, is_modern)
            case "GET" if not is_modern:
                await self._handshake.get(http)
            case "DELETE" if not is_modern:
                await self._handshake.delete(http)
            case _:
                allowed = b"POST" if is_modern else b"POST, GET, DELETE"
                await respond(http.send, 405, headers=[(b"allow", allowed)])

    async def _post(self, http: HttpExchange, is_modern: bool) -> None:
        takes_json, takes_sse = accepts(http.headers)
        if not takes_json:
            if not takes_sse:
                raise HttpError(406, "not_acceptable", "Accept must name application/json or text/event-stream")
            http = replace(http, send=as_events(http.send), scope={**http.scope, "extensions": None})
        text = await read_text(http, self._max_body)
        if not is_modern and is_array(text):
            blank = HttpRequest.of(http, Envelope(), takes_sse=takes_sse)
            if await self._handshake.post_batch(blank, text):
                return
        message = understood(text)
        request = HttpRequest.of(http, message, takes_sse=takes_sse)
        request.check()
        if message.params is not Unset:
            check_depth(message.params)
        try:
            await (self._modern if is_modern else self._handshake).post(request)
        except anyio.get_cancelled_exc_class():
            if not self._is_over:
                raise
            await _stopped(request, Era.MODERN if is_modern else Era.HANDSHAKE)


async def _stopped(request: HttpRequest, era: Era) -> None:
    """Refuses a request that waited until the server's time was over."""
    reason = "The hub is stopping. The outcome of this request is unknown."
    error = HubStopping(reason, data={"outcome": "unknown"})
    with suppress(RuntimeError):  # the response has begun
        await request.refused(request.message.usable_id, error, era)

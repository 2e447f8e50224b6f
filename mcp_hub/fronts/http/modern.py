"""Modern requests over HTTP: stateless, headers mirror `_meta`.

Source: specification 2026-07-28, basic/transports/streamable-http "Server Validation".
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mcp_hub.errors import RpcError
from mcp_hub.fronts.http.call_response import Housekeeper
from mcp_hub.fronts.http.request import HttpRequest, answer_call
from mcp_hub.fronts.mcp.binding import Binding, modern_session
from mcp_hub.hub import HubPort
from mcp_hub.protocol.headers import NAMED_BY, check_arguments, check_request, check_version, repeated
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.protocol.jsonrpc.rpc_errors import INVALID_REQUEST
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.types import Era, JsonObject, Kind, RawObject

_CLIENTS: Final = 64
"""Clients whose last envelope is remembered; the one seen first makes room."""
_ENVELOPE: Final = 4096
"""Bytes: larger envelopes are not remembered."""


class ModernSessions:
    """One session per request. An envelope that the caller has sent before is not parsed again."""

    def __init__(self) -> None:
        self._templates: dict[tuple[object, ...], Session] = {}
        self._requests = 0

    def begin(self, caller: Caller, meta: RequestMeta) -> Session:
        """Raises as `modern_session`."""
        self._requests += 1
        id_ = f"http#{self._requests}"
        parts = [b"" if raw is None else bytes(raw) for raw in meta.envelope]
        key = (caller, *parts)
        if (template := self._templates.get(key)) is not None:
            if template.offer.mode is not None:
                template = self._templates[key] = replace(template, offer=ClientOffer())
            return replace(template, id=id_, subscriptions={}, presence="connected")
        session = modern_session(caller, meta, id_)
        if sum(map(len, parts)) <= _ENVELOPE:
            if len(self._templates) >= _CLIENTS:
                del self._templates[next(iter(self._templates))]
            self._templates[key] = session
        return session


class ModernHttp:
    """Serves POSTs with any other version header."""

    def __init__(self, hub: HubPort, binding: Binding, housekeeper: Housekeeper) -> None:
        self._hub = hub
        self._binding = binding
        self._housekeeper = housekeeper
        self._sessions = ModernSessions()

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
        """Ends open streams."""
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
        session = self._sessions.begin(request.caller, params[1])
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
        entry = self._hub.view(session).find(Kind.TOOL, name) if isinstance(name, str) else None
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


def _loose(raw: msgspec.Raw | None) -> Any:
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None

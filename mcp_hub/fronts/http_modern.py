"""Modern-era requests over HTTP: stateless, each with its envelope in `_meta` and mirrored in headers.

The header ladder is the SDK's (`mcp.shared.inbound`); order and statuses from specification 2026-07-28,
basic/transports/streamable-http "Server Validation".
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.fronts.exchange import Housekeeper
from mcp_hub.fronts.header_ladder import inbound
from mcp_hub.fronts.http_request import HttpRequest, answer_call
from mcp_hub.fronts.mcp_server import Binding, modern_session
from mcp_hub.hub import Facade
from mcp_hub.protocol.envelope import Unset, raw_object
from mcp_hub.protocol.rpc_errors import HEADER_MISMATCH, INVALID_REQUEST
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, JsonObject, Kind

__all__ = ["ModernHttp"]

_OF_TASKS = {"tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
"""What `Mcp-Name` repeats by the tasks extension, which the SDK's ladder does not know."""
_NAMES = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri", **_OF_TASKS}


class ModernHttp:
    """Serves POSTs whose version header names no handshake version."""

    def __init__(self, hub: Facade, binding: Binding, keeper: Housekeeper) -> None:
        self._hub = hub
        self._binding = binding
        self._keeper = keeper
        self._requests = 0

    async def post(self, request: HttpRequest) -> None:
        if request.message.method is Unset:
            raise RpcError("a client of this protocol version sends no responses", code=INVALID_REQUEST)
        headers = {
            name.decode("latin-1"): value.decode("latin-1").strip(" \t") for name, value in request.headers.items()
        }
        if request.message.id is Unset:
            # the era has no client notifications over HTTP; they are acknowledged and dropped
            _refuse_if(inbound.unsupported_protocol_version_rejection(headers["mcp-protocol-version"]))
            await request.accepted()
            return
        id_ = request.id()
        try:
            session = self._agreed(request, headers)
            await answer_call(self._hub, self._binding, self._keeper, request, session, id_)
        except RpcError as error:
            await request.refused(id_, error, Era.MODERN)

    def close(self) -> None:
        """Ends the streams that would not end by themselves."""
        self._binding.streams.complete()

    def _agreed(self, request: HttpRequest, headers: Mapping[str, str]) -> Session:
        """As `_checked`, also for headers that the SDK's decoder trips over. Raises `RpcError`."""
        try:
            return self._checked(request, headers)
        except ValueError:  # the Base64 form around what is no ASCII
            raise RpcError("a header's Base64 form holds what is not Base64", code=HEADER_MISMATCH) from None

    def _checked(self, request: HttpRequest, headers: Mapping[str, str]) -> Session:
        """The request's session once headers and envelope agree. Raises `RpcError`."""
        if len(request.raw_headers) != len(request.headers):  # folding lost something
            pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in request.raw_headers)
            duplicated = inbound.find_duplicated_routing_header(pairs)
            if duplicated is not None:
                raise RpcError(f"{duplicated} header appears more than once", code=HEADER_MISMATCH)
        method = str(request.message.method)
        body = _outline(request, method)
        verdict = inbound.classify_inbound_request({"method": method, "params": body}, headers=headers)
        _refuse_if(verdict)
        _check_task_header(method, body, headers)
        _, meta = request.params()
        self._requests += 1
        session = modern_session(request.caller, meta, f"http#{self._requests}")
        if method == "tools/call":
            self._check_param_headers(session, request, body, headers)
        return session

    def _check_param_headers(
        self, session: Session, request: HttpRequest, body: JsonObject, headers: Mapping[str, str]
    ) -> None:
        """Against the schema as it was listed to this caller; a tool that was not listed has nothing to check."""
        name = body.get("name")
        entry = self._hub.view(session).find(Kind.TOOL, name) if isinstance(name, str) else None
        if entry is None or not entry.has_header_params:
            return
        schema = msgspec.json.decode(entry.raw).get("inputSchema")
        params = raw_object(request.message.params) or {}
        arguments = _loose(params.get("arguments"))
        if isinstance(arguments, dict | None):
            _refuse_if(inbound.validate_mcp_param_headers(schema, arguments or {}, headers))


def _check_task_header(method: str, body: JsonObject, headers: Mapping[str, str]) -> None:
    """As the ladder does it for the methods that it knows. Raises `RpcError`."""
    key = _OF_TASKS.get(method)
    named = body.get(key) if key is not None else None
    if named is not None and inbound.decode_header_value(headers.get("mcp-name")) != named:
        raise RpcError(f"mcp-name header does not match the request body's {key!r} parameter", code=HEADER_MISMATCH)


def _outline(request: HttpRequest, method: str) -> JsonObject:
    """The params as far as headers mirror them, decoded."""
    params = raw_object(request.message.params) or {}
    wanted = ("_meta", _NAMES[method]) if method in _NAMES else ("_meta",)
    return {key: _loose(params[key]) for key in wanted if key in params}


def _loose(raw: msgspec.Raw | None) -> Any:
    """A decoded value; what cannot be decoded counts as absent and fails where it is needed."""
    try:
        return msgspec.json.decode(raw) if raw is not None else None
    except (msgspec.DecodeError, RecursionError):
        return None


def _refuse_if(verdict: object) -> None:
    if isinstance(verdict, inbound.InboundLadderRejection):
        raise RpcError(verdict.message, code=verdict.code, data=verdict.data)

"""The Streamable HTTP endpoint `/mcp`. `MCP-Protocol-Version` names the era.

Source: specification 2025-11-25 and 2026-07-28, basic/transports/streamable-http.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.http.body import accepts, read_text, understood
from mcp_hub.fronts.http.call_response import Housekeeper
from mcp_hub.fronts.http.endpoints import Serve
from mcp_hub.fronts.http.handshake import HandshakeHttp
from mcp_hub.fronts.http.modern import ModernHttp
from mcp_hub.fronts.http.request import HttpRequest
from mcp_hub.fronts.http.response import HttpError, HttpExchange, as_events, respond
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.hub import HubPort
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.batches import is_array
from mcp_hub.protocol.jsonrpc.envelope import Envelope, Unset
from mcp_hub.sessions.session import Sessions


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
        self._limits = binding.limits
        self._housekeeper = Housekeeper()
        self._handshake = HandshakeHttp(
            hub,
            binding,
            self._housekeeper,
            sessions=Sessions(max_sessions, sessions_per_principal),
            session_rate=admission.sessions if admission is not None else None,
            close_streams_after=close_streams_after,
        )
        self._modern = ModernHttp(hub, binding, self._housekeeper)

    @property
    def sessions(self) -> int:
        return self._handshake.sessions

    async def run(self) -> None:
        """Runs the housekeeper until cancelled."""
        await self._housekeeper.run()

    def close(self) -> None:
        """Ends open streams."""
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
            http = replace(http, send=as_events(http.send))
        text = await read_text(http, self._max_body)
        if not is_modern and is_array(text):
            blank = HttpRequest.of(http, Envelope(), takes_sse=takes_sse)
            if await self._handshake.post_batch(blank, text):
                return
        message = understood(text)
        request = HttpRequest.of(http, message, takes_sse=takes_sse)
        request.check()
        if message.params is not Unset:
            self._limits.check_depth(message.params)
        await (self._modern if is_modern else self._handshake).post(request)

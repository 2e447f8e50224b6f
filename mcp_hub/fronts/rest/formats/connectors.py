"""`/v1/tools` as connector entries: the provider connects to the hub's MCP endpoint itself."""

from collections.abc import Callable

import msgspec
from msgspec import Raw
from starlette.responses import Response

from mcp_hub.formats.connectors import Connector, connect, endpoint
from mcp_hub.fronts.rest.exchange import RestRequest, answer
from mcp_hub.fronts.rest.formats.options import flag, selection
from mcp_hub.hub import HubPort
from mcp_hub.protocol import eras
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era, Kind


class _Page(msgspec.Struct, rename="camel"):
    """A result of `tools/list`, with raw members."""

    tools: list[dict[str, Raw]]
    next_cursor: str | None = None


class ConnectorEntries:
    """Entries for callers. `public_url` is configured."""

    def __init__(self, hub: HubPort, public_url: Callable[[], str | None]) -> None:
        self._hub = hub
        self._public_url = public_url

    async def answer(self, request: RestRequest, kind: Connector) -> Response:
        """The entries of the caller's profile. Raises `Problem`, `FormatRefused`."""
        caller, chosen = request.caller, selection(request)
        url = endpoint(request.query_params.get("url", self._public_url()), caller.profile)
        is_deferred = flag(request, "defer")
        session = Session("", caller, Era.HANDSHAKE, eras.LATEST_HANDSHAKE, client_info={"name": kind.value})
        await self._hub.catalog.settled(self._hub.client_kind(session))
        listed = self._hub.view(session).entries(Kind.TOOL)
        chosen.check([tool.exported for tool in listed], self._hub.catalog.rules(caller.profile).servers)
        selected = {tool.exported for tool in listed if chosen.has(tool.exported, tool.server)}
        entries = connect(
            kind,
            url,
            self._listing(session),
            label="mcp-hub" if caller.profile is None else f"mcp-hub-{caller.profile}",
            selected=None if len(selected) == len(listed) else selected,
            is_deferred=is_deferred,
        )
        return answer(entries)

    def _listing(self, session: Session) -> list[dict[str, object]]:
        tools: list[dict[str, object]] = []
        cursor: str | None = None
        while True:
            page = msgspec.json.decode(self._hub.list_page(session, Kind.TOOL, cursor), type=_Page)
            tools += [
                {name: msgspec.json.decode(raw) if name == "name" else raw for name, raw in tool.items()}
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if cursor is None:
                return tools

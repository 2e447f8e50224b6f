"""`GET /v1/tools` in every format, and as connector entries: the provider connects to the hub's MCP endpoint itself.

An export is cached per view and options.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw
from starlette.responses import Response

from mcp_hub.formats.connectors import Connector, connect, endpoint
from mcp_hub.formats.providers import Format
from mcp_hub.formats.records import Exported
from mcp_hub.formats.tools import ToolGroup, export, tool_groups
from mcp_hub.fronts.rest.calls import (
    SOON,
    check_up,
    preferred_wait,
    started_servers,
    starting_servers,
    still_starting,
)
from mcp_hub.fronts.rest.exchange import JSON, RestRequest, answer
from mcp_hub.fronts.rest.follow import Closing
from mcp_hub.fronts.rest.formats.options import ExportOptions, export_options, flag, selection
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.hub import HubPort
from mcp_hub.protocol import eras
from mcp_hub.protocol.rest.calls import ToolLosses
from mcp_hub.sessions.session import Session
from mcp_hub.types import ClientKind, Era, JsonObject, Kind

_MOST_KEPT: Final = 16
"""Exports of one view that are kept; the oldest goes first."""


class _Page(msgspec.Struct, rename="camel"):
    """A result of `tools/list`, with raw members."""

    tools: list[dict[str, Raw]]
    next_cursor: str | None = None


async def connector_entries(hub: HubPort, public_url: str | None, request: RestRequest, kind: Connector) -> Response:
    """The entries of the caller's profile; `public_url` is configured. Raises `Problem`, `Rejected`."""
    caller, chosen = request.caller, selection(request)
    url = endpoint(request.query_params.get("url", public_url), caller.profile)
    is_deferred = flag(request, "defer")
    session = Session("", caller, Era.HANDSHAKE, eras.LATEST_HANDSHAKE, client_info={"name": kind.value})
    await hub.views.settled(session)
    listed = hub.views.of(session).entries(Kind.TOOL)
    chosen.check([tool.exported for tool in listed], hub.catalog.rules(caller.profile).servers)
    selected = {tool.exported for tool in listed if chosen.has(tool.exported, tool.server)}
    entries = connect(
        kind,
        url,
        _listing(hub, session),
        label="mcp-hub" if caller.profile is None else f"mcp-hub-{caller.profile}",
        selected=None if len(selected) == len(listed) else selected,
        is_deferred=is_deferred,
    )
    return answer(entries)


def _listing(hub: HubPort, session: Session) -> list[dict[str, object]]:
    tools: list[dict[str, object]] = []
    cursor: str | None = None
    while True:
        page = msgspec.json.decode(hub.views.page(session, Kind.TOOL, cursor), type=_Page)
        tools += [
            {name: msgspec.json.decode(raw) if name == "name" else raw for name, raw in tool.items()}
            for tool in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None:
            return tools


class _ChosenTools(msgspec.Struct, frozen=True):
    """Encoded `definitions`; by exported name, `groups` (servers) and `read_only`. `search` is the tool that finds
    deferred ones.
    """

    definitions: list[bytes]
    search: bytes
    groups: Mapping[str, ToolGroup]
    read_only: frozenset[str]


_Form = Callable[[_ChosenTools, ExportOptions], bytes]


def kept_exports() -> Callable[[object, object, Callable[[], bytes]], Awaitable[bytes]]:
    """Caches exports by view and options, dropped with the view.

    Gets a cached export, or a new one, which the third argument makes in a worker thread.
    """
    by_view: WeakKeyDictionary[object, dict[object, bytes]] = WeakKeyDictionary()
    turn = anyio.Lock()

    async def export(view: object, options: object, make: Callable[[], bytes]) -> bytes:
        exports = by_view.setdefault(view, {})
        if options not in exports:
            async with turn:
                if options not in exports:
                    body = await anyio.to_thread.run_sync(make)
                    if len(exports) >= _MOST_KEPT:
                        del exports[next(iter(exports))]
                    exports[options] = body
        return exports[options]

    return export


class ToolExports:
    """Lists tools in the wanted format."""

    def __init__(self, hub: HubPort, closing: Closing) -> None:
        self._hub = hub
        self._closing = closing
        self._export = kept_exports()

    async def answer(self, request: RestRequest, client: ClientKind) -> Response:
        """The tools for clients of this kind. Raises `Problem`, `Rejected`."""
        return await self._answer(request, client, exported)

    async def losses(self, request: RestRequest, client: ClientKind) -> Response:
        """The format's losses. Raises `Problem`, `Rejected`."""
        return await self._answer(request, client, losses)

    async def _answer(self, request: RestRequest, client: ClientKind, form: _Form) -> Response:
        options, profile = export_options(request), request.caller.profile
        if options.is_deferred and client.expose != "full":
            raise Problem(400, "invalid_parameter", "defer=1 lists every tool: leave out expose=")
        starting = await self._starting(request, options.selection.server)
        await self._hub.views.arrived(request.caller)
        view = self._hub.catalog.exposed(profile, client, None, self._hub.views.lists(request.caller))
        if not any(options.selection.has(tool.exported, tool.server) for tool in view.entries(Kind.TOOL)):
            if starting:
                raise still_starting(starting, "No tools yet")
            if options.selection.tools is None:
                check_up(self._hub, profile, options.selection.server)

        whole = self._hub.views.whole(request.caller)

        def make() -> bytes:
            listed, servers = view.entries(Kind.TOOL), self._hub.catalog.rules(profile).servers
            options.selection.check([tool.exported for tool in listed], servers)
            chosen = [tool for tool in listed if options.selection.has(tool.exported, tool.server)]
            search = self._hub.catalog.search_tool(Counter(tool.server for tool in chosen))
            groups: dict[str, ToolGroup] = {}
            if options.is_grouped:
                owners = {tool.exported: tool.server for tool in whole.entries(Kind.TOOL)}
                groups = tool_groups(owners, {name: settings.description for name, settings in servers.items()})
            read_only = frozenset(tool.exported for tool in chosen if tool.is_read_only)
            definitions = [tool.definition(Era.MODERN, explains_hints=options.explains_hints) for tool in chosen]
            return form(_ChosenTools(definitions, search, groups, read_only), options)

        try:
            body = await self._export(view, (form, options), make)
        except Problem as problem:
            raise still_starting(starting, "Not all of these tools yet") if starting else problem from None
        if starting and form is exported:
            body = b'%b,"starting":%b}' % (body[:-1], msgspec.json.encode(starting))
        response = Response(body, media_type=JSON)
        response.raw_headers.extend([SOON] if starting else [])
        return response

    async def _starting(self, request: RestRequest, server: str | None) -> list[str]:
        """Servers that are starting, after the wait that the request prefers; only `server`, if given."""
        profile, wait = request.caller.profile, preferred_wait(request.header("prefer"), 0.0)
        starting = starting_servers(self._hub, profile)
        if starting and wait:
            starting = await self._closing.connected(request, started_servers(self._hub, profile, wait))
        return starting if server is None else [name for name in starting if name == server]


def exported(chosen: _ChosenTools, options: ExportOptions) -> bytes:
    """The encoded tools."""
    if options.into is Format.MCP and not options.is_grouped:  # as they are, byte for byte
        first = [chosen.search] if options.is_deferred else []
        return b'{"tools":[%b]}' % b",".join([*first, *chosen.definitions])
    return msgspec.json.encode(_export(chosen, options).body)


def losses(chosen: _ChosenTools, options: ExportOptions) -> bytes:
    """The encoded losses by name."""
    return msgspec.json.encode(ToolLosses(options.into, _export(chosen, options).losses))


def _export(chosen: _ChosenTools, options: ExportOptions) -> Exported:
    return export(
        _Decoded([] if options.is_inline and options.is_deferred else chosen.definitions),
        options.into,
        is_strict=options.is_strict,
        search=msgspec.json.decode(chosen.search) if options.is_deferred else None,
        # nobody is asked before code calls a tool
        programmatic=chosen.read_only if options.is_programmatic else (),
        groups=chosen.groups if options.is_grouped else None,
        sealed=_encoded,
    )


class _Decoded:
    """Decodes definitions one by one: all at once take more memory."""

    def __init__(self, definitions: list[bytes]) -> None:
        self._definitions = definitions

    def __len__(self) -> int:
        return len(self._definitions)

    def __iter__(self) -> Iterator[JsonObject]:
        return map(msgspec.json.Decoder(JsonObject).decode, self._definitions)


def _encoded(tool: JsonObject) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(tool))

"""`GET /v1/tools` in every format, and as connector entries: the provider connects to the hub's MCP endpoint.

Exports are cached per view and options.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from typing import Final
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread
import msgspec
from msgspec import Raw
from msgspec.structs import replace
from starlette.responses import Response

from mcp_hub.errors import Rejected
from mcp_hub.formats.providers import CONNECTORS, FORMATS, Connector, Format, connect, endpoint
from mcp_hub.formats.records import Exported
from mcp_hub.formats.tools import PROGRAMMATIC, ToolGroup, export, tool_groups
from mcp_hub.fronts.rest.calls import (
    SOON,
    check_up,
    preferred_wait,
    started_servers,
    starting_servers,
    still_starting,
)
from mcp_hub.fronts.rest.exchange import JSON, Handlers, RestRequest, answer
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.fronts.rest.routes import EXPOSE
from mcp_hub.fronts.rest.streams import Closing
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol import eras
from mcp_hub.protocol.rest.calls import ToolLosses
from mcp_hub.sessions.session import Session
from mcp_hub.types import PROGRAM, ClientKind, Era, JsonObject, Kind

_FLAGS: Final = {"": False, "0": False, "false": False, "1": True, "true": True}
_SHOWN: Final = 50
"""Characters of a value that an error repeats."""
_CLIENT_KINDS: Final = {expose: PROGRAM if expose == "full" else replace(PROGRAM, expose=expose) for expose in EXPOSE}


class ToolSelection(msgspec.Struct, frozen=True):
    """The selected tools, None for all."""

    tools: frozenset[str] | None = None
    server: str | None = None

    def has(self, name: str, server: str) -> bool:
        return (self.tools is None or name in self.tools) and self.server in (None, server)

    def check(self, names: Iterable[str], servers: Collection[str]) -> None:
        """Raises `Problem` 404 for an unlisted tool or unknown server."""
        if self.server is not None and self.server not in servers:
            raise unknown_server(self.server, servers)
        missing = sorted((self.tools or frozenset()).difference(names))
        if missing:
            examples = ", ".join(hide_head(name, _SHOWN) for name in missing[:5])
            raise Problem(
                404, "unknown_tool", f"tools= names tools that are not listed: {examples}. See GET /v1/tools."
            )


class _ExportOptions(msgspec.Struct, frozen=True):
    """All that an export depends on besides the view."""

    into: Format
    is_strict: bool
    is_deferred: bool
    is_programmatic: bool
    explains_hints: bool
    selection: ToolSelection
    is_grouped: bool = False
    is_inline: bool = False


def export_options(request: RestRequest) -> _ExportOptions:
    """The query's options. Raises `Problem`, `Rejected`."""
    into, callers = wanted_format(request.query_params.get("format", Format.MCP)), request.query_params.get("callers")
    if callers not in (None, "direct", "programmatic"):
        raise Problem(
            400, "invalid_parameter", f"callers has to be direct or programmatic, not {hide_head(callers, _SHOWN)!r}"
        )
    if callers == "programmatic" and into not in PROGRAMMATIC:
        supported = ", ".join(PROGRAMMATIC)
        raise Problem(400, "invalid_parameter", f"callers=programmatic is for {supported}: models of {into} lack it")
    explains_hints = flag(request, "hints")
    if explains_hints and into is not Format.MCP:
        raise Problem(400, "invalid_parameter", f"hints=1 is for {Format.MCP}: tools of {into} do not have hints")
    return _ExportOptions(
        into=into,
        is_strict=flag(request, "strict"),
        is_deferred=flag(request, "defer"),
        is_programmatic=callers == "programmatic",
        explains_hints=explains_hints,
        selection=selection(request),
        is_grouped=wants_groups(request, FORMATS[into].has_groups and flag(request, "defer")),
        is_inline=wants_inline(request, into),
    )


def wants_groups(request: RestRequest, default: bool) -> bool:
    """Whether tools are grouped by server. Raises `Problem`."""
    by = request.query_params.get("group")
    if by not in (None, "server", "none"):
        raise Problem(400, "invalid_parameter", f"group has to be server or none, not {hide_head(by, _SHOWN)!r}")
    return default if by is None else by == "server"


def wants_inline(request: RestRequest, into: Format) -> bool:
    """Whether messages define the tools that a search finds. Raises `Problem`."""
    is_inline = flag(request, "inline")
    if is_inline and FORMATS[into].write_inline is None:
        takes = ", ".join(name for name, entry in FORMATS.items() if entry.write_inline is not None)
        raise Problem(400, "invalid_parameter", f"inline=1 is for {takes}: messages of {into} cannot define tools")
    return is_inline


def wanted_format(name: str) -> Format:
    """The named format. Raises `Rejected`."""
    if name not in list(Format):
        supported = ", ".join([*Format, *CONNECTORS])
        raise Rejected("unknown_format", f'unknown format "{hide_head(name, _SHOWN)}". Use one of: {supported}.')
    return Format(name)


def selection(request: RestRequest) -> ToolSelection:
    """The query's selected tools. Raises `Problem`."""
    tools = request.query_params.get("tools")
    names = None if tools is None else frozenset(name for part in tools.split(",") if (name := part.strip()))
    if names is not None and not names:
        raise Problem(400, "invalid_parameter", "tools has to name tools, separated by commas")
    return ToolSelection(names, request.query_params.get("server"))


def flag(request: RestRequest, name: str) -> bool:
    """A parameter, 1 or 0. Raises `Problem`."""
    value = request.query_params.get(name, "")
    if value not in _FLAGS:
        raise Problem(400, "invalid_parameter", f"{name} has to be 1 or 0, not {hide_head(value, _SHOWN)!r}")
    return _FLAGS[value]


_MOST_KEPT: Final = 16
"""Exports of one view that are kept; the oldest goes first."""


class _Page(msgspec.Struct, rename="camel"):
    tools: list[dict[str, Raw]]
    next_cursor: str | None = None


async def connector_entries(hub: HubPort, public_url: str | None, request: RestRequest, kind: Connector) -> Response:
    """The entries of the caller's profile; `public_url` is configured. Raises `Problem`, `Rejected`."""
    caller, chosen = request.caller, selection(request)
    url = endpoint(request.query_params.get("url", public_url), caller.profile)
    is_deferred = flag(request, "defer")
    session = Session("", caller, Era.HANDSHAKE, eras.LATEST_HANDSHAKE, client_info={"name": kind})
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
    """Encoded `definitions`; by exported name, `groups` (servers) and `read_only`. `search` finds deferred tools."""

    definitions: list[bytes]
    search: bytes
    groups: Mapping[str, ToolGroup]
    read_only: frozenset[str]


_Form = Callable[[_ChosenTools, _ExportOptions], bytes]


def kept_exports() -> Callable[[object, object, Callable[[], bytes]], Awaitable[bytes]]:
    """Caches exports by view and options, dropped with the view.

    The third argument makes a new export in a worker thread.
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


class _ToolExports:
    """Lists tools in the wanted format. Raises `Problem`, `Rejected`."""

    def __init__(self, hub: HubPort, closing: Closing, public_url: Callable[[], str | None]) -> None:
        self._hub = hub
        self._closing = closing
        self._public_url = public_url
        self._export = kept_exports()

    async def list_tools(self, request: RestRequest) -> Response:
        format = request.query_params.get("format")
        for kind in CONNECTORS:
            if format == kind:
                return await connector_entries(self._hub, self._public_url(), request, kind)
        return await self._answer(request, exported)

    async def list_losses(self, request: RestRequest) -> Response:
        return await self._answer(request, losses)

    async def _answer(self, request: RestRequest, form: _Form) -> Response:
        client = _client_kind(request)
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


def _client_kind(request: RestRequest) -> ClientKind:
    expose = request.query_params.get("expose", "full")
    if expose not in _CLIENT_KINDS:
        raise Problem(
            400, "unknown_expose", f"unknown expose {hide_head(expose, _SHOWN)!r}; known: {', '.join(_CLIENT_KINDS)}"
        )
    return _CLIENT_KINDS[expose]


def tool_handlers(hub: HubPort, closing: Closing, public_url: Callable[[], str | None]) -> Handlers:
    """`/v1/tools`."""
    served = _ToolExports(hub, closing, public_url)
    return {"listTools": served.list_tools, "listLosses": served.list_losses}


def exported(chosen: _ChosenTools, options: _ExportOptions) -> bytes:
    """The encoded tools."""
    if options.into is Format.MCP and not options.is_grouped:  # as they are, byte for byte
        first = [chosen.search] if options.is_deferred else []
        return b'{"tools":[%b]}' % b",".join([*first, *chosen.definitions])
    return msgspec.json.encode(_export(chosen, options).body)


def losses(chosen: _ChosenTools, options: _ExportOptions) -> bytes:
    """The encoded losses by name."""
    return msgspec.json.encode(ToolLosses(options.into, _export(chosen, options).losses))


def _export(chosen: _ChosenTools, options: _ExportOptions) -> Exported:
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

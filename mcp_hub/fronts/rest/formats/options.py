"""The query of a request for tools: format, options, selected tools."""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.formats.connectors import Connector
from mcp_hub.formats.providers import FORMATS, Format
from mcp_hub.formats.tools import PROGRAMMATIC
from mcp_hub.fronts.rest.exchange import RestRequest
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.masking import hide_head

_FLAGS: Final = {"": False, "0": False, "false": False, "1": True, "true": True}
_SHOWN: Final = 50
"""Characters of a value that an error repeats."""


class ToolSelection(msgspec.Struct, frozen=True):
    """The selected tools, None for all."""

    tools: frozenset[str] | None = None
    server: str | None = None

    def has(self, name: str, server: str) -> bool:
        return (self.tools is None or name in self.tools) and self.server in (None, server)

    def check(self, names: Iterable[str], servers: Collection[str]) -> None:
        """Raises `Problem` 404 for an unlisted tool, or an unknown server."""
        if self.server is not None and self.server not in servers:
            raise unknown_server(self.server, servers)
        missing = sorted((self.tools or frozenset()).difference(names))
        if missing:
            examples = ", ".join(hide_head(name, _SHOWN) for name in missing[:5])
            raise Problem(
                404, "unknown_tool", f"tools= names tools that are not listed: {examples}. See GET /v1/tools."
            )


class ExportOptions(msgspec.Struct, frozen=True):
    """All that an export depends on besides the view."""

    into: Format
    is_strict: bool
    is_deferred: bool
    is_programmatic: bool
    explains_hints: bool
    selection: ToolSelection
    is_grouped: bool = False
    is_inline: bool = False


def export_options(request: RestRequest) -> ExportOptions:
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
    return ExportOptions(
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
    """Whether the tools that a search finds are defined in messages. Raises `Problem`."""
    is_inline = flag(request, "inline")
    if is_inline and FORMATS[into].write_inline is None:
        takes = ", ".join(name for name, entry in FORMATS.items() if entry.write_inline is not None)
        raise Problem(400, "invalid_parameter", f"inline=1 is for {takes}: messages of {into} cannot define tools")
    return is_inline


def wanted_format(name: str) -> Format:
    """The named format. Raises `Rejected`."""
    if name not in list(Format):
        supported = ", ".join([*Format, *Connector])
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

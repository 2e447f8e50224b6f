"""Warnings about servers' tools for `list`, `doctor` and `check`: not approved, suspicious."""

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote
from typing import Final

from mcp_hub.catalog.pins import UnapprovedTool
from mcp_hub.cli.render.tables import plural
from mcp_hub.errors import ConfigFinding
from mcp_hub.protocol.rest.servers import ServerInfo

__all__ = ["notices"]

_MOST: Final = 10
"""Lines about one server; `mcp-hub approve` and `--json` have all."""


def notices(servers: Iterable[ServerInfo]) -> list[ConfigFinding]:
    """A finding for each tool that is not approved and for each flag."""
    return [
        ConfigFinding(code, line, path=f"servers.{own.server}")
        for own in servers
        for code, lines in (("tool_not_approved", _unapproved(own)), ("suspicious_tool", _flags(own)))
        for line in lines
    ]


def _unapproved(own: ServerInfo) -> Iterator[str]:
    if not own.unapproved:
        return
    for found in own.unapproved[:_MOST]:
        said = UnapprovedTool(own.server, found.tool, found.kind, tuple(found.members)).text
        yield f"tool {found.tool} {said}{'; it is held back' if found.held else ''}"
    more = _more(own.unapproved)
    yield f"{f'{more} more, ' if more else ''}see and approve: mcp-hub approve {quote(own.server)}"


def _flags(own: ServerInfo) -> Iterator[str]:
    for flag in own.flags[:_MOST]:
        text = f": {flag.text}" if flag.text else ""
        yield f"tool {flag.tool}: {flag.where}: {flag.why}{text}"
    if more := _more(own.flags):
        yield f"{plural(more, 'more flag')} of this server's tools"


def _more(found: Sequence[object]) -> int:
    return max(len(found) - _MOST, 0)

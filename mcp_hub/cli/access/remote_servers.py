"""The servers of a hub that runs, as `mcp-hub list --url` shows them: `GET /v1/servers` in the form of `list`."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.cli.access import waiting
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.results import visible
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.types import Era, JsonObject, Kind, UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.client import HubClient
    from mcp_hub.protocol.rest.servers import ServerInfo

__all__ = ["list_there", "status_there"]

_MOST: Final = 10
"""Lines about the tools of one server; `--json` has all."""


async def list_there(client: "HubClient", as_json: bool) -> int:
    """Prints a table, or a document with what the local one has, as far as a hub tells it; counts are of what the
    servers list, before filters. 3 when an enabled one is not ready. Raises `RpcError`.
    """
    found = await client.servers()
    entries = {own.server: own.entries for own in found}

    def count(kind: Kind, server: str) -> int:
        return entries[server].get(kind.value, 0)

    statuses = [status_there(own) for own in found]
    missing = waiting.not_ready(statuses)
    if as_json:
        servers = [_data(own, status, count) for own, status in zip(found, statuses, strict=True)]
        click.echo(msgspec.json.format(msgspec.json.encode({"servers": servers}), indent=2))
    elif not found:
        click.echo(visible(f"no servers that may be used at {client.url}"))
    else:
        tables.print_table(tables.server_table(statuses, count))
        told = [s for s in statuses if s.rests or (s.reason and s.version and s.state is UpstreamState.READY)]
        tables.print_lines(tables.reasons([*told, *missing], ()))
        tables.print_lines(tables.warnings(statuses, ()))
        tables.print_lines([(visible(line), "yellow") for line in _notices(found)])
    return EXIT_UNAVAILABLE if missing else 0


def status_there(own: "ServerInfo") -> UpstreamStatus:
    """The same as of a server of our own; without what it calls itself."""
    return UpstreamStatus(
        own.server,
        UpstreamState(own.state),
        own.reason or None,
        Era(own.era) if own.era else None,
        own.version or None,
        restarts=own.restarts,
        pid=own.pid or None,
        stderr=tuple(own.stderr),
        warnings=tuple(own.warnings),
        listed_at=_seconds(own.listed) if own.listed else None,
        rests=own.rests,
        code=own.code or None,
    )


def _seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None


def _data(own: "ServerInfo", status: UpstreamStatus, count: tables.Count) -> JsonObject:
    said = tables.status_data(status, count, ())
    del said["serverInfo"]  # the hub tells it as one text
    more = {"software": own.software or None, "pid": own.pid or None}
    return {**said, **more, "unapproved": own.unapproved, "flags": own.flags}


def _notices(found: "Sequence[ServerInfo]") -> Iterator[str]:
    for own in found:
        about = f"servers.{own.server}: tool"
        lines = [
            f"{about} {tool.tool} is not approved ({tool.kind}){'; it is held back' if tool.held else ''}"
            for tool in own.unapproved
        ]
        lines += [f"{about} {flag.tool}: {flag.where}: {flag.why}" for flag in own.flags]
        yield from lines[:_MOST]
        if len(lines) > _MOST:
            yield f"servers.{own.server}: {tables.plural(len(lines) - _MOST, 'more line')}, which --json has"

"""`mcp-hub streams` lists durable calls, running or kept after their end; `mcp-hub cancel` ends one."""

from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.cli.access.hub import Reach, run_with_streams, stream_options
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import stream_argument
from mcp_hub.clock import wall_time
from mcp_hub.masking import hide_head, visible

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.cli.access.hub import StreamAccess
    from mcp_hub.protocol.rest.streams import StreamStatus

_STYLES: Final = {"completed": "green", "tool_error": "red", "failed": "red", "cancelled": "dim"}
_MESSAGE: Final = 80
"""Characters of a message in the table."""
_NARROW: Final = 80
"""Columns of a terminal that has no room for messages beside the names of tools."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N",
    help="Maximum number of streams.",
)  # fmt: skip
@stream_options
def streams(as_json: bool, limit: int, reach: Reach) -> None:
    """List durable calls, newest first.

    A call becomes durable when it sends anything before its result or runs for more than 250 ms; calls over REST and by
    `mcp-hub call` always are. A durable call is kept for hub.store.retention (1 day) after its end. Asks the
    running hub of the configuration; if none runs, lists the calls of all hubs that use the configured store.
    """
    run_with_streams(reach, lambda access: _streams(access, limit, as_json))


async def _streams(access: "StreamAccess", limit: int, as_json: bool) -> int:
    listed = await access.streams(limit)
    if as_json:
        tables.print_json({"streams": listed})
    elif not listed:
        put("No durable calls are stored.")
    else:
        tables.print_table(stream_table(listed, wall_time(), tables.console().width))
    return 0


def stream_table(listed: "list[StreamStatus]", now: float, width: int) -> "Table":
    """A row for each; ages are as of `now`, Unix seconds. In less than `_NARROW` columns there are no messages."""
    columns = ("stream", "tool", "status", "age", "message")[: 4 if width < _NARROW else 5]
    made = tables.table(*columns, right=("age",), whole=("stream", "status", "age"))
    for status in listed:
        message = "" if status.message is msgspec.UNSET else " ".join(visible(status.message).split())
        shown = hide_head(message, _MESSAGE, "…")
        state = tables.cell(status.status, _STYLES.get(status.status, "yellow"))
        created = tables.unix_time(status.created)
        age = "" if created is None else tables.age(created, now)
        cells = (tables.cell(status.stream), tables.short_cell(status.name), state, age, tables.short_cell(shown))
        made.add_row(*cells[: len(columns)])
    return made


@click.command()
@stream_argument
@stream_options
def cancel(stream: str, reach: Reach) -> None:
    """Cancel a call by its STREAM id.

    Asks the running hub of the configuration; if none runs, the hub on this machine that runs the call, through the
    configured store. The call ends a moment later; `mcp-hub resume` shows how.
    """
    run_with_streams(reach, lambda access: _cancel(access, stream), stream)


async def _cancel(access: "StreamAccess", stream: str) -> int:
    status = await access.cancel(stream)
    ended = f"{stream} had already ended: {status.status}"
    say(ended if status.has_ended else f"{stream} is being cancelled")
    return 0

"""`mcp-hub streams`: the durable calls, those that run and those that are kept after their end."""

from datetime import datetime
from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.cli import tables
from mcp_hub.cli.results import visible
from mcp_hub.cli.running_hub import url_options
from mcp_hub.cli.setup import config_option
from mcp_hub.cli.stream_access import StreamAccess, run_with_streams
from mcp_hub.clock import wall_time

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.client import StreamStatus

__all__ = ["age", "stream_table", "streams"]

_STYLES: Final = {"completed": "green", "failed": "red", "cancelled": "dim"}
_UNITS: Final = ((86400, "d"), (3600, "h"), (60, "min"))
_MESSAGE: Final = 80
"""Characters of a message in the table."""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, metavar="N", help="At most N.")
@url_options
@config_option
def streams(as_json: bool, limit: int, config: str | None, url: str | None, token: str | None) -> None:
    """List durable calls, the newest first.

    A call is durable when it takes a while, streams, or is detached; it is kept for a day after its end. Without --url
    those in the store of the configuration, of all hubs on this machine that use it.
    """
    run_with_streams(url, token, config, lambda access: _streams(access, limit, as_json))


async def _streams(access: StreamAccess, limit: int, as_json: bool) -> int:
    listed = await access.streams(limit)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"streams": listed}), indent=2))
    elif not listed:
        click.echo("no streams")
    else:
        tables.print_table(stream_table(listed, wall_time()))
    return 0


def stream_table(listed: "list[StreamStatus]", now: float) -> "Table":
    """A row for each; ages are as of `now`, Unix seconds."""
    from rich.text import Text

    made = tables.table("stream", "tool", "status", "age", "message", right=("age",))
    for status in listed:
        message = "" if status.message is msgspec.UNSET else " ".join(visible(status.message).split())
        shown = message if len(message) <= _MESSAGE else message[: _MESSAGE - 1] + "…"
        state = Text(visible(status.status), _STYLES.get(status.status, "yellow"))
        made.add_row(Text(visible(status.stream)), Text(visible(status.name)), state, age(status, now), Text(shown))
    made.columns[0].no_wrap = True
    return made


def age(status: "StreamStatus", now: float) -> str:
    """How long ago the call was made, in the largest unit of which there is one; empty if that is not known."""
    try:
        made = datetime.fromisoformat(status.created).timestamp()
    except ValueError:
        return ""
    seconds = max(now - made, 0.0)
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

"""`mcp-hub logs`: the stderr of servers, and the hub's events."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import click
import msgspec

from mcp_hub.app.limits import state_dir
from mcp_hub.cli import completion
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put_json, say
from mcp_hub.cli.setup import check_servers, config_option, config_path, load_config, run_with
from mcp_hub.masking import visible
from mcp_hub.stores.server_logs import LogRecord, ServerLogReader, log_folder

if TYPE_CHECKING:
    from rich.text import Text

_LOOK: Final = 0.25
"""Seconds between two looks with --follow: as often as hubs write."""
_STYLES: Final = {"warning": "yellow", "error": "red", "critical": "red"}
_COLORS: Final = ("cyan", "magenta", "blue", "green", "yellow", "bright_cyan", "bright_magenta", "bright_blue")


@click.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@click.option("--follow", "-f", is_flag=True, help="Keep printing new lines until Ctrl-C.")
@click.option(
    "--lines", "-n", type=click.IntRange(min=0), default=100, show_default=True, metavar="N",
    help="Print the last N lines.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
@config_option
def logs(server: str | None, follow: bool, lines: int, as_json: bool, config: str | None) -> None:
    """Show what servers wrote to stderr.

    Prints the stderr of all servers, or of SERVER, and what the hub says about them, in the order of time; also when no
    hub runs any more. Starts nothing.
    """
    path = os.path.abspath(config_path(config))
    folder = log_folder(state_dir(os.environ), path)
    if server is not None and server not in ServerLogReader(folder).servers():
        check_servers(load_config(config, partly=True), [server])
    reader = ServerLogReader(folder, server)
    records = reader.fresh()
    if not records:
        subject = path if server is None else f'"{server}" of {path}'
        say(f"There is no log of {subject}. A hub writes one when it runs a server.")
    _print(records[len(records) - min(lines, len(records)) :], as_json)
    if follow:
        run_with(_nothing, lambda _: _follow(reader, as_json))


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield


async def _follow(reader: ServerLogReader, as_json: bool) -> int:
    while True:
        await anyio.sleep(_LOOK)
        _print(await anyio.to_thread.run_sync(reader.fresh), as_json)


def _print(records: Sequence[LogRecord], as_json: bool) -> None:
    if as_json:
        for record in records:
            put_json(msgspec.json.encode(record))
        return
    out = tables.console()
    for record in records:
        out.print(_line(record), soft_wrap=True)


def _line(record: LogRecord) -> "Text":
    """`2026-11-27 16:01:02 git | text`, in local time."""
    from rich.text import Text

    moment = tables.unix_time(record.time)
    when = record.time if moment is None else f"{datetime.fromtimestamp(moment):%Y-%m-%d %H:%M:%S}"
    color = _COLORS[sum(record.server.encode(errors="replace")) % len(_COLORS)]
    line = Text.assemble((visible(f"{when} "), "dim"), (visible(record.server), color), (" | ", "dim"))
    if record.stderr is not None:
        return line.append(visible(record.stderr))
    message = " ".join([record.event, *(f"{key}={value}" for key, value in record.data.items())])
    return line.append(visible(f"hub: {message}"), _STYLES.get(record.level, "bold"))

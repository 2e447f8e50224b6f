"""`mcp-hub streams`, `resume` and `cancel`."""

from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import click
import msgspec
from msgspec import UNSET

from mcp_hub.cli.access.answering import answered, is_for_person
from mcp_hub.cli.access.following import Asked, followed, refuse, run_with_streams, show_for
from mcp_hub.cli.access.hub import Reach, stream_options
from mcp_hub.cli.access.running import hubs_of
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.renderers import Show
from mcp_hub.cli.setup import Output, output_options, stream_argument
from mcp_hub.clock import wall_time
from mcp_hub.errors import UpstreamLost
from mcp_hub.events import InputRequired
from mcp_hub.masking import hide_head, visible

if TYPE_CHECKING:
    from rich.table import Table

    from mcp_hub.cli.access.following import Events, StreamAccess
    from mcp_hub.protocol.rest.calls import StreamList, StreamStatus

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
    `mcp-hub call` always are. It is kept for hub.store.retention (1 day) after its end. Asks the running hub, or reads
    the store. Calls that run and are not durable yet are counted.
    """
    run_with_streams(reach, lambda access: _streams(access, limit, as_json, reach))


async def _streams(access: "StreamAccess", limit: int, as_json: bool, reach: Reach) -> int:
    listed = await access.stream_list(limit)
    if as_json:
        tables.print_json({"streams": listed.streams, "unstored": listed.unstored, "waiting": listed.waiting})
        return 0
    if listed.streams:
        now, width = wall_time(), tables.console().width
        tables.print_table(stream_table(listed.streams, now, width))
        if width < _NARROW:
            tables.print_lines(
                [(visible(f"{row.stream} {text}"), "") for row in listed.streams if (text := waiting_text(row, now))]
            )
    if text := rest_text(listed, 0 if reach.url is not None else _hubs_of_one_client(reach.config)):
        put(visible(text))
    return 0


def _hubs_of_one_client(config: str | None) -> int:
    return sum(not hub.endpoint for hub in hubs_of(config)[1])


def rest_text(listed: "StreamList", hubs: int) -> str:
    """A sentence on calls that are not in the table, or ""."""
    parts = []
    if number := listed.unstored:
        turn = f"waiting for {'its' if listed.waiting == 1 else 'their'} turn"
        waiting = f", {turn if number == 1 else f'{listed.waiting} of them {turn}'}" if listed.waiting else ""
        subject = (
            f"{tables.plural(number, 'more call' if listed.streams else 'call')} {'runs' if number == 1 else 'run'}"
        )
        parts.append(f"{subject}{waiting}: not stored yet. A call is stored when it takes more than 250 ms.")
    elif not listed.streams:
        parts.append("No durable calls are stored.")
    if hubs and not listed.streams:
        which = "A hub of one client runs" if hubs == 1 else f"{hubs} hubs of one client each run"
        parts.append(f"{which}: this command cannot count the calls there that are not durable.")
    return " ".join(parts)


def waiting_text(status: "StreamStatus", now: float) -> str:
    """`waits for slow_tool of Cursor, 12 s`, or "". `now` in Unix seconds."""
    if status.waits_for is msgspec.UNSET:
        return ""
    since = None if status.waits_since is msgspec.UNSET else tables.unix_time(status.waits_since)
    return f"waits for {status.waits_for}" + ("" if since is None else f", {tables.age(since, now)}")


def stream_table(listed: "list[StreamStatus]", now: float, width: int) -> "Table":
    """A row for each stream, without messages below `_NARROW` columns. `now` in Unix seconds."""
    columns = ("stream", "tool", "status", "age", "message")[: 4 if width < _NARROW else 5]
    table = tables.table(*columns, right=("age",), whole=("stream", "status", "age"))
    for status in listed:
        text = waiting_text(status, now) or ("" if status.message is msgspec.UNSET else status.message)
        message = " ".join(visible(text).split())
        short_text = hide_head(message, _MESSAGE, "…")
        state = "waiting" if status.waits_for else status.status
        created = tables.unix_time(status.created)
        age = "" if created is None else tables.age(created, now)
        styled = tables.cell(state, _STYLES.get(state, "yellow"))
        cells = (tables.cell(status.stream), tables.short_cell(status.name), styled, age, tables.short_cell(short_text))
        table.add_row(*cells[: len(columns)])
    return table


@click.command()
@stream_argument
@stream_options
def cancel(stream: str, reach: Reach) -> None:
    """Cancel a call by its STREAM id.

    Asks the running hub, or through the store the hub on this machine that runs the call. The call ends a moment later;
    `mcp-hub resume` shows how.
    """
    run_with_streams(reach, lambda access: _cancel(access, stream), stream)


async def _cancel(access: "StreamAccess", stream: str) -> int:
    status = await access.cancel(stream)
    ended = f"{stream} had already ended: {status.status}"
    say(ended if status.has_ended else f"{stream} is being cancelled")
    return 0


@click.command()
@stream_argument
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="Show only events after number N.")
@click.option("--json", "json_lines", is_flag=True, help="Print JSON lines.")
@output_options(lambda options: "jsonl" if options["json_lines"] else "text")
@stream_options
def resume(stream: str, after: int | None, json_lines: bool, output: Output, reach: Reach) -> None:
    """Follow a call by its STREAM id.

    Shows progress, partial output and the result, from the start or from event N. Without a running hub, reads the
    store. Ctrl-C stops following, not the call; `mcp-hub cancel` ends the call. On a terminal, asks the open questions
    of the tool.
    """
    again = f"mcp-hub resume {stream}" if reach.url is None else f"mcp-hub resume {stream} --url {reach.url}"
    run_with_streams(reach, lambda access: _resume(access, stream, after, output, again), stream)


async def _resume(access: "StreamAccess", stream: str, after: int | None, output: Output, again: str) -> int:
    """`again` is the command that continues from here."""
    from mcp_hub.client import HubClient

    status = await access.status(stream)
    begin = status.first - 1 if after is None else after
    name = status.name or stream
    show = show_for(output, name)

    async def ask(question: InputRequired) -> str:
        if isinstance(access, HubClient) and is_for_person(question):
            return await answered(access, stream, question, show, name)
        pending = (await access.status(stream)).questions
        if pending is UNSET or question.key not in {info.key for info in pending}:
            return f"The question {question.key!r} is not open any more."
        return f"The tool waits for an answer to {question.key!r} ({question.method}): POST /v1/streams/{stream}/input"

    try:
        if begin and after is None:
            show.note(f"events 1 to {begin} are no longer kept")
        async with access.resume(stream, begin, on_pause=show.note) as events:
            return await _followed(events, show, ask, status.method, again, output.folder)
    finally:
        show.close()


async def _followed(events: "Events", show: Show, ask: Asked, method: str, again: str, folder: Path | None) -> int:
    try:
        code = await followed(events, show, ask, method=method, folder=folder)
    except UpstreamLost as error:
        return refuse(show, error)
    except anyio.get_cancelled_exc_class():
        show.close()
        show.note(f"Stopped following {events.stream}. The call continues: {again} --after {events.cursor}")
        raise
    if code is None:
        show.note(f"{events.stream} has ended; event {events.cursor} is its last")
    return code or 0

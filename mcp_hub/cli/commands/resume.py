"""`mcp-hub resume`: follows a call by the id of its stream, from the start or behind an event.

SIGINT and SIGTERM stop following; they do not end the call.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import click
from msgspec import UNSET

from mcp_hub.cli.access.following import Asked, followed, refuse, show_for
from mcp_hub.cli.access.hub import Reach, stream_options
from mcp_hub.cli.access.stored import run_with_streams
from mcp_hub.cli.questions.answering import answered, is_for_person
from mcp_hub.cli.render.renderers import Show
from mcp_hub.cli.setup import Output, output_options, stream_argument
from mcp_hub.errors import UpstreamLost
from mcp_hub.events import InputRequired

if TYPE_CHECKING:
    from mcp_hub.cli.access.following import Events
    from mcp_hub.cli.access.stored import StreamAccess


@click.command()
@stream_argument
@click.option("--after", type=click.IntRange(min=0), metavar="N", help="Show only events after number N.")
@click.option("--json", "json_lines", is_flag=True, help="Print JSON lines.")
@output_options(lambda given: "jsonl" if given["json_lines"] else "text")
@stream_options
def resume(stream: str, after: int | None, json_lines: bool, output: Output, reach: Reach) -> None:
    """Follow a call by its STREAM id.

    Shows progress, partial output and the result, from the start or from event N. Without a running hub, the
    stream is read from the configured store; the call may have ended, or run in a hub over stdio. Ctrl-C stops
    following, not the call; use `mcp-hub cancel` to end the call. On a terminal, open questions of the tool are asked.
    """
    again = f"mcp-hub resume {stream}" if reach.url is None else f"mcp-hub resume {stream} --url {reach.url}"
    run_with_streams(reach, lambda access: _resume(access, stream, after, output, again), stream)


async def _resume(access: "StreamAccess", stream: str, after: int | None, output: Output, again: str) -> int:
    """`again` is the command that continues where this one stops, without its `--after`."""
    from mcp_hub.client import HubClient

    status = await access.status(stream)
    begin = status.first - 1 if after is None else after
    name = status.name or stream
    show = show_for(output, name)

    async def asked(question: InputRequired) -> str:
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
            return await _followed(events, show, asked, status.method, again, output.folder)
    finally:
        show.close()


async def _followed(events: "Events", show: Show, asked: Asked, method: str, again: str, folder: Path | None) -> int:
    """Follows the events; the exit code. Raises `RpcError` for a stream that cannot be followed."""
    try:
        code = await followed(events, show, asked, method=method, folder=folder)
    except UpstreamLost as error:
        return refuse(show, error)
    except anyio.get_cancelled_exc_class():
        show.close()
        show.note(f"Stopped following {events.stream}. The call continues: {again} --after {events.cursor}")
        raise
    if code is None:
        show.note(f"{events.stream} has ended; event {events.cursor} is its last")
    return code or 0

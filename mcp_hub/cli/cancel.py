"""`mcp-hub cancel`: asks for the end of a call by the id of its stream, whichever hub runs it."""

import click

from mcp_hub.cli.parameters import stream_argument
from mcp_hub.cli.results import visible
from mcp_hub.cli.running_hub import url_options
from mcp_hub.cli.setup import config_option
from mcp_hub.cli.stream_access import StreamAccess, run_with_streams

__all__ = ["cancel"]


@click.command()
@stream_argument
@url_options
@config_option
def cancel(stream: str, config: str | None, url: str | None, token: str | None) -> None:
    """Cancel the call of a STREAM.

    Its hub is asked: the one at --url, or one on this machine through the store of the configuration. The call has its
    ending a moment later, which `mcp-hub resume` shows.
    """
    run_with_streams(url, token, config, lambda access: _cancel(access, stream), stream)


async def _cancel(access: StreamAccess, stream: str) -> int:
    status = await access.cancel(stream)
    ended = f"{stream} has ended already: {status.status}"
    click.echo(visible(ended if status.has_ended else f"{stream} is being cancelled"), err=True)
    return 0

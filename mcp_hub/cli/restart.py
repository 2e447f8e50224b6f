"""`mcp-hub restart`: has a running hub start one of its servers again, over its REST front."""

from typing import TYPE_CHECKING

import click

from mcp_hub.cli.reload import HERE, REFUSED
from mcp_hub.cli.results import visible
from mcp_hub.cli.running_hub import run_with_hub, url_options
from mcp_hub.errors import InvalidParams

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

__all__ = ["restart"]


@click.command()
@click.argument("name", metavar="SERVER")
@url_options
def restart(name: str, url: str | None, token: str | None) -> None:
    """Have a running hub start a SERVER again, also one that it has given up.

    The hub is the one at --url, else at port 8765 of this machine. Calls that run may end; new ones wait for the new
    process.
    """
    run_with_hub(url or HERE, token, lambda client: _restart(client, name))


async def _restart(client: "HubClient", server: str) -> int:
    try:
        await client.restart(server)
    except InvalidParams as refused:
        click.echo(visible(str(refused)), err=True)
        return REFUSED
    click.echo(visible(f"{server} is being started again"), err=True)
    return 0

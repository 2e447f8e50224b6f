"""`mcp-hub reload` and `restart`: makes a running hub reload its configuration, or restart a server."""

from typing import TYPE_CHECKING, Final

import click

from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, run_with_client, url_options
from mcp_hub.cli.render.output import put, say

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

_WORDS: Final = {
    "added": "added",
    "removed": "removed",
    "restarted": "restarted",
    "revived": "tried again after a failure",
    "adjusted": "adjusted",
    "kept": "untouched",
    "settings": "settings",
    "next_start": "from the hub's next start",
}


@click.command()
@url_options
def reload(reach: Reach) -> None:
    """Reload the configuration of a running hub.

    The hub is the one at --url, else the one that serves the configuration over HTTP. Prints what changed. If the file
    is invalid, nothing changes and the exit code is 2.
    """
    run_with_client(reach, _reload, operates=True)


async def _reload(client: "HubClient") -> int:
    done = await client.reload()
    for key, word in _WORDS.items():
        if found := getattr(done, key):
            put(f"{word}: {', '.join(found)}")
    return 0


@click.command()
@click.argument("name", metavar="SERVER", shell_complete=completion.servers)
@url_options
def restart(name: str, reach: Reach) -> None:
    """Restart a SERVER of a running hub.

    The hub is the one at --url, else the one that serves the configuration over HTTP. A failed server is restarted,
    too. Running calls may finish on the old process; new calls wait for the new one.
    """
    run_with_client(reach, lambda client: _restart(client, name), operates=True)


async def _restart(client: "HubClient", server: str) -> int:
    await client.restart(server)
    say(f"{server} is restarting")
    return 0

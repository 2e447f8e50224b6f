"""`mcp-hub reload` and `restart`: change a running hub."""

from typing import TYPE_CHECKING, Final

import anyio
import click

from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, run_with_client, url_options
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import status_of
from mcp_hub.cli.render.tables import plural, print_missing
from mcp_hub.cli.setup import EXIT_UNAVAILABLE
from mcp_hub.clock import SystemClock
from mcp_hub.types import UpstreamState, UpstreamStatus

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

_PATIENCE: Final = 60.0
"""Seconds that a server is waited for."""
_SHORTEST: Final = 0.05
_LONGEST: Final = 1.0
"""Seconds between two looks at it, which get longer."""
_UNSETTLED: Final = (UpstreamState.STARTING, UpstreamState.STOPPED)
_WORDS: Final = {
    "added": "added",
    "removed": "removed",
    "restarted": "restarted",
    "revived": "tried again after a failure",
    "adjusted": "adjusted",
    "kept": "unchanged",
    "settings": "settings",
    "next_start": "from the hub's next start",
}


@click.command()
@url_options
def reload(reach: Reach) -> None:
    """Reload the configuration of a running hub.

    The hub is the one at --url, else the running one of the configuration. Prints what changed. If the file is invalid,
    nothing changes and the exit code is 2.
    """
    run_with_client(reach, _reload, operates=True)


async def _reload(client: "HubClient") -> int:
    outcome = await client.reload()
    if not any(getattr(outcome, key) for key in _WORDS if key != "kept"):
        put(f"No changes ({plural(len(outcome.kept), 'server')}).")
        return 0
    for key, word in _WORDS.items():
        if names := getattr(outcome, key):
            put(f"{word}: {', '.join(names)}")
    return 0


@click.command()
@click.argument("name", metavar="SERVER", shell_complete=completion.servers)
@url_options
def restart(name: str, reach: Reach) -> None:
    """Restart a SERVER of a running hub.

    The hub is the one at --url, else the running one of the configuration. Also restarts a failed server. Running calls
    may finish on the old process; new calls wait for the new one. Exit code 3 if the server is not ready after 60 s.
    """
    run_with_client(reach, lambda client: _restart(client, name), operates=True)


async def _restart(client: "HubClient", server: str) -> int:
    began = SystemClock.now()
    await client.restart(server)
    pause = _SHORTEST
    status = await _status(client, server)
    while status is not None and status.state in _UNSETTLED and SystemClock.now() - began < _PATIENCE:
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST)
        status = await _status(client, server)
    if status is None:
        say(f"{server} has been removed from the configuration.")
        return EXIT_UNAVAILABLE
    if status.state is not UpstreamState.READY:
        print_missing([status])
        return EXIT_UNAVAILABLE
    say(f"{server} is ready again ({SystemClock.now() - began:.1f} s).")
    return 0


async def _status(client: "HubClient", server: str) -> UpstreamStatus | None:
    return next((status_of(info) for info in await client.servers() if info.server == server), None)

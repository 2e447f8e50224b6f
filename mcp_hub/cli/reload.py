"""`mcp-hub reload`: has a running hub read its configuration again, over its REST front."""

from typing import TYPE_CHECKING, Final

import click
import msgspec

from mcp_hub.cli.results import visible
from mcp_hub.cli.running_hub import run_with_hub, url_options
from mcp_hub.errors import InvalidParams

if TYPE_CHECKING:
    from mcp_hub.client import HubClient

__all__ = ["HERE", "REFUSED", "reload"]

HERE: Final = "http://127.0.0.1:8765"
"""Where a hub listens that was told nothing else."""
REFUSED: Final = 2
"""The exit code for what the hub will not do."""


class _Reload(msgspec.Struct):
    added: list[str] = []
    removed: list[str] = []
    restarted: list[str] = []
    adjusted: list[str] = []
    revived: list[str] = []
    kept: list[str] = []
    settings: list[str] = []
    next_start: list[str] = []


_WORDS: Final = {
    "added": "added",
    "removed": "removed",
    "restarted": "started again",
    "revived": "tried again",
    "adjusted": "adjusted",
    "kept": "untouched",
    "settings": "settings",
    "next_start": "from the next start of the hub on",
}


@click.command()
@url_options
def reload(url: str | None, token: str | None) -> None:
    """Have a running hub read its configuration again (the one at --url, else at port 8765 of this machine).

    Prints what that changed. A file that cannot be used changes nothing: exit code 2.
    """
    run_with_hub(url or HERE, token, _reload)


async def _reload(client: "HubClient") -> int:
    try:
        done = msgspec.json.decode(await client.reload(), type=_Reload)
    except InvalidParams as refused:
        click.echo(visible(str(refused)), err=True)
        return REFUSED
    for key, word in _WORDS.items():
        if found := getattr(done, key):
            click.echo(visible(f"{word}: {', '.join(found)}"))
    return 0

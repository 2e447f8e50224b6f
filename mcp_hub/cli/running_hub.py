"""`--url`: a hub that runs already, in place of servers that the command starts itself."""

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from mcp_hub.cli.results import visible
from mcp_hub.cli.setup import EXIT_CONFIG, fail, run_with
from mcp_hub.errors import ConfigError
from mcp_hub.types import RawJson

if TYPE_CHECKING:
    from mcp_hub.client import HubCall, HubClient

__all__ = ["RunningHub", "run_with_hub", "url_options"]

_OF_OWN_SERVERS = ("config", "wait", "server")


def _needs_url(context: click.Context, _: click.Parameter, token: str | None) -> str | None:
    if token is not None and context.params.get("url") is None:
        raise click.UsageError("--token belongs to --url")
    return token


_url = click.option("--url", is_eager=True, metavar="URL", help="Ask the hub that runs there: http://127.0.0.1:8765.")
_token = click.option(
    "--token", callback=_needs_url, metavar="TOKEN",
    help="The token that it wants; else $MCP_HUB_TOKEN, which no list of processes shows.",
)  # fmt: skip


def url_options(command: Callable[..., Any]) -> Any:
    """Adds `--url` and `--token`; gives the command `url` and `token`."""
    return _url(_token(command))


def run_with_hub(url: str, token: str | None, main: Callable[["HubClient"], Awaitable[int]]) -> NoReturn:
    """Runs `main` with a client of the hub at `url` and exits with its code; with 2 when it will not have us."""
    from mcp_hub.client import HubClient

    _check_options()
    try:
        client = HubClient(url, token or os.environ.get("MCP_HUB_TOKEN") or None)
    except ConfigError as exc:
        fail(visible(str(exc)), EXIT_CONFIG)

    async def checked(client: HubClient) -> int:
        try:
            return await main(client)
        except ConfigError as exc:
            click.echo(visible(str(exc)), err=True)
            return EXIT_CONFIG

    run_with(lambda: client, checked)


def _check_options() -> None:
    """Raises `UsageError` for what only means something to servers that the command starts."""
    context = click.get_current_context()
    for name in _OF_OWN_SERVERS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} is about servers that the command starts itself; it has no use with --url"
            )


class RunningHub:
    """The hub at the other end, as `mcp-hub call` uses one."""

    def __init__(self, client: "HubClient") -> None:
        self._client = client

    async def definition(self, name: str, doing: Callable[[str], None]) -> RawJson:
        """The tool as listed; an empty one for a name that is not: the hub will say what there is instead."""
        await self._client.tools()
        return self._client.definition(name) or b"{}"

    def call(self, name: str, given: RawJson) -> "HubCall":
        return self._client.call(name, given)

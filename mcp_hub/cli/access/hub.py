"""A hub for a command, always behind the same client: the running one at `--url`, or one that the command starts."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click
import msgspec
from click.core import ParameterSource

from mcp_hub import __version__
from mcp_hub.app import readiness
from mcp_hub.cli.access import waiting
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.setup import (
    EXIT_CONFIG,
    EXIT_UNAVAILABLE,
    check_servers,
    fail_with,
    load_config,
    quiet_logs,
    run_with,
)
from mcp_hub.errors import ConfigError, ConfigFinding, InvalidParams, RpcError
from mcp_hub.types import Kind

if TYPE_CHECKING:
    from mcp_hub.app.build import App
    from mcp_hub.client import HubClient
    from mcp_hub.config.load.load import Loaded

_OF_OWN_SERVERS: Final = ("config", "wait")
_OWN: Final = "http://this-command/mcp"

_T = TypeVar("_T")


class ReachedHub(msgspec.Struct, frozen=True):
    """The hub that a command asks. One that runs already is not waited for: it answers when it can."""

    client: "HubClient"
    app: "App | None" = None
    loaded: "Loaded | None" = None
    wait: float = 0.0

    @property
    def place(self) -> str:
        """The file of our own configuration, or the URL."""
        return self.client.url if self.loaded is None else str(self.loaded.path)

    async def settle(self) -> None:
        """Waits until every server of our own is ready or has failed, with a spinner on a terminal."""
        if self.app is not None:
            await waiting.settle(self.app.hub, self.wait)

    async def find(self, tool: str, doing: Callable[[str], None]) -> None:
        """Waits until a server of our own has the tool, or all have settled. `doing` is handed what it waits for."""
        if self.app is None:
            return
        hub = self.app.hub

        def is_enough() -> bool:
            doing(waiting.starting_text(hub.statuses()))
            return hub.catalog.view(None).find(Kind.TOOL, tool) is not None or readiness.all_settled(hub)

        await readiness.wait_until(hub, is_enough, self.wait)
        doing("")

    def unmatched(self) -> list[ConfigFinding]:
        """Warnings about patterns of our own configuration that match nothing."""
        from mcp_hub.cli.render.notices import unmatched_patterns

        return unmatched_patterns(self.app, self.loaded) if self.app is not None and self.loaded is not None else []


def _needs_url(context: click.Context, _: click.Parameter, token: str | None) -> str | None:
    if token is not None and context.params.get("url") is None:
        raise click.UsageError("--token belongs to --url. Give the URL of the hub, too.")
    return token


_url = click.option(
    "--url", is_eager=True, metavar="URL", help="Use the running hub at this URL, e.g. http://127.0.0.1:8765."
)
_token = click.option(
    "--token", callback=_needs_url, metavar="TOKEN",
    help="Bearer token for --url. Prefer $MCP_HUB_TOKEN: arguments show up in `ps`.",
)  # fmt: skip


def url_options(command: Callable[..., Any]) -> Any:
    """Adds `--url` and `--token`; gives the command `url` and `token`."""
    return _url(_token(command))


def run_with_hub(
    url: str | None,
    token: str | None,
    config: str | None,
    main: Callable[[ReachedHub], Awaitable[int]],
    *,
    wait: float,
    verbose: int,
    servers: Sequence[str] = (),
) -> NoReturn:
    """Runs `main` with the hub at `url`, or without one with a hub of our own, and exits with its code.

    Servers of our own may take `wait` seconds to start. A name in `servers` that is not configured ends the command.
    """
    if url is not None:
        run_with_url(url, token, lambda client: main(ReachedHub(client)))
    loaded = load_config(config)
    check_servers(loaded, servers)
    quiet_logs(verbose)
    _run(lambda: _own_hub(loaded, wait), main)


def run_with_url(url: str, token: str | None, main: Callable[["HubClient"], Awaitable[int]]) -> NoReturn:
    """Runs `main` with a client of the hub at `url` and exits with its code: 2 if it refuses us, 3 without one."""
    from mcp_hub.client.http import connect

    _check_options()
    try:
        client = connect(url, token or os.environ.get("MCP_HUB_TOKEN") or None)
    except ConfigError as exc:
        fail_with(exc)
    _run(lambda: client, main)


def _run(opened: Callable[[], AbstractAsyncContextManager[_T]], main: Callable[[_T], Awaitable[int]]) -> NoReturn:
    async def checked(reached: _T) -> int:
        try:
            return await main(reached)
        except ConfigError as exc:
            say(str(exc))
            return EXIT_CONFIG
        except RpcError as error:
            say(with_code(error))
            return EXIT_CONFIG if isinstance(error, InvalidParams) else EXIT_UNAVAILABLE

    run_with(opened, checked)


@asynccontextmanager
async def _own_hub(loaded: "Loaded", wait: float) -> AsyncIterator[ReachedHub]:
    """A hub in this process behind its REST front, whose lists do not wait for servers: the command itself waits."""
    from mcp_hub.app.build import open_app
    from mcp_hub.client import HubClient
    from mcp_hub.client.in_process import AsgiTransport
    from mcp_hub.client.rest import LIMIT
    from mcp_hub.fronts.rest.api import RestApi
    from mcp_hub.sessions.session import LOCAL

    own = loaded.settings.hub.model_copy(update={"first_list_wait": 0.0})
    at_once = replace(loaded, settings=loaded.settings.model_copy(update={"hub": own}))
    async with open_app(at_once, os.environ) as app:
        limits, operator = app.binding.limits, app.operations
        api = RestApi(app.hub, version=__version__, max_body=LIMIT, limits=limits, operator=operator)

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await api.serve(scope, receive, send, {}, LOCAL)

        async with HubClient(_OWN, AsgiTransport(application)) as client:
            yield ReachedHub(client, app, loaded, wait)


def _check_options() -> None:
    """Raises `UsageError` for options that are about servers of the command itself."""
    context = click.get_current_context()
    for name in _OF_OWN_SERVERS:
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(
                f"--{name} is about servers that the command starts itself. It cannot be used with --url."
            )

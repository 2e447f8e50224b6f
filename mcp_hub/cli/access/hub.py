"""A hub for a command, behind one client: the running one at `--url`, or one that the command starts. Or its store."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import reduce, wraps
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
    config_option,
    fail,
    fail_with,
    load_config,
    quiet_logs,
    run_with,
    verbose_option,
    wait_option,
)
from mcp_hub.errors import (
    ConfigError,
    ConfigFinding,
    EventsGone,
    InvalidParams,
    RpcError,
    StoreError,
    UpstreamUnavailable,
)
from mcp_hub.types import Kind

if TYPE_CHECKING:
    from mcp_hub.app.build import App
    from mcp_hub.cli.access.local_streams import LocalStreams
    from mcp_hub.client import HubClient
    from mcp_hub.config.load.load import Loaded

    StreamAccess = HubClient | LocalStreams

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


class Reach(msgspec.Struct, frozen=True):
    """The options by which a command reaches its hub, as far as it has them."""

    url: str | None
    token: str | None
    config: str | None = None
    wait: float = 0.0
    verbose: int = 0


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


def _reaching(*options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Any]:
    """Adds these options to a command, which gets them as its `reach`."""

    def decorated(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def run(**given: Any) -> Any:
            found = {name: given.pop(name) for name in Reach.__struct_fields__ if name in given}
            return command(reach=Reach(**found), **given)

        return reduce(lambda inner, option: option(inner), reversed(options), run)

    return decorated


url_options = _reaching(_url, _token)
stream_options = _reaching(_url, _token, config_option)
hub_options = _reaching(_url, _token, wait_option, verbose_option, config_option)


def run_with_hub(reach: Reach, main: Callable[[ReachedHub], Awaitable[int]], servers: Sequence[str] = ()) -> NoReturn:
    """Runs `main` with the hub at `--url`, or with one of our own if it has these `servers`; exits with its code."""
    if reach.url is not None:
        run_with_url(reach, lambda client: main(ReachedHub(client)))
    loaded = load_config(reach.config)
    check_servers(loaded, servers)
    quiet_logs(reach.verbose)
    _run(lambda: _own_hub(loaded, reach.wait), main)


def run_with_streams(
    reach: Reach, main: Callable[["StreamAccess"], Awaitable[int]], stream: str | None = None
) -> NoReturn:
    """Runs `main`, which is about `stream`, with the hub at `--url` or the configured store; exits with its code."""
    if reach.url is not None:
        run_with_url(reach, main, stream)
    loaded = load_config(reach.config)
    if loaded.settings.hub.store.type == "memory":
        said = "Hubs of this configuration keep streams in memory (hub.store). Ask the running hub, with --url."
        fail("store_in_memory", said)
    quiet_logs(0)
    from mcp_hub.cli.access.local_streams import open_streams

    try:
        _run(lambda: open_streams(loaded), main, stream)
    except UpstreamUnavailable as error:  # the store
        say(with_code(error))
        raise SystemExit(EXIT_UNAVAILABLE) from None


def run_with_url(
    reach: Reach, main: Callable[["HubClient"], Awaitable[int]], stream: str | None = None, *, default: str = ""
) -> NoReturn:
    """Runs `main` with a client of the hub at `--url`, or at `default`, and exits with its code."""
    from mcp_hub.client.http import connect

    _check_options()
    try:
        client = connect(reach.url or default, reach.token or os.environ.get("MCP_HUB_TOKEN") or None)
    except ConfigError as exc:
        fail_with(exc)
    _run(lambda: client, main, stream)


def _run(
    opened: Callable[[], AbstractAsyncContextManager[_T]],
    main: Callable[[_T], Awaitable[int]],
    stream: str | None = None,
) -> NoReturn:
    """Exits with 2 if the hub refuses us or does not have the stream, with 3 where nobody answers."""

    async def checked(reached: _T) -> int:
        try:
            return await main(reached)
        except ConfigError as exc:
            say(str(exc))
            return EXIT_CONFIG
        except (RpcError, StoreError) as error:
            is_wrong = isinstance(error, InvalidParams | EventsGone)
            said = with_code(error) if isinstance(error, RpcError) else f"{error} [store_unavailable]"
            say(f"{stream}: {said}" if is_wrong and stream is not None else said)
            return EXIT_CONFIG if is_wrong else EXIT_UNAVAILABLE

    run_with(opened, checked)


@asynccontextmanager
async def _own_hub(loaded: "Loaded", wait: float) -> AsyncIterator[ReachedHub]:
    """A hub in this process behind its REST front, whose lists do not wait for servers: the command itself waits."""
    from mcp_hub.app.build import open_app
    from mcp_hub.client import HubClient
    from mcp_hub.client.in_process import AsgiTransport
    from mcp_hub.client.rest import LIMIT
    from mcp_hub.fronts.http.response import HttpExchange
    from mcp_hub.fronts.rest.api import RestApi
    from mcp_hub.sessions.session import LOCAL

    own = loaded.settings.hub.model_copy(update={"first_list_wait": 0.0})
    at_once = replace(loaded, settings=loaded.settings.model_copy(update={"hub": own}))
    async with open_app(at_once, os.environ) as app:
        limits, operator = app.binding.limits, app.operations
        api = RestApi(app.hub, version=__version__, max_body=LIMIT, limits=limits, operator=operator)

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await api.serve(HttpExchange(scope, {}, LOCAL, receive, send))

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

"""A hub for a command: at `--url`, else the running one, else one in this process."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import cache, reduce, wraps
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar
from urllib.parse import urlencode

import click
import msgspec
from click.core import ParameterSource

from mcp_hub import __version__
from mcp_hub.cli.access import waiting
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.results import with_code
from mcp_hub.cli.setup import (
    EXIT_CONFIG,
    EXIT_UNAVAILABLE,
    check_caller,
    check_servers,
    config_option,
    config_path,
    config_place,
    fail,
    fail_with,
    load_config,
    quiet_logs,
    read_config,
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
)
from mcp_hub.types import Kind

if TYPE_CHECKING:
    from mcp_hub.app.build import App
    from mcp_hub.client import HubClient
    from mcp_hub.config.load.load import Loaded
    from mcp_hub.protocol.rest.servers import ServerList


_OF_OWN_SERVERS: Final = ("config", "wait")
_OWN: Final = "http://this-command/mcp"

_T = TypeVar("_T")


def _nothing() -> None:
    return None


class ReachedHub(msgspec.Struct, frozen=True):
    """The hub of a command; `app` if it is in this process. `has_all`: it has all configured servers.

    `read`: its configuration, if readable; `file`: where that is, empty unless a hub of this machine runs for it.
    """

    client: "HubClient"
    read: "Callable[[], Loaded | None]" = _nothing
    app: "App | None" = None
    wait: float = 0.0
    has_all: bool = True
    file: str = ""

    @property
    def loaded(self) -> "Loaded | None":
        return self.read()

    @property
    def location(self) -> str:
        return self.client.url if self.app is None or self.loaded is None else str(self.loaded.path)

    async def settle(self) -> None:
        """Waits until all servers are ready or failed; for a running hub ten seconds."""
        if self.app is not None:
            await waiting.settle(self.app.hub, self.wait)
        else:
            await waiting.settle_running(self.client.servers)

    async def listed(self) -> "tuple[ServerList, list[ConfigFinding]]":
        """The servers, and why a running hub goes by an earlier version of its file."""
        return await waiting.file_read(self.client.lists.servers, self.file)

    async def find(self, name: str, doing: Callable[[str], None], kind: Kind = Kind.TOOL) -> None:
        """Waits until `app` lists the entry (a resource by URI) or all servers settled; `doing` shows the wait."""
        if self.app is None:
            return
        from mcp_hub.app import readiness  # a hub, of which a command about a running one needs nothing

        hub = self.app.hub

        def is_enough() -> bool:
            doing(waiting.starting_text(hub.statuses()))
            view = hub.catalog.view(None)
            is_there = view.resolve_uri(name) if kind is Kind.RESOURCE else view.find(kind, name)
            return is_there is not None or readiness.all_settled(hub)

        await readiness.wait_until(hub, is_enough, self.wait)
        doing("")

    def unmatched(self, listed: "ServerList") -> list[ConfigFinding]:
        """Warnings about patterns that match nothing."""
        from mcp_hub.cli.render.servers import unmatched_patterns

        if self.loaded is None:
            return []
        return unmatched_patterns(listed.unmatched, self.loaded, has_all=self.has_all)


class Reach(msgspec.Struct, frozen=True):
    """The options by which a command reaches its hub."""

    url: str | None
    token: str | None
    config: str | None = None
    wait: float = 0.0
    verbose: int = 0
    local: bool = False


class _HubPlace(msgspec.Struct, frozen=True):
    """The URL of a hub, its Unix socket and its configuration; `operator` is its token, or empty."""

    url: str
    socket: str | None = None
    operator: str = ""
    file: str = ""


def _needs_url(context: click.Context, _: click.Parameter, token: str | None) -> str | None:
    if token is not None and context.params.get("url") is None:
        raise click.UsageError("--token belongs to --url. Give the URL of the hub, too.")
    return token


def _without_url(context: click.Context, _: click.Parameter, is_local: bool) -> bool:
    if is_local and context.params.get("url") is not None:
        raise click.UsageError("--local and --url exclude each other. Give one of them.")
    return is_local


_url = click.option(
    "--url", is_eager=True, metavar="URL",
    help="Use the hub at this URL, e.g. http://127.0.0.1:8765, not the running hub of the configuration.",
)  # fmt: skip
_token = click.option(
    "--token", callback=_needs_url, metavar="TOKEN",
    help="Bearer token for --url. Prefer $MCP_HUB_TOKEN: arguments show up in `ps`.",
)  # fmt: skip
_local = click.option(
    "--local", is_flag=True, callback=_without_url,
    help="Do not use a running hub: start the servers, or read the store.",
)  # fmt: skip


def _reaching(*options: Callable[[Any], Any]) -> Callable[[Callable[..., Any]], Any]:
    def decorated(command: Callable[..., Any]) -> Any:
        @wraps(command)
        def run(**values: Any) -> Any:
            reach_options = {name: values.pop(name) for name in Reach.__struct_fields__ if name in values}
            return command(reach=Reach(**reach_options), **values)

        return reduce(lambda inner, option: option(inner), reversed(options), run)

    return decorated


url_options = _reaching(_url, _token, config_option)
stream_options = _reaching(_url, _token, _local, config_option)
hub_options = _reaching(_url, _token, _local, wait_option, verbose_option, config_option)
own_wait_options = _reaching(_url, _token, _local, verbose_option, config_option)
"""`hub_options` for a command with a `--wait` of its own."""
check_options = _reaching(_url, _token, _local, wait_option, config_option)


def run_with_hub(
    reach: Reach,
    main: Callable[[ReachedHub], Awaitable[int]],
    *,
    servers: Sequence[str] = (),
    profile: str | None = None,
    client: str | None = None,
    loaded: "Loaded | None" = None,
    start: Callable[["Loaded"], "Loaded"] | None = None,
    operates: bool = False,
    lists_servers: bool = False,
) -> NoReturn:
    """Runs `main` with a hub; exits with its code.

    The configuration must have `servers`, `profile` and the kind `client`. `start` changes that of a hub in this
    process. `lists_servers`: `main` reports failed servers.
    """
    if reach.url is not None:
        at = _HubPlace(reach.url)
        run_at(reach, at, _nothing, lambda client: main(ReachedHub(client)), profile=profile)
    if (target := running_place(reach)) is not None:
        at, read = target
        if (servers or profile or client) and (record := read()) is not None:
            _check(record, servers, profile, client)
        run_at(
            reach,
            at,
            read,
            lambda client: main(ReachedHub(client, read, file=at.file)),
            profile=profile,
            operates=operates,
        )
    loaded = loaded or load_config(reach.config, reports_failures=not lists_servers)
    _check(loaded, servers, profile, client)
    quiet_logs(reach.verbose)
    started = loaded if start is None else start(loaded)
    run_opened(lambda: _own_hub(loaded, started, reach.wait, profile), main)


def run_own_hub(loaded: "Loaded", main: Callable[[ReachedHub], Awaitable[int]], wait: float) -> int:
    """Runs `main` with a hub in this process; returns its code."""
    try:
        run_opened(lambda: _own_hub(loaded, loaded, wait, None), main)
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0


def run_with_client(
    reach: Reach, main: Callable[["HubClient"], Awaitable[int]], stream: str | None = None, *, operates: bool = False
) -> NoReturn:
    """Runs `main` with a client of the running hub; exits with its code."""
    if reach.url is not None:
        run_at(reach, _HubPlace(reach.url), _nothing, main, stream)
    if (target := running_place(reach)) is None:
        path = config_path(reach.config)
        message = f"No hub serves {path} over HTTP or in the background. Start one with mcp-hub serve --http, or name "
        message += "one with --url."
        fail("no_running_hub", message, EXIT_UNAVAILABLE)
    run_at(reach, *target, main, stream, operates=operates)


def running_place(reach: Reach) -> "tuple[_HubPlace, Callable[[], Loaded | None]] | None":
    """The running hub and what reads its configuration, once, if that is readable."""
    if reach.local:
        return None
    from mcp_hub.cli.access.running import running_hub

    try:
        file = config_place(reach.config)
        record = running_hub(file, os.environ)
    except ConfigError as error:
        fail_with(error)
    if record is None:
        return None
    if reach.verbose:
        say(f"asking the running hub at {record.socket or record.url} (process {record.pid})")
    at = _HubPlace(record.endpoint, record.socket, record.operator, file)

    @cache
    def read() -> "Loaded | None":
        try:
            return read_config(reach.config, partly=True)
        except ConfigError:  # the hub goes by an older version
            return None

    return at, read


def _check(loaded: "Loaded", servers: Sequence[str], profile: str | None, client: str | None) -> None:
    check_servers(loaded, servers)
    check_caller(loaded, profile, client)


def run_at(
    reach: Reach,
    at: _HubPlace,
    read: "Callable[[], Loaded | None]",
    main: Callable[["HubClient"], Awaitable[int]],
    stream: str | None = None,
    *,
    profile: str | None = None,
    operates: bool = False,
) -> NoReturn:
    """Runs `main` with a client of the hub at a place; exits with its code."""
    from mcp_hub.client.in_process import connect_here

    if reach.url is not None:
        _check_options()
    granted = reach.token or (at.operator if operates else "") or os.environ.get("MCP_HUB_TOKEN")
    token = granted or _token_of(read()) or at.operator or None
    try:
        url, program = _in_profile(at.url, profile), _command()
        client = connect_here(url, token, socket=at.socket, program=program) or _connect(url, token, program)
    except ConfigError as exc:
        fail_with(exc)
    run_opened(lambda: client, main, stream)


def _connect(url: str, token: str | None, program: str) -> "HubClient":
    from mcp_hub.client.http import connect  # a third of the start of a command

    return connect(url, token, program=program)


def _token_of(loaded: "Loaded | None") -> str | None:
    if loaded is None:
        return None
    free = (token.token.get_secret_value() for token in loaded.settings.hub.tokens if token.profile is None)
    return next(free, None)


def _in_profile(url: str, profile: str | None) -> str:
    return url if profile is None else f"{url}{'&' if '?' in url else '?'}{urlencode({'profile': profile})}"


def run_opened(
    opened: Callable[[], AbstractAsyncContextManager[_T]],
    main: Callable[[_T], Awaitable[int]],
    stream: str | None = None,
) -> NoReturn:
    """Runs `main` and exits: 2 if the hub refuses, 3 if nothing answers."""

    async def checked(reached: _T) -> int:
        try:
            return await main(reached)
        except ConfigError as exc:
            say(str(exc))
            return EXIT_CONFIG
        except (RpcError, StoreError) as error:
            is_wrong = isinstance(error, InvalidParams | EventsGone)
            message = with_code(error) if isinstance(error, RpcError) else f"{error} [store_unavailable]"
            say(f"{stream}: {message}" if is_wrong and stream is not None else message)
            return EXIT_CONFIG if is_wrong else EXIT_UNAVAILABLE

    run_with(opened, checked)


@asynccontextmanager
async def _own_hub(loaded: "Loaded", started: "Loaded", wait: float, profile: str | None) -> AsyncIterator[ReachedHub]:
    """A hub in this process, whose lists do not wait for servers."""
    from mcp_hub.app.build import open_app
    from mcp_hub.client import HubClient
    from mcp_hub.client.in_process import AsgiTransport
    from mcp_hub.client.rest import LIMIT
    from mcp_hub.fronts.http.response import HttpExchange, Receive, Scope, Send
    from mcp_hub.fronts.rest.api import RestApi
    from mcp_hub.sessions.session import Caller

    program = _command()
    hub_settings = started.settings.hub.model_copy(update={"first_list_wait": 0.0})
    at_once = replace(started, settings=started.settings.model_copy(update={"hub": hub_settings}))
    caller = Caller(profile=profile, is_operator=True)
    has_all = started.settings.servers.keys() == loaded.settings.servers.keys()
    async with open_app(at_once, os.environ) as app:
        api = RestApi(
            app.hub, version=__version__, max_body=LIMIT, operator=app.operations,
            public_url=lambda: app.settings.hub.http.public_url, history=app.past_calls,
        )  # fmt: skip

        async def application(scope: Scope, receive: Receive, send: Send) -> None:
            await api.serve(HttpExchange(scope=scope, headers={}, caller=caller, receive=receive, send=send))

        async with HubClient(_OWN, AsgiTransport(application), program=program) as client:
            yield ReachedHub(client=client, read=lambda: loaded, app=app, wait=wait, has_all=has_all)


def _command() -> str:
    """The command that runs, such as `mcp-hub history run`, for the history of the hub."""
    names: list[str] = []
    context = click.get_current_context(silent=True)
    while context is not None and context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return " ".join(("mcp-hub", *names))


def _check_options() -> None:
    context = click.get_current_context()
    for name in _OF_OWN_SERVERS:
        is_about_file = name == "config" and context.command.name == "check"
        if is_about_file or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if name == "config":
            click.echo("Note: --config is not used with --url: the hub there has its own.", err=True)
        else:
            raise click.UsageError(
                f"--{name} is about servers that the command starts itself. It cannot be used with --url."
            )

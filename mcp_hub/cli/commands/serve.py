"""`mcp-hub serve`: runs the hub behind its stdio front or its HTTP front.

SIGINT, SIGTERM, and over stdio the end of the client, end it cleanly in under 2 s. No child process survives it.
"""

import gc
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import click

from mcp_hub import logs
from mcp_hub.app.build import App, open_app
from mcp_hub.app.reload import Reloader
from mcp_hub.cli import completion
from mcp_hub.cli.access.running import dashboard_address, recorded
from mcp_hub.cli.access.warm import warm as fill_caches
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import check_caller, config_option, fail, leave, load_config, run, run_with
from mcp_hub.cli.signals import Signals, received_signals
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.fronts.http.auth import is_loopback
from mcp_hub.fronts.stdio import StdioFront, take_stdio
from mcp_hub.sessions.session import Caller
from mcp_hub.upstreams.peer.server_eras import ClientEra

if TYPE_CHECKING:
    import uvicorn

    from mcp_hub.app.http import HttpFront
    from mcp_hub.protocol.rest.overview import DashboardMode


@click.command()
@click.option(
    "--http", "over_http", is_flag=True,
    help="Serve HTTP instead of stdio: Streamable HTTP at /mcp, SSE at /sse, REST at /v1.",
)  # fmt: skip
@click.option("--host", help="Address to listen on; overrides hub.http.host.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="Port to listen on, 0 for any free port; overrides hub.http.port."
)
@click.option(
    "--profile",
    shell_complete=completion.profiles,
    help="Serve only this profile. A token that has a profile keeps its own.",
)
@click.option(
    "--client",
    metavar="NAME",
    shell_complete=completion.clients,
    help="Kind of client: an entry of hub.clients, or a built-in one.",
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="Log level; overrides hub.log.level."
)
@click.option("--warm", is_flag=True, help="Start every server once, remember its lists, and end.")
@config_option
def serve(
    over_http: bool,
    host: str | None,
    port: int | None,
    profile: str | None,
    client: str | None,
    log_level: str | None,
    warm: bool,
    config: str | None,
) -> None:
    """Run the hub, over stdio or HTTP.

    Clients start it over stdio, by the entry that `mcp-hub install` writes, and it ends with them. With --http it
    listens on hub.http.host and hub.http.port. A first configuration: mcp-hub init
    """
    if not over_http and (host is not None or port is not None):
        raise click.UsageError("--host and --port belong to --http.")
    if over_http and client is not None:
        raise click.UsageError("--client belongs to stdio. Over HTTP a client is known by the name that it gives.")
    if warm and over_http:
        raise click.UsageError("--warm does not serve clients: it ends when the lists are stored. Leave out --http.")
    loaded = load_config(config, partly=True)
    settings = loaded.settings
    check_caller(loaded, profile, client)
    _calm_collector()
    logs.configure(log_level or settings.hub.log.level, settings.hub.log.format)
    if warm:
        run_with(lambda: open_app(loaded, os.environ), fill_caches)
    if over_http:
        listener = _listen(settings, host, port)
        run(lambda: _serve_http(loaded, listener, profile))
    else:
        if sys.stdin.isatty():
            say("mcp-hub speaks MCP on stdin and stdout now. End it with Ctrl-D. To serve HTTP: mcp-hub serve --http")
        run(lambda: _serve_stdio(loaded, Caller(profile=profile, has_own_hub=True, client=client)))
    leave()


def _calm_collector() -> None:
    """Excludes the objects of the start from later collections: over HTTP a full one every 3,000 calls took 60 ms."""
    gc.collect()
    gc.freeze()


async def _serve_stdio(loaded: Loaded, caller: Caller) -> None:
    read, write = take_stdio()
    client = ClientEra(waits=True)
    async with received_signals() as signals, open_app(loaded, os.environ, client=client) as app:
        app.reloader.checks.append(_check_started_as(caller))
        front = StdioFront(app.hub, app.binding, caller, client.meet)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, signals.stopped, tasks.cancel_scope)
            tasks.start_soon(_keep_reloading, app.reloader, signals)
            with _recorded(loaded, "", caller):
                await front.serve(read, write, loaded.settings.hub.limits.line)
            tasks.cancel_scope.cancel()
        await app.stop()
        front.close()


async def _keep_reloading(reloader: Reloader, signals: Signals) -> None:
    """Reloads by SIGHUP and when the file changes, until cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.watch, name="configuration")
        while True:
            await signals.reload_wanted()
            await reloader.reload("signal")


def _check_started_as(caller: Caller) -> Callable[[Settings], None]:
    """Refuses settings without the profile or the kind of client that the hub was started for."""

    def check(settings: Settings) -> None:
        if caller.profile is not None and caller.profile not in settings.profiles:
            said = f'must keep "{caller.profile}": this hub was started with it (--profile)'
            raise ConfigError(ConfigFinding("unknown_profile", said, path="profiles"))
        if caller.client is not None:
            settings.client_table.require(caller.client)

    return check


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


def _listen(settings: Settings, host: str | None, port: int | None) -> socket.socket:
    """A listening socket; exits with 2 if it is not allowed or not available."""
    from mcp_hub.app.http import why_not_listen

    http = settings.hub.http
    host = host if host is not None else http.host
    port = port if port is not None else http.port
    if refusal := why_not_listen(settings, host):
        fail("public_without_tokens", refusal)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(2048)
    except OSError as exc:
        listener.close()
        said = f"Cannot listen on {host}:{port}: {exc.strerror or exc}. Choose another port with --port."
        fail("cannot_listen", said)
    return listener


async def _serve_http(loaded: Loaded, listener: socket.socket, profile: str | None) -> None:
    from mcp_hub.app.http import HttpFront, check_stays_authenticated, connections_of, is_authenticated
    from mcp_hub.cli.clients.files.installed import client_installs
    from mcp_hub.fronts.http.connections import bounded, look_after

    async with received_signals() as signals, _open_for_many(loaded) as app:
        host = listener.getsockname()[0]
        is_local = is_loopback(host)
        is_open = is_authenticated(loaded.settings) or is_local
        mode: DashboardMode = "full" if is_local else "read"
        front = HttpFront(app, profile, is_open=is_open, dashboard=mode, installs=partial(client_installs, os.environ))
        server = _server(front.endpoints, bounded(connections_of(loaded.settings.hub.http)))
        connections = server.server_state.connections
        front.metrics.measure("http_connections", "Open connections.", lambda: len(connections))
        app.reloader.checks.extend([_check_started_as(Caller(profile=profile)), check_stays_authenticated(host)])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(front.run)
            tasks.start_soon(look_after, connections)
            tasks.start_soon(_keep_reloading, app.reloader, signals)
            tasks.start_soon(_stop_when, signals.stopped, app, server, front)
            url, operator = _url(listener), "" if front.dashboard_mode() == "off" else front.operator
            with _recorded(loaded, url, Caller(profile=profile), operator):
                _announce(app, listener)
                if operator and sys.stderr.isatty():  # never into a log
                    say(f"dashboard: {dashboard_address(url, operator)}")
                await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def _recorded(loaded: Loaded, url: str, caller: Caller, operator: str = "") -> AbstractContextManager[None]:
    """A record of the hub; one that only has a profile does not answer for the whole configuration."""
    if caller.profile is not None:
        return nullcontext()
    return recorded(loaded.place, url, os.environ, caller.client or "", operator)


def _open_for_many(loaded: Loaded) -> AbstractAsyncContextManager[App]:
    """A hub for clients of both eras, and for workers."""
    return open_app(loaded, os.environ, has_executors=True, client=ClientEra())


def _server(endpoints: Any, protocol: type[Any]) -> "uvicorn.Server":
    import uvicorn

    class Server(uvicorn.Server):
        """A server that leaves the signals to us: uvicorn would raise them again after its shutdown."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        endpoints,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        http=protocol,
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    return Server(config)


async def _stop_when(event: anyio.Event, app: App, server: "uvicorn.Server", front: "HttpFront") -> None:
    """Ends open streams, gives running calls their answer, then stops the server."""
    await event.wait()
    front.close()
    await app.stop()
    server.should_exit = True


def _url(listener: socket.socket) -> str:
    """The endpoint, as clients on this machine reach it."""
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _announce(app: App, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    servers = app.settings.servers
    names = ", ".join(servers) or "none"
    say(f"mcp-hub serves {plural(len(servers), 'server')} ({names}) at http://{shown}:{port}/mcp")

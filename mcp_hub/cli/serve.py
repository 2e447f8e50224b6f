"""`mcp-hub serve`: the hub behind its stdio front or its HTTP front, until it is told to stop.

SIGINT, SIGTERM, and over stdio the end of the client, end it cleanly in under 2 s with all children gone.
"""

import gc
import os
import socket
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import click

from mcp_hub import __version__, logs
from mcp_hub.app import App, open_app
from mcp_hub.cli.guards import Doorkeeper, is_authenticated, metadata_routes, why_not_listen
from mcp_hub.cli.reloading import check_started_as, check_stays_authenticated, follow_guard, keep_reloading
from mcp_hub.cli.setup import EXIT_CONFIG, config_option, fail, leave, load_config, run
from mcp_hub.cli.signals import received_signals
from mcp_hub.cli.tables import plural
from mcp_hub.config.load import Loaded
from mcp_hub.config.schema import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.guard import is_loopback
from mcp_hub.fronts.stdio import StdioFront, take_stdio
from mcp_hub.sessions.session import Caller

if TYPE_CHECKING:
    import uvicorn

    from mcp_hub.fronts.health import Health

__all__ = ["serve"]


@click.command()
@click.option(
    "--http", "over_http", is_flag=True, help="Serve Streamable HTTP at /mcp (and SSE at /sse) instead of stdio."
)
@click.option("--host", help="Address to listen on (hub.http.host).")
@click.option("--port", type=click.IntRange(0, 65535), help="Port to listen on, 0 takes a free one (hub.http.port).")
@click.option("--profile", help="The profile that clients get, and no other (with tokens: the token's).")
@click.option("--client", metavar="NAME", help="The kind of client that this is for, of hub.clients or built in.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="hub.log.level")
@config_option
def serve(
    over_http: bool,
    host: str | None,
    port: int | None,
    profile: str | None,
    client: str | None,
    log_level: str | None,
    config: str | None,
) -> None:
    """Serve the configured servers as one: over stdio, or with --http over HTTP."""
    if not over_http and (host is not None or port is not None):
        raise click.UsageError("--host and --port belong to --http")
    if over_http and client is not None:
        raise click.UsageError("--client belongs to stdio: over HTTP clients go by the names that they give")
    loaded = load_config(config)
    settings = loaded.settings
    _check(loaded, profile, client)
    _calm_collector()
    logs.configure(log_level or settings.hub.log.level, settings.hub.log.format)
    if over_http:
        listener = _listen(settings, host, port)
        run(lambda: _serve_http(loaded, listener, profile))
    else:
        if sys.stdin.isatty():
            click.echo("mcp-hub speaks MCP on stdin and stdout now; end it with Ctrl-D", err=True)
        run(lambda: _serve_stdio(loaded, Caller(profile=profile, has_own_hub=True, client=client)))
    leave()


def _check(loaded: Loaded, profile: str | None, client: str | None) -> None:
    """Exits with 2 for what is not configured."""
    if profile is not None and profile not in loaded.settings.profiles:
        known = ", ".join(loaded.settings.profiles) or "none"
        fail(f'{loaded.path}: no profile "{profile}"; configured: {known}', EXIT_CONFIG)
    if client is not None:
        try:
            loaded.settings.require_client(client)
        except ConfigError as exc:
            fail(f"{loaded.path}: {exc}", EXIT_CONFIG)


def _calm_collector() -> None:
    """Leaves what start-up made out of every later collection: over HTTP a full one every 3,000 calls took 60 ms."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def _serve_stdio(loaded: Loaded, caller: Caller) -> None:
    read, write = take_stdio()
    async with received_signals() as signals, open_app(loaded, os.environ) as app:
        app.reloader.checks.append(check_started_as(caller))
        front = StdioFront(app.hub, app.binding, caller)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, signals.stopped, tasks.cancel_scope)
            tasks.start_soon(keep_reloading, app.reloader, signals)
            await front.serve(read, write, loaded.settings.hub.limits.line)
            tasks.cancel_scope.cancel()
        await app.stop()
        front.close()


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


# -- HTTP --------------------------------------------------------------------------------------------------------


def _listen(settings: Settings, host: str | None, port: int | None) -> socket.socket:
    """A listening socket; exits with 2 when it may not or cannot be had."""
    http = settings.hub.http
    host = host if host is not None else http.host
    port = port if port is not None else http.port
    if refusal := why_not_listen(settings, host):
        fail(refusal, EXIT_CONFIG)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host.strip("[]"), port))
        listener.listen(2048)
    except OSError as exc:
        listener.close()
        fail(f"cannot listen on {host}:{port}: {exc.strerror or exc}; choose another with --port", EXIT_CONFIG)
    return listener


async def _serve_http(loaded: Loaded, listener: socket.socket, profile: str | None) -> None:
    from mcp_hub.cli.http_health import monitoring_of
    from mcp_hub.cli.http_limits import admission_of, connections_of, sessions_of
    from mcp_hub.fronts.connections import bounded, look_after
    from mcp_hub.fronts.endpoints import Endpoints
    from mcp_hub.fronts.legacy_sse import LegacySse
    from mcp_hub.fronts.rest import Rest
    from mcp_hub.fronts.streamable_http import StreamableHttp  # imports the SDK, which stdio does without

    http = loaded.settings.hub.http
    async with received_signals() as signals, open_app(loaded, os.environ, has_executors=True) as app:
        admission = admission_of(http)
        shared = sessions_of(http, admission)
        mcp = StreamableHttp(
            app.hub,
            app.binding,
            **shared,
            close_streams_after=http.close_streams_after,
        )
        legacy = LegacySse(app.hub, app.binding, **shared)
        door = Doorkeeper(profile)
        host = listener.getsockname()[0]
        is_open = is_authenticated(loaded.settings) or is_loopback(host)
        rest = Rest(
            app.hub,
            version=__version__,
            max_body=http.max_body,
            executors=app.virtual,
            is_open=is_open,
            limits=app.binding.limits,
            operator=app.operations,
        )
        public = metadata_routes(loaded.settings)
        health, metrics = monitoring_of(app, mcp, legacy, admission)
        routes = {**mcp.routes, **legacy.routes, **metrics.routes}
        guard = door.guard(loaded.settings)
        endpoints = Endpoints(guard, routes, rest, public, admission, health.routes, metrics.refusals)
        server = _server(endpoints, bounded(connections_of(http)))
        metrics.measure("http_connections", "Open connections.", lambda: len(server.server_state.connections))
        follow_guard(app, endpoints, door)
        app.reloader.checks += [check_started_as(Caller(profile=profile)), check_stays_authenticated(host)]
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mcp.run)
            tasks.start_soon(look_after, server.server_state.connections)
            tasks.start_soon(door.run)
            tasks.start_soon(keep_reloading, app.reloader, signals)
            tasks.start_soon(_stop_when, signals.stopped, app, server, health, [mcp, legacy, rest])
            _announce(app, listener)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def _server(endpoints: Any, protocol: type[Any]) -> "uvicorn.Server":
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves the signals to us: uvicorn would raise them again after its shutdown."""

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


async def _stop_when(
    event: anyio.Event, app: App, server: "uvicorn.Server", health: "Health", fronts: Iterable[Any]
) -> None:
    """The hub says so; streams that would not end by themselves end; running calls get their answer; then the server
    may stop.
    """
    await event.wait()
    health.close()
    for front in fronts:
        front.close()
    await app.stop()
    server.should_exit = True


def _announce(app: App, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    servers = app.settings.servers
    names = ", ".join(servers) or "none"
    url = f"http://{shown}:{port}/mcp"
    click.echo(f"mcp-hub serves {plural(len(servers), 'server')} ({names}) at {url}", err=True)
    if sys.__stdout__ is not None and not sys.stdout.isatty():  # nobody waits for it where there is none
        click.echo(url)  # for the program that reads it

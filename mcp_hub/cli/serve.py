"""`mcp-hub serve`: the hub behind its stdio front or its HTTP front, until it is told to stop.

SIGINT, SIGTERM, and over stdio the end of the client, end it cleanly in under 2 s with all children gone.
"""

import gc
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import click
import structlog

from mcp_hub import __version__, logs
from mcp_hub.app import App, open_app
from mcp_hub.cli.setup import EXIT_CONFIG, config_option, fail, leave, load_config, run
from mcp_hub.config.load import Loaded
from mcp_hub.config.schema import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.guard import Guard, is_loopback
from mcp_hub.fronts.stdio import StdioFront, take_stdio
from mcp_hub.sessions.session import Caller

if TYPE_CHECKING:
    import uvicorn

__all__ = ["serve"]

log = structlog.get_logger(__name__)


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
    async with _signals() as signalled, open_app(loaded, os.environ) as app:
        front = StdioFront(app.hub, app.binding, caller)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_cancel_when, signalled, tasks.cancel_scope)
            await front.serve(read, write, loaded.settings.hub.limits.line)
            tasks.cancel_scope.cancel()
        await app.stop()
        front.close()


@asynccontextmanager
async def _signals() -> AsyncIterator[anyio.Event]:
    """Set by SIGINT or SIGTERM from here on; a repeated one while the hub is stopping does no harm."""
    signalled = anyio.Event()
    async with anyio.create_task_group() as tasks:
        await tasks.start(_receive_signals, signalled)
        yield signalled
        tasks.cancel_scope.cancel()


async def _receive_signals(signalled: anyio.Event, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for number in signals:
            if not signalled.is_set():
                log.info("hub_stopping", signal=signal.Signals(number).name)
            signalled.set()


async def _cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    await event.wait()
    scope.cancel()


# -- HTTP --------------------------------------------------------------------------------------------------------


def _listen(settings: Settings, host: str | None, port: int | None) -> socket.socket:
    """A listening socket; exits with 2 when it may not or cannot be had."""
    http = settings.hub.http
    host = host if host is not None else http.host
    port = port if port is not None else http.port
    if not (is_loopback(host) or settings.hub.tokens or http.allow_public):
        fail(
            f"refusing to listen on {host} without tokens: anyone who reaches it could run your tools; "
            "set hub.tokens, or hub.http.allow_public if something else guards it",
            EXIT_CONFIG,
        )
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
    from mcp_hub.fronts.endpoints import Endpoints
    from mcp_hub.fronts.legacy_sse import LegacySse
    from mcp_hub.fronts.rest import Rest
    from mcp_hub.fronts.streamable_http import StreamableHttp  # imports the SDK, which stdio does without

    http = loaded.settings.hub.http
    async with _signals() as signalled, open_app(loaded, os.environ, has_executors=True) as app:
        mcp = StreamableHttp(
            app.hub,
            app.binding,
            max_body=http.max_body,
            max_sessions=http.max_sessions,
            close_streams_after=http.close_streams_after,
        )
        legacy = LegacySse(app.hub, app.binding, max_body=http.max_body, max_sessions=http.max_sessions)
        guard = _guard(loaded.settings, listener, profile)
        is_open = bool(loaded.settings.hub.tokens) or is_loopback(listener.getsockname()[0])
        rest = Rest(app.hub, version=__version__, max_body=http.max_body, executors=app.virtual, is_open=is_open)
        server = _server(Endpoints(guard, {**mcp.routes, **legacy.routes}, rest))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mcp.run)
            tasks.start_soon(_stop_when, signalled, app, server, [mcp, legacy, rest])
            _announce(app, listener)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def _server(endpoints: Any) -> "uvicorn.Server":
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
        timeout_graceful_shutdown=1,
        timeout_keep_alive=75,
    )
    return Server(config)


async def _stop_when(event: anyio.Event, app: App, server: "uvicorn.Server", fronts: Iterable[Any]) -> None:
    """Streams that would not end by themselves end; running calls get their answer; then the server may stop."""
    await event.wait()
    for front in fronts:
        front.close()
    await app.stop()
    server.should_exit = True


def _guard(settings: Settings, listener: socket.socket, profile: str | None) -> Guard:
    http = settings.hub.http
    tokens = {
        token.token.get_secret_value(): Caller(token.principal, token.profile or profile)
        for token in settings.hub.tokens
    }
    hosts = [*http.allowed_hosts, http.host]
    return Guard(tokens, hosts, http.allowed_origins, Caller(profile=profile), settings.profiles)


def _announce(app: App, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    servers = app.settings.servers
    names = ", ".join(servers) or "none"
    url = f"http://{shown}:{port}/mcp"
    click.echo(f"mcp-hub serves {len(servers)} servers ({names}) at {url}", err=True)
    if not sys.stdout.isatty():
        click.echo(url)  # for the program that reads it

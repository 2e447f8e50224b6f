"""`mcp-hub serve`. Signals, and the death of a stdio client, end the hub in under 2 s with all child processes."""

import os
import socket
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import anyio
import click

from mcp_hub import logs
from mcp_hub.app.build import App, open_app
from mcp_hub.app.readiness import working_directory
from mcp_hub.attach.arguments import MODES, VARIABLE, HubWanted
from mcp_hub.attach.serve import reason, serve_attached
from mcp_hub.cli import completion
from mcp_hub.cli.access.running import dashboard_address, recorded
from mcp_hub.cli.access.waiting import warm as fill_caches
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.serving import (
    calm_collector,
    cancel_when,
    check_started_as,
    keep_reloading,
    open_for_many,
    page_editor,
    page_installs,
)
from mcp_hub.cli.setup import check_caller, config_option, fail, leave, load_config, run, run_with
from mcp_hub.cli.signals import received_signals
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.http.auth import is_loopback
from mcp_hub.fronts.mcp.bonds import ClientBond
from mcp_hub.fronts.stdio import StdioFront, take_stdio
from mcp_hub.sessions.session import Caller
from mcp_hub.upstreams.peer.server_eras import ClientEra

if TYPE_CHECKING:
    from mcp_hub.app.http import HttpFront
    from mcp_hub.cli.http_server import HttpServer
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
@click.option(
    "--attach", type=click.Choice(MODES), envvar=VARIABLE,
    help="Whether to join the background hub of this configuration; overrides hub.attach.",
)  # fmt: skip
@click.option("--warm", is_flag=True, help="Start every server once, remember its lists, and end.")
@config_option
def serve(
    over_http: bool,
    host: str | None,
    port: int | None,
    profile: str | None,
    client: str | None,
    log_level: str | None,
    attach: str | None,
    warm: bool,
    config: str | None,
) -> None:
    """Run the hub, over stdio or HTTP.

    Clients start it by the entry that `mcp-hub install` writes, and share one hub in the background. With --http it
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
    calm_collector()
    logs.configure(log_level or settings.hub.log.level, settings.hub.log.format)
    if warm:
        run_with(lambda: open_app(loaded, os.environ), fill_caches)
    if over_http:
        listener = _listen(settings, host, port)
        run(lambda: _serve_http(loaded, listener, profile))
    else:
        mode, why = _mode(loaded, attach, log_level)
        if sys.platform != "win32" and serve_attached(_hub_wanted(loaded, profile, client), mode, why):
            return
        if sys.stdin.isatty():
            say("mcp-hub speaks MCP on stdin and stdout now. End it with Ctrl-D. To serve HTTP: mcp-hub serve --http")
        run(lambda: _serve_stdio(loaded, Caller(profile=profile, has_own_hub=True, client=client)))
    leave()


def _mode(loaded: Loaded, attach: str | None, log_level: str | None) -> tuple[str, str]:
    """Whether to join a background hub, and why not."""
    if loaded.needs_name:
        return "never", f"no option names {loaded.place}"
    if attach is None and log_level:
        return "never", "--log-level is given"
    return attach or loaded.settings.hub.attach, "--attach is never" if _is_option("attach") else ""


def _is_option(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE


def _hub_wanted(loaded: Loaded, profile: str | None, client: str | None) -> HubWanted:
    chosen = {"--config": loaded.place, "--profile": profile, "--client": client}
    arguments = [part for name, value in chosen.items() if value is not None for part in (name, value)]
    return HubWanted(arguments=["serve", *arguments], config=loaded.place, profile=profile, client=client, attach=None)


async def _serve_stdio(loaded: Loaded, caller: Caller) -> None:
    logs.get_logger(__name__).debug("not_attached", reason=reason())
    read, write = take_stdio()
    client = ClientEra(waits=True)
    async with received_signals() as signals, open_app(loaded, os.environ, client=client) as app:
        app.reloader.checks.append(check_started_as(caller))
        directory = working_directory()
        seen_as = caller if directory is None else await app.in_project(caller, directory)
        front = StdioFront(
            hub=app.hub,
            binding=app.binding,
            caller=seen_as,
            drain=lambda: app.settings.hub.drain_timeout,
            bond=ClientBond(ends_hub=True, meet=client.meet),
        )
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cancel_when, signals.stopped, tasks.cancel_scope)
            tasks.start_soon(keep_reloading, app.reloader, signals)
            with _recorded(loaded, "", caller):
                await front.serve(read, write, loaded.settings.hub.limits.line)
            tasks.cancel_scope.cancel()
        await app.stop()
        front.close()


def _listen(settings: Settings, host: str | None, port: int | None) -> socket.socket:
    """A listening socket. Exits with 2 if it is refused or not available."""
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
        advice = "Choose another port with --port, or by hub.http.port in the configuration."
        fail("cannot_listen", f"Cannot listen on {host}:{port}: {exc.strerror or exc}. {advice}")
    return listener


async def _serve_http(loaded: Loaded, listener: socket.socket, profile: str | None) -> None:
    from mcp_hub.app.http import HttpFront, check_stays_authenticated, connections_of
    from mcp_hub.cli.http_server import http_server
    from mcp_hub.fronts.http.connections import look_after
    from mcp_hub.fronts.prefix import behind_proxy

    async with received_signals() as signals, open_for_many(loaded) as app:
        host = listener.getsockname()[0]
        is_local = is_loopback(host)
        mode: DashboardMode = "full" if is_local else "read"
        front = HttpFront(
            app, profile, is_local=lambda settings: is_local, dashboard=mode, installs=page_installs,
            open_editor=partial(page_editor, loaded.path), url=_url(listener) if is_local else "",
        )  # fmt: skip
        application = behind_proxy(front.endpoints, lambda: app.settings.hub.http.root_path or "")
        server = http_server(application, connections_of(loaded.settings.hub.http))
        connections = server.server_state.connections
        front.metrics.measure("http_connections", "Open connections.", lambda: len(connections))
        app.reloader.checks.extend([check_started_as(Caller(profile=profile)), check_stays_authenticated(host)])
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(front.run)
            tasks.start_soon(look_after, connections)
            tasks.start_soon(keep_reloading, app.reloader, signals)
            tasks.start_soon(_stop_when, signals.stopped, app, server, front)
            url, has_dashboard = _url(listener), front.dashboard.mode() != "off"
            with _recorded(loaded, url, Caller(profile=profile), front.operator, has_dashboard=has_dashboard):
                _announce(app, listener)
                if has_dashboard and sys.stderr.isatty():  # never into a log
                    say(f"dashboard: {dashboard_address(url, front.operator)}")
                await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def _recorded(
    loaded: Loaded, url: str, caller: Caller, operator: str = "", *, has_dashboard: bool = True
) -> AbstractContextManager[None]:
    """A record of the hub, unless it serves one profile."""
    if caller.profile is not None:
        return nullcontext()
    return recorded(
        loaded.place, url, os.environ, caller.client or "", operator, has_dashboard=has_dashboard, alone=reason()
    )


async def _stop_when(event: anyio.Event, app: App, server: "HttpServer", front: "HttpFront") -> None:
    await event.wait()
    front.close()
    await app.stop()
    server.end()


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/mcp"


def _announce(app: App, listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    address = f"[{host}]" if ":" in host else host
    servers = app.settings.servers
    names = ", ".join(servers) or "none"
    say(f"mcp-hub serves {plural(len(servers), 'server')} ({names}) at http://{address}:{port}/mcp")

"""A learning run: a hub with one server, over HTTP."""

import os
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Final

import anyio
import msgspec
from pydantic import SecretStr

from mcp_hub.app.attached.sandboxes import learning_run
from mcp_hub.app.build import App, open_app
from mcp_hub.app.http import HttpFront, connections_of
from mcp_hub.attach.system import set_blocking
from mcp_hub.cli.access import waiting
from mcp_hub.cli.http_server import http_server
from mcp_hub.cli.signals import Signals, received_signals
from mcp_hub.client import HubClient
from mcp_hub.client.http import connect
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.hub import HttpSettings, StoreSettings, TokenSettings
from mcp_hub.errors import HubError
from mcp_hub.events import InputRequired
from mcp_hub.fronts.http.connections import look_after
from mcp_hub.sandbox.learning import Learning
from mcp_hub.types import UpstreamStatus, not_ready

_CALLS: Final = 10
"""Read-only tools that are called, at most."""
_CALL: Final = 20.0
"""Seconds for each."""


UseHub = Callable[[str, str, Sequence[UpstreamStatus]], None]
"""Gets the URL and the token of a learning run's hub, and its server if that failed."""


def settings_for(loaded: Loaded, server: str, token: str, *, limits_hosts: bool) -> Loaded:
    """The configuration with this server alone, in a sandbox; `limits_hosts`: `net` lists hosts."""
    settings = loaded.settings
    rule = settings.effective(server).sandbox.model_copy(update={"mode": "on"})
    if limits_hosts and rule.net == "any":
        rule = rule.model_copy(update={"net": []})
    servers = {
        name: server_settings.model_copy(update={"enabled": False})
        for name, server_settings in settings.servers.items()
    }
    servers[server] = settings.servers[server].model_copy(update={"enabled": True, "sandbox": rule, "start": "lazy"})
    tokens = [TokenSettings(token=SecretStr(token), principal="learning")]
    fresh = {"tokens": tokens, "http": HttpSettings(), "store": StoreSettings(type="memory")}
    hub = settings.hub.model_copy(update=fresh)
    return replace(loaded, settings=settings.model_copy(update={"servers": servers, "hub": hub}))


async def learn(loaded: Loaded, server: str, seconds: float, use: UseHub, *, limits_hosts: bool) -> Learning:
    """Runs the server until a signal, Enter, or the time. Calls `use` when it answers or fails."""
    token = secrets.token_urlsafe(24)
    started = settings_for(loaded, server, token, limits_hosts=limits_hosts)
    learning = learning_run()
    async with received_signals() as signals, open_app(started, os.environ, learning=learning) as app:
        app.upstream_set.wake(server)
        async with _served(app) as url, connect(url, token) as client:
            await _until_ended(signals, app, client, seconds, partial(use, url, token))
    return learning


async def _until_ended(
    signals: Signals, app: App, client: HubClient, seconds: float, use: Callable[[Sequence[UpstreamStatus]], None]
) -> None:
    """The time begins when the server has started."""
    async with anyio.create_task_group() as tasks:

        async def exercise() -> None:
            limits = [app.settings.effective(name).start_timeout for name in app.settings.servers]
            await waiting.settle(app.hub, 2 * max(limits))
            failures = list(not_ready(app.hub.statuses()))
            use(failures)
            if failures:
                tasks.cancel_scope.cancel()
                return
            with anyio.move_on_after(seconds):
                await _call_readers(client)
                await anyio.sleep_forever()
            tasks.cancel_scope.cancel()

        tasks.start_soon(exercise)
        if sys.stdin.isatty():
            tasks.start_soon(_cancel_on_enter, tasks.cancel_scope)
        await signals.stopped.wait()
        tasks.cancel_scope.cancel()


async def _cancel_on_enter(scope: anyio.CancelScope) -> None:
    try:
        await anyio.wait_readable(sys.stdin)
    finally:
        set_blocking(sys.stdin.fileno(), True)  # for the question that follows: the event loop may have changed it
    sys.stdin.readline()
    scope.cancel()


async def _call_readers(client: HubClient) -> None:
    for name in [name for raw in await client.tools() if (name := _reader(raw)) is not None][:_CALLS]:
        with anyio.move_on_after(_CALL), suppress(HubError):
            async with client.stream(name) as stream:
                async for event in stream:
                    if isinstance(event, InputRequired):
                        await stream.cancel()


def _reader(raw: bytes) -> str | None:
    tool = msgspec.json.decode(raw)
    hints, schema = tool.get("annotations"), tool.get("inputSchema")
    is_reader = isinstance(hints, dict) and hints.get("readOnlyHint") is True
    needs_nothing = isinstance(schema, dict) and not schema.get("required")
    return str(tool.get("name")) if is_reader and needs_nothing else None


@asynccontextmanager
async def _served(app: App) -> AsyncIterator[str]:
    """Serves the hub on a free port of 127.0.0.1; yields its URL."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        front = HttpFront(app, None, is_local=lambda settings: False)
        server = http_server(front.endpoints, connections_of(app.settings.hub.http))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(front.run)
            tasks.start_soon(look_after, server.server_state.connections)

            async def serve() -> None:
                await server.serve(sockets=[listener])

            tasks.start_soon(serve)
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
            finally:
                front.close()
                await app.stop()
                server.end()
                tasks.cancel_scope.cancel()

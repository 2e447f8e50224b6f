"""`mcp-hub attached-hub`: the background hub that `mcp-hub serve` starts. Internal."""

import os
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import anyio.abc
import click

from mcp_hub import aio, logs
from mcp_hub.app.attached.claim import claimed
from mcp_hub.app.attached.hub import AttachedHub
from mcp_hub.app.build import App
from mcp_hub.attach.start import READY
from mcp_hub.cli.access.running import recorded
from mcp_hub.cli.serving import calm_collector, keep_reloading, open_for_many, page_editor, page_installs
from mcp_hub.cli.setup import config_option, leave, load_config, run
from mcp_hub.cli.signals import received_signals
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.files import open_null

if TYPE_CHECKING:
    from mcp_hub.app.http import HttpFront
    from mcp_hub.cli.http_server import HttpServer
    from mcp_hub.fronts.http.response import Receive, Scope, Send


class _BackgroundHttp:
    """All endpoints on the user's socket; on the port only the dashboard."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: anyio.abc.TaskGroup
        self._front: HttpFront | None = None
        self._server: HttpServer | None = None
        self._ported: HttpServer | None = None
        self._url = ""

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        async with anyio.create_task_group() as self._tasks:
            task_status.started()
            await anyio.sleep_forever()

    @property
    def connections(self) -> int:
        servers = (self._server, self._ported)
        return sum(len(server.server_state.connections) for server in servers if server is not None)

    async def serve(self, connection: socket.socket) -> None:
        server = self._server or self._started()
        config, state = server.config, server.server_state
        protocol: Any = config.http_protocol_class
        await aio.adopt(partial(protocol, config=config, server_state=state, app_state={}), connection)

    async def dashboard(self) -> dict[str, str]:
        """Opens the dashboard: `url` and `operator`, or `why` not."""
        if self._server is None:
            self._started()
        front = self._front
        assert front is not None
        if front.dashboard.mode() == "off":
            return {"why": "The running hub does not have a dashboard (hub.http.dashboard: off)."}
        if self._ported is None:
            listener = socket.create_server(("127.0.0.1", 0))
            self._ported = self._serving(partial(_dashboard_only, front), [listener])
            self._url = f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        return {"url": self._url, "operator": front.operator}

    def close(self) -> None:
        if self._front is not None:
            self._front.close()
        for server in (self._server, self._ported):
            if server is not None:
                server.end()

    def _started(self) -> "HttpServer":
        from mcp_hub.app.http import HttpFront

        front = self._front = HttpFront(
            self._app, None, is_local=lambda settings: True, dashboard="full", is_private=True,
            installs=page_installs, open_editor=partial(page_editor, self._app.seen.config),
        )  # fmt: skip
        self._tasks.start_soon(front.run)
        self._server = self._serving(front.endpoints, [])
        return self._server

    def _serving(self, endpoints: Any, listeners: list[socket.socket]) -> "HttpServer":
        from mcp_hub.app.http import connections_of
        from mcp_hub.cli.http_server import http_server
        from mcp_hub.fronts.http.connections import look_after

        server = http_server(endpoints, connections_of(self._app.settings.hub.http))
        server.config.load()
        self._tasks.start_soon(partial(server.serve, sockets=listeners))
        self._tasks.start_soon(look_after, server.server_state.connections)
        return server


async def _dashboard_only(front: "HttpFront", scope: "Scope", receive: "Receive", send: "Send") -> None:
    """Other users reach the port, too: they need the operator's token."""
    owned = front.dashboard is not None and front.dashboard.owns(scope["path"])
    await front.endpoints(scope if owned else {**scope, "path": "/"}, receive, send)


@click.command("attached-hub", hidden=True)
@click.option("--folder", required=True, metavar="DIR", help="The folder of this hub.")
@click.option("--client-folder", metavar="DIR", help="The working directory of the client that starts it.")
@config_option
def attached_hub(folder: str, client_folder: str | None, config: str | None) -> None:
    """Run the background hub of a configuration, which `mcp-hub serve` starts and joins.

    Says `ready` on stdout once clients can join. Ends when nobody has needed it for hub.attach_idle, or when
    mcp-hub stop ends it.
    """
    try:
        with claimed(Path(folder)) as has_folder:
            loaded = load_config(config, partly=True)
            calm_collector()
            logs.configure(loaded.settings.hub.log.level, "json")
            run(lambda: _serve(loaded, Path(folder), deque([client_folder], maxlen=1), has_folder))
    except (OSError, UpstreamUnavailable) as problem:
        _say(f"{problem}\n".encode())
        raise SystemExit(3) from None
    leave()


async def _serve(loaded: Loaded, folder: Path, clients: deque[str | None], has_folder: Callable[[], bool]) -> None:
    async with (
        received_signals() as signals,
        open_for_many(loaded, clients=clients) as app,
        anyio.create_task_group() as tasks,
    ):
        http = _BackgroundHttp(app)
        await tasks.start(http.run)
        tasks.start_soon(keep_reloading, app.reloader, signals)
        hub = AttachedHub(
            app=app,
            folder=folder,
            http=http,
            idle=loaded.settings.hub.attach_idle,
            folders=clients,
            has_folder=has_folder,
        )
        with recorded(loaded.place, "", os.environ, folder=str(folder)):
            await hub.run(signals.stopped, lambda: _say(READY))
        http.close()
        tasks.cancel_scope.cancel()


def _say(line: bytes) -> None:
    """Writes the one line that the parent waits for; it may be gone."""
    try:
        os.write(1, line)
        nothing = open_null(os.O_WRONLY)
        os.dup2(nothing, 1)
        os.close(nothing)
    except OSError:
        pass

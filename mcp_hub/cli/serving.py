"""Every hub that serves: settings, collector, reloads, the end."""

import gc
import os
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from mcp_hub.app.build import App, open_app
from mcp_hub.app.reload import Reloader
from mcp_hub.cli.lean import COLLECTOR
from mcp_hub.cli.signals import Signals
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.sessions.session import Caller
from mcp_hub.upstreams.peer.server_eras import ClientEra

if TYPE_CHECKING:
    from mcp_hub.app.dashboard.edits import ServerEditor
    from mcp_hub.protocol.rest.overview import ClientInstall


def calm_collector() -> None:
    """Excludes objects of the start from garbage collection, which took 60 ms. Hardly any is garbage."""
    gc.freeze()
    gc.set_threshold(*COLLECTOR)


async def keep_reloading(reloader: Reloader, signals: Signals) -> None:
    """Reloads by SIGHUP and file changes, until cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.watch, name="configuration")
        while True:
            await signals.reload_wanted()
            await reloader.reload("signal")


def page_installs() -> "list[ClientInstall]":
    """The client programs of this machine, for the dashboard. Blocks."""
    from mcp_hub.onboarding.changes.written import client_installs  # readers and editors of files, for pages only

    return client_installs(os.environ)


def page_editor(config: Path) -> "ServerEditor":
    """The dashboard's editor of a configuration file."""
    from mcp_hub.onboarding.servers_file.proposals import PageEditor

    return PageEditor(config, os.environ)


def check_started_as(caller: Caller) -> Callable[[Settings], None]:
    """Refuses settings without the caller's profile or client."""

    def check(settings: Settings) -> None:
        if caller.profile is not None and caller.profile not in settings.profiles:
            message = f'must keep "{caller.profile}": this hub was started with it (--profile)'
            raise ConfigError(ConfigFinding("unknown_profile", message, path="profiles"))
        if caller.client is not None:
            settings.client_table.require(caller.client)

    return check


async def cancel_when(event: anyio.Event, scope: anyio.CancelScope) -> None:
    """Cancels the scope on the event."""
    await event.wait()
    scope.cancel()


def open_for_many(loaded: Loaded, *, clients: deque[str | None] | None = None) -> AbstractAsyncContextManager[App]:
    """A hub for both eras and for workers."""
    return open_app(
        loaded, os.environ, has_executors=True, client=ClientEra(waits=clients is not None), clients=clients
    )

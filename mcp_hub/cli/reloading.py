"""Reloads of a hub that serves: by SIGHUP, when the file changes, and within what it was started as."""

from collections.abc import Callable
from functools import partial

import anyio

from mcp_hub.app import App
from mcp_hub.cli.guards import Doorkeeper, is_authenticated, metadata_routes
from mcp_hub.cli.signals import Signals
from mcp_hub.config.schema import Settings
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.endpoints import Endpoints
from mcp_hub.fronts.guard import is_loopback
from mcp_hub.reload import Reloader
from mcp_hub.sessions.session import Caller

__all__ = ["check_stays_authenticated", "check_started_as", "follow_guard", "keep_reloading"]


async def keep_reloading(reloader: Reloader, signals: Signals) -> None:
    """Until cancelled."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloader.watch, name="configuration")
        while True:
            await signals.reload_wanted()
            await reloader.reload("signal")


def check_started_as(caller: Caller) -> Callable[[Settings], None]:
    """Refuses settings without the profile or the kind of client that the hub was started for."""

    def check(settings: Settings) -> None:
        if caller.profile is not None and caller.profile not in settings.profiles:
            raise ConfigError(f'profiles: no "{caller.profile}" any more, which this hub was started with (--profile)')
        if caller.client is not None:
            settings.require_client(caller.client)

    return check


def check_stays_authenticated(host: str) -> Callable[[Settings], None]:
    """Refuses to let everybody in where not only this machine can reach the hub; `host` is where it listens."""

    def check(settings: Settings) -> None:
        if not (is_loopback(host) or is_authenticated(settings) or settings.hub.http.allow_public):
            raise ConfigError(
                f"hub.tokens: this hub listens on {host}, where anyone could run your tools without tokens"
            )

    return check


def follow_guard(app: App, endpoints: Endpoints, door: Doorkeeper) -> None:
    """From now on each request is checked by the settings that hold then."""
    app.reloader.prepares.append(partial(_prepared_guard, endpoints, door))


def _prepared_guard(endpoints: Endpoints, door: Doorkeeper, settings: Settings) -> Callable[[], None]:
    guard, public = door.guard(settings), dict(metadata_routes(settings))

    def put() -> None:
        endpoints.guard, endpoints.public = guard, public

    return put

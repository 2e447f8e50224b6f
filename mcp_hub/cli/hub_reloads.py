"""Reloads of a hub that serves: by SIGHUP and when the file changes, within the options of its start."""

from collections.abc import Callable

import anyio

from mcp_hub.app.reload import Reloader
from mcp_hub.cli.signals import Signals
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.sessions.session import Caller


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
            said = f'must keep "{caller.profile}": this hub was started with it (--profile)'
            raise ConfigError(ConfigFinding("unknown_profile", said, path="profiles"))
        if caller.client is not None:
            settings.client_table.require(caller.client)

    return check

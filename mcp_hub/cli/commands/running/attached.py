"""`mcp-hub attached-hub`: the background hub that `mcp-hub serve` starts. Internal."""

import os
from collections.abc import Callable
from pathlib import Path

import anyio
import click

from mcp_hub import logs
from mcp_hub.app.attached.claim import claimed
from mcp_hub.app.attached.hub import AttachedHub
from mcp_hub.app.start_folders import ClientFolder
from mcp_hub.attach.start import READY
from mcp_hub.cli.access.running import recorded
from mcp_hub.cli.background import BackgroundHttp
from mcp_hub.cli.serving import calm_collector, keep_reloading, open_for_many
from mcp_hub.cli.setup import config_option, leave, load_config, run
from mcp_hub.cli.signals import received_signals
from mcp_hub.config.load.load import Loaded
from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.files import open_null


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
            run(lambda: _serve(loaded, Path(folder), ClientFolder(client_folder), has_folder))
    except (OSError, UpstreamUnavailable) as problem:
        _say(f"{problem}\n".encode())
        raise SystemExit(3) from None
    leave()


async def _serve(loaded: Loaded, folder: Path, clients: ClientFolder, has_folder: Callable[[], bool]) -> None:
    async with (
        received_signals() as signals,
        open_for_many(loaded, clients=clients) as app,
        anyio.create_task_group() as tasks,
    ):
        http = BackgroundHttp(app)
        await tasks.start(http.run)
        tasks.start_soon(keep_reloading, app.reloader, signals)
        hub = AttachedHub(
            app=app,
            folder=folder,
            http=http,
            idle=loaded.settings.hub.attach_idle,
            latest=clients,
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

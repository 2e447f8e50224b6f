"""`mcp-hub stop`: ends the background hub of the configuration."""

import os
import time
from typing import Final

import click

from mcp_hub.attach.locks import is_alive
from mcp_hub.cli.access.background import asked
from mcp_hub.cli.access.running import running_hubs
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, config_path, fail

_PATIENCE: Final = 10.0
_LOOK: Final = 0.05


@click.command()
@config_option
def stop(config: str | None) -> None:
    """Stop the background hub of the configuration.

    Its servers end with it. Running calls get an error. Clients that are still connected start another one when they
    need it next. A hub over HTTP ends with its own process or service. Exit code 3 if none runs.
    """
    place = os.path.abspath(config_path(config))
    folders = [hub.folder for hub in running_hubs(place, os.environ) if hub.folder]
    if not folders:
        fail("no_running_hub", f"No hub runs in the background for {place}.", EXIT_UNAVAILABLE)
    for folder in folders:
        asked(folder, "stop")
        for _ in range(int(_PATIENCE / _LOOK)):
            if not is_alive(folder):
                break
            time.sleep(_LOOK)
        else:
            fail("hub_not_answering", f"The background hub in {folder} has not ended yet.", EXIT_UNAVAILABLE)
    say("stopped")

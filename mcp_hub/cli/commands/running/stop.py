"""`mcp-hub stop`: ends the background hub of the configuration."""

import os

import click

from mcp_hub.cli.access.background import end_hub, hubs_of
from mcp_hub.cli.render.output import say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, fail, fail_with
from mcp_hub.errors import ConfigError
from mcp_hub.masking import visible


@click.command()
@config_option
def stop(config: str | None) -> None:
    """Stop the background hub of the configuration.

    Its servers end with it. Running calls get an error. Clients that are still connected start another one when they
    need it next. A hub over HTTP ends with its own process or service. Without a configuration: the hubs whose file
    was removed, else the only one that runs. Exit code 3 if none runs.
    """
    try:
        place, hubs = hubs_of(config)
    except ConfigError as error:
        fail_with(error)
    hubs = [hub for hub in hubs if hub.folder]
    if not place:
        hubs = [hub for hub in hubs if not os.path.lexists(hub.place)] or hubs
        places = dict.fromkeys(hub.place for hub in hubs)
        if len(places) > 1 and any(map(os.path.lexists, places)):
            listed = "".join(f"\n  mcp-hub stop --config {visible(one)}" for one in places)
            fail("usage", f"Hubs of several configurations run in the background. Name one:{listed}")
    if not hubs:
        said = f"No hub runs in the background for {place}." if place else "No hub runs in the background."
        fail("no_running_hub", visible(said), EXIT_UNAVAILABLE)
    for hub in hubs:
        end_hub(hub.folder)
    say("stopped" if place else visible(f"stopped the hub of {', '.join(dict.fromkeys(hub.place for hub in hubs))}"))

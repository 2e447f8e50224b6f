"""`mcp-hub logout`: forgets a login of `mcp-hub login`."""

import os

import click

from mcp_hub.cli.login import remote
from mcp_hub.cli.results import visible
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail, run
from mcp_hub.composition import state_dir
from mcp_hub.logins import grant_store
from mcp_hub.upstreams.auth.grants import LoginFailed

__all__ = ["logout"]


@click.command()
@click.argument("server")
@config_option
def logout(server: str, config: str | None) -> None:
    """Remove the login to the remote SERVER from this machine. Hubs that run notice it by themselves."""
    from mcp_hub.upstreams.auth.login import log_out

    url, client = remote(server, config)
    try:
        was_there = run(lambda: log_out(url, client, grant_store(state_dir(os.environ))))
    except LoginFailed as exc:
        fail(visible(f"cannot log out of {server}: {exc}"), EXIT_TOOL)
    else:
        click.echo(visible(f"logged out of {server}" if was_there else f"there was no login to {server}"), err=True)

"""`mcp-hub login` and `logout`."""

import os
import threading
import webbrowser
from contextlib import nullcontext, suppress
from typing import Any, Final, NoReturn

import anyio
import click

from mcp_hub.app.limits import state_dir
from mcp_hub.app.logins import grant_store, login_of, outcome, why_no_login
from mcp_hub.cli import completion
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import (
    EXIT_TOOL,
    Seconds,
    config_option,
    fail,
    load_config,
    quiet_logs,
    run,
    run_with,
    verbose_option,
)
from mcp_hub.config.findings import nearest
from mcp_hub.masking import hide
from mcp_hub.upstreams.auth.grants import ClientRegistration, LoginFailed

_PATIENCE: Final = 300.0
"""Seconds for a person to log in."""
_BROWSER: Final = 5.0
"""Seconds for a browser to start."""


@click.command()
@click.argument("server", shell_complete=completion.servers)
@click.option(
    "--no-browser", is_flag=True, help="Print the URL instead of opening it. Open it in a browser on this machine."
)
@click.option(
    "--timeout", type=Seconds(min=1, max=3600), default=_PATIENCE, show_default=True, metavar="SECONDS",
    help="How long to wait for the login.",
)  # fmt: skip
@verbose_option
@config_option
def login(server: str, no_browser: bool, timeout: float, verbose: int, config: str | None) -> None:
    """Log in to the remote SERVER in a browser (OAuth).

    All hubs of this user share the login and renew it.
    """
    url, client = remote(server, config)
    quiet_logs(verbose)
    _run(server, url, client, timeout, opens=not no_browser)


def remote(name: str, config: str | None) -> tuple[str, ClientRegistration]:
    """The URL of a remote server and its OAuth client. Exits with 2."""
    loaded = load_config(config)
    settings = loaded.settings.servers.get(name)
    if settings is None:
        remote_ones = [key for key, it in loaded.settings.servers.items() if it.url is not None]
        hint = nearest(name, remote_ones) or f". Remote servers: {', '.join(remote_ones) or 'none'}."
        fail("unknown_server", f'{loaded.path}: there is no server "{name}"{hint}')
    if (login := login_of(settings)) is None:
        fail("no_login", f'{loaded.path}: server "{name}" {why_no_login(settings)}')
    return login


def _run(server: str, url: str, client: ClientRegistration, timeout: float, *, opens: bool) -> NoReturn:
    from mcp_hub.upstreams.auth.login import log_in

    async def main(_: Any) -> int:
        async def show(page: str, issuer: str) -> None:
            await show_login(server, page, issuer, opens=opens)

        try:
            grant = await log_in(url, client, grant_store(state_dir(os.environ)), show, timeout)
        except LoginFailed as exc:
            say(hide(f"Cannot log in to {server}: {exc} [login_failed]"))
            return EXIT_TOOL
        say(outcome(server, grant, client))
        return 0

    run_with(nullcontext, main)


async def show_login(server: str, page: str, issuer: str, *, opens: bool) -> None:
    """Prints the page and opens it. `page` must be https, or http on this machine."""
    say(f"{server} logs in at {issuer}")
    is_open = opens and await anyio.to_thread.run_sync(_opened, page)
    message = "The login page is open in your browser. If not, open:"
    say(message if is_open else "Open this page in a browser on this machine:")
    put(page)


def _opened(page: str) -> bool:
    """Whether a browser was started; some return only when they are closed."""
    outcomes: list[bool] = []

    def run() -> None:
        with suppress(webbrowser.Error, OSError):
            outcomes.append(webbrowser.open(page))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_BROWSER)
    return thread.is_alive() or any(outcomes)


@click.command()
@click.argument("server", shell_complete=completion.servers)
@config_option
def logout(server: str, config: str | None) -> None:
    """Remove the login to the remote SERVER.

    The login is removed from this machine only. Running hubs notice it.
    """
    from mcp_hub.upstreams.auth.login import log_out

    url, client = remote(server, config)
    try:
        was_there = run(lambda: log_out(url, client, grant_store(state_dir(os.environ))))
    except LoginFailed as exc:
        fail("logout_failed", f"Cannot log out of {server}: {exc}", EXIT_TOOL)
    say(f"Logged out of {server}." if was_there else f"There was no login to {server}.")

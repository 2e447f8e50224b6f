"""`mcp-hub login` and `logout` at servers; `access`: the clients that people let in to the hub."""

import os
import threading
import webbrowser
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn
from urllib.parse import urlsplit

import anyio
import click

from mcp_hub.app.limits import open_store
from mcp_hub.app.logins import grant_store, login_of, open_grants, outcome, why_no_login
from mcp_hub.cli import completion
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import (
    EXIT_TOOL,
    EXIT_UNAVAILABLE,
    Seconds,
    config_option,
    fail,
    load_config,
    quiet_logs,
    run,
    run_with,
    verbose_option,
)
from mcp_hub.clock import wall_time
from mcp_hub.config.findings import nearest
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import StoreError
from mcp_hub.masking import hide, visible
from mcp_hub.types import plural
from mcp_hub.upstreams.auth.grants import ClientRegistration, LoginFailed

if TYPE_CHECKING:
    from mcp_hub.fronts.http.authorization.grants import AccessGrants

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


@click.group()
def access() -> None:
    """List or remove the clients that people let in to the hub.

    People let clients such as claude.ai in on a page of the hub (hub.http.authorization).
    """


@access.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def access_list(as_json: bool, config: str | None) -> None:
    """List the clients that people let in, the last used first."""
    _run_with_grants(config, lambda grants: _list(grants, as_json))


@access.command("remove")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--principal", metavar="NAME", help="Remove all clients of this principal.")
@click.option("--all", "everybody", is_flag=True, help="Remove all clients.")
@config_option
def access_remove(ids: tuple[str, ...], principal: str | None, everybody: bool, config: str | None) -> None:
    """Remove clients by the ID of `access list`.

    Their tokens and open streams end within a second, at every replica. Exit code 1 if there is no such client.
    """
    if [bool(ids), principal is not None, everybody].count(True) != 1:
        raise click.UsageError("Name clients by the IDs of mcp-hub access list, or use --principal NAME or --all.")
    _run_with_grants(config, lambda grants: _remove(grants, ids, principal))


def _run_with_grants(config: str | None, main: Callable[["AccessGrants"], Awaitable[int]]) -> NoReturn:
    """Runs `main` with the grants of the configuration; exits with its code."""
    settings = load_config(config, reports_failures=False).settings
    if settings.hub.http.authorization is None:
        fail("missing_key", "The hub lets no clients in: hub.http.authorization is not set.")
    quiet_logs(0)

    @asynccontextmanager
    async def opened() -> "AsyncIterator[AccessGrants]":
        store = open_store(settings, os.environ)
        if store.replicas is None:  # then the grants are in a file
            yield open_grants(settings, state_dir(os.environ), store)
            return
        await store.open()
        try:
            yield open_grants(settings, state_dir(os.environ), store)
        finally:
            await store.close()

    async def run_main(grants: "AccessGrants") -> int:
        try:
            await grants.look()
            return await main(grants)
        except StoreError as problem:
            say(f"The grants cannot be used: {problem} [store_unavailable]")
            return EXIT_UNAVAILABLE

    run_with(opened, run_main)


async def _list(grants: "AccessGrants", as_json: bool) -> int:
    from mcp_hub.fronts.http.authorization.grants import shown_id

    rows = [
        {
            "id": shown_id(family), "client": grant.name, "principal": grant.principal, "profile": grant.profile,
            "redirect": grant.redirect, "created": grant.created, "used": grant.used,
        }
        for family, grant in sorted(grants.families.items(), key=lambda row: -row[1].used)
    ]  # fmt: skip
    if as_json:
        tables.print_json({"clients": rows})
        return 0
    if not rows:
        put("No client was let in.")
        return 0
    time, content = wall_time(), tables.table("id", "client", "principal", "profile", "goes to", "used", whole=["id"])
    for row in rows:
        texts = (
            row["id"],
            row["client"],
            row["principal"],
            row["profile"] or "-",
            urlsplit(str(row["redirect"])).netloc,
        )
        content.add_row(
            *(tables.cell(visible(str(text))) for text in texts), tables.cell(tables.age(float(str(row["used"])), time))
        )
    tables.print_table(content)
    return 0


async def _remove(grants: "AccessGrants", ids: tuple[str, ...], principal: str | None) -> int:
    from mcp_hub.fronts.http.authorization.grants import shown_id

    by_id = {shown_id(family): family for family in grants.families}
    if missing := [id_ for id_ in ids if id_ not in by_id]:
        say(f"There is no client {', '.join(map(visible, missing))}. mcp-hub access list has them.")
        return EXIT_TOOL
    families = [by_id[id_] for id_ in ids]
    if not ids:
        families = [key for key, grant in grants.families.items() if principal in (None, grant.principal)]
    if not families:
        say("No client was let in" + ("." if principal is None else f" by {visible(principal)}."))
        return EXIT_TOOL if principal is not None else 0
    await grants.remove(families)
    say(f"Removed {plural(len(families), 'client')}.")
    return 0

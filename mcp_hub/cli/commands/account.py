"""`mcp-hub account`: accounts that callers have at servers with `account: own`."""

import os
import secrets
import sys
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import click

from mcp_hub.cli import completion
from mcp_hub.cli.access.hub import Reach, run_with_client, running_place, url_options
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.servers import account_line
from mcp_hub.cli.setup import EXIT_TOOL, EXIT_UNAVAILABLE, fail, load_config, run
from mcp_hub.errors import Rejected, StoreError, StoreUnavailable
from mcp_hub.masking import visible

if TYPE_CHECKING:
    from mcp_hub.client import HubClient
    from mcp_hub.config.load.load import Loaded
    from mcp_hub.protocol.rest.servers import AccountAnswer, AccountInfo

_KEY: Final = 32
"""Bytes of a key."""
_principal = click.option(
    "--principal", metavar="P", help="Whose account: a principal of hub.tokens, or ISSUER|SUBJECT of an OAuth token."
)


class _Accounts(Protocol):
    async def listed(self, principal: str | None) -> "list[AccountInfo]": ...
    async def remove(self, server: str, principal: str) -> "AccountAnswer": ...
    async def put_value(self, server: str, principal: str, name: str, value: str) -> None: ...


class _AtHub:
    def __init__(self, client: "HubClient") -> None:
        self._client = client

    async def listed(self, principal: str | None) -> "list[AccountInfo]":
        return (await self._client.accounts.listed(principal)).accounts

    async def remove(self, server: str, principal: str) -> "AccountAnswer":
        return await self._client.accounts.remove(server, principal or None)

    async def put_value(self, server: str, principal: str, name: str, value: str) -> None:
        await self._client.accounts.put_value(server, name, value, principal or None)


@click.group()
def account() -> None:
    """List, remove and set the accounts that callers have at servers.

    For servers with `account: own`, at which each caller has an account.
    """


@account.command("list")
@_principal
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@url_options
def list_accounts(principal: str | None, as_json: bool, reach: Reach) -> None:
    """List accounts by server and principal, without their secrets.

    Those of principals that no token has any more are marked as gone.
    """
    _run(reach, lambda accounts: _list(accounts, principal, as_json))


async def _list(accounts: _Accounts, principal: str | None, as_json: bool) -> int:
    listed = await accounts.listed(principal)
    if as_json:
        tables.print_json({"accounts": listed})
        return 0
    for info in listed:
        put(visible(account_line(info)))
    if not listed:
        say("There are no accounts.")
    return 0


@account.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@_principal
@url_options
def remove(server: str | None, principal: str | None, reach: Reach) -> None:
    """Remove the account at SERVER, or at all servers.

    The login is revoked at its server. Its connections, processes and calls end within a second, and a login that
    finishes afterwards is thrown away. With neither SERVER nor --principal nothing is removed.
    """
    if server is None and principal is None:
        raise click.UsageError("Name a SERVER, a --principal, or both.")
    _run(reach, lambda accounts: _remove(accounts, server, principal))


async def _remove(accounts: _Accounts, server: str | None, principal: str | None) -> int:
    if server is not None and principal is not None:
        targets = [(server, principal)]
    else:
        listed = await accounts.listed(principal)
        targets = [(info.server, info.principal) for info in listed if server in (None, info.server)]
    code = 0
    for at_server, whose in targets:
        removed = await accounts.remove(at_server, whose)
        account_text = f"account of {whose} at {at_server}"
        say(visible(f"Removed the {account_text}." if removed.was else f"There was no {account_text}."))
        if removed.problem:
            say(visible(f"It is not revoked there: {removed.problem}. Revoke it at the server's own page."))
            code = EXIT_TOOL
    if not targets:
        say("There are no such accounts.")
    return code


@account.command("set")
@click.argument("server", shell_complete=completion.servers)
@click.argument("name")
@_principal
@url_options
def set_value(server: str, name: str, principal: str | None, reach: Reach) -> None:
    """Set the value NAME of an account at SERVER, for ${account:NAME}.

    Asks for the value, or reads a line of stdin where there is not a terminal. It is encrypted, and never shown again.
    Without --principal it is the account of --token.
    """
    if principal is None and reach.url is None:
        raise click.UsageError("Whose account is it? Give --principal, or --url with your token.")
    is_person = sys.stdin.isatty()
    value = (
        click.prompt(visible(f"{name} at {server}"), hide_input=True)
        if is_person
        else sys.stdin.readline().rstrip("\r\n")
    )
    if not value or not value.isprintable():
        fail("invalid_value", "The value is empty, or has characters that cannot be printed.")
    _run(reach, lambda accounts: _set(accounts, server, name, value, principal or ""))


async def _set(accounts: _Accounts, server: str, name: str, value: str, principal: str) -> int:
    await accounts.put_value(server, principal, name, value)
    say(visible(f"Set {name} of {principal or 'your account'} at {server}."))
    return 0


@account.command()
@click.argument("server", shell_complete=completion.servers)
@url_options
def login(server: str, reach: Reach) -> None:
    """Print a link by which you log in to an account of your own at SERVER.

    The link works once, for ten minutes. The last page shows a code for `mcp-hub account confirm`.
    """
    run_with_client(reach, lambda client: _link(client, server))


async def _link(client: "HubClient", server: str) -> int:
    answer = await client.lists.connect(server)
    say(visible(f"Open this page in a browser to log in to {server} as {answer.principal}:"))
    put(visible(answer.url or ""))
    return 0


@account.command()
@click.argument("server", shell_complete=completion.servers)
@click.argument("code")
@url_options
def confirm(server: str, code: str, reach: Reach) -> None:
    """Make a login at SERVER your account, by the CODE that its last page shows.

    With --url and your own token. Enter no code that somebody else gave you: the account would be theirs. After three
    wrong codes the login is thrown away.
    """
    run_with_client(reach, lambda client: _confirm(client, server, code))


async def _confirm(client: "HubClient", server: str, code: str) -> int:
    answer = await client.lists.connect(server, code)
    named = f" is {answer.account}" if answer.account else " is set"
    say(visible(f"The account of {answer.principal} at {server}{named}."))
    return 0


@account.command()
def key() -> None:
    """Print a new key for hub.accounts.key.

    Write it to a file that only you can read, and refer to it: key: ${file:accounts.key}. To change the key, put the
    new one before the old one: key: ["${file:new.key}", "${file:old.key}"].
    """
    put(urlsafe_b64encode(secrets.token_bytes(_KEY)).decode())


def _run(reach: Reach, main: Callable[[_Accounts], Awaitable[int]]) -> None:
    if reach.url is not None or running_place(reach) is not None:
        run_with_client(reach, lambda client: main(_AtHub(client)), operates=reach.url is None)
    loaded = load_config(reach.config)
    if not loaded.settings.hub.accounts.key:
        fail("missing_key", f"{loaded.path}: there are no accounts of callers: hub.accounts.key is not set.")
    raise SystemExit(run(partial(_in_store, loaded, main)))


async def _in_store(loaded: "Loaded", main: Callable[[_Accounts], Awaitable[int]]) -> int:
    code = EXIT_UNAVAILABLE
    try:
        async with _stored(loaded) as accounts:
            code = await main(accounts)
    except Rejected as refused:
        fail(refused.code, str(refused))
    except (StoreError, StoreUnavailable) as problem:
        fail("store_unavailable", str(problem), EXIT_UNAVAILABLE)
    return code


@asynccontextmanager
async def _stored(loaded: "Loaded") -> AsyncIterator[_Accounts]:
    from mcp_hub.app.accounts import AccountRecords, open_accounts
    from mcp_hub.app.limits import open_store

    settings = loaded.settings
    store = open_store(settings, os.environ) if settings.hub.store.type == "redis" else None
    if store is not None:
        await store.open()
    try:
        yield AccountRecords(open_accounts(lambda: settings, os.environ, store), lambda: settings)
    finally:
        if store is not None:
            await store.close()

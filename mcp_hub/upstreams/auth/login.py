"""A login by a person: the browser goes to the authorization server and comes back here; what it brings is stored."""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib import import_module
from typing import Final
from urllib.parse import urlsplit

import anyio

from mcp_hub.config.schema.remote import is_cleartext, is_this_machine, origin_parts
from mcp_hub.upstreams.auth.addresses import Addresses
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, LoginFailed, grant_key
from mcp_hub.upstreams.auth.redirect import Redirect, listening
from mcp_hub.upstreams.auth.store import GrantStore

_FLOWS: Final = "mcp_hub.upstreams.auth.flows"
_LOCK: Final = 15.0
"""Seconds that another process may take to renew a login."""
_ALONE: Final = 30.0
"""Seconds of a login without a person."""

Show = Callable[[str, str], Awaitable[None]]
"""Shows a person the URL to visit, which has been checked, and the issuer that it is of."""


async def log_in(url: str, client: ClientRegistration, store: GrantStore, show: Show, seconds: float) -> Grant:
    """Logs in to the server at `url` and stores the login, in place of the one before; waits so long for the person.

    Raises `LoginFailed`, and the one before stays.
    """
    if is_cleartext(url):
        raise LoginFailed("a token must not go over http://, where everybody on the way can read it; use https://")
    addresses = Addresses(is_near=is_this_machine(origin_parts(url)[1]))
    key = grant_key(url, client)
    try:
        prior = store.load(key)
    except LoginFailed:  # it is to be replaced anyway
        prior = None
    if client.is_machine:
        grant = await log_in_alone(url, client, prior, addresses)
    else:
        grant = await _in_browser(url, client, prior, addresses, show, seconds)
    async with store.locked(key, _LOCK):
        store.save(key, grant)
    return grant


async def log_in_alone(url: str, client: ClientRegistration, prior: Grant | None, addresses: Addresses) -> Grant:
    """A login without a person, not stored yet. Raises `LoginFailed`."""
    flows = await anyio.to_thread.run_sync(import_module, _FLOWS)  # half a second, in which a hub does other things
    try:
        with anyio.fail_after(_ALONE):
            grant = await flows.login_alone(url, client, prior, addresses)
    except TimeoutError:
        raise LoginFailed(f"the login took longer than {_ALONE:g} s", is_final=False) from None
    assert isinstance(grant, Grant)
    return grant


async def _in_browser(
    url: str, client: ClientRegistration, prior: Grant | None, addresses: Addresses, show: Show, seconds: float
) -> Grant:
    from mcp.client.auth import AuthorizationCodeResult

    from mcp_hub.upstreams.auth.flows import login_in_browser

    async with AsyncExitStack() as stack:
        redirect = await _listen(stack, client, prior)

        async def visit(authorization_url: str, issuer: str) -> AuthorizationCodeResult:
            redirect.expect(authorization_url)
            await show(authorization_url, issuer)
            found = await redirect.wait(seconds)
            return AuthorizationCodeResult(code=found["code"], state=found["state"], iss=found.get("iss"))

        return await login_in_browser(url, client, prior, redirect.uri, visit, addresses)


async def _listen(stack: AsyncExitStack, client: ClientRegistration, prior: Grant | None) -> Redirect:
    """On the configured port, else on that of the client that the hub has registered, so that it can be used again."""
    if client.redirect_port is None and prior is not None and prior.is_registered and prior.redirect_uris:
        try:
            return await stack.enter_async_context(listening(urlsplit(prior.redirect_uris[0]).port))
        except (LoginFailed, ValueError):
            pass
    return await stack.enter_async_context(listening(client.redirect_port))


async def log_out(url: str, client: ClientRegistration, store: GrantStore) -> bool:
    """Removes the stored login; whether there was one. Raises `LoginFailed`."""
    key = grant_key(url, client)
    async with store.locked(key, _LOCK):
        return store.remove(key)

"""Logs in, by a person's browser or by the hub itself, and out."""

from importlib import import_module
from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from mcp_hub.addresses import is_cleartext
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, GrantStore, LoginFailed, grant_key
from mcp_hub.upstreams.auth.redirect import Show, listening

_FLOWS: Final = "mcp_hub.upstreams.auth.flows"
_LOCK: Final = 15.0
"""Seconds that another process may take to renew a login."""
_ALONE: Final = 30.0
"""Seconds of a login without a person."""


async def log_in(url: str, client: ClientRegistration, store: GrantStore, show: Show, seconds: float) -> Grant:
    """Logs in at `url` and replaces the stored login; waits `seconds` for a person. Raises `LoginFailed`."""
    if is_cleartext(url):
        raise LoginFailed("a token must not go over http://, where others on the network can read it; use https://")
    key = grant_key(url, client)
    if client.is_machine:
        grant = await log_in_alone(url, client)
    else:
        try:
            prior = store.load(key)
        except LoginFailed:  # it is to be replaced anyway
            prior = None
        grant = await _in_browser(url, client, prior, show, seconds)
    async with store.locked(key, _LOCK):
        store.save(key, grant)
    return grant


async def log_in_alone(url: str, client: ClientRegistration) -> Grant:
    """A login without a person, not stored. Raises `LoginFailed`."""
    flows = await sdk_flows()
    try:
        with anyio.fail_after(_ALONE):
            grant: Grant = await flows.login_alone(url, client)
    except TimeoutError:
        raise LoginFailed(f"the login took longer than {_ALONE:g} s", is_final=False) from None
    return grant


async def _in_browser(url: str, client: ClientRegistration, prior: Grant | None, show: Show, seconds: float) -> Grant:
    flows, port = await sdk_flows(), client.redirect_port
    if port is None and prior is not None and prior.is_registered and prior.redirect_uris:
        port = urlsplit(prior.redirect_uris[0]).port
    async with listening(port, or_any=client.redirect_port is None) as redirect:
        grant: Grant = await flows.login_in_browser(url, client, prior, redirect, show, seconds)
    return grant


async def sdk_flows() -> Any:
    """The module of flows, which imports the SDK at its first use."""
    return await anyio.to_thread.run_sync(import_module, _FLOWS)


async def log_out(url: str, client: ClientRegistration, store: GrantStore) -> bool:
    """Removes the stored login; whether there was one. Raises `LoginFailed`."""
    key = grant_key(url, client)
    async with store.locked(key, _LOCK):
        return store.remove(key)

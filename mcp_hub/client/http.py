"""The transport over the network (httpx2), and its client."""

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from ipaddress import ip_address
from typing import Final, Self
from urllib.parse import urlsplit, urlunsplit

import anyio
import httpx2

from mcp_hub import __version__
from mcp_hub.client.hub_client import HubClient
from mcp_hub.client.rest import Answer, ConnectionLost
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.extras import with_extra

_CONNECT: Final = 5.0
_TIMEOUT: Final = httpx2.Timeout(60.0, connect=_CONNECT, write=30.0)
"""Seconds of silence after which a connection is lost; an idle hub sends a comment every 15 s."""
_CLOSING: Final = 2.0
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SHOWN: Final = 500
"""Characters of a URL that go into a message."""


def connect(
    url: str, token: str | None = None, *, patience: float = 30.0, socket: str | None = None, program: str = "1"
) -> HubClient:
    """A client of the hub at `url`, or at its Unix `socket`; sends nothing yet. Raises `ConfigError`."""
    target = endpoint(url)
    return HubClient(target, HttpTransport(target, token, socket), patience=patience, program=program)


def endpoint(url: str) -> str:
    """The MCP endpoint of `url`; without a path, `/mcp`. Raises `ConfigError`."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isprintable() or " " in url:
        message = f"{url[:_SHOWN]!r} is not the URL of a hub. Write it as http://127.0.0.1:8765."
        raise ConfigError(ConfigFinding("invalid_hub_url", message))
    if "@" in parts.netloc:  # not shown: it may be a secret
        message = "The URL of a hub cannot hold a user or a password. Give a token with --token or MCP_HUB_TOKEN."
        raise ConfigError(ConfigFinding("invalid_hub_url", message))
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/mcp", parts.query, ""))


class HttpTransport:
    """HTTP to the host of `url`, with a bearer token if given. Raises `ConfigError`."""

    def __init__(self, url: str, token: str | None, socket: str | None = None) -> None:
        # a compressed stream could be flushed late, and could grow without bound
        headers = {"user-agent": f"mcp-hub/{__version__}", "accept-encoding": "identity"}
        if token is not None:
            if not _TOKEN.fullmatch(token):
                message = "The token holds characters that an HTTP header cannot carry."
                raise ConfigError(ConfigFinding("invalid_value", message))
            headers["authorization"] = f"Bearer {token}"
        try:
            target = httpx2.URL(url)
        except httpx2.InvalidURL as exc:
            raise ConfigError(ConfigFinding("invalid_hub_url", f"{url} is not the URL of a hub: {exc}")) from None
        is_local = _is_this_machine(target.host)
        # a proxy of the environment cannot reach a hub on this machine; reading the certificates takes 20 ms
        has_tls = target.scheme == "https" or not is_local
        transport = None if socket is None else httpx2.AsyncHTTPTransport(uds=socket, verify=False)
        try:
            self._http = httpx2.AsyncClient(
                headers=headers, timeout=_TIMEOUT, trust_env=not is_local, verify=has_tls, transport=transport
            )
        except ImportError:
            message = f"The environment names a SOCKS proxy. Install what it needs: {with_extra('socks')}"
            raise ConfigError(ConfigFinding("not_installed", message)) from None
        except (ValueError, httpx2.InvalidURL):
            message = "The environment names a proxy that cannot be used. Correct HTTP_PROXY, HTTPS_PROXY, ALL_PROXY."
            raise ConfigError(ConfigFinding("invalid_value", message)) from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        with anyio.move_on_after(_CLOSING, shield=True):
            await self._http.aclose()

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        request = self._http.build_request(method, url, content=body, headers=dict(headers))
        try:
            return _HttpAnswer(await self._http.send(request, stream=True))
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise ConnectionLost(str(exc) or f"no connection within {_CONNECT:g} s", was_made=False) from None
        except httpx2.RequestError as exc:
            raise ConnectionLost(str(exc) or type(exc).__name__) from None


class _HttpAnswer:
    def __init__(self, response: httpx2.Response) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._response = response

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(self._response.aiter_bytes()) as portions:
                async for portion in portions:
                    yield portion
        except httpx2.RequestError as exc:
            raise ConnectionLost(str(exc) or type(exc).__name__) from None

    async def aclose(self) -> None:
        with anyio.move_on_after(_CLOSING, shield=True):
            await self._response.aclose()


def _is_this_machine(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

"""The transport over the network (httpx2), and its client."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final, Self

import anyio
import httpx2

from mcp_hub.client.hub_client import HubClient
from mcp_hub.client.rest import CONNECT, Answer, ConnectionLost, client_headers, endpoint, is_this_machine
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.extras import with_extra

_TIMEOUT: Final = httpx2.Timeout(60.0, connect=CONNECT, write=30.0)
"""Seconds of silence after which a connection is lost; an idle hub sends a comment every 15 s."""
_CLOSING: Final = 2.0


def connect(
    url: str, token: str | None = None, *, patience: float = 30.0, socket: str | None = None, program: str = "1"
) -> HubClient:
    """A client of the hub at `url`, or at its Unix `socket`; sends nothing yet. Raises `ConfigError`."""
    target = endpoint(url)
    return HubClient(target, HttpTransport(target, token, socket), patience=patience, program=program)


class HttpTransport:
    """HTTP to the host of `url`, with a bearer token if given. Raises `ConfigError`."""

    def __init__(self, url: str, token: str | None, socket: str | None = None) -> None:
        try:
            target = httpx2.URL(url)
        except httpx2.InvalidURL as exc:
            raise ConfigError(ConfigFinding("invalid_hub_url", f"{url} is not the URL of a hub: {exc}")) from None
        is_local = is_this_machine(target.host)
        # a proxy of the environment cannot reach a hub on this machine; reading the certificates takes 20 ms
        has_tls = target.scheme == "https" or not is_local
        transport = None if socket is None else httpx2.AsyncHTTPTransport(uds=socket, verify=False)
        try:
            self._http = httpx2.AsyncClient(
                headers=client_headers(token),
                timeout=_TIMEOUT,
                trust_env=not is_local,
                verify=has_tls,
                transport=transport,
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
            raise ConnectionLost(str(exc) or f"no connection within {CONNECT:g} s", was_made=False) from None
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

"""Connections to checked addresses only."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

import anyio
import httpx2

from mcp_hub.addresses import address_of
from mcp_hub.wire.http_client import tls

_NEXT: Final = 2.0
"""Seconds for one of several addresses: a network without IPv6 may drop what goes there."""


class Pinned(httpx2.AsyncBaseTransport):
    """Resolves each request's host once and tries the addresses that `checked` returns.

    Host header and certificate check use the name. `checked` may raise.
    """

    def __init__(self, checked: Callable[[str], Awaitable[list[str]]], verify: ssl.SSLContext | None = None) -> None:
        self._checked = checked
        self._transport = httpx2.AsyncHTTPTransport(verify=verify or tls())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises `httpx2.ConnectError` also for an unknown host."""
        try:
            *earlier, last = await self._checked(request.url.host)
        except OSError as exc:
            raise httpx2.ConnectError(str(exc), request=request) from exc
        for address in earlier:
            with_less = {**request.extensions.get("timeout", {}), "connect": _NEXT}
            try:
                return await self._transport.handle_async_request(_pinned(request, address, timeout=with_less))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._transport.handle_async_request(_pinned(request, last))

    async def aclose(self) -> None:
        await self._transport.aclose()


def _pinned(request: httpx2.Request, address: str, **extensions: object) -> httpx2.Request:
    name = {} if address_of(request.url.host) is not None else {"sni_hostname": request.url.host}
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, **name, **extensions},
    )


async def resolved(host: str) -> list[IPv4Address | IPv6Address]:
    """Addresses of a host in the system's order. Raises `OSError` for none."""
    infos = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ip_address(address[0]) for *_, address in infos]

"""The common part of all HTTP clients of the hub: certificates, the proxies of the environment, its name."""

import functools
import socket
import ssl
import urllib.request
from typing import Final
from urllib.parse import urlsplit

import httpx2

from mcp_hub import __version__
from mcp_hub.config.schema.remote import is_this_machine

USER_AGENT: Final = f"mcp-hub/{__version__}"
_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_KEEP_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _PROBES.items() if hasattr(socket, name)),
]
"""A server that vanished without a word is found out after a minute, however long its streams are silent."""


_MOVED: Final = (307, 308)
"""Redirects that keep method and body (RFC 9110 §15.4.8, §15.4.9)."""
_MOST_MOVES: Final = 3


class Transport(httpx2.AsyncHTTPTransport):
    """Connections to one server. Raises `ConnectError` also where a connection broke before anything was sent on it.

    Redirects that keep the method are followed within the origin, and no others: credentials stay there. `moved_to` is
    where the last one led.
    """

    def __init__(self, url: str, limits: httpx2.Limits) -> None:
        super().__init__(verify=tls(), limits=limits, proxy=proxy(url), socket_options=_KEEP_ALIVE)
        self.moved_to: httpx2.URL | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        for _ in range(_MOST_MOVES):
            response = await self._handled(request)
            moved = _moved(request, response)
            if moved is None:
                return response
            await response.aclose()
            self.moved_to, request = moved.url, moved
        return await self._handled(request)

    async def _handled(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except AttributeError as exc:  # httpcore2 sets options of the socket also when it is closed, and None
            if exc.name == "setsockopt":
                raise httpx2.ConnectError("the server closed the connection at once", request=request) from exc
            raise


class RemoteClient(httpx2.AsyncClient):
    """An HTTP client for one server, which waits for an answer as long as it takes."""

    def __init__(
        self, url: str, limits: httpx2.Limits, headers: httpx2.Headers, connect: float, cookies: httpx2.Cookies | None
    ) -> None:
        self._connections = Transport(url, limits)
        timeout = httpx2.Timeout(None, connect=connect)
        super().__init__(transport=self._connections, headers=headers, timeout=timeout, cookies=cookies)

    @property
    def moved_to(self) -> str | None:
        """Where the server has redirected a request within its origin, without the query; None if it has not."""
        url = self._connections.moved_to
        return None if url is None else str(url.copy_with(query=None, fragment=None))


def _moved(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request | None:
    """The request as a redirect within the origin wants it; None for any other response."""
    if response.status_code not in _MOVED:
        return None
    try:
        target = request.url.join(response.headers.get("location", ""))
    except httpx2.InvalidURL:
        return None
    if (target.scheme, target.host, target.port, target.userinfo) != (*_origin(request.url), b""):
        return None
    stream, extensions = request.stream, request.extensions
    return httpx2.Request(request.method, target, headers=request.headers, stream=stream, extensions=extensions)


def _origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port


@functools.cache
def tls() -> ssl.SSLContext:
    """One for all connections: making it takes 20 ms."""
    return httpx2.create_ssl_context()


def proxy(url: str) -> str | None:
    """The proxy that the environment names for this URL; none reaches a server on this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    found = proxies.get(parts.scheme) or proxies.get("all")
    return found if found is None or "://" in found else f"http://{found}"

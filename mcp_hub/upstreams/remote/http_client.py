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


class Transport(httpx2.AsyncHTTPTransport):
    """Connections to one server. Raises `ConnectError` also where a connection broke before anything was sent on it."""

    def __init__(self, url: str, limits: httpx2.Limits) -> None:
        super().__init__(verify=tls(), limits=limits, proxy=proxy(url), socket_options=_KEEP_ALIVE)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except AttributeError as exc:  # httpcore2 sets options of the socket also when it is closed, and None
            if exc.name == "setsockopt":
                raise httpx2.ConnectError("the server closed the connection at once", request=request) from exc
            raise


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

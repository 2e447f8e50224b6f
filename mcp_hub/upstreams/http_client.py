"""What all HTTP clients of the hub share: its certificates, the proxies of the environment, its name."""

import functools
import ssl
import urllib.request
from typing import Final
from urllib.parse import urlsplit

import httpx2

from mcp_hub import __version__
from mcp_hub.config.remote import is_this_machine

__all__ = ["USER_AGENT", "proxy", "tls"]

USER_AGENT: Final = f"mcp-hub/{__version__}"


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

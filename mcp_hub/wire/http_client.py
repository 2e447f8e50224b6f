"""HTTP clients of the hub: certificates, proxies, redirects."""

import functools
import os
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import httpx2

from mcp_hub import __version__
from mcp_hub.addresses import Address, address_of, is_this_machine
from mcp_hub.errors import StartFailed
from mcp_hub.extras import with_extra
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.wire.responses import WRONG_NAME

log = get_logger(__name__)

USER_AGENT: Final = f"mcp-hub/{__version__}"
EXTRA_CERTIFICATES: Final = "NODE_EXTRA_CA_CERTS"
"""The variable of Node.js for more trusted certificates."""
_PROXY_SCHEMES: Final = ("http", "https", "socks5", "socks5h")
_UNCHANGED: Final = 5.0
"""Seconds until headers that had not changed are read again."""
_NAME: Final = 5.0
"""Seconds to look at the name in a certificate."""
_PROBES: Final = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_KEEP_ALIVE: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in _PROBES.items() if hasattr(socket, name)),
]
"""Finds a server that vanished within a minute, however long its streams are silent."""


_MOVED: Final = (307, 308)
"""Redirects that keep method and body (RFC 9110 §15.4.8, §15.4.9)."""
_MOST_MOVES: Final = 3


class _Connections(httpx2.AsyncHTTPTransport):
    """Connections to one server; follows redirects that keep the method, within the origin.

    Raises `ConnectError` also for a connection that broke before anything was sent.
    """

    def __init__(self, url: str, limits: httpx2.Limits, verify: ssl.SSLContext) -> None:
        super().__init__(verify=verify, limits=limits, proxy=proxy(url), socket_options=_KEEP_ALIVE)
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
    """An HTTP client for one server, without a read timeout."""

    def __init__(
        self,
        url: str,
        *,
        limits: httpx2.Limits,
        verify: ssl.SSLContext,
        headers: httpx2.Headers,
        connect: float,
        cookies: httpx2.Cookies | None,
    ) -> None:
        self._connections = _Connections(url, limits, verify)
        timeout = httpx2.Timeout(None, connect=connect)
        super().__init__(transport=self._connections, headers=headers, timeout=timeout, cookies=cookies)

    @property
    def moved_to(self) -> str | None:
        """The last redirect's target without query, or None."""
        url = self._connections.moved_to
        return None if url is None else str(url.copy_with(query=None, fragment=None))


def renewed(
    http: RemoteClient, headers: dict[str, str], renew: Callable[[], Awaitable[Mapping[str, str] | None]]
) -> "_RenewedClient":
    """An HTTP client that renews its headers after a 401, and repeats the request if they changed.

    `renew` returns the present headers, or None.
    """
    return _RenewedClient(http, headers, renew)


class _RenewedClient:
    def __init__(
        self, http: RemoteClient, headers: dict[str, str], renew: Callable[[], Awaitable[Mapping[str, str] | None]]
    ) -> None:
        self._http = http
        self._headers = headers
        self._renew = renew
        self._reading = anyio.Lock()
        self._not_before = 0.0

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | Mapping[bytes, bytes] | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        sent = dict(self._headers)
        async with self._http.stream(method, url, content=content, headers=httpx2.Headers(headers)) as response:
            is_final = response.status_code != 401 or method == "DELETE" or not await self._has_others(sent)
            if is_final:
                yield response
                return
        async with self._http.stream(method, url, content=content, headers=httpx2.Headers(headers)) as response:
            yield response

    async def _has_others(self, sent: Mapping[str, str]) -> bool:
        async with self._reading:
            if self._headers == sent and anyio.current_time() >= self._not_before:
                self._not_before = anyio.current_time() + _UNCHANGED
                renewed = await self._renew()
                if renewed is not None and renewed != sent:
                    for name in sent:
                        self._http.headers.pop(name, None)
                    self._http.headers.update(renewed)
                    self._headers.clear()
                    self._headers.update(renewed)
                    self._not_before = 0.0
            return self._headers != sent


def _moved(request: httpx2.Request, response: httpx2.Response) -> httpx2.Request | None:
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


def tls(ca: str | None = None) -> ssl.SSLContext:
    """Trusts the usual certificates, $NODE_EXTRA_CA_CERTS and `ca`. Raises `StartFailed` for `ca` only."""
    extra = os.environ.get(EXTRA_CERTIFICATES) or None
    return _context(extra, _stamp(extra), ca, _stamp(ca))


@functools.lru_cache(maxsize=16)
def _context(extra: str | None, _changed: object, ca: str | None, _ca_changed: object) -> ssl.SSLContext:
    """Cached until a file changes: it takes 20 ms."""
    context = httpx2.create_ssl_context()
    if extra is not None and (problem := _add(context, extra)) is not None:
        log.warning("extra_certificates_unusable", variable=EXTRA_CERTIFICATES, file=extra, reason=problem)
    if ca is not None and (problem := _add(context, ca)) is not None:
        raise StartFailed("ca_unreadable", f"the certificates of `tls.ca` cannot be used: {ca}: {problem}")
    return context


def _add(context: ssl.SSLContext, file: str) -> str | None:
    try:
        context.load_verify_locations(cafile=file)
    except ssl.SSLError:
        return "it holds no certificate in PEM form"
    except (OSError, ValueError) as exc:
        return (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
    return None


def _stamp(file: str | None) -> object:
    try:
        status = os.stat(file) if file is not None else None
    except (OSError, ValueError):
        return None
    return None if status is None else (status.st_mtime_ns, status.st_size, status.st_ino)


async def wrong_name(url: str) -> str | None:
    """The name's problem in a certificate of an unknown issuer. Makes two connections, sends nothing."""
    parts = urlsplit(url)
    if parts.hostname is None or proxy(url) is not None:
        return None
    with anyio.move_on_after(_NAME):
        return await anyio.to_thread.run_sync(_wrong_name, parts.hostname, parts.port or 443, abandon_on_cancel=True)
    return None


class _OnlyName(ssl.SSLContext):
    """Checks only the name in one certificate."""

    def trust(self, certificate: str) -> None:
        self.load_verify_locations(cadata=certificate)
        self.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _wrong_name(host: str, port: int) -> str | None:
    try:
        context = _OnlyName(ssl.PROTOCOL_TLS_CLIENT)
        context.trust(ssl.get_server_certificate((host, port), timeout=_NAME))
        with (
            socket.create_connection((host, port), timeout=_NAME) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return None
    except ssl.SSLCertVerificationError as exc:
        return exc.verify_message if exc.verify_code in WRONG_NAME else None
    except (OSError, ValueError):
        return None


def proxy(url: str) -> str | None:
    """The environment's proxy for this URL, not for this machine. `socks://` is SOCKS 5."""
    address = _of_environment(url)[1]
    if address is None or "://" not in address:
        return address and f"http://{address}"
    scheme, _, netloc = address.partition("://")
    return f"socks5://{netloc}" if scheme.lower() == "socks" else address


def bad_proxy(url: str, problem: Exception) -> str:
    """Why the proxy fails, and the fix, without its value."""
    variable, address = _of_environment(url)
    if isinstance(problem, ImportError):
        return f"{variable} names a SOCKS proxy, which needs one more package: {with_extra('socks')}"
    scheme, has_scheme, _ = (address or "").partition("://")
    if has_scheme and scheme.isalnum() and scheme.lower() not in _PROXY_SCHEMES:
        return f"{variable} names a proxy by {hide_head(scheme, 20)}://. Use one of {', '.join(_PROXY_SCHEMES)}."
    return f"{variable} names a proxy by an address that is not a URL. Correct it."


def _of_environment(url: str) -> tuple[str, str | None]:
    """The variable that names a proxy for this URL, and its value."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if is_this_machine(host) or urllib.request.proxy_bypass(host):
        return "", None
    proxies = urllib.request.getproxies()
    kind = parts.scheme if proxies.get(parts.scheme) else "all"
    name = f"{kind}_proxy"
    return next((key for key in (name, name.upper()) if os.environ.get(key)), name.upper()), proxies.get(kind) or None


def pinned(request: httpx2.Request, address: str, **extensions: object) -> httpx2.Request:
    """The request to this address; Host header and certificate check use the name."""
    name = {} if address_of(request.url.host) is not None else {"sni_hostname": request.url.host}
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, **name, **extensions},
    )


async def resolved(host: str) -> list[Address]:
    """Addresses in the system's order. Raises `OSError` for none."""
    infos = await anyio.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [ip_address(address[0]) for *_, address in infos]

"""Bounded requests of logins, to checked addresses. Every URL here comes from an untrusted server."""

import ssl
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit

import anyio
import httpx2

from mcp_hub.addresses import (
    Address,
    address_of,
    is_this_machine,
    origin_parts,
    refused_address,
    refused_place,
    special_kind,
)
from mcp_hub.errors import StartFailed
from mcp_hub.masking import hide_head
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.wire.bodies import chunks
from mcp_hub.wire.http_client import USER_AGENT, bad_proxy, pinned, proxy, resolved, tls
from mcp_hub.wire.responses import origin, reason_of

_NEXT: Final = 2.0
"""Seconds for one of several addresses: a network without IPv6 may drop what goes there."""


class _Pinned(httpx2.AsyncBaseTransport):
    """Resolves each request's host once and tries the addresses from `checked`, which may raise.

    Host header and certificate check use the name.
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
                return await self._transport.handle_async_request(pinned(request, address, timeout=with_less))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._transport.handle_async_request(pinned(request, last))

    async def aclose(self) -> None:
        await self._transport.aclose()


_SECONDS: Final = 10.0
"""For one request, its answer included."""
_OF_THE_WAY: Final = (b"transfer-encoding", b"content-encoding", b"content-length")
_LARGEST: Final = 1 << 20
"""Bytes of an answer: metadata has some thousands."""


class Addresses:
    """Sends requests of logins at `server`; reaches other local addresses only if that is local.

    `ca`: a file with additional certificates. Checks resolved addresses; behind a proxy, names. `is_public`: only
    public addresses.
    """

    def __init__(self, server: str, ca: str | None = None, *, is_public: bool = False) -> None:
        self._ca = ca
        self._is_public = is_public
        self._host = origin_parts(server)[1]
        self._is_near = is_this_machine(self._host)

    async def check_page(self, url: str) -> None:
        """Raises `LoginFailed` for a URL that a browser must not open."""
        role = "authorization endpoint"
        self._check_name(url, role)
        if proxy(url) is None:
            try:
                with anyio.fail_after(_SECONDS):
                    await self.allowed(urlsplit(url).hostname or "", role, url)
            except (OSError, TimeoutError):
                pass  # who goes there will see; a name may mean something to a browser alone

    async def send(self, request: httpx2.Request, role: str = "address") -> httpx2.Response:
        """The response, without following redirects or reading their bodies. Raises `LoginFailed`."""
        url = str(request.url)
        self._check_name(url, role)
        request.headers["user-agent"] = USER_AGENT
        request.headers["accept-encoding"] = "identity"
        try:
            with anyio.fail_after(_SECONDS):
                async with httpx2.AsyncClient(transport=self._transport(url, role), timeout=_SECONDS) as http:
                    return await _whole(http, request)
        except TimeoutError:
            raise LoginFailed(f"{origin(url)} did not answer within {_SECONDS:g} s", is_final=False) from None
        except httpx2.HTTPError as exc:
            raise LoginFailed(f"{origin(url)} could not be asked: {reason_of(exc)}", is_final=False) from None

    async def allowed(self, host: str, role: str, url: str) -> list[str]:
        """The permitted addresses of a host. Raises `LoginFailed` for none, `OSError` for an unknown host."""
        is_near = self._is_near or host == self._host  # whose certificate proves which service it is
        resolved_addresses = await resolved(host)
        problems = {str(address): self._problem(address, is_near=is_near) for address in resolved_addresses}
        checked = [address for address, problem in problems.items() if problem is None]
        if not checked:
            refused, problem = next(iter(problems.items()))
            reason = f"the {role} {origin(url)!r} is refused: it leads to {refused}, and {problem}"
            raise LoginFailed(reason, is_final=False)  # a name server may lead elsewhere tomorrow
        return checked

    def _problem(self, address: Address, *, is_near: bool) -> str | None:
        if self._is_public:
            kind = special_kind(address)
            return None if kind is None else f"it is {kind}"
        return refused_address(address, is_near=is_near)

    def _transport(self, url: str, role: str) -> httpx2.AsyncBaseTransport:
        via = proxy(url)
        try:
            verify = tls(self._ca)
        except StartFailed as exc:
            raise LoginFailed(str(exc), is_final=False) from None
        if via is not None:
            try:
                return httpx2.AsyncHTTPTransport(verify=verify, proxy=via)
            except (ImportError, ValueError, httpx2.InvalidURL) as exc:
                raise LoginFailed(bad_proxy(url, exc), is_final=False) from None
        return _Pinned(lambda host: self.allowed(host, role, url), verify)

    def _check_name(self, url: str, role: str) -> None:
        problem = refused_place(url, is_near=self._is_near)
        if problem is None and self._is_public and (address := address_of(urlsplit(url).hostname or "")) is not None:
            problem = self._problem(address, is_near=False)
        if problem is not None:
            scheme, host, _ = origin_parts(url)
            masked = (
                f"{hide_head(scheme, 20)}://{hide_head(host, 80)}" if host else f"{hide_head(scheme, 20) or 'no'}: URL"
            )
            raise LoginFailed(f"the {role} {masked!r} is refused: {problem}")


async def _whole(http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
    response = await http.send(request, stream=True, follow_redirects=False)
    try:
        content = b"" if response.is_redirect else await _content(response)
    finally:
        await response.aclose()
    # as bytes: values are of any, and as texts only ASCII could be put back
    headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _OF_THE_WAY]
    whole = httpx2.Response(response.status_code, headers=headers, content=content, request=request)
    whole.next_request = response.next_request
    return whole


async def _content(response: httpx2.Response) -> bytes:
    content = bytearray()
    async with chunks(response) as pieces:
        async for chunk in pieces:
            content += chunk
            if len(content) > _LARGEST:
                where = origin(str(response.request.url))
                raise LoginFailed(f"{where} answered with more than {_LARGEST} bytes", is_final=False)
    return bytes(content)

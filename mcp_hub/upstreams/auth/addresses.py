"""The only way out for what a login asks: bounded requests to places that a server may name, one after the other.

Every URL in here has been named by somebody who is not trusted: a server, or the authorization server that it named.
"""

from typing import Final

import anyio
import httpx2

from mcp_hub.config.schema.remote import is_this_machine, origin_parts, refused_place
from mcp_hub.upstreams.auth.grants import LoginFailed
from mcp_hub.upstreams.remote.http_client import USER_AGENT, proxy, tls
from mcp_hub.wire.bodies import chunks
from mcp_hub.wire.responses import origin, reason_of

_SECONDS: Final = 10.0
"""For one request, its answer included."""
_OF_THE_WAY: Final = (b"transfer-encoding", b"content-encoding", b"content-length")
_LARGEST: Final = 1 << 20
"""Bytes of an answer: metadata has some thousands."""


class Addresses:
    """Sends the requests of logins to `server`; others on this machine may be asked only if it is here itself."""

    def __init__(self, server: str) -> None:
        self._is_near = is_this_machine(origin_parts(server)[1])

    def check(self, url: str, what: str) -> None:
        """Raises `LoginFailed` for a URL that must not be followed, nor shown to a browser."""
        if (problem := refused_place(url, is_near=self._is_near)) is not None:
            scheme, host, _ = origin_parts(url)
            shown = f"{scheme[:20]}://{host[:80]}" if host else f"{scheme[:20] or 'no'}: URL"
            raise LoginFailed(f"the {what} {shown!r} is refused: {problem}")

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """The whole answer; of a redirect, which is not followed here, the head alone. Raises `LoginFailed`."""
        url = str(request.url)
        self.check(url, "address")
        request.headers["user-agent"] = USER_AGENT
        request.headers["accept-encoding"] = "identity"
        try:
            with anyio.fail_after(_SECONDS):
                transport = httpx2.AsyncHTTPTransport(verify=tls(), proxy=proxy(url))
                async with httpx2.AsyncClient(transport=transport, timeout=_SECONDS) as http:
                    return await _whole(http, request)
        except TimeoutError:
            raise LoginFailed(f"{origin(url)} did not answer within {_SECONDS:g} s", is_final=False) from None
        except httpx2.HTTPError as exc:
            raise LoginFailed(f"{origin(url)} could not be asked: {reason_of(exc)}", is_final=False) from None


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

"""One request to the REST front of a hub and its answer, whole or as it comes."""

from collections.abc import Mapping
from typing import Final

import anyio
import httpx2

from mcp_hub.client.messages import LIMIT
from mcp_hub.client.rest_messages import error_for, problem_of, rest_url
from mcp_hub.errors import ConfigError, HubError, UpstreamLost, UpstreamUnavailable
from mcp_hub.protocol.rest.problems import RestProblem

__all__ = ["RequestRefused", "RestClient", "said", "unreachable"]

_CONNECT: Final = 5.0
_TIMEOUT: Final = httpx2.Timeout(60.0, connect=_CONNECT, write=30.0)
"""A hub that has nothing to say sends a comment every 15 s: a minute of silence is a connection that is gone."""
_OVERLOADED: Final = (429, 502, 503, 504)
_CLOSING: Final = 2.0
_MOST_WAIT: Final = 30.0


class RequestRefused(Exception):
    """An answer that is none to the request. `error` is what it means; `is_passing`: it may be another one soon.

    `problem`: the hub itself has said so, not something on the way to it. `wait` in seconds is before the next try.
    """

    def __init__(self, error: HubError, *, is_passing: bool, problem: RestProblem | None, wait: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_passing = is_passing
        self.problem = problem
        self.wait = wait


class RestClient:
    """The REST front of the hub whose MCP endpoint is `endpoint`."""

    def __init__(self, http: httpx2.AsyncClient, endpoint: str) -> None:
        self.endpoint = endpoint
        self._http = http

    def url(self, *segments: str) -> str:
        return rest_url(self.endpoint, *segments)

    async def ask(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The body of a JSON answer. Raises `RequestRefused`, `httpx2.RequestError`."""
        response = await self.open(method, url, body=body, params=params, headers=headers)
        try:
            return await _body(url, response)
        finally:
            await close(response)

    async def told(self, method: str, url: str, *, body: bytes | None = None, **params: str) -> bytes:
        """The body of a JSON answer, asked for once. Raises the `HubError` that another one means."""
        try:
            return await self.ask(method, url, body=body, params=params)
        except RequestRefused as refused:
            raise refused.error from None
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as exc:
            raise unreachable(self.endpoint, exc) from None
        except httpx2.RequestError as exc:
            raise UpstreamLost(f"lost the connection to {self.endpoint}: {said(exc)}") from None

    async def open(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        media: str = "application/json",
    ) -> httpx2.Response:
        """An answer of this media type, to be read and closed. Raises `RequestRefused`, `httpx2.RequestError`."""
        sent = {"accept": media, **(headers or {}), **({} if body is None else {"content-type": "application/json"})}
        address = httpx2.URL(url).copy_merge_params(params or {})
        made = self._http.build_request(method, address, content=body, headers=sent, timeout=_TIMEOUT)
        response = await self._http.send(made, stream=True)
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if 200 <= response.status_code < 300 and kind == media:
            return response
        try:
            text = await _body(url, response)
        finally:
            await close(response)
        raise _refused(url, response, kind, text)


async def close(response: httpx2.Response) -> None:
    """Lets go of an answer, read to its end or not, within a bound."""
    with anyio.move_on_after(_CLOSING, shield=True):
        await response.aclose()


async def _body(url: str, response: httpx2.Response) -> bytes:
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > LIMIT:
            raise UpstreamLost(f"{url} sent an answer of more than {LIMIT} bytes")
    return bytes(body)


def _refused(url: str, response: httpx2.Response, kind: str, body: bytes) -> RequestRefused:
    status = response.status_code
    error = error_for(url, status, kind, body)
    after = response.headers.get("retry-after", "")
    return RequestRefused(
        error,
        is_passing=status in _OVERLOADED and not isinstance(error, ConfigError),
        problem=problem_of(body) if kind == "application/problem+json" else None,
        wait=min(float(after), _MOST_WAIT) if after.isascii() and after.isdigit() and len(after) < 9 else 0.0,
    )


def said(exc: Exception) -> str:
    """What an error of the connection says, in words."""
    return str(exc) or type(exc).__name__


def unreachable(endpoint: str, exc: Exception) -> UpstreamUnavailable:
    """Nothing listens there."""
    reason = str(exc) or f"no connection within {_CONNECT:g} s"
    return UpstreamUnavailable(f"no hub answers at {endpoint} ({reason}); start one with: mcp-hub serve --http")

"""Requests to the REST front of a hub."""

from collections.abc import Mapping
from typing import Final, TypeVar

import msgspec

from mcp_hub.client.rest_messages import error_for, problem_of, rest_url
from mcp_hub.client.transport import Answer, ConnectionLost, HubTransport, NotConnected
from mcp_hub.errors import ConfigError, HubError, UpstreamLost, UpstreamUnavailable
from mcp_hub.protocol.rest.problems import RestProblem

LIMIT: Final = 128 << 20
"""The most bytes of a message: four times a hub's default limit for servers."""
_OVERLOADED: Final = (429, 502, 503, 504)
_MOST_WAIT: Final = 30.0

_T = TypeVar("_T")


class RequestRefused(Exception):
    """The hub refused a request, with this `error`; `is_passing`: a retry may succeed.

    `problem` is set if the hub itself refused. `wait`: seconds before a retry.
    """

    def __init__(self, error: HubError, *, is_passing: bool, problem: RestProblem | None, wait: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_passing = is_passing
        self.problem = problem
        self.wait = wait


class RestClient:
    """The REST front beside the MCP endpoint `endpoint`, asked by `program` (`X-MCP-Hub`)."""

    def __init__(self, transport: HubTransport, endpoint: str, program: str = "1") -> None:
        self.endpoint = endpoint
        self._transport = transport
        self._program = program

    def url(self, *segments: str, **params: str) -> str:
        return rest_url(self.endpoint, *segments, **params)

    async def get(self, shape: type[_T], *segments: str, **params: str) -> _T:
        """Raises the `HubError` of a refusal, `UpstreamLost` for an unreadable response."""
        return await self.send(shape, "GET", self.url(*segments, **params))

    async def send(
        self,
        shape: type[_T],
        method: str,
        url: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _T:
        """Raises like `get`."""
        try:
            text = await self.ask(method, url, body=body, headers=headers)
        except RequestRefused as refused:
            raise refused.error from None
        except NotConnected as exc:
            raise unreachable(self.endpoint, exc) from None
        except ConnectionLost as exc:
            raise UpstreamLost(f"lost the connection to {self.endpoint}: {exc}") from None
        return decoded(url, text, shape)

    async def ask(
        self, method: str, url: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> bytes:
        """The body of a response. Raises `RequestRefused`, `ConnectionLost`."""
        answer = await self.open(method, url, body=body, headers=headers)
        try:
            return await _body(url, answer)
        finally:
            await answer.aclose()

    async def open(
        self,
        method: str,
        url: str,
        *,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        media: str = "application/json",
    ) -> Answer:
        """A response of type `media`. Raises `RequestRefused`, `ConnectionLost`."""
        sent = {"accept": media, "x-mcp-hub": self._program, **(headers or {})}  # which no web page could send
        if body is not None:
            sent["content-type"] = "application/json"
        answer = await self._transport.send(method, url, sent, body)
        kind = answer.headers.get("content-type", "").partition(";")[0].strip().lower()
        if 200 <= answer.status < 300 and kind == media:
            return answer
        try:
            text = await _body(url, answer)
        finally:
            await answer.aclose()
        raise _refused(url, answer, kind, text)


def decoded(url: str, text: bytes, shape: type[_T]) -> _T:
    """Raises `UpstreamLost`."""
    try:
        return msgspec.json.decode(text, type=shape)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise UpstreamLost(f"{url} sent an answer that cannot be read: {exc}") from None


async def _body(url: str, answer: Answer) -> bytes:
    body = bytearray()
    async for chunk in answer.chunks():
        body += chunk
        if len(body) > LIMIT:
            raise UpstreamLost(f"{url} sent an answer of more than {LIMIT} bytes")
    return bytes(body)


def _refused(url: str, answer: Answer, kind: str, body: bytes) -> RequestRefused:
    error = error_for(url, answer.status, kind, body)
    after = answer.headers.get("retry-after", "")
    return RequestRefused(
        error,
        is_passing=answer.status in _OVERLOADED and not isinstance(error, ConfigError),
        problem=problem_of(body) if kind == "application/problem+json" else None,
        wait=min(float(after), _MOST_WAIT) if after.isascii() and after.isdigit() and len(after) < 9 else 0.0,
    )


def unreachable(endpoint: str, exc: NotConnected) -> UpstreamUnavailable:
    return UpstreamUnavailable(f"No hub answers at {endpoint} ({exc}). Start one with: mcp-hub serve --http")

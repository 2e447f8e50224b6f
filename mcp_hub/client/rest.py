"""Requests to a hub's REST front, over any transport: URLs, answers, errors (RFC 9457). No I/O of its own."""

import re
from collections.abc import AsyncGenerator, Mapping
from ipaddress import ip_address
from typing import Final, Protocol, Self, TypeVar
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec
from msgspec import UNSET

from mcp_hub import __version__
from mcp_hub.errors import (
    Busy,
    ConfigError,
    ConfigFinding,
    EventsGone,
    HubError,
    InvalidParams,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape.stream_events import error_of
from mcp_hub.types import JsonObject


class ConnectionLost(Exception):
    """The connection broke before the response was complete; `was_made` False: nothing accepts connections."""

    def __init__(self, reason: str, *, was_made: bool = True) -> None:
        super().__init__(reason)
        self.was_made = was_made


class Answer(Protocol):
    """One response; header names are in lower case. Its owner calls `aclose`."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, iterated once. Raises `ConnectionLost`."""

    async def aclose(self) -> None:
        """Releases the response within a bound. Idempotent."""


class HubTransport(Protocol):
    """An `async with` block for concurrent requests."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(self, *error: object) -> None: ...

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Answer:
        """Returns at the response head. Raises `ConnectionLost`."""


LIMIT: Final = 128 << 20
"""The most bytes of a message: four times a hub's default limit for servers."""
_OVERLOADED: Final = (429, 502, 503, 504)

_T = TypeVar("_T")


class _Problem(msgspec.Struct, rename={"group": "class"}):
    """Members of a problem (RFC 9457) that clients read."""

    code: str
    status: int = 500
    detail: str = ""
    group: str = ""
    earliest: int = 1
    upstream: JsonObject = {}
    stream: str | None = None
    jsonrpc: msgspec.Raw | msgspec.UnsetType = UNSET


class RequestRefused(Exception):
    """The hub refused a request, with this `error`; `is_passing`: a retry may succeed.

    `problem` is set if the hub itself refused. `wait`: seconds before a retry.
    """

    def __init__(self, error: HubError, *, is_passing: bool, problem: _Problem | None, wait: float) -> None:
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
        except ConnectionLost as exc:
            if not exc.was_made:
                raise unreachable(self.endpoint, exc) from None
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
        wait=float(after) if after.isascii() and after.isdigit() and len(after) < 9 else 0.0,
    )


def unreachable(endpoint: str, exc: ConnectionLost) -> UpstreamUnavailable:
    return UpstreamUnavailable(f"No hub answers at {endpoint} ({exc}). Start one with: mcp-hub serve --http")


_REASON: Final = 500
"""Characters of a foreign text that go into a message."""
_REFUSED: Final = (401, 403, 421)
TOO_MANY: Final = 429
_CODE: Final = re.compile("[a-z][a-z_]{0,63}")


def rest_url(endpoint: str, *segments: str, **params: str) -> str:
    """A URL under `/v1`, beside the MCP endpoint; escapes segments."""
    parts = urlsplit(endpoint)
    folder = parts.path.rpartition("/")[0]
    path = "/".join([folder, "v1", *(quote(segment, safe="") for segment in segments)])
    query = urlencode([*parse_qsl(parts.query, keep_blank_values=True), *params.items()])
    return urlunsplit((parts.scheme, parts.netloc, path, query, ""))


def problem_of(body: bytes) -> _Problem | None:
    try:
        return msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, RecursionError):
        return None


def error_for(url: str, status: int, content_type: str, body: bytes) -> HubError:
    """The meaning of a refusal: a `ConfigError`, or the hub's `RpcError`."""
    problem = problem_of(body)
    if problem is not None and problem.code == "code_off":
        return ConfigError(ConfigFinding(problem.code, problem.detail[:_REASON]))
    if status in _REFUSED:
        return _refusal(url, status, _rpc_message(body) if problem is None else problem.detail[:_REASON])
    if problem is None:
        if status >= 500 or status == TOO_MANY:
            return UpstreamUnavailable(f"{url} answered with HTTP {status}.")
        got = content_type or "nothing" if status < 300 else f"HTTP {status}"
        return ConfigError(ConfigFinding("not_a_hub", f"{url} does not belong to a hub: it answered with {got}."))
    if problem.jsonrpc is not UNSET:
        try:
            return error_of(problem.code, problem.group, problem.jsonrpc)
        except (msgspec.DecodeError, RecursionError):
            pass
    return _error_named(problem, status)


def _refusal(url: str, status: int, reason: str) -> ConfigError:
    detail = f": {reason}" if reason else ""
    if status == 401:
        why = f"{url} refused the request{detail}. Give the token with --token or MCP_HUB_TOKEN."
        return ConfigError(ConfigFinding("unauthorized", why))
    return ConfigError(ConfigFinding("refused_by_hub", f"{url} refused the request with HTTP {status}{detail}"))


def _error_named(problem: _Problem, status: int) -> HubError:
    match problem.code:
        case "unknown_stream":
            return UnknownStream()
        case "events_gone":
            return EventsGone(problem.earliest)
        case "unknown_tool" | "unknown_entry":
            return UnknownEntry(problem.detail, data={"upstream": problem.upstream} if problem.upstream else None)
        case "busy":
            return Busy(problem.detail)
    message = problem.detail or problem.code
    if status >= 500:
        return UpstreamUnavailable(message)
    return InvalidParams(message, symbol=problem.code if _CODE.fullmatch(problem.code) else None)


def _rpc_message(body: bytes) -> str:
    message = envelope.decode(body)
    if not isinstance(message, Envelope) or message.kind != "error":
        return ""
    return from_wire(message.error).message[:_REASON]


_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_SHOWN: Final = 500
"""Characters of a URL that go into a message."""
CONNECT: Final = 5.0
"""Seconds for a connection."""


def endpoint(url: str) -> str:
    """The path is `/mcp` by default. Raises `ConfigError`."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable or not url.isprintable() or " " in url:
        message = f"{url[:_SHOWN]!r} is not the URL of a hub. Write it as http://127.0.0.1:8765."
        raise ConfigError(ConfigFinding("invalid_hub_url", message))
    if "@" in parts.netloc:  # not shown: it may be a secret
        message = "The URL of a hub cannot hold a user or a password. Give a token with --token or MCP_HUB_TOKEN."
        raise ConfigError(ConfigFinding("invalid_hub_url", message))
    return urlunsplit((parts.scheme, parts.netloc, parts.path.rstrip("/") or "/mcp", parts.query, ""))


def client_headers(token: str | None) -> dict[str, str]:
    """Headers of each request. Raises `ConfigError`."""
    # a compressed stream could be flushed late, and could grow without bound
    headers = {"user-agent": f"mcp-hub/{__version__}", "accept-encoding": "identity"}
    if token is not None:
        if not _TOKEN.fullmatch(token):
            message = "The token holds characters that an HTTP header cannot carry."
            raise ConfigError(ConfigFinding("invalid_value", message))
        headers["authorization"] = f"Bearer {token}"
    return headers


def is_this_machine(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

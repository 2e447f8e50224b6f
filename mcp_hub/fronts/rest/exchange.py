"""One REST request and its response."""

import math
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Final, TypeVar, cast
from urllib.parse import unquote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mcp_hub.fronts.http.admission import COMPRESSED, discard, is_compressed, media_ranges, read_body, takes
from mcp_hub.fronts.http.response import SSE_HEADERS, Fields, HttpResponse, Receive, Scope, Send, until_disconnect
from mcp_hub.fronts.limits import DEPTH
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import one_line, without_lone_surrogates
from mcp_hub.protocol.jsonrpc.unparsed import is_deeper
from mcp_hub.protocol.rest.calls import CodeBody
from mcp_hub.sessions.session import Caller

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"
PYTHON: Final = "text/x-python"

MOST_WAIT: Final = 300.0
"""Seconds that a request may ask to wait; more is taken for this."""
_SECONDS: Final = re.compile(r"[0-9]{1,18}(\.[0-9]{1,9})?")
_COUNT: Final = re.compile(r"[0-9]{1,18}")

_FLAGS: Final = {"1": True, "true": True, "0": False, "false": False}

_MARKS: Final = ("x-mcp-hub", "producer-epoch")
"""Headers that show that a request comes from a program, whatever they hold."""
_OF_CURL: Final = "application/x-www-form-urlencoded"
"""The type that `curl -d` gives to any text."""

T = TypeVar("T")


class RestRequest(Request):
    """An authenticated request with a route."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int) -> None:
        super().__init__(scope, receive, send)
        self._out = send
        self.max_body = max_body

    @property
    def caller(self) -> Caller:
        return cast(Caller, self.scope["caller"])

    @property
    def path(self) -> Mapping[str, str]:
        """Decoded parameters of the path."""
        return {name: unquote(value) for name, value in self.path_params.items()}

    def header(self, name: str) -> str | None:
        """A header without white space; None if missing."""
        value = self.headers.get(name)
        return None if value is None else value.strip(" \t")

    def accepts(self, *offered: str) -> list[str]:
        """The `offered` media types that the client names; by a wildcard or without Accept, the first. Raises `Problem`
        406.
        """
        lines = self.headers.getlist("accept")
        ranges = media_ranges(",".join(lines) if lines else "*/*")
        named = [media for media in offered if ranges.get(media)]
        if named:
            return named
        if (taken := next((media for media in offered if takes(ranges, media)), None)) is not None:
            return [taken]
        raise Problem(406, "not_acceptable", f"Accept must name one of {', '.join(offered)}")

    def seconds(self, name: str, default: float) -> float:
        """A query parameter, at most `MOST_WAIT`. Raises `Problem` 400."""
        text = self.query_params.get(name)
        if text is None:
            return default
        if not _SECONDS.fullmatch(text):
            raise Problem(
                400, "invalid_parameter", f"{name} has to be a number of seconds, not {hide_head(text, 50)!r}"
            )
        return min(float(text), MOST_WAIT)

    def count(self, name: str, default: int, limit: int) -> int:
        """A query parameter from 1, cut to `limit`. Raises `Problem` 400."""
        text = self.query_params.get(name)
        if text is None:
            return default
        if not _COUNT.fullmatch(text) or int(text) < 1:
            raise Problem(
                400, "invalid_parameter", f"{name} has to be a whole number from 1 on, not {hide_head(text, 50)!r}"
            )
        return min(int(text), limit)

    @property
    def media(self) -> str:
        """The body's media type, without parameters."""
        return (self.header("content-type") or "").partition(";")[0].strip().lower()

    @property
    def _is_marked(self) -> bool:
        """Whether a web page would have needed a preflight."""
        scheme = (self.header("authorization") or "").partition(" ")[0]  # a browser sends Basic by itself
        return scheme.lower() == "bearer" or any(name in self.headers for name in _MARKS)

    def check_header(self) -> None:
        """Raises `Problem` 415 for a request that any web page could send."""
        if self.media not in (JSON, PYTHON) and not self._is_marked:
            raise _unsupported()

    async def shaped(self, shape: type[T], limit: float = math.inf) -> T:
        """The JSON body; none is an empty object. Raises `Problem` 415, 413, 400, `ClientGone`."""
        text, media = one_line(await self.content(limit)), self.media
        if media != JSON and (text or media) and not (self._is_marked and media in ("", _OF_CURL)):
            raise _unsupported()
        try:
            msgspec.json.decode(text or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            is_half = without_lone_surrogates(text) != text
            why = "it holds half of a character (a lone surrogate)" if is_half else problem
            raise Problem(400, "invalid_json", f"the body is not JSON: {why}") from None
        except RecursionError:
            raise Problem(400, "invalid_json", "the body is nested too deep") from None
        if is_deeper(text, DEPTH):
            raise Problem(400, "invalid_json", f"nested in over {DEPTH} levels")
        try:
            return msgspec.json.decode(text or b"{}", type=shape)
        except msgspec.ValidationError as problem:
            raise Problem(400, "invalid_body", f"the body does not fit: {problem}") from None

    async def content(self, limit: float = math.inf) -> bytes:
        """The body of any type. Raises `Problem` 415 and 413, `ClientGone`."""
        if is_compressed(self.header("content-encoding") or ""):
            raise Problem(415, "unsupported_media_type", COMPRESSED)
        largest = int(min(limit, self.max_body))
        body = await read_body(self.receive, largest)
        if body is None:
            await discard(self.receive)
            close = ((b"connection", b"close"),)
            raise Problem(413, "body_too_large", f"body over the limit of {largest} bytes", headers=close)
        return body

    def watch(self, on_disconnect: Callable[[], None]) -> Coroutine[None, None, None]:
        return until_disconnect(self.receive, on_disconnect)

    def streamed(self, headers: Fields = SSE_HEADERS) -> HttpResponse:
        """A response in parts."""
        return HttpResponse(self.receive, self._out, headers)


def _unsupported() -> Problem:
    reason = f"Send the header Content-Type: {JSON}. With a Bearer token or an X-MCP-Hub header no type is needed."
    return Problem(415, "unsupported_media_type", reason)


def answer(shape: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(shape), status, media_type=JSON)


def refusal(problem: Problem) -> Response:
    """A problem as a response."""
    response = Response(problem.encoded(), problem.status, media_type=problem.media)
    response.raw_headers.extend(problem.headers)
    return response


def check_unbound(caller: Caller, why: str) -> None:
    """Raises `Problem` 403 for a caller with a profile."""
    if caller.profile is not None:
        raise Problem(403, "profile_bound", f"{why} Use a token without a profile.")


def check_operator(caller: Caller, why: str) -> None:
    """Raises `Problem` 403 unless the caller operates the hub."""
    check_unbound(caller, why)
    if not caller.operates:
        reason = f"{why} Use a token that is marked operator: true, or the dashboard of mcp-hub open."
        raise Problem(403, "operator_required", reason)


def check_query(request: RestRequest, parameters: Collection[str]) -> None:
    """Raises `Problem` 400 for one of these that is there twice: nobody knows which of the values is meant."""
    items = request.query_params.multi_items() if request.scope["query_string"] else []
    names = [name for name, _ in items if name in parameters]
    if len(names) != len(set(names)):
        name = next(name for name in names if names.count(name) > 1)
        raise Problem(400, "invalid_parameter", f"{hide_head(name, 50)} is in the query more than once")


CODE_OFF: Final = "Scripts are off for this caller. Set hub.code to reads, ask or all, or code of its profile."


Handler = Callable[[RestRequest], Awaitable[Response | None]]
"""Answers a request; None if the response is sent already."""
Handlers = Mapping[str, Handler]
"""By the operation of the route."""


async def script(request: RestRequest) -> msgspec.Raw:
    """The arguments of `run_code` in a request, as JSON or as text. Raises `Problem`, `ClientGone`."""
    body = await (_text(request) if request.media == PYTHON else request.shaped(CodeBody))
    return msgspec.Raw(msgspec.json.encode({"code": body.code, **({"again": True} if body.again else {})}))


async def _text(request: RestRequest) -> CodeBody:
    again = request.query_params.get("again", "0")
    if again not in _FLAGS:
        raise Problem(400, "invalid_parameter", f"again has to be 1 or 0, not {hide_head(again, 50)!r}")
    try:
        return CodeBody((await request.content()).decode(), _FLAGS[again])
    except UnicodeDecodeError as problem:
        raise Problem(400, "invalid_body", f"the script is not UTF-8: {problem}") from None

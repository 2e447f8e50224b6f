"""One REST request and its response: the body within a limit, what the client takes, and what it is sent.

A client that takes nothing of a long response for a minute counts as gone, as one that has closed its connection.
"""

import math
import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import unquote

import anyio
import msgspec
from starlette.requests import Request
from starlette.responses import Response

from mcp_hub.fronts.http.response import Receive, Scope, Send
from mcp_hub.fronts.limits import FrontLimits
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.protocol.jsonrpc.depth import is_deeper
from mcp_hub.protocol.jsonrpc.envelope import one_line, without_lone_surrogates
from mcp_hub.sessions.session import Caller

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENT_STREAM: Final = "text/event-stream"

MOST_WAIT: Final = 300.0
"""Seconds that a request may ask to wait; more is taken for this."""
_STALLED: Final = 60.0
"""Seconds in which a client has to take what it is sent."""
_CHUNK: Final = 1 << 18
"""Bytes handed over at a time: a reader that is slow but reads is not taken for one that has stopped."""
_DISCARD: Final = 1.0
"""Seconds that the rest of a body over the limit is read and thrown away."""
_SECONDS: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,3})?")
_COUNT: Final = re.compile(r"[0-9]{1,18}")

T = TypeVar("T")


class RestRequest(Request):
    """A request that a route was found for. `caller` has passed the guard; `send` is for event streams."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int, limits: FrontLimits) -> None:
        super().__init__(scope, receive, send)
        self.send = send
        self.max_body = max_body
        self.limits = limits

    @property
    def caller(self) -> Caller:
        """The authenticated caller."""
        caller: Caller = self.scope["caller"]
        return caller

    @property
    def path(self) -> Mapping[str, str]:
        """The parameters of the path, decoded."""
        return {name: unquote(value) for name, value in self.path_params.items()}

    def header(self, name: str) -> str | None:
        """One header; None if it is missing."""
        value = self.headers.get(name)
        return None if value is None else value.strip(" \t")

    def accepts(self, *offered: str) -> list[str]:
        """Those of the `offered` media types that the client names, as offered; by a wildcard only the first.

        A client that names nothing is content with what is usual. Raises `Problem` 406.
        """
        accept = self.header("accept")
        wanted = _media_ranges(accept if accept is not None else "*/*")
        named = [media for media in offered if media in wanted]
        if named:
            return named
        if wanted & {"*/*", offered[0].partition("/")[0] + "/*"}:
            return [offered[0]]
        raise Problem(406, "not_acceptable", f"Accept must name one of {', '.join(offered)}")

    def seconds(self, name: str, default: float) -> float:
        """A query parameter that says how long to wait. Raises `Problem` 400."""
        text = self.query_params.get(name)
        if text is None:
            return default
        if not _SECONDS.fullmatch(text):
            raise Problem(400, "invalid_parameter", f"{name} has to be a number of seconds, not {text[:50]!r}")
        return min(float(text), MOST_WAIT)

    def count(self, name: str, default: int, most: int) -> int:
        """A query parameter from 1 to `most`; more is taken for that. Raises `Problem` 400."""
        text = self.query_params.get(name)
        if text is None:
            return default
        if not _COUNT.fullmatch(text) or int(text) < 1:
            raise Problem(400, "invalid_parameter", f"{name} has to be a whole number from 1 on, not {text[:50]!r}")
        return min(int(text), most)

    async def shaped(self, shape: type[T], limit: float = math.inf) -> T:
        """The JSON body; none at all is an empty object. Raises `Problem` 415, 413, 400, `ClientGone`."""
        text = await self._read(int(min(limit, self.max_body)))
        media = (self.header("content-type") or "").partition(";")[0].strip().lower()
        if media != JSON and (text or media):
            raise Problem(415, "unsupported_media_type", f"Content-Type must be {JSON}")
        try:
            msgspec.json.decode(text or b"{}")
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            is_half = without_lone_surrogates(text) != text
            why = "it holds half of a character (a lone surrogate)" if is_half else problem
            raise Problem(400, "invalid_json", f"the body is not JSON: {why}") from None
        except RecursionError:
            raise Problem(400, "invalid_json", "the body is nested too deep") from None
        if is_deeper(text, self.limits.depth):
            raise Problem(400, "invalid_json", f"nested in over {self.limits.depth} levels (hub.limits.depth)")
        try:
            return msgspec.json.decode(text or b"{}", type=shape)
        except msgspec.ValidationError as problem:
            raise Problem(400, "invalid_body", f"the body does not fit: {problem}") from None

    async def _read(self, limit: int) -> bytes:
        """On one line: what is spliced out of it must not end a line elsewhere."""
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise ClientGone
            part = event.get("body", b"")
            size += len(part)
            if size > limit:
                await _discard(self.receive)
                raise Problem(
                    413, "body_too_large", f"body over the limit of {limit} bytes", headers=((b"connection", b"close"),)
                )
            parts.append(part)
            if not event.get("more_body"):
                return one_line(b"".join(parts))

    async def watch(self, left: Callable[[], None]) -> None:
        """Says when the client has left."""
        while (await self.receive())["type"] != "http.disconnect":
            pass
        left()


class ClientGone(Exception):
    """The client has left, or reads nothing."""


async def _discard(receive: Receive) -> None:
    """Reads what a client still sends, for a moment: one that cannot finish sending would miss the answer."""
    with anyio.move_on_after(_DISCARD):
        while (event := await receive())["type"] == "http.request" and event.get("more_body"):
            pass


def _media_ranges(accept: str) -> set[str]:
    """The media ranges of an Accept header, without those of quality 0 (RFC 9110 §12.5.1)."""
    ranges = set()
    for part in accept.lower().split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        if not any(re.fullmatch(r"q\s*=\s*0(\.0*)?", parameter) for parameter in parameters):
            ranges.add(media)
    return ranges


def answer(shape: object, status: int = 200) -> Response:
    """A whole answer in JSON."""
    return Response(msgspec.json.encode(shape), status, media_type=JSON)


def refusal(problem: Problem) -> Response:
    """A problem as its response."""
    response = Response(problem.encoded(), problem.status, media_type=problem.media)
    response.raw_headers.extend(problem.headers)
    return response


class ResponseWriter:
    """A response of many parts. Raises `ClientGone` when nothing of it is taken for a minute."""

    def __init__(self, send: Send, headers: list[tuple[bytes, bytes]]) -> None:
        self._send = send
        self._headers = headers

    async def start(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})

    async def write(self, body: bytes) -> None:
        for start in range(0, len(body), _CHUNK):
            await self._part(body[start : start + _CHUNK], more=True)

    async def end(self, body: bytes = b"") -> None:
        await self.write(body)
        await self._part(b"", more=False)

    async def _part(self, body: bytes, *, more: bool) -> None:
        with anyio.move_on_after(_STALLED) as patience:
            await self._send({"type": "http.response.body", "body": body, "more_body": more})
        if patience.cancelled_caught:
            raise ClientGone

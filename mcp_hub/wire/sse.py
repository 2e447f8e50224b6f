"""The deprecated HTTP+SSE transport.

Source: specification 2024-11-05, basic/transports "HTTP with SSE"; 2026-07-28, basic/transports/streamable-http
"Backward Compatibility".
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import anyio
import anyio.abc
import httpx2

from mcp_hub.errors import StartFailed, UpstreamLost
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.unparsed import is_answer
from mcp_hub.protocol.sse import SseEvent
from mcp_hub.types import RawJson
from mcp_hub.wire.base import Headers, Pending, WireHandler
from mcp_hub.wire.bodies import TAIL_SECONDS, Intake
from mcp_hub.wire.remote import Exchanges, Explain, HttpStreams, RemoteServer, RemoteWire
from mcp_hub.wire.responses import EVENT_STREAM, NO_CONNECTION, POSTED, code_of, is_json, is_stream, origin, reason_of


class SseWire(RemoteWire):
    """A `RemoteWire` with one stream for all answers, and ends with it."""

    def __init__(
        self,
        handler: WireHandler,
        http: HttpStreams,
        tasks: anyio.abc.TaskGroup,
        *,
        server: str,
        url: str,
        limit: int,
        explain: Explain | None = None,
    ) -> None:
        exchanges = Exchanges(handler, RemoteServer(server, url, http, explain), tasks)
        self._stream = _Stream(exchanges, Intake(exchanges, limit, self._incoming), self._outgoing)
        super().__init__(exchanges, self._stream)

    async def open(self) -> None:
        """Connects and learns the endpoint. Raises `StartFailed`, `UpstreamLost`."""
        self._exchanges.start("stream", self._stream.read)
        await self._stream.opened()


class _Stream:
    """The stream of a server, and the endpoint for messages to it."""

    takes_cancellations = True

    def __init__(self, exchanges: Exchanges, intake: Intake, tap: Callable[[bytes], bytes]) -> None:
        self._exchanges = exchanges
        self._server = exchanges.server
        self._intake = intake
        self._tap = tap
        self._endpoint: str | None = None
        self._failure: Exception = StartFailed("no_endpoint", "the event stream ended before it named an endpoint")
        self._settled = anyio.Event()

    async def opened(self) -> None:
        """Waits for the endpoint. Raises `StartFailed`, `UpstreamLost`."""
        await self._settled.wait()
        if self._endpoint is None:
            raise self._failure

    async def read(self) -> None:
        """Takes all input, and closes after it."""
        code, reason = "connection_lost", "the event stream ended"
        try:
            async with self._server.stream("GET", {"accept": EVENT_STREAM}) as response:
                if not is_stream(response):
                    raise await self._server.refusal(response)
                await self._intake.follow(response, self._intake.parser(), events=self)
        except (StartFailed, UpstreamLost) as exc:
            reason, self._failure = str(exc).removeprefix(f'server "{self._server.name}" '), exc
            code = exc.code if isinstance(exc, StartFailed) else str(exc.about_upstream.get("code", code))
        except NO_CONNECTION as exc:
            code, reason = code_of(exc), f"cannot connect to {origin(self._server.url)}: {reason_of(exc)}"
            self._failure = StartFailed(code, reason)
        except httpx2.HTTPError as exc:
            reason = f"the event stream broke off: {reason_of(exc)}"
            self._failure = StartFailed("no_endpoint", reason)
        self._settled.set()
        self._exchanges.close(reason, code)

    def take_event(self, event: SseEvent, source: Pending | None) -> None:
        if event.type == b"endpoint":
            self._endpoint = self._resolved(event.data)
            self._settled.set()
        else:
            self._intake.take_event(event, source)

    def take_long(self, head: bytes) -> None:
        sole = self._exchanges.requests.sole() if is_answer(head, is_huge=True) else None
        self._intake.take_long(head, None if sole is None else b"%d" % sole.id)

    def _resolved(self, data: bytes) -> str:
        """The endpoint. Raises `StartFailed` for another origin, which would get the credentials."""
        try:
            home = httpx2.URL(self._server.url)
            url = home.join(data.decode("utf-8", "replace").strip())
        except httpx2.InvalidURL as exc:
            raise StartFailed("no_endpoint", f"the server named an endpoint that is not a URL: {exc}") from None
        if (url.scheme, url.host, url.port, url.userinfo) != (home.scheme, home.host, home.port, b""):
            message = f"the server wants messages sent to {origin(str(url))}, which is not where its stream is: refused"
            raise StartFailed("endpoint_elsewhere", message)
        return str(url)

    async def exchange(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        """Ends soon after the answer: the response may never end."""
        with anyio.CancelScope() as scope:
            pending.future.add_done_callback(partial(_end_soon, scope, pending))
            await self._post(envelope.request_frame(pending.id, pending.method, params), pending)

    async def refused(self, pending: Pending, refusal: Exception) -> None:
        raise refusal

    async def post(self, frame: bytes) -> None:
        await self._post(frame)

    async def _post(self, frame: bytes, pending: Pending | None = None) -> None:
        assert self._endpoint is not None
        async with self._server.post(self._tap(frame), POSTED, self._endpoint) as response:
            if not response.is_success:
                raise await self._server.refusal(response)
            if pending is not None and is_json(response):
                with suppress(httpx2.HTTPError):  # the answer may still come on the stream
                    self._intake.take_answer_to(pending, await self._intake.body(response))


def _end_soon(scope: anyio.CancelScope, pending: Pending, _: object) -> None:
    scope.deadline = pending.future.get_loop().time() + TAIL_SECONDS

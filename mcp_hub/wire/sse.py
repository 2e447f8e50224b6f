"""The deprecated HTTP+SSE transport.

Source: specification 2024-11-05, basic/transports "HTTP with SSE"; 2026-07-28, basic/transports/streamable-http
"Backward Compatibility".
"""

from contextlib import suppress
from functools import partial

import anyio
import httpx2

from mcp_hub.errors import StartFailed, UpstreamLost
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from mcp_hub.protocol.jsonrpc.unparsed import is_answer
from mcp_hub.protocol.sse import Event, EventParser
from mcp_hub.types import RawJson
from mcp_hub.wire.base import Headers, Pending
from mcp_hub.wire.remote import TAIL_SECONDS, RemoteWire
from mcp_hub.wire.responses import EVENT_STREAM, NO_CONNECTION, POSTED, code_of, is_json, is_stream, origin, reason_of


class SseWire(RemoteWire):
    """A `RemoteWire` with one stream for all answers, and ends with it."""

    async def open(self) -> None:
        """Connects and learns the endpoint. Raises `StartFailed`, `UpstreamLost`."""
        self._endpoint: str | None = None
        self._failure: Exception = StartFailed("no_endpoint", "the event stream ended before it named an endpoint")
        self._settled = anyio.Event()
        self._start("stream", self._read)
        await self._settled.wait()
        if self._endpoint is None:
            raise self._failure

    async def _read(self) -> None:
        code, reason = "connection_lost", "the event stream ended"
        try:
            async with self._http.stream("GET", self._url, headers={"accept": EVENT_STREAM}) as response:
                if not is_stream(response):
                    raise await self._refusal(response)
                await self._follow(response, EventParser(self._limit))
        except (StartFailed, UpstreamLost) as exc:
            reason, self._failure = str(exc).removeprefix(f'server "{self._server}" '), exc
            code = exc.code if isinstance(exc, StartFailed) else str(exc.about_upstream.get("code", code))
        except NO_CONNECTION as exc:
            code, reason = code_of(exc), f"cannot connect to {origin(self._url)}: {reason_of(exc)}"
            self._failure = StartFailed(code, reason)
        except httpx2.HTTPError as exc:
            reason = f"the event stream broke off: {reason_of(exc)}"
            self._failure = StartFailed("no_endpoint", reason)
        self._settled.set()
        self.close(reason, code)

    def _salvaged_id(self, head: bytes) -> bytes | None:
        id_ = super()._salvaged_id(head)
        sole = self.requests.sole() if id_ is None and is_answer(head, is_huge=True) else None
        return id_ if sole is None else b"%d" % sole.id

    def _take_event(self, event: Event, source: Pending | None) -> None:
        if event.type == b"endpoint":
            self._endpoint = self._resolved(event.data)
            self._settled.set()
        else:
            super()._take_event(event, source)

    def _resolved(self, data: bytes) -> str:
        """The endpoint. Raises `StartFailed` for another origin, which would get the credentials."""
        try:
            home = httpx2.URL(self._url)
            url = home.join(data.decode("utf-8", "replace").strip())
        except httpx2.InvalidURL as exc:
            raise StartFailed("no_endpoint", f"the server named an endpoint that is not a URL: {exc}") from None
        if (url.scheme, url.host, url.port, url.userinfo) != (home.scheme, home.host, home.port, b""):
            message = f"the server wants messages sent to {origin(str(url))}, which is not where its stream is: refused"
            raise StartFailed("endpoint_elsewhere", message)
        return str(url)

    async def _exchange(self, pending: Pending, params: RawJson, headers: Headers) -> None:
        """Ends soon after the answer: the response may never end."""
        with anyio.CancelScope() as scope:
            pending.future.add_done_callback(partial(_end_soon, scope, pending))
            await self._post(envelope.request_frame(pending.id, pending.method, params), pending)

    async def _post(self, frame: bytes, pending: Pending | None = None) -> None:
        assert self._endpoint is not None
        async with self._http.stream("POST", self._endpoint, content=self._outgoing(frame), headers=POSTED) as response:
            if not response.is_success:
                raise await self._refusal(response)
            if pending is not None and is_json(response):
                with suppress(httpx2.HTTPError):  # the answer may still come on the stream
                    self._take_whole(self._incoming(await self._body(response)), pending)

    def _take_whole(self, body: bytes, pending: Pending) -> None:
        message = envelope.decode(envelope.one_line(body))
        if isinstance(message, Envelope) and message.kind in ("result", "error") and message.id_key == pending.id:
            self._take_answer(message, body, None)


def _end_soon(scope: anyio.CancelScope, pending: Pending, _: object) -> None:
    scope.deadline = pending.future.get_loop().time() + TAIL_SECONDS

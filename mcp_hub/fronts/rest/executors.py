"""Tools that callers execute: registration, calls, results."""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

import anyio
from msgspec import UNSET, Raw
from msgspec.json import encode
from starlette.responses import Response

from mcp_hub.errors import HubError
from mcp_hub.events import Post
from mcp_hub.fronts.http.response import KEEP_ALIVE
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, Handlers, RestRequest, answer, check_unbound
from mcp_hub.fronts.rest.problem import Problem, problem_for
from mcp_hub.fronts.rest.streams import Closing
from mcp_hub.masking import hide_head
from mcp_hub.protocol import sse
from mcp_hub.protocol.rest.calls import ExecutorBody, ExecutorEpoch, OfferPage, PostAnswer, PostBody
from mcp_hub.sessions.session import Caller
from mcp_hub.types import RawJson

_WAIT: Final = 25.0
_OFFERS: Final = 64
_MOST_POST: Final = 1 << 20
"""Bytes of one post's body."""
_GOODBYE: Final = 1.0
"""Seconds for the last words to a worker that may not read any more."""
_NUMBERS: Final = ("Producer-Epoch", "Producer-Seq")
_NUMBER: Final = re.compile(r"[0-9]{1,18}")


class _Posted(Protocol):
    @property
    def credit(self) -> int: ...

    @property
    def is_duplicate(self) -> bool: ...


class Executors(Protocol):
    """The hub's side of executors. All raise `Rejected`."""

    def register(self, principal: str, executor_id: str, tools: Sequence[RawJson], lease: float = ...) -> int: ...

    def remove(self, principal: str, executor_id: str) -> None: ...

    async def calls(
        self, principal: str, executor_id: str, epoch: int, limit: int, wait: float = ..., /
    ) -> Sequence[object]: ...

    async def post(self, principal: str, tool_call_id: str, post: Post) -> _Posted: ...


class _Executors:
    """Serves `/v1/executors` and `/v1/tool-results`, if `is_open`."""

    def __init__(self, executors: Executors | None, closing: Closing, *, is_open: Callable[[], bool]) -> None:
        self._hub_executors = executors
        self._closing = closing
        self._is_open = is_open
        self._followed: dict[tuple[str, str], anyio.CancelScope] = {}

    def _executors(self, caller: Caller) -> Executors:
        check_unbound(caller, "Registered tools are listed in all profiles.")
        if not self._is_open():
            raise Problem(403, "token_required", "executors need a token (hub.tokens) unless the hub is on loopback")
        if self._hub_executors is None:
            raise Problem(404, "no_executors", "This hub does not accept executors.")
        return self._hub_executors

    async def register(self, request: RestRequest) -> Response:
        executors = self._executors(request.caller)
        body = await request.shaped(ExecutorBody)
        lease = float(body.lease.removesuffix("s")) if isinstance(body.lease, str) else float(body.lease)
        tools = [bytes(tool) for tool in body.tools]
        epoch = executors.register(request.caller.principal, request.path["id"], tools, lease)
        return answer(ExecutorEpoch(epoch))

    async def remove(self, request: RestRequest) -> Response:
        self._executors(request.caller).remove(request.caller.principal, request.path["id"])
        return Response(status_code=204)

    async def calls(self, request: RestRequest) -> Response | None:
        """Offers of calls, each once: a page, or events. It ends an older event stream of the executor."""
        executors = self._executors(request.caller)
        form = request.accepts(JSON, EVENT_STREAM)[-1]
        epoch = _number(request, "Producer-Epoch", request.query_params.get("epoch"))
        wait, limit = request.seconds("wait", _WAIT), request.count("limit", _OFFERS, _OFFERS)
        caller, id_ = request.caller.principal, request.path["id"]

        async def offers(seconds: float) -> list[Raw]:
            return [Raw(encode(call)) for call in await executors.calls(caller, id_, epoch, limit, seconds)]

        async def work() -> Response | None:
            first = await offers(0)  # refused as a whole if it has to be
            if (older := self._followed.pop((caller, id_), None)) is not None:
                older.cancel()
            if form == EVENT_STREAM:
                await self._follow(request, (caller, id_), first, offers)
                return None
            return answer(OfferPage(first or await offers(wait)))

        return await self._closing.connected(request, work())

    async def _follow(
        self,
        request: RestRequest,
        executor: tuple[str, str],
        first: list[Raw],
        offers: Callable[[float], Awaitable[list[Raw]]],
    ) -> None:
        scope = self._followed[executor] = anyio.CancelScope()
        response = request.streamed()
        problem: HubError = Problem(409, "replaced", "another connection fetches the calls of this executor")
        try:
            with scope:
                await response.start()
                await response.write(_events(first))
                while True:
                    await response.write(_events(await offers(KEEP_ALIVE)) or sse.COMMENT)
        except HubError as error:
            problem = error
        finally:
            if self._followed.get(executor) is scope:
                del self._followed[executor]
        with anyio.move_on_after(_GOODBYE if scope.cancel_called else None):
            await response.end(b"event: problem\ndata: %b\n\n" % problem_for(problem).encoded())

    async def post(self, request: RestRequest) -> Response:
        executors = self._executors(request.caller)
        is_numbered = any(request.header(name) is not None for name in _NUMBERS)
        epoch, seq = (_number(request, name) for name in _NUMBERS) if is_numbered else (None, None)
        body = await request.shaped(PostBody, _MOST_POST)
        if body.events and not is_numbered:  # a post without numbers is the short form
            raise Problem(400, "missing_header", f"a post with events needs the headers {' and '.join(_NUMBERS)}")
        post = Post(
            epoch=epoch,
            seq=seq,
            events=[bytes(each) for each in body.events],
            content=body.content,
            complete=body.complete,
            result=None if body.result is UNSET else bytes(body.result),
            error=None if body.error is UNSET else bytes(body.error),
        )
        posted = await executors.post(request.caller.principal, body.tool_call_id, post)
        if posted.is_duplicate:
            return Response(status_code=204)
        return answer(PostAnswer(posted.credit))


def executor_handlers(executors: Executors | None, closing: Closing, *, is_open: Callable[[], bool]) -> Handlers:
    """`/v1/executors` and `/v1/tool-results`."""
    served = _Executors(executors, closing, is_open=is_open)
    return {
        "registerExecutor": served.register,
        "removeExecutor": served.remove,
        "fetchCalls": served.calls,
        "postResults": served.post,
    }


def _number(request: RestRequest, header: str, otherwise: str | None = None) -> int:
    text = request.header(header)
    text = otherwise if text is None else text
    if text is None:
        raise Problem(400, "missing_header", f"the header {header} is missing")
    if not _NUMBER.fullmatch(text):
        raise Problem(400, "invalid_header", f"{header} has to be a whole number, not {hide_head(text, 50)!r}")
    return int(text)


def _events(offers: Sequence[Raw]) -> bytes:
    parts = []
    for offer in offers:
        line = bytes(offer)
        parts.append(b"event: %b\ndata: %b\n\n" % (line.split(b'"', 4)[3], line))
    return b"".join(parts)

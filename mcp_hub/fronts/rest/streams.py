"""Durable streams over REST: status, events, answers and cancellation, at any hub on the store."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import UNSET, Raw
from msgspec.structs import replace
from starlette.responses import Response

from mcp_hub.call import OF_REST
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.fronts.following import Following
from mcp_hub.fronts.rest.exchange import EVENT_STREAM, JSON, NDJSON, RestRequest, answer
from mcp_hub.fronts.rest.follow import Closing, detailed, durable, info, open_questions, send_ndjson, send_sse
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.hub import HubPort, StreamHandle
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.rest.calls import InputBody, QuestionInfo, RunningCall, StreamList, StreamPage, StreamStatus
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.sessions.session import LOCAL, Caller

_WAIT: Final = 25.0
_EVENTS, _MOST_EVENTS = 1000, 10_000
_STREAMS, _MOST_STREAMS = 100, 1000
_NDJSON_HEADERS: Final = [(b"content-type", NDJSON.encode()), (b"cache-control", b"no-cache, no-transform")]
_CURSOR: Final = re.compile(r"[0-9]{1,18}")


RunningView = Callable[[Caller, bool], Sequence[RunningCall]]
"""A caller's calls that run here and may have streams; with True, those over REST only."""


class RestStreams:
    """Serves `/v1/streams`. `shows_all`: every caller is the hub's user. `running` returns a caller's calls."""

    def __init__(self, hub: HubPort, closing: Closing, running: RunningView, *, shows_all: bool = False) -> None:
        self._shows_all = shows_all
        self._running = running
        self._hub = hub
        self._closing = closing

    async def list_streams(self, request: RestRequest) -> Response:
        """The token's streams, within its profile; without tokens, those made over REST."""
        limit = request.count("limit", _STREAMS, _MOST_STREAMS)
        caller = request.caller
        is_open = caller.principal == LOCAL.principal and not self._shows_all
        is_part = is_open or caller.profile is not None
        rows = await self._hub.durable.newest(caller.principal, _MOST_STREAMS if is_part else limit, caller.profile)
        listed_rows = [row for row in rows if not is_open or row.session.startswith(OF_REST)][:limit]
        calls = {call.id: call for call in self._running(caller, is_open)}
        listed = [_waiting(info(self._hub, row), calls.pop(row.id, None)) for row in listed_rows]
        is_cut = len(listed_rows) == limit
        unlisted = [call for call in calls.values() if not (call.has_stream and is_cut)]
        return answer(StreamList(listed, len(unlisted), sum(bool(call.waits_for) for call in unlisted)))

    async def get_stream(self, request: RestRequest) -> Response:
        """The stream's status."""
        stream = await self._opened(request)
        stream.let_go()  # somebody is here: the time starts anew
        return answer(await detailed(self._hub, stream))

    async def _opened(self, request: RestRequest, after: int | None = None) -> StreamHandle:
        return await self._hub.durable.open(request.caller.principal, request.path["id"], request.caller.profile, after)

    async def cancel_stream(self, request: RestRequest) -> Response:
        """Idempotent."""
        row = await (await self._opened(request)).cancel("cancelled on request")
        return answer(info(self._hub, row), 200 if row.has_ended else 202)

    async def follow_stream(self, request: RestRequest) -> Response | None:
        """Events behind a cursor: JSON, NDJSON or SSE."""
        form = request.accepts(JSON, NDJSON, EVENT_STREAM)[-1]
        after = _cursor(request)
        wait, limit = request.seconds("wait", _WAIT), request.count("limit", _EVENTS, _MOST_EVENTS)
        stream = await self._opened(request, after)
        was_orphan = stream.is_orphan
        try:
            following = Following(stream, after)
        except InvalidParams as error:
            raise Problem(400, "invalid_cursor", str(error), last=stream.info.last) from None
        try:
            if form == JSON:
                return await self._closing.connected(request, self._page(following, limit, wait))
            if form == NDJSON:
                work = send_ndjson(following, request.streamed(_NDJSON_HEADERS))
            else:
                work = send_sse(following, request.streamed())
            await self._closing.connected(request, work)
            return None
        finally:
            following.close()
            stream.let_go(was_orphan=was_orphan)

    async def _page(self, following: Following, limit: int, wait: float) -> Response:
        lines = await following.page(limit, wait)
        is_kept = durable(self._hub, following.stream)
        page = StreamPage([Raw(line) for line in lines], following.cursor, following.closed, is_kept)
        return answer(page)

    async def answer_question(self, request: RestRequest) -> Response:
        """Answers an open question."""
        body = await request.shaped(InputBody)
        stream = await self._opened(request)
        questions = {question.key: question for question in await open_questions(stream)}
        if stream.info.has_ended:
            raise Problem(409, "stream_ended", "The call has ended and has no open questions.")
        if body.key not in questions:
            still = ", ".join(questions) or "none"
            raise Problem(404, "unknown_question", f"no question {hide_head(body.key, 100)!r} is open (open: {still})")
        row = await stream.answer(body.key, _outcome(body, questions[body.key]))
        return answer(info(self._hub, row), 202)


def _waiting(status: StreamStatus, call: RunningCall | None) -> StreamStatus:
    if call is None or not call.waits_for or status.has_ended:
        return status
    return replace(status, waits_for=call.waits_for, waits_since=timestamp(call.waits_since))


def _cursor(request: RestRequest) -> int:
    text = request.header("last-event-id")
    if text is None:
        text = request.query_params.get("after", "0")
    if not _CURSOR.fullmatch(text):
        raise Problem(400, "invalid_cursor", f"a cursor is the number of an event, not {hide_head(text, 50)!r}")
    return int(text)


def _outcome(body: InputBody, question: QuestionInfo) -> Raw | RpcError:
    """Raises `Problem` unless the body has one outcome."""
    outcomes = [name for name in ("action", "result", "error") if getattr(body, name) is not UNSET]
    if len(outcomes) != 1:
        raise _unfit("it needs exactly one of `action`, `result` and `error`")
    if body.content is not UNSET and body.action != "accept":
        raise _unfit("`content` goes with the action accept")
    if body.error is not UNSET:
        return RpcError(body.error.message, code=body.error.code)
    if body.result is not UNSET:
        if raw_object(body.result) is None:
            raise _unfit("`result` has to be an object")
        return Raw(bytes(body.result))
    if question.method != "elicitation/create":
        raise _unfit(f"{question.method} is answered with a `result` or an `error`")
    answer: dict[str, object] = {"action": body.action}
    if body.content is not UNSET:
        if raw_object(body.content) is None:
            raise _unfit("`content` has to be an object")
        answer["content"] = body.content
    return Raw(object_bytes(answer))


def _unfit(reason: str) -> Problem:
    return Problem(400, "invalid_body", f"the body does not fit: {reason}")

"""Durable streams over REST: whoever holds the id and is the same principal may look, follow, answer and cancel.

Any hub on the store serves any stream; what is meant for the hub that runs the call goes there through the store.
"""

import re
from typing import Final

import msgspec
from msgspec import UNSET, Raw

from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.fronts.rest_bodies import EventPage, InputBody, QuestionInfo, StreamList
from mcp_hub.fronts.rest_calls import OF_REST, rest_session
from mcp_hub.fronts.rest_follow import Closing, Following, let_go, send_ndjson, send_sse
from mcp_hub.fronts.rest_http import EVENT_STREAM, JSON, NDJSON, RestRequest, respond
from mcp_hub.fronts.rest_info import detailed, durable, info, open_questions
from mcp_hub.fronts.rest_problem import Problem
from mcp_hub.hub import Facade
from mcp_hub.protocol.envelope import object_bytes, raw_object
from mcp_hub.sessions.session import LOCAL

__all__ = ["RestStreams"]

_WAIT: Final = 25.0
_EVENTS, _MOST_EVENTS = 1000, 10_000
_STREAMS, _MOST_STREAMS = 100, 1000
_CURSOR: Final = re.compile(r"[0-9]{1,18}")


class RestStreams:
    """Serves `/v1/streams`."""

    def __init__(self, hub: Facade, closing: Closing) -> None:
        self._hub = hub
        self._closing = closing

    async def list_streams(self, request: RestRequest) -> None:
        """A token's all; without tokens those that were made over REST, and none of a session (streams.md §3)."""
        most = request.count("limit", _STREAMS, _MOST_STREAMS)
        caller = request.caller
        is_open = caller.principal == LOCAL.principal
        rows = await self._hub.streams.store.rows(caller.principal, _MOST_STREAMS if is_open else most)
        shown = [row for row in rows if not is_open or row.session.startswith(OF_REST)][:most]
        await respond(request.send, 200, msgspec.json.encode(StreamList([info(self._hub, row) for row in shown])))

    async def get_stream(self, request: RestRequest) -> None:
        row = await self._hub.streams.find(request.caller.principal, request.path["id"])
        let_go(self._hub, rest_session(request.caller, ""), row.id)  # somebody is here: the time starts anew
        await respond(request.send, 200, msgspec.json.encode(await detailed(self._hub, row)))

    async def cancel_stream(self, request: RestRequest) -> None:
        """Idempotent."""
        principal, id_ = request.caller.principal, request.path["id"]
        row = await self._hub.streams.cancel(principal, id_, "its client has cancelled it")
        await respond(request.send, 200 if row.has_ended else 202, msgspec.json.encode(info(self._hub, row)))

    async def follow_stream(self, request: RestRequest) -> None:
        form = request.accepts(JSON, NDJSON, EVENT_STREAM)[-1]
        after = _cursor(request)
        wait, most = request.seconds("wait", _WAIT), request.count("limit", _EVENTS, _MOST_EVENTS)
        stream = await self._hub.streams.open(request.caller.principal, request.path["id"])
        writer = self._hub.streams.owned(stream.row.id)
        was_alone = writer is not None and writer.orphaned_at is not None
        try:
            following = Following(self._hub, stream, after)
        except InvalidParams as error:
            raise Problem(400, "invalid_cursor", str(error), last=stream.row.last) from None
        try:
            if form == JSON:
                work = self._page(request, following, most, wait)
            else:
                work = (send_sse if form == EVENT_STREAM else send_ndjson)(following, request.send)
            await self._closing.connected(request, work)
        finally:
            following.close()
            let_go(self._hub, rest_session(request.caller, ""), stream.row.id, was_alone=was_alone)

    async def _page(self, request: RestRequest, following: Following, most: int, wait: float) -> None:
        lines = await following.page(most, wait)
        is_kept = durable(self._hub, following.stream)
        page = EventPage([Raw(line) for line in lines], following.cursor, following.closed, is_kept)
        await respond(request.send, 200, msgspec.json.encode(page))

    async def answer_question(self, request: RestRequest) -> None:
        body = await request.body(InputBody)
        principal, id_ = request.caller.principal, request.path["id"]
        row = await self._hub.streams.find(principal, id_)
        asked = {question.key: question for question in await open_questions(self._hub, row)}
        if row.has_ended:
            raise Problem(409, "stream_ended", "the call has ended; nothing is asked any more")
        if body.key not in asked:
            still = ", ".join(asked) or "none"
            raise Problem(404, "unknown_question", f"no question {body.key[:100]!r} is open (open: {still})")
        row = await self._hub.streams.answer(principal, id_, body.key, _outcome(body, asked[body.key]))
        await respond(request.send, 202, msgspec.json.encode(info(self._hub, row)))


def _cursor(request: RestRequest) -> int:
    """Where to go on. Raises `Problem`."""
    text = request.header(b"last-event-id")
    if text is None:
        text = request.query.get("after", "0")
    if not _CURSOR.fullmatch(text):
        raise Problem(400, "invalid_cursor", f"a cursor is the number of an event, not {text[:50]!r}")
    return int(text)


def _outcome(body: InputBody, question: QuestionInfo) -> Raw | RpcError:
    """What the question is answered with. Raises `Problem` for an answer that says nothing, or two things."""
    given = [name for name in ("action", "result", "error") if getattr(body, name) is not UNSET]
    if len(given) != 1:
        raise _unfit("one of `action`, `result` and `error` has to be there")
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


def _unfit(what: str) -> Problem:
    return Problem(400, "invalid_body", f"the body does not fit: {what}")

"""`hub_calls`, and `hub_cancel` where a soft deadline holds. A caller's mistake is a result."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from mcp_hub.call import LOCAL_PRINCIPAL, Call, CallChannel, CallHandler, StreamInfo
from mcp_hub.calls.hub_tools.events import Subscriptions
from mcp_hub.calls.hub_tools.stream_wait import StreamWait
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.progress import last_line_of, still_running
from mcp_hub.calls.reading.stored import ending_of, event_of, fetched
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.clock import wall_time
from mcp_hub.errors import Busy, EventsGone, InvalidParams, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Completed, Ending, Failed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.protocol.meta import with_mark
from mcp_hub.types import Era, RawJson

CALLS: Final = "hub_calls"
CANCEL: Final = "hub_cancel"

_SHARE: Final = 0.9
"""Share of the deadline that a wait may take."""
_PATIENCE: Final = 60.0
"""The deadline, in seconds, of clients without one: well before any of them moves a call to the background."""
_DAY: Final = 86400.0
_MOST_LISTED: Final = 20
_SEARCHED: Final = 400
"""Newest streams of a principal among which its calls are looked for."""
_TAIL: Final = 16
"""Events at a stream's end in which its last line is looked for."""

CALLS_TOOL: Final = msgspec.json.encode(
    {
        "name": CALLS,
        "description": "List running and recent calls; with id, wait for its output or result",
        "inputSchema": {
            "type": "object",
            "properties": {"id": {"type": "string"}, "after": {"type": "integer"}},
        },
        "annotations": {"readOnlyHint": True},
    }
)
"""At most 80 tokens, always the same bytes."""
CANCEL_TOOL: Final = msgspec.json.encode(
    {
        "name": CANCEL,
        "description": "Cancel a running call",
        "inputSchema": {
            "type": "object",
            "properties": {"stream": {"type": "string"}},
            "required": ["stream"],
        },
        "annotations": {"readOnlyHint": False, "destructiveHint": False},
    }
)
"""Always the same bytes."""
OFFERED: Final = (CALLS_TOOL, CANCEL_TOOL)
"""The first is for every client, the other for those with a soft deadline."""


class _Caller(msgspec.Struct, frozen=True):
    deadline: float | None
    profile: str | None
    exported: Callable[[Call, RawJson], RawJson]
    origin: bytes | None


def patience(deadline: float | None) -> float:
    """Seconds of a wait for a client with this soft deadline."""
    return (_PATIENCE if deadline is None else deadline) * _SHARE


def limits(deadline: float | None) -> TimeLimits:
    """Limits of a call by a client with this soft deadline in seconds."""
    seconds = (_PATIENCE if deadline is None else deadline) + 60
    return TimeLimits(seconds, max(seconds, _DAY), answer=_DAY)


class _Stream(msgspec.Struct):
    stream: str


class _CallRef(msgspec.Struct):
    id: str | None = None
    after: int | str | None = None


class _Ended(NamedTuple):
    row: StreamInfo
    ending: Ending


_T = TypeVar("_T", bound=msgspec.Struct)


class OwnTools:
    """Handlers of both tools; `event_subscriptions` are those of `hub_events`."""

    def __init__(self, streams: StreamPort) -> None:
        self.event_subscriptions: Subscriptions = {}
        self._streams = streams

    def handler(
        self,
        deadline: float | None,
        profile: str | None,
        exported: Callable[[Call, RawJson], RawJson],
        origin: bytes | None = None,
    ) -> CallHandler:
        """For a caller with this soft deadline in seconds; `exported` gives results its URIs.

        `origin` is the caller's `StreamInfo.info`, for calls of ended sessions.
        """
        return partial(self._answered, _Caller(deadline, profile, exported, origin))

    async def _answered(self, caller: _Caller, call: Call, channel: CallChannel) -> Completed:
        name = msgspec.json.decode(call.params["name"], type=str)
        try:
            answer = await (self._cancel(caller, call) if name == CANCEL else self._calls(caller, call, channel))
        except (StoreError, InvalidParams, EventsGone, Busy) as problem:
            reason = problem.public if isinstance(problem, StoreError) else problem
            return Completed.of(f"{name}: {reason}", is_error=True)
        return _passed_on(caller, call, answer) if isinstance(answer, _Ended) else answer

    async def _cancel(self, caller: _Caller, call: Call) -> Completed:
        id_ = _arguments(call, _Stream).stream
        stream = await self._opened(caller, call, id_)
        name = stream.info.name
        if stream.info.has_ended:
            return Completed.of(f"The call of {name} has ended already: {CALLS} returns its result.")
        await stream.cancel(f"cancelled by the client ({CANCEL})")
        return Completed.of(f"The call of {name} is being cancelled.")

    async def _opened(self, caller: _Caller, call: Call, id_: str) -> StreamHandle:
        """Raises `UnknownStream`, also if the stream is not a tool call's."""
        stream = await self._streams.open(call.principal, id_, caller.profile)
        if stream.info.method != "tools/call":
            raise UnknownStream
        return stream

    async def _calls(self, caller: _Caller, call: Call, channel: CallChannel) -> Completed | _Ended:
        arguments = _arguments(call, _CallRef)
        if arguments.id:
            return await self._wait(caller, call, channel, arguments.id, _cursor(arguments.after))
        rows = await self._listed(caller, call)
        if not rows:
            return Completed.of("No running or recent calls.")
        wall, last_lines = wall_time(), [await self._last_line(row) for row in rows]
        lines = [_line(row, text, wall) for row, text in zip(rows, last_lines, strict=True)]
        head = f'Newest first. To wait for the rest of a call\'s output, or its result: {CALLS} with {{"id":"st_…"}}.'
        return Completed.of("\n".join([head, "", *lines]))

    async def _listed(self, caller: _Caller, call: Call) -> Sequence[StreamInfo]:
        rows: list[StreamInfo] = []
        for row in await self._streams.newest(call.principal, _SEARCHED, caller.profile):
            if row.method == "tools/call" and await self._lists(caller, call, row):
                rows.append(row)
                if len(rows) == _MOST_LISTED:
                    break
        return rows

    async def _lists(self, caller: _Caller, call: Call, row: StreamInfo) -> bool:
        """Whether a stream is listed: without a token only one of the session, or of an ended session of the same
        origin. Raises `StoreError`.
        """
        if call.principal != LOCAL_PRINCIPAL or row.session == call.session:
            return True
        if caller.origin is None or row.info != caller.origin or row.session in self._streams.connected:
            return False
        if row.owner == self._streams.table.store.log.instance or row.epoch > 1:  # taken over: its hub is gone
            return True
        return await self._streams.table.store.leases.is_orphan(row)

    async def _last_line(self, row: StreamInfo) -> str:
        """The last line of the result or the output; or an empty text."""
        after = row.last - (1 if row.has_ended else min(_TAIL, row.last - row.first + 1))
        try:
            lines = await fetched(self._streams.table.store.log, row.id, after, _TAIL)
        except UnknownStream:  # it has expired
            lines = ()
        return last_line_of(map(event_of, lines), row.message or "")

    async def _wait(
        self, caller: _Caller, call: Call, channel: CallChannel, id_: str, after: int
    ) -> Completed | _Ended:
        stream = await self._opened(caller, call, id_)
        if stream.info.has_ended:
            return _Ended(stream.info, ending_of(stream.info, await stream.ending()))
        was_orphan = stream.is_orphan
        waiting = StreamWait(stream, after, channel, call.asks_client)
        try:
            ending = await waiting.ending(patience(caller.deadline), is_modern=call.era is Era.MODERN)
        finally:
            waiting.close()
            if was_orphan:
                stream.let_go(was_orphan=True)
        if ending is not None:
            return _Ended(stream.info, ending)
        questions = (await stream.questions()).values()
        text = still_running(
            stream.id, waiting.cursor, waiting.transcript, "New output", call, questions,
            has_cancel=caller.deadline is not None,
        )  # fmt: skip
        answer = with_mark(Completed.of(text).result, stream.id, waiting.cursor, stream.info.status)
        return Completed(answer)


def _line(row: StreamInfo, last: str, wall: float) -> str:
    """A call in one line: `st_… ci_run_tests: working for 95 s: compiling core`."""
    status = row.status.replace("_", " ")
    took = _spelled((row.updated if row.has_ended else wall) - row.created)
    when = f"{_spelled(wall - row.updated)} ago, after {took}" if row.has_ended else f"for {took}"
    return f"{row.id} {row.name}: {status} {when}{f': {last}' if last else ''}"


def _spelled(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def _passed_on(caller: _Caller, call: Call, ended: _Ended) -> Completed:
    """The ending in the caller's form. Raises `RpcError`."""
    row = ended.row
    match ended.ending:
        case Completed(result, era):
            return Completed(caller.exported(_as_called(call, row), result), era)
        case Failed(error):
            raise for_caller(error, call.era, row.server, call.capabilities)
        case Cancelled(reason):
            return Completed.of(
                f"The call of {row.name} was cancelled: {reason or 'no reason was given'}.", is_error=True
            )


def _as_called(call: Call, row: StreamInfo) -> Call:
    params = {"name": msgspec.Raw(msgspec.json.encode(row.name))}
    return msgspec.structs.replace(call, id=row.id, upstream=row.server, method=row.method, params=params)


def _arguments(call: Call, shape: type[_T]) -> _T:
    try:
        return msgspec.json.decode(call.params.get("arguments", b"{}"), type=shape, strict=False)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise InvalidParams(f"wrong arguments: {problem}") from None


def _cursor(after: int | str | None) -> int:
    """Models write numbers as text. Raises `InvalidParams`."""
    text = str(after or 0)
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidParams(f"wrong arguments: `after` is the number of an event, not {hide_head(text, 50)!r}")
    return int(text)

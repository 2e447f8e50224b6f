"""`hub_wait` and `hub_cancel`, listed where a soft deadline holds. A caller's mistake is a result for the model."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

import msgspec

from mcp_hub.call import Call, CallChannel, CallHandler, StreamInfo
from mcp_hub.calls.hub_tools.stream_wait import StreamWait
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.reading.stored import ending_of
from mcp_hub.calls.reading.transcript import still_running
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.errors import Busy, EventsGone, InvalidParams, StoreError, UnknownStream
from mcp_hub.events import Cancelled, Completed, Ending, Failed
from mcp_hub.masking import hide_head
from mcp_hub.protocol.extensions import with_mark
from mcp_hub.protocol.jsonrpc.rpc_errors import for_caller
from mcp_hub.types import Era, RawJson

WAIT: Final = "hub_wait"
CANCEL: Final = "hub_cancel"

_SHARE: Final = 0.9
"""Share of the soft deadline that a wait may take."""
_DAY: Final = 86400.0

_STREAM: Final = {"type": "string", "description": "from that answer"}
_DEFINITIONS: Final = (
    {
        "name": WAIT,
        "description": "Go on waiting for a tool call that was answered with 'still running'. Returns new output, or "
        "the tool's own result once it is there.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "stream": _STREAM,
                "after": {"type": "integer", "minimum": 0, "description": "as in the last answer"},
            },
            "required": ["stream"],
        },
        "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
    },
    {
        "name": CANCEL,
        "description": "End a tool call that was answered with 'still running'.",
        "inputSchema": {"type": "object", "properties": {"stream": _STREAM}, "required": ["stream"]},
        "annotations": {
            "readOnlyHint": False,
            "destructiveHint": False,
            "idempotentHint": True,
            "openWorldHint": False,
        },
    },
)
OFFERED: Final = tuple(map(msgspec.json.encode, _DEFINITIONS))
"""Constant bytes."""


class _Caller(msgspec.Struct, frozen=True):
    deadline: float
    profile: str | None
    exported: Callable[[Call, RawJson], RawJson]


def limits(deadline: float) -> TimeLimits:
    return TimeLimits(deadline + 60, max(deadline + 60, _DAY), answer=_DAY)


class _Stream(msgspec.Struct):
    stream: str


class _Wait(_Stream):
    after: int | str | None = None


class _Ended(NamedTuple):
    row: StreamInfo
    ending: Ending


_T = TypeVar("_T", bound=_Stream)


class OwnTools:
    """Handlers of both tools."""

    def __init__(self, streams: StreamPort) -> None:
        self._streams = streams

    def handler(
        self, deadline: float, profile: str | None, exported: Callable[[Call, RawJson], RawJson]
    ) -> CallHandler:
        """For a caller with this soft deadline in seconds; `exported` gives results its URIs."""
        return partial(self._answered, _Caller(deadline, profile, exported))

    async def _answered(self, caller: _Caller, call: Call, channel: CallChannel) -> Completed:
        name = msgspec.json.decode(call.params["name"], type=str)
        try:
            answer = await (self._cancel(caller, call) if name == CANCEL else self._wait(caller, call, channel))
        except (StoreError, InvalidParams, EventsGone, Busy) as problem:
            reason = problem.public if isinstance(problem, StoreError) else problem
            return Completed.of(f"{name}: {reason}", is_error=True)
        return _passed_on(caller, call, answer) if isinstance(answer, _Ended) else answer

    async def _cancel(self, caller: _Caller, call: Call) -> Completed:
        id_ = _arguments(call, _Stream).stream
        stream = await self._opened(caller, call, id_)
        name = stream.info.name
        if stream.info.has_ended:
            return Completed.of(f"The call of {name} has ended already: {WAIT} returns its result.")
        await stream.cancel(f"cancelled by the client ({CANCEL})")
        return Completed.of(f"The call of {name} is being cancelled.")

    async def _opened(self, caller: _Caller, call: Call, id_: str) -> StreamHandle:
        """Raises `UnknownStream`, also if the stream is not a tool call's."""
        stream = await self._streams.open(call.principal, id_, caller.profile)
        if stream.info.method != "tools/call":
            raise UnknownStream
        return stream

    async def _wait(self, caller: _Caller, call: Call, channel: CallChannel) -> Completed | _Ended:
        arguments = _arguments(call, _Wait)
        after = _cursor(arguments.after)
        stream = await self._opened(caller, call, arguments.stream)
        if stream.info.has_ended:
            return _Ended(stream.info, ending_of(stream.info, await stream.ending()))
        was_orphan = stream.is_orphan
        waiting = StreamWait(stream, after, channel, call.asks_client)
        try:
            ending = await waiting.ending(caller.deadline * _SHARE, is_modern=call.era is Era.MODERN)
        finally:
            waiting.close()
            if was_orphan:
                stream.let_go(was_orphan=True)
        if ending is not None:
            return _Ended(stream.info, ending)
        questions = (await stream.questions()).values()
        text = still_running(stream.id, waiting.cursor, waiting.transcript, "New output", call, questions)
        answer = with_mark(Completed.of(text).result, stream.id, waiting.cursor, stream.info.status)
        return Completed(answer)


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

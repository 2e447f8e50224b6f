"""One inner call, and its ending for the script."""

import math
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Literal, Protocol

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel, Question, Questions, Times
from mcp_hub.calls.code.state import InnerCall
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.hub_tools.stream_wait import StreamWait
from mcp_hub.calls.reading.stored import ending_of
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.steps import CodeLimits, CodeRaise
from mcp_hub.code.values import value_of
from mcp_hub.errors import HubRestarted, HubStopping, RpcError, StoreError, UnknownStream
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Ending,
    Failed,
    ToolResult,
    failed_by,
    said_of_cancel,
)
from mcp_hub.masking import hide_head
from mcp_hub.types import CallId, CodeMode, RawJson, RawObject

_PAUSE: Final = 1.0
"""Seconds between looks into a store that has failed."""
_TRIES: Final = 300
_SHOWN: Final = 16 << 10
"""Bytes of a result in an event."""
_RESTARTED: Final = frozenset({"hub_restarted", "owner_lost"})

Recovered = Ending | Literal["unsent"] | None
"""The ending of a call of a lost hub; None: nobody knows it."""


class _Port(Protocol):
    """A session's tools for a script, by the present rules."""

    @property
    def streams(self) -> StreamPort: ...

    @property
    def limits(self) -> CodeLimits: ...

    def mode(self, call: Call) -> CodeMode:
        """The mode of the caller's profile."""

    async def tools(self, call: Call, code: str) -> tuple[dict[str, str], str]:
        """Exported names of the code's tools, by Python name, and their stubs."""

    def signatures(self, call: Call, message: str) -> list[str]:
        """Lines of tools that a message about a script names, or nearly."""

    def traits(self, call: Call, tool: str) -> Collection[str] | None:
        """The tool's traits; None: the caller has no such tool."""

    def begin(self, call: Call, inner: InnerCall, *, must_read: bool) -> CallHandle:
        """Sends an inner call. Raises `RpcError`."""


async def _only_here(call: Call, channel: CallChannel) -> None:
    """No other hub can run the same code."""


class CodeParts(msgspec.Struct, frozen=True):
    """The parts that all runs share. `is_lasting`: a durable store is configured. `patience`: seconds for it to
    answer. `rarely`: seconds between commits of a script that only reads, since it can read again.
    `alone` raises before a run's first write, if another hub runs the same code. `key` may raise
    `StoreUnavailable`.
    """

    engine: CodeEngine
    port: _Port
    key: Callable[[], bytes]
    is_lasting: bool = True
    patience: float = 60.0
    rarely: float = 0.25
    alone: Callable[[Call, CallChannel], Awaitable[None]] = _only_here


class _Quiet:
    """The channel of a script, for a call that is followed elsewhere: it takes questions alone."""

    stopping: Ending | None = None
    survives = False

    def __init__(self, channel: CallChannel) -> None:
        self._channel = channel

    @property
    def times(self) -> Times:
        return self._channel.times

    @property
    def questions(self) -> Questions:
        return self._channel.questions

    def send(self, event: CallEvent) -> None:
        self._channel.times.touch()

    def ask(self, question: Question) -> str:
        return self._channel.ask(question)

    def continuable(self, state: RawJson | None, *, is_firm: bool = False, is_quiet: bool = False) -> None:
        """The script keeps its own state."""

    async def until_stored(self, *, whole: bool) -> None:
        """Nothing is stored."""

    async def drained(self) -> None:
        """Nothing is sent."""


async def recovered(streams: StreamPort, call: Call, channel: CallChannel, id_: CallId) -> Recovered:
    """The ending of the inner call with this stream, which is followed if it runs."""
    for _ in range(_TRIES):
        try:
            stream = await streams.open(call.principal, id_, None)
            if stream.info.has_ended:
                return _certain(ending_of(stream.info, await stream.ending()))
            wait = StreamWait(stream, stream.info.last, _Quiet(channel), call.asks_client)
            try:
                ending = await wait.ending(math.inf, is_modern=False)
            finally:
                wait.close()
            return None if ending is None else _certain(ending)
        except UnknownStream:
            return None
        except (StoreError, RpcError):
            await anyio.sleep(_PAUSE)
    return None


def _certain(ending: Ending) -> Recovered:
    if failed_by(ending, HubStopping):
        return None if isinstance(ending, Failed) and ending.error.is_outcome_unknown else "unsent"
    if failed_by(ending, HubRestarted) or (isinstance(ending, Failed) and ending.error.symbol in _RESTARTED):
        return None
    return ending


def unknown_outcome(inner: InnerCall) -> CodeRaise:
    """The exception at a call that may have acted."""
    arguments = msgspec.json.decode(inner.arguments)
    reason = f"{inner.tool} (call {inner.id}) was sent, and whether it has acted is not known: "
    reason += "the hub or the server was lost meanwhile"
    return CodeRaise("OutcomeUnknown", reason, {"tool": inner.tool, "arguments": arguments})


def outcome_of(inner: InnerCall, ending: Ending) -> RawJson | CodeRaise:
    """The ending as the script gets it."""
    match ending:
        case Completed(result=result):
            return value_of(result, inner.key)
        case Failed(error=error) if inner.effect.writes and error.is_outcome_unknown:
            return unknown_outcome(inner)
        case Failed(error=error):
            if error.symbol == "not_read_only":
                return CodeRaise("PermissionError", error.message)
            return CodeRaise("ToolError", error.message, {"code": error.symbol, "number": error.code})
        case Cancelled(reason=reason):
            is_unknown = inner.effect.writes
            return unknown_outcome(inner) if is_unknown else CodeRaise("ToolError", said_of_cancel(reason))


class _Content(msgspec.Struct):
    content: msgspec.Raw = msgspec.Raw(b"[]")


def result_event(inner: InnerCall, ending: Ending | None) -> ToolResult:
    """The event of an outcome; long ones are cut."""
    outcome = inner.answer
    if isinstance(outcome, CodeRaise):
        return ToolResult.of(inner.key, f"{outcome.kind}: {outcome.message}", is_error=True)
    if isinstance(ending, Completed) and len(ending.result) <= _SHOWN:
        content = content_of(ending.result)
        if content is not None:
            return ToolResult(inner.key, content)
    return ToolResult.of(inner.key, hide_head(bytes(outcome), _SHOWN, "…"))


def content_of(result: RawJson) -> RawJson | None:
    """The array of blocks, if any."""
    try:
        content = msgspec.json.decode(result, type=_Content).content
    except (msgspec.DecodeError, RecursionError):
        return None
    return content if bytes(memoryview(content)[:1]) == b"[" else None


def blocks_of(result: RawJson) -> list[RawObject]:
    """The blocks of a result that has media, each with encoded members."""
    content = content_of(result)
    try:
        return [] if content is None else msgspec.json.decode(content, type=list[RawObject])
    except (msgspec.DecodeError, RecursionError):
        return []

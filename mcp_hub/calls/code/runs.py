"""All runs of a hub: begun, continued, and the same code again.

A caller's equal code gets the result of the run under way, or of one that ended within ten minutes and whose result
nobody took: a client's time-out must not double the writes.
"""

import math
from collections import OrderedDict
from collections.abc import Awaitable
from typing import Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.call import Call, CallChannel, StreamInfo
from mcp_hub.calls.code.inner import CodeParts
from mcp_hub.calls.code.run import calls_made, resumed, started, unbegun
from mcp_hub.calls.code.state import likeness, likeness_of, not_resumable, unsealed, writes_of
from mcp_hub.calls.hub_tools.stream_wait import StreamWait
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.reading.stored import ending_of
from mcp_hub.calls.streams.port import StreamHandle, StreamPort
from mcp_hub.clock import wall_time
from mcp_hub.code.source import cleaned
from mcp_hub.code.steps import CodeError, engine_version
from mcp_hub.errors import CallCancelled, InvalidParams, RpcError, StoreError, StoreUnavailable, UnknownStream
from mcp_hub.events import Cancelled, Completed, Ending, Failed, is_by_client, said_of_cancel
from mcp_hub.logs import get_logger
from mcp_hub.protocol.notifications import names_timeout
from mcp_hub.types import OWN, CallId, JsonObject, RawJson, plural

log = get_logger(__name__)

_AGAIN: Final = 600.0
"""Seconds for which an ending that nobody received is kept for the same code."""
_SEARCHED: Final = 200
"""Newest streams of a principal among which an earlier run is looked for."""
_MOST_SEARCHED: Final = 3200
"""The most, if all of them are recent."""
_RECEIVED: Final = 1024
"""Received endings that are remembered."""
_PROBLEMS: Final = 4
_LOOK: Final = 0.05
_LOOKS: Final = 40
_AGAIN_IN: Final = 0.5
"""Seconds until a run is followed again."""
_DAY: Final = 86400.0


class _Arguments(msgspec.Struct):
    code: str
    again: bool = False


class _EarlierRun(RpcError):
    """Another hub's run of this code comes first."""

    def __init__(self, id_: CallId) -> None:
        super().__init__(f"The same code runs as {id_}.")
        self.id = id_


class CodeRuns:
    """Runs of `run_code` and script tools; continues lost hubs' runs."""

    name = OWN

    def __init__(self, parts: CodeParts) -> None:
        self._parts = replace(parts, alone=self._stays_alone)
        self._running: dict[str, CallId] = {}
        """Runs at this hub by likeness, from their begin on; the newest of equal ones."""
        self._searching: set[str] = set()
        self._received: OrderedDict[CallId, None] = OrderedDict()

    @property
    def limits(self) -> TimeLimits:
        silence = self._parts.port.limits.silence
        return TimeLimits(silence, _DAY, setting="hub.code_limits.silence", answer=_DAY)

    @property
    def _streams(self) -> StreamPort:
        return self._parts.port.streams

    def likeness(self, call: Call) -> str:
        """The digest of a call's stream; empty for a call without code."""
        try:
            return likeness(call, _arguments(call).code)
        except InvalidParams:
            return ""

    def keep(self, call: Call, channel: CallChannel) -> None:
        """Lets another hub begin the call anew as long as it has called nothing."""
        try:
            channel.continuable(unbegun(self._parts, call, _arguments(call).code), is_quiet=True)
        except (InvalidParams, StoreUnavailable):
            """Nothing will run."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        """Runs the code of a call of `run_code`. A mistake in it is a result."""
        try:
            arguments = _arguments(call)
        except InvalidParams as mistake:
            return Completed.of(mistake.message, is_error=True)
        return await self.run(call, channel, arguments.code, is_new=arguments.again)

    async def run(self, call: Call, channel: CallChannel, code: str, *, is_new: bool = False) -> Completed:
        """Runs `code`, unless it runs or its last result was not received; `is_new`: always.

        Raises `RpcError`, among them `StoreUnavailable` if no other hub could continue it; then nothing has run.
        """
        self._parts.key()
        alike = likeness(call, code)
        if call.upstream != OWN:
            channel.continuable(unbegun(self._parts, call, code), is_quiet=True)
        if not is_new and (completed := await self._answered(call, channel, alike)) is not None:
            return completed
        self._running[alike] = call.id
        try:
            return await self._explained(call, self._started(call, channel, code))
        except _EarlierRun as earlier:
            return await self._joined(call, channel, earlier.id)
        finally:
            self._leave(call, channel, alike)

    async def resume(self, call: Call, channel: CallChannel, state: RawJson) -> Completed:
        """Continues a run of another hub; one that was cancelled does nothing more.

        Raises `RpcError`, among them `code_not_resumable`.
        """
        writer = self._streams.table.owned(call.id)
        if writer is None:
            raise not_resumable("its stream is not this hub's")
        row, point = writer.stream.row, writer.record.resumption
        try:
            run = unsealed(state, row, call, engine_version(), self._parts.key())
        except RpcError as error:
            raise await self._with_calls(error, call.id) from None
        if point is not None and point.revoked is not None:
            for inner in run.in_flight:
                await self._cancel(call, inner.stream, point.revoked)
            raise CallCancelled(f"The script was cancelled: {point.revoked}")
        if not run.snapshot:
            is_own = call.upstream == OWN
            return await (self.call(call, channel) if is_own else self.run(call, channel, run.code))
        alike = likeness(call, run.code)
        self._running[alike] = call.id
        try:
            return await self._explained(call, resumed(self._parts, call, channel, run))
        except _EarlierRun as first:
            return await self._joined(call, channel, first.id)
        finally:
            self._leave(call, channel, alike)

    async def unreadable(self, row: StreamInfo, reason: str) -> RpcError:
        """The error of a run of another hub whose record cannot be read."""
        return await self._with_calls(not_resumable(f"its state cannot be read: {reason}"), row.id)

    async def close(self) -> None:
        """Ends the engine. Idempotent."""
        await self._parts.engine.close()

    async def _cancel(self, call: Call, stream: CallId, reason: str) -> None:
        try:
            await self._streams.table.cancel(call.principal, stream, reason)
        except (StoreError, UnknownStream):
            """It has no stream: its hub has taken it along."""

    # -- one run

    async def _started(self, call: Call, channel: CallChannel, code: str) -> Completed:
        return await started(self._parts, call, channel, cleaned(code))

    async def _explained(self, call: Call, run: Awaitable[Completed]) -> Completed:
        """The result of a run. A script's mistake is a result; a limit raises `RpcError` with its name."""
        try:
            return await run
        except CodeError as error:
            if error.kind in ("syntax", "types", "raised"):
                return await self._mistaken(call, error)
            symbol = "code_limit" if error.kind == "limit" else f"code_{error.kind}"
            data: JsonObject = {"limit": f"hub.code_limits.{error.key}"} if error.key else {}
            problem = RpcError(_located(error), symbol=symbol, data=data)
        except RpcError as error:
            problem = error
        raise await self._with_calls(problem, call.id)

    async def _mistaken(self, call: Call, error: CodeError) -> Completed:
        text = _located(error)
        if error.kind in ("syntax", "types"):
            reasons = [
                f"line {number}: {reason}" if number else reason for number, reason in error.problems[1:_PROBLEMS]
            ]
            signatures = self._parts.port.signatures(call, "\n".join([str(error), *reasons]))
            text = "\n".join([text, *reasons, *signatures, "Nothing was called."])
        if error.kind == "raised" and (calls := await calls_made(self._streams.table, call.id)):
            failed = [str(call["tool"]) for call in calls if call["outcome"] != "ok"]
            text += f"\nBefore that it made {plural(len(calls), 'call')}"
            text += f", without a result: {', '.join(failed)}." if failed else "."
        return Completed.of(text, is_error=True)

    async def _with_calls(self, error: RpcError, id_: CallId) -> RpcError:
        if not error.symbol.startswith("code_"):
            return error
        data = {**(error.data or {}), "calls": await calls_made(self._streams.table, id_)}
        return RpcError(error.message, code=error.code, symbol=error.symbol, data=data)

    def _leave(self, call: Call, channel: CallChannel, alike: str) -> None:
        """A run has ended; whether somebody was there for its result. One that this hub has anew continues."""
        writer = self._streams.table.owned(call.id)
        if writer is not None and writer.record is not channel:
            return
        if self._running.get(alike) == call.id:
            del self._running[alike]
        if writer is not None and writer.absence.until is None:
            self._received[call.id] = None
            while len(self._received) > _RECEIVED:
                self._received.popitem(last=False)

    # -- the same code again

    async def _answered(self, call: Call, channel: CallChannel, alike: str) -> Completed | None:
        """The result of the run with equal code; None: this call is next.

        Raises `StoreUnavailable`, `CallCancelled`, and that run's error.
        """
        while (id_ := self._running.get(alike)) is not None or alike in self._searching:
            if id_ is not None and self._streams.table.owned(id_) is not None:
                return await self._joined(call, channel, id_)
            await anyio.sleep(_LOOK)  # a run that never becomes durable has called nothing
        self._searching.add(alike)  # whose outcome may be to join the call that would join it
        try:
            row = await self._kept(call, alike)
        finally:
            self._searching.discard(alike)
        return None if row is None else await self._joined(call, channel, row.id)

    async def _kept(self, call: Call, alike: str) -> StreamInfo | None:
        rows = await self._equal(call, alike)
        mine = self._streams.table.owned(call.id)
        since = math.inf if mine is None else mine.stream.row.created  # of two that were lost the later one waits
        return next((row for row in rows if (row.created, row.id) < (since, call.id) and self._answers(row)), None)

    async def _equal(self, call: Call, alike: str) -> list[StreamInfo]:
        """Streams with equal code among the newest, and all of the last minutes. Raises `StoreUnavailable`."""
        limit, rows = _SEARCHED, list[StreamInfo]()
        try:
            while limit <= _MOST_SEARCHED:
                rows = await self._streams.newest(call.principal, limit, None)
                if len(rows) < limit or wall_time() - rows[-1].created > _AGAIN:
                    break
                limit *= 4
        except StoreError as problem:
            raise StoreUnavailable(f"The code was not run: {problem.public}") from None
        equal = (row for row in rows if alike in (row.digest.rpartition(" ")[2], _likeness_in(row, call)))
        return [row for row in equal if self._streams.shows(call.profile, row)]

    async def _stays_alone(self, call: Call, channel: CallChannel) -> None:
        """Looks for equal code begun at another hub at the same time; both streams are stored by now.

        The later one joins the earlier one. The earlier one waits for that, and ends if not seen by the later one. One
        that may have written is always joined. Raises `_EarlierRun`, `RpcError`.
        """
        mine = self._streams.table.owned(call.id)
        if mine is None or call.upstream != OWN or (arguments := _arguments(call)).again:
            return
        row, is_first = mine.stream.row, True
        for _ in range(_LOOKS):
            rows = await self._equal(call, likeness(call, arguments.code))
            concurrent = [each for each in rows if _is_concurrent(each, row)]
            if not concurrent:
                return
            first = min(concurrent, key=lambda each: (writes_of(each.continuation) == "soon", each.created, each.id))
            is_first = writes_of(first.continuation) == "soon" and (row.created, row.id) < (first.created, first.id)
            if not is_first:
                break
            await anyio.sleep(_LOOK)
        log.warning("code_begun_twice", stream=call.id, first=first.id)
        channel.continuable(unbegun(self._parts, call, arguments.code))  # nothing of it may be resumed
        await channel.until_stored(whole=False)
        if not is_first:
            raise _EarlierRun(first.id)
        reason = (
            f"The same code began at another hub at the same time, as {first.id}. Nothing was sent here: call again"
        )
        raise RpcError(reason, symbol="code_not_stored")

    def _answers(self, row: StreamInfo) -> bool:
        if row.id in self._received:  # perhaps its ending is on its way to the store yet
            return False
        is_recent = wall_time() - row.updated < _AGAIN and row.status != "cancelled"
        return not row.has_ended or (is_recent and writes_of(row.continuation) == "perhaps")

    async def _joined(self, call: Call, channel: CallChannel, id_: CallId) -> Completed:
        """The result of that run, which is followed again once a store that fails is back. Raises its error."""
        until = anyio.current_time() + self._parts.patience
        while True:
            try:
                stream = await self._streams.open(call.principal, id_, call.profile)
                is_late = stream.info.has_ended
                ending = ending_of(stream.info, await stream.ending()) if is_late else None
                ending = ending or await self._awaited(stream, call, channel)
                break
            except StoreError as problem:
                if anyio.current_time() >= until:
                    text = f"The same code runs already, and cannot be followed: {problem.public}"
                    raise StoreUnavailable(text) from None
            await anyio.sleep(_AGAIN_IN)
        mine = self._streams.table.owned(call.id)
        if mine is None or mine.absence.until is None:
            self._received[id_] = None
        else:  # its own client has left, and no other has had the result
            self._received.pop(id_, None)
        match ending:
            case Completed():
                return _noted(ending, stream) if is_late else ending
            case Failed(error=error):
                raise error
            case Cancelled(reason=reason):
                raise CallCancelled(said_of_cancel(reason))
            case _:
                raise UnknownStream

    async def _awaited(self, stream: StreamHandle, call: Call, channel: CallChannel) -> Ending | None:
        was_orphan = stream.is_orphan
        wait = StreamWait(stream, stream.info.last, channel, call.asks_client)
        try:
            return await wait.ending(math.inf, is_modern=False)
        except anyio.get_cancelled_exc_class():
            reason = channel.stopping.reason if isinstance(channel.stopping, Cancelled) else None
            if was_orphan and is_by_client(reason) and not names_timeout(reason):
                with anyio.move_on_after(1, shield=True):
                    await stream.cancel(reason or "")
            raise
        finally:
            wait.close()
            if was_orphan:
                stream.let_go(was_orphan=True)


def _arguments(call: Call) -> _Arguments:
    try:
        return msgspec.json.decode(call.params.get("arguments", b"{}"), type=_Arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as problem:
        raise InvalidParams(f"wrong arguments: {problem}. Give it `code`, a script.") from None


def _likeness_in(row: StreamInfo, call: Call) -> str:
    """That of a script that is a tool, of the server of `call`: its stream began before its code was known."""
    return likeness_of(row.continuation) if OWN != call.upstream == row.server else ""


def _is_concurrent(row: StreamInfo, mine: StreamInfo) -> bool:
    """Whether its run has called writing tools since mine began, or is about to.

    Two runs of one hub know each other.
    """
    if row.id == mine.id or (row.owner == mine.owner and row.epoch == mine.epoch == 1):
        return False
    writes = writes_of(row.continuation)
    return writes == "perhaps" and row.updated >= mine.created if row.has_ended else bool(writes)


def _located(error: CodeError) -> str:
    line = f"line {error.line}: " if error.line else ""
    kind = f"{error.exception}: " if error.exception not in ("", "ToolError") else ""
    return f"{line}{kind}{error}" + (f"\n    {error.source}" if error.source else "")


def _noted(completed: Completed, stream: StreamHandle) -> Completed:
    """The result of an ended run, which says that it is one."""
    result = msgspec.json.decode(completed.result)
    seconds = max(wall_time() - stream.info.updated, 0.0)
    text = f"(The same code has run already, {seconds:.0f} s ago, as {stream.id}. With again: true it runs anew.)"
    blocks = result.get("content") if isinstance(result, dict) else None
    if not isinstance(blocks, list):
        return completed
    return replace(
        completed, result=msgspec.json.encode({**result, "content": [*blocks, {"type": "text", "text": text}]})
    )

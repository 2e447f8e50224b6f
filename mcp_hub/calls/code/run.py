"""One run of a script, from step to step. One task changes its state; outcomes and answers wait for it.

    engine    runs until nothing can continue without an answer
    commit    state, and the events since: new calls, outcomes, what was printed
    send      calls that the present rules let go, right after the commit that names them as sent
    wait      for an outcome, the caller's answer, the end of a sleep
    commit    outcomes of calls that cannot be repeated, and calls that may go
    feed      outcomes, in their order; then the engine again

A call is held until a commit says that it is sent. A hub that takes over sends what is held, and looks up or repeats
what is sent; only a call that may have acted and cannot be looked up gets `OutcomeUnknown`.

Where a durable store is configured, a commit that only memory has does not count.
"""

from typing import Final

import anyio
import msgspec

from mcp_hub.call import Call, CallChannel
from mcp_hub.calls.code.inner import CodeParts
from mcp_hub.calls.code.sending import BEAT, InnerCalls
from mcp_hub.calls.code.state import InnerCall, RunState, sealed
from mcp_hub.calls.reading.stored import event_of, fetched
from mcp_hub.calls.streams.owners import lost_call
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.clock import wall_time
from mcp_hub.code.steps import CodeError, CodeLimits, CodeStep, engine_version
from mcp_hub.code.values import handle_parts, result_of
from mcp_hub.errors import RpcError, StoreError, UnknownStream
from mcp_hub.events import Completed, Delta, Progressed, ToolCall, ToolResult
from mcp_hub.logs import get_logger
from mcp_hub.types import CallId, JsonObject, RawJson, plural

log = get_logger(__name__)

_CRASHES: Final = 2
"""Lost workers that a run survives."""
_LOOK: Final = 0.25
"""Seconds between looks at a store that has failed."""
_PAGE: Final = 1000


async def started(parts: CodeParts, call: Call, channel: CallChannel, code: str) -> Completed:
    """Runs a script from its begin. Raises `CodeError`, `RpcError`."""
    names, stubs = await parts.port.tools(call, code)
    state = RunState(code, names=names)
    script = _Script(parts, state)
    step = await _first_step(script, stubs)
    return await _Run(parts, call, channel, state=state, script=script).result(step)


async def _first_step(script: "_Script", stubs: str) -> CodeStep:
    try:
        return await script.start(stubs)
    except BaseException:
        await script.close()
        raise


def unbegun(parts: CodeParts, call: Call, code: str) -> msgspec.Raw:
    """The state of a script that has called nothing: another hub begins it anew."""
    return msgspec.Raw(sealed(RunState(code), call, _epoch(call, parts), engine_version(), parts.key()))


async def resumed(parts: CodeParts, call: Call, channel: CallChannel, state: RunState) -> Completed:
    """Continues a script of another hub. Raises `CodeError`, `RpcError`."""
    state.unsend()
    return await _Run(parts, call, channel, state=state, script=_Script(parts, state)).result(None)


class _Script:
    """The engine's side of a run. A lost worker is replaced by one with the last snapshot."""

    def __init__(self, parts: CodeParts, state: RunState) -> None:
        self.limits: CodeLimits = parts.port.limits
        self._engine = parts.engine
        self._state = state
        self._session = parts.engine.session()
        self._is_loaded = False
        self._printed: list[str] = []

    async def start(self, stubs: str) -> CodeStep:
        """The first step. Raises `CodeError`, `RpcError`."""
        names, code = self._state.names, self._state.code
        while True:
            try:
                step = await self._session.start(code, stubs, names, self.limits, self._printed.append)
            except CodeError as error:
                await self._replace(error)
            else:
                self._is_loaded = True
                return step

    async def feed(self) -> CodeStep:
        """The step after all outcomes. Raises `CodeError`, `RpcError`."""
        fed = self._state.unfed
        answers = {inner.id: inner.answer for inner in fed}
        while True:
            try:
                if not self._is_loaded:
                    await self._session.load(self._state.snapshot, self.limits, self._printed.append)
                    self._is_loaded = True
                step = await self._session.feed(answers)
            except CodeError as error:
                await self._replace(error)
            else:
                self._state.forget(fed)
                return step

    async def _replace(self, error: CodeError) -> None:
        """Another worker for a lost one. Raises any other error, and `RpcError` for one too many."""
        await self._session.close()
        if error.kind != "crashed":
            raise error
        crashes = self._state.count_crash()
        log.warning("code_worker_lost", crashes=crashes, reason=str(error))
        if crashes > _CRASHES:
            reason = f"The process that runs the script was lost {crashes} times: {error}"
            raise RpcError(reason, symbol="code_crashed") from None
        self._printed.clear()
        self._session, self._is_loaded = self._engine.session(), False

    def take_printed(self) -> str:
        text = "".join(self._printed)
        self._printed.clear()
        return text

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._session.close()


class _Run:
    """A run at this hub. `state` is what was committed last, and what has changed since."""

    def __init__(self, parts: CodeParts, call: Call, channel: CallChannel, state: RunState, script: _Script) -> None:
        self._parts = parts
        self._call = call
        self._channel = channel
        self._state = state
        self._script = script
        self._calls = InnerCalls(parts, call, channel, state=state, keep=self._keep)
        self._is_dirty = False
        self._due = anyio.current_time() + parts.rarely  # of a commit that nothing waits for
        self._counted = state.ended  # in the progress

    async def result(self, step: CodeStep | None) -> Completed:
        """Runs the script to its end; `step` None: from its last snapshot."""
        problem: CodeError | RpcError | None = None
        output: RawJson = b"null"
        try:
            async with anyio.create_task_group() as self._tasks:
                try:
                    output = await self._loop(step)
                except (CodeError, RpcError) as error:
                    problem = error
                self._tasks.cancel_scope.cancel()
        finally:
            self._calls.close()
            await self._script.close()
        self._note_printed()
        self._flush()
        if problem is not None:
            with anyio.move_on_after(self._parts.patience):  # who explains it reads the log
                await self._channel.until_stored(whole=False)
            raise problem
        return Completed(result_of(output, self._block, self._state.history.printed))

    async def _loop(self, step: CodeStep | None) -> RawJson:
        if step is None:
            self._calls.look_up(self._tasks)
        while step is None or not step.has_ended:
            if step is not None:
                self._take(step)
            step = await self._advanced()
        while any(inner.effect.writes for inner in self._state.in_flight):  # that the script has not waited for
            await self._calls.wait()
            self._calls.take_in()
        return step.output or b"null"

    async def _advanced(self) -> CodeStep | None:
        """Commits what is new, sends what may go; the next step, or None if it is not time for one."""
        is_vital = self._calls.take_in()
        outcomes = self._state.outcomes
        sends = self._calls.release()
        self._is_dirty |= is_vital or bool(sends) or self._state.outcomes > outcomes
        if is_vital or any(inner.effect.writes for inner in sends) or (self._is_dirty and self._due_in <= 0):
            await self._commit(sends)
        else:
            for inner in sends:
                self._calls.send(inner, self._tasks, is_judged=True)
        if self._state.unfed:
            return await self._script.feed()
        await self._calls.wait(self._due_in if self._is_dirty else BEAT)
        return None

    @property
    def _due_in(self) -> float:
        return self._due - anyio.current_time()

    def _take(self, step: CodeStep) -> None:
        """Makes a step part of the state."""
        limits = self._script.limits
        if len(step.snapshot) > limits.snapshot:
            reason = f"The script's state has {len(step.snapshot)} bytes, more than hub.code_limits.snapshot "
            reason += f"({limits.snapshot}). Nothing was sent after the last step."
            data: JsonObject = {"limit": "hub.code_limits.snapshot", "value": limits.snapshot}
            raise RpcError(reason, symbol="code_snapshot_too_large", data=data)
        begun = self._state.take(step.snapshot, step.calls, wall_time())
        if self._state.calls > limits.calls:
            raise CodeError("limit", f"the script made more than {plural(limits.calls, 'call')}", key="calls")
        self._calls.events.extend(
            ToolCall(inner.key, inner.tool, inner.arguments, inner.line) for inner in begun if inner.tool
        )
        self._note_printed()
        self._is_dirty |= bool(begun)

    def _note_printed(self) -> None:
        if text := self._script.take_printed():
            self._state.note_printed(text)
            self._calls.events.append(Delta(msgspec.json.encode([{"type": "text", "text": text}])))
            self._is_dirty = True

    def _block(self, handle: str) -> RawJson | None:
        parts = handle_parts(handle)
        block = None if parts is None else self._calls.block(*parts)
        return None if block is None else msgspec.json.encode(block)

    # -- the log

    async def _commit(self, sends: list[InnerCall]) -> None:
        """Commits the state, then sends."""
        is_firm = any(inner.effect.writes for inner in sends)
        self._is_dirty = False
        self._due = anyio.current_time() + self._parts.rarely
        self._flush()
        self._write(is_firm=is_firm)
        await self._safe(is_firm=is_firm)
        if is_firm and not self._state.history.may_write:
            await self._parts.alone(self._call, self._channel)
            self._state.claim()
            self._write(is_firm=True)
            await self._safe(is_firm=True)
        for inner in sends:
            if not self._may_send():
                await self._safe(is_firm=is_firm)
            self._calls.send(inner, self._tasks)

    def _keep(self) -> None:
        """Writes the state with the events so far. It is whole whenever this task waits."""
        self._flush()
        self._write(is_firm=True)

    def _write(self, *, is_firm: bool) -> None:
        epoch = _epoch(self._call, self._parts)
        state = sealed(self._state, self._call, epoch, engine_version(), self._parts.key())
        self._channel.continuable(msgspec.Raw(state), is_firm=is_firm)

    def _flush(self) -> None:
        for event in self._calls.take_events():
            self._channel.send(event)
        if self._counted < self._state.ended:
            self._counted = self._state.ended
            text = msgspec.Raw(msgspec.json.encode(f"{plural(self._counted, 'call')} done"))
            self._channel.send(Progressed(float(self._counted), None, {"message": text}))

    @property
    def _table(self) -> StreamTable:
        return self._parts.port.streams.table

    def _may_send(self) -> bool:
        return _may_send(self._call, self._channel, self._table, is_lasting=self._parts.is_lasting)

    async def _safe(self, *, is_firm: bool) -> None:
        """Returns once all so far is stored. Raises `RpcError` (`code_not_stored`)."""
        with anyio.move_on_after(self._parts.patience):
            while True:
                await self._channel.until_stored(whole=False)
                if self._may_send():
                    return
                writer = self._table.owned(self._call.id)
                if writer is None or writer.is_over or writer.stream.is_lost:
                    break
                await anyio.sleep(_LOOK)
                self._write(is_firm=is_firm)
        writer = self._table.owned(self._call.id)
        if writer is not None and writer.stream.is_lost:
            raise lost_call(self._call.upstream)
        reason = "The script was ended: its state could not be stored, and nothing is sent before it is."
        raise RpcError(reason, symbol="code_not_stored", data={"seconds": self._parts.patience})


def _epoch(call: Call, parts: CodeParts) -> int:
    writer = parts.port.streams.table.owned(call.id)
    return 1 if writer is None else writer.stream.row.epoch


def _may_send(call: Call, channel: CallChannel, streams: StreamTable, *, is_lasting: bool) -> bool:
    """Whether all events are safe, no other hub can have the run, and it is not cancelled."""
    writer = streams.owned(call.id)
    if writer is None or writer.is_over or channel.stopping is not None:
        return False
    stream, store = writer.stream, streams.store.log
    has_failed = writer.error is not None or stream.failed is not None or stream.is_lost
    return not has_failed and store.is_held(call.id) and (not is_lasting or store.survives(call.id))


async def calls_made(streams: StreamTable, id_: CallId) -> list[JsonObject]:
    """The calls in the log: tool, and whether it failed or has no result."""
    calls: dict[str, JsonObject] = {}
    after = 0
    try:
        row = await streams.store.log.find(id_)
        while row is not None and after < row.last and (lines := await fetched(streams.store.log, id_, after, _PAGE)):
            after += len(lines)
            for event in map(event_of, lines):
                if isinstance(event, ToolCall):
                    calls[event.call] = {"call": event.call, "tool": event.name, "outcome": "unknown"}
                elif isinstance(event, ToolResult) and event.call in calls:
                    calls[event.call]["outcome"] = "error" if event.is_error else "ok"
    except (StoreError, UnknownStream):
        return []
    return list(calls.values())

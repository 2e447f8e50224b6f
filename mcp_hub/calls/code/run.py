"""One run of a script, from step to step. One task changes its state; outcomes and answers wait for it.

    engine    runs until nothing can continue without an answer
    commit    state, and the events since: new calls, outcomes, what was printed
    send      calls that the rules of now let go, right after the commit that names them as sent
    wait      for an outcome, the caller's answer, the end of a sleep
    commit    outcomes, and calls that may go now
    feed      outcomes, in the order of the commits; then the engine again

A call is `held` until a commit says that it is sent. A hub that takes over sends what is held, and looks up or repeats
what is sent; only a call that may have acted and cannot be looked up gets `OutcomeUnknown`.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import anyio.abc
import msgspec

from mcp_hub.aio import Bell
from mcp_hub.call import Call, CallChannel, CallEnded, Question
from mcp_hub.calls.code import consent
from mcp_hub.calls.code.inner import (
    CodePort,
    Recovered,
    blocks_of,
    followed,
    outcome_of,
    recovered,
    result_event,
    unknown_outcome,
)
from mcp_hub.calls.code.journal import may_send, until_safe
from mcp_hub.calls.code.state import SLEEP, InnerCall, RunState, sealed
from mcp_hub.calls.handle import CallHandle
from mcp_hub.clock import wall_time
from mcp_hub.code.engine import CodeCall, CodeEngine, CodeError, CodeRaise, CodeSession, CodeStep, engine_version
from mcp_hub.code.source import lines_around
from mcp_hub.code.values import handle_parts, result_of
from mcp_hub.errors import HubStopping, OwnerLost, RpcError
from mcp_hub.events import (
    CallEvent,
    Cancelled,
    Completed,
    Delta,
    Failed,
    Progressed,
    ToolCall,
    failed_by,
)
from mcp_hub.ids import new_call_id
from mcp_hub.logs import get_logger
from mcp_hub.protocol.shape.questions import ELICIT
from mcp_hub.types import CallId, RawJson, RawObject, plural

log = get_logger(__name__)

_BEAT: Final = 10.0
"""Seconds between signs of life of a run whose calls are under way."""
_CRASHES: Final = 2
"""Lost workers that a run survives."""
_MEDIA: Final = 16 << 20
"""Bytes of results with media that are kept for the result of the script."""


class CodeParts(msgspec.Struct, frozen=True):
    """What all runs share. `is_lasting`: a durable store is configured. `patience`: seconds for it to answer."""

    engine: CodeEngine
    port: CodePort
    key: Callable[[], bytes]
    is_lasting: bool = True
    patience: float = 60.0


class CodeRun:
    """One run at this hub. `state` is what was committed last, and what has changed since."""

    def __init__(self, parts: CodeParts, call: Call, channel: CallChannel, state: RunState) -> None:
        self.state = state
        self._parts = parts
        self._call = call
        self._channel = channel
        self._events: list[CallEvent] = []  # not sent yet
        self._printed: list[str] = []
        self._is_dirty = False
        self._arrived: deque[tuple[int, CallId, Recovered]] = deque()
        self._answers: deque[tuple[int, RawJson | RpcError]] = deque()
        self._asking: int | None = None
        self._media: dict[str, list[RawObject]] = {}
        self._media_size = 0
        self._bell = Bell()
        self._limits = parts.port.limits

    # -- from the first step to the result

    async def started(self, stubs: str) -> Completed:
        """Runs the script from its begin. Raises `CodeError`, `RpcError`."""
        while True:
            session = self._parts.engine.session()
            try:
                names = self.state.names
                step = await session.start(self.state.code, stubs, names, self._limits, self._printed.append)
            except CodeError as error:
                await session.close()
                self._note_crash(error)
            else:
                return await self._finished(session, step)

    async def resumed(self) -> Completed:
        """Continues a run of another hub. Raises `CodeError`, `RpcError`."""
        session = self._parts.engine.session()
        return await self._finished(session, None)

    async def _finished(self, session: CodeSession, step: CodeStep | None) -> Completed:
        self._session, self._is_loaded = session, step is not None
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
            with anyio.CancelScope(shield=True):
                await self._session.close()
        self._show()
        self._flush()
        if problem is not None:
            raise problem
        return Completed(result_of(output, self._block))

    async def _loop(self, step: CodeStep | None) -> RawJson:
        if step is None:
            for inner in list(self.state.in_flight):
                self._tasks.start_soon(self._recover if inner.tool else self._sleep, inner)
        while True:
            if step is not None:
                if step.has_ended:
                    await self._settle()
                    return step.output or b"null"
                self._take(step)
            step = await self._advanced()

    async def _advanced(self) -> CodeStep | None:
        """Commits what is new, sends what may go; the next step, or None if it is not time for one."""
        self._take_in()
        sends = self._released()
        if self._is_dirty or sends:
            await self._commit(is_firm=any(inner.writes for inner in sends))
            for inner in sends:
                if not self._may_send():
                    await self._safe()
                self._send(inner)
        if self.state.unfed:
            return await self._fed()
        self._channel.times.touch()
        await self._bell.wait(_BEAT)
        return None

    async def _settle(self) -> None:
        """Waits for writing calls that the script has not waited for."""
        while any(inner.writes for inner in self.state.in_flight):
            self._channel.times.touch()
            await self._bell.wait(_BEAT)
            self._take_in()

    # -- the engine

    def _take(self, step: CodeStep) -> None:
        """Makes a step part of the state."""
        state, now = self.state, wall_time()
        if len(step.snapshot) > self._limits.snapshot:
            size, limit = len(step.snapshot), self._limits.snapshot
            reason = f"The script's state of {size} bytes is over hub.code_limits.snapshot ({limit}): nothing was sent."
            raise RpcError(reason, symbol="code_snapshot_too_large", data={"limit": "snapshot", "value": limit})
        state.snapshot = step.snapshot
        state.calls += sum(call.name != SLEEP for call in step.calls)
        if state.calls > self._limits.calls:
            reason = f"the script made more than {plural(self._limits.calls, 'call')}"
            raise CodeError("limit", reason, key="calls")
        for call in step.calls:
            inner = state.inner[call.id] = self._new_inner(call, now)
            if inner.tool:
                self._events.append(ToolCall(inner.key, inner.tool, inner.arguments))
        self._is_dirty = self._is_dirty or bool(step.calls)
        self._show()

    def _new_inner(self, call: CodeCall, now: float) -> InnerCall:
        key, arguments = new_call_id(), msgspec.Raw(bytes(call.arguments))
        if call.name == SLEEP:
            until = now + float(msgspec.json.decode(arguments, type=dict[str, float]).get("seconds", 0.0))
            return InnerCall(call.id, "", arguments, call.line, key, key, until=until)
        return InnerCall(call.id, self.state.names.get(call.name, call.name), arguments, call.line, key, key)

    async def _fed(self) -> CodeStep:
        """Feeds committed outcomes; a lost worker is replaced by one with the last snapshot."""
        fed = self.state.unfed
        answers = {inner.id: inner.answer for inner in fed}
        while True:
            try:
                if not self._is_loaded:
                    await self._session.load(self.state.snapshot, self._limits, self._printed.append)
                    self._is_loaded = True
                step = await self._session.feed(answers)
            except CodeError as error:
                await self._session.close()
                self._note_crash(error)
                self._session, self._is_loaded = self._parts.engine.session(), False
            else:
                for inner in fed:
                    del self.state.inner[inner.id]
                return step

    def _note_crash(self, error: CodeError) -> None:
        """Counts a lost worker. Raises any other error, and `RpcError` (`code_crashed`) for one too many."""
        if error.kind != "crashed":
            raise error
        self.state.crashes += 1
        self._printed.clear()
        log.warning("code_worker_lost", call_id=self._call.id, crashes=self.state.crashes, reason=str(error))
        if self.state.crashes > _CRASHES:
            reason = f"The process that runs the script was lost {self.state.crashes} times: {error}"
            raise RpcError(reason, symbol="code_crashed") from None

    def _show(self) -> None:
        """Makes what was printed an event."""
        if self._printed:
            block = {"type": "text", "text": "".join(self._printed)}
            self._printed.clear()
            self._events.append(Delta(msgspec.json.encode([block])))
            self._is_dirty = True

    def _block(self, handle: str) -> RawJson | None:
        parts = handle_parts(handle)
        blocks = [] if parts is None else self._media.get(parts[0], [])
        index = 0 if parts is None else parts[1]
        return msgspec.json.encode(blocks[index]) if index < len(blocks) else None

    # -- outcomes and answers

    def _take_in(self) -> None:
        """Takes what has come since the last commit."""
        while self._arrived:
            id_, stream, ending = self._arrived.popleft()
            inner = self.state.inner.get(id_)
            if inner is not None and inner.stream == stream and not inner.has_outcome:
                self._note_ending(inner, ending)
        while self._answers:
            self._note_answer(*self._answers.popleft())

    def _note_ending(self, inner: InnerCall, ending: Recovered) -> None:
        if ending == "unsent" or (ending is None and inner.repeats and self._may_repeat(inner)):
            inner.again(new_call_id())
            inner.is_sent = False
            self._is_dirty = True
        elif ending is None:
            self._conclude(inner, unknown_outcome(inner))
        elif isinstance(ending, Completed | Failed | Cancelled):
            if isinstance(ending, Completed) and not ending.is_plain and self._media_size < _MEDIA:
                self._media[inner.key] = blocks_of(ending.result)
                self._media_size += len(ending.result)
            self._conclude(inner, outcome_of(inner, ending) if inner.tool else b"null", ending)

    def _may_repeat(self, inner: InnerCall) -> bool:
        traits = self._parts.port.traits(self._call, inner.tool)
        return traits is not None and (consent.READ_ONLY in traits or consent.IDEMPOTENT in traits)

    def _conclude(
        self, inner: InnerCall, outcome: RawJson | CodeRaise, ending: Completed | Failed | Cancelled | None = None
    ) -> None:
        """Sets the outcome of a call, the next one in order."""
        state = self.state
        state.outcomes += 1
        inner.order = state.outcomes
        if isinstance(outcome, CodeRaise):
            inner.error = outcome
        else:
            inner.value = msgspec.Raw(bytes(outcome))
        self._is_dirty = True
        if inner.tool:
            state.done += 1
            message = {"message": msgspec.Raw(msgspec.json.encode(f"{plural(state.done, 'call')} done"))}
            self._events += [result_event(inner, ending), Progressed(float(state.done), None, message)]

    def _note_answer(self, id_: int, outcome: RawJson | RpcError) -> None:
        inner, self._asking = self.state.inner.get(id_), None
        if inner is None or inner.has_outcome:
            return
        match consent.chosen(outcome):
            case "no":
                self._conclude(inner, consent.refused(inner, "the caller did not allow it"))
            case choice:
                inner.is_cleared = self._is_dirty = True
                if choice == "run" and inner.tool not in self.state.allowed:
                    self.state.allowed.append(inner.tool)

    # -- calls that go

    def _released(self) -> list[InnerCall]:
        """Held calls that go with the next commit, by the rules of now; refused ones get their outcome."""
        sends, port = [], self._parts.port
        room = self._limits.parallel - sum(bool(inner.tool) for inner in self.state.in_flight)
        mode = port.mode(self._call) if self.state.held else "off"
        for inner in self.state.held:
            if not inner.tool:
                sends.append(inner)
                continue
            traits = port.traits(self._call, inner.tool)
            verdict = consent.verdict(mode, inner, traits, self.state.allowed)
            if isinstance(verdict, CodeRaise):
                has_acted = inner.attempt > 1 and inner.writes
                self._conclude(inner, unknown_outcome(inner) if has_acted else verdict)
            elif verdict == "ask":
                self._ask(inner, is_destructive=consent.DESTRUCTIVE in (traits or ()))
            elif room > 0:
                room -= 1
                inner.writes = consent.READ_ONLY not in (traits or ())
                inner.repeats = not inner.writes or consent.IDEMPOTENT in (traits or ())
                self.state.writes += inner.writes
                sends.append(inner)
        for inner in sends:
            inner.is_sent = True
        return sends

    def _ask(self, inner: InnerCall, *, is_destructive: bool) -> None:
        """Asks the caller for one call; the others wait."""
        if self._asking is not None:
            return
        lines = lines_around(self.state.code, inner.line) if inner.line else ""
        params = consent.question(inner, self.state, lines, is_destructive=is_destructive)
        if (lack := self._call.lack(ELICIT, params)) is not None:
            reason = f"hub.code is `ask`, and nobody can be asked: {lack}"
            self._conclude(inner, consent.refused(inner, reason))
            return
        self._asking = inner.id
        self._channel.ask(Question(ELICIT, params, partial(self._answered, inner.id)))

    def _answered(self, id_: int, outcome: RawJson | RpcError) -> None:
        if not isinstance(outcome, CallEnded):
            self._answers.append((id_, outcome))
            self._bell.ring()

    def _send(self, inner: InnerCall) -> None:
        if not inner.tool:
            self._tasks.start_soon(self._sleep, inner)
            return
        must_read = not inner.writes and self._parts.port.mode(self._call) != "all"
        try:
            handle = self._parts.port.begin(self._call, inner, must_read=must_read)
        except RpcError as error:
            self._arrive(inner, inner.stream, Failed(error))
        else:
            self._tasks.start_soon(self._follow, inner, inner.stream, handle)

    async def _follow(self, inner: InnerCall, stream: CallId, handle: CallHandle) -> None:
        try:
            ending = await followed(handle, self._channel)
        except anyio.get_cancelled_exc_class():
            if not self._channel.survives:
                handle.cancel("its script has ended")
            raise
        if failed_by(ending, HubStopping):
            return  # this hub stops: another one continues
        if failed_by(ending, OwnerLost):
            await self._recover(inner)
        else:
            self._arrive(inner, stream, ending)

    async def _recover(self, inner: InnerCall) -> None:
        stream = inner.stream
        self._arrive(inner, stream, await recovered(self._parts.port.streams, self._call, self._channel, stream))

    async def _sleep(self, inner: InnerCall) -> None:
        while (seconds := inner.until - wall_time()) > 0:  # noqa: ASYNC110 - by a clock that may be set
            await anyio.sleep(min(seconds, _BEAT))
        self._arrive(inner, inner.stream, Completed(b"null", is_plain=True))

    def _arrive(self, inner: InnerCall, stream: CallId, ending: Recovered) -> None:
        self._arrived.append((inner.id, stream, ending))
        self._bell.ring()

    # -- the log

    async def _commit(self, *, is_firm: bool) -> None:
        self._is_dirty = False
        self._flush()
        self._write(is_firm=is_firm)
        await self._safe(is_firm=is_firm)

    async def _safe(self, *, is_firm: bool = True) -> None:
        await until_safe(
            self._call, self._channel, self._parts.port.streams.table, partial(self._write, is_firm=is_firm),
            is_lasting=self._parts.is_lasting, seconds=self._parts.patience,
        )  # fmt: skip

    def _write(self, *, is_firm: bool) -> None:
        writer = self._parts.port.streams.table.owned(self._call.id)
        epoch = 1 if writer is None else writer.stream.row.epoch
        state = sealed(self.state, self._call, epoch, engine_version(), self._parts.key())
        self._channel.continuable(msgspec.Raw(state), is_firm=is_firm)

    def _may_send(self) -> bool:
        table = self._parts.port.streams.table
        return may_send(self._call, self._channel, table, is_lasting=self._parts.is_lasting)

    def _flush(self) -> None:
        events, self._events = self._events, []
        for event in events:
            self._channel.send(event)

"""The inner calls of one run: held, let go, asked for, sent, followed. Changes the state; commits nothing."""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from mcp_hub.aio import Bell
from mcp_hub.call import Call, CallChannel, CallEnded, Question
from mcp_hub.calls.code import consent
from mcp_hub.calls.code.inner import (
    CodeParts,
    Recovered,
    blocks_of,
    followed,
    outcome_of,
    recovered,
    result_event,
    unknown_outcome,
)
from mcp_hub.calls.code.state import InnerCall, RunState
from mcp_hub.calls.handle import CallHandle
from mcp_hub.clock import wall_time
from mcp_hub.code.source import lines_around
from mcp_hub.code.steps import CodeRaise
from mcp_hub.errors import HubStopping, OwnerLost, RpcError, StoreError, UnknownStream
from mcp_hub.events import Completed, Ending, Failed, ToolResult, failed_by
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.shape.questions import ELICIT
from mcp_hub.types import CallId, CodeMode, RawJson, RawObject

BEAT: Final = 10.0
"""Seconds between signs of life of a run whose calls are under way."""
_CANCEL: Final = 1.0
"""Seconds for another hub to hear that the script has ended."""
_MEDIA: Final = 16 << 20
"""Bytes of results with media that are kept for the result of the script."""


class InnerCalls:
    """Inner calls. Outcomes wait until `take_in`; `results` are events that are not sent yet.

    `keep` writes the state to the log: an answer of the caller is stored together with what it allows.
    """

    def __init__(
        self, parts: CodeParts, call: Call, channel: CallChannel, *, state: RunState, keep: Callable[[], None]
    ) -> None:
        self.results: list[ToolResult] = []
        self._parts = parts
        self._call = call
        self._channel = channel
        self._state = state
        self._news: deque[tuple[int, CallId, Recovered]] = deque()
        self._keep = keep
        self._asking: int | None = None
        self._media: dict[str, list[RawObject]] = {}
        self._bell = Bell()

    async def wait(self) -> None:
        """Waits for news, or a while."""
        self._channel.times.touch()
        await self._bell.wait(BEAT)

    def block(self, call: str, index: int) -> RawObject | None:
        """The block of a call's result, if it has media and this hub has seen it."""
        blocks = self._media.get(call, [])
        return blocks[index] if index < len(blocks) else None

    # -- outcomes

    def take_in(self) -> bool:
        """Takes what has come; whether it has to be committed before it is fed, or a call is sent."""
        is_vital = False
        while self._news:
            id_, stream, ending = self._news.popleft()
            inner = self._state.inner.get(id_)
            if inner is not None and inner.stream == stream and inner.outcome is None:
                is_vital |= self._note_ending(inner, ending)
        return is_vital

    def _note_ending(self, inner: InnerCall, ending: Recovered) -> bool:
        if ending == "unsent" or (ending is None and self._may_repeat(inner)):
            inner.hold(new_call_id(), was_sent=ending is None)
        elif ending is None or isinstance(ending, str):
            self._conclude(inner, unknown_outcome(inner))
        else:
            size = sum(map(len, self._media.values()))
            if isinstance(ending, Completed) and not ending.is_plain and size < _MEDIA:
                self._media[inner.key] = blocks_of(ending.result)
            self._conclude(inner, outcome_of(inner, ending) if inner.tool else b"null", ending)
        return not inner.effect.repeats  # what can be had again goes with the next commit

    def _may_repeat(self, inner: InnerCall) -> bool:
        traits = self._parts.port.traits(self._call, inner.tool) if inner.effect.repeats else None
        return traits is not None and (consent.READ_ONLY in traits or consent.IDEMPOTENT in traits)

    def _conclude(self, inner: InnerCall, outcome: RawJson | CodeRaise, ending: Ending | None = None) -> None:
        self._state.conclude(inner, outcome)
        if inner.tool:
            self.results.append(result_event(inner, ending))

    # -- calls that go

    def release(self) -> list[InnerCall]:
        """Lets held calls go with the next commit, by the present rules; refused ones get their outcome."""
        state, sends = self._state, []
        waiting = state.held
        mode = self._parts.port.mode(self._call) if waiting else "off"
        room = self._parts.port.limits.parallel - sum(bool(inner.tool) for inner in state.in_flight)
        for inner in waiting:
            traits = self._parts.port.traits(self._call, inner.tool) if inner.tool else ()
            verdict = self._verdict(inner, mode)
            if isinstance(verdict, CodeRaise):
                self._conclude(inner, unknown_outcome(inner) if inner.may_have_acted else verdict)
            elif verdict == "ask":
                self._ask(inner, is_destructive=consent.DESTRUCTIVE in (traits or ()))
            elif not inner.tool:
                state.send(inner)
                sends.append(inner)
            elif room > 0:
                room -= 1
                writes = consent.READ_ONLY not in (traits or ())
                state.send(inner, writes=writes, repeats=not writes or consent.IDEMPOTENT in (traits or ()))
                sends.append(inner)
        return sends

    def _verdict(self, inner: InnerCall, mode: CodeMode) -> consent.Verdict:
        if not inner.tool:
            return "go"
        traits = self._parts.port.traits(self._call, inner.tool)
        return consent.verdict(mode, inner, traits, self._state.allowed)

    def _ask(self, inner: InnerCall, *, is_destructive: bool) -> None:
        """Asks the caller for one call; the others wait."""
        if self._asking is not None:
            return
        lines = lines_around(self._state.code, inner.line) if inner.line else ""
        params = consent.question(inner, self._state, lines, is_destructive=is_destructive)
        if (lack := self._call.lack(ELICIT, params)) is not None:
            reason = f"hub.code is `ask`, and nobody can be asked: {lack}"
            self._conclude(inner, consent.refused(inner, reason))
            return
        self._asking = inner.id
        self._channel.ask(Question(ELICIT, params, partial(self._answered, inner.id)))

    def _answered(self, id_: int, outcome: RawJson | RpcError) -> None:
        if isinstance(outcome, CallEnded):
            return
        inner, self._asking = self._state.inner.get(id_), None
        self._bell.ring()
        if inner is None or inner.outcome is not None:
            return
        choice = consent.chosen(outcome)
        if choice == "no":
            self._conclude(inner, consent.refused(inner, "the caller did not allow it"))
        else:
            inner.clear()
        if choice == "run":
            self._state.allow(inner.tool)
        self._keep()

    def send(self, inner: InnerCall, tasks: TaskGroup) -> None:
        """Sends a call that is committed as sent, and follows it in `tasks`.

        One that the rules of this moment do not let go is held again: they may have changed during the commit.
        """
        if not inner.tool:
            tasks.start_soon(self._sleep, inner)
            return
        mode = self._parts.port.mode(self._call)
        if self._verdict(inner, mode) != "go":
            self._arrive(inner, inner.stream, "unsent")
            return
        must_read = not inner.effect.writes and mode != "all"
        try:
            handle = self._parts.port.begin(self._call, inner, must_read=must_read)
        except RpcError as error:
            self._arrive(inner, inner.stream, Failed(error))
            return
        result = handle.plain_result if handle.has_ended else None
        if result is not None:
            self._arrive(inner, inner.stream, result)
        else:
            tasks.start_soon(self._follow, inner, inner.stream, handle)

    def look_up(self, tasks: TaskGroup) -> None:
        """Looks up the calls that another hub may have sent."""
        for inner in self._state.in_flight:
            tasks.start_soon(self._recover if inner.tool else self._sleep, inner)

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
        streams, stream = self._parts.port.streams, inner.stream
        try:
            ending = await recovered(streams, self._call, self._channel, stream)
        except anyio.get_cancelled_exc_class():
            if not self._channel.survives:
                with anyio.move_on_after(_CANCEL, shield=True), suppress(StoreError, UnknownStream):
                    await streams.table.cancel(self._call.principal, stream, "its script has ended")
            raise
        self._arrive(inner, stream, ending)

    async def _sleep(self, inner: InnerCall) -> None:
        while (seconds := inner.until - wall_time()) > 0:  # noqa: ASYNC110 - by a clock that may be set
            await anyio.sleep(min(seconds, BEAT))
        self._arrive(inner, inner.stream, Completed(b"null", is_plain=True))

    def _arrive(self, inner: InnerCall, stream: CallId, ending: Recovered) -> None:
        self._news.append((inner.id, stream, ending))
        self._bell.ring()

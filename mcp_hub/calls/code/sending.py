"""The inner calls of one run: held, let go, asked for, sent, followed. Changes the state; commits nothing.

Calls here have no task: questions go to the script's caller, endings to the run's task.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from functools import partial
from typing import Final

import anyio
from anyio.abc import TaskGroup

from mcp_hub.aio import Bell, call_soon
from mcp_hub.call import Call, CallChannel, CallEnded, Question
from mcp_hub.calls.code import consent
from mcp_hub.calls.code.inner import (
    CodeParts,
    Recovered,
    blocks_of,
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
from mcp_hub.code.values import has_media
from mcp_hub.errors import HubStopping, RpcError, StoreError, UnknownStream
from mcp_hub.events import CallEvent, Completed, Ending, Failed, InputReceived, InputRequired, failed_by
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.shape.questions import ELICIT
from mcp_hub.types import CallId, RawJson, RawObject

BEAT: Final = 10.0
"""Seconds between signs of life of a run whose calls are under way."""
_CANCEL: Final = 1.0
"""Seconds for another hub to hear that the script has ended."""
_COPIES: Final = 4
"""Times that a result is in memory. Fewer calls are in flight if ones as long as the longest so far would fill it."""
_MEDIA: Final = 16 << 20
"""Bytes of results with media that are kept for the result of the script."""


class _Relay:
    """Asks the questions of an inner call through the channel of its script."""

    def __init__(self, channel: CallChannel, answer: Callable[[str, RawJson | RpcError], object]) -> None:
        self._channel = channel
        self._answer = answer
        self._open: dict[str, str] = {}  # keys of the inner call, to those of the script

    def take(self, event: CallEvent) -> None:
        if isinstance(event, InputRequired):
            answered = partial(self._answered, event.key)
            self._open[event.key] = ""
            key = self._channel.ask(Question(event.method, event.params, answered))
            if event.key in self._open:
                self._open[event.key] = key
        elif isinstance(event, InputReceived) and (key := self._open.pop(event.key, "")):
            self._channel.questions.withdraw(key)

    def _answered(self, key: str, outcome: RawJson | RpcError) -> None:
        if self._open.pop(key, None) is not None and not isinstance(outcome, CallEnded):
            self._answer(key, outcome)


class _Follower:
    """A call that runs here. `ended` is called once its ending may be there."""

    def __init__(
        self, inner: InnerCall, handle: CallHandle, channel: CallChannel, ended: Callable[["_Follower"], None]
    ) -> None:
        self.inner = inner
        self.stream = inner.stream
        self._handle = handle
        self._channel = channel
        self._ended = ended
        self._relay = _Relay(channel, handle.answer)
        self._is_due = False
        self._reader = handle.reader(self._wake)
        self._look()

    def _wake(self) -> None:
        if self._handle.has_ended:
            self._ended(self)
        elif not self._is_due:
            self._is_due = True
            call_soon(self._look)

    def _look(self) -> None:
        self._is_due = False
        if self._handle.has_ended:
            self._ended(self)
        else:
            self.take()

    def take(self) -> Ending | None:
        """Relays what has come; the ending, if it is there."""
        for event in self._reader.take():
            self._channel.times.touch()
            if isinstance(event, Ending):
                self._reader.close()
                return event
            self._relay.take(event)
        return None

    def close(self) -> None:
        self._reader.close()
        if not self._channel.survives:
            self._handle.cancel("its script has ended")


class _Inbox:
    """Endings that have come, and the calls that are followed. `recover` gets calls that another hub has taken."""

    def __init__(self, channel: CallChannel, recover: Callable[[InnerCall], None]) -> None:
        self.bell = Bell()
        self._channel = channel
        self._recover = recover
        self._endings: deque[tuple[int, CallId, Recovered]] = deque()
        self.longest = 1  # bytes of a result so far
        self._followers: dict[CallId, _Follower] = {}
        self._ended: deque[_Follower] = deque()

    def follow(self, inner: InnerCall, handle: CallHandle) -> None:
        self._followers[inner.stream] = _Follower(inner, handle, self._channel, self._ring)

    def _ring(self, follower: _Follower) -> None:
        self._ended.append(follower)
        self.bell.ring()

    def arrive(self, inner: InnerCall, stream: CallId, ending: Recovered) -> None:
        self._endings.append((inner.id, stream, ending))
        self.bell.ring()

    def take(self) -> Iterator[tuple[int, CallId, Recovered]]:
        """The endings, each once, with the call and its stream."""
        while self._ended:
            follower = self._ended.popleft()
            if follower.stream in self._followers and (ending := follower.take()) is not None:
                del self._followers[follower.stream]
                self._arrive_here(follower, ending)
        while self._endings:
            arrived = self._endings.popleft()
            if isinstance(arrived[2], Completed):
                self.longest = max(self.longest, len(arrived[2].result))
            yield arrived

    def _arrive_here(self, follower: _Follower, ending: Ending) -> None:
        if failed_by(ending, "owner_lost"):
            self._recover(follower.inner)
        elif not failed_by(ending, HubStopping):  # then another one continues
            self._endings.append((follower.inner.id, follower.stream, ending))

    def close(self) -> None:
        followers, self._followers = self._followers, {}
        for follower in followers.values():
            follower.close()


class InnerCalls:
    """Inner calls. Outcomes wait until `take_in`; `events` are those that are not sent yet.

    `keep` writes the state to the log: an answer of the caller is stored together with what it allows.
    """

    def __init__(
        self, parts: CodeParts, call: Call, channel: CallChannel, *, state: RunState, keep: Callable[[], None]
    ) -> None:
        self.events: list[CallEvent] = []
        self._parts = parts
        self._call = call
        self._channel = channel
        self._state = state
        self._inbox = _Inbox(channel, self._look_up)
        self._keep = keep
        self._asking: str | None = None  # the grant that is asked for
        self._media: dict[str, tuple[list[RawObject], int]] = {}
        """Blocks by call, and the bytes of its result."""
        self._tasks: TaskGroup | None = None

    async def wait(self, seconds: float = BEAT) -> None:
        """Waits for news, or so many seconds."""
        self._channel.times.touch()
        await self._inbox.bell.wait(max(seconds, 0.0))

    def take_events(self) -> list[CallEvent]:
        """The events so far, each once."""
        events, self.events = self.events, []
        return events

    def block(self, call: str, index: int) -> RawObject | None:
        """The block of a call's result, if it has media and this hub has seen it."""
        blocks, _ = self._media.get(call, ([], 0))
        return blocks[index] if index < len(blocks) else None

    # -- outcomes

    def take_in(self) -> bool:
        """Takes what has come; whether it has to be committed before it is fed, or a call is sent."""
        is_vital = False
        for id_, stream, ending in self._inbox.take():
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
            outcome = self._bounded(outcome_of(inner, ending)) if inner.tool else b"null"
            if isinstance(ending, Completed) and not isinstance(outcome, CodeRaise) and has_media(outcome):
                self._keep_media(inner.key, ending.result)
            self._conclude(inner, outcome, ending)
        return not inner.effect.repeats  # what can be had again goes with the next commit

    def _bounded(self, outcome: RawJson | CodeRaise) -> RawJson | CodeRaise:
        """The outcome, or an error if all that wait to be fed are more than the script can hold."""
        if isinstance(outcome, CodeRaise):
            return outcome
        unfed = (inner.answer for inner in self._state.unfed)
        size = len(outcome) + sum(len(answer) for answer in unfed if not isinstance(answer, CodeRaise))
        if size <= self._parts.port.limits.memory:
            return outcome
        reason = "the tool has answered, but the results that came at once are too long for a script"
        return CodeRaise("ToolError", reason)

    def _keep_media(self, key: str, result: RawJson) -> None:
        size = len(result) + sum(size for _, size in self._media.values())
        if size <= _MEDIA and (blocks := blocks_of(result)):
            self._media[key] = blocks, len(result)

    def _may_repeat(self, inner: InnerCall) -> bool:
        traits = self._parts.port.traits(self._call, inner.tool) if inner.effect.repeats else None
        return traits is not None and (consent.READ_ONLY in traits or consent.IDEMPOTENT in traits)

    def _conclude(self, inner: InnerCall, outcome: RawJson | CodeRaise, ending: Ending | None = None) -> None:
        self._state.conclude(inner, outcome)
        if inner.tool:
            self.events.append(result_event(inner, ending))

    # -- calls that go

    def release(self) -> list[InnerCall]:
        """Lets held calls go with the next commit, by present rules; refused ones get their outcome."""
        state, sends = self._state, []
        waiting = state.held
        limits = self._parts.port.limits
        parallel = min(limits.parallel, max(limits.memory // (_COPIES * self._inbox.longest), 1))
        room = parallel - sum(bool(inner.tool) for inner in state.in_flight)
        for inner in waiting:
            traits, verdict = self._judged(inner)
            if isinstance(verdict, CodeRaise):
                self._conclude(inner, unknown_outcome(inner) if inner.may_have_acted else verdict)
            elif verdict == "ask":
                self._ask(inner, traits)
            elif not inner.tool:
                state.send(inner)
                sends.append(inner)
            elif room > 0:
                room -= 1
                writes = consent.READ_ONLY not in traits
                state.send(inner, writes=writes, repeats=not writes or consent.IDEMPOTENT in traits)
                sends.append(inner)
        return sends

    def _judged(self, inner: InnerCall) -> tuple[Collection[str], consent.Verdict]:
        """The traits of a call's tool, and whether it may go, by the present rules."""
        if not inner.tool:
            return (), "go"
        port = self._parts.port
        traits = port.traits(self._call, inner.tool)
        if self._call.must_read and traits is not None and consent.READ_ONLY not in traits:
            return traits, consent.refused(
                inner, "it is not known as read-only, and its script was called to only read"
            )
        return traits or (), consent.verdict(port.mode(self._call), inner, traits, self._state.allowed)

    def _ask(self, inner: InnerCall, traits: Collection[str]) -> None:
        """Asks the caller for one call; the others wait."""
        if self._asking is not None:
            return
        lines = lines_around(self._state.code, inner.line) if inner.line else ""
        params = consent.question(inner, self._state, lines, is_destructive=consent.DESTRUCTIVE in traits)
        if (lack := self._call.lack(ELICIT, params)) is not None:
            reason = f"hub.code is `ask`, and nobody can be asked: {lack}"
            self._conclude(inner, consent.refused(inner, reason))
            return
        self._asking = consent.grant(inner, traits)
        self._channel.ask(Question(ELICIT, params, partial(self._answered, inner.id)))

    def _answered(self, id_: int, outcome: RawJson | RpcError) -> None:
        if isinstance(outcome, CallEnded):
            return
        inner, grant, self._asking = self._state.inner.get(id_), self._asking, None
        self._inbox.bell.ring()
        if inner is None or inner.outcome is not None:
            return
        choice, traits = consent.chosen(outcome), self._parts.port.traits(self._call, inner.tool) or ()
        if choice == "no":
            self._conclude(inner, consent.refused(inner, "the caller did not allow it"))
        elif consent.grant(inner, traits) != grant:
            return  # another tool has the name by now: it is asked for anew
        else:
            inner.clear()
            if choice == "run" and consent.DESTRUCTIVE not in traits:
                self._state.allow(grant)
        self._keep()

    def send(self, inner: InnerCall, tasks: TaskGroup, *, is_judged: bool = False) -> None:
        """Sends and follows a call committed as sent, in `tasks` if need be. `is_judged`: just now.

        Rules that have changed during the commit may hold it again.
        """
        self._tasks = tasks
        if not inner.tool:
            tasks.start_soon(self._sleep, inner)
            return
        if not is_judged and not self._may_go(inner):
            self._inbox.arrive(inner, inner.stream, "unsent")
            return
        must_read = self._call.must_read or (not inner.effect.writes and self._parts.port.mode(self._call) != "all")
        try:
            handle = self._parts.port.begin(self._call, inner, must_read=must_read)
        except RpcError as error:
            self._inbox.arrive(inner, inner.stream, Failed(error))
            return
        result = handle.plain_result if handle.has_ended else None
        if result is not None:
            self._inbox.arrive(inner, inner.stream, result)
        else:
            self._inbox.follow(inner, handle)

    def _may_go(self, inner: InnerCall) -> bool:
        traits, verdict = self._judged(inner)
        return verdict == "go" and (inner.effect.writes or consent.READ_ONLY in traits)

    def look_up(self, tasks: TaskGroup) -> None:
        """Looks up calls that another hub may have sent."""
        self._tasks = tasks
        for inner in self._state.in_flight:
            self._look_up(inner)

    def _look_up(self, inner: InnerCall) -> None:
        assert self._tasks is not None
        self._tasks.start_soon(self._recover if inner.tool else self._sleep, inner)

    def close(self) -> None:
        """The run has ended: so do its calls, unless another hub continues it."""
        self._inbox.close()

    async def _recover(self, inner: InnerCall) -> None:
        streams, stream = self._parts.port.streams, inner.stream
        try:
            ending = await recovered(streams, self._call, self._channel, stream)
        except anyio.get_cancelled_exc_class():
            if not self._channel.survives:
                with anyio.move_on_after(_CANCEL, shield=True), suppress(StoreError, UnknownStream):
                    await streams.table.cancel(self._call.principal, stream, "its script has ended")
            raise
        self._inbox.arrive(inner, stream, ending)

    async def _sleep(self, inner: InnerCall) -> None:
        while (seconds := inner.until - wall_time()) > 0:  # noqa: ASYNC110 - by a clock that may be set
            await anyio.sleep(min(seconds, BEAT))
        self._inbox.arrive(inner, inner.stream, Completed(b"null", is_plain=True))

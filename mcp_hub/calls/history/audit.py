"""The audit: a line for each call, question, login, approval and change of settings.

It takes the journal's ended calls, and events of the log with a member `audit`. 8,192 lines or 16 MiB may wait, then
the oldest are dropped, and counted in the next line. A thread writes; a failing place delays no call and no history.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import anyio
import anyio.to_thread
import msgspec

from mcp_hub import __version__
from mcp_hub.call import Call, Question
from mcp_hub.calls.gates.steps import Decision
from mcp_hub.calls.history.audit_lines import NAME, LineRules, decided, plain, quote, timestamp
from mcp_hub.calls.history.recent import shown_principal
from mcp_hub.calls.history.waiting import MOST, Portion
from mcp_hub.calls.metering import CallObserver, Outcome
from mcp_hub.calls.reading.stored import own_name
from mcp_hub.calls.runner import CallRecord, put_questions
from mcp_hub.calls.timeouts import OpenQuestions
from mcp_hub.clock import wall_time
from mcp_hub.errors import RpcError
from mcp_hub.events import Failed
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.protocol.shape.questions import ELICIT, action_of
from mcp_hub.protocol.shape.stream_events import code_of
from mcp_hub.types import CallId, RawJson

log = get_logger(__name__)

_MOST_BYTES: Final = 16 << 20
"""Bytes of lines that wait."""
_MOST_EVENTS: Final = 4096
_FEW: Final = 64
"""Lines whose bytes are not counted."""
_PACE: Final = 0.5
"""Seconds between two looks for events."""
_PATIENCE: Final = 5.0
"""Seconds between attempts to write."""
_HEADS: Final = 60.0
"""Seconds between two lines of the log with the end of the chain."""
_HUGE: Final = 1 << 15
"""Decisions that wait for the end of their calls; the oldest goes first."""
_OF_CALLS: Final = ("principal", "client", "tool", "decision", "rule", "outcome")
"""Members of an event that a line of a call has, too."""
_NOT_DATA: Final = frozenset({"event", "level", "timestamp", "upstream", "audit", *_OF_CALLS})
_TRACE: Final = re.compile(rb'"00-([0-9a-f]{32})-')
"""A `traceparent` (W3C Trace Context), encoded."""


_FOR_PEOPLE: Final = (ELICIT, "sampling/createMessage")
"""Questions with a line of their own: others are for the client alone."""


class _AuditedQuestions(OpenQuestions):
    """Questions of a call; `audit` gets the outcome of each for people, and the seconds it took."""

    audit: Callable[[Question, str, float], None] = lambda question, outcome, seconds: None
    begun: dict[str, float] = msgspec.field(default_factory=dict)

    def ask(self, question: Question) -> str:
        key = super().ask(question)
        if question.method in _FOR_PEOPLE and key in self.open:
            self.begun[key] = self.times.clock.now()
        return key

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        question, begun = self.open.get(key), self.begun.pop(key, None)
        is_open = super().answer(key, outcome)
        if question is not None and begun is not None:
            action = "failed" if isinstance(outcome, RpcError) else action_of(question.method, outcome) or "answered"
            self.audit(question, action, self.times.clock.now() - begun)
        return is_open

    def close(self) -> None:
        for key, begun in self.begun.items():
            if key in self.open:
                self.audit(self.open[key], "unanswered", self.times.clock.now() - begun)
        super().close()


class AuditPlace(Protocol):
    """The place of lines. All methods but the first three block, and raise `OSError`."""

    @property
    def location(self) -> str:
        """Path or name, for people."""

    @property
    def end(self) -> tuple[int, str]:
        """Number and hash of the last line."""

    def count(self, *, is_call: bool) -> None:
        """Counts a coming record. Quick; thread-safe for calls only."""

    def claim(self) -> None:
        """Finds the place, before the first call. Idempotent."""

    def lose(self, records: int) -> None:
        """So many counted records come before the next line, and get none."""

    def write(self, records: deque[bytes], header: bytes) -> None:
        """Writes lines of these members, and takes those that are written; `about` are those of its own lines."""

    def sync(self) -> None:
        """Waits until the lines are safe."""

    def close(self, header: bytes) -> None:
        """Writes the last line. Idempotent."""


class AuditTrail:
    """The audit of one hub. `trace_of`: the trace that the hub itself has begun for a running call."""

    def __init__(
        self, output: AuditPlace, rules: LineRules, hub: str, trace_of: Callable[[CallId], str | None] | None = None
    ) -> None:
        self.output = output
        self.failing = ""
        """Why writing fails now, or empty."""
        self.decisions: dict[CallId, Decision] = {}
        """Decisions of gates, taken with their calls."""
        self._rules = rules
        self._header = b'"time":"%%b","hub":%b,"version":%b' % (quote(hub), quote(__version__))
        self._trace_of = trace_of
        self._traces: dict[CallId, bytes] = {}
        self._waiting = _Waiting()
        self._turn = threading.Lock()
        self._news = anyio.Event()

    def claim(self) -> None:
        """Finds the place before the first call. Without it calls are counted until there is one."""
        try:
            self.output.claim()
        except OSError as problem:
            self._has_failed(problem)

    # -- on the way of calls ------------------------------------------------------------------------------------------

    def observing(self, keep: CallObserver) -> CallObserver:
        """An observer that counts calls, and notes their traces."""
        traces, output, trace_of = self._traces, self.output, self._trace_of

        def observed(record: CallRecord, outcome: Outcome, time: float) -> None:
            call = record.call
            output.count(is_call=True)
            trace = call.meta.get("traceparent") if call.meta else None
            if trace is not None:
                traces[call.id] = bytes(trace)
            elif trace_of is not None and (own_trace := trace_of(call.id)) is not None:
                traces[call.id] = b'"00-%b-"' % own_trace.encode()
            keep(record, outcome, time)

        return observed

    def watch(self, record: CallRecord) -> None:
        """Takes the questions of a call that may ask."""
        questions = record.questions
        if type(questions) is OpenQuestions:
            audited = _AuditedQuestions(
                log=questions.log, times=questions.times, count=questions.count, open=questions.open,
                audit=partial(self._note_question, record.call),
            )  # fmt: skip
            put_questions(record, audited)

    def _note_question(self, call: Call, question: Question, outcome: str, seconds: float) -> None:
        members = {
            "id": call.id, "principal": shown_principal(call.principal), "client": hide_head(call.client_name, NAME),
            "server": call.upstream, "tool": hide_head(own_name(call), NAME), "method": question.method,
            "outcome": outcome, "took": round(seconds, 3),
        }  # fmt: skip
        self._add("question", members)

    def event(self, event: Mapping[str, object]) -> None:
        """Takes an event of the log whose member `audit` is its kind, or that and a principal.

        Thread-safe, never waits.
        """
        kind, principal = event.get("audit"), event.get("principal")
        if isinstance(kind, tuple):
            kind, principal = kind
        if isinstance(kind, str):
            members = {"what": event.get("event"), "server": event.get("upstream")}
            members |= {name: event.get(name) for name in _OF_CALLS}
            members["principal"] = shown_principal(principal) if isinstance(principal, str) else None
            named = {name: plain(value) for name, value in members.items() if value is not None}
            data = {name: plain(value) for name, value in event.items() if name not in _NOT_DATA}
            self._add(kind, {**named, "data": data} if data else named)

    def _add(self, kind: str, members: Mapping[str, object]) -> None:
        line = b'"time":"%b","event":%b,%b' % (timestamp(wall_time()), quote(kind), quote(members)[1:-1])
        self._waiting.add_event(line, self.output)

    # -- off it -------------------------------------------------------------------------------------------------------

    def take(self, portions: Sequence[Portion], dropped: int, wall: float) -> None:
        """Takes ended calls; `wall` converts their times to Unix seconds. `dropped` ones have come and gone before."""
        if portions or dropped:
            self._waiting.add(portions, dropped, wall)
            self._news.set()

    async def run(self) -> None:
        """Writes lines until cancelled."""
        noted, seq = anyio.current_time(), 0
        while True:
            self._news = anyio.Event()
            with anyio.move_on_after(_PATIENCE if self.failing else _PACE):
                await self._news.wait()
            if self._waiting.is_any:
                await self._try(self._write)
            if anyio.current_time() >= noted + _HEADS:
                noted, before, (seq, head) = anyio.current_time(), seq, self.output.end
                if seq != before:
                    log.info("audit_head", location=self.output.location, seq=seq, head=head)
                    await self._try(self.output.sync)

    async def _try(self, job: Callable[[], object]) -> None:
        try:
            await anyio.to_thread.run_sync(job, abandon_on_cancel=True)
        except OSError as problem:
            self._has_failed(problem)
        else:
            if self.failing:
                log.warning("audit_written_again", location=self.output.location)
            self.failing = ""

    def _has_failed(self, problem: OSError) -> None:
        reason = problem.strerror or str(problem)
        if not self.failing:
            log.error("audit_not_written", location=self.output.location, reason=reason)
        self.failing = reason

    def _write(self) -> None:
        if not self._turn.acquire(timeout=_PATIENCE):  # a thread that was abandoned still writes
            raise OSError("an earlier write does not come back")
        try:
            lines, losses = self._waiting.lines(self._lines_of)
            self.output.lose(losses)
            self.output.write(lines, self._header % timestamp(wall_time()))
        finally:
            self._turn.release()

    def _lines_of(self, portion: Portion, wall: float) -> list[bytes]:
        """The lines of a portion's calls, without their chain."""
        rules, decisions, traces = self._rules, self.decisions, self._traces
        prefixes = [rules.prefix(*first) for first in portion.groups.firsts]
        codes = {
            index: code_of(ending.error) for index, ending in portion.endings.items() if isinstance(ending, Failed)
        }
        texts, sizes = rules.arguments_of(portion), () if portion.texts is None else portion.texts.sizes
        lines = []
        groups = portion.groups.spread(prefixes, len(portion))
        for index, (id_, end, start) in enumerate(zip(portion.ids, portion.ends, portion.starts, strict=True)):
            decision = decisions.pop(CallId(id_), None) if decisions else None
            trace = traces.pop(CallId(id_), None) if traces else None
            more = b"" if texts is None or not texts[index] else b',"arguments":%b' % texts[index]
            if sizes:
                more += b',"arguments_bytes":%d,"result_bytes":%d' % (sizes[2 * index], sizes[2 * index + 1])
            if index in codes:
                more += b',"code":%b' % quote(codes[index])
            if trace is not None and (match := _TRACE.match(trace)) is not None:
                more += b',"trace":"%b"' % match[1]
            lines.append(
                b'"time":"%b","event":"call","id":"%b",%b,%b,"took":%.6f%b'
                % (timestamp(end + wall), id_.encode(), decided(decision), groups[index], end - start, more)
            )
        _shorten(decisions)
        _shorten(traces)
        return lines

    async def close(self, seconds: float) -> None:
        """Writes the rest within so many seconds. Never raises."""
        with anyio.move_on_after(seconds, shield=True):
            await self._try(self._write)
            await self._try(partial(self.output.close, self._header % timestamp(wall_time())))


def _shorten(waiting: dict[CallId, Decision] | dict[CallId, bytes]) -> None:
    while len(waiting) > _HUGE:
        del waiting[next(iter(waiting))]


class _Waiting:
    """Portions, events and lines that are not written yet. The first two come from other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._portions: deque[tuple[Portion, float]] = deque()
        self._events: deque[bytes] = deque()
        self._lines: deque[bytes] = deque()
        self._losses = 0

    @property
    def is_any(self) -> bool:
        return bool(self._portions or self._events or self._lines)

    def add(self, portions: Sequence[Portion], dropped: int, wall: float) -> None:
        with self._lock:
            self._losses += dropped
            self._portions.extend((portion, wall) for portion in portions)
            while len(self._portions) > 1 and sum(len(portion) for portion, _ in self._portions) > MOST:
                self._losses += len(self._portions.popleft()[0])

    def add_event(self, line: bytes, output: AuditPlace) -> None:
        with self._lock:
            output.count(is_call=False)
            self._events.append(line)
            if len(self._events) > _MOST_EVENTS:
                self._events.popleft()
                self._losses += 1

    def lines(self, make: Callable[[Portion, float], list[bytes]]) -> tuple[deque[bytes], int]:
        """All lines that wait, to be taken as they are written; and how many are lost before the first of them."""
        with self._lock:
            portions, self._portions = self._portions, deque()
            events, self._events = self._events, deque()
            losses, self._losses = self._losses, 0
        lines = self._lines
        for portion, wall in portions:
            try:
                lines.extend(make(portion, wall))
            except Exception:  # a call that nobody expected does not end the audit
                log.exception("audit_lines_failed", calls=len(portion))
                losses += len(portion)
        lines.extend(events)
        size = sum(map(len, lines)) if len(lines) > _FEW else 0
        while len(lines) > MOST + _MOST_EVENTS or size > _MOST_BYTES:
            size -= len(lines.popleft())
            losses += 1
        return lines, losses

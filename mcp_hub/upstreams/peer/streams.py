"""Events of calls at a server that streams, in the order of their numbers (docs/specification/streams.md 3.7).

Repeated events are dropped. Missing ones are read while later ones wait, within bounds. A log event names unreadable
ones; then nothing more is read for the request.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final

import anyio
import msgspec

from mcp_hub.aio import Background
from mcp_hub.call import Call, CallChannel
from mcp_hub.errors import HttpRefused, RpcError, UpstreamLost
from mcp_hub.events import Log, Progressed
from mcp_hub.masking import hide_head, shown
from mcp_hub.protocol.jsonrpc.envelope import Envelope, number_key, object_bytes, raw_object, read_as
from mcp_hub.protocol.meta import PROGRESS_TOKEN, STREAMS, last_before
from mcp_hub.protocol.notifications import progressed
from mcp_hub.protocol.shape.produced import Numbered, of_server, page_of_server, taken_back
from mcp_hub.protocol.shape.questions import may_ask
from mcp_hub.types import CallId, RawJson, RawObject, plural
from mcp_hub.upstreams.peer.callers import context
from mcp_hub.upstreams.peer.questions import Asker
from mcp_hub.upstreams.peer.task_poll import Ask
from mcp_hub.wire.base import Pending

_READ: Final = f"{STREAMS}.read"
_GAP: Final = 10.0
"""Seconds for a gap while the call runs."""
_REST: Final = 5.0
"""Seconds that a response waits for what is missing."""
_PAGES: Final = 100
"""Pages, and tries, for one gap."""
_MOST_WAITING: Final = 10_000
_MOST_BYTES: Final = 4 << 20
"""Events that wait behind a gap, and bytes of their notifications."""
_PAUSE: Final = (0.25, 2.0)
"""Seconds between two tries: first, and at most."""
_SMALL: Final = msgspec.Raw(b"50")
"""Events in a page, after one that did not arrive."""
_PASSING: Final = (429, 502, 503, 504)
"""Statuses after which a read is tried again."""
_MOST_PAUSED: Final = 64
"""Streams that a repeated request may continue."""
_SHOWN: Final = 200
_TOO_LONG: Final = "reading took too long"


class _Losses:
    """Names unreadable events: the first ones where they are missing, others together."""

    def __init__(self, call: Call, channel: CallChannel) -> None:
        self.count = 0
        self._is_named = False
        self._server = f'server "{call.upstream}"'
        self._channel = channel

    def add(self, first: int, last: int, why: str) -> None:
        if self._is_named:
            self.count += last - first + 1
            return
        self._is_named = True
        numbers = f"event {first}" if first == last else f"events {first} to {last}"
        self._log(f"{numbers} of {self._server}, since {why}")

    def name_others(self) -> None:
        if self.count:
            self._log(f"{plural(self.count, 'more event')} of {self._server}")
            self.count = 0

    def _log(self, events: str) -> None:
        params = {"level": "warning", "logger": "mcp-hub", "data": f"Missing here: {events}"}
        self._channel.send(Log("warning", object_bytes(params)))


class _EventQueue:
    """Events behind a gap, and the bytes of their notifications."""

    def __init__(self) -> None:
        self.events: deque[Numbered] = deque()
        self._size = 0

    def put(self, events: Sequence[Numbered], size: int) -> None:
        self._size = self._size + size if self.events else size
        self.events += events

    @property
    def is_full(self) -> bool:
        return len(self.events) > _MOST_WAITING or (bool(self.events) and self._size > _MOST_BYTES)


class _ServerStream:
    """The events of one request. Up to number `last` none is missing, but for those that are lost."""

    def __init__(self, id_: str, last: int, asker: Asker, ask: Ask) -> None:
        self.id = id_
        self.last = last
        self.broken: str | None = None
        self._channel = asker[1]
        self._ask = ask
        self._waiting = _EventQueue()
        self._until = 0  # the last number before the ending, once that is known
        self._reading: Background | None = None
        self._refusal: str | None = None  # why nothing more is read
        self._losses = _Losses(*asker)

    def is_whole(self, until: int) -> bool:
        is_open = self._reading is not None or bool(self._waiting.events) or until > self.last
        return not is_open and self.broken is None and not self._losses.count

    def take(self, events: Sequence[Numbered], size: int) -> None:
        self._waiting.put(events, size)
        self._go_on()
        if self._waiting.is_full:
            self.give_up("too many later ones came meanwhile")

    async def finish(self, until: int) -> None:
        """Returns once nothing is missing, or nothing more is read."""
        self._until = until
        self._go_on()
        try:
            with anyio.move_on_after(_REST):
                while self._reading is not None:
                    await self._reading.wait()
        finally:
            self.give_up(_TOO_LONG)
        self._losses.name_others()

    def give_up(self, why: str) -> None:
        self._refusal = self._refusal or why
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
        self._go_on()

    @property
    def _goal(self) -> int:
        """The number up to which events are missing, if it is above `last`."""
        return self._waiting.events[0][0] - 1 if self._waiting.events else self._until

    def _go_on(self) -> None:
        """Sends what is in order, then reads or passes over what is missing."""
        waiting = self._waiting.events
        while self.broken is None:
            while waiting and waiting[0][0] <= self.last + 1:
                self._put(waiting.popleft())
            if self._goal <= self.last:
                return
            if self._refusal is None:
                self._channel.times.touch()
                self._reading = self._reading or Background(self._read)
                return
            self._pass_over(self._goal, self._refusal)
        waiting.clear()

    def _put(self, numbered: Numbered) -> None:
        number, event = numbered
        if number and number <= self.last:
            return
        self.last = number or self.last
        if event is not None:
            self._channel.send(event)

    def _pass_over(self, last: int, why: str) -> None:
        self._losses.add(self.last + 1, last, why)
        self.last = last

    async def _read(self) -> None:
        refusal: str | None = _TOO_LONG
        with anyio.move_on_after(_GAP):
            refusal = await self._fill()
        self._reading, self._refusal = None, self._refusal or refusal
        self._go_on()

    async def _fill(self) -> str | None:
        """Reads until nothing is missing; else why not."""
        pause = _PAUSE[0]
        params: RawObject = {"stream": msgspec.Raw(object_bytes(self.id))}
        for _ in range(_PAGES):
            before = self.last
            try:
                page = await self._ask(_READ, {**params, "cursor": msgspec.Raw(b'"%d"' % before)})
            except RpcError as error:
                if (wait := _pause_after(error, pause)) is None:
                    return f"it refused to read: {shown(hide_head(error.message, _SHOWN))}"
                await anyio.sleep(wait)
                pause, params["maxEvents"] = min(2 * pause, _PAUSE[1]), _SMALL
                continue
            self._take_page(page)
            if self.broken is not None or self._goal <= self.last:
                return None
            if self.last == before:
                return "it does not have them"
        return "there are too many"

    def _take_page(self, page: RawJson) -> None:
        try:
            events, is_truncated = page_of_server(page)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as exc:
            self.broken = f"a page of its stream that cannot be read: {exc}"
            return
        for number, event in events:
            if number > self.last + 1:
                if not is_truncated:
                    self.broken = f"a page of its stream that lacks event {self.last + 1}"
                    return
                self._pass_over(number - 1, "it does not keep them any more")
            is_truncated = False
            self._put((number, event))
        self._go_on()


def _pause_after(error: RpcError, pause: float) -> float | None:
    """Seconds until a read is tried again; None: it is refused (docs/specification/streams.md, CB-1)."""
    if error.raw is not None:
        busy = read_as(error.raw, _Busy)
        return None if busy is None else max(pause, busy.data.retryAfter)
    may_pass = error.status in _PASSING if isinstance(error, HttpRefused) else isinstance(error, UpstreamLost)
    return pause if may_pass else None


class _Later(msgspec.Struct):
    retryAfter: float


class _Busy(msgspec.Struct):
    data: _Later


Part = tuple[str, Sequence[Numbered], int]
"""The stream and the events of a notification, and its bytes."""


def unusual_progress(raw: RawJson | msgspec.UnsetType) -> tuple[int | None, Progressed | None, Part | None]:
    """The token and the event, or events, of progress with members or numbers that few servers send."""
    params = raw_object(raw)
    if not params or PROGRESS_TOKEN not in params or "progress" not in params:
        return None, None, None
    key = number_key(bytes(params.pop(PROGRESS_TOKEN)))
    part = of_server(params["_meta"]) if "_meta" in params else None
    return (key, progressed(params), None) if part is None else (key, None, (*part, len(params["_meta"])))


class ServerStreams:
    """The streams of requests at one server, which `ask` reads. `are_offered`: the server declares the extension."""

    def __init__(self, ask: Ask, are_offered: Callable[[], bool]) -> None:
        self.followed: dict[int, _ServerStream] = {}
        """The streams of which an event has come, by request ids."""
        self._ask = ask
        self._are_offered = are_offered
        self._paused: OrderedDict[str, tuple[int, CallId]] = OrderedDict()
        """The last number, and the call, of streams that ended with a question or wait for its answer."""

    def take(self, pending: Pending | None, asker: Asker, part: Part) -> None:
        """Takes events of a request; those of other servers, of tasks and without a token as they come."""
        stream, events, size = part
        following = None if pending is None else self.followed.get(pending.id)
        has_order = bool(stream and events) and asker[0].wants_progress and self._are_offered()
        if pending is None or not has_order:
            for _, event in events:
                if event is not None:
                    asker[1].send(event)
            return
        if following is None or following.id != stream:
            following = self._begin(pending, stream, events[0][0])
        following.take(events, size)

    def _begin(self, pending: Pending, stream: str, first: int) -> _ServerStream:
        """Partial content of the call's earlier stream is not part of its text (LV-18). A stream that only another
        connection knows is taken from its first event on.
        """
        asker = call, channel = context(pending)
        last, _ = self._paused.pop(stream, (0, ""))
        has_earlier = pending.id in self.followed or any(id_ == call.id for _, id_ in self._paused.values())
        self.drop(pending)
        if not last and has_earlier:
            channel.send(taken_back(1))
        elif not last and _is_repeated(call):
            last = first - 1
        self.followed[pending.id] = following = _ServerStream(stream, max(last, 1), asker, self._ask)
        return following

    def is_whole(self, pending: Pending, result: RawJson) -> bool:
        """Whether the result can be passed on at once, which ends the request."""
        following, (stream, until) = self.followed.get(pending.id), last_before(result)
        if following is None:
            return until <= 1 or not self._may_read(context(pending)[0])
        if not following.is_whole(until if stream == following.id else 0):
            return False
        del self.followed[pending.id]
        return True

    async def finish(self, pending: Pending, answer: Envelope) -> str | None:
        """Waits a moment for what is missing. The stream's fault, or None."""
        following = self.followed.get(pending.id)
        if following is None and not self._may_read(context(pending)[0]):
            return None
        stream, until = last_before(answer.result) if answer.kind == "result" else ("", 0)
        if following is None:
            if until <= 1:
                return None
            following = self._begin(pending, stream, 2)
        try:
            await following.finish(until if stream == following.id else 0)
        finally:
            del self.followed[pending.id]
        if answer.kind == "result" and may_ask(answer.result):
            self._paused[following.id] = following.last, context(pending)[0].id
            if len(self._paused) > _MOST_PAUSED:
                self._paused.popitem(last=False)
        return following.broken

    def _may_read(self, call: Call) -> bool:
        """Whether a mark without notifications shows that events are missing (EV-44)."""
        return call.wants_progress and self._are_offered() and not _is_repeated(call)

    def drop(self, pending: Pending) -> None:
        """Nothing more is read for the request."""
        if (following := self.followed.pop(pending.id, None)) is not None:
            following.give_up("the request is over")


def _is_repeated(call: Call) -> bool:
    return call.input_responses is not None or call.request_state is not None

"""Another answer to a request whose call takes long: a task, or the output so far. The call continues on its own."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from mcp_hub.aio import call_soon
from mcp_hub.call import EarlyOutput
from mcp_hub.calls.hub_tools.transcript import Transcript, still_running
from mcp_hub.calls.log import nobody
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.calls.streams.stream import StreamReader
from mcp_hub.errors import Busy
from mcp_hub.logs import get_logger

log = get_logger(__name__)

_MOST: Final = 2000
"""Bytes of the output that is shown: the end of it."""
_LATEST: Final = 1024
"""Events that are looked at for it."""


class EarlyAnswer(ABC):
    """Calls `ready` when the call has run for `after` seconds, and could be detached; never, if it cannot be.

    The time counts from the start of the call, or from now on if its client comes back to it (`is_retry`). It is the
    call's alarm: a timer of its own would cost half a kilobyte.
    """

    __slots__ = ("_ready", "_record", "_streams", "due")

    def __init__(
        self, record: CallRecord, streams: StreamPort, after: float, ready: Callable[[], None], *, is_retry: bool
    ) -> None:
        self._record = record
        self._streams = streams
        self._ready = ready
        now = record.times.clock.now()
        self.due = after + (now if is_retry else record.times.started)
        if self.due > now:
            record.set_alarm(self)
        else:  # the registry would ring a moment later
            call_soon(self.ring)

    def ring(self) -> None:
        if self._ready is not nobody and not self._record.log.ended:
            self._detach()

    @abstractmethod
    def _detach(self) -> None:
        """Has the call continue on its own, then calls `_ready`."""

    @abstractmethod
    def take(self) -> EarlyOutput:
        """The answer; from here on the call continues without its client."""

    def close(self) -> None:
        """The answer is not needed. Idempotent."""
        if self._record.times.alarm is self:
            self._record.set_alarm(None)
        self._ready = nobody


class TaskAnswer(EarlyAnswer):
    """The call becomes a task, once its first event is stored and the task can be asked for."""

    __slots__ = ("_stream",)

    def _detach(self) -> None:
        try:
            self._stream = self._streams.detach(self._record)
        except Busy as busy:
            log.info("task_refused", call_id=self._record.call.id, reason=str(busy))
        else:
            self._stream.on_stored(self._notify)

    def _notify(self) -> None:
        self._ready()

    def take(self) -> EarlyOutput:
        self._streams.leave(self._record)
        return EarlyOutput(self._stream.info)


class OutputSoFar(EarlyAnswer):
    """The client gets the output so far and what is asked, and the tools `hub_wait` and `hub_cancel` do the rest.

    A modern client is asked by the answer to its request anyway.
    """

    __slots__ = ("_reader", "_said")
    _reader: StreamReader | None

    def _detach(self) -> None:
        stream = self._streams.table.begin(self._record).stream
        after = max(stream.row.last - _LATEST, stream.row.first - 1)
        self._said = Transcript(_MOST, is_cut=after > 0)
        self._reader = None
        self._reader = stream.reader(self._look, after)
        self._look()

    def _look(self) -> None:
        """Takes what is committed; with the last of it the answer can be given."""
        reader = self._reader
        if reader is None or reader.is_closed:  # it is just being made
            return
        for event in reader.take():
            self._said.add(event)
        if self._record.log.ended or reader.failed is not None:
            reader.close()
        elif 0 < reader.stream.row.last <= reader.cursor:
            reader.close()  # a follower would keep the call going
            try:
                self._streams.detach(self._record)
            except Busy as busy:
                log.info("soft_answer_refused", call_id=self._record.call.id, reason=str(busy))
            else:
                self._ready()

    def take(self) -> EarlyOutput:
        assert self._reader is not None
        self._streams.leave(self._record)
        row, cursor = self._reader.stream.row, self._reader.cursor
        call, asked = self._record.call, self._record.open_questions.values()
        return EarlyOutput(row, cursor, still_running(row.id, cursor, self._said, "Output so far", call, asked))

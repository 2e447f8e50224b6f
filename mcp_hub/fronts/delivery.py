"""What a client gets of its call: events pulled from the log, shaped for its era, in order, the answer last.

A token that was not given gets no progress; a level that was not asked for gets no log message (protocol.md §3).
"""

from collections.abc import Callable

from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed, Log, Progress
from mcp_hub.protocol import eras, shape
from mcp_hub.protocol.envelope import error_frame, result_frame
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.sessions.session import Session
from mcp_hub.types import Era

__all__ = ["Delivery", "level_admits"]


class Delivery:
    """Follows one call for one request. `answer` is set when the call has ended; a cancelled one has none."""

    __slots__ = ("_reader", "_session", "answer", "error_code", "id", "record", "token")

    def __init__(
        self, id_: bytes, session: Session, record: CallRecord, token: bytes | None, wake: Callable[[], None]
    ) -> None:
        self.id = id_
        self.record = record
        self.token = token
        self.answer: bytes | None = None
        self.error_code: int | None = None
        self._session = session
        self._reader = record.log.reader(wake)

    @property
    def ended(self) -> bool:
        return self._reader.at_end

    @property
    def has_more(self) -> bool:
        return self._reader.has_more

    def take(self) -> list[bytes]:
        """The next notifications for the client; sets `answer` when the ending was among the events."""
        frames: list[bytes] = []
        for event in self._reader.take():
            frame = self._frame(event)
            if frame is not None:
                frames.append(frame)
        return frames

    def close(self) -> None:
        self._reader.close()

    def _frame(self, event: CallEvent) -> bytes | None:
        match event:
            case Progress():
                return shape.progress_frame(self.token, event) if self.token is not None else None
            case Log():
                return shape.log_frame(event) if self._wants(event.level) else None
            case Completed():
                self._complete(event)
            case Failed(error):
                self._fail(error)
            case Cancelled():
                self.answer = None
            case _:
                pass  # started; deltas travel with the streams extension only
        return None

    def _complete(self, event: Completed) -> None:
        call = self.record.call
        if call.exported_uri is not None:
            event = Completed(shape.readdressed(event.result, call.params["uri"], call.exported_uri), event.era)
        try:
            result = shape.call_result(call.method, event, self._session.era)
        except RpcError as error:
            self._fail(error)
        else:
            self.answer = result_frame(self.id, *result)

    def _fail(self, error: RpcError) -> None:
        shaped = for_caller(error, self._session.era, self.record.call.upstream)
        self.error_code = shaped.code
        self.answer = error_frame(self.id, shaped.encoded())

    def _wants(self, level: str) -> bool:
        """A handshake client that set no level gets what the server chose to send; a modern one gets nothing."""
        wanted = self._session.log_level
        if wanted is None:
            return self._session.era is Era.HANDSHAKE
        return level_admits(wanted, level)


def level_admits(wanted: str, level: str) -> bool:
    """Whether a message of `level` passes; one of no known level is never held back."""
    return level not in eras.LOG_LEVELS or eras.LOG_LEVELS.index(level) >= eras.LOG_LEVELS.index(wanted)

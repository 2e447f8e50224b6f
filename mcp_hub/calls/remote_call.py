"""A call that does not run here: it has ended, or another process runs it. Its events come from its durable stream."""

from collections.abc import Callable, Iterable, Mapping

from mcp_hub.call import Call, Early, Question, Reader
from mcp_hub.calls.log import CallLog
from mcp_hub.errors import RpcError
from mcp_hub.types import RawJson

__all__ = ["RemoteCall"]


class RemoteCall:
    """A `call.CallHandle` for a front that shapes the call's events. It does nothing but pass answers on.

    `asked` are the keys of the questions that are open; `pass_on` gets the answer to one, which may come too late.
    """

    __slots__ = ("_asks", "_pass_on", "after", "call", "early", "open_questions", "seconds")
    stored = plain_result = None
    has_ended = had_input = False

    def __init__(self, call: Call, asked: Iterable[str], pass_on: Callable[[str, RawJson | RpcError], None]) -> None:
        self.call = call
        self.after = 0
        self.early: Early | None = None
        self.seconds = 0.0
        self._asks: dict[str, Question] = {}
        self.open_questions: Mapping[str, Question] = self._asks
        self._pass_on = pass_on
        for key in asked:
            self.opened(key)

    def opened(self, key: str) -> None:
        """A question has been put."""
        self._asks[key] = Question("", b"{}", lambda outcome: self._pass_on(key, outcome))

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        """Passes the answer to an open question on; False if it is not open."""
        question = self._asks.pop(key, None)
        if question is not None:
            question.answered(outcome)
        return question is not None

    def reader(self, wake: Callable[[], None], after: int = 0, *, is_stored: bool = False) -> Reader:
        """Nothing: the stream is followed by its handle."""
        return CallLog().reader(wake)

    def watch(self, news: Callable[[], object] | None) -> None:
        """Nothing will be heard of the call here."""

    def early_answer(self, ready: Callable[[], None]) -> None:
        """None: the call continues without a request already."""

    def park(self, cursor: int) -> str:
        """Raises `NotImplementedError`: only a call that runs here waits for input."""
        raise NotImplementedError

    def keep(self, info: Callable[[], bytes]) -> None:
        """Nothing: the stream has what its front keeps."""

    def cancel(self, reason: str | None = None) -> None:
        """Nothing: `StreamHandle.cancel` reaches the hub that runs the call."""

    def leave(self, back_within: float | None = None) -> None:
        """Nothing: the hub that runs the call looks after it."""

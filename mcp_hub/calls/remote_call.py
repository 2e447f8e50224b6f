"""A call that does not run here: it has ended, or another process runs it. Its events come from its durable stream."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mcp_hub.call import Call, CallChannel, Question
from mcp_hub.calls.runner import CallRecord, TimeLimits
from mcp_hub.clock import Clock
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed
from mcp_hub.types import RawJson

__all__ = ["RemoteCall"]

_NO_LIMITS: Final = TimeLimits(0, 0)


class RemoteCall(CallRecord):
    """What whoever shapes its events needs to know of it; it is never started, and its log stays empty.

    `asked` are the keys of the questions that are open; `pass_on` is handed the answer to one, which may come too late.
    """

    __slots__ = ("_asks", "_pass_on")

    def __init__(
        self, call: Call, clock: Clock, asked: Iterable[str], pass_on: Callable[[str, RawJson | RpcError], None]
    ) -> None:
        super().__init__(call, _never, _NO_LIMITS, clock)
        self._asks: dict[str, Question] = {}
        self._pass_on = pass_on
        for key in asked:
            self.opened(key)

    def opened(self, key: str) -> None:
        """A question has been put."""
        self._asks[key] = Question("", b"{}", lambda outcome: self._pass_on(key, outcome))

    @property
    def open_questions(self) -> Mapping[str, Question]:
        return self._asks

    def answer(self, key: str, outcome: RawJson | RpcError) -> bool:
        """Passes the answer to an open question on; False if it is not open."""
        question = self._asks.pop(key, None)
        if question is not None:
            question.answered(outcome)
        return question is not None


async def _never(call: Call, channel: CallChannel) -> Completed:
    raise NotImplementedError

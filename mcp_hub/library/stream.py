"""`ToolStream`: the events of a call that outlives its follower."""

from collections.abc import Awaitable, Callable
from typing import Literal, Self, overload

from mcp_types import CallToolResult

from mcp_hub.errors import CallCancelled
from mcp_hub.events import CallEvent, Cancelled, Completed, Ending, Failed, InputRequired
from mcp_hub.library.inner import CallFollower
from mcp_hub.library.models import Answer, encoded_answer, result_model
from mcp_hub.library.questions import completed


class ToolStream:
    """The events of one call, iterated once; the last is `Completed`, `Failed` or `Cancelled`.

    Leaving the block only stops following: `Hub.resume(stream.id, after=stream.cursor)` continues. Without a block,
    iterate to the ending or call `close`. The first event raises `RpcError` for an unknown tool, `UnknownStream`,
    `EventsGone`, `Busy`.
    """

    def __init__(self, begin: Callable[[], Awaitable[CallFollower]], name: str) -> None:
        self._begin = begin
        self._name = name
        self._call: CallFollower | None = None
        self._ending: Ending | None = None
        self._is_closed = False

    @property
    def id(self) -> str | None:
        return None if self._call is None else self._call.id

    @property
    def cursor(self) -> int:
        """The number of the last event; 0 before the first."""
        return 0 if self._call is None else self._call.cursor

    async def __aenter__(self) -> Self:
        await self._started()
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CallEvent:
        if self._ending is not None or self._is_closed:
            raise StopAsyncIteration
        event = await (await self._started()).next()
        if event is None:
            self.close()
            raise StopAsyncIteration
        if isinstance(event, Completed | Failed | Cancelled):
            self._ending = event
            self.close()
        return event

    @overload
    async def result(self, *, raw: Literal[False] = False) -> CallToolResult: ...

    @overload
    async def result(self, *, raw: Literal[True]) -> bytes: ...

    async def result(self, *, raw: bool = False) -> CallToolResult | bytes:
        """The result at the end. `raw`: as JSON. Raises `RpcError`, `CallCancelled`, `ModelMismatch`."""
        call = await self._started()
        async for _ in self:
            pass
        if self._ending is None:
            raise CallCancelled(f"stream {call.id} was left before its ending: resume it with an earlier cursor")
        text = call.result(completed(self._ending))
        return text if raw else result_model(self._name, text)

    async def questions(self) -> list[InputRequired]:
        return await (await self._started()).questions()

    async def answer(self, question: InputRequired, answer: Answer) -> None:
        """None declines. A late answer is ignored."""
        await (await self._started()).answer(question.key, encoded_answer(question.method, answer))

    async def cancel(self) -> None:
        """Cancels the call; its ending follows. Idempotent."""
        await (await self._started()).cancel()

    def close(self) -> None:
        """Stops following; the call continues. Idempotent."""
        self._is_closed = True
        if self._call is not None:
            self._call.close()

    async def _started(self) -> CallFollower:
        if self._call is None:
            self._call = await self._begin()
        return self._call

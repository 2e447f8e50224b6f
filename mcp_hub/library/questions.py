"""Follows a call to its end, and answers questions."""

from collections.abc import Awaitable, Callable
from inspect import isawaitable

import anyio
from anyio.abc import TaskGroup

from mcp_hub.errors import CallCancelled
from mcp_hub.events import CallEvent, Cancelled, Completed, Ending, Failed, InputReceived, InputRequired, said_of_cancel
from mcp_hub.library.inner import CallFollower
from mcp_hub.library.models import Answer, encoded_answer

OnEvent = Callable[[CallEvent], Awaitable[None] | None]
"""Called with each event before the ending, in order, one at a time."""
OnQuestion = Callable[[InputRequired], Awaitable[Answer] | Answer]
"""Answers one question; cancelled if the server withdraws it."""


async def to_end(call: CallFollower, on_event: OnEvent | None, on_question: OnQuestion | None) -> Ending:
    """Follows the call to its ending. Raises what `on_event` or `on_question` raises."""
    if on_question is None:
        return await _followed(call, on_event, lambda event: None)
    ending: Ending | None = None
    error: Exception | None = None
    async with anyio.create_task_group() as tasks:
        answers = _Answers(call, on_question, tasks)
        try:
            ending = await _followed(call, on_event, answers.take)
        except Exception as exc:  # raised below, as it is: the group would wrap it
            error = exc
        tasks.cancel_scope.cancel()
    if error is None:
        error = answers.error
    if error is not None or ending is None:
        raise error or CallCancelled("the call was given up")
    return ending


def completed(ending: Ending) -> Completed:
    """The result. Raises `RpcError`, `CallCancelled`."""
    match ending:
        case Completed():
            return ending
        case Failed(error):
            raise error
        case Cancelled(reason):
            raise CallCancelled(said_of_cancel(reason))


async def _followed(call: CallFollower, on_event: OnEvent | None, note: Callable[[CallEvent], None]) -> Ending:
    while (event := await call.next()) is not None:
        if isinstance(event, Completed | Failed | Cancelled):
            return event
        note(event)
        if on_event is not None:
            waiting = on_event(event)
            if waiting is not None:
                await waiting
    raise CallCancelled("the call had ended already")


class _Answers:
    def __init__(self, call: CallFollower, on_question: OnQuestion, tasks: TaskGroup) -> None:
        self.error: Exception | None = None
        self._call = call
        self._on_question = on_question
        self._tasks = tasks
        self._open: dict[str, anyio.CancelScope] = {}

    def take(self, event: CallEvent) -> None:
        if isinstance(event, InputRequired):
            scope = self._open[event.key] = anyio.CancelScope()
            self._tasks.start_soon(self._answer, event, scope)
        elif isinstance(event, InputReceived) and (open_ := self._open.pop(event.key, None)) is not None:
            open_.cancel()

    async def _answer(self, question: InputRequired, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                answer = self._on_question(question)
                if isawaitable(answer):
                    answer = await answer
                self._open.pop(question.key, None)
                await self._call.answer(question.key, encoded_answer(question.method, answer))
            except Exception as error:
                self.error = error
                self._tasks.cancel_scope.cancel()

"""A call followed to its end, with answers to its questions, and results as models of the SDK.

`ToolStream` is its events, which outlive their follower.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import isawaitable
from typing import Final, Literal, Self, overload

import anyio
import msgspec
from anyio.abc import TaskGroup
from mcp_types import CallToolResult, Tool
from msgspec import Raw
from pydantic import BaseModel, ValidationError

from mcp_hub.errors import CallCancelled, ModelMismatch, RpcError
from mcp_hub.events import CallEvent, Cancelled, Completed, Ending, Failed, InputReceived, InputRequired, said_of_cancel
from mcp_hub.library.inner import CallFollower
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head

log = get_logger(__name__)

Answer = Mapping[str, object] | BaseModel | None
"""The answer to a question: the result object of its method. None declines."""

_DECLINED: Final = b'{"action":"decline"}'
_REJECTED: Final = -1
"""The code for a question that a user has rejected (specification 2025-11-25, client/sampling "Error Handling")."""


def tool_models(raws: Sequence[bytes]) -> list[Tool]:
    """Invalid definitions are logged and left out."""
    tools = []
    for raw in raws:
        try:
            tools.append(Tool.model_validate_json(raw))
        except ValidationError as error:
            log.warning("tool_left_out", definition=hide_head(raw, 200), reason=_first(error))
    return tools


def result_model(name: str, raw: bytes) -> CallToolResult:
    """Raises `ModelMismatch`."""
    try:
        return CallToolResult.model_validate_json(raw)
    except ValidationError as error:
        raise ModelMismatch(
            f'the result of tool "{name}" does not fit mcp_types.CallToolResult: {_first(error)}. '
            "Use raw=True to get the result as the server sent it"
        ) from None


def encoded_arguments(arguments: Mapping[str, object] | None) -> bytes:
    """Raises `TypeError` for a value that JSON cannot carry."""
    return msgspec.json.encode({} if arguments is None else dict(arguments), enc_hook=_plain)


def encoded_meta(meta: Mapping[str, object] | None) -> dict[str, Raw]:
    """Raises `TypeError`, too."""
    return {name: Raw(msgspec.json.encode(value, enc_hook=_plain)) for name, value in (meta or {}).items()}


def encoded_answer(method: str, answer: Answer) -> Raw | RpcError:
    """The result that answers a question, or an error. Raises `TypeError`."""
    if answer is not None:
        return Raw(msgspec.json.encode(answer if isinstance(answer, BaseModel) else dict(answer), enc_hook=_plain))
    if method == "elicitation/create":
        return Raw(_DECLINED)
    return RpcError(f"{method} was declined", code=_REJECTED)


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_none=True)
    raise TypeError(f"JSON cannot carry a {type(value).__name__}")


def _first(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}"


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

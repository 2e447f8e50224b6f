"""Answers questions of a call, or refuses them."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import msgspec
from msgspec import UNSET, Raw

from mcp_hub.cli.questions.dialog import Reply, elicited
from mcp_hub.cli.questions.terminal import Terminal, can_ask
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.events import InputRequired
from mcp_hub.protocol.rest.streams import ErrorBody, InputBody
from mcp_hub.types import JsonObject

if TYPE_CHECKING:
    from mcp_hub.cli.render.renderers import Show
    from mcp_hub.client import HubClient

_TRIES: Final = (0.5, 2.0, 5.0)
"""Seconds after each attempt to send an answer."""
_LOOK: Final = 1.0
"""Seconds between two looks at whether a question is still open."""
_REFUSED: Final = -32601
_NOBODY: Final = "the user cannot be asked: the command that made the call has no terminal"
_REASONS: Final = {
    "sampling/createMessage": "the command does not have a model to sample",
    "roots/list": "the command does not have roots",
}
_LATE: Final = "The question is not open any more."

_T = TypeVar("_T")


def is_for_person(question: InputRequired) -> bool:
    return question.method == "elicitation/create" and can_ask()


async def answered(client: "HubClient", stream: str, question: InputRequired, show: "Show", asker: str) -> str:
    """Answers a question of the tool `asker`; returns a note."""
    if not is_for_person(question):
        reason = _REASONS.get(question.method, _NOBODY)
        await _send(client, stream, InputBody(question.key, error=ErrorBody(_REFUSED, reason)))
        return f"declined what the tool asks: {question.method} ({reason})"
    with show.paused():
        reply = await _while_open(client, stream, question.key, lambda: _ask_person(question, asker))
    if reply is None:
        return _LATE
    content = UNSET if reply.content is None else Raw(msgspec.json.encode(reply.content))
    is_in_time = await _send(client, stream, InputBody(question.key, action=reply.action, content=content))
    message = "declined" if reply.action == "decline" else "answered"
    return f"{message} what the tool asks" if is_in_time else _LATE


async def _ask_person(question: InputRequired, asker: str) -> Reply:
    try:
        params = msgspec.json.decode(question.params, type=JsonObject)
    except (msgspec.DecodeError, RecursionError):
        params = {}
    return await elicited(Terminal(), asker, params)


async def _while_open(client: "HubClient", stream: str, key: str, ask: Callable[[], Awaitable[_T]]) -> _T | None:
    """The result of `ask`; None if the question closes first."""
    answer: _T | None = None
    if not await _is_open(client, stream, key):
        return None
    async with anyio.create_task_group() as tasks:

        async def watch() -> None:
            while True:
                await anyio.sleep(_LOOK)
                if not await _is_open(client, stream, key):
                    tasks.cancel_scope.cancel()

        tasks.start_soon(watch)
        answer = await ask()
        tasks.cancel_scope.cancel()
    return answer


async def _is_open(client: "HubClient", stream: str, key: str) -> bool:
    try:
        status = await client.status(stream)
    except RpcError:
        return True
    return status.questions is not UNSET and any(question.key == key for question in status.questions)


async def _send(client: "HubClient", stream: str, body: InputBody) -> bool:
    """Sends an answer, with retries. False: it is not taken."""
    for pause in _TRIES:
        try:
            await client.answer(stream, body)
        except InvalidParams:
            return False
        except RpcError:
            await anyio.sleep(pause)
        else:
            return True
    return False

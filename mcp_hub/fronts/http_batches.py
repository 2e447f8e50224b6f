"""A batch that is POSTed: each message as if it had come alone, and one array of what they are answered with.

Nothing comes before an answer: there is no event stream, and who called cannot be asked (`delivery`). Source:
specification 2025-03-26, basic/transports "Sending Messages to the Server" 5.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import anyio
from msgspec.structs import replace

from mcp_hub.errors import RpcError
from mcp_hub.fronts.exchange import respond
from mcp_hub.fronts.http_request import HttpRequest, json_error
from mcp_hub.protocol.envelope import BadMessage, Envelope, Unset, error_frame, id_key, usable_id

__all__ = ["answer_batch"]

Handle = Callable[[HttpRequest], Awaitable[None]]
"""Responds to one message. Raises `RpcError`."""


class _Part:
    """The response to one message, kept."""

    def __init__(self) -> None:
        self.body = b""

    async def send(self, event: MutableMapping[str, Any]) -> None:
        self.body += event.get("body", b"")


async def answer_batch(request: HttpRequest, messages: Sequence[Envelope | BadMessage], handle: Handle) -> None:
    """Responds with the answers in the order of their requests, or 202 if nothing is to be answered.

    `request` is the POST; its own message does not count.
    """
    parts = [_Part() for _ in messages]
    taken: set[tuple[int | str, bool]] = set()
    async with anyio.create_task_group() as tasks:
        for message, part in zip(messages, parts, strict=True):
            if isinstance(message, BadMessage):
                part.body = json_error(message.id, message.code, message.reason)
            elif _is_new(message, taken):
                one = replace(request, message=message, send=part.send, takes_sse=False)
                tasks.start_soon(_answer, one, part, handle)
    answers = [body for part in parts if (body := part.body.strip())]
    if answers:
        await respond(request.send, 200, b"[%b]" % b",".join(answers))
    else:
        await request.accepted()


def _is_new(message: Envelope, taken: set[tuple[int | str, bool]]) -> bool:
    """Whether no request before it has its id, spelled alike: that one's answer settles the id."""
    if message.method is Unset or (id_ := usable_id(message.id)) is None:
        return True
    known = len(taken)
    taken.add((id_key(id_), id_.startswith(b'"')))
    return len(taken) > known


async def _answer(request: HttpRequest, part: _Part, handle: Handle) -> None:
    try:
        request.check()
        await handle(request)
    except RpcError as error:
        part.body = error_frame(usable_id(request.message.id), error.encoded())

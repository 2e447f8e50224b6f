"""An array of messages in one POST: each is handled alone, one array has all responses.

Nothing is streamed, and the client cannot be asked. Source: specification 2025-03-26, basic/transports "Sending
Messages to the Server" 5.
"""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

import anyio
from msgspec.structs import replace

from mcp_hub.errors import RpcError
from mcp_hub.fronts.http.request import HttpRequest
from mcp_hub.fronts.http.response import respond
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, error_frame, id_key

Handle = Callable[[HttpRequest], Awaitable[None]]
"""Responds to one message. Raises `RpcError`."""


class _Part:
    """The response to one message."""

    def __init__(self) -> None:
        self.body = b""

    async def send(self, event: MutableMapping[str, Any]) -> None:
        self.body += event.get("body", b"")


async def answer_batch(request: HttpRequest, messages: Sequence[Envelope | BadMessage], handle: Handle) -> None:
    """Responds in the requests' order, or with 202 without any."""
    parts, owners = [_Part() for _ in messages], _owners(messages)
    async with anyio.create_task_group() as tasks:
        for at, (message, part) in enumerate(zip(messages, parts, strict=True)):
            is_owner = (key := _key(message)) is None or owners[key] == at
            if isinstance(message, BadMessage):
                error = RpcError(message.reason, code=message.code)
                part.body = error_frame(message.id if is_owner else None, error.encoded())
            elif is_owner:
                single = replace(request, message=message, send=part.send, takes_sse=False)
                tasks.start_soon(_answer, single, part, handle)
    answers = [body for part in parts if (body := part.body.strip())]
    if answers:
        await respond(request.send, 200, b"[%b]" % b",".join(answers))
    else:
        await request.accepted()


_Key = tuple[int | str, bool]


def _key(message: Envelope | BadMessage) -> _Key | None:
    """The response's id and its spelling."""
    if isinstance(message, BadMessage):
        id_ = message.id
    else:
        id_ = None if message.is_answer else message.usable_id
    return None if id_ is None else (id_key(id_), id_.startswith(b'"'))


def _owners(messages: Sequence[Envelope | BadMessage]) -> dict[_Key, int]:
    """A shared id belongs to the first request, else to the first malformed one."""
    owners: dict[_Key, int] = {}
    for is_broken in (False, True):
        for at, message in enumerate(messages):
            if isinstance(message, BadMessage) is is_broken and (key := _key(message)) is not None:
                owners.setdefault(key, at)
    return owners


async def _answer(request: HttpRequest, part: _Part, handle: Handle) -> None:
    try:
        request.check()
        await handle(request)
    except RpcError as error:
        part.body = error_frame(request.message.usable_id, error.encoded())

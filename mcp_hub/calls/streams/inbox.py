"""Messages to a stream's owner: cancel, answer, somebody reads."""

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.stores.base import Message, StreamInbox
from mcp_hub.types import CallId, RawJson


class Inbox:
    """Other processes' news, kept until taken in."""

    def __init__(self, store: StreamInbox) -> None:
        self._store = store
        self._is_behind = False
        self._messages: list[Message] = []

    async def has_news(self) -> bool:
        """Whether something is not taken in yet. Raises `StoreError`."""
        if await self._store.has_news():
            self._is_behind = True
        return self._is_behind or bool(self._messages)

    async def messages(self) -> list[Message]:
        """Takes messages, each once. Raises `StoreError`."""
        self._messages += await self._store.take()
        messages, self._messages = self._messages, []
        return messages

    def put_back(self, message: Message) -> None:
        self._messages.append(message)

    def settle(self) -> None:
        self._is_behind = False


class _InputAnswer(msgspec.Struct, frozen=True):
    key: str
    outcome: RawJson | RpcError


class _Body(msgspec.Struct):
    key: str
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


def cancelling(stream: CallId, reason: str) -> Message:
    return Message(stream, "cancel", reason.encode("utf-8", "replace"))


def reason_in(message: Message) -> str:
    return message.body.decode("utf-8", "replace")


def touching(stream: CallId) -> Message:
    return Message(stream, "touch", b"")


def answering(stream: CallId, key: str, outcome: RawJson | RpcError) -> Message:
    """A message with the answer to question `key`."""
    is_error = isinstance(outcome, RpcError)
    value = msgspec.Raw(bytes(outcome.encoded() if isinstance(outcome, RpcError) else outcome))
    return Message(stream, "input", msgspec.json.encode({"key": key, "error" if is_error else "result": value}))


def answer_in(message: Message) -> _InputAnswer:
    """Raises `ValueError` without an answer."""
    try:
        body = msgspec.json.decode(message.body, type=_Body)
    except (msgspec.DecodeError, RecursionError) as problem:
        raise ValueError(str(problem)) from None
    if body.error is not msgspec.UNSET:
        return _InputAnswer(body.key, from_wire(body.error, "client"))
    if body.result is msgspec.UNSET:
        raise ValueError("neither result nor error")
    return _InputAnswer(body.key, body.result)

"""A client of the official SDK on the hub, in process over memory streams. The only module that imports `mcp`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from types import TracebackType
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from mcp_hub.fronts.in_process import InProcessFront
from mcp_hub.library.inner import InnerHub

_Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


def client_on(
    inner: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]], options: dict[str, Any]
) -> Client:
    """A client that connects when its block is entered; `options` are the SDK's own, checked there."""
    return Client(_HubTransport(inner, owning), **options)


class _HubTransport:
    """An SDK `Transport`: a pair of memory streams with the hub at their other end."""

    def __init__(self, inner: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]]) -> None:
        self._inner = inner
        self._owning = owning
        self._stack: AsyncExitStack

    async def __aenter__(self) -> _Streams:
        self._stack = AsyncExitStack()
        with self._owning():
            return await self._stack.enter_async_context(_connected(self._inner()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, trace)


@asynccontextmanager
async def _connected(inner: InnerHub) -> AsyncIterator[_Streams]:
    to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception]()
    write, from_client = anyio.create_memory_object_stream[SessionMessage]()
    async with inner.client() as front, anyio.create_task_group() as tasks, to_client, read, write, from_client:
        tasks.start_soon(_taken, front, from_client)
        tasks.start_soon(_given, front, to_client)
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()


async def _taken(front: InProcessFront, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for message in messages:
        await front.take(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


async def _given(front: InProcessFront, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    """Hands messages to the client until the connection is closed; the end of the stream says so."""
    async with messages:
        while frames := await front.next():
            for frame in frames:
                await messages.send(_message(frame))


def _message(frame: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(frame, by_name=False))
    except ValueError as error:
        return error

"""A client of the official SDK, over memory streams."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import Client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from mcp_hub.fronts.mcp.message_queue import InProcessFront
from mcp_hub.library.inner import InnerHub
from mcp_hub.types import JsonObject

_Streams = tuple[MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]]


def client_on(
    running: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]], options: JsonObject
) -> Client:
    """A client that connects when its block is entered."""
    return Client(_connected(running, owning), **options)


@asynccontextmanager
async def _connected(
    running: Callable[[], InnerHub], owning: Callable[[], AbstractContextManager[None]]
) -> AsyncIterator[_Streams]:
    inner = running()
    to_client, read = anyio.create_memory_object_stream[SessionMessage | Exception]()
    write, from_client = anyio.create_memory_object_stream[SessionMessage]()
    async with AsyncExitStack() as stack:
        with owning():  # the tasks that begin here
            front = await stack.enter_async_context(inner.client())
            tasks = await stack.enter_async_context(anyio.create_task_group())
            for stream in (to_client, read, write, from_client):
                await stack.enter_async_context(stream)
            tasks.start_soon(_taken, front, from_client)
            tasks.start_soon(_read_into, front, to_client)
        try:
            yield read, write
        finally:
            tasks.cancel_scope.cancel()


async def _taken(front: InProcessFront, messages: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async for message in messages:
        await front.take(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode())


async def _read_into(front: InProcessFront, messages: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
    async with messages:
        while frames := await front.next():
            for frame in frames:
                await messages.send(_message(frame))


def _message(frame: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(frame, by_name=False))
    except ValueError as error:
        return error

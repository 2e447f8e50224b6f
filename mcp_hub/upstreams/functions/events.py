"""Subscriptions to the events of Python functions: runs the function, and reports what it yields."""

from collections.abc import AsyncGenerator, Mapping
from datetime import UTC, datetime
from typing import Final

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.call import Heard
from mcp_hub.clock import wall_time
from mcp_hub.errors import InvalidParams, RpcError
from mcp_hub.ids import new_call_id
from mcp_hub.logs import get_logger
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.protocol.shape.occurrences import LONGEST_ID
from mcp_hub.types import RawJson, RawObject
from mcp_hub.upstreams.functions.registry import Event, Tool
from mcp_hub.upstreams.functions.schemas import plain

log = get_logger(__name__)

FAILURES: Final = (Exception, SystemExit, GeneratorExit, BaseExceptionGroup)
"""Exceptions of the code of users, at any time. Cancellations and Ctrl-C are not among them."""
HEARTBEAT: Final = 25.0
"""Seconds without an event after which a message says that the function runs."""
CLEANUP_GRACE = 5.0
"""Seconds that a generator has for its `finally` blocks."""
_MOST_CURSOR: Final = 4096
"""Characters of a cursor."""


async def closed(generator: AsyncGenerator[object, None]) -> None:
    """Closes a generator of a user; its errors are logged."""
    with anyio.move_on_after(CLEANUP_GRACE, shield=True):
        try:
            await generator.aclose()
        except FAILURES:  # the boundary to user code; a cancellation under way must not be replaced
            log.exception("tool_cleanup_failed")


async def subscribed(server: str, source: Tool, params: RawObject, heard: Heard) -> RawJson:
    """Runs an event function until it returns: the answer to `events/stream`.

    Raises `InvalidParams` for arguments that do not fit, `RpcError` with what the function raised.
    """
    bound, cursor = source.bind(_arguments(params)), read_as(params.get("cursor", b"null"), str)
    if source.context is not None:
        bound[source.context] = cursor
    subscription = _Subscription(source.name, heard, cursor)
    generator = source.function(**bound)
    assert isinstance(generator, AsyncGenerator)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(subscription.run, generator, tasks.cancel_scope)
        await anyio.lowlevel.checkpoint()  # the function runs until it waits for the first time
        subscription.activate()
        await subscription.beat()
    if (error := subscription.error) is None:
        return msgspec.Raw(b'{"resultType":"complete","_meta":{}}')
    if isinstance(error, RpcError):
        raise error
    log.error("event_source_failed", upstream=server, source=source.name, exc_info=error)
    raise RpcError(f"event {source.name}: {str(error) or type(error).__name__}")


def _arguments(params: RawObject) -> bytes:
    raw = bytes(params.get("arguments", b"{}")).strip()
    if not raw.startswith(b"{"):
        raise InvalidParams("The arguments of an event have to be an object.")
    return raw


class _Subscription:
    """One run of the function, and how it ended."""

    def __init__(self, name: str, heard: Heard, cursor: str | None) -> None:
        self.error: BaseException | None = None
        self._name = name
        self._heard = heard
        self._cursor = cursor
        self._due = anyio.current_time() + HEARTBEAT
        self._is_active = False

    def activate(self) -> None:
        """Reports once that what happens from now on is seen."""
        if not self._is_active and self.error is None:
            self._is_active = True
            self.report("active", {"truncated": False})

    async def beat(self) -> None:
        while True:
            await anyio.sleep_until(self._due)
            if anyio.current_time() >= self._due:
                self.report("heartbeat", {})

    async def run(self, generator: AsyncGenerator[object, None], scope: anyio.CancelScope) -> None:
        """Reports what the function yields; cancels `scope` at its end."""
        try:
            async for item in generator:
                self.activate()
                self.report("event", self._occurrence(item))
                await anyio.lowlevel.checkpoint()  # a generator that never waits must not keep the loop
        except FAILURES as error:  # the boundary to user code
            self.error = error
        finally:
            await closed(generator)
            scope.cancel()

    def _occurrence(self, item: object) -> Mapping[str, object]:
        if not isinstance(item, Event):
            raise TypeError(f"yielded {type(item).__name__}, which has to be an Event")
        data = plain(item.data)
        if not isinstance(data, dict):
            raise TypeError(f"the data of an Event has to be an object, not {type(item.data).__name__}")
        if not isinstance(item.id, str | None) or len(item.id or "") > LONGEST_ID:
            raise TypeError(f"the id of an Event has to be text of at most {LONGEST_ID} characters")
        if item.cursor is not None and not (isinstance(item.cursor, str) and len(item.cursor) <= _MOST_CURSOR):
            raise TypeError(f"the cursor of an Event has to be text of at most {_MOST_CURSOR} characters")
        self._cursor = item.cursor
        time = item.time if item.time is not None else datetime.fromtimestamp(wall_time(), UTC)
        if not isinstance(time, datetime):
            raise TypeError(f"the time of an Event has to be a datetime, not {type(time).__name__}")
        timestamp = (time if time.tzinfo is not None else time.astimezone()).isoformat()
        return {
            "eventId": item.id or f"ev_{new_call_id()[3:]}",
            "name": self._name,
            "timestamp": timestamp,
            "data": data,
        }

    def report(self, kind: str, members: Mapping[str, object]) -> None:
        self._due = anyio.current_time() + HEARTBEAT
        params = {name: msgspec.Raw(object_bytes(value)) for name, value in members.items()}
        cursor = msgspec.Raw(object_bytes(self._cursor))
        self._heard(f"notifications/events/{kind}", {**params, "cursor": cursor})

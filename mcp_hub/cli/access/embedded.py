"""The hub of a command's own, whose servers start with it, as `mcp-hub call` uses it."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio
import anyio.lowlevel
import msgspec

from mcp_hub.app.readiness import unknown_tool
from mcp_hub.cli.access import waiting
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed
from mcp_hub.ids import new_session_id
from mcp_hub.protocol import eras
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import PROGRAM, Era, Kind, RawJson

if TYPE_CHECKING:
    from mcp_hub.calls.runner import CallRecord
    from mcp_hub.catalog.view import Entry
    from mcp_hub.hub import HubPort

__all__ = ["EmbeddedHub", "unknown_tool"]

_WITH_PROGRESS: Final = RequestMeta(b'"cli"', None, None, None, None, {})


class EmbeddedHub:
    """`prefixes` holds each server's; servers may take `wait` seconds to start."""

    def __init__(self, hub: "HubPort", prefixes: Mapping[str, str], wait: float) -> None:
        self._hub = hub
        self._prefixes = prefixes
        self._wait = wait
        self._session = Session(
            new_session_id(), Caller(), Era.HANDSHAKE, eras.LATEST_HANDSHAKE, audience=PROGRAM, mode="full"
        )

    async def definition(self, name: str, doing: Callable[[str], None]) -> RawJson:
        """The tool, as soon as a server has it.

        Raises `RpcError` when every server was asked or the time is over.
        """
        hub = self._hub

        def found() -> "Entry | None":
            return hub.view(self._session).find(Kind.TOOL, name)

        def is_enough() -> bool:
            doing(waiting.starting_text(hub.statuses()))
            return found() is not None or waiting.all_settled(hub)

        await waiting.wait_until(hub, is_enough, self._wait)
        doing("")
        entry = found()
        if entry is None:
            near = hub.view(self._session).nearest(Kind.TOOL, name)
            raise unknown_tool(name, near, hub.statuses(), self._prefixes)
        return entry.raw

    def call(self, name: str, given: RawJson, told: Callable[[str], None]) -> "_Events":
        """Starts the call. Raises `RpcError`."""
        params = {"name": msgspec.Raw(msgspec.json.encode(name)), "arguments": msgspec.Raw(bytes(given))}
        record = self._hub.call(self._session, "tools/call", params, _WITH_PROGRESS).record
        told(record.call.id)
        return _Events(record, self._session.era)


class _Events:
    """The events of one call as they come, errors as its caller may see them."""

    def __init__(self, record: "CallRecord", era: Era) -> None:
        self.stream: str | None = record.call.id
        self._server = record.call.upstream
        self._era = era
        self._news = anyio.Event()
        self._reader = record.log.reader(lambda: self._news.set())
        self._taken: list[CallEvent] = []
        self._has_ended = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reader.close()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> CallEvent:
        if self._has_ended:
            raise StopAsyncIteration
        while not self._taken:
            if self._reader.has_more:
                await anyio.lowlevel.checkpoint()
            else:
                await self._news.wait()
                self._news = anyio.Event()
            self._taken = self._reader.take()[::-1]
        event = self._taken.pop()
        self._has_ended = isinstance(event, Completed | Failed | Cancelled)
        return Failed(for_caller(event.error, self._era, self._server)) if isinstance(event, Failed) else event

"""Keeps the subscriptions at one server equal to its clients', over all its connections.

Source: specification 2025-11-25, server/resources "Subscriptions".
"""

from typing import Final

import anyio
import anyio.abc
import msgspec

from mcp_hub.errors import DeadlineExceeded, MethodNotFound, RpcError, UpstreamLost
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.protocol.definitions.messages import repaired_params
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, read_as
from mcp_hub.protocol.notifications import UPDATED, covering
from mcp_hub.types import Era, RawObject
from mcp_hub.upstreams.peer.listen_stream import ByListen
from mcp_hub.upstreams.peer.peer import Peer
from mcp_hub.upstreams.peer.wanted import WantedResources

log = get_logger(__name__)

_AT_ONCE: Final = 16
"""Requests to one handshake server at a time; each resource has at most one under way."""
_RETRY: Final = 30.0
"""Seconds until a handshake server is asked again for what it refused after a restart."""


class ServerSubscriptions:
    """The subscriptions of one server to wanted `resources`; an `Observer`."""

    def __init__(self, server: str, changes: Notices) -> None:
        self.resources = WantedResources(server, changes)
        self._server = server
        self._changes = changes
        self._peer: Peer | None = None
        self._listen: ByListen | None = None

    async def confirmed(self, uri: str) -> None:
        """Waits until the server watches a resource. Raises `RpcError`, also `MethodNotFound`."""
        if uri in self.resources.watched:
            return
        if self._peer is None:
            raise self._gone()
        if not self._peer.info.can_watch:
            raise MethodNotFound(f'server "{self._server}" does not support subscriptions to its resources.')
        await self.resources.attempt(uri).outcome()

    async def follow(self, peer: Peer, patience: float, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Works on a connection until cancelled; each response may take `patience` seconds.

        Counts as started when lists may be read.
        """
        self._peer = peer
        peer.observe(self)
        if peer.info.can_watch:
            self.resources.attempt_missing()
        try:
            if peer.info.era is Era.MODERN:
                self._listen = ByListen(peer, self.resources, patience)
                await self._listen.run(task_status)
            else:
                task_status.started()
                await _ByRequest(peer, self.resources, patience).run()
        finally:
            self._peer = self._listen = None
            self.resources.lapse()
            self.resources.fail(self._gone())

    def on_message(self, session: str, frame: bytes) -> None:
        self._changes.tell(session, frame)

    def on_notice(self, method: str, params: RawObject) -> None:
        if method == UPDATED:
            self._updated(params)
        elif self._listen is not None:
            self._listen.on_notice(method, params)

    def _updated(self, params: RawObject) -> None:
        uri = read_as(params.get("uri", b""), str)
        if uri is not None:
            for whole in self.resources.reference_counts.keys() & covering(uri):
                self._changes.note((self._server, whole), uri, object_bytes(repaired_params(UPDATED, params)))

    def _gone(self) -> UpstreamLost:
        return UpstreamLost(f'server "{self._server}" lost its connection.')


class _ByRequest:
    """`timeout`: seconds for a response."""

    def __init__(self, peer: Peer, resources: WantedResources, timeout: float) -> None:
        self._peer = peer
        self._resources = resources
        self._timeout = timeout
        self._limit = anyio.CapacityLimiter(_AT_ONCE)
        self._busy: set[str] = set()
        self._sent: set[str] = set()
        """Resources that the server may watch, confirmed or not."""

    async def run(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._retry)
            while True:
                for uri in await self._resources.touched() - self._busy:
                    self._busy.add(uri)
                    tasks.start_soon(self._align, uri)

    async def _retry(self) -> None:
        while True:
            await anyio.sleep(_RETRY)
            if self._peer.info.can_watch:
                self._resources.attempt_missing()

    async def _align(self, uri: str) -> None:
        try:
            async with self._limit:
                while True:
                    if self._resources.is_due(uri):
                        self._sent.add(uri)
                        error = await self._ask("resources/subscribe", uri)
                        if error is not None and error.raw is not None:  # refused by the server: it does not watch
                            self._sent.discard(uri)
                        self._resources.settle(uri, error)
                    elif uri not in self._resources.reference_counts and uri in self._sent:
                        self._sent.discard(uri)
                        self._resources.drop(uri)
                        await self._ask("resources/unsubscribe", uri)
                    else:
                        break
                if uri not in self._resources.reference_counts:
                    self._resources.drop(uri)
        finally:
            self._busy.discard(uri)

    async def _ask(self, method: str, uri: str) -> RpcError | None:
        try:
            with anyio.move_on_after(self._timeout):
                await self._peer.answer(self._peer.send(method, {"uri": msgspec.Raw(object_bytes(uri))}))
                return None
        except RpcError as error:
            return error
        return DeadlineExceeded(f'server "{self._peer.name}" did not answer {method} within {self._timeout:g} s.')

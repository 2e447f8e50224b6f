"""The hub as a caller may see it: operators everything, others what belongs to their principal and profile."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Final

import anyio

from mcp_hub import __version__
from mcp_hub.app.dashboard.seen import Seen
from mcp_hub.app.limits import Current
from mcp_hub.app.status import Admin
from mcp_hub.call import OF_REST, StreamInfo
from mcp_hub.calls.history.recent import MOST, reason_of, shown_principal
from mcp_hub.calls.reading.stored import ending
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.token_costs import list_tokens
from mcp_hub.clock import Clock, wall_time
from mcp_hub.errors import StoreError
from mcp_hub.hub import HubPort
from mcp_hub.masking import hide_head
from mcp_hub.protocol.rest.calls import RunningCall
from mcp_hub.protocol.rest.overview import (
    CallSummary,
    ClientList,
    ClientSummary,
    DashboardMode,
    DashboardState,
    ToolPlace,
)
from mcp_hub.protocol.rest.servers import ServerList
from mcp_hub.sessions.clients import SeenClient
from mcp_hub.sessions.session import Caller
from mcp_hub.stores.base import StreamLog
from mcp_hub.stores.history.base import HistoryStore
from mcp_hub.stores.history.reading import clients_of
from mcp_hub.types import OWN, CallId, Kind

_STORED: Final = 500
"""Stored streams shown beside this process's calls."""
_WITH_REASON: Final = ("failed", "cancelled", "tool_error")
_PATIENCE: Final = 2.0
"""Seconds to read failure reasons from the store."""
_WRITTEN: Final = 130.0
"""Seconds until an ended call is in the history, if ever: one of a killed replica after two leases."""
_TEXT: Final = 200


class HubWatch:
    """A `fronts.dashboard` `HubView`."""

    def __init__(
        self,
        current: Current,
        hub: HubPort,
        registry: CallRegistry,
        streams: StreamTable,
        admin: Admin,
        seen: Seen,
        history: HistoryStore,
        clock: Clock,
    ) -> None:
        self._current = current
        self._hub = hub
        self._registry = registry
        self._streams = streams
        self._admin = admin
        self._seen = seen
        self._clock = clock
        self._started = wall_time()
        self._costs: dict[int, tuple[object, int, int]] = {}
        self._earlier = _EarlierCalls(streams.store.log, history)

    @property
    def position(self) -> tuple[str, int]:
        return self._seen.recent.epoch, self._seen.recent.seq

    @property
    def tools(self) -> int:
        return self._hub.changes.version

    async def state(self, caller: Caller, mode: DashboardMode) -> DashboardState:
        """The cursor fits the calls."""
        servers, rows = await self.servers(caller), await self._rows(caller)
        epoch, seq = self.position  # at the same moment as the calls: what ends from now on is in the feed
        live, ended = self.live(caller), self._seen_by(caller, self._seen.recent.newest())
        ids = {call.id for call in (*live, *ended)}
        stored = await self._earlier.summaries([row for row in rows if row.id not in ids])
        calls = sorted((*ended, *stored), key=lambda call: -call.at)[:MOST] if stored else ended
        return DashboardState(
            cursor=f"{epoch}:{seq}",
            mode=mode,
            version=__version__,
            name=self._current.settings.hub.name,
            started=self._started,
            now=wall_time(),
            tools=self.tools,
            servers=servers,
            calls=calls,
            live=live,
            profile=caller.profile,
            operator=caller.operates,
        )

    async def servers(self, caller: Caller) -> ServerList:
        listed = await self._admin.listed(caller.profile)
        return listed if caller.operates else listed.without_output()

    def servers_stamp(self) -> object:
        return (
            self.tools,
            self._admin.watch.reloads(),
            tuple(self._admin.given_up().items()),
            tuple(
                (
                    status.server,
                    status.state,
                    status.restarts,
                    status.reason,
                    status.pid,
                    status.stderr[-1:],
                    status.sandbox,
                    status.refusals,
                )
                for status in self._admin.watch.statuses(None)
            ),
        )

    def ended(self, caller: Caller, epoch: str, seq: int) -> list[CallSummary] | None:
        summaries = self._seen.recent.behind(seq) if epoch == self._seen.recent.epoch else None
        return None if summaries is None else self._seen_by(caller, summaries)

    def live(self, caller: Caller) -> list[CallSummary]:
        """The newest running calls, without short quiet ones."""
        records = self._registry.under_way
        every = self._seen.recent.running(records, partial(self._may_name, caller))
        if not caller.operates:  # before the newest are taken: those of others take no room
            records = [record for record in records if record.call.principal == caller.principal]
        return self._seen_by(caller, self._seen.recent.live(records, self._clock.now(), every))

    def running(self, caller: Caller, of_rest: bool) -> list[RunningCall]:
        """The caller's running calls with, or soon with, streams; REST calls only if `of_rest`."""
        time, wall, records = self._clock.now(), wall_time(), self._registry.under_way
        every = self._seen.recent.running(records, partial(self._may_list, caller, of_rest))
        calls: list[RunningCall] = []
        for record in records:
            if (record.plan.may_last or record.stream is not None) and self._may_list(caller, of_rest, record):
                wait = every.wait_of(record)
                waiting = ("", 0.0) if wait is None else (wait.reason, wall - (time - wait.since))
                calls.append(RunningCall(record.call.id, record.stream is not None, *waiting))
        return calls

    def _may_list(self, caller: Caller, of_rest: bool, record: CallRecord) -> bool:
        call = record.call
        is_own = call.principal == caller.principal and (not of_rest or call.session.startswith(OF_REST))
        return is_own and self._may_name(caller, record)

    def _may_name(self, caller: Caller, record: CallRecord) -> bool:
        call, profile = record.call, caller.profile
        if caller.operates:
            return True
        return call.principal == caller.principal and (
            profile is None or call.upstream == OWN or call.upstream in self._hub.catalog.rules(profile).servers
        )

    def watched(self, caller: Caller, mode: DashboardMode) -> AbstractContextManager[None]:
        return self._seen.operators.here() if mode == "full" and caller.operates else nullcontext()

    async def owner(self, id_: str) -> str | None:
        writer = self._streams.owned(CallId(id_))
        if writer is not None:
            return writer.stream.row.principal
        row = await self._streams.store.log.find(CallId(id_)) if id_.isascii() else None
        return None if row is None else row.principal

    def clients(self, caller: Caller) -> ClientList:
        """Clients, newest first, with their lists."""
        clients = [client for client in self._seen.clients.newest() if _shows(caller, client.caller)]
        return ClientList([self._client(client) for client in clients], self._current.settings.client_table.names)

    def tool_places(self, caller: Caller) -> list[ToolPlace]:
        """The caller's tools with original names."""
        entries = self._hub.views.whole(caller).entries(Kind.TOOL)
        return [ToolPlace(entry.exported, entry.server, entry.key, entry.is_pinned) for entry in entries]

    def _client(self, client: SeenClient) -> ClientSummary:
        tools, tokens = self._cost(client)
        return ClientSummary(
            name=client.name,
            version=client.version,
            era=client.era,
            principal=client.caller.principal,
            first=client.first,
            last=client.last,
            calls=client.calls,
            profile=client.caller.profile,
            connected=client.connected,
            mode=client.mode or self._hub.catalog.mode(client.caller.profile, client.kind),
            tools=tools,
            tokens=tokens,
        )

    def _cost(self, client: SeenClient) -> tuple[int, int]:
        view = self._hub.catalog.exposed(client.caller.profile, client.kind, client.mode)
        cached = self._costs.get(id(view))
        if cached is None or cached[0] is not view:
            if len(self._costs) > 64:
                self._costs.clear()
            tools = view.entries(Kind.TOOL)
            cached = self._costs[id(view)] = view, len(tools), list_tokens(tools)
        return cached[1], cached[2]

    async def _rows(self, caller: Caller) -> list[StreamInfo]:
        principal = None if caller.operates else caller.principal
        try:
            rows = await self._streams.store.log.rows(principal, _STORED)
        except StoreError:
            return []
        return [row for row in rows if self._hub.durable.shows(caller.profile, row)]

    def _seen_by(self, caller: Caller, calls: Iterable[CallSummary]) -> list[CallSummary]:
        if caller.operates:
            return list(calls)
        principal = shown_principal(caller.principal)
        own_calls = [call for call in calls if call.principal == principal]
        if caller.profile is None:
            return own_calls
        servers = self._hub.catalog.rules(caller.profile).servers
        return [call for call in own_calls if call.server in servers or call.server == OWN]


class _EarlierCalls:
    """Calls of streams from other processes."""

    def __init__(self, log: StreamLog, history: HistoryStore) -> None:
        self._log = log
        self._history = history
        self._reasons: dict[CallId, str] = {}
        self._clients: dict[str, str] = {}

    async def summaries(self, rows: Sequence[StreamInfo]) -> list[CallSummary]:
        """Stored streams with client and newest line, or failure reason."""
        ended = [row for row in rows if row.status in _WITH_REASON and row.id not in self._reasons]
        if len(self._reasons) > 2 * _STORED:
            self._reasons.clear()
            ended = [row for row in rows if row.status in _WITH_REASON]
        with anyio.move_on_after(_PATIENCE):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read_clients, [row for row in rows if row.has_ended])
                for row in ended:
                    tasks.start_soon(self._read_reason, row)
        return [
            _summary(
                row,
                self._reasons.get(row.id, "") if row.has_ended else row.message or "",
                self._clients.get(row.id, ""),
            )
            for row in rows
        ]

    async def _read_clients(self, rows: Iterable[StreamInfo]) -> None:
        if len(self._clients) > 2 * _STORED:
            self._clients.clear()
        missing = {row.id: row.updated for row in rows if row.id not in self._clients}
        with suppress(StoreError):
            old = [id_ for id_, updated in missing.items() if updated < wall_time() - _WRITTEN]
            self._clients |= dict.fromkeys(old, "") | await clients_of(self._history, missing)

    async def _read_reason(self, row: StreamInfo) -> None:
        with suppress(StoreError):
            last = await ending(self._log, row)
            self._reasons[row.id] = "" if last is None else reason_of(last)


def _shows(caller: Caller, of_client: Caller) -> bool:
    return caller.operates or (of_client.principal == caller.principal and caller.profile in (None, of_client.profile))


def _summary(row: StreamInfo, message: str, client: str) -> CallSummary:
    return CallSummary(
        id=row.id,
        server=row.server,
        name=hide_head(row.name, _TEXT),
        method=row.method,
        principal=shown_principal(row.principal),
        status=row.status,
        at=row.created,
        took=max(row.updated - row.created, 0.0),
        client=client,
        stream=True,
        message=hide_head(message, _TEXT),
    )

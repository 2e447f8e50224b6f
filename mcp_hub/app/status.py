"""The state of a running hub, for health, metrics and REST, and an operator's commands on it.

Sampled on request. Servers' texts are masked and cut.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from mcp_hub.app.apply import Applier
from mcp_hub.app.catalog_rules import executor_server, view_rules
from mcp_hub.app.limits import STORES, Current
from mcp_hub.app.reload import Reloader
from mcp_hub.call import Upstream
from mcp_hub.catalog.flags import Flag, decoded
from mcp_hub.catalog.offers.definitions import Quarantined
from mcp_hub.catalog.pins import UnapprovedTool
from mcp_hub.catalog.trust.approvals import Approvals
from mcp_hub.catalog.trust.scan import Inspector, inspected
from mcp_hub.catalog.views.unmatched import Unmatched, has_patterns, unmatched
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.clock import wall_time
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.rest.problem import Problem, unknown_server
from mcp_hub.globs import first_match
from mcp_hub.hub import Figures, HubPort
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide, hide_head
from mcp_hub.protocol.rest.servers import (
    FlagInfo,
    LastReload,
    ReloadAnswer,
    SandboxInfo,
    SecondConnection,
    ServerInfo,
    ServerList,
    UnapprovedInfo,
    UnmatchedInfo,
)
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.types import LAST_OUTPUT, JsonObject, Kind, SandboxState, StoreState, UpstreamState, UpstreamStatus
from mcp_hub.upstreams.process.watchdog import Watchdog

if TYPE_CHECKING:
    from mcp_hub.sandbox.server import ServerSandbox

log = get_logger(__name__)

_LINES: Final = 20
"""Last stderr lines; ten times as many are kept."""
_TEXT: Final = 500
"""Characters per text of a server."""
_GATHERING: Final = 0.5  # seconds between looks at patterns, while servers change
_MOST: Final = 100
"""Warnings, flags, texts and paths per server; `approve`, `doctor` and `sandbox` show all."""
_Found = TypeVar("_Found", UnapprovedTool, Flag, Quarantined)
Grouped = Mapping[str, Sequence[_Found]]
_Counts = Callable[[], Mapping[str, int]]
"""By server."""


class _HubStatus(msgspec.Struct):
    """The hub's current state: `Watched` by health, `Sampled` by metrics."""

    current: Current
    hub: HubPort
    applier: Applier
    approvals: Approvals
    reloader: Reloader
    is_unguarded: Callable[[], bool]
    _inspector: Inspector = msgspec.field(default_factory=Inspector)
    _turn: anyio.Lock = msgspec.field(default_factory=anyio.Lock)
    _flagged: tuple[CatalogView | None, Grouped[Flag]] = (None, {})
    _unmatched: tuple[Settings | None, CatalogView | None, list[Unmatched]] = (None, None, [])

    def figures(self) -> Figures:
        return self.hub.figures()

    @property
    def is_settled(self) -> bool:
        return self.hub.catalog.is_settled()

    @property
    def store(self) -> StoreState:
        if not STORES[self.current.settings.hub.store.type].is_lasting:
            return "memory"
        return "durable" if self.hub.durable.is_durable else "out_of_use"

    def states(self) -> Mapping[str, UpstreamState]:
        servers = self.current.settings.servers
        return {
            status.server: status.state
            for status in self.hub.statuses()
            if status.server in servers and servers[status.server].enabled
        }

    def statuses(self, profile: str | None) -> list[UpstreamStatus]:
        """A profile's servers; None: all."""
        servers = self.current.settings.servers
        # that of executors belongs to no file: it is there as soon as a program has registered tools
        every = [
            server_status
            for server_status in self.hub.statuses()
            if server_status.server in servers or any(self.entries(server_status.server).values())
        ]
        if sandboxes := self._sandboxes:
            every = [_with_sandbox(status, sandboxes.get(status.server)) for status in every]
        if profile is None:
            return every
        chosen = self.hub.catalog.rules(profile).servers
        return [status for status in every if status.server in chosen]

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        flagged = await self._flags()
        unapproved = _grouped(self.approvals.findings())
        view = self.hub.catalog.view(None)
        left_out = _grouped(view.quarantined)
        offered = Counter((entry.server, kind) for kind in Kind for entry in view.entries(kind))
        return [self._info(status, unapproved, flagged, left_out, offered) for status in self.statuses(profile)]

    async def unmatched(self) -> list[Unmatched]:
        """Patterns that match nothing listed so far, at most 100; cached, in a worker thread."""
        async with self._turn:
            settings, view = self.current.settings, self.hub.catalog.view(None)
            if self._unmatched[0] is not settings or self._unmatched[1] is not view:
                absent = [name for name, server in settings.servers.items() if not server.enabled]
                listed = [
                    snapshot for server in self._upstreams.values() if (snapshot := server.snapshot()) is not None
                ]
                look = partial(unmatched, listed, view_rules(settings), [*absent, executor_server(settings)])
                patterns = await anyio.to_thread.run_sync(look, abandon_on_cancel=True)
                self._unmatched = settings, view, [*patterns, *_idle_caches(settings, view)][:_MOST]
            return self._unmatched[2]

    def last_reload(self, profile: str | None) -> LastReload | None:
        last = self.reloader.last
        if last is None:
            return None
        findings = [hide_head(text, _TEXT) for text in last.errors] if profile is None else []
        return LastReload(last.trigger, timestamp(last.at), last.is_applied, findings)

    def entries(self, server: str) -> Mapping[Kind, int]:
        snapshot = self._upstreams[server].snapshot()
        return {} if snapshot is None else {kind: len(entries) for kind, entries in snapshot.lists.items()}

    def unapproved(self) -> Iterator[tuple[str, str]]:
        self.hub.catalog.view(None)  # looks at the tools, and so judges them
        return ((finding.server, finding.kind) for finding in self.approvals.findings())

    def quarantined(self) -> Iterator[str]:
        return (entry.server for entry in self.hub.catalog.view(None).quarantined)

    def reloads(self) -> tuple[int, int, float | None]:
        reloader = self.reloader
        return reloader.applied, reloader.failed, None if reloader.last is None else reloader.last.at

    @property
    def _upstreams(self) -> Mapping[str, Upstream]:
        return self.applier.upstream_set.upstreams

    @property
    def _sandboxes(self) -> Mapping[str, "ServerSandbox"]:
        return self.applier.sources.sandboxes

    async def _flags(self) -> Grouped[Flag]:
        """Cached, in a worker thread: 10,000 tools take seconds."""
        async with self._turn:
            view = self.hub.catalog.view(None)  # looks at the tools, and so judges them
            if self._flagged[0] is not view:
                inspect, texts = self._inspector.inspect, inspected(view, self._upstreams)
                flags = await anyio.to_thread.run_sync(inspect, *texts, abandon_on_cancel=True)
                self._flagged = view, _grouped(flags)
            return self._flagged[1]

    def _info(
        self,
        status: UpstreamStatus,
        unapproved: Grouped[UnapprovedTool],
        flagged: Grouped[Flag],
        left_out: Grouped[Quarantined],
        offered: Counter[tuple[str, Kind]],
    ) -> ServerInfo:
        noise = () if status.noise is None else (status.noise,)
        missing = (*status.warnings, *noise, *(entry.text for entry in left_out.get(status.server, ())))
        listed, software = status.listed_at, _software(status.server_info or {})
        return ServerInfo(
            server=status.server,
            state=status.state.value,
            restarts=status.restarts,
            reason=UNSET if status.reason is None else _reason(status.reason),
            code=UNSET if status.code is None else status.code,
            era=UNSET if status.era is None else status.era.value,
            version=UNSET if status.version is None else _safe(status.version),
            software=_safe(software) if software else UNSET,
            pid=UNSET if status.pid is None else status.pid,
            rests=status.rests,
            listed=UNSET if listed is None else timestamp(listed),
            age=UNSET if listed is None else round(max(wall_time() - listed, 0.0), 3),
            entries={kind.value: count for kind, count in self.entries(status.server).items()},
            offered={kind.value: offered[status.server, kind] for kind in Kind if offered[status.server, kind]},
            warnings=[_safe(text) for text in missing[:_MOST]],
            quarantined=max(min(len(missing), _MOST) - len(status.warnings), 0),
            unsteady=list(status.unsteady),
            unapproved=_unapproved(unapproved.get(status.server, ())),
            flags=[_flag(entry) for entry in flagged.get(status.server, ())[:_MOST]],
            stderr=[_safe(line) for line in status.stderr[-_LINES:]],
            second=UNSET if status.second is None else _second(status.second),
            logs=status.logs or UNSET,
            scope=status.scope or "shared",
            sandbox=_sandbox(self._sandboxes.get(status.server), status),
            connections=UNSET if status.connections is None else status.connections,
        )


def _reason(text: str) -> str:
    head, mark, output = text.partition(LAST_OUTPUT)
    return f"{_safe(head)}{mark}{_safe(output)}"


def _software(info: JsonObject) -> str:
    return " ".join(text for key in ("name", "version") if isinstance(text := info.get(key), str))


def _second(status: UpstreamStatus) -> SecondConnection:
    return SecondConnection(
        state=status.state.value,
        era=UNSET if status.era is None else status.era.value,
        version=UNSET if status.version is None else _safe(status.version),
        pid=UNSET if status.pid is None else status.pid,
        reason=UNSET if status.reason is None else _reason(status.reason),
        code=UNSET if status.code is None else status.code,
    )


def _with_sandbox(status: UpstreamStatus, sandbox: "ServerSandbox | None") -> UpstreamStatus:
    if sandbox is None:
        return status
    state: SandboxState = "absent" if sandbox.absence else "pending" if sandbox.latest is None else "on"
    return replace(status, sandbox=state, refusals=sandbox.refusals.total)


def _sandbox(sandbox: "ServerSandbox | None", status: UpstreamStatus) -> SandboxInfo | UnsetType:
    if sandbox is None or status.sandbox is None:
        return UNSET
    rule, refusals = sandbox.rule, sandbox.refusals
    latest = None if sandbox.latest is None else sandbox.latest.confinement
    hosts = rule.hosts if latest is None else latest.hosts
    return SandboxInfo(
        state=status.sandbox,
        net=rule.net,
        refused=status.refusals,
        reason=_safe(sandbox.absence) if sandbox.absence else UNSET,
        shrinks=latest.shrinks if latest is not None and latest.shrinks else UNSET,
        hosts=[entry for host in hosts for entry in host.entries],
        sockets=[] if latest is None else _listed(latest.sockets),
        home=UNSET if latest is None else _safe(latest.variables["HOME"]),
        read=[] if latest is None else _listed(latest.readable),
        write=[] if latest is None else _listed(latest.writable),
        latest=refusals.latest(),
        traffic=copy(refusals.traffic) if rule.net == "hosts" else UNSET,
        lists={key: [*entries] for key, entries in sandbox.entries.items() if _is_whole(entries)},
    )


def _is_whole(entries: Sequence[str]) -> bool:
    return len(entries) <= _MOST and all(_safe(entry) == entry and entry.isprintable() for entry in entries)


def _listed(paths: Sequence[str]) -> list[str]:
    return [_safe(path) for path in paths[:_MOST]]


def _unapproved(tools: Sequence[UnapprovedTool]) -> list[UnapprovedInfo]:
    return [
        UnapprovedInfo(_safe(tool.tool), tool.kind, list(tool.members), tool.is_held)
        for tool in tools[:_MOST]
        if tool.kind != "unconfirmed"
    ]


async def warn_of_unmatched(status: _HubStatus) -> None:
    """Logs each unmatched pattern once, after changes, until cancelled."""
    hub, logged = status.hub, set[Unmatched]()
    judged: tuple[Settings | None, set[str]] = (None, set())
    await hub.catalog.settled()
    while True:
        version, settings = hub.changes.version, status.current.settings
        upstreams = status.applier.upstream_set.upstreams
        listed = {name for name, upstream in upstreams.items() if upstream.snapshot() is not None}
        if settings is not judged[0] or not listed <= judged[1]:
            judged = settings, listed
            for pattern in await status.unmatched() if has_patterns(view_rules(settings)) else ():
                if pattern not in logged:
                    log.warning("pattern_unmatched", path=".".join(map(str, pattern.path)), pattern=pattern.pattern)
                logged.add(pattern)
        await hub.changes.wait(version)
        await anyio.sleep(_GATHERING)


def _idle_caches(settings: Settings, view: CatalogView) -> list[Unmatched]:
    findings = []
    for entry in view.entries(Kind.TOOL):
        server = settings.servers.get(entry.server)
        pattern = None if server is None or entry.is_read_only else first_match(entry.key, server.per_tool)
        if server is not None and pattern is not None and server.per_tool[pattern].cache:
            why = f'"{entry.key}" does not only read (it has no readOnlyHint): its results are not kept. Remove cache.'
            path = ("servers", entry.server, "per_tool", pattern, "cache")
            findings.append(Unmatched(path, entry.key, why=why))
    return findings


def _flag(flag: Flag) -> FlagInfo:
    return FlagInfo(
        tool=_safe(flag.tool), kind=flag.kind, where=_safe(flag.where), why=_safe(flag.why), text=_safe(flag.text)
    )


def _grouped(entries: Iterable[_Found]) -> dict[str, list[_Found]]:
    groups: dict[str, list[_Found]] = {}
    for entry in entries:
        groups.setdefault(entry.server, []).append(entry)
    return groups


def _safe(text: str) -> str:
    return decoded(text, _TEXT)


class Admin(msgspec.Struct, frozen=True):
    """An operator's commands, for REST. `given_up`: messages that webhooks did not get, by server."""

    reloader: Reloader
    applier: Applier
    watch: _HubStatus
    given_up: _Counts

    async def servers(self, profile: str | None) -> list[ServerInfo]:
        servers, counts = await self.watch.servers(profile), self.given_up()
        return [replace(info, given_up=counts.get(info.server, 0)) for info in servers]

    async def listed(self, profile: str | None) -> ServerList:
        """The servers; without a profile also patterns that match nothing."""
        servers = await self.servers(profile)
        if profile is not None:
            return ServerList(servers)
        stamp, unmatched = self.reloader.stamp, await self.watch.unmatched()
        patterns = [UnmatchedInfo(list(pattern.path), hide(pattern.reason)) for pattern in unmatched]
        return ServerList(servers, patterns, stamp.text if stamp is not None else "", self.watch.last_reload(profile))

    async def restart(self, server: str) -> None:
        """Replaces a server and reads its secrets again; its calls have `hub.drain_timeout` to end.

        Raises `Problem` 404, 409 or 503.
        """
        settings = self.reloader.settings
        if server not in settings.servers:
            raise unknown_server(server, settings.servers)
        if not settings.servers[server].enabled:
            raise Problem(409, "server_disabled", f'server "{server}" is disabled in the configuration')
        if self.applier.upstream_set.is_crowded(server):
            message = f'calls at earlier starts of "{server}" are still running. They have hub.drain_timeout to end.'
            raise Problem(503, "busy", message, headers=((b"retry-after", b"5"),))
        if not await self.reloader.reread(server):
            self.applier.restart(server)

    async def reload(self) -> ReloadAnswer:
        outcome = await self.reloader.reload("request")
        if not outcome.is_applied:
            detail = f"The configuration is invalid, so the previous one stays in use: {'; '.join(outcome.errors)}"
            raise Problem(422, "invalid_configuration", detail, findings=list(outcome.errors))
        change = outcome.plan
        return ReloadAnswer(
            added=list(change.added),
            removed=list(change.removed),
            restarted=list(change.restarted),
            adjusted=list(change.adjusted),
            revived=list(outcome.revived),
            kept=[name for name in change.unchanged if name not in outcome.revived],
            settings=list(change.at_once),
            next_start=list(change.next_start),
        )


def operations(loaded: Loaded, applier: Applier, watchdog: Watchdog, given_up: _Counts) -> Admin:
    """An operator's commands on a hub that is built."""
    reloader = Reloader(loaded, applier.sources.read, applier)
    status = _HubStatus(
        current=applier.current, hub=applier.hub, applier=applier, approvals=applier.approvals, reloader=reloader,
        is_unguarded=lambda: watchdog.has_given_up,
    )  # fmt: skip
    return Admin(reloader, applier, status, given_up)

"""Creates, starts and closes all parts of a hub.

Start: upstreams, all at once, then a front, which waits for none. Stop: running calls end, then upstreams close
together.
"""

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread
import msgspec
from msgspec.structs import replace

from mcp_hub.aio import Ts, Turn, keep_running, named_loop
from mcp_hub.app.apply import Applier, RuleGates, UpstreamSet
from mcp_hub.app.catalog_rules import (
    ProjectView,
    confirmed_servers,
    executor_server,
    for_projects,
    overlay_problems,
    policies,
    view_rules,
)
from mcp_hub.app.code_runs import EventFeeds, code_runs, deployment_key, go_on, script_upstreams
from mcp_hub.app.dashboard.past_calls import PastCalls, journal_of
from mcp_hub.app.dashboard.seen import Seen
from mcp_hub.app.limits import (
    Current,
    call_limits,
    follow_gates,
    hub_info,
    open_documents,
    open_files,
    open_store,
    pending_input,
    session_holder,
    stream_limits,
    time_limits,
)
from mcp_hub.app.logins import Logins, grant_store
from mcp_hub.app.readiness import StartFolders, log_flags, log_sources, log_start
from mcp_hub.app.reload import Reloader
from mcp_hub.app.status import Admin, operations, warn_of_unmatched
from mcp_hub.app.telemetry import audit_of, call_observer, recording, tracing_of
from mcp_hub.app.upstream_factory import UpstreamFactory
from mcp_hub.call import Gate, Upstream
from mcp_hub.calls.code.runs import CodeRuns
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.hub_tools.own_tools import OFFERED
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import SessionRules
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.runner import CallRecord
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.discovery.answers import instructions
from mcp_hub.catalog.discovery.meta_tools import check_reading
from mcp_hub.catalog.offers.rules import ServerRules
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.trust.approvals import Approvals, gate
from mcp_hub.clock import SystemClock, process_start, wall_time
from mcp_hub.config.load.load import Loaded, load
from mcp_hub.config.load.overrides import read_overlay
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import OverlaySettings
from mcp_hub.config.trust import project_of, state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.fronts.mcp.binding import Binding
from mcp_hub.hub import HubPort, LongResults
from mcp_hub.logs import get_logger
from mcp_hub.masking import hide_head
from mcp_hub.notices import Notices
from mcp_hub.sessions.clients import ClientKinds
from mcp_hub.sessions.session import Caller
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.documents import Documents
from mcp_hub.stores.keyed_files import KeyedFiles, next_epoch
from mcp_hub.stores.server_logs import ServerLogWriter, log_folder
from mcp_hub.types import Era
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.peer.input_questions import follow_up
from mcp_hub.upstreams.peer.server_eras import ClientEra
from mcp_hub.upstreams.process.child import provide
from mcp_hub.upstreams.process.lookups import CommandOutputs
from mcp_hub.upstreams.process.watchdog import Watchdog
from mcp_hub.upstreams.supervision.server import OwnedUpstream

if TYPE_CHECKING:
    from mcp_hub.calls.history.audit import AuditTrail
    from mcp_hub.sandbox.learning import Learning
    from mcp_hub.upstreams.executors.upstream import ExecutorUpstream

log = get_logger(__name__)

_LAST_CALLS: Final = 0.3
"""Seconds for handlers at shutdown; with the upstreams' graces under 2 s."""
_LAST_WRITES: Final = 0.5
"""Seconds to write endings of durable streams."""


class App(msgspec.Struct, frozen=True):
    """A running hub without a front."""

    current: Current
    hub: HubPort
    binding: Binding
    upstreams: Mapping[str, Upstream]
    registry: CallRegistry
    changes: Notices
    streams: StreamTable
    documents: Documents
    watchdog: Watchdog
    approvals: Approvals
    upstream_set: UpstreamSet
    operations: Admin
    logins: Logins
    seen: Seen
    journal: CallJournal
    code: CodeRuns
    gates: RuleGates
    events: EventFeeds
    audit: "AuditTrail | None" = None
    executors: "ExecutorUpstream | None" = None
    server_logs: ServerLogWriter | None = None

    @property
    def reloader(self) -> Reloader:
        return self.operations.reloader

    @property
    def past_calls(self) -> PastCalls:
        """The history, for callers."""
        journal = self.journal
        return PastCalls(journal.store, journal.rules, journal, self.hub)

    @property
    def settings(self) -> Settings:
        return self.current.settings

    async def in_project(self, caller: Caller, directory: str) -> Caller:
        """The caller, narrowed by the project's overlay, if any. A refused overlay leaves nothing; the log has the
        reason.
        """
        view = await self._project_view(caller, project_of(directory))
        if view is None:
            return caller
        is_new, view = view.name not in self.current.projects, self.current.enter(view)
        if is_new:
            executors = None if self.executors is None else self.executors.name
            rules = view_rules(self.settings, executors, self.current.projects)
            self.hub.catalog.use(rules, self.settings.hub.aliases)
        return replace(caller, profile=view.name)

    async def _project_view(self, caller: Caller, root: str) -> ProjectView | None:
        try:
            overlay = await anyio.to_thread.run_sync(read_overlay, Path(root))
        except ConfigError as refused:
            log.warning("overlay_refused", project=hide_head(root, 300), reason=hide_head(str(refused), 1000))
            if refused.code == "config_untrusted":  # it is a stranger's, not the project's
                return None
            line = refused.findings[0].line
            location = "" if line is None else f", line {line}"
            problem = f"was refused ({refused.code}{location}); the hub's log says why"
            return ProjectView(None, OverlaySettings(), problem)
        if overlay is None or overlay == OverlaySettings():
            return None
        for problem in overlay_problems(self.settings, overlay)[:10]:
            log.warning("overlay_in_vain", project=hide_head(root, 300), reason=hide_head(problem, 300))
        return ProjectView(caller.profile, overlay)

    async def stop(self) -> None:
        """Ends running calls within a time limit, except upstreams' tasks; fronts can still deliver. Idempotent."""
        for upstream in self.upstream_set:
            upstream.lifecycle.leave_tasks()
        await self.registry.close(_LAST_CALLS)


@asynccontextmanager
async def open_app(
    loaded: Loaded,
    env: Mapping[str, str],
    *,
    has_executors: bool = False,
    owns_process: bool = True,
    client: ClientEra | None = None,
    clients: deque[str | None] | None = None,
    learning: "Learning | None" = None,
) -> AsyncIterator[App]:
    """A hub with started upstreams; ends calls and upstreams on exit.

    `has_executors`: clients can register tools. Without `owns_process` nothing process-wide changes. `clients`: for a
    background hub. `learning`: sandboxes learn.
    """
    if owns_process:
        provide(open_files(loaded.settings, has_clients=clients is not None or has_executors))
    app = build(
        loaded, env, has_executors=has_executors, owns_process=owns_process, client=client, clients=clients,
        learning=learning,
    )  # fmt: skip
    log_sources(loaded)
    with named_loop(), nullcontext() if app.server_logs is None else app.server_logs.recording(), recording(app.audit):
        async with _running(app):
            yield app


@asynccontextmanager
async def _running(app: App) -> AsyncIterator[None]:
    await app.streams.store.open()
    await app.documents.open()
    async with app.watchdog, anyio.create_task_group() as tasks:

        def keep(part: str, run: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
            tasks.start_soon(keep_running, part, run, *args, name=part)

        keep("watchdog", app.watchdog.run)
        keep("streams", app.streams.run)
        keep("history", app.journal.run)
        keep("links", app.gates.run)
        keep("events", app.events.run)
        app.reloader.prepares.append(lambda settings: partial(app.gates.use, settings))
        app.reloader.prepares.append(lambda _: app.events.look)
        if app.audit is not None:
            keep("audit", app.audit.run)
        app.reloader.prepares.append(lambda _: app.journal.use)
        await tasks.start(app.upstream_set.run, name="upstreams")
        enabled = [name for name, server in app.settings.servers.items() if server.enabled]
        keep("start", log_start, app.hub, enabled)
        keep("unmatched patterns", warn_of_unmatched, app.operations.watch)
        keep("approvals", app.approvals.run)
        keep("flags", log_flags, app.hub.catalog, app.upstreams)
        keep("logins", app.logins.follow, app.upstream_set.upstreams, app.operations.applier.restart)
        if (accounts := app.operations.applier.sources.accounts) is not None:
            keep("accounts", accounts.follow, app.settings.hub.accounts.idle)
        try:
            yield
        finally:
            await app.stop()
            await app.journal.close(_LAST_WRITES)
            if app.audit is not None:
                await app.audit.close(_LAST_WRITES)
            await app.code.close()
            await app.streams.close(_LAST_WRITES)
            if app.registry.tracer is not None:
                await app.registry.tracer.close()
            tasks.cancel_scope.cancel()
            app.approvals.close()


def _sources(
    loaded: Loaded, env: Mapping[str, str], watchdog: Watchdog, changes: Notices, logins: Logins, gate: Gate,
    turn: Turn, client: ClientEra | None, store: EventStore, owns_process: bool, clients: deque[str | None] | None,
    learning: "Learning | None", scripts: Callable[[str, str, Gate | None], OwnedUpstream], current: Current,
    approvals: Approvals,
) -> UpstreamFactory:  # fmt: skip
    state, folder = state_dir(env), str(loaded.path.absolute().parent)
    memory, era, clock = EraCache(state / "eras.json"), client or ClientEra(Era.HANDSHAKE), SystemClock()
    # in a host program the log is the program's own
    keeps_logs = owns_process and loaded.settings.hub.log.files
    logs = ServerLogWriter(log_folder(state, loaded.place), wall_time) if keeps_logs else None
    factory = UpstreamFactory(
        env=env, folder=folder, memory=memory, clock=clock, changes=changes, watchdog=watchdog,
        last_lists=state / "lists", logins=logins, gate=gate, turn=turn, client=era, logs=logs,
        holder=partial(session_holder, store),
        read=partial(load, loaded.path, env, lenient=True, is_named=loaded.is_named), clients=clients,
        starts=StartFolders.of(Path(loaded.place), state), outputs=CommandOutputs(watchdog, clock, env, folder),
        learning=learning, scripts=scripts,
    )  # fmt: skip
    if not loaded.settings.hub.accounts.key:
        return factory
    from mcp_hub.app.accounts import with_accounts

    return with_accounts(factory, lambda: current.settings, store, lambda union: approvals.judged((union,)))


def _approvals(loaded: Loaded, records: KeyedFiles, changes: Notices, servers: UpstreamSet) -> Approvals:
    settings = loaded.settings
    return Approvals(
        store=records, config=loaded.place, policies=policies(settings), changes=changes, wall_clock=wall_time,
        relist=servers.relist, confirms=confirmed_servers(settings),
    )  # fmt: skip


def _executor_upstream(
    settings: Settings, env: Mapping[str, str], changes: Notices, servers: UpstreamSet
) -> "ExecutorUpstream":
    from mcp_hub.upstreams.executors.posts import ExecutorLimits
    from mcp_hub.upstreams.executors.upstream import ExecutorUpstream

    upstream = ExecutorUpstream(
        name=executor_server(settings), changes=changes, clock=SystemClock(), limits=ExecutorLimits(),
        next_epoch=partial(next_epoch, KeyedFiles(state_dir(env) / "executors")),
    )  # fmt: skip
    servers.upstreams[upstream.name] = upstream
    return upstream


def _catalog(
    settings: Settings, servers: UpstreamSet, changes: Notices, approvals: Approvals, *, owns_process: bool
) -> Catalog:
    return Catalog(
        upstreams=servers.upstreams, rules=view_rules(settings), changes=changes, clock=SystemClock(),
        first_list_wait=settings.client_table.rules(None, None).first_list_wait, aliases=settings.hub.aliases,
        judged=approvals.judged, started=process_start() if owns_process else None,
    )  # fmt: skip


def _gate(catalog: Catalog, approvals: Approvals, current: Current) -> Gate:
    def rules_of(server: str) -> ServerRules:
        return catalog.rules(None).servers.get(server) or for_projects(current.settings, server)

    return gate(approvals, partial(check_reading, rules_of, approvals.is_confirmed))


def _registry(
    settings: Settings,
    env: Mapping[str, str],
    servers: UpstreamSet,
    streams: StreamTable,
    turn: Turn,
    journal: CallJournal,
    seen: Seen,
    audit: "AuditTrail | None",
    *,
    is_http: bool,
) -> CallRegistry:
    clock, observer = SystemClock(), call_observer(journal, seen, audit, is_watched=is_http)
    tracer = tracing_of(settings, env, clock, lambda server: servers.upstreams[server].status(), is_http=is_http)

    def lasts(record: CallRecord) -> None:
        streams.begin(record)
        journal.lasts(record)

    return CallRegistry(clock, *call_limits(settings), on_durable=lasts, turn=turn, tracer=tracer, observer=observer)


def _hub(
    current: Current, catalog: Catalog, registry: CallRegistry, servers: UpstreamSet, pending: PendingInput, turn: Turn,
    changes: Notices, streams: StreamTable, seen: Seen, results: LongResults, code: "CodeRuns",
    events: EventFeeds, audit: "AuditTrail | None",
) -> HubPort:  # fmt: skip
    settings = current.settings.hub
    hub = HubPort(
        catalog=catalog, registry=registry, upstreams=servers.upstreams, limits=current.limits,
        session_rules=SessionRules(settings.page_size, settings.task_after, lambda: seen.operators.are_there),
        pending_input=pending, turn=turn, changes=changes, streams=streams, rules=current.call_rules,
        follow_up=follow_up, client_kind=seen.clients, long_results=results, code=code, events=events.port,
    )  # fmt: skip
    hub.starter.gates.trails.extend([] if audit is None else [audit])
    return hub


def build(
    loaded: Loaded, env: Mapping[str, str], *, has_executors: bool = False, owns_process: bool = True,
    client: ClientEra | None = None, clients: deque[str | None] | None = None, learning: "Learning | None" = None,
) -> App:  # fmt: skip
    """A hub that does not run yet; call it on its event loop."""
    settings, state, current = loaded.settings, state_dir(env), Current(loaded.settings, time_limits(loaded.settings))
    store, kinds = open_store(settings, env), ClientKinds(current.client, current.soft_deadline, OFFERED)
    clock, changes, turn = SystemClock(), Notices(None if store.replicas is None else store.replicas.lists), Turn()
    servers, watchdog = UpstreamSet({}, changes), Watchdog(clock, may_adopt=owns_process)
    logins, records = Logins(grant_store(state)), KeyedFiles(state / "approvals")
    approvals, documents = _approvals(loaded, records, changes, servers), open_documents(settings, env, store)
    catalog = _catalog(settings, servers, changes, approvals, owns_process=owns_process)
    sources = _sources(
        loaded, env, watchdog, changes, logins, _gate(catalog, approvals, current), turn, client, store, owns_process,
        clients, learning, script_upstreams(catalog, changes, env, lambda: code), current, approvals,
    )  # fmt: skip
    servers.upstreams.update((name, sources.make(settings, name)) for name in settings.servers)
    executors = _executor_upstream(settings, env, changes, servers) if has_executors else None
    streams = StreamTable(store, clock, stream_limits(settings), lambda row, last: go_on(hub, events, row, last))
    events = EventFeeds(streams, servers.upstreams, current, key := deployment_key(state, store))
    seen = Seen.of(kinds, loaded.path, records, lambda: registry.under_way, sources.client.meet)
    audit = audit_of(loaded, env, store, current, lambda call: registry.trace_of(call))
    journal = journal_of(env, store, current, servers.upstreams, audit, is_embedded=not owns_process)
    registry = _registry(settings, env, servers, streams, turn, journal, seen, audit, is_http=has_executors)
    pending = pending_input(settings, key, registry, store)
    code, results = code_runs(lambda: hub, current, key), LongResults(documents, estimate, clock)
    hub = _hub(current, catalog, registry, servers, pending, turn, changes, streams, seen, results, code, events, audit)
    applier = Applier(
        current=current, sources=sources, upstream_set=servers, hub=hub, registry=registry,
        kinds=kinds, approvals=approvals, executor_name=None if executors is None else executors.name, store=store,
    )  # fmt: skip
    follow_gates(hub, current, store, [] if sources.accounts is None else sources.accounts.ended)
    return App(
        binding=Binding(hub, hub_info(settings), partial(instructions, catalog, servers.upstreams)),
        current=current, hub=hub, upstreams=servers.upstreams, registry=registry, changes=changes, streams=streams,
        documents=documents, watchdog=watchdog, seen=seen, approvals=approvals, upstream_set=servers,
        operations=operations(loaded, applier, watchdog, partial(events.outcomes, "given_up")), logins=logins,
        journal=journal, executors=executors,
        server_logs=sources.logs, code=code, gates=RuleGates(applier), audit=audit, events=events,
    )  # fmt: skip

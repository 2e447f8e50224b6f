"""The composition root: the only module that names concrete classes and reads Settings; start-up and shutdown order.

Up: upstreams (all at once), then whatever front is asked for; nobody waits for an upstream. Down: running calls get
their ending, then all upstreams are closed side by side.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import platformdirs
import structlog

from mcp_hub import __version__
from mcp_hub.calls.keeping import Keeping
from mcp_hub.calls.parking import Parking
from mcp_hub.calls.read_result import ReadResult
from mcp_hub.calls.registry import Registry
from mcp_hub.calls.rules import CallRules
from mcp_hub.calls.runner import TimeLimits
from mcp_hub.calls.streams import StreamLimits, Streams
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.instructions import compose
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.unmatched import Unmatched, has_patterns, unmatched
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.config.load import Loaded
from mcp_hub.config.schema import Settings
from mcp_hub.fronts.audiences import Audiences
from mcp_hub.fronts.mcp_server import Binding, Identity
from mcp_hub.fronts.soft_deadline import SoftDeadlines
from mcp_hub.hub import Facade, LongResults
from mcp_hub.rules import view_rules, virtual_name
from mcp_hub.sources import Sources
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.documents import DocumentLimits, Documents
from mcp_hub.stores.documents_open import open_documents
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.stores.open import open_store
from mcp_hub.types import Audience
from mcp_hub.upstreams.base import Upstream
from mcp_hub.upstreams.changes import Changes
from mcp_hub.upstreams.memory import EraMemory
from mcp_hub.upstreams.producers import ProducerLimits
from mcp_hub.upstreams.questions import follow_up
from mcp_hub.upstreams.scoped import Scoped
from mcp_hub.upstreams.supervisor import Supervisor
from mcp_hub.upstreams.virtual import VirtualLimits, VirtualUpstream

__all__ = ["App", "open_app", "state_dir"]

log = structlog.get_logger(__name__)

_LAST_CALLS: Final = 0.3
"""Seconds that handlers have to end when the hub stops; with the upstreams' graces it stays under 2 s."""
_ANYBODY: Final = Audience()
_LAST_WRITES: Final = 0.5
"""Seconds in which the endings of durable streams have to be written."""


@dataclass(frozen=True, slots=True)
class App:
    """A running hub without a front."""

    settings: Settings
    hub: Facade
    binding: Binding
    upstreams: Mapping[str, Upstream]
    registry: Registry
    changes: Changes
    streams: Streams
    documents: Documents
    virtual: VirtualUpstream | None = None

    async def stop(self) -> None:
        """Gives every running call its ending, within a bound; fronts can still deliver it. Idempotent.

        Tasks of upstreams are left to the next hub.
        """
        for upstream in self.upstreams.values():
            if isinstance(upstream, Supervisor):
                upstream.leave_tasks()
        await self.registry.close(_LAST_CALLS)

    def unmatched(self) -> list[Unmatched]:
        """Patterns of the settings that nothing matches of what servers have listed so far."""
        absent = [name for name, own in self.settings.servers.items() if not own.enabled]
        listed = [snapshot for own in self.upstreams.values() if (snapshot := own.snapshot()) is not None]
        return unmatched(listed, view_rules(self.settings), [*absent, virtual_name(self.settings)])


def state_dir(env: Mapping[str, str]) -> Path:
    """Where the hub keeps what it remembers: `MCP_HUB_STATE_DIR`, else the platform's place."""
    return Path(env.get("MCP_HUB_STATE_DIR") or platformdirs.user_state_dir("mcp-hub"))


@asynccontextmanager
async def open_app(loaded: Loaded, env: Mapping[str, str], *, has_executors: bool = False) -> AsyncIterator[App]:
    """Starts every enabled upstream and yields at once; ends calls and upstreams on the way out.

    `has_executors` if clients of the hub can register tools of their own.
    """
    app = build(loaded, env, has_executors=has_executors)
    await app.streams.store.open()
    await app.documents.open()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(app.streams.run, name="streams")
        for upstream in app.upstreams.values():
            if isinstance(upstream, Supervisor | Scoped | VirtualUpstream):
                tasks.start_soon(upstream.run, name=f"upstream {upstream.name}")
        tasks.start_soon(_warn_of_unmatched, app, name="unmatched patterns")
        try:
            yield app
        finally:
            await app.stop()
            await app.streams.close(_LAST_WRITES)
            tasks.cancel_scope.cancel()


async def _warn_of_unmatched(app: App) -> None:
    """Logs them once servers were listed for the first time; late ones count when they come."""
    if not has_patterns(view_rules(app.settings)):
        return
    waited_for = {name for name, own in app.settings.servers.items() if own.enabled}
    judged: set[str] = set()
    told: set[Unmatched] = set()
    await app.hub.catalog.settled()
    while judged < waited_for:
        version = app.changes.version
        listed = {name for name in waited_for if app.upstreams[name].snapshot() is not None}
        if not listed <= judged:
            judged |= listed
            for found in app.unmatched():
                if found not in told:
                    log.warning("pattern_unmatched", path=".".join(map(str, found.path)), pattern=found.pattern)
                told.add(found)
        await app.changes.wait(version)


def build(loaded: Loaded, env: Mapping[str, str], *, has_executors: bool = False) -> App:
    """Wires a hub; nothing runs yet. Must be called on the event loop that will run it."""
    settings = loaded.settings
    clock, changes = SystemClock(), Changes()
    sources = Sources(env, str(loaded.path.parent), EraMemory(state_dir(env) / "eras.json"), clock, changes)
    upstreams = {name: sources.make(settings, name) for name in settings.servers}
    limits = settings.hub.limits
    virtual = VirtualUpstream(virtual_name(settings), changes, clock, _virtual_limits(settings))
    if has_executors:
        upstreams[virtual.name] = virtual
    catalog = Catalog(
        upstreams, view_rules(settings), changes, clock, settings.hub.first_list_wait, settings.hub.aliases
    )
    streams = Streams(_store(settings, env), clock, _stream_limits(settings))
    registry = Registry(clock, running=limits.running_calls, waiting=limits.waiting_calls, lasting=streams.begin)
    documents = _documents(settings, env)
    soft_deadlines = SoftDeadlines(settings.soft_deadline)
    parking = Parking(clock, limits.question_timeout, registry.cancel)
    hub = Facade(
        catalog,
        registry,
        upstreams,
        _time_limits(settings),
        settings.hub.page_size,
        parking,
        changes,
        streams,
        partial(_call_rules, settings),
        settings.hub.task_after,
        follow_up,
        soft_deadlines,
        Audiences(settings.client, soft_deadlines),
        LongResults(Keeping(documents, estimate), ReadResult(documents, estimate, clock)),
    )
    info = {"name": settings.hub.name, "version": __version__}
    binding = Binding(hub, Identity(info, partial(_instructions, settings, catalog)))
    return App(
        settings, hub, binding, upstreams, registry, changes, streams, documents, virtual if has_executors else None
    )


def _documents(settings: Settings, env: Mapping[str, str]) -> Documents:
    limits = settings.hub.limits
    bounds = DocumentLimits(
        ttl=limits.result_ttl,
        principal_bytes=limits.results_size // 2,
        principal_count=limits.results,
        total_bytes=limits.results_size,
        memory_bytes=limits.results_size,
    )
    return open_documents(settings.hub.store.type, _store_folder(settings, env), bounds, wall_time)


def _store_folder(settings: Settings, env: Mapping[str, str]) -> Path:
    chosen = settings.hub.store
    return Path(chosen.path) if chosen.path is not None else state_dir(env)


def _store(settings: Settings, env: Mapping[str, str]) -> EventStore:
    chosen, limits, folder = settings.hub.store, settings.hub.limits, _store_folder(settings, env)
    return open_store(chosen.type, folder, StoreLimits(limits.stream_events, limits.stream_size), SystemClock())


def _virtual_limits(settings: Settings) -> VirtualLimits:
    return VirtualLimits(producer=ProducerLimits(event=settings.hub.limits.event))


def _stream_limits(settings: Settings) -> StreamLimits:
    limits = settings.hub.limits
    return StreamLimits(limits.detached_calls, limits.followers, settings.hub.store.retention)


def _call_rules(settings: Settings, server: str, tool: str) -> CallRules:
    rules = settings.tool_rules(server, tool)
    return CallRules(rules.task, rules.orphan, rules.idempotent)


def _time_limits(settings: Settings) -> dict[str, tuple[TimeLimits, TimeLimits]]:
    limits: dict[str, tuple[TimeLimits, TimeLimits]] = {}
    for name in settings.servers:
        own = settings.effective(name)
        answer = settings.hub.limits.question_timeout
        reads = TimeLimits(own.request_timeout, own.max_duration, "request_timeout", answer)
        limits[name] = TimeLimits(own.timeout, own.max_duration, answer=answer), reads
    general = settings.defaults
    of_virtual = TimeLimits(general.timeout, general.max_duration, answer=settings.hub.limits.question_timeout)
    limits[virtual_name(settings)] = of_virtual, of_virtual
    return limits


def _instructions(settings: Settings, catalog: Catalog, profile: str | None) -> str | None:
    chosen = settings.profiles[profile].servers if profile is not None else None
    said = catalog.instructions()
    servers = {
        name: server.description or said.get(name)
        for name, server in settings.servers.items()
        if server.enabled and (chosen is None or name in chosen)
    }
    is_partial = catalog.rules(profile).expose == "auto" and bool(catalog.starting(profile))
    is_search = is_partial or catalog.mode(profile, _ANYBODY) != "full"
    return compose(settings.hub.instructions, servers, is_search=is_search)

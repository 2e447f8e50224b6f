"""Settings in the shapes that parts take."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from mcp_hub import __version__
from mcp_hub.app.catalog_rules import ProjectView, executor_server
from mcp_hub.call import Call
from mcp_hub.calls.gates.steps import Gates
from mcp_hub.calls.pending_input import PendingInput
from mcp_hub.calls.plan import CallRules, StreamLimits, TimeLimits
from mcp_hub.calls.reading.stored import exported_name
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.catalog.catalog import caller_lists
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.code.steps import CodeLimits
from mcp_hub.config.schema.clients import ClientRules
from mcp_hub.config.schema.defaults import Defaults, RetrySettings
from mcp_hub.config.schema.fields import parse_rate
from mcp_hub.config.schema.hub import StoreSettings
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings, claims_at
from mcp_hub.config.schema.tools import OverlaySettings, ToolRules, ToolSettings
from mcp_hub.config.trust import state_dir, store_folder
from mcp_hub.globs import any_matches
from mcp_hub.hub import HubPort
from mcp_hub.stores.base import EventStore, StoreLimits
from mcp_hub.stores.documents import DocumentLimits, Documents, Holdings, LimitRule
from mcp_hub.stores.history.base import HistoryStore
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.locks import Instances
from mcp_hub.stores.long_results import file_documents, memory_documents
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.stores.recovery.failsafe import failsafe_on_file
from mcp_hub.stores.sqlite.store import FILE
from mcp_hub.types import JsonObject, Kind
from mcp_hub.upstreams.process.child import HUB, PER_SERVER
from mcp_hub.upstreams.supervision.side_connections import topic_of

PER_CLIENT: Final = 4
"""Descriptors per client of a background hub, or over HTTP."""
_SESSIONS: Final = 16
"""Clients planned for at a time."""
_MOST_PROJECTS: Final = 512
"""Project views per hub; further ones are refused."""
_TOO_MANY: Final = ProjectView(None, OverlaySettings(), "was not used: this hub has had too many. Restart it")


class Current(msgspec.Struct):
    """The current settings, for parts that need them per call; a reload replaces them.

    `limits` are each server's, for tool calls and for other requests; the mapping is live.
    """

    settings: Settings
    limits: dict[str, tuple[TimeLimits, TimeLimits]] = msgspec.field(default_factory=dict)
    projects: dict[str, ProjectView] = msgspec.field(default_factory=dict)
    """Project views by profile name, until the hub ends."""
    code_limits: CodeLimits = CodeLimits()
    """Limits of scripts that begin now."""

    def __post_init__(self) -> None:
        self.use(self.settings, dict(self.limits))

    def enter(self, view: ProjectView) -> ProjectView:
        """Adds a project's view; beyond the limit, one that offers nothing."""
        if len(self.projects) >= _MOST_PROJECTS and view.name not in self.projects:
            view = _TOO_MANY
        self.projects[view.name] = view
        return view

    def use(self, settings: Settings, limits: Mapping[str, tuple[TimeLimits, TimeLimits]]) -> None:
        """Puts a reload in place."""
        self.settings = settings
        self.limits.clear()
        self.limits.update(limits)
        self.code_limits = CodeLimits(**settings.hub.code_limits.model_dump())

    def call_rules(self, server: str, tool: str) -> CallRules:
        """Call rules of a tool, by its original name."""
        rules = self.settings.tool_rules(server, tool)
        entry = self.settings.servers.get(server)
        is_local = entry is not None and entry.command is not None
        return CallRules(
            task=rules.task, orphan=rules.orphan, idempotent=rules.idempotent, pauses=rules.retry.pauses,
            has_chosen=rules.retry.on is not None, keeps_state=is_local,
            by_session=entry is not None and entry.scope == "session",
        )  # fmt: skip

    def client(self, client_name: str | None, chosen: str | None) -> ClientRules:
        return self.settings.client_table.rules(client_name, chosen)

    def soft_deadline(self, client_name: str | None, chosen: str | None, known_only: bool) -> float | None:
        """Seconds until a running call is answered; None: never."""
        return self.settings.client_table.rules(client_name, chosen, known_only=known_only).soft_deadline


def has_conditions(settings: Settings) -> bool:
    """Whether any tool has `allow_if` or `deny_if`."""
    tools = (tool for server in settings.servers.values() for tool in server.per_tool.values())
    return any(tool.deny_if or tool.allow_if is not None for tool in tools)


def claims_named(settings: Settings) -> frozenset[str]:
    """The claims of tokens that any condition looks at."""
    return frozenset(name for names in claims_at(settings).values() for name in names)


def has_asks(settings: Settings) -> bool:
    """Whether any tool, profile or the hub has `ask`."""
    tools = (tool for server in settings.servers.values() for tool in server.per_tool.values())
    asks = (settings.hub.ask, *(profile.ask for profile in settings.profiles.values()), *(tool.ask for tool in tools))
    return any(ask is not None for ask in asks)


def always_asks(settings: Settings, server: str, tool: str) -> bool:
    """Whether a rule of the tool, or of the hub for tools that do more than read, asks before each call of it."""
    entries = {} if (entry := settings.servers.get(server)) is None else entry.per_tool
    asks = [each.ask for pattern, each in entries.items() if pattern == tool or any_matches((pattern,), (tool,))]
    return any(ask is not None and ask.when == "always" and ask.only_if is None for ask in (*asks, settings.hub.ask))


def open_files(settings: Settings, *, has_clients: bool) -> int:
    """Descriptors for servers and, with `has_clients`, further clients."""
    scopes = [entry.scope for entry in settings.servers.values() if entry.enabled and entry.command is not None]
    processes = sum(1 if scope in (None, "shared") else _SESSIONS for scope in scopes)
    return HUB + PER_SERVER * processes + (PER_CLIENT * _SESSIONS if has_clients else 0)


def open_documents(settings: Settings, env: Mapping[str, str], store: EventStore) -> Documents:
    """The store of long results, not open yet."""
    limits = settings.hub.limits
    bounds = DocumentLimits(
        ttl=limits.result_ttl,
        principal_bytes=limits.results_size // 2,
        principal_count=limits.results,
        total_bytes=limits.results_size,
        memory_bytes=limits.results_size,
    )
    if store.replicas is not None:
        return store.replicas.documents(bounds, wall_time)
    return STORES[settings.hub.store.type].documents(store_folder(settings, env), bounds, wall_time)


def session_holder(store: EventStore, server: str) -> Holdings | None:
    """Tracks which replica holds a session's process; None without replicas."""
    return None if store.replicas is None else store.replicas.holdings(server)


def shared_secret(store: EventStore) -> bytes | None:
    """The replicas' common key; None without replicas."""
    return None if store.replicas is None else store.replicas.secret


def _redis(chosen: StoreSettings, folder: Path, limits: StoreLimits) -> EventStore:
    from mcp_hub.stores.replicated import redis_store

    assert chosen.url is not None, "the settings refuse it"
    url = chosen.url.get_secret_value()
    return redis_store(url, chosen.prefix, chosen.lease, chosen.acknowledge, limits, SystemClock())


class _StoreType(msgspec.Struct, frozen=True):
    """A type of `hub.store`: makes its streams and, unless its `replicas` have them, its long results.

    `file`: of the streams in the folder; empty for a server's. `is_lasting`: longer than the hub.
    """

    streams: Callable[[StoreSettings, Path, StoreLimits], EventStore]
    documents: Callable[[Path, DocumentLimits, Callable[[], float]], Documents] = file_documents
    file: str = ""
    is_lasting: bool = True


STORES: Final[Mapping[str, _StoreType]] = {
    "sqlite": _StoreType(lambda _, folder, limits: failsafe_on_file(folder, limits, SystemClock()), file=FILE),
    "memory": _StoreType(lambda _, __, limits: MemoryStore(limits), memory_documents, is_lasting=False),
    "redis": _StoreType(_redis),
}
"""The stores by `hub.store.type`."""


def open_store(settings: Settings, env: Mapping[str, str]) -> EventStore:
    """The store of streams, not open yet."""
    chosen, limits = settings.hub.store, settings.hub.limits
    bounds = StoreLimits(limits.stream_events, limits.stream_size)
    return STORES[chosen.type].streams(chosen, store_folder(settings, env), bounds)


def stream_file(settings: Settings, env: Mapping[str, str]) -> Path | None:
    """The file of the streams, which may not exist; None if the store has a server."""
    name = STORES[settings.hub.store.type].file
    return store_folder(settings, env) / name if name else None


def open_history(settings: Settings, env: Mapping[str, str], store: EventStore | None) -> HistoryStore:
    """The history beside the streams of `store`; None: only to read."""
    if store is not None and store.replicas is not None:
        return store.replicas.history(wall_time)
    folder = store_folder(settings, env) if STORES[settings.hub.store.type].is_lasting else None
    hub = "" if store is None else store.log.instance
    is_gone = Instances(folder or state_dir(env), hub).is_gone
    return HistoryFile(folder, hub, is_gone=is_gone, now=wall_time, clock=SystemClock())


def call_limits(settings: Settings) -> tuple[int, int]:
    """One principal's running and waiting calls."""
    return settings.hub.limits.running_calls, settings.hub.limits.waiting_calls


def hub_info(settings: Settings) -> JsonObject:
    """The hub's name and version for clients."""
    return {"name": settings.hub.name, "version": __version__}


def pending_input(
    settings: Settings, key: Callable[[], bytes], registry: CallRegistry, store: EventStore
) -> PendingInput:
    """The calls that wait for a modern client's retry; `key` seals their states."""
    seconds = settings.hub.limits.question_timeout
    return PendingInput(SystemClock(), seconds, registry.cancel, key, has_replicas=store.replicas is not None)


def stream_limits(settings: Settings) -> StreamLimits:
    """Limits of all the hub's streams."""
    limits = settings.hub.limits
    return StreamLimits(detached=limits.detached_calls, retention=settings.hub.store.retention)


def time_limits(settings: Settings, executor_name: str | None = None) -> dict[str, tuple[TimeLimits, TimeLimits]]:
    """Limits by server: for tool calls, and for other requests."""
    limits: dict[str, tuple[TimeLimits, TimeLimits]] = {}
    for name, entry in settings.servers.items():
        effective = settings.effective(name)
        rules = [effective.retry, *(tool.retry for tool in entry.per_tool.values() if tool.retry is not None)]
        reads = _time_limits(settings, effective, [effective.retry], effective.request_timeout, "request_timeout")
        limits[name] = _time_limits(settings, effective, rules, effective.timeout, "timeout"), reads
    general = settings.defaults
    of_executors = _time_limits(settings, general, [general.retry], general.timeout, "timeout")
    limits[executor_name or executor_server(settings)] = of_executors, of_executors
    return limits


def _time_limits(
    settings: Settings, effective: Defaults, rules: list[RetrySettings], silence: float, key: str
) -> TimeLimits:
    is_retried = any(rule.pauses.get("timeout") for rule in rules)
    answer = settings.hub.limits.question_timeout
    return TimeLimits(silence, effective.max_duration, setting=key, answer=answer, retries_silence=is_retried)


# -- gates of calls


_LimitKind = Literal["rate", "concurrency"]


def follow_gates(
    hub: HubPort, current: Current, store: EventStore, ended: list[Callable[[str, str], None]] | None = None
) -> None:
    """Puts gates for the present settings in place; existing ones keep counts and results.

    `ended` is called when a principal's account was removed or replaced: its results are forgotten.
    """
    if ended is not None:
        ended.append(partial(_drop_kept, hub.starter.gates))
    _follow_limits("rate", hub, current, store)
    _follow_limits("concurrency", hub, current, store)
    _follow_cache(hub, current)


def _follow_limits(kind: _LimitKind, hub: HubPort, current: Current, store: EventStore) -> None:
    gates = hub.starter.gates
    maker = gates.makers.get(kind)
    if maker is None and not any(_amount(kind, entry) for entry in _entries(current.settings)):
        return
    from mcp_hub.calls.gates.rate import CallLimits

    def rules(server: str, tool: str) -> tuple[LimitRule | None, LimitRule | None]:
        settings, key = current.settings, f"servers.{server}"
        entry, tool_rules = settings.servers.get(server), settings.tool_rules(server, tool)
        whole = None if entry is None else _amount(kind, entry)
        return _rule(key, whole), _rule(f"{key}.per_tool.{tool_rules.pattern}", _amount(kind, tool_rules))

    if not isinstance(maker, CallLimits):
        shared = None if store.replicas is None else store.replicas.counts()
        maker = CallLimits(
            rules,
            current.limits,
            SystemClock(),
            shared,
            note=lambda call, rule: gates.note(call, kind, "busy", rule),
        )
    gates.install(kind, maker)
    maker.look()


def _amount(kind: _LimitKind, entry: ServerSettings | ToolSettings | ToolRules) -> str | int | None:
    return entry.rate if kind == "rate" else entry.concurrency


def _rule(key: str, amount: str | int | None) -> LimitRule | None:

    if not amount:
        return None
    return LimitRule(key, *parse_rate(amount)) if isinstance(amount, str) else LimitRule(key, running=amount)


def _asks(settings: Settings, server: str, tool: str) -> bool:
    """Whether a rule of the tool itself may ask a person: a kept result would reach others without a yes."""
    entry = settings.servers.get(server)
    asking = [] if entry is None else [name for name, rules in entry.per_tool.items() if rules.ask is not None]
    return tool in asking or any_matches(asking, (tool,))


def _follow_cache(hub: HubPort, current: Current) -> None:
    gates = hub.starter.gates
    maker, room = gates.makers.get("cache"), current.settings.hub.limits.cache_size
    if maker is None and not any(
        isinstance(entry, ToolSettings) and entry.cache for entry in _entries(current.settings)
    ):
        return
    from mcp_hub.calls.gates.cache import ResultCache

    def lifetime(server: str, tool: str) -> float:
        seconds = current.settings.tool_rules(server, tool).cache
        return 0.0 if seconds and _asks(current.settings, server, tool) else seconds

    def reads_only(call: Call) -> bool:
        view = hub.catalog.view(call.profile, caller_lists(hub.upstreams, call))
        entry = view.find(Kind.TOOL, exported_name(call))
        return entry is not None and entry.is_read_only and entry.server == call.upstream

    if isinstance(maker, ResultCache):
        maker.resize(room)
    else:
        maker = ResultCache(lifetime, hub.upstreams, reads_only, SystemClock(), gates=gates, room=room)
    gates.install("cache", maker)


def _drop_kept(gates: Gates, server: str, principal: str) -> None:
    maker = gates.makers.get("cache")
    if maker is not None:
        from mcp_hub.calls.gates.cache import ResultCache

        if isinstance(maker, ResultCache):
            maker.drop(server, topic_of(server, principal))


def _entries(settings: Settings) -> list[ServerSettings | ToolSettings]:
    servers = settings.servers.values()
    return [*servers, *(tool for server in servers for tool in server.per_tool.values())]

"""The settings, in the shapes that the parts of a hub take: part of the composition root.

Parts that are asked for each call are handed `Current`, so that a reload needs no new ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec
import platformdirs

from mcp_hub.app.catalog_rules import ProjectView, executor_server
from mcp_hub.calls.retries import RetryRule
from mcp_hub.calls.rules import CallLimits, CallRules, StreamLimits, TimeLimits
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.config.schema.clients import ClientRules
from mcp_hub.config.schema.overrides import OverlaySettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.stores import open as stores
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.documents.base import DocumentLimits, Documents
from mcp_hub.stores.history.base import HistoryStore
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.instances import Instances
from mcp_hub.stores.limits import StoreLimits
from mcp_hub.upstreams.process.descriptors import HUB, PER_SERVER
from mcp_hub.upstreams.supervision.side_connections import Holder

PER_CLIENT: Final = 4
"""Descriptors of a client of a background hub, or over HTTP."""
_SESSIONS: Final = 16
"""Clients at a time that are provided for."""
_MOST_PROJECTS: Final = 512
"""Views of projects, as long as a hub runs; further ones are refused."""
_TOO_MANY: Final = ProjectView(None, OverlaySettings(), "was not used: this hub has had too many. Restart it")


class Current(msgspec.Struct):
    """The settings that hold now; a reload puts others in their place."""

    settings: Settings
    projects: dict[str, ProjectView] = msgspec.field(default_factory=dict)
    """The views of projects by the names of profiles, as long as the hub runs."""

    def enter(self, view: ProjectView) -> ProjectView:
        """Adds the view of a project; the answer is one that offers nothing if there are too many."""
        if len(self.projects) >= _MOST_PROJECTS and view.name not in self.projects:
            view = _TOO_MANY
        self.projects[view.name] = view
        return view

    def use(self, settings: Settings) -> None:
        """These hold from now on."""
        self.settings = settings

    def call_rules(self, server: str, tool: str) -> CallRules:
        """The rules for calls of a tool, by the server's own name for it."""
        rules = self.settings.tool_rules(server, tool)
        retry_settings = rules.retry
        on = None if retry_settings.on is None else frozenset(retry_settings.on)
        retry = RetryRule(retry_settings.attempts, on, rules.idempotent)
        entry = self.settings.servers.get(server)
        is_local = entry is not None and entry.command is not None
        return CallRules(
            task=rules.task, orphan=rules.orphan, idempotent=rules.idempotent, retry=retry, keeps_state=is_local
        )

    def client(self, client_name: str | None, chosen: str | None) -> ClientRules:
        """As `ClientTable.rules`."""
        return self.settings.client_table.rules(client_name, chosen)

    def soft_deadline(self, client_name: str | None, chosen: str | None, known_only: bool) -> float | None:
        """After how many seconds a call of this client is answered though it still runs; None for never."""
        return self.settings.client_table.rules(client_name, chosen, known_only=known_only).soft_deadline


def state_dir(env: Mapping[str, str]) -> Path:
    """Where the hub keeps what it remembers: `MCP_HUB_STATE_DIR`, else the platform's place."""
    return Path(env.get("MCP_HUB_STATE_DIR") or platformdirs.user_state_dir("mcp-hub"))


def open_files(settings: Settings, *, has_clients: bool) -> int:
    """The descriptors that a hub needs for its servers and, if it `has_clients`, for clients beside the first."""
    scopes = [entry.scope for entry in settings.servers.values() if entry.enabled and entry.command is not None]
    processes = sum(1 if scope in (None, "shared") else _SESSIONS for scope in scopes)
    return HUB + PER_SERVER * processes + (PER_CLIENT * _SESSIONS if has_clients else 0)


def own_folders(settings: Settings | None, env: Mapping[str, str]) -> list[Path]:
    """The folders for the hub's files: of its state and of its store; without settings, the first."""
    return [state_dir(env), *([] if settings is None else [_store_folder(settings, env)])]


def open_documents(settings: Settings, env: Mapping[str, str], store: EventStore) -> Documents:
    """Where long results are kept, not open yet; beside the streams."""
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
    kind: stores.StoreKind = "memory" if settings.hub.store.type == "memory" else "sqlite"
    return stores.open_documents(kind, _store_folder(settings, env), bounds, wall_time)


def session_holder(store: EventStore, server: str) -> Holder | None:
    """Knows which replica has the server's process of a session; None where there is one hub only."""
    return None if store.replicas is None else store.replicas.holdings(server)


def shared_secret(store: EventStore) -> bytes | None:
    """The key that all replicas of the hub have; None where the state folder keeps one."""
    return None if store.replicas is None else store.replicas.secret


def _store_folder(settings: Settings, env: Mapping[str, str]) -> Path:
    chosen = settings.hub.store
    return Path(chosen.path) if chosen.path is not None else state_dir(env)


def open_store(settings: Settings, env: Mapping[str, str]) -> EventStore:
    """Where streams are kept, not open yet."""
    chosen, limits, folder = settings.hub.store, settings.hub.limits, _store_folder(settings, env)
    bounds = StoreLimits(limits.stream_events, limits.stream_size)
    if chosen.type != "redis" or chosen.url is None:
        kind: stores.StoreKind = "memory" if chosen.type == "memory" else "sqlite"
        return stores.open_store(kind, folder, bounds, SystemClock())
    from mcp_hub.stores.replicated import redis_store

    url = chosen.url.get_secret_value()
    return redis_store(url, chosen.prefix, chosen.lease, chosen.acknowledge, bounds, SystemClock())


def open_history(settings: Settings, env: Mapping[str, str], store: EventStore | None) -> HistoryStore:
    """Where past calls are kept, beside the streams of `store`; without it, for somebody who only looks."""
    if store is not None and store.replicas is not None:
        return store.replicas.history(wall_time)
    folder = None if settings.hub.store.type == "memory" else own_folders(settings, env)[-1]
    hub = "" if store is None else store.log.instance
    is_gone = Instances(folder or state_dir(env), hub).is_gone
    return HistoryFile(folder, hub, is_gone=is_gone, now=wall_time, clock=SystemClock())


def call_limits(settings: Settings) -> CallLimits:
    """The calls of one principal."""
    return CallLimits(settings.hub.limits.running_calls, settings.hub.limits.waiting_calls)


def stream_limits(settings: Settings) -> StreamLimits:
    """Of all streams of a hub."""
    limits = settings.hub.limits
    return StreamLimits(detached=limits.detached_calls, retention=settings.hub.store.retention)


def time_limits(settings: Settings, executor_name: str | None = None) -> dict[str, tuple[TimeLimits, TimeLimits]]:
    """Of each server: of tool calls, and of everything else that is relayed. `executor_name`: as for `view_rules`."""
    limits: dict[str, tuple[TimeLimits, TimeLimits]] = {}
    answer = settings.hub.limits.question_timeout
    for name in settings.servers:
        effective = settings.effective(name)
        reads = TimeLimits(effective.request_timeout, effective.max_duration, "request_timeout", answer)
        limits[name] = TimeLimits(effective.timeout, effective.max_duration, answer=answer), reads
    general = settings.defaults
    of_executors = TimeLimits(general.timeout, general.max_duration, answer=answer)
    limits[executor_name or executor_server(settings)] = of_executors, of_executors
    return limits

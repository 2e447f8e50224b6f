"""Puts new settings into a running hub, all at once."""

from collections.abc import Mapping
from typing import Final

import msgspec

from mcp_hub.app.catalog_rules import confirmed_servers, executor_server, policies, view_rules
from mcp_hub.app.limits import Current, call_limits, time_limits
from mcp_hub.app.upstream_factory import UpstreamFactory, supervisor_rules
from mcp_hub.app.upstream_set import UpstreamSet
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.calls.rules import TimeLimits
from mcp_hub.catalog.trust.approvals import Approvals
from mcp_hub.config.plan import Plan
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.hub import HubPort
from mcp_hub.sessions.client_kinds import ClientKinds
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.supervision.server import OwnedUpstream

_SEEN_BY_SESSIONS: Final = ("hub.expose", "hub.budget", "hub.clients", "profiles.")
"""Settings that a session reads once, at its beginning."""
_OF_LISTS: Final = ("hub.limits.tools_per_server",)
"""Settings of the hub that hold for every server."""
_CHANGED: Final = "its configuration changed"


class Applier(msgspec.Struct, frozen=True):
    """The parts of a hub that depend on settings."""

    current: Current
    sources: UpstreamFactory
    upstream_set: UpstreamSet
    limits: dict[str, tuple[TimeLimits, TimeLimits]]
    hub: HubPort
    registry: CallRegistry
    kinds: ClientKinds
    approvals: Approvals
    executor_name: str | None

    def state(self, server: str) -> UpstreamState:
        return self.upstream_set.upstreams[server].status().state

    def apply(self, settings: Settings, change: Plan, restarted: tuple[str, ...]) -> None:
        """Puts `settings` in place without waiting, and replaces `restarted` servers. Raises `ConfigError`, with
        nothing changed.

        No call sees half of a change; clients get one notification per changed list.
        """
        if self.executor_name in settings.servers:
            message = "tools that clients execute have this name until the hub restarts. Choose another name."
            raise ConfigError(ConfigFinding("name_taken", message, path=f"servers.{self.executor_name}"))
        executor_name = self.executor_name or executor_server(settings)
        rules, limits = view_rules(settings, executor_name, self.current.projects), time_limits(settings, executor_name)
        fresh = {name: self.sources.make(settings, name) for name in restarted}
        has_list_limits = any(key in _OF_LISTS for key in change.at_once)
        adjusted = (*change.adjusted, *change.kept) if has_list_limits else change.adjusted
        rules_of = {name: supervisor_rules(settings, name) for name in adjusted if name not in fresh}
        # nothing has changed so far, and nothing fails from here on
        self.current.use(settings)
        self.kinds.forget()
        self.limits.clear()
        self.limits.update(limits)
        self.registry.limit(call_limits(settings))
        self.approvals.follow(policies(settings), confirmed_servers(settings))
        self.hub.catalog.use(rules, settings.hub.aliases)
        look_again = any(key.startswith(_SEEN_BY_SESSIONS) for key in change.at_once)
        self.hub.session_rules.use(settings.hub.page_size, settings.hub.task_after, look_again=look_again)
        self.upstream_set.adjust(rules_of)
        self._put(settings, fresh, _CHANGED)

    def revive(self, server: str) -> bool:
        return self.upstream_set.revive(server)

    def restart(self, server: str, why: str = "restarted on request") -> None:
        """Replaces a server; calls at the old one may end. Raises `KeyError` if not configured."""
        settings = self.current.settings
        self._put(settings, {server: self.sources.make(settings, server)}, why)
        self.upstream_set.wake(server)

    def isolate(self, server: str) -> None:
        """Gives new sessions their own processes of a server that asks its callers; earlier callers keep the shared
        one.

        Raises `KeyError` if not configured.
        """
        settings = self.current.settings
        self.sources.put_interactive(settings.servers[server])
        seconds = settings.hub.limits.question_timeout
        fresh = {server: self.sources.make(settings, server)}
        self._put(settings, fresh, "it asks its callers", seconds, stays=True)

    def _put(
        self, settings: Settings, fresh: Mapping[str, OwnedUpstream], why: str, seconds: float | None = None, *,
        stays: bool = False,
    ) -> None:  # fmt: skip
        order = (*settings.servers, *([self.executor_name] if self.executor_name else ()))
        wait = settings.hub.drain_timeout if seconds is None else seconds
        self.upstream_set.put(fresh, order, wait, why, stays=stays)

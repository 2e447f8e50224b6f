"""Puts new settings into a running hub: upstreams, and their replacement while old ones finish their calls."""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
import anyio.abc
import msgspec
from msgspec.structs import replace

from mcp_hub.app.catalog_rules import confirmed_servers, executor_server, policies, view_rules
from mcp_hub.app.limits import Current, call_limits, follow_gates, has_asks, has_conditions, time_limits
from mcp_hub.app.upstream_factory import UpstreamFactory, supervisor_rules
from mcp_hub.call import Upstream
from mcp_hub.calls.registry import CallRegistry
from mcp_hub.catalog.trust.approvals import Approvals
from mcp_hub.config.plan import Plan
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.hub import HubPort
from mcp_hub.logs import get_logger
from mcp_hub.notices import Notices
from mcp_hub.sessions.clients import ClientKinds
from mcp_hub.stores.base import EventStore
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.supervision.server import OwnedUpstream, SupervisorRules

if TYPE_CHECKING:
    from mcp_hub.app.gates import HubGates
    from mcp_hub.calls.gates.asking import Asking

log = get_logger(__name__)

_GONE: Final = "removed from the configuration"
_MOST_OLD: Final = 4
"""Predecessors per server that may finish calls; beyond that the oldest ends at once."""
_SEEN_BY_SESSIONS: Final = ("hub.expose", "hub.budget", "hub.clients", "profiles.")
"""Settings that a session reads once, at its beginning."""
_OF_LISTS: Final = ("hub.limits.tools_per_server",)
"""Settings of the hub that hold for every server."""
_CHANGED: Final = "its configuration changed"


class UpstreamSet:
    """`upstreams` maps names in file order; a removed one stays until it stops."""

    def __init__(self, upstreams: Mapping[str, OwnedUpstream], changes: Notices) -> None:
        self.upstreams = dict(upstreams)
        self._changes = changes
        self._tasks: anyio.abc.TaskGroup | None = None
        self._scopes: dict[OwnedUpstream, anyio.CancelScope] = {}
        self._old: dict[OwnedUpstream, anyio.CancelScope] = {}

    def __iter__(self) -> Iterator[OwnedUpstream]:
        yield from self.upstreams.values()
        yield from (old for old in self._old if self.upstreams.get(old.name) is not old)

    async def run(self, *, task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Runs them until cancelled; then their processes have ended."""
        async with anyio.create_task_group() as self._tasks:
            for upstream in self.upstreams.values():
                self._start(upstream)
            task_status.started()
            await anyio.sleep_forever()

    def put(
        self, fresh: Mapping[str, OwnedUpstream], order: Iterable[str], seconds: float, why: str, *, stays: bool = False
    ) -> None:
        """Replaces upstreams by `fresh` ones, as one change; removes names missing in `order`.

        Calls of an old one have `seconds` to end; with `stays` it lives until its clients leave.
        """
        before, after = self.upstreams.copy(), self.upstreams
        named = [name for name in order if name in fresh or name in before]
        after.clear()
        after.update({name: fresh[name] if name in fresh else before[name] for name in named})
        for name, old in before.items():
            if name not in after:
                after[name] = old  # until it is stopped
                self._retire(old, seconds, _GONE)
        for name, new in fresh.items():
            if name in before:
                _hand_over(before[name], new, stays=stays)
                self._retire(before[name], seconds, why, new if stays else None)
            self._start(new)
        self._changes.bump()

    def adjust(self, rules: Mapping[str, SupervisorRules]) -> None:
        for name, rule in rules.items():
            self.upstreams[name].lifecycle.adjust(rule)

    def revive(self, name: str) -> bool:
        """Restarts abandoned session processes; False without any."""
        return self.upstreams[name].lifecycle.revive()

    def relist(self, name: str) -> None:
        if name in self.upstreams:
            self.upstreams[name].lifecycle.relist()

    def is_crowded(self, name: str) -> bool:
        """Whether another replacement would cut calls of the oldest predecessor."""
        return len(self._draining(name)) >= _MOST_OLD

    def _draining(self, name: str) -> list[anyio.CancelScope]:
        return [scope for upstream, scope in self._old.items() if upstream.name == name]

    def wake(self, name: str) -> None:
        self.upstreams[name].lifecycle.wake()

    def _start(self, upstream: OwnedUpstream) -> None:
        if self._tasks is not None:
            scope = self._scopes[upstream] = anyio.CancelScope()
            self._tasks.start_soon(self._run, upstream, scope, name=f"upstream {upstream.name}")

    async def _run(self, upstream: OwnedUpstream, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await upstream.lifecycle.run()
            except Exception:  # the others go on
                log.exception("upstream_crashed", upstream=upstream.name)
        self._scopes.pop(upstream, None)

    def _retire(self, old: OwnedUpstream, seconds: float, why: str, new: OwnedUpstream | None = None) -> None:
        if old in self._old:
            return
        earlier = self._draining(old.name)
        if len(earlier) >= _MOST_OLD:
            earlier[0].cancel()
        self._old[old] = anyio.CancelScope()
        if self._tasks is not None:
            self._tasks.start_soon(partial(self._end, old, seconds, why, new), name=f"end of upstream {old.name}")

    async def _end(self, old: OwnedUpstream, seconds: float, why: str, new: OwnedUpstream | None) -> None:
        """Lets calls end, then stops it, once clients of `new` no longer need it."""
        with self._old[old]:
            try:
                if new is not None:
                    await new.lifecycle.outlived()
                await old.lifecycle.drain(seconds, why)
            except Exception:
                log.exception("upstream_crashed", upstream=old.name)
        if (scope := self._scopes.get(old)) is not None:
            scope.cancel()
        del self._old[old]
        if self.upstreams.get(old.name) is old:
            del self.upstreams[old.name]
        self._changes.bump()
        log.info("upstream_retired", upstream=old.name, reason=why)


def _hand_over(old: OwnedUpstream, new: OwnedUpstream, *, stays: bool) -> None:
    legacy = old.lifecycle.hand_over(new.call)
    new.lifecycle.inherit(legacy if stays else replace(legacy, shared=None))


class Applier(msgspec.Struct, frozen=True):
    """The parts of a hub that depend on settings."""

    current: Current
    sources: UpstreamFactory
    upstream_set: UpstreamSet
    hub: HubPort
    registry: CallRegistry
    kinds: ClientKinds
    approvals: Approvals
    executor_name: str | None
    store: EventStore

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
        adjusted = (*change.adjusted, *change.unchanged) if has_list_limits else change.adjusted
        rules_of = {name: supervisor_rules(settings, name) for name in adjusted if name not in fresh}
        # nothing has changed so far, and nothing fails from here on
        self.current.use(settings, limits)
        self.kinds.forget()
        self.registry.limit(*call_limits(settings))
        self.approvals.follow(policies(settings), confirmed_servers(settings))
        self.hub.catalog.use(rules, settings.hub.aliases)
        look_again = any(key.startswith(_SEEN_BY_SESSIONS) for key in change.at_once)
        self.hub.session_rules.use(settings.hub.page_size, settings.hub.task_after, look_again=look_again)
        follow_gates(self.hub, self.current, self.store)
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


class RuleGates:
    """The gates that settings ask for, loaded with the first one."""

    def __init__(self, applier: Applier) -> None:
        self._make = partial(_hub_gates, applier.hub, applier.current, applier.upstream_set.upstreams)
        self._gates: HubGates | None = None
        self._begun = anyio.Event()
        self.use(applier.current.settings)

    @property
    def asking(self) -> "Asking | None":
        """The calls that wait for a yes; None where nothing asks."""
        return None if self._gates is None else self._gates.asking

    def use(self, settings: Settings) -> None:
        """Applies these settings from the next call on."""
        if self._gates is None:
            if not (has_conditions(settings) or has_asks(settings)):
                return
            self._gates = self._make()
            self._begun.set()
        self._gates.use(settings)

    async def run(self) -> None:
        """Sends links until cancelled."""
        await self._begun.wait()
        if self._gates is not None:
            await self._gates.run()


def _hub_gates(hub: HubPort, current: Current, upstreams: Mapping[str, Upstream]) -> "HubGates":
    from mcp_hub.app.gates import HubGates

    return HubGates(hub, current, upstreams)

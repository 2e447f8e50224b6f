"""The current view of every profile: built when something changed and somebody asks, never on a timer.

First-list rule (product.md, promise 9): a list waits only for servers that are still on their first way up, and only
until `first_list_wait` seconds after the hub's start; then it answers with what is known.
"""

from collections.abc import Mapping

import anyio

from mcp_hub.catalog.links import Remembered, readdress
from mcp_hub.catalog.routes import text
from mcp_hub.catalog.view import CatalogView, ViewRules, build
from mcp_hub.clock import Clock
from mcp_hub.types import RawJson, Snapshot, UpstreamState
from mcp_hub.upstreams.base import Call, Upstream
from mcp_hub.upstreams.changes import Changes

__all__ = ["Catalog"]


class Catalog:
    """Views by profile over what the upstreams offer now. `own` are the hub's own tools, for some clients only."""

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        rules: Mapping[str | None, ViewRules],
        changes: Changes,
        clock: Clock,
        first_list_wait: float,
        own: Snapshot | None = None,
    ) -> None:
        self._own = own
        self._upstreams = upstreams
        self._rules = rules
        self._changes = changes
        self._clock = clock
        self._deadline = clock.now() + first_list_wait
        self._seen = -1
        self._snapshots: tuple[Snapshot, ...] = ()
        self._views: dict[tuple[str | None, bool], CatalogView] = {}
        self._remembered = Remembered()

    @property
    def version(self) -> int:
        """Goes up whenever something changed; see `wait_changed`."""
        return self._changes.version

    @property
    def profiles(self) -> frozenset[str | None]:
        return frozenset(self._rules)

    def view(self, profile: str | None, *, answered_early: bool = False) -> CatalogView:
        """The view of a profile (None: everything), as clients see it whose calls may be `answered_early` or not.

        Raises `KeyError` for a profile that is not configured.
        """
        self._look()
        view = self._views.get((profile, answered_early))
        if view is None:
            view = self._views[profile, answered_early] = self._built(profile, answered_early)
        return view

    def _built(self, profile: str | None, answered_early: bool) -> CatalogView:
        if answered_early:
            return self.view(profile).for_early_answers(self._own)
        return build(self._snapshots, self._rules[profile], self._remembered)

    def is_shared(self, profile: str | None) -> bool:
        """Whether nothing but the servers decides what callers of this profile get (see `ViewRules`)."""
        return self._rules[profile].shared

    def _look(self) -> None:
        if self._changes.version != self._seen:
            self._seen = self._changes.version
            fresh = tuple(s for u in self._upstreams.values() if (s := u.snapshot()) is not None)
            if fresh != self._snapshots:
                self._snapshots = fresh
                self._views.clear()

    def exported_in_result(self, profile: str | None, call: Call, result: RawJson) -> RawJson:
        """The result of `call` with each resource URI as callers of this profile can read it.

        What was read goes by the URI that it was asked for. A URI that nobody lists is remembered with its server; a
        hidden one is passed on, and reading it refused. Raises `KeyError` for a profile that is not configured.
        """
        own = text(call.params, "uri", call.method) if call.method == "resources/read" else None

        def exported(uri: str) -> str:
            if uri == own:
                return call.exported_uri or uri
            return self.view(profile).exported_uri(call.upstream, uri)

        return readdress(call.method, result, exported)

    def instructions(self) -> dict[str, str | None]:
        """What each server that was listed says of itself."""
        self._look()
        return {snapshot.server: snapshot.instructions for snapshot in self._snapshots}

    @property
    def is_settled(self) -> bool:
        """Whether a list may be answered now."""
        return self._clock.now() >= self._deadline or not any(map(_on_first_way_up, self._upstreams.values()))

    async def settled(self) -> None:
        """Waits until a list may be answered."""
        with anyio.move_on_after(self._deadline - self._clock.now()):
            while not self.is_settled:
                await self._changes.wait(self._changes.version)

    async def wait_changed(self, after: int) -> int:
        """The version of what the upstreams offer, as soon as it is above `after`."""
        return await self._changes.wait(after)


def _on_first_way_up(upstream: Upstream) -> bool:
    return upstream.snapshot() is None and upstream.status().state is UpstreamState.STARTING

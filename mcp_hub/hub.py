"""The facade that every front calls: list, call, cancel, levels, status. Stateless; what lasts lives in its parts."""

from collections.abc import Mapping

from mcp_hub.calls.registry import Registry
from mcp_hub.calls.runner import CallRecord, TimeLimits
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.routes import route
from mcp_hub.catalog.view import CatalogView
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.sessions.session import Session
from mcp_hub.types import Kind, RawObject, UpstreamStatus
from mcp_hub.upstreams.base import Call, Upstream

__all__ = ["Facade"]


class Facade:
    """One hub. `limits` holds each server's time limits, of tool calls and of everything else that is relayed (reads);
    `page_size` the entries of one list page.
    """

    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        upstreams: Mapping[str, Upstream],
        limits: Mapping[str, tuple[TimeLimits, TimeLimits]],
        page_size: int,
    ) -> None:
        self.catalog = catalog
        self._registry = registry
        self._upstreams = upstreams
        self._limits = limits
        self._page_size = page_size

    def view(self, session: Session) -> CatalogView:
        return self.catalog.view(session.caller.profile)

    def list_page(self, session: Session, kind: Kind, cursor: str | None) -> bytes:
        """The encoded result of a list request, from what is known now. Raises `InvalidParams`."""
        return self.view(session).page(kind, session.era, cursor, self._page_size)

    def call(self, session: Session, method: str, params: RawObject, meta: RequestMeta) -> CallRecord:
        """Starts a call. Raises `InvalidParams`, `UnknownEntry`, `Busy`."""
        to = route(self.view(session), session.era, method, params)
        call = Call(
            id=new_call_id(),
            upstream=to.server,
            method=method,
            params=to.params,
            meta=meta.rest,
            session=session.id,
            principal=session.caller.principal,
            era=session.era,
            capabilities=session.capabilities,
            exported_uri=to.exported_uri,
            wants_progress=meta.token is not None,
            log_level=session.log_level,
        )
        of_tools, of_reads = self._limits[to.server]
        limits = of_tools if method == "tools/call" else of_reads
        return self._registry.start(call, self._upstreams[to.server].call, limits)

    def cancel(self, record: CallRecord, reason: str | None = None) -> None:
        """Ends a call because its caller said so; its upstream is told."""
        self._registry.cancel(record, reason)

    def set_log_level(self, session: Session, level: str) -> None:
        """What the session wants to hear from now on; upstreams are asked for the most verbose level wanted."""
        session.log_level = level
        for upstream in self._upstreams.values():
            upstream.set_log_level(level)

    def statuses(self) -> list[UpstreamStatus]:
        """Every configured server, in configured order."""
        return [upstream.status() for upstream in self._upstreams.values()]

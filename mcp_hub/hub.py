"""The facade that every front calls: list, call, cancel, subscribe, levels, status. What lasts lives in its parts."""

from collections.abc import Mapping

import msgspec

from mcp_hub.calls.parking import Leg, Parking, is_parked, unmark
from mcp_hub.calls.registry import Registry
from mcp_hub.calls.runner import CallRecord, TimeLimits
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.routes import route
from mcp_hub.catalog.view import CatalogView
from mcp_hub.errors import RpcError
from mcp_hub.ids import new_call_id
from mcp_hub.protocol import questions
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rpc_errors import for_caller
from mcp_hub.sessions.session import Session
from mcp_hub.sessions.subscriptions import Subscriptions
from mcp_hub.types import Era, Kind, RawJson, RawObject, UpstreamStatus
from mcp_hub.upstreams.base import Call, Upstream
from mcp_hub.upstreams.changes import Changes, Origin

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
        parking: Parking,
        changes: Changes,
    ) -> None:
        self.catalog = catalog
        self.changes = changes
        self._registry = registry
        self._upstreams = upstreams
        self._limits = limits
        self._page_size = page_size
        self._parking = parking
        self._subscriptions = Subscriptions(upstreams)

    def view(self, session: Session) -> CatalogView:
        return self.catalog.view(session.caller.profile)

    def list_page(self, session: Session, kind: Kind, cursor: str | None) -> bytes:
        """The encoded result of a list request, from what is known now. Raises `InvalidParams`."""
        page = self.view(session).page(kind, session.era, cursor, self._page_size)
        if session.lists is not None and cursor is None:
            session.lists[kind] = self.list_digest(session, kind)
        return page

    def list_digest(self, session: Session, kind: Kind) -> int:
        """Tells the session's lists apart by their content, without keeping them."""
        return hash(tuple(entry.raw for entry in self.view(session).entries(kind)))

    def call(self, session: Session, method: str, params: RawObject, meta: RequestMeta) -> Leg:
        """Starts a call, or takes up the one that this is the retry of; says from which event on to follow it.

        Raises `InvalidParams`, `UnknownEntry`, `Busy`.
        """
        responses = state = None
        if session.era is Era.MODERN and ("inputResponses" in params or "requestState" in params):
            responses, state = questions.take_retry(params)
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
            version=session.version,
            capabilities=session.capabilities,
            exported_uri=to.exported_uri,
            wants_progress=meta.token is not None,
            log_level=session.log_level,
        )
        if state is not None and is_parked(state):
            parked = self._parking.fetch(state, call)
            for key, response in (responses or {}).items():
                parked.record.answer(key, response)
            return parked
        if responses is not None or state is not None:
            own = unmark(state) if state is not None else None
            call = msgspec.structs.replace(call, input_responses=responses, request_state=own)
        of_tools, of_reads = self._limits[call.upstream]
        limits = of_tools if method == "tools/call" else of_reads
        return Leg(self._registry.start(call, self._upstreams[call.upstream].call, limits))

    def park(self, record: CallRecord, cursor: int) -> str:
        """Keeps a call whose modern caller has to gather input; the `requestState` of the retry."""
        return self._parking.park(record, cursor)

    def exported(self, session: Session, call: Call, result: RawJson) -> RawJson:
        """The result of a call with its resource URIs as the session's client can read them."""
        return self.catalog.exported_in_result(session.caller.profile, call, result)

    def is_shared(self, session: Session, record: CallRecord) -> bool:
        """Whether nothing but the upstream decided the result, so that caches of several users may keep it."""
        return self.catalog.is_shared(session.caller.profile) and not record.had_input

    def cancel(self, record: CallRecord, reason: str | None = None) -> None:
        """Ends a call because its caller said so; its upstream is told."""
        self._registry.cancel(record, reason)

    async def subscribe(self, session: Session, uri: str) -> None:
        """Returns when its upstream watches the resource; updates are noted in `changes` from then on.

        Raises `UnknownEntry` as reading it would, `Busy`, and the error of an upstream that refuses.
        """
        if self.view(session).resolve_uri(uri) is None:
            await self.catalog.settled()  # its server may be on its way up: wait as long as a list would
        server, own = self._origin(session, uri)
        try:
            await self._subscriptions.add(session, (server, own), uri)
        except RpcError as error:
            raise for_caller(error, session.era, server, session.capabilities) from None

    def unsubscribe(self, session: Session, uri: str) -> None:
        """Ends the subscription to what the client knows as `uri`, if there is one."""
        known = [origin for origin, name in session.subscriptions.items() if name == uri]
        origin = known[0] if known else self.view(session).resolve_uri(uri)
        if origin is not None:
            self._subscriptions.remove(session, origin)

    def end(self, session: Session) -> None:
        """The client is gone, and with it what it was subscribed to. Idempotent."""
        self._subscriptions.clear(session)
        for upstream in self._upstreams.values():
            upstream.session_ended(session.id)

    def _origin(self, session: Session, uri: str) -> Origin:
        params = {"uri": msgspec.Raw(msgspec.json.encode(uri))}
        to = route(self.view(session), session.era, "resources/read", params)
        return to.server, msgspec.json.decode(to.params["uri"], type=str)

    def set_log_level(self, session: Session, level: str) -> None:
        """What the session wants to hear from now on; upstreams are asked for the most verbose level wanted."""
        session.log_level = level
        for upstream in self._upstreams.values():
            upstream.set_log_level(level)

    def statuses(self) -> list[UpstreamStatus]:
        """Every configured server, in configured order."""
        return [upstream.status() for upstream in self._upstreams.values()]

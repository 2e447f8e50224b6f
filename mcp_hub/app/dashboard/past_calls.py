"""The call history as a caller may see it: operators everything, others calls of their principal and profile."""

from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import anyio.to_thread
import msgspec
from msgspec import UNSET, Raw, UnsetType

from mcp_hub.app.limits import Current, open_history, shared_secret
from mcp_hub.call import Upstream
from mcp_hub.calls.history.batches import Digest, JournalRules, ToolKeeping
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.history.recent import shown_principal
from mcp_hub.catalog.offers.definitions import parse
from mcp_hub.catalog.pins import fingerprint, pinned
from mcp_hub.catalog.tokens import estimate
from mcp_hub.clock import SystemClock, wall_time
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import ToolSettings
from mcp_hub.config.trust import state_dir
from mcp_hub.fronts.rest.problem import Problem, unknown_call
from mcp_hub.globs import first_match
from mcp_hub.hub import HubPort
from mcp_hub.protocol.rest.history import (
    SPANS,
    HistoryCall,
    HistoryFigures,
    HistoryLoss,
    HistoryPage,
    HistoryQuery,
    KeepingNow,
    RunInfo,
    cursor,
    place_of,
)
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.sessions.session import Caller
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.history.base import (
    CUT_ARGUMENTS,
    CUT_RESULT,
    MASKED_ARGUMENTS,
    MASKED_RESULT,
    CallGroup,
    CallTexts,
    HistoryLimits,
    HistoryStore,
    LostCalls,
)
from mcp_hub.stores.history.reading import (
    CallFilter,
    PastCall,
    PastFigures,
    by_id,
    newest,
    scanned,
    texts_of,
    within,
)
from mcp_hub.stores.keyed_files import KeyedFiles, stored_key
from mcp_hub.types import OWN, Kind, Snapshot, plural

if TYPE_CHECKING:
    from mcp_hub.calls.history.audit import AuditTrail


_MOST_LOSSES: Final = 20
"""Losses per response."""
_REASONS: Final = {
    "masked": "A secret was masked in its arguments.",
    "hashed": "Only a hash of its arguments was kept (hub.history.arguments).",
    "cut": "Its arguments were cut, because a value has more than 4 kB.",
    "not_kept": "Its arguments were not kept (hub.history.arguments), or cannot be read.",
    "not_a_tool": "Only calls of a server's tools can be made again.",
}
_CALL_IT: Final = "Call the tool with arguments of your own: mcp-hub call"


class _ToolDefinitions:
    """Digests of the definitions of these servers' tools."""

    def __init__(self, upstreams: Mapping[str, Upstream]) -> None:
        self._upstreams = upstreams
        self._digests: dict[tuple[str, str], tuple[Snapshot, str]] = {}

    def __call__(self) -> Digest:
        return partial(self._digest, {name: upstream.snapshot() for name, upstream in self._upstreams.items()})

    def _digest(self, snapshots: Mapping[str, Snapshot | None], server: str, tool: str) -> str:
        snapshot = snapshots.get(server)
        if snapshot is None:
            return ""
        cached = self._digests.get((server, tool))
        if cached is not None and cached[0] is snapshot:
            return cached[1]
        name = msgspec.json.encode(tool)[1:-1]
        candidates = [raw for raw in snapshot.lists.get(Kind.TOOL, ()) if name in raw or b"\\u" in raw]
        entry = next((each for each in parse(Kind.TOOL, candidates, server)[0] if each.key == tool), None)
        digest = "" if entry is None else fingerprint(pinned(Kind.TOOL, entry.as_sent)).digest
        if len(self._digests) >= _MOST_DIGESTS:
            self._digests.clear()
        self._digests[server, tool] = snapshot, digest
        return digest


_MOST_DIGESTS: Final = 10_000


class PastCalls:
    """A `fronts.rest` `HubHistory`. Without `hub` it reads `servers` of the configuration, and judges no call."""

    def __init__(
        self,
        store: HistoryStore,
        rules: Callable[[], JournalRules],
        journal: CallJournal | None = None,
        hub: HubPort | None = None,
        servers: Collection[str] = (),
    ) -> None:
        self._store = store
        self._rules = rules
        self._journal = journal
        self._hub = hub
        self._configured = servers

    async def page(self, caller: Caller, query: HistoryQuery) -> HistoryPage:
        if self._rules().keeping == "off":
            return HistoryPage([], "off")
        groups: list[CallGroup] = []
        chosen = await self._chosen(caller, query, groups)
        calls = await newest(self._store, chosen, query.limit + 1)
        listed = calls[: query.limit]
        last = cursor(*listed[-1].order) if len(calls) > query.limit else ""
        if query.details:
            texts = await texts_of(self._store, listed)
            lines = [self._detailed(caller, call, text) for call, text in zip(listed, texts, strict=True)]
        else:
            lines = [self._line(caller, call) for call in listed]
        hints = [] if calls or query.before else query.hints(groups, self._servers(caller))
        store_location, losses = self._store.location if caller.operates else "", await self._losses(caller)
        return HistoryPage(
            calls=lines, keeping=self._keeping, before=last, location=store_location, losses=losses,
            failing=self._failing(caller), hints=hints,
        )  # fmt: skip

    def _failing(self, caller: Caller) -> str:
        failing = "" if self._journal is None else self._journal.failing
        return failing if caller.operates or not failing else _FAILS

    @property
    def _keeping(self) -> KeepingNow:
        return self._rules().keeping

    async def call(self, caller: Caller, id_: str) -> HistoryCall | None:
        if self._rules().keeping == "off":
            return None
        call = await by_id(self._store, id_, await self._chosen(caller, HistoryQuery()))
        if call is None:
            return None
        [texts] = await texts_of(self._store, [call])
        return self._detailed(caller, call, texts)

    async def figures(self, caller: Caller, span: str, query: HistoryQuery) -> HistoryFigures:
        step, points = SPANS[span]
        until = wall_time()
        since = until - step * points
        figures = PastFigures(since, step, points)
        if self._rules().keeping != "off":
            chosen = await self._chosen(caller, msgspec.structs.replace(query, since=since))
            async for _ in scanned(self._store, chosen, partial(figures.add, chosen=chosen)):
                pass
        rows, servers, more = await anyio.to_thread.run_sync(figures.rows)
        return HistoryFigures(
            span=span, since=since, until=until, step=step, points=points, rows=rows,
            servers=servers, more=more,
        )  # fmt: skip

    async def clear(self) -> int:
        if self._journal is not None:
            await self._journal.flush()
        return await self._store.clear(LostCalls("cleared", wall_time()))

    async def rerun(self, caller: Caller, id_: str) -> tuple[str, Raw]:
        call = await self.call(caller, id_)
        if call is None:
            raise unknown_call()
        assert call.run is not UNSET
        if not call.run.possible:
            raise Problem(409, "not_runnable", call.run.text, reason=call.run.code)
        return call.name, Raw(b"{}") if call.arguments is UNSET else call.arguments

    # -- who sees which call

    async def _chosen(self, caller: Caller, query: HistoryQuery, groups: list[CallGroup] | None = None) -> CallFilter:
        try:
            before = place_of(query.before) if query.before else None
        except ValueError as problem:
            raise Problem(400, "invalid_cursor", f"before {problem}") from None
        since = max(query.since, await within(self._store, self._rules().limits, wall_time()))
        sees = self._sees(caller)

        def fits(group: CallGroup) -> bool:
            if not sees(group):
                return False
            if groups is not None:
                groups.append(group)
            return query.fits(group)

        has_hints = groups is not None and not query.before and any((query.server, query.tool, query.client))
        failed = not has_hints and (query.failed or query.status not in ("", "completed"))
        return CallFilter(fits, since=since, until=query.until, before=before, failed=failed)

    def _servers(self, caller: Caller) -> Collection[str]:
        return self._configured if self._hub is None else self._hub.catalog.rules(caller.profile).servers

    def _sees(self, caller: Caller) -> Callable[[CallGroup], bool]:
        if caller.operates:
            return lambda group: True
        principal, profile = shown_principal(caller.principal), caller.profile
        if profile is None or self._hub is None:
            return lambda group: group.principal == principal
        servers = self._hub.catalog.rules(profile).servers
        return lambda group: group.principal == principal and (group.server in servers or group.server == OWN)

    async def _losses(self, caller: Caller) -> list[HistoryLoss]:
        unwritten = [] if self._journal is None else self._journal.losses
        every = [*unwritten, *await self._store.losses()][:_MOST_LOSSES]
        if caller.operates:
            return [
                HistoryLoss(kind=loss.kind, at=loss.at, text=loss_text(loss), hub=loss.hub, count=loss.count)
                for loss in every
            ]
        return [HistoryLoss(loss.kind, loss.at, loss_text(LostCalls(loss.kind, loss.at))) for loss in every]

    # -- one call

    def _line(self, caller: Caller, call: PastCall) -> HistoryCall:
        group, took = call.group, 0.0 if call.has_no_end else call.took
        return HistoryCall(
            id=call.id, server=group.server, tool=group.tool, name=group.name, method=group.method,
            principal=group.principal, client=group.client, status=group.status, at=call.ended - call.took, took=took,
            waited=call.waited, hub=call.hub if caller.operates else "", code=call.code, message=call.message,
            stream=call.is_durable, arguments_bytes=call.arguments_bytes, result_bytes=call.result_bytes,
            parent=group.parent,
        )  # fmt: skip

    def _detailed(self, caller: Caller, call: PastCall, texts: CallTexts) -> HistoryCall:
        is_hash, flags = call.group.keeping == "hash", call.flags
        stored, start = texts
        arguments, arguments_text = _as_json("" if is_hash else stored)
        result, result_text = _as_json(start, is_whole=not flags & CUT_RESULT)
        tokens = estimate(start)
        if flags & CUT_RESULT and start:
            tokens = round(tokens * call.result_bytes / len(start.encode(errors="replace")))
        return msgspec.structs.replace(
            self._line(caller, call),
            keeping=call.group.keeping,
            arguments=arguments,
            arguments_text=arguments_text,
            arguments_hash=stored if is_hash else "",
            arguments_masked=bool(flags & MASKED_ARGUMENTS),
            arguments_cut=bool(flags & CUT_ARGUMENTS),
            result=result,
            result_text=result_text,
            result_masked=bool(flags & MASKED_RESULT),
            result_cut=bool(flags & CUT_RESULT),
            tokens_in=0 if is_hash else estimate(stored),
            tokens_out=tokens,
            run=self._run(caller, call, stored),
        )

    def _run(self, caller: Caller, call: PastCall, arguments: str) -> RunInfo:
        group, code = call.group, ""
        if group.method != "tools/call" or group.server == OWN:
            code = "not_a_tool"
        elif group.keeping != "full":
            code = "hashed" if group.keeping == "hash" else "not_kept"
        elif call.flags & CUT_ARGUMENTS:
            code = "cut"
        elif call.flags & MASKED_ARGUMENTS:
            code = "masked"
        elif (not arguments and call.arguments_bytes) or _as_json(arguments)[1]:
            code = "not_kept"
        if code:
            reason = _REASONS[code] + (f" {_CALL_IT} {group.name}" if code != "not_a_tool" else "")
            return RunInfo(False, code, reason)  # type: ignore[arg-type]  # a key of the table
        return self._as_it_was(caller, group)

    def _as_it_was(self, caller: Caller, group: CallGroup) -> RunInfo:
        if self._hub is None or self._journal is None:
            return RunInfo(True)
        entry = self._hub.views.whole(caller).find(Kind.TOOL, group.name)
        if entry is None or (entry.server, entry.key) != (group.server, group.tool):
            return RunInfo(False, "gone", f"There is no tool {group.name} of server {group.server} now.")
        digest = self._journal.definition(group.server, group.tool)
        if digest and digest == group.definition:
            return RunInfo(True)
        reason = "has changed since" if digest and group.definition else "at that time is not known"
        subject = f"The definition of {group.name}, or of the arguments that its settings supply,"
        return RunInfo(False, "changed", f"{subject} {reason}. {_CALL_IT} {group.name}")


_FAILS: Final = "Calls cannot be kept now. Operators of the hub see the reason."


def _as_json(text: str, *, is_whole: bool = True) -> tuple[Raw | UnsetType, str]:
    if not text:
        return UNSET, ""
    if is_whole:
        try:
            msgspec.json.decode(text)
        except (ValueError, RecursionError):
            pass
        else:
            return Raw(text.encode()), ""
    return UNSET, text


def loss_text(loss: LostCalls) -> str:
    """The loss for people."""
    calls = plural(loss.count, "call") if loss.count else "Calls"
    missing = "is missing" if loss.count == 1 else "are missing"
    match loss.kind:
        case "killed":
            last = timestamp(loss.at)
            return f"A hub ended without notice. It wrote last at {last}, and calls after that may be missing."
        case "dropped":
            return f"{calls} came faster than the history could be written, and {missing}."
        case "unwritten":
            return f"{calls} could not be written, and {missing}. {loss.reason}".rstrip()
        case "damaged":
            return f"Calls before this time are missing. {loss.reason}".rstrip()
        case _:
            return "Calls before this time were removed on request."


# -- from the settings


def journal_rules(settings: Settings, *, is_embedded: bool = False) -> JournalRules:
    """The history's rules: no texts with tokens; in an embedded hub only on request."""
    history, hub = settings.hub.history, settings.hub
    has_principals = bool(hub.tokens) or hub.http.oauth is not None or hub.http.allow_public
    keeping: KeepingNow = history.arguments or ("none" if has_principals else "full")
    if not history.enabled or (is_embedded and "history" not in hub.model_fields_set):
        keeping = "off"
    return JournalRules(
        keeping, HistoryLimits(history.keep, history.calls, history.size), lambda *tool: keeping_of(settings, *tool)
    )


def keeping_of(settings: Settings, server: str, tool: str) -> ToolKeeping:
    """The history's rule for a tool's calls."""
    entry = settings.servers.get(server)
    pattern = first_match(tool, entry.per_tool) if entry is not None and tool else None
    tool_settings = ToolSettings() if entry is None or pattern is None else entry.per_tool[pattern]
    return ToolKeeping(tool_settings.history != "off", tool_settings.arguments, tool_settings.fixed)


def history_key(env: Mapping[str, str], store: EventStore) -> Callable[[], bytes]:
    """Finds the key of hashes, the replicas' once they have one; may block at first."""
    files, key = KeyedFiles(state_dir(env) / "keys"), cache(stored_key)
    return lambda: shared_secret(store) or key(files, "history")


def journal_of(
    env: Mapping[str, str],
    store: EventStore,
    current: Current,
    upstreams: Mapping[str, Upstream],
    audit: "AuditTrail | None" = None,
    *,
    is_embedded: bool,
) -> CallJournal:
    """The journal for a hub with this `store`."""

    def rules() -> JournalRules:
        return journal_rules(current.settings, is_embedded=is_embedded)

    history = open_history(current.settings, env, store)
    return CallJournal(
        store=history, hub=store.log.instance, rules=rules, definitions=_ToolDefinitions(upstreams),
        key=history_key(env, store), clock=SystemClock(), audit=audit,
    )  # fmt: skip

"""Gives scripts the tools of their caller's session, by the present rules; makes folders of scripts servers. Events of
servers are loaded on use.
"""

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import msgspec
from msgspec.structs import replace

from mcp_hub.app.limits import STORES, Current, always_asks, shared_secret
from mcp_hub.call import LOCAL_PRINCIPAL, Call, Gate, StreamInfo, Upstream
from mcp_hub.calls.code.consent import ASKS, DESTRUCTIVE, IDEMPOTENT, READ_ONLY
from mcp_hub.calls.code.inner import CodeParts
from mcp_hub.calls.code.runs import CodeRuns
from mcp_hub.calls.code.state import InnerCall
from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.catalog.catalog import Catalog
from mcp_hub.catalog.routes import route
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.signatures import left_out_if_none, line, stubs
from mcp_hub.code.source import names_in, unbound
from mcp_hub.code.steps import CodeLimits
from mcp_hub.code.tool import python_names
from mcp_hub.errors import InvalidParams, StoreUnavailable
from mcp_hub.events import Progressed
from mcp_hub.globs import late
from mcp_hub.hub import HubPort
from mcp_hub.notices import Notices
from mcp_hub.protocol import eras
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.notifications import FEED, HOOK
from mcp_hub.protocol.shape.occurrences import forbidden
from mcp_hub.protocol.shape.questions import ELICIT, can_answer
from mcp_hub.session_views import routed
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.stores.base import EventStore
from mcp_hub.stores.keyed_files import KeyedFiles, stored_key
from mcp_hub.types import OWN, PROGRAM, CallId, CodeMode, Era, Kind, RawJson
from mcp_hub.upstreams.supervision.server import OwnedUpstream

if TYPE_CHECKING:
    from mcp_hub.calls.feeds.incoming import Incoming
    from mcp_hub.calls.feeds.reading import Topic
    from mcp_hub.calls.feeds.table import Feeds
    from mcp_hub.calls.feeds.webhooks import Webhooks
    from mcp_hub.event_port import EventPort
    from mcp_hub.protocol.shape.webhooks import Webhook

_META: Final = RequestMeta(token=None, version=None, client_info=None, capabilities=None, log_level=None, rest={})
_NULL: Final = msgspec.Raw(b"null")
_NAMED: Final = late(r"(?:function|Name) `(\w+)`")
_SIGNATURES: Final = 3
_SESSIONS: Final = 256
"""Runs whose session is kept; another one is made anew."""


def deployment_key(folder: Path, store: EventStore) -> Callable[[], bytes]:
    """The deployment's key for what leaves the hub. That of replicas raises `StoreUnavailable` until it is known."""
    stored = lru_cache(1)(partial(stored_key, KeyedFiles(folder / "keys"), "request-state"))

    def key() -> bytes:
        if store.replicas is None:
            return stored()
        if (secret := shared_secret(store)) is None:  # other replicas could not read what a key of this hub seals
            raise StoreUnavailable("The store has not answered since this hub started. Try again in a moment.")
        return secret

    return key


def code_runs(hub: Callable[[], HubPort], current: Current, key: Callable[[], bytes]) -> CodeRuns:
    """The runs of a hub, which is asked for later."""
    is_lasting = STORES[current.settings.hub.store.type].is_lasting
    return CodeRuns(CodeParts(CodeEngine(), _CodePort(hub, current), key, is_lasting=is_lasting))


class _CodePort:
    """The port of `calls.code.inner`."""

    def __init__(self, hub: Callable[[], HubPort], current: Current) -> None:
        self._hub = hub
        self._current = current
        self._sessions: OrderedDict[CallId, Session] = OrderedDict()

    @property
    def streams(self) -> StreamPort:
        return self._hub().durable

    @property
    def limits(self) -> CodeLimits:
        return self._current.code_limits

    def mode(self, call: Call) -> CodeMode:
        try:
            rules = self._hub().catalog.rules(call.profile)
        except KeyError:  # of a project that this hub has not seen
            return "off"
        return rules.code if rules.lists_code else "off"

    async def tools(self, call: Call, code: str) -> tuple[dict[str, str], str]:
        hub, session, occurring = self._hub(), self._session(call), names_in(code)
        await hub.views.settled(session)
        if names := unbound(code):  # perhaps of servers that start, as after a restart of the hub
            starting = hub.catalog.starting(call.profile)
            await hub.catalog.settled(
                servers=starting, is_enough=lambda: names <= hub.views.of(session).callables.keys()
            )
        callables = hub.views.of(session).callables
        entries = {name: callables[name] for name in sorted(occurring) if name in callables}
        texts = stubs({name: entry.raw for name, entry in entries.items()}, taken=occurring)
        return {name: entry.exported for name, entry in entries.items()}, texts

    def signatures(self, call: Call, message: str) -> list[str]:
        callables = self._hub().views.of(self._session(call)).callables
        names = [near for name in _NAMED.findall(message) for near in _nearest(name, callables)]
        return [line(name, callables[name].raw) for name in dict.fromkeys(names)][:_SIGNATURES]

    def traits(self, call: Call, tool: str) -> Collection[str] | None:
        entry = self._entry(call, tool)
        if entry is None or entry.server == OWN:
            return None
        hints, traits = entry.hints, {f"{entry.key} of {entry.server}"}
        if entry.is_read_only:
            traits.add(READ_ONLY)
        if hints.user.destructive is not False and True in (hints.server.destructive, hints.user.destructive):
            traits.add(DESTRUCTIVE)
        if self.streams.tool_rules(entry.server, entry.key).idempotent:
            traits.add(IDEMPOTENT)
        if always_asks(self._current.settings, entry.server, entry.key):
            traits.add(ASKS)
        return traits

    def begin(self, call: Call, inner: InnerCall, *, must_read: bool) -> CallHandle:
        hub, session = self._hub(), self._session(call)
        facts = hub.views.facts(session)
        entry = facts.view.for_model.find(Kind.TOOL, inner.tool)
        arguments = inner.arguments if entry is None else _without_nulls(inner.arguments, entry)
        params = {"name": msgspec.Raw(msgspec.json.encode(inner.tool)), "arguments": arguments}
        to = route(facts.view.for_model, session.era, "tools/call", params, facts.unlisted)
        if to.server == OWN:
            raise InvalidParams(f"{inner.tool} is a tool of the hub, which scripts cannot call")
        plain = routed(session, "tools/call", params, to, _META, facts, None, None)
        people_only = call.people_only or can_answer(call.capabilities, call.version, ELICIT, b"{}") is not None
        inside = replace(
            plain, id=inner.stream, parent=call.id, must_read=must_read, wants_progress=True, people_only=people_only
        )
        record = hub.starter.start(inside, None, reads_only=facts.reads_only)
        return CallHandle(inside, record, hub.durable)

    def _entry(self, call: Call, tool: str) -> Entry | None:
        try:
            return self._hub().views.of(self._session(call)).for_model.find(Kind.TOOL, tool)
        except KeyError:  # as above
            return None

    def _session(self, call: Call) -> Session:
        """The caller's session as a program's of the handshake era: servers get questions by requests."""
        session = self._sessions.get(call.id)
        if session is None:
            session = self._sessions[call.id] = Session(
                id=call.session, era=Era.HANDSHAKE, version=eras.LATEST_HANDSHAKE, capabilities=call.answered,
                caller=Caller(
                    call.principal, call.profile, has_own_hub=call.shows_paths, directory=call.directory,
                    claims=call.claims,
                ),
                offer=ClientOffer(kind=PROGRAM, client=call.client, roots_changes=call.roots_changes),
            )  # fmt: skip
            if len(self._sessions) > _SESSIONS:
                self._sessions.popitem(last=False)
        return session


def _without_nulls(arguments: RawJson, entry: Entry) -> msgspec.Raw:
    """The arguments without optional ones that are null and must not be."""
    raw = msgspec.Raw(bytes(arguments))
    if b"null" not in bytes(raw):
        return raw
    left_out, members = left_out_if_none(entry.raw), raw_object(raw) or {}
    members = {name: value for name, value in members.items() if value != _NULL or name not in left_out}
    return msgspec.Raw(msgspec.json.encode(members))


def _nearest(name: str, callables: Collection[str]) -> list[str]:
    """A name of a tool; else those that end with it or are near to it."""
    if name in callables:
        return [name]
    ending = [full for full in callables if full.endswith(f"_{name}")]
    return ending or get_close_matches(name, callables, 2, 0.75)


# -- folders of scripts


def script_upstreams(
    catalog: Catalog, changes: Notices, env: Mapping[str, str], runs: Callable[[], CodeRuns]
) -> Callable[[str, str, Gate | None], OwnedUpstream]:
    """Makes upstreams by name and folder."""
    folders: set[str] = set()
    read_only = partial(_read_only, catalog, folders)

    def make(name: str, folder: str, gate: Gate | None) -> OwnedUpstream:
        from mcp_hub.upstreams.scripts.upstream import script_upstream

        folders.add(name)
        return script_upstream(name, folder, changes, env=env, runs=runs, read_only=read_only, gate=gate)

    return make


def _read_only(catalog: Catalog, folders: set[str]) -> Mapping[str, bool] | None:
    if not folders.issuperset(catalog.starting(None)):
        return None
    tools = catalog.view(None).usable_tools
    return _by_python_name(tuple((tool.exported, tool.is_read_only, tool.server in folders) for tool in tools))


@lru_cache(4)
def _by_python_name(tools: tuple[tuple[str, bool, bool], ...]) -> Mapping[str, bool]:
    """Whether each tool only reads; without scripts, which no script can call."""
    names = python_names(exported for exported, _, _ in tools)
    return {names[exported]: only_reads for exported, only_reads, is_script in tools if not is_script}


class EventFeeds:
    """The feeds and webhooks of one hub, once they are used. `key` is a `deployment_key`."""

    def __init__(
        self, table: StreamTable, upstreams: Mapping[str, Upstream], current: Current, key: Callable[[], bytes]
    ) -> None:
        self._table = table
        self._upstreams = upstreams
        self._current = current
        self._key = key
        self._feeds: Feeds | None = None
        self._port: EventPort | None = None
        self._webhooks: Webhooks | None = None
        self._incoming: Incoming | None = None
        self._is_used, self._has_webhooks = anyio.Event(), anyio.Event()

    @property
    def feeds(self) -> "Feeds":
        """The feeds, made at first use."""
        if self._feeds is None:
            from mcp_hub.calls.feeds.table import Feeds

            self._feeds = Feeds(self._table, self._upstreams, lambda: self._current.settings.hub.events.keep)
            self._feeds.sources["webhook"] = self.incoming.source
            self._feeds.leaving["webhook"] = self.incoming.leave
            self._is_used.set()
        return self._feeds

    @property
    def incoming(self) -> "Incoming":
        """The webhooks of servers, made at first use."""
        if self._incoming is None:
            from mcp_hub.calls.feeds.incoming import Incoming

            self._incoming = Incoming(
                self._table, self._upstreams, lambda: self._current.settings.hub.http.public_url, self._key
            )
            self._is_used.set()
        return self._incoming

    async def receive(self, id_: str, headers: Mapping[bytes, bytes], body: bytes) -> tuple[int, bytes]:
        """Takes a message of a server's webhook: status and body of the answer. Raises nothing."""
        reply = await self.incoming.receive(id_, headers, body)
        return reply.status, reply.body or object_bytes({"error": reply.reason})

    def takes(self, id_: str) -> bool:
        """Whether this hub has made the address with this id. Raises `StoreUnavailable`."""
        return self._current.settings.hub.http.public_url is not None and self.incoming.takes(id_)

    def port(self, hub: HubPort) -> "EventPort":
        """The port of fronts, made at first use."""
        if self._port is None:
            from mcp_hub.event_port import EventPort

            self._port = EventPort(
                feeds=self.feeds, view=hub.views.of, upstreams=hub.upstreams, webhooks=partial(self.webhooks, hub),
                is_lasting=self._is_lasting,
            )  # fmt: skip
        return self._port

    def webhooks(self, hub: HubPort) -> "Webhooks":
        """The subscriptions of webhooks, made at first use."""
        if self._webhooks is None:
            from mcp_hub.calls.feeds.deliveries import Callbacks
            from mcp_hub.calls.feeds.webhooks import Webhooks

            callbacks = Callbacks(lambda: self._current.settings.hub.events.webhook_hosts)
            self._webhooks = Webhooks(
                table=self._table, feeds=self.feeds, callbacks=callbacks, rights=partial(self._rights, hub),
                key=self._key,
            )  # fmt: skip
            self._has_webhooks.set()
        return self._webhooks

    def figure(self, name: str) -> int:
        """A figure of webhooks, by its metric's name."""
        webhooks, incoming = self._webhooks, self._incoming
        match name:
            case "webhooks":
                return 0 if webhooks is None else len(webhooks)
            case "webhooks_incoming":
                return 0 if incoming is None else len(incoming)
            case "webhooks_refused_total":
                return 0 if incoming is None else incoming.refused
        return sum(self.outcomes(name.removeprefix("webhooks_").removesuffix("_total")).values())

    def outcomes(self, outcome: str) -> dict[str, int]:
        """Messages to webhooks that came to this, by server."""
        return {} if self._webhooks is None else self._webhooks.outcomes(outcome)

    def look(self) -> None:
        """Lets webhooks look at their rights after a change of settings."""
        if self._webhooks is not None:
            self._webhooks.look()

    async def run(self) -> None:
        """Runs the feeds until cancelled, from first use on."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._run_webhooks)
            await self._is_used.wait()
            tasks.start_soon(self.incoming.run)
            await self.feeds.run()

    async def _run_webhooks(self) -> None:
        await self._has_webhooks.wait()
        if self._webhooks is not None:
            await self._webhooks.run()

    def _is_lasting(self, principal: str) -> bool:
        tokens = self._current.settings.hub.tokens
        return principal == LOCAL_PRINCIPAL or any(token.principal == principal for token in tokens)

    def _rights(self, hub: HubPort, webhook: "Webhook") -> tuple["Topic", Sequence[str]] | None:
        """Raises the extension's Forbidden for a principal or profile that the settings lack."""
        settings, profile = self._current.settings, webhook.profile
        profiles = {token.profile for token in settings.hub.tokens if token.principal == webhook.principal}
        has_issuers = settings.hub.http.oauth is not None or settings.hub.http.authorization is not None
        if not (profiles or webhook.principal == LOCAL_PRINCIPAL or has_issuers):
            raise forbidden("the principal of this subscription is not let in any more")
        if profiles and None not in profiles and profile not in profiles:
            raise forbidden("the principal of this subscription does not have its profile any more")
        if profile is not None and profile not in settings.profiles and profile not in self._current.projects:
            raise forbidden("the profile of this subscription is gone")
        caller = Caller(webhook.principal, profile, claims=webhook.claims)
        return self.port(hub).rights(caller, webhook)


async def go_on(hub: HubPort, events: EventFeeds, row: StreamInfo, last: Progressed | None) -> None:
    """Continues a claimed stream: a feed's, a webhook's, or a call's. Raises `HubError`."""
    if row.method == FEED:
        await events.feeds.adopt(row)
    elif row.method == HOOK:
        await events.webhooks(hub).adopt(row)
    else:
        await hub.starter.take_up(row, last)

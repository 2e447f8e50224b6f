"""What four kinds of client are listed by a whole hub in front of 33 servers: exactly, always, and for how many tokens.

Every property is shown for lists of our own, and for those of 33 public servers (data outside the repository).
"""

import json
import random
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.lowlevel
import msgspec
import pytest

from mcp_hub.app.build import App, build
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.names import Wanted, assign
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.settings import Settings
from mcp_hub.fronts.mcp.binding import modern_session
from mcp_hub.notices import Notices
from mcp_hub.protocol.meta import take_meta
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import CacheHint, Era, Kind, Snapshot
from tests.captured import captured, encoded, needs_lists
from tests.unit.catalog.offers import Listing
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio

Lists = Mapping[str, Sequence[bytes]]
"""Each server's tools, encoded, in its own order."""

SOURCES = ["own", pytest.param("captured", marks=needs_lists)]

SEARCH: Final = ["find_tools", "read_tool", "run_tool", "read_result"]
READING: Final = ["read_result"]
CALLS: Final = ["hub_calls"]
EARLY: Final = [*CALLS, "hub_cancel"]
CODE, DESKTOP, OLD, NEW = "Claude Code", "Claude Desktop", "a client of 2025", "a client of 2026"
FIRST: Final = {CODE: CALLS, DESKTOP: EARLY, OLD: CALLS, NEW: CALLS}
"""What each is listed over HTTP besides, whatever the tools are."""
NAMES: Final = {CODE: "claude-code", DESKTOP: "claude-ai", OLD: "somebody"}
TASKS: Final = {"taskSupport": "optional"}


def own_lists() -> Lists:
    """33 servers with 611 tools, some of whose names clash, with all that is left out for some clients."""
    lists: dict[str, list[bytes]] = {}
    for number in range(33):
        server = f"s{number:02d}"
        lists[server] = [_own_tool(server, n) for n in range(19 if number < 17 else 18)]
    return lists


def _own_tool(server: str, number: int) -> bytes:
    schema = {"type": "object", "title": "T", "properties": {f"p{number}": {"type": "string", "description": "é " * 9}}}
    tool: dict[str, Any] = {"name": f"does_{number}_{'x' * (number * 4)}", "inputSchema": schema, "z": number}
    tool["description"] = f"Does the thing {number} of {server}.\nAnd more. " + "word " * 20
    if number % 3 == 0:
        tool["outputSchema"] = {"type": "object", "properties": {"n": {"type": "number"}}}
    if number % 4 == 0:
        tool |= {"execution": TASKS, "_meta": {"its": "own"}}
    return json.dumps(tool, ensure_ascii=False).encode()


@pytest.fixture(scope="module", params=SOURCES)
def lists(request: pytest.FixtureRequest) -> Lists:
    found = own_lists()
    if request.param == "captured":
        found = {server: list(map(encoded, tools)) for server, tools in captured().items()}
    assert (len(found), sum(map(len, found.values()))) == (33, 611)
    return found


class Replayed(Listing):
    """A server that is starting until it is told to come up with its list."""

    def __init__(self, name: str, tools: Sequence[bytes], changes: Notices) -> None:
        super().__init__(name, changes)
        self._tools = tuple(tools)

    def comes_up(self) -> None:
        hints = {Kind.TOOL: CacheHint(60_000, public=True)}
        self.lists(Snapshot(self.name, Era.MODERN, {Kind.TOOL: self._tools}, hints, {"tools": {}}))


class Hub:
    """A hub as it is wired for these servers, none of which is up yet. Must be made on a running loop."""

    def __init__(self, lists: Lists, **hub: Any) -> None:
        own = {"store": {"type": "memory"}, "first_list_wait": 0, **hub}
        servers = {server: {"url": "http://127.0.0.1:1/mcp"} for server in lists}
        settings = Settings.model_validate({"hub": own, "servers": servers})
        self.app: App = build(Loaded(settings, Path("servers.yaml"), frozenset()), {"MCP_HUB_STATE_DIR": "."})
        assert isinstance(self.app.upstreams, dict)
        self.servers = {name: Replayed(name, tools, self.app.changes) for name, tools in lists.items()}
        self.app.upstreams.update(self.servers)

    def come_up(self, order: Iterable[str] | None = None) -> "Hub":
        for name in order or self.servers:
            self.servers[name].comes_up()
        return self

    def session(self, kind: str, **caller: Any) -> Session:
        """A client that has just come."""
        if kind == NEW:
            params = msgspec.json.decode(json.dumps(modern()), type=dict[str, msgspec.Raw])
            return modern_session(Caller(**caller), take_meta(params), "s")
        client = {"name": NAMES[kind], "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        raw = msgspec.json.decode(json.dumps(hello), type=dict[str, msgspec.Raw])
        return self.app.binding.initialize(Caller(**caller), raw)[0]

    def list_of(self, session: Session) -> bytes:
        """The answer to `tools/list`, encoded; one page."""
        answer = self.app.binding.handle(session, "tools/list", {}, take_meta({}))
        assert isinstance(answer, bytes)
        return answer

    def lists_of_all(self) -> dict[str, bytes]:
        """What each kind of client gets over HTTP."""
        return {kind: self.list_of(self.session(kind)) for kind in FIRST}


def tools_in(answer: bytes) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(answer)["tools"]
    return found


def names_in(answer: bytes) -> list[str]:
    return [tool["name"] for tool in tools_in(answer)]


def exported(lists: Lists) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Servers, names and definitions in configured order of the servers, then in their own."""
    decoded = [(server, json.loads(raw)) for server, own in lists.items() for raw in own]
    names = assign(Wanted(server, tool["name"], prefix=server) for server, tool in decoded)
    return ((server, names[server, tool["name"]], tool) for server, tool in decoded)


def some(lists: Lists, most: int, tokens: int = 10**9) -> Lists:
    """As many servers as come to so many tools and tokens, small ones first, in configured order."""
    chosen: set[str] = set()
    count = cost = 0
    for server in sorted(lists, key=lambda name: (sum(map(len, lists[name])), name)):
        count += len(lists[server])
        cost += sum(map(estimate, lists[server]))
        if count > most or cost > tokens:
            break
        chosen.add(server)
    return {server: own for server, own in lists.items() if server in chosen}


# -- the exact lists


async def test_611_tools_are_left_to_the_search_for_every_kind_of_client(lists: Lists) -> None:
    hub = Hub(lists).come_up()
    answers = hub.lists_of_all()
    assert {kind: names_in(answer) for kind, answer in answers.items()} == {
        kind: [*SEARCH, *early] for kind, early in FIRST.items()
    }
    for kind, answer in answers.items():
        own = [{k: v for k, v in tool.items() if k != "_meta"} for tool in tools_in(answer)[: len(SEARCH)]]
        assert sum(map(estimate, map(encoded, own))) <= 360, kind  # no client shows its model `_meta`
        marks = [tool.get("_meta") for tool in tools_in(answer)[: len(SEARCH)]]
        assert set(map(str, marks)) == {"{'anthropic/alwaysLoad': True}" if kind == CODE else "None"}
    stdio = {kind: names_in(hub.list_of(hub.session(kind, has_own_hub=True))) for kind in FIRST}
    waits_by_itself = {kind: [*SEARCH, *(EARLY if kind in (DESKTOP, OLD) else CALLS)] for kind in FIRST}
    assert stdio == waits_by_itself


@pytest.mark.parametrize("kind", FIRST)
async def test_few_tools_are_listed_one_by_one_as_their_servers_define_them(lists: Lists, kind: str) -> None:
    few = some(lists, 60, 7500)
    hub = Hub(few).come_up()
    found = {tool["name"]: tool for tool in tools_in(hub.list_of(hub.session(kind)))}
    tools = list(exported(few))
    assert len(few) > 1 and list(found) == [*READING, *FIRST[kind], *(name for _, name, _ in tools)]
    for server, name, tool in tools:
        assert found[name] == as_listed(kind, server, name, tool)


def as_listed(kind: str, server: str, name: str, tool: dict[str, Any]) -> dict[str, Any]:
    """What a client of this kind is to be shown of a tool."""
    shown = {**tool, "name": name}
    if "execution" in shown and (kind == NEW or shown["execution"] == TASKS):
        del shown["execution"]
    if kind == DESKTOP:
        shown.pop("outputSchema", None)
    if kind == CODE:
        hint = f"{server}: {tool['description'].strip().partition(chr(10))[0].rstrip()}"[:120]
        hints = {"anthropic/searchHint": hint, "anthropic/maxResultSizeChars": 32000}
        shown["_meta"] = {**hints, **shown.get("_meta", {})}
    return shown


async def test_a_client_that_defers_tools_is_listed_as_many_as_it_takes_and_others_search_among_them(
    lists: Lists,
) -> None:
    many = some(lists, 390)
    hub = Hub(many).come_up()
    answers = hub.lists_of_all()
    assert names_in(answers[CODE]) == [*READING, *CALLS, *(name for _, name, _ in exported(many))]
    assert len(names_in(answers[CODE])) > 240
    for kind in (DESKTOP, OLD, NEW):
        assert names_in(answers[kind]) == [*SEARCH, *FIRST[kind]]


# -- always the same bytes


@pytest.mark.slow
async def test_the_lists_are_the_same_after_a_restart_and_whatever_order_the_servers_come_up_in(lists: Lists) -> None:
    for chosen in (lists, some(lists, 390), some(lists, 60, 7500)):
        expected = Hub(chosen).come_up().lists_of_all()
        for seed in range(4):
            order = list(chosen)
            random.Random(seed).shuffle(order)
            hub = Hub(chosen)
            asked_between = order[len(order) // 3 :: len(order) // 2 + 1]
            for name in order:
                hub.servers[name].comes_up()
                if name in asked_between:
                    hub.lists_of_all()
            assert hub.lists_of_all() == expected


# -- while servers are unknown


async def test_an_early_session_keeps_its_mode_is_notified_and_never_gets_more_than_it_takes(lists: Lists) -> None:
    hub = Hub(lists)
    first, *others = lists
    hub.come_up([first])
    sessions = {kind: hub.session(kind) for kind in (CODE, DESKTOP, OLD)}
    names = [name for _, name, _ in exported({first: lists[first]})]
    before = {}
    for kind, session in sessions.items():
        assert names_in(hub.list_of(session)) == [*SEARCH, *FIRST[kind], *names]
        before[kind] = hub.app.hub.views.digest(session, Kind.TOOL)
    hub.come_up(others)
    every = [name for _, name, _ in exported(lists)]
    for kind, session in sessions.items():
        own = [*SEARCH, *FIRST[kind]]
        most = 400 if kind == CODE else 240
        assert session.offer.mode == "full" and hub.app.hub.views.digest(session, Kind.TOOL) != before[kind]
        assert names_in(hub.list_of(session)) == [*own, *every[: most - len(own)]]
    assert names_in(hub.list_of(hub.session(OLD))) == [*SEARCH, *CALLS]


async def test_the_search_is_listed_until_the_last_server_is_known(lists: Lists) -> None:
    few = some(lists, 60, 7500)
    hub = Hub(few)
    session, new = hub.session(OLD), hub.session(NEW)
    for name in few:
        assert names_in(hub.list_of(session))[: len(SEARCH)] == SEARCH
        assert caching(hub.list_of(new)) == (0, "private"), "not to be kept without the others' tools"
        hub.servers[name].comes_up()
    assert names_in(hub.list_of(session)) == [*READING, *CALLS, *(name for _, name, _ in exported(few))]
    assert caching(hub.list_of(new)) == (60_000, "private")


def caching(answer: bytes) -> tuple[int, str]:
    """What the answer to a modern client says of how long, and by whom, it may be kept."""
    fields = json.loads(answer)
    return fields["ttlMs"], fields["cacheScope"]


async def test_a_first_list_waits_for_servers_that_start_and_for_none_that_is_up(lists: Lists) -> None:
    hub = Hub(lists, first_list_wait=60)
    session = hub.session(OLD)
    answer = hub.app.binding.handle(session, "tools/list", {}, take_meta({}))
    assert isinstance(answer, Coroutine)
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(come_up_one_by_one, hub)
            listed = await answer
    assert isinstance(listed, bytes) and names_in(listed) == [*SEARCH, *CALLS]
    assert names_in(hub.list_of(hub.session(OLD))) == [*SEARCH, *CALLS], "at once"


async def come_up_one_by_one(hub: Hub) -> None:
    for server in hub.servers.values():
        await anyio.lowlevel.checkpoint()
        server.comes_up()

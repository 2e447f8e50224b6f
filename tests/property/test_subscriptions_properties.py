"""Whatever clients do and however slowly the server answers, in the end it watches exactly what they want."""

from typing import Any

import anyio
import anyio.abc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mcp_hub.call import Call
from mcp_hub.errors import RpcError
from mcp_hub.sessions.session import LOCAL, Session, SessionSubscriptions
from mcp_hub.types import Era
from mcp_hub.upstreams.peer import subscriptions
from tests.examples import examples
from tests.unit.fakes import IdleUpstream
from tests.unit.upstreams.following import Following
from tests.unit.upstreams.scripted import Server

pytestmark = pytest.mark.anyio

URIS = ("x:0", "x:1", "x:2")
ID = "io.modelcontextprotocol/subscriptionId"
CAN: dict[str, Any] = {"resources": {"subscribe": True}}

Step = tuple[str, int, int]
one_of_three = st.integers(0, 2)
KINDS = ["subscribe"] * 3 + ["unsubscribe"] * 2 + ["end", "give up", "answer", "answer", "answer all", "restart"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), one_of_three, one_of_three), min_size=4, max_size=30)


class Watching:
    """A server that answers when it is told to. It never watches what is `banned`."""

    def __init__(self, server: Server, banned: frozenset[str]) -> None:
        self.server = server
        self.banned = banned
        self.held: list[dict[str, Any]] = []
        self.subscribed: set[str] = set()
        self.listens: dict[int, set[str]] = {}
        self.flushes = 0

    @property
    def watched(self) -> set[str]:
        return self.subscribed.union(*self.listens.values())

    async def read(self) -> None:
        """Takes in all that was sent so far."""
        self.flushes += 1
        await self.server.send(id=f"flush {self.flushes}", method="ping")
        while True:
            message = await self.server.line()
            if message.get("id") == f"flush {self.flushes}":
                return
            if message["method"] == "notifications/cancelled":
                id_ = message["params"]["requestId"]
                self.listens.pop(id_, None)
                self.held = [request for request in self.held if request["id"] != id_]
            else:
                self.held.append(message)

    async def answer(self, place: int) -> None:
        """Answers one of those that wait."""
        await self.read()
        if not self.held:
            return
        request = self.held.pop(place % len(self.held))
        if request["method"] == "subscriptions/listen":
            granted = set(request["params"]["notifications"]["resourceSubscriptions"]) - self.banned
            self.listens[request["id"]] = granted
            params = {"_meta": {ID: request["id"]}, "notifications": {"resourceSubscriptions": sorted(granted)}}
            await self.server.send(method="notifications/subscriptions/acknowledged", params=params)
        elif request["method"] == "resources/subscribe" and request["params"]["uri"] in self.banned:
            await self.server.send(id=request["id"], error={"code": -32002, "message": "no"})
        else:
            change = self.subscribed.add if request["method"] == "resources/subscribe" else self.subscribed.discard
            change(request["params"]["uri"])
            await self.server.send(id=request["id"], result={})


class Clients:
    """Three sessions; one that has ended is followed by another."""

    def __init__(self, one: Following, era: Era, tasks: anyio.abc.TaskGroup) -> None:
        self.subscriptions = SessionSubscriptions({"git": _Source(one)}, one.changes)
        self.era = era
        self.tasks = tasks
        self.sessions = [self.fresh() for _ in range(3)]
        self.pending: list[anyio.CancelScope] = []

    def fresh(self) -> Session:
        return Session("s", LOCAL, self.era, "")

    @property
    def wanted(self) -> set[str]:
        return {uri for session in self.sessions for _, uri in session.subscriptions}

    def act(self, what: str, who: int, uri: str) -> None:
        session = self.sessions[who % 3]
        match what:
            case "subscribe":
                scope = anyio.CancelScope()
                self.pending.append(scope)
                self.tasks.start_soon(self._subscribe, session, uri, scope)
            case "unsubscribe":
                self.subscriptions.remove(session, ("git", uri))
            case "end":
                self.subscriptions.clear(session)
                self.sessions[who] = self.fresh()
            case "give up" if who < len(self.pending):
                self.pending[who].cancel()

    async def _subscribe(self, session: Session, uri: str, scope: anyio.CancelScope) -> None:
        with scope:
            try:
                await self.subscriptions.add(session, ("git", uri), uri)
            except RpcError:
                pass  # refused, gone, or the session is over
        self.pending.remove(scope)


class _Source(IdleUpstream):
    """As much of an `Upstream` as is needed here."""

    def __init__(self, one: Following) -> None:
        super().__init__("git")
        self._one = one

    async def subscribe(self, uri: str, call: Call) -> None:
        await self._one.subscribe(uri)

    def unsubscribe(self, uri: str, call: Call) -> None:
        self._one.release(uri)


async def _settled(watching: Watching) -> None:
    """Answers until there is nothing left to answer, for several round trips."""
    quiet = 0
    while quiet < 5:
        await watching.answer(0)
        quiet = 0 if watching.held else quiet + 1


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection counts as ready before its stream is acknowledged, as nobody reads lists here."""
    monkeypatch.setattr(subscriptions, "_FIRST", 0.0)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(steps=STEPS, banned=st.sampled_from([frozenset(), frozenset({"x:2"})]))
@pytest.mark.parametrize("era", Era)
async def test_the_server_watches_the_union_of_what_sessions_want(
    era: Era, steps: list[Step], banned: frozenset[str]
) -> None:
    one = Following(era)
    lives: list[list[Step]] = [[]]
    for step in steps:
        if step[0] == "restart":
            lives.append([])
        else:
            lives[-1].append(step)
    with anyio.fail_after(240):
        async with anyio.create_task_group() as tasks:
            clients = Clients(one, era, tasks)
            for life in lives:
                async with one.connected(**CAN) as server:
                    watching = Watching(server, banned)
                    for what, who, which in life:
                        if what == "answer":
                            await watching.answer(which)
                        elif what == "answer all":
                            await _settled(watching)
                        else:
                            clients.act(what, who, URIS[which])
                    if life is lives[-1]:
                        await _settled(watching)
                        assert watching.watched == clients.wanted == one.wanted
                        assert not clients.pending

"""Sessions that outlive the hub: what is kept of them, for how long, and who may use them."""

from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from mcp_hub.errors import StoreError
from mcp_hub.sessions import stored as module
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.sessions.stored import SessionStore, StoredSession
from mcp_hub.stores.base import EventStore, SessionRow
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import Era
from tests.unit.fronts.rest_peer import Response, mcp_hub
from tests.upstreams.child import WAIT
from tests.upstreams.messages import CLIENT

pytestmark = pytest.mark.anyio

ALICE = Caller("alice", "work")
ID = "se_" + "0" * 26


class Store(MemoryStore):
    """Counts what is written; broken if told so."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.is_broken = False
        self.may_write: anyio.Event | None = None

    async def put_session(self, session: SessionRow) -> None:
        self.writes += 1
        if self.may_write is not None:
            await self.may_write.wait()
        if self.is_broken:
            raise StoreError("the disk is full")
        await super().put_session(session)

    async def drop_session(self, id_: str) -> None:
        if self.is_broken:
            raise StoreError("the disk is full")
        await super().drop_session(id_)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1e9]
    monkeypatch.setattr(module, "wall_time", lambda: clock[0])
    return clock


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
def sessions(store: Store, now: list[float]) -> SessionStore:
    return SessionStore(cast(EventStore, store), 1000.0)


def kept(**fields: Any) -> StoredSession:
    session = Session(ID, ALICE, Era.HANDSHAKE, "2025-06-18", {"elicitation": {}}, {"name": "c"}, **fields)
    return StoredSession(session)


async def test_it_comes_back_as_it_was(sessions: SessionStore) -> None:
    before = kept(log_level="error", subscriptions={("git", "x:1"): "git+x:1", ("git", "x:2"): "x:2"})
    before.lapsed = {"x:3": None, "x:2": None}
    before.session.offer.apps = {"maps": None, "charts": None}
    await sessions.keep(before, 10)
    after = await sessions.find(ID, ALICE)
    assert after is not None and after.until == before.until
    for field in ("id", "caller", "era", "version", "capabilities", "client_info", "log_level"):
        assert getattr(after.session, field) == getattr(before.session, field)
    assert list(after.session.offer.apps or ()) == ["maps", "charts"]
    assert after.session.subscriptions == {} and list(after.lapsed) == ["git+x:1", "x:2", "x:3"]


@pytest.mark.parametrize("caller", [Caller("bob", "work"), Caller("alice"), Caller("alice", "home"), Caller()])
async def test_nobody_else_finds_it(caller: Caller, sessions: SessionStore) -> None:
    await sessions.keep(kept(), 10)
    assert await sessions.find(ID, caller) is None
    assert await sessions.find("se_" + "1" * 26, ALICE) is None


async def test_it_lives_as_long_as_the_last_stream_and_is_seldom_written(
    sessions: SessionStore, store: Store, now: list[float]
) -> None:
    session = kept()
    for _ in range(100):
        await sessions.keep(session, 500)
        now[0] += 30
    assert store.writes == 1
    now[0] = 1e9 + 5000
    await sessions.keep(session, 500)
    assert store.writes == 2
    now[0] += 1499
    assert await sessions.find(ID, ALICE) is not None
    now[0] += 3602
    assert await sessions.find(ID, ALICE) is None


async def test_what_is_still_being_written_is_waited_for_by_everybody(sessions: SessionStore, store: Store) -> None:
    store.may_write, session = anyio.Event(), kept()
    async with anyio.create_task_group() as tasks:
        done: list[int] = []

        async def keep(which: int) -> None:
            await sessions.keep(session, 10)
            done.append(which)

        for which in range(2):
            tasks.start_soon(keep, which)
            await anyio.wait_all_tasks_blocked()
        assert done == []
        store.may_write.set()
    assert await sessions.find(ID, ALICE) is not None


async def test_a_client_hears_of_a_change_that_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with mcp_hub(tmp_path) as peer:
        headers: dict[str, str | None] = {"accept": "application/json, text/event-stream"}

        def send(method: str, **params: Any) -> Response:
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            return peer.start("POST", "/mcp", message, headers)

        begun = await send("initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo=CLIENT).ended()
        headers["mcp-session-id"] = id_ = begun.headers["mcp-session-id"]
        peer.tools.go.set()
        await send("tools/call", name="steps", arguments={"n": 2}, _meta={"progressToken": 1}).ended()
        store, may_write, is_writing = peer.app.streams.store, anyio.Event(), anyio.Event()
        put_session = store.put_session

        async def slowly(row: SessionRow) -> None:
            is_writing.set()
            await may_write.wait()
            await put_session(row)

        monkeypatch.setattr(store, "put_session", slowly)
        answer = send("logging/setLevel", level="error")
        with anyio.fail_after(WAIT):
            await is_writing.wait()
        await anyio.wait_all_tasks_blocked()
        assert not answer.status
        may_write.set()
        assert (await answer.ended()).json["result"] == {}
        row = await store.session(id_)
        assert row is not None and b'"log_level":"error"' in row.body


async def test_one_that_was_ended_is_never_written_again(sessions: SessionStore) -> None:
    session = kept()
    await sessions.keep(session, 10)
    await sessions.drop(session)
    await sessions.keep(session, 1e6)
    await sessions.update(session)
    assert await sessions.find(ID, ALICE) is None


async def test_a_store_that_fails_costs_the_record_and_nothing_else(sessions: SessionStore, store: Store) -> None:
    store.is_broken = True
    session = kept()
    await sessions.keep(session, 10)
    await sessions.drop(session)
    assert await sessions.find(ID, ALICE) is None


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"version":1}', b'{"version":"2026-07-28","profile":"work"}'])
async def test_a_record_that_cannot_be_used_is_as_good_as_none(
    body: bytes, sessions: SessionStore, store: Store
) -> None:
    await store.put_session(SessionRow(ID, "alice", body, 2e9))
    assert await sessions.find(ID, ALICE) is None

"""Sessions that outlive the hub: what is kept of them, for how long, and who may use them."""

from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.errors import StoreError
from mcp_hub.sessions import stored as module
from mcp_hub.sessions.session import Caller, ClientOffer, Session
from mcp_hub.sessions.stored import SessionStore, StoredSession
from mcp_hub.stores.base import SessionRow
from mcp_hub.stores.memory import MemorySessions
from mcp_hub.types import Era
from tests.unit.fakes import LoneReplicas
from tests.unit.fronts.rest_peer import Response, mcp_hub
from tests.upstreams.child import WAIT
from tests.upstreams.messages import rpc

ALICE = Caller("alice", "work")
ID = "se_" + "0" * 26


class Records(MemorySessions):
    """Counts what is written; broken if told so."""

    def __init__(self) -> None:
        super().__init__(100)
        self.others = LoneReplicas()
        self.writes = 0
        self.is_broken = False
        self.may_write: anyio.Event | None = None

    async def put(self, session: SessionRow, before: SessionRow | None = None) -> SessionRow:
        self.writes += 1
        if self.may_write is not None:
            await self.may_write.wait()
        if self.is_broken:
            raise StoreError("the disk is full")
        return await super().put(session)

    async def drop(self, id_: str) -> None:
        if self.is_broken:
            raise StoreError("the disk is full")
        await super().drop(id_)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    clock = [1e9]
    monkeypatch.setattr(module, "wall_time", lambda: clock[0])
    return clock


@pytest.fixture
def store() -> Records:
    return Records()


@pytest.fixture
def sessions(store: Records, now: list[float]) -> SessionStore:
    return SessionStore(store, store.others, 1000.0)


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


async def test_session_lives_as_long_as_its_streams(sessions: SessionStore, store: Records, now: list[float]) -> None:
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


async def test_what_is_still_being_written_is_waited_for_by_everybody(sessions: SessionStore, store: Records) -> None:
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
        headers = await peer.session()

        def send(method: str, **params: Any) -> Response:
            return peer.start("POST", "/mcp", rpc(method, params, id=method), headers)

        peer.tools.go.set()
        await send("tools/call", name="steps", arguments={"n": 2}, _meta={"progressToken": 1}).ended()
        records, may_write, is_writing = peer.app.streams.store.sessions, anyio.Event(), anyio.Event()
        put = records.put

        async def slowly(row: SessionRow, before: SessionRow | None = None) -> SessionRow | None:
            is_writing.set()
            await may_write.wait()
            return await put(row, before)

        monkeypatch.setattr(records, "put", slowly)
        answer = send("logging/setLevel", level="error")
        with anyio.fail_after(WAIT):
            await is_writing.wait()
        await anyio.wait_all_tasks_blocked()
        assert not answer.status
        may_write.set()
        assert (await answer.ended()).json["result"] == {}
        row = await records.find(headers["mcp-session-id"])
        assert row is not None and b'"log_level":"error"' in row.body


async def test_one_that_was_ended_is_never_written_again(sessions: SessionStore) -> None:
    session = kept()
    await sessions.keep(session, 10)
    await sessions.drop(session)
    await sessions.keep(session, 1e6)
    await sessions.update(session)
    assert await sessions.find(ID, ALICE) is None


async def test_a_store_that_fails_costs_the_record_and_nothing_else(sessions: SessionStore, store: Records) -> None:
    store.is_broken = True
    session = kept()
    await sessions.keep(session, 10)
    await sessions.drop(session)
    assert await sessions.find(ID, ALICE) is None


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"\xff",
        b'{"version":1}',
        b'{"version":"2026-07-28","profile":"work"}',
        b'{"version":"2025-11-25","number":%d}' % 10**30,
        b'{"version":"2025-11-25","number":-1}',
        b'{"version":"2025-11-25","log_level":"loud"}',
        b'{"version":"2025-11-25","capabilities":{"a":' + b"[" * 5000 + b"]" * 5000 + b"}}",
    ],
)
async def test_record_that_cannot_be_used_counts_as_none(body: bytes, sessions: SessionStore, store: Records) -> None:
    await store.put(SessionRow(ID, "alice", body, 2e9))
    assert await sessions.find(ID, ALICE) is None


def seen_by(stored: StoredSession, **changes: Any) -> StoredSession:
    """The session as another process has it, which found this record and then served some requests."""
    session = msgspec.structs.replace(stored.session, subscriptions={}, **changes)
    return StoredSession(session, lapsed=dict.fromkeys(stored.session.subscriptions.values()), number=stored.number)


async def test_two_processes_that_change_a_session_at_once_both_know_all_of_it(sessions: SessionStore) -> None:
    here = kept(subscriptions={("git", "x:1"): "x:1", ("git", "x:2"): "x:2"})
    await sessions.keep(here, 10)
    assert (before := here.record) is not None
    there = seen_by(here, log_level="error", offer=ClientOffer(apps={"maps": None}))
    here.session.offer.apps = {"charts": None}
    del there.lapsed["x:1"]
    there.lapsed["x:3"] = None
    here.session.subscriptions["git", "x:4"] = "x:4"
    change = here.take(msgspec.structs.replace(before, body=there.encoded(), expires=2e9))
    assert change == ("error", ["x:1"])
    assert list(here.lapsed) == ["x:3"] and set(here.session.offer.apps) == {"charts", "maps"}
    assert (here.until, here.stored_until) == (2e9, 2e9)
    assert here.take(msgspec.structs.replace(before, body=there.encoded())) == here.take(before) == (None, []), (
        "they are known already"
    )
    assert list(here.lapsed) == ["x:3"]


async def test_a_level_that_was_set_here_last_stays_beside_the_change_of_another(sessions: SessionStore) -> None:
    here = kept(log_level="info")
    await sessions.keep(here, 10)
    assert here.record is not None
    there = seen_by(here, log_level="error")
    here.session.set_log_level("debug")
    assert here.take(msgspec.structs.replace(here.record, body=there.encoded()))[0] is None
    assert b'"debug"' in here.encoded()


async def test_news_of_a_foreign_or_unreadable_record_is_ignored(sessions: SessionStore, store: Records) -> None:
    here, heard = kept(), []
    await sessions.keep(here, 10)
    assert here.record is not None
    sessions.join(here, lambda stored, *change: heard.append(change))
    news = store.others.sessions
    assert ID in news and "se_2" not in news
    news.changed("se_2", None)
    news.changed(ID, msgspec.structs.replace(here.record, principal="bob"))
    news.changed(ID, msgspec.structs.replace(here.record, body=b"{"))
    news.changed(ID, msgspec.structs.replace(here.record, body=b'{"version":' + b"[" * 5000))
    assert heard == [] and not here.is_over
    news.changed(ID, None)
    assert heard == [(None, ())] and here.is_over
    sessions.leave(ID)
    news.changed(ID, None)
    assert heard == [(None, ())] and ID not in news

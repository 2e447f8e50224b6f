"""Bad records under every kind of key: they are set aside, and whatever else a store is asked it does as before."""

import math
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
import pytest
from structlog.testing import capture_logs

from mcp_hub.app.dashboard.past_calls import PastCalls
from mcp_hub.clock import wall_time
from mcp_hub.errors import StoreError
from mcp_hub.protocol.rest.history import HistoryFigures, HistoryPage, HistoryQuery
from mcp_hub.sessions.session import LOCAL, Caller
from mcp_hub.stores.base import Message, SessionRow
from mcp_hub.stores.documents import DocumentLimits
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.base import Batch, HistoryLimits, LostCalls
from mcp_hub.stores.history.replicas import RedisHistory
from mcp_hub.stores.redis.keys import RedisKeys, hashed, quarantined
from mcp_hub.stores.redis.store import RedisStore
from mcp_hub.stores.replicated import _RedisDocuments, _RedisHoldings, _RedisReplicas
from rigs.poison.values import EVERY, KINDS, kind_of
from tests.redis_server import NO_SERVER, binary, shared_server
from tests.unit.calls.past import keep, new_journal, past_call
from tests.unit.stores.event_stores import append, create, fetch, found, new_row, numbered, opened, replayed, settled
from tests.unit.stores.redis_stores import new_redis, new_shared

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.processes,
    pytest.mark.skipif(binary() is None, reason=NO_SERVER),
]

NOW: Final = 1_000.0
MEANT: Final = frozenset({"each field is nothing"})
"""An empty record of a session says that it has been ended: there is nothing to set aside."""
_OF_HISTORY: Final = ("history", "history:h", "history:t", "history:r", "history:l")
SESSION: Final = SessionRow("se_1", "other", b"{}", 9e9)


class Site:
    """Two stores on one prefix. A stream of the principal `other` stays exact, whatever is under `target`'s keys."""

    def __init__(self, prefix: str, one: RedisStore, two: RedisStore, client: Any) -> None:
        self.prefix = prefix
        self.one, self.two = one, two
        self.client = client
        self.target = self.other = new_row(one)
        self.documents: _RedisDocuments = _RedisDocuments(one.links, DocumentLimits(), lambda: NOW)
        self.holdings: _RedisHoldings = _RedisReplicas(one).holdings("scope")
        self.document = ""
        self.histories = [RedisHistory(store.links, wall_time) for store in (one, two)]
        self.journals = [new_journal(history, hub=history._instance) for history in self.histories]

    async def fill(self) -> None:
        """A stream of each principal, with all that may belong to one."""
        self.client.delete(*self.client.keys(f"{self.prefix}{{h:*") or ["-"])
        self.target = await create(
            self.one, new_row(self.one, principal="target", key=f"k{self.one.links.writer.commands}")
        )
        await append(self.one, self.target, 2, 2, size=300_000)
        await self.one.inbox.post(Message(self.target.id, "input", b"{}"))
        await self.one.sessions.put(SESSION)
        self.document = await self.documents.put("target", b"text")
        assert await self.holdings.hold("x")

    async def fill_history(self) -> None:
        """A call of each principal at each replica, and a loss."""
        for journal in self.journals:
            await keep(journal, past_call(principal="target"), past_call(arguments={"n": 1}, principal="other"))
        await self.histories[0].write(
            Batch(self.one.log.instance, 0), 0, b"", [LostCalls("dropped", NOW)], HistoryLimits()
        )

    def key(self, kind: str) -> str:
        """A key of this kind that is shared, or belongs to the target."""
        one = self.one
        keys, documents = one.links.keys.stream(self.target.id), one.links.keys.documents("target")
        past = one.links.keys.history
        fixed = {
            **{"st_": keys.row, "st_:e": keys.events, "st_:p": keys.parts, "st_:m": keys.messages},
            **{"in_:r": one.links.keys.running(one.log.instance), "in_:m": one.links.keys.called(one.log.instance)},
            **{"in_:w": one.links.keys.bell(one.log.instance), "p:": one.links.keys.principal("target")},
            **{"k:": one.links.keys.request("target", self.target.key or ""), "h:": one.links.keys.lock("scope\nx")},
            **{"d:": documents.ends, "d::s": documents.sizes, "d:*": documents.body(self.document)},
            **dict(zip(_OF_HISTORY, (past.batches, past.heads, past.texts, past.runs, past.losses), strict=True)),
        }
        name = kind.partition(":")[0]
        return fixed.get(kind) or f"{self.prefix}{{{name}}}{kind[len(name) :]}"

    async def use(self) -> None:
        """Every request to both stores: those about the target may fail, for that reason alone."""
        for store in (self.one, self.two):
            await self._ask_for_target(store)
            assert await store.log.rows("target", 50) is not None
            listed = await store.log.rows("other", 50)
            assert all(row.principal == "other" for row in listed)
            await store.links.leases.beat(store.links.writer)
            await store._greet()
            await store.leases.orphans()
            await store.inbox.take()
            await store.sweep(200.0)
            await store.sessions.put(SESSION)
            assert await store.sessions.find("se_1") == SESSION
            assert await store.leases.is_orphan(self.other) is False
        fresh = await create(
            self.one, new_row(self.one, principal="target", key=f"n{self.one.links.writer.commands}"), 2
        )
        assert await replayed(self.two, fresh) == numbered(1, 2)
        await append(self.one, fresh, 3, status="completed", frees_key=True)
        id_ = await self.documents.put("target", b"another")
        part = await self.documents.read("target", id_, 0, 9)
        assert part is not None and part[0] == b"another"
        await self.holdings.hold("x")
        assert await replayed(self.two, self.other) == numbered(1, 3)

    async def use_history(self) -> None:
        """Every request to the history at both replicas."""
        for history in self.histories:
            await self._look_back(history)

    async def _look_back(self, history: RedisHistory) -> None:
        """A call that ends now is kept, and found by its principal and by operators."""
        call = past_call(arguments={"n": 7}, principal="other")
        history._pruned = -math.inf
        journal = self.journals[self.histories.index(history)]
        await keep(journal, call)
        assert journal.failing == ""
        rules = journal.rules()
        past = PastCalls(history, lambda: rules, journal)
        for caller in (LOCAL, Caller("other"), Caller("target")):
            page = await past.page(caller, HistoryQuery(limit=1000, details=True))
            msgspec.json.decode(msgspec.json.encode(page), type=HistoryPage)
            assert caller.operates or {row.principal for row in page.calls} <= {caller.principal}
            assert (call.call.id in {row.id for row in page.calls}) == (caller.principal != "target")
            figures = await past.figures(caller, "7d", HistoryQuery())
            msgspec.json.decode(msgspec.json.encode(figures), type=HistoryFigures)
        found = await past.call(Caller("other"), call.call.id)
        assert found is not None and msgspec.json.encode(found.arguments) == b'{"n":7}'

    async def _ask_for_target(self, store: RedisStore) -> None:
        row, posted = self.target, Message(self.target.id, "touch", b"")
        for request in (
            lambda: store.log.find(row.id),
            lambda: store.log.find_key("target", row.key or ""),
            lambda: settled(lambda done: store.log.fetch(row.id, 0, 100, done)),
            lambda: store.inbox.post(posted),
            lambda: self.documents.read("target", self.document, 0, 9),
        ):
            await _answered(request())
        if store is self.one:
            await _answered(append(store, row, 4))
            await _answered(append(store, row, 5, status="completed"))


async def _answered(request: Any) -> None:
    """An error of one stream is an answer, a fault of the store is not."""
    try:
        await request
    except StoreError as error:
        assert not isinstance(error, StoreFault), error


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    client: Any = shared_server().client
    async with opened(one := new_redis(tmp_path)), opened(two := new_redis(tmp_path)):
        site = Site(f"{tmp_path}:", one, two, client)
        site.other = await create(one, new_row(one, principal="other"), 3)
        yield site
    client.close()


@pytest.mark.parametrize("step", [pytest.param(12, id="some"), pytest.param(1, id="all", marks=pytest.mark.proof)])
@pytest.mark.parametrize("kind", KINDS)
async def test_poison_ends_no_replica_and_changes_nothing_for_another_principal(
    site: Site, kind: str, step: int
) -> None:
    poisons = [poison for poison in EVERY if poison.kind == kind and poison.name not in MEANT]
    fill, use = (site.fill_history, site.use_history) if kind in _OF_HISTORY else (site.fill, site.use)
    with capture_logs() as logs:
        for poison in poisons[:: step if step == 1 or kind not in _OF_HISTORY else 2 * step]:
            with anyio.fail_after(240):
                await fill()
                await site.one.links.writer.set_wrong_types_aside([site.key(kind)])  # a bell is looked at every 5 s
                assert kind_of(site.key(kind).removeprefix(site.prefix)) == kind
                poison.write(site.client, site.key(kind))
                try:
                    await use()
                except (Exception, TimeoutError) as error:
                    raise AssertionError(f"{kind}: {poison.name}") from error
    assert [entry for entry in logs if entry.get("exc_info")] == []


@pytest.mark.first(2)
@pytest.mark.parametrize("value", ["abc", "", "-1", "9" * 30, "nan", b"\xff"])
async def test_replica_lives_and_starts_when_a_beat_is_not_an_integer(site: Site, tmp_path: Path, value: Any) -> None:
    key = site.key("replicas")
    fields = {site.two.log.instance: value, "a word": value, "in_gone": value}
    site.client.hset(key, mapping=fields)
    with capture_logs() as logs:
        await site.one.links.leases.beat(site.one.links.writer)
    assert [entry["key"] for entry in logs if entry["event"] == "record_set_aside"] == [key]
    assert {name.encode() for name in fields} == set(site.client.hgetall(quarantined(key)))
    assert not site.one.links.leases.is_gone(site.two.log.instance), "it was alive a moment ago"
    site.client.hset(key, mapping=fields)
    async with opened(third := new_redis(tmp_path)):
        assert await found(third, site.other) == site.other
    while not site.one.links.leases.is_gone("in_gone"):
        with anyio.fail_after(240):
            await site.one.inbox.wait(0.05)
    assert not site.one.links.leases.is_gone(site.two.log.instance)


async def test_replica_whose_record_says_that_it_has_left_keeps_the_streams_that_it_has_not_left(site: Site) -> None:
    row = await create(site.two, new_row(site.two))
    for _ in range(5):
        site.client.hset(site.key("replicas"), site.two.log.instance, 0)
        await site.one.links.leases.beat(site.one.links.writer)
        assert not await site.one.leases.is_orphan(row) and await site.one.leases.orphans() == []
    assert site.client.sismember(site.one.links.keys.running(site.two.log.instance), row.id)
    await append(site.two, row, 2)


@pytest.mark.parametrize("deed", ["deleted", "of another type"])
async def test_replicas_whose_records_are_deleted_are_not_taken_to_be_gone(site: Site, deed: str) -> None:
    row = await create(site.two, new_row(site.two))
    site.client.delete(site.key("replicas"))
    if deed != "deleted":
        site.client.set(site.key("replicas"), "x")
    for _ in range(3):
        await site.one.links.leases.beat(site.one.links.writer)
        assert not await site.one.leases.is_orphan(row) and await site.one.leases.orphans() == []
    await append(site.two, row, 2)


async def test_forged_place_deletes_no_key_of_the_hub(site: Site) -> None:
    names = ("replicas", "sessions", "secret", "every")
    await site.one.sessions.put(SESSION)
    for name in names:
        site.client.zadd(site.key("ended"), {f"{'0' * 16} {'0' * 32} {name}": 1.0})
    await site.one.sweep(2.0)
    assert site.client.exists(*(site.key(name) for name in names)) == len(names)
    assert site.client.zcard(site.key("ended")) == 0


async def test_forged_place_shows_no_stream_of_another_principal(site: Site) -> None:
    place = f"{'f' * 16} {hashed('target')} {site.other.id}"
    site.client.zadd(site.key("p:"), {place: 1e9})
    assert await site.one.log.rows("target", 10) == []
    site.client.hset(site.one.links.keys.request("target", "k"), "k", f"{site.other.id} 1")
    assert await site.one.log.find_key("target", "k") is None


@pytest.mark.parametrize("part", ["row", "events"])
async def test_running_stream_is_written_anew_when_its_record_is_damaged(tmp_path: Path, part: str) -> None:
    client: Any = shared_server().client
    async with opened(store := new_shared(tmp_path)):
        row = await create(store, new_row(store), 2)
        keys = RedisKeys(f"{tmp_path}:").stream(row.id)
        if part == "row":
            client.hset(keys.row, "last", "abc")
        else:
            client.xadd(keys.events, {"x": "y"})
        await append(store, row, 3, 2)
        assert await replayed(store, row) == numbered(1, 4)
        assert client.exists(keys.row, keys.events) == 2 and client.exists(quarantined(keys.row)) == 1
        await append(store, row, 5, status="completed")
    client.close()


async def test_damaged_chunk_counts_as_let_go_and_the_others_are_read(site: Site) -> None:
    row = await create(site.one, new_row(site.one), 2)
    for first in (3, 5, 7):
        await append(site.one, row, first, 2)
    key = site.one.links.keys.stream(row.id).events
    chunks = site.client.xrange(key)
    site.client.delete(key)
    for number, (id_, chunk) in enumerate(chunks):
        site.client.xadd(key, {**chunk, b"d": b"x"} if number == 1 else chunk, id=id_)
    assert list((await fetch(site.two, row)).lines) == numbered(1, 2)
    await _answered(fetch(site.two, row, 2))
    page = await fetch(site.two, row, 2)
    assert (page.first, list(page.lines)) == (5, numbered(5, 8))


async def test_quarantine_is_bounded_and_expires(site: Site) -> None:
    key = site.key("replicas")
    with capture_logs() as logs:
        site.client.hset(key, mapping={f"bad {number}": "x" * 100_000 for number in range(100)})
        await site.one.links.leases.beat(site.one.links.writer)
    stored = site.client.hgetall(quarantined(key))
    assert len(stored) == 64 and max(map(len, stored.values())) == 65_536
    assert 0 < site.client.pttl(quarantined(key)) <= 7 * 86_400_000
    [entry] = [entry for entry in logs if entry["event"] == "record_set_aside"]
    assert entry["count"] == 100 and len(entry["parts"]) == 3


async def test_secret_that_is_damaged_is_written_again_by_a_replica_that_has_it(site: Site, tmp_path: Path) -> None:
    site.client.set(site.key("secret"), "x")
    await site.two._greet()
    async with opened(third := new_redis(tmp_path)):
        assert third.secret == site.one.secret and len(third.secret or b"") == 32

"""What every store of streams promises (stores.base) beside their events: keys, messages, takeovers, sessions."""

from pathlib import Path

import msgspec
import pytest

from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores.base import MAX_MESSAGES, Change, Message, SessionRow, StreamStore
from tests.unit.stores.event_stores import (
    GONE,
    SMALL,
    append,
    create,
    found,
    new_row,
    numbered,
    replayed,
    settled,
)
from tests.unit.stores.redis_stores import EVERY_KIND

pytestmark = pytest.mark.anyio

# -- keys and lists


async def test_a_key_is_one_principals_and_used_once(store: StreamStore) -> None:
    row = await create(store, new_row(store, key="k", digest="d"))
    await create(store, new_row(store, key="k", principal="other"))
    await create(store, new_row(store, key="l"))
    for _ in range(2):
        await create(store, new_row(store))
    with pytest.raises(KeyTaken, match="'k'"):
        await create(store, new_row(store, key="k"))
    assert await store.log.find_key("local", "k") == row
    assert await store.log.find_key("local", "other") is None
    assert await store.log.find_key("nobody", "k") is None


async def test_a_key_finds_a_further_call_of_its_request_if_the_first_was_not_made(store: StreamStore) -> None:
    second = await create(store, new_row(store, key="k\n2", digest="d"))
    for key in ("k\n1", "k\n10", "k 1", "kk", "k\n2x"):
        await create(store, new_row(store, key=key, principal="other" if key == "k\n1" else "local"))
    assert (await store.log.find_key("local", "k") or second).key == "k\n10"
    assert await store.log.find_key("local", "k\n2") == second and await store.log.find_key("local", "k\n1") is None
    assert await store.log.find_key("local", "k ") is None and await store.log.find_key("nobody", "k") is None
    first = await create(store, new_row(store, key="k"))
    assert await store.log.find_key("local", "k") == first


async def test_a_key_that_a_stream_lets_go_of_is_free_at_once(store: StreamStore) -> None:
    row = await create(store, new_row(store, key="k", digest="d"))
    await append(store, row, 2)
    assert (await found(store, row)).key == "k"
    await append(store, row, 3, status="failed", frees_key=True)
    assert await store.log.find_key("local", "k") is None and (await found(store, row)).key is None
    second = await create(store, new_row(store, key="k"))
    assert await store.log.find_key("local", "k") == second
    assert await replayed(store, row) == numbered(1, 3)


async def test_a_principals_streams_are_listed_newest_first(store: StreamStore) -> None:
    rows = [await create(store, new_row(store, created=created)) for created in (5.0, 9.0, 1.0, 5.0)]
    await create(store, new_row(store, principal="other", created=99.0))
    assert await store.log.rows("local", 10) == [rows[1], rows[3], rows[0], rows[2]]
    assert await store.log.rows("local", 2) == [rows[1], rows[3]]
    assert await store.log.rows("local", 0) == []
    assert await store.log.rows("nobody", 10) == []


# -- messages


async def test_messages_for_other_owners_stay(store: StreamStore) -> None:
    row = await create(store, new_row(store, owner=GONE))
    assert await store.inbox.post(Message(row.id, "input", b"1"))
    assert await store.inbox.take() == []
    claimed = await store.leases.claim(row, [], Change(5.0))
    assert claimed is not None
    assert await store.inbox.take() == [Message(row.id, "input", b"1")], "who owns it now is given them"


async def test_nothing_is_posted_to_a_stream_that_is_unknown_or_has_ended(store: StreamStore) -> None:
    row = await create(store, new_row(store))
    assert await store.inbox.post(Message(row.id, "input", b"1"))
    await append(store, row, 2, status="completed")
    assert not await store.inbox.post(Message(row.id, "cancel", b""))
    assert not await store.inbox.post(Message(new_row(store).id, "cancel", b""))
    assert await store.inbox.take() == [], "nobody answers what waited either"


async def test_a_second_cancel_is_the_same_as_the_first(store: StreamStore) -> None:
    row = await create(store, new_row(store))
    assert await store.inbox.post(Message(row.id, "cancel", b"a"))
    assert await store.inbox.post(Message(row.id, "cancel", b"b"))
    assert await store.inbox.take() == [Message(row.id, "cancel", b"a")]


async def test_an_inbox_that_nobody_reads_is_bounded(store: StreamStore) -> None:
    row, other = await create(store, new_row(store)), await create(store, new_row(store))
    for _ in range(MAX_MESSAGES):
        assert await store.inbox.post(Message(row.id, "input", b"1"))
    with pytest.raises(StoreError, match="messages wait"):
        await store.inbox.post(Message(row.id, "input", b"1"))
    assert await store.inbox.post(Message(other.id, "input", b"1"))
    assert len(await store.inbox.take()) == MAX_MESSAGES + 1
    assert await store.inbox.post(Message(row.id, "input", b"1"))


# -- what an owner left behind


async def test_orphans_are_the_streams_of_owners_that_are_gone(store: StreamStore) -> None:
    left = await create(store, new_row(store, owner=GONE))
    own = await create(store, new_row(store))
    await create(store, new_row(store, owner=GONE, status="completed"))
    assert await store.leases.orphans() == [left]
    assert await store.leases.is_orphan(left)
    assert not await store.leases.is_orphan(own)


async def test_who_claims_a_stream_owns_it_and_the_old_owner_is_fenced(store: StreamStore) -> None:
    row = await create(store, new_row(store, owner=GONE), 2)
    claimed = await store.leases.claim(row, numbered(3, 4), Change(300.0, message="taken over"))
    assert claimed is not None
    assert (claimed.owner, claimed.epoch, claimed.last, claimed.message) == (store.log.instance, 2, 4, "taken over")
    assert claimed == await found(store, row)
    with pytest.raises(Fenced, match="epoch 1"):
        await append(store, row, 5)
    await append(store, claimed, 5)
    assert await replayed(store, row) == numbered(1, 5)
    assert await store.leases.orphans() == []


async def test_a_claim_of_what_is_no_longer_so_does_nothing(store: StreamStore) -> None:
    row = await create(store, new_row(store, owner=GONE))
    await append(store, row, 2)
    assert await store.leases.claim(row, numbered(2, 2), Change(300.0)) is None
    now = await found(store, row)
    ahead = msgspec.structs.replace(now, epoch=now.epoch + 1)
    assert await store.leases.claim(ahead, numbered(3, 3), Change(300.0)) is None
    claimed = await store.leases.claim(now, numbered(3, 3), Change(300.0))
    assert claimed is not None
    assert await store.leases.claim(now, numbered(3, 3), Change(300.0)) is None
    assert await found(store, row) == claimed
    assert await store.leases.claim(new_row(store, owner=GONE), [], Change(300.0)) is None


async def test_a_claim_that_cannot_be_stored_leaves_the_stream_to_its_owner(store: StreamStore) -> None:
    row = await create(store, new_row(store, owner=GONE))
    with pytest.raises(StoreError, match="line break"):
        await store.leases.claim(row, [b"a\nb"], Change(300.0))
    assert await found(store, row) == row


# -- sweeping


async def test_what_has_expired_is_swept_and_its_key_is_free_again(store: StreamStore) -> None:
    running = await create(store, new_row(store, ttl=0.0))
    row = await create(store, new_row(store, status="completed", ttl=10.0, key="k", info=b"i"), 3)
    assert await store.sweep(109.0) == 0
    assert await store.sweep(110.0) == 1
    assert await store.log.find(row.id) is None
    assert await settled(lambda done: store.log.fetch(row.id, 0, 10, done)) is None
    assert await store.log.find_key("local", "k") is None
    assert await store.log.rows("local", 10) == [running]
    assert await store.sweep(1e12) == 0
    again = await create(store, new_row(store, key="k"))
    assert (again.info, await replayed(store, again)) == (None, numbered(1, 1))


async def test_beyond_the_limit_the_oldest_ended_streams_are_swept(store: StreamStore) -> None:
    rows = [await create(store, new_row(store)) for _ in range(9)]
    for age, row in enumerate(reversed(rows[1:])):
        await append(store, row, 2, updated=200.0 + age, status="completed")
    assert await store.sweep(300.0) == 3
    assert {row.id for row in await store.log.rows("local", 99)} == {row.id for row in rows[:6]}


# -- sessions


async def test_a_session_is_kept_replaced_and_dropped(store: StreamStore) -> None:
    first, second = SessionRow("se_1", "local", b"{}", 50.0), SessionRow("se_1", "local", b"[]", 60.0)
    assert await store.sessions.find("se_1") is None
    await store.sessions.put(first)
    assert await store.sessions.find("se_1") == first
    await store.sessions.put(second)
    assert await store.sessions.find("se_1") == second
    await store.sessions.drop("se_1")
    await store.sessions.drop("se_1")
    assert await store.sessions.find("se_1") is None


async def test_sessions_are_bounded(store: StreamStore) -> None:
    for number in range(5):
        await store.sessions.put(SessionRow(f"se_{number}", "local", b"", 50.0 + number))
    assert [await store.sessions.find(f"se_{number}") is None for number in range(5)] == [
        True,
        True,
        False,
        False,
        False,
    ]


# -- the rest


async def test_instances_have_ids_of_their_own(kind: str, tmp_path: Path) -> None:
    ids = {EVERY_KIND[kind](tmp_path / str(number), SMALL).log.instance for number in range(3)}
    assert len(ids) == 3
    assert all(id_.startswith("in_") and len(id_) == 29 for id_ in ids)

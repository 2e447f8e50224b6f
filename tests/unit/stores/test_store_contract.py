"""What every store of streams promises (stores.base), whatever keeps them."""

from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from mcp_hub.app.limits import STORES
from mcp_hub.call import StreamInfo
from mcp_hub.config.schema.hub import StoreSettings
from mcp_hub.errors import Fenced, KeyTaken, StoreError
from mcp_hub.stores.base import MAX_MESSAGES, PAGE_BYTES, Change, Chunk, EventStore, Message, SessionRow
from mcp_hub.types import OWN
from tests.unit.stores.event_stores import (
    GONE,
    SMALL,
    append,
    create,
    events,
    fetch,
    found,
    line,
    lost,
    new_row,
    numbered,
    replayed,
    settled,
)
from tests.unit.stores.redis_stores import EVERY_KIND

pytestmark = pytest.mark.anyio


def test_each_type_that_the_settings_take_has_an_opener() -> None:
    assert get_args(StoreSettings.model_fields["type"].annotation) == tuple(STORES)


# -- rows and events


async def test_a_new_stream_is_as_it_was_given_with_its_first_events(store: EventStore) -> None:
    row = new_row(
        store,
        **{"session": "se_1", "ttl": 7.0, "message": "hello", "continuation": b'{"task":1}', "info": b"{}"},
        **{"key": "k", "digest": "d", "status": "input_required"},
    )
    kept = await create(store, row, 3)
    assert kept == StreamInfo(**{**{name: getattr(row, name) for name in row.__struct_fields__}, "last": 3})
    assert await replayed(store, row) == numbered(1, 3)


async def test_a_stream_of_the_hub_itself_is_found_again_and_a_firm_change_is_one_as_others_are(
    store: EventStore,
) -> None:
    row = await create(store, new_row(store, server=OWN))
    await append(store, row, 2, continuation=b"{}", is_firm=True)
    assert await found(store, row) == msgspec.structs.replace(row, last=2, updated=101.0, continuation=b"{}")


async def test_a_stream_may_begin_without_events(store: EventStore) -> None:
    row = await create(store, new_row(store), 0)
    assert (row.first, row.last) == (1, 0)
    page = await fetch(store, row)
    assert (page.lines, page.first) == ((), 1)
    await append(store, row, 1, 2)
    assert await replayed(store, row) == numbered(1, 2)


async def test_an_id_is_used_once(store: EventStore) -> None:
    row = await create(store, new_row(store))
    with pytest.raises(StoreError, match=row.id):
        await create(store, row, 0)
    with pytest.raises(StoreError, match=row.id):
        await create(store, new_row(store, id=row.id))
    assert await replayed(store, row) == numbered(1, 1)


async def test_lines_are_kept_byte_for_byte(store: EventStore) -> None:
    lines = (b"", b'{"a":"\xc3\xa9"}', b"\x00\xff\r", b"", b"x" * 3000)
    row = new_row(store, last=len(lines))
    await settled(lambda done: store.log.create(row, Chunk(1, lines), done))
    assert tuple(await replayed(store, row)) == lines


@pytest.mark.parametrize("lines", [(b"a\nb",), (b"a", b"b\n"), (b"\n", b"")])
async def test_a_line_break_in_an_event_is_refused_and_nothing_kept(store: EventStore, lines: tuple[bytes]) -> None:
    row = await create(store, new_row(store))
    other = new_row(store, last=len(lines))
    with pytest.raises(StoreError, match="line break"):
        await settled(lambda done: store.log.append(row.id, 1, Chunk(2, lines), Change(5.0, message="no"), done))
    with pytest.raises(StoreError, match="line break"):
        await settled(lambda done: store.log.create(other, Chunk(1, lines), done))
    assert (await found(store, row)).message is None
    assert await store.log.find(other.id) is None
    await append(store, row, 2)
    assert await replayed(store, row) == numbered(1, 2)


# -- the fence


@pytest.mark.parametrize("epoch", [0, 2, -1])
async def test_another_epoch_is_fenced(store: EventStore, epoch: int) -> None:
    row = await create(store, new_row(store))
    with pytest.raises(Fenced, match=f"epoch {epoch}"):
        await settled(lambda done: store.log.append(row.id, epoch, events(2, 1), Change(5.0, status="failed"), done))
    assert await found(store, row) == row


@pytest.mark.parametrize("first", [0, 1, 2, 4, 100])
async def test_a_hole_or_a_repetition_is_fenced(store: EventStore, first: int) -> None:
    row = await create(store, new_row(store), 2)
    with pytest.raises(Fenced, match=f"event {first} does not follow 2"):
        await append(store, row, first, message="no")
    assert await found(store, row) == row
    assert await replayed(store, row) == numbered(1, 2)


async def test_what_cannot_be_stored_does_not_harm_its_neighbours(store: EventStore) -> None:
    """They may be committed together."""
    told: list[Any] = []
    rows = [new_row(store, last=1) for _ in range(9)]
    for number, row in enumerate(rows):
        chunk = events(2 if number % 3 == 1 else 1, 1)
        store.log.create(row, chunk, told.append)
    last = await create(store, new_row(store))
    assert [isinstance(result, StoreError) for result in told] == [number % 3 == 1 for number in range(9)]
    for row in (rows[0], rows[8], last):
        assert await replayed(store, row) == numbered(1, 1)


# -- pages


async def test_a_page_begins_behind_the_cursor_and_holds_so_many_at_most(store: EventStore) -> None:
    row = await create(store, new_row(store), 5)
    await append(store, row, 6, 5)
    asked = ((0, 3, 1, 3), (4, 3, 5, 7), (9, 9, 10, 10), (2, 8, 3, 10), (-5, 2, 1, 2), (0, 0, 1, 1))
    for after, most, first, last in asked:
        page = await fetch(store, row, after, most)
        assert (page.first, list(page.lines)) == (first, numbered(first, last))
        assert page.row == await found(store, row)


@pytest.mark.parametrize("after", [3, 4, 1000])
async def test_behind_the_end_there_is_an_empty_page(store: EventStore, after: int) -> None:
    row = await create(store, new_row(store), 3)
    page = await fetch(store, row, after)
    assert (page.lines, page.first, page.row.last) == ((), 4, 3)


async def test_a_page_is_bounded_in_bytes_but_never_empty_for_that(large: EventStore) -> None:
    third = PAGE_BYTES // 3
    row = await create(large, new_row(large), 7, third)
    page = await fetch(large, row)
    assert len(page.lines) in (2, 3)
    await append(large, row, 8, 1, size=2 * PAGE_BYTES)
    other = await create(large, new_row(large))
    for number in range(2, 9):
        await append(large, other, number, size=third)
    assert len((await fetch(large, other)).lines) in (3, 4)
    assert len(await replayed(large, other)) == 8
    await append(large, row, 9, 1)
    assert (await fetch(large, row, 7)).lines == (line(8, 2 * PAGE_BYTES),)
    assert len(await replayed(large, row)) == 9


@pytest.mark.parametrize("most", [1, 7, 1000])
async def test_pages_together_are_the_stream(large: EventStore, most: int) -> None:
    row = await create(large, new_row(large))
    first = 2
    for count in (1, 30, 2, 1, 9):
        await append(large, row, first, count)
        first += count
    assert await replayed(large, row, most) == numbered(1, 44)


# -- limits


@pytest.mark.parametrize("each", [1, 4])
async def test_the_oldest_events_are_let_go_when_there_are_too_many(store: EventStore, each: int) -> None:
    row = await create(store, new_row(store), 4)
    for first in range(5, 205, each):
        await append(store, row, first, each)
        kept = await found(store, row)
        assert kept.last - kept.first + 1 <= 40
        assert await replayed(store, row) == numbered(kept.first, kept.last)
    assert kept.last == 204
    assert kept.last - kept.first + 1 >= 32, "no more than has to"
    page = await fetch(store, row, 5, 3)
    assert (page.first, list(page.lines)) == (kept.first, numbered(kept.first, kept.first + 2))


# -- keys and lists


async def test_a_key_is_one_principals_and_used_once(store: EventStore) -> None:
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


async def test_a_key_finds_a_further_call_of_its_request_if_the_first_was_not_made(store: EventStore) -> None:
    second = await create(store, new_row(store, key="k\n2", digest="d"))
    for key in ("k\n1", "k\n10", "k 1", "kk", "k\n2x"):
        await create(store, new_row(store, key=key, principal="other" if key == "k\n1" else "local"))
    assert (await store.log.find_key("local", "k") or second).key == "k\n10"
    assert await store.log.find_key("local", "k\n2") == second and await store.log.find_key("local", "k\n1") is None
    assert await store.log.find_key("local", "k ") is None and await store.log.find_key("nobody", "k") is None
    first = await create(store, new_row(store, key="k"))
    assert await store.log.find_key("local", "k") == first


async def test_a_key_that_a_stream_lets_go_of_is_free_at_once(store: EventStore) -> None:
    row = await create(store, new_row(store, key="k", digest="d"))
    await append(store, row, 2)
    assert (await found(store, row)).key == "k"
    await append(store, row, 3, status="failed", frees_key=True)
    assert await store.log.find_key("local", "k") is None and (await found(store, row)).key is None
    second = await create(store, new_row(store, key="k"))
    assert await store.log.find_key("local", "k") == second
    assert await replayed(store, row) == numbered(1, 3)


async def test_a_principals_streams_are_listed_newest_first(store: EventStore) -> None:
    rows = [await create(store, new_row(store, created=created)) for created in (5.0, 9.0, 1.0, 5.0)]
    await create(store, new_row(store, principal="other", created=99.0))
    assert await store.log.rows("local", 10) == [rows[1], rows[3], rows[0], rows[2]]
    assert await store.log.rows("local", 2) == [rows[1], rows[3]]
    assert await store.log.rows("local", 0) == []
    assert await store.log.rows("nobody", 10) == []


# -- messages


async def test_messages_for_other_owners_stay(store: EventStore) -> None:
    row = await lost(store, await create(store, new_row(store, owner=GONE)))
    assert await store.inbox.post(Message(row.id, "input", b"1"))
    assert await store.inbox.take() == []
    claimed = await store.leases.claim(row, [], Change(5.0))
    assert claimed is not None
    assert await store.inbox.take() == [Message(row.id, "input", b"1")], "who owns it now is given them"


async def test_nothing_is_posted_to_a_stream_that_is_unknown_or_has_ended(store: EventStore) -> None:
    row = await create(store, new_row(store))
    assert await store.inbox.post(Message(row.id, "input", b"1"))
    await append(store, row, 2, status="completed")
    assert not await store.inbox.post(Message(row.id, "cancel", b""))
    assert not await store.inbox.post(Message(new_row(store).id, "cancel", b""))
    assert await store.inbox.take() == [], "nobody answers what waited either"


async def test_a_second_cancel_is_the_same_as_the_first(store: EventStore) -> None:
    row = await create(store, new_row(store))
    assert await store.inbox.post(Message(row.id, "cancel", b"a"))
    assert await store.inbox.post(Message(row.id, "cancel", b"b"))
    assert await store.inbox.take() == [Message(row.id, "cancel", b"a")]


async def test_an_inbox_that_nobody_reads_is_bounded(store: EventStore) -> None:
    row, other = await create(store, new_row(store)), await create(store, new_row(store))
    for _ in range(MAX_MESSAGES):
        assert await store.inbox.post(Message(row.id, "input", b"1"))
    with pytest.raises(StoreError, match="messages wait"):
        await store.inbox.post(Message(row.id, "input", b"1"))
    assert await store.inbox.post(Message(other.id, "input", b"1"))
    assert len(await store.inbox.take()) == MAX_MESSAGES + 1
    assert await store.inbox.post(Message(row.id, "input", b"1"))


# -- what an owner left behind


async def test_orphans_are_the_streams_of_owners_that_are_gone(store: EventStore) -> None:
    left = await create(store, new_row(store, owner=GONE))
    own = await create(store, new_row(store))
    await create(store, new_row(store, owner=GONE, status="completed"))
    await lost(store, left)
    assert await store.leases.orphans() == [left]
    assert not await store.leases.is_orphan(own)


async def test_who_claims_a_stream_owns_it_and_the_old_owner_is_fenced(store: EventStore) -> None:
    row = await lost(store, await create(store, new_row(store, owner=GONE), 2))
    claimed = await store.leases.claim(row, numbered(3, 4), Change(300.0, message="taken over"))
    assert claimed is not None
    assert (claimed.owner, claimed.epoch, claimed.last, claimed.message) == (store.log.instance, 2, 4, "taken over")
    assert claimed == await found(store, row)
    with pytest.raises(Fenced, match="epoch 1"):
        await append(store, row, 5)
    await append(store, claimed, 5)
    assert await replayed(store, row) == numbered(1, 5)
    assert await store.leases.orphans() == []


async def test_a_claim_of_what_is_no_longer_so_does_nothing(store: EventStore) -> None:
    row = await lost(store, await create(store, new_row(store, owner=GONE)))
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


async def test_a_claim_that_cannot_be_stored_leaves_the_stream_to_its_owner(store: EventStore) -> None:
    row = await create(store, new_row(store, owner=GONE))
    with pytest.raises(StoreError, match="line break"):
        await store.leases.claim(row, [b"a\nb"], Change(300.0))
    assert await found(store, row) == row


# -- sweeping


async def test_what_has_expired_is_swept_and_its_key_is_free_again(store: EventStore) -> None:
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


async def test_beyond_the_limit_the_oldest_ended_streams_are_swept(store: EventStore) -> None:
    rows = [await create(store, new_row(store)) for _ in range(9)]
    for age, row in enumerate(reversed(rows[1:])):
        await append(store, row, 2, updated=200.0 + age, status="completed")
    assert await store.sweep(300.0) == 3
    assert {row.id for row in await store.log.rows("local", 99)} == {row.id for row in rows[:6]}


# -- sessions


async def test_a_session_is_kept_replaced_and_dropped(store: EventStore) -> None:
    first, second = SessionRow("se_1", "local", b"{}", 50.0), SessionRow("se_1", "local", b"[]", 60.0)
    assert await store.sessions.find("se_1") is None
    await store.sessions.put(first)
    assert await store.sessions.find("se_1") == first
    await store.sessions.put(second)
    assert await store.sessions.find("se_1") == second
    await store.sessions.drop("se_1")
    await store.sessions.drop("se_1")
    assert await store.sessions.find("se_1") is None


async def test_sessions_are_bounded(store: EventStore) -> None:
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

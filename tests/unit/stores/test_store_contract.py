"""What every store of streams promises (stores.base), whatever keeps them."""

from typing import Any, get_args

import pytest

from mcp_hub.app.limits import STORES
from mcp_hub.call import StreamInfo
from mcp_hub.config.schema.hub import StoreSettings
from mcp_hub.errors import Fenced, StoreError
from mcp_hub.stores.base import PAGE_BYTES, Change, Chunk, StreamStore
from tests.unit.stores.event_stores import (
    append,
    create,
    events,
    fetch,
    found,
    line,
    new_row,
    numbered,
    replayed,
    settled,
)

pytestmark = pytest.mark.anyio


def test_each_type_that_the_settings_take_has_an_opener() -> None:
    assert get_args(StoreSettings.model_fields["type"].annotation) == tuple(STORES)


# -- rows and events


async def test_a_new_stream_is_as_it_was_given_with_its_first_events(store: StreamStore) -> None:
    row = new_row(
        store,
        **{"session": "se_1", "ttl": 7.0, "message": "hello", "continuation": b'{"task":1}', "info": b"{}"},
        **{"key": "k", "digest": "d", "status": "input_required"},
    )
    kept = await create(store, row, 3)
    assert kept == StreamInfo(**{**{name: getattr(row, name) for name in row.__struct_fields__}, "last": 3})
    assert await replayed(store, row) == numbered(1, 3)


async def test_a_stream_may_begin_without_events(store: StreamStore) -> None:
    row = await create(store, new_row(store), 0)
    assert (row.first, row.last) == (1, 0)
    page = await fetch(store, row)
    assert (page.lines, page.first) == ((), 1)
    await append(store, row, 1, 2)
    assert await replayed(store, row) == numbered(1, 2)


async def test_an_id_is_used_once(store: StreamStore) -> None:
    row = await create(store, new_row(store))
    with pytest.raises(StoreError, match=row.id):
        await create(store, row, 0)
    with pytest.raises(StoreError, match=row.id):
        await create(store, new_row(store, id=row.id))
    assert await replayed(store, row) == numbered(1, 1)


async def test_lines_are_kept_byte_for_byte(store: StreamStore) -> None:
    lines = (b"", b'{"a":"\xc3\xa9"}', b"\x00\xff\r", b"", b"x" * 3000)
    row = new_row(store, last=len(lines))
    await settled(lambda done: store.log.create(row, Chunk(1, lines), done))
    assert tuple(await replayed(store, row)) == lines


@pytest.mark.parametrize("lines", [(b"a\nb",), (b"a", b"b\n"), (b"\n", b"")])
async def test_a_line_break_in_an_event_is_refused_and_nothing_kept(store: StreamStore, lines: tuple[bytes]) -> None:
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
async def test_another_epoch_is_fenced(store: StreamStore, epoch: int) -> None:
    row = await create(store, new_row(store))
    with pytest.raises(Fenced, match=f"epoch {epoch}"):
        await settled(lambda done: store.log.append(row.id, epoch, events(2, 1), Change(5.0, status="failed"), done))
    assert await found(store, row) == row


@pytest.mark.parametrize("first", [0, 1, 2, 4, 100])
async def test_a_hole_or_a_repetition_is_fenced(store: StreamStore, first: int) -> None:
    row = await create(store, new_row(store), 2)
    with pytest.raises(Fenced, match=f"event {first} does not follow 2"):
        await append(store, row, first, message="no")
    assert await found(store, row) == row
    assert await replayed(store, row) == numbered(1, 2)


async def test_what_cannot_be_stored_does_not_harm_its_neighbours(store: StreamStore) -> None:
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


async def test_a_page_begins_behind_the_cursor_and_holds_so_many_at_most(store: StreamStore) -> None:
    row = await create(store, new_row(store), 5)
    await append(store, row, 6, 5)
    asked = ((0, 3, 1, 3), (4, 3, 5, 7), (9, 9, 10, 10), (2, 8, 3, 10), (-5, 2, 1, 2), (0, 0, 1, 1))
    for after, most, first, last in asked:
        page = await fetch(store, row, after, most)
        assert (page.first, list(page.lines)) == (first, numbered(first, last))
        assert page.row == await found(store, row)


@pytest.mark.parametrize("after", [3, 4, 1000])
async def test_behind_the_end_there_is_an_empty_page(store: StreamStore, after: int) -> None:
    row = await create(store, new_row(store), 3)
    page = await fetch(store, row, after)
    assert (page.lines, page.first, page.row.last) == ((), 4, 3)


async def test_a_page_is_bounded_in_bytes_but_never_empty_for_that(large: StreamStore) -> None:
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
async def test_pages_together_are_the_stream(large: StreamStore, most: int) -> None:
    row = await create(large, new_row(large))
    first = 2
    for count in (1, 30, 2, 1, 9):
        await append(large, row, first, count)
        first += count
    assert await replayed(large, row, most) == numbered(1, 44)


# -- limits


@pytest.mark.parametrize("each", [1, 4])
async def test_the_oldest_events_are_let_go_when_there_are_too_many(store: StreamStore, each: int) -> None:
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

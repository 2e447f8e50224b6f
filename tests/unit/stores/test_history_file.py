"""The file of past calls: shared, bounded, pruned; damaged, full, read-only, killed hubs: it says what is missing."""

import sqlite3
import stat
from pathlib import Path
from random import Random

import msgspec
import pytest

from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.errors import RpcError, StoreError
from mcp_hub.events import Failed
from mcp_hub.files import HISTORY_FILE
from mcp_hub.stores.history.base import Batch, HistoryLimits, HistoryStore, LostCalls, batch_of, encode
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.history.reading import CallFilter, by_id, newest, within
from mcp_hub.types import CallId
from tests.unit.calls.past import arguments_in, history_file, keep, kept, new_journal, past_call
from tests.unit.stores.broken_files import rows_of

pytestmark = pytest.mark.anyio


async def filled(folder: Path, count: int = 10, hub: str = "in_a") -> HistoryFile:
    """An open file with so many calls."""
    store = history_file(folder, hub)
    await keep(new_journal(store, hub=hub), *(past_call(arguments={"n": n}) for n in range(count)))
    return store


def beside(folder: Path) -> list[Path]:
    """The file and all others whose names begin as its does."""
    return sorted(folder.glob(f"{HISTORY_FILE}*"))


async def empty_journal(store: HistoryFile) -> None:
    if store._worker is not None:
        await store._worker.ask(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())


async def numbers_in(store: HistoryStore) -> list[int]:
    return [int(text[5:-1]) for text in await arguments_in(store)]


async def test_calls_are_there_after_the_hub_has_ended(tmp_path: Path) -> None:
    await (await filled(tmp_path)).close()
    assert await numbers_in(later := history_file(tmp_path, "in_b")) == list(range(10))
    assert await later.losses() == []
    await later.close()
    assert stat.S_IMODE((tmp_path / HISTORY_FILE).stat().st_mode) == 0o600


async def test_two_hubs_share_a_file_and_calls_are_in_the_order_of_their_endings(tmp_path: Path) -> None:
    journals = {hub: new_journal(history_file(tmp_path, hub), hub=hub) for hub in ("in_a", "in_b")}
    order = [Random(7).choice(("in_a", "in_b")) for _ in range(60)]
    for n, hub in enumerate(order):
        await keep(journals[hub], past_call(arguments={"n": n}))
    for journal in journals.values():
        assert await numbers_in(journal.store) == list(range(60))
        assert [call.hub for call in await kept(journal.store)] == order
        await journal.store.close()


async def test_killed_hub_is_named_with_the_time_of_its_last_batch(tmp_path: Path) -> None:
    await filled(tmp_path)  # is not closed: its run is still there
    alive = history_file(tmp_path, "in_b", lambda hub: False)
    assert await alive.losses() == []
    store = history_file(tmp_path, "in_b", lambda hub: hub == "in_a")
    [loss] = await store.losses()
    assert (loss.kind, loss.hub) == ("killed", "in_a") and loss.at >= (await kept(store))[-1].ended - 1
    await keep(new_journal(store, hub="in_b"), past_call(arguments={"n": 10}))
    assert [loss.kind for loss in await store.losses()] == ["killed"], "said once, and kept"
    assert await numbers_in(store) == list(range(11))


async def test_full_disk_stops_no_call_and_is_told(tmp_path: Path) -> None:
    journal = new_journal(store := history_file(tmp_path))
    await keep(journal, *(past_call(arguments={"n": n}) for n in range(10)))
    assert store._worker is not None
    await store._worker.ask(lambda db: db.execute("PRAGMA max_page_count = 1").fetchall())
    await keep(journal, *(past_call(arguments={"n": n, "text": "x" * 3000}) for n in range(40)))
    assert "full" in journal.failing and await numbers_in(store) == list(range(10)), "what is there can be read"
    await store._worker.ask(lambda db: db.execute("PRAGMA max_page_count = 100000").fetchall())
    journal._writer._retry = 0
    await keep(journal)
    assert journal.failing == "" and len(await kept(store)) == 50 and await store.losses() == []


async def test_folder_that_cannot_be_written_stops_no_call_and_is_told(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")  # in place of the folder
    journal = new_journal(store := history_file(blocked))
    await keep(journal, past_call(arguments={"n": 0}))
    assert journal.failing and await kept(store) == []
    blocked.unlink()
    await journal.close(5)
    assert await numbers_in(history_file(blocked, "in_b")) == [0]


async def test_file_is_read_where_nothing_can_be_written(tmp_path: Path) -> None:
    await (await filled(tmp_path)).close()
    (tmp_path / f"{HISTORY_FILE}-shm").symlink_to(tmp_path / "none" / "shm")
    store = history_file(tmp_path, "in_b")
    assert await numbers_in(store) == list(range(10))
    with pytest.raises(StoreError):
        await store.clear(LostCalls("cleared", 1.0))


@pytest.mark.parametrize("table", ["batches", "heads", "texts", "runs", "losses"])
async def test_file_without_a_table_is_set_aside_and_the_history_says_so(tmp_path: Path, table: str) -> None:
    await (await filled(tmp_path)).close()
    rows_of(tmp_path / HISTORY_FILE, f"DROP TABLE {table}")
    later = await filled(tmp_path, 3, "in_b")
    assert await numbers_in(later) == [0, 1, 2]
    (loss,) = await later.losses()
    assert loss.kind == "damaged" and f"{HISTORY_FILE}.corrupt-" in loss.reason
    await later.close()


@pytest.mark.parametrize("is_open", [False, True], ids=["at the start", "while it is open"])
async def test_damaged_file_is_set_aside_and_the_history_says_so(tmp_path: Path, is_open: bool) -> None:
    store = await filled(tmp_path)
    if not is_open:
        await store.close()
        (tmp_path / HISTORY_FILE).write_bytes(b"no database" * 1000)
        store = history_file(tmp_path, "in_b")
    else:
        await empty_journal(store)
        with (tmp_path / HISTORY_FILE).open("r+b") as file:
            file.write(b"\xff" * (tmp_path / HISTORY_FILE).stat().st_size)
        with pytest.raises(sqlite3.Error):
            rows_of(tmp_path / HISTORY_FILE, "PRAGMA user_version = 1")  # which makes the hub look again
        await store._stop()
    journal = new_journal(store, hub="in_b")
    await keep(journal, past_call(arguments={"n": 99}))
    assert journal.failing == "" and await numbers_in(store) == [99]
    [loss] = await store.losses()
    assert loss.kind == "damaged" and f"{HISTORY_FILE}.corrupt-" in loss.reason
    assert [path for path in beside(tmp_path) if "corrupt" in path.name]
    await store.clear(LostCalls("cleared", 1.0))
    assert not [path for path in beside(tmp_path) if "corrupt" in path.name]
    await store.close()


@pytest.mark.parametrize("hub", ["", "in_b"], ids=["a command", "a hub whose batch is open"])
async def test_damage_that_a_look_finds_is_told_from_then_on(tmp_path: Path, hub: str) -> None:
    store = history_file(tmp_path, hub)
    await keep(journal := new_journal(store, hub=hub), past_call(arguments={"n": 1}))
    await store.close()
    (tmp_path / HISTORY_FILE).write_bytes(b"no database" * 2000)
    assert await numbers_in(store) == []
    if hub:
        await keep(journal, past_call(arguments={"n": 2}))
    assert [loss.kind for loss in await store.losses()] == ["damaged"]
    await store.close()
    assert [loss.kind for loss in await history_file(tmp_path, "in_c").losses()] == ["damaged"]


async def test_damaged_record_is_left_out_and_the_history_says_so(tmp_path: Path) -> None:
    store = history_file(tmp_path)
    journal = new_journal(store, limits=HistoryLimits(calls=160))  # ten calls in a batch
    for start in (0, 10, 20):
        await keep(journal, *(past_call(arguments={"n": n}) for n in range(start, start + 10)))
    await store.close()
    rows_of(
        tmp_path / HISTORY_FILE,
        "UPDATE heads SET head = substr(head, 1, 200) || zeroblob(40) WHERE number = 2",
        "UPDATE texts SET body = 'no blob' WHERE place >= 3 << 16",
    )
    store = history_file(tmp_path, "in_b")
    assert await arguments_in(store) == [*(f'{{"n":{n}}}' for n in range(10)), *[""] * 10]
    assert [(loss.kind, loss.count) for loss in await store.losses()] == [("damaged", 10)]
    await store.clear(LostCalls("cleared", 5.0))
    assert [loss.kind for loss in await store.losses()] == ["cleared"]


@pytest.mark.parametrize("zeros", [1, 2, 40])
async def test_texts_with_damage_are_never_those_of_another_call(tmp_path: Path, zeros: int) -> None:
    journal = new_journal(store := history_file(tmp_path))
    for start in (0, 4, 8):
        await keep(journal, *(past_call(arguments={"n": n}) for n in range(start, start + 4)))
    damaged = f"substr(body, 1, 3) || zeroblob({zeros}) || substr(body, {4 + zeros})"
    rows_of(tmp_path / HISTORY_FILE, f"UPDATE texts SET body = CAST({damaged} AS BLOB) WHERE place & 65535 = 4")
    assert await arguments_in(store) == [
        *(f'{{"n":{n}}}' for n in range(4)),
        *[""] * 4,
        *(f'{{"n":{n}}}' for n in range(8, 12)),
    ]
    await store.close()


ODD_BATCHES = (
    "'in_x', 0, 'abc', 1.0, 1", "'in_x', -1, 1.0, 2.0, 1", "'in_x', 1, -1e300, 1e300, 1", "x'00', 3, 1.0, 2.0, 1",
    "'in_x', 2, 1.0, 2e9, 9223372036854775807", "'in_x', 4, 1.0, 9e999, 1", "'in_x', 5, 1.0, 2e9, -1",
)  # fmt: skip
ODD_LOSSES = ("'killed', -1e300, 'x', 1, ''", "'dropped', 'abc', 'x', 1, ''", "'dropped', 1.0, 'x', -1, ''")


async def test_rows_that_no_hub_writes_are_left_out(tmp_path: Path) -> None:
    store = await filled(tmp_path)
    await store.close()
    for row in ODD_BATCHES:
        rows_of(tmp_path / HISTORY_FILE, f"INSERT INTO batches (hub, base, first, last, calls) VALUES ({row})")
    for row in ODD_LOSSES:
        rows_of(tmp_path / HISTORY_FILE, f"INSERT INTO losses (kind, at, hub, count, reason) VALUES ({row})")
    store = history_file(tmp_path, "in_b")
    assert await numbers_in(store) == [*range(10)]
    assert await within(store, HistoryLimits(calls=10), 1e9) == 1e9 - HistoryLimits().keep, "they count as no calls"
    assert await store.losses() == []
    await store.close()


ODDER_BATCHES = [
    *(f"{number}, {row}" for number, row in enumerate(ODD_BATCHES, 1000)),
    "2000, 'in_y', 1, 1.0, 2e9, -100000000", "2001, 'in_y', 2, 1.0, 2e9, 1.5", "2002, 'in_y', 3, 1.0, 2e9, 'abc'",
    "2003, 'in_y', 4, 1.0, 'abc', 10", "2004, 'in_y', 5, 1.0, 2e9, 65537", "2005, 'in_y', 'abc', 1.0, 2e9, 1",
    "9223372036854775807, 'in_y', 6, 1.0, 2e9, 1", "-5, 'in_y', 7, 1.0, 2e9, 100", "2006, 'in_y', 8, x'00', 2e9, 1",
    "2007, 'in_y', 9, 1.0, 2e9, 9223372036854775807", "2008, 'in_y', 10, 1.0, 2e9, 9223372036854775807",
]  # fmt: skip


async def filled_with_odd_rows(folder: Path) -> None:
    await (await filled(folder)).close()
    for row in ODDER_BATCHES:
        rows_of(folder / HISTORY_FILE, f"INSERT INTO batches (number, hub, base, first, last, calls) VALUES ({row})")


async def test_bounds_hold_whatever_rows_say(tmp_path: Path) -> None:
    await filled_with_odd_rows(tmp_path)
    journal = new_journal(store := history_file(tmp_path, "in_b"), limits=HistoryLimits(calls=64), hub="in_b")
    assert await numbers_in(store) == [*range(10)]
    for start in range(10, 410, 8):
        await keep(journal, *(past_call(arguments={"n": n}) for n in range(start, start + 8)))
    shown = await numbers_in(store)
    assert journal.failing == "" and 64 <= len(shown) <= 64 + 16 and shown == [*range(410 - len(shown), 410)]
    assert await store.clear(LostCalls("cleared", 5.0)) == len(shown)
    await store.close()


async def test_rows_that_no_hub_writes_are_not_counted_as_removed(tmp_path: Path) -> None:
    await filled_with_odd_rows(tmp_path)
    store = history_file(tmp_path, "in_b")
    assert await store.clear(LostCalls("cleared", 5.0)) == 10 and await store.index() == []
    await store.close()


async def test_file_of_a_newer_hub_is_left_alone(tmp_path: Path) -> None:
    await (await filled(tmp_path)).close()
    rows_of(tmp_path / HISTORY_FILE, "PRAGMA user_version = 99")
    journal = new_journal(history_file(tmp_path, "in_b"))
    await keep(journal, past_call())
    assert "newer hub" in journal.failing and not [path for path in beside(tmp_path) if "corrupt" in path.name]


async def test_file_that_was_removed_is_begun_anew(tmp_path: Path) -> None:
    journal = new_journal(history_file(tmp_path))
    await keep(journal, past_call(arguments={"n": 0}))
    for path in beside(tmp_path):
        path.unlink()
    await keep(journal, past_call(arguments={"n": 1}))
    assert journal.failing == "" and await numbers_in(history_file(tmp_path, "in_b")) == [1]


async def test_clear_leaves_nothing_in_the_file_and_the_next_calls_are_kept(tmp_path: Path) -> None:
    store = history_file(tmp_path)
    journal: CallJournal = new_journal(store)
    await keep(journal, *(past_call(arguments={"mark": "needle", "n": n}) for n in range(20)))
    assert await history_file(tmp_path, "in_b").clear(LostCalls("cleared", 5.0)) == 20
    await keep(journal, past_call(arguments={"n": 1}))  # whose batch was open
    assert await numbers_in(store) == [1]
    await store.close()
    assert b"needle" not in b"".join(path.read_bytes() for path in beside(tmp_path))
    assert [loss.kind for loss in await history_file(tmp_path, "in_c").losses()] == ["cleared"]


BOUNDS = [
    (HistoryLimits(calls=100), 100),
    (HistoryLimits(calls=5), 5),
    (HistoryLimits(keep=-1e9), 0),
    (HistoryLimits(keep=1e9), 1000),
]


@pytest.mark.parametrize(("limits", "expected"), BOUNDS, ids=["100 calls", "5 calls", "too old", "all"])
async def test_bounds_hold_for_what_is_shown_and_nearly_for_the_file(
    tmp_path: Path, limits: HistoryLimits, expected: int
) -> None:
    store = history_file(tmp_path)
    journal = new_journal(store, limits=limits)
    for start in range(0, 1000, 50):
        await keep(journal, *(past_call(arguments={"n": n}) for n in range(start, start + 50)))
    shown = await kept(store)
    oldest = await within(store, limits, shown[-1].ended if expected else 1e10)
    assert len(await kept(store, since=oldest)) == expected
    assert len(await kept(store)) <= expected + 306, "and at most a batch beyond"


async def test_size_is_bounded(tmp_path: Path) -> None:
    limits = HistoryLimits(size=1 << 20)
    journal = new_journal(store := history_file(tmp_path), limits=limits)
    for _ in range(20):
        await keep(journal, *(past_call(arguments={"text": "x" * 3000}) for _ in range(50)))
    await empty_journal(store)
    assert sum(path.stat().st_size for path in beside(tmp_path)) < 2 << 20 and await kept(store)


async def test_full_file_writes_each_byte_once(tmp_path: Path) -> None:
    journal = new_journal(store := history_file(tmp_path), limits=HistoryLimits(size=1 << 20, calls=800))
    for count in [50] * 15:
        await empty_journal(store)
        await keep(journal, *(past_call(arguments={"text": "x" * 3000}) for _ in range(count)))
    written = (tmp_path / f"{HISTORY_FILE}-wal").stat().st_size
    assert len(await kept(store)) < 400, "older ones were removed"
    assert 150_000 < written < 300_000, "the pages of removed texts are written together with the new ones"


LARGE = {"text": ["x" * 3000] * 20}


async def test_calls_larger_than_the_bound_stay_until_newer_ones_come(tmp_path: Path) -> None:
    journal = new_journal(store := history_file(tmp_path), limits=(limits := HistoryLimits(size=1 << 20)))
    for n in range(3):
        await keep(journal, *(past_call(str(n), LARGE) for _ in range(30)))
        await store.write(Batch("in_a", 0), 0, b"", (), limits)
        assert [call.group.tool for call in await kept(store)] == [str(n)] * 30
    await keep(journal, past_call("small"))
    assert [call.group.tool for call in await kept(store)] == ["small"]


async def test_calls_leave_a_full_file_a_few_at_a_time(tmp_path: Path) -> None:
    journal, counts = new_journal(store := history_file(tmp_path), limits=HistoryLimits(size=4 << 20)), []
    for _ in range(150):
        await keep(journal, past_call(arguments=LARGE))
        counts.append(len(await kept(store)))
    assert min(counts[70:]) >= 50 and max(counts) < 80


async def test_filters_pages_and_ids_agree_with_a_look_at_each_call(tmp_path: Path) -> None:
    random = Random(3)
    journals = {hub: new_journal(history_file(tmp_path, hub), hub=hub) for hub in ("in_a", "in_b")}
    for _ in range(30):
        records = [past_call(random.choice("xyz"), server=random.choice("ab")) for _ in range(random.randint(1, 40))]
        await keep(journals[random.choice(("in_a", "in_b"))], *records)
    store = history_file(tmp_path, "in_c")
    every = await kept(store)
    assert [call.order for call in every] == sorted(call.order for call in every)
    wanted = [call.id for call in every if (call.group.server, call.group.tool) == ("a", "x")][::-1]
    found: list[str] = []
    before = None
    while calls := await newest(store, CallFilter(lambda g: (g.server, g.tool) == ("a", "x"), before=before), 7):
        found += [call.id for call in calls]
        before = calls[-1].order
    assert found == wanted
    middle = every[len(every) // 2]
    assert [call.id for call in await kept(store, since=middle.ended)][:1] == [middle.id]
    alone = await by_id(store, middle.id, CallFilter(lambda group: True))
    assert alone == middle and await by_id(store, "st_none", CallFilter(lambda group: True)) is None
    assert await by_id(store, middle.id, CallFilter(lambda group: False)) is None


@pytest.mark.parametrize("has_flags", [True, False], ids=["with flags", "without"])
async def test_failures_are_found_by_flags_and_without_them(
    *, has_flags: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids may have any length, and a batch may have fewer failures than tools."""
    if not has_flags:
        monkeypatch.setattr("mcp_hub.calls.history.batches._NO_FAILURE", (0,) * 5)
    random = Random(4)
    journal = new_journal(store := history_file(None))
    for share in (0.0, 0.01, 0.5, 1.0):
        records = [
            past_call(random.choice("abcdefgh"), ending=Failed(RpcError("x")) if random.random() < share else None)
            for _ in range(200)
        ]
        for number, record in enumerate(records if share == 0.5 else []):
            msgspec.structs.force_setattr(record.call, "id", CallId(f"st_{number}"))
        await keep(journal, *records)
    every = await kept(store)
    wanted = {call.id: call.group.tool for call in every if call.group.status == "failed"}
    found = await kept(store, fits=lambda group: group.status != "completed", failed=True)
    assert {call.id: call.group.tool for call in found} == wanted and len(found) > 250
    of_one = await kept(store, fits=lambda group: group.status == "failed" and group.tool == "c", failed=True)
    assert [call.id for call in of_one] == [id_ for id_, tool in wanted.items() if tool == "c"]


@pytest.mark.parametrize("column", ["marks", "ended", "took", "waited", "sizes"])
async def test_column_of_another_length_is_damaged_also_by_some_bytes(column: str) -> None:
    journal = new_journal(store := history_file(None))
    await keep(journal, *(past_call(tool) for tool in "aab"))
    [batch] = await store.scan(await store.index(), lambda batch: batch)
    assert batch_of(encode(batch)) == batch
    for longer in (b"\0", b"\0" * 5):
        assert batch_of(encode(msgspec.structs.replace(batch, **{column: getattr(batch, column) + longer}))) is None

"""Running calls in the file of past calls: shown once their hub is gone, there once, bounded, by the rules of now."""

from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from mcp_hub.app.dashboard.watch import _EarlierCalls
from mcp_hub.call import CallingClient
from mcp_hub.calls.history import journal as journals
from mcp_hub.calls.history.batches import JournalRules, ToolKeeping
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import wall_time
from mcp_hub.events import Completed
from mcp_hub.files import HISTORY_FILE
from mcp_hub.protocol.rest.history import cursor, place_of
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.base import HIGHEST_NUMBER, RUNNING, HistoryLimits, Keeping, LostCalls
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.history.reading import CallFilter, PastFigures, by_id, scanned
from tests.unit.calls.past import StreamOfCall, arguments_in, history_file, keep, kept, new_journal, past_call
from tests.unit.stores.broken_files import rows_of
from tests.unit.stores.test_history_file import beside, filled, numbers_in

pytestmark = pytest.mark.anyio


async def test_hub_that_ends_while_the_disk_is_full_is_one_whose_calls_are_missing(tmp_path: Path) -> None:
    journal = new_journal(store := history_file(tmp_path))
    await keep(journal, past_call())
    assert store._worker is not None
    await store._worker.ask(lambda db: db.execute("PRAGMA max_page_count = 1").fetchone() is None)
    await keep(journal, *(past_call(arguments={"text": "x" * 3000}) for _ in range(90)))
    await journal.close(5)
    later = history_file(tmp_path, "in_b", lambda hub: hub == "in_a")
    assert [loss.kind for loss in await later.losses()] == ["killed"]


async def begin(journal: CallJournal, *records: CallRecord) -> None:
    """These calls run for a while."""
    for record in records:
        journal.lasts(record)
    await journal.flush()


async def finish(journal: CallJournal, record: CallRecord) -> None:
    record.log.append(Completed(b'{"content":[]}'))
    await keep(journal, record)


def running_call(n: int) -> CallRecord:
    return past_call(arguments={"n": n}, client=CallingClient("editor"), is_running=True)


async def test_call_of_a_killed_hub_is_there_as_failed_with_its_arguments(tmp_path: Path) -> None:
    alive, gone = history_file(tmp_path, "in_b"), history_file(tmp_path, "in_b", lambda hub: True)
    journal = new_journal(store := history_file(tmp_path))
    await begin(journal, *map(running_call, range(3)), running_call(3))
    assert await kept(store) == await kept(alive) == [], "it runs"
    assert await numbers_in(gone) == [0, 1, 2, 3]
    call = (await kept(gone))[0]
    assert (call.group.status, call.group.client, call.code) == ("failed", "editor", "hub_restarted")
    assert call.group.definition == "d1" and "outcome of the call is unknown" in call.message
    assert [loss.kind for loss in await gone.losses()] == ["killed"], "although none of its calls had ended"
    assert call.has_no_end and place_of(cursor(*call.order)) == call.order, "a page may end with it"
    figures = PastFigures(0.0, 1e10, 1)
    async for _ in scanned(gone, every := CallFilter(lambda group: True), partial(figures.add, chosen=every)):
        pass
    [row] = figures.rows()[0]
    assert (row.calls, row.failed, row.p50, row.p95, row.max) == (4, 4, 0, 0, 0), "nobody knows the durations"
    assert await by_id(gone, call.id, CallFilter(lambda group: True)) == call
    assert await gone.clear(LostCalls("cleared", 1.0)) == 4 and await kept(gone) == []


async def test_call_that_has_ended_is_there_once(tmp_path: Path) -> None:
    """Whichever hub ended it."""
    gone = history_file(tmp_path, "in_c", lambda hub: hub in ("in_a", "in_b"))
    journals = [new_journal(history_file(tmp_path, hub), hub=hub) for hub in ("in_a", "in_b")]
    records = [running_call(n) for n in range(3)]
    await begin(journals[0], *records)
    await finish(journals[0], records[0])
    await begin(journals[1], records[1])
    assert await numbers_in(gone) == [2, 0, 1], "the other hub has taken it up"
    await finish(journals[1], records[1])
    await finish(journals[1], records[2])  # so quickly that it did not last
    assert sorted(await numbers_in(gone)) == [0, 1, 2]
    assert {call.group.status for call in await kept(gone)} == {"completed"}


async def test_running_call_is_written_later_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = history_file(tmp_path, "in_b", lambda hub: True)
    journal = new_journal(store := history_file(tmp_path))
    await begin(journal, first := running_call(1))
    with monkeypatch.context() as context:
        context.setattr(HistoryFile, "_write", full)
        await begin(journal, over := running_call(2), running_call(3))
        await finish(journal, over)
        await finish(journal, first)
        assert journal.failing == "the disk is full"
    journal._writer._retry = 0
    await keep(journal)
    assert journal.failing == "" and sorted(await numbers_in(gone)) == [1, 2, 3]
    assert sorted(await numbers_in(store)) == [1, 2]


async def test_ended_call_of_another_hub_is_there_once_though_it_was_written_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = history_file(tmp_path, "in_c", lambda hub: True)
    await begin(new_journal(history_file(tmp_path)), record := running_call(1))
    journal = new_journal(history_file(tmp_path, "in_b"), hub="in_b")
    with monkeypatch.context() as context:
        context.setattr(HistoryFile, "_write", full)
        await begin(journal, record)
        await finish(journal, record)
    journal._writer._retry = 0
    await keep(journal)
    assert [call.group.status for call in await kept(gone)] == ["completed"]


async def test_number_of_ended_calls_that_wait_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = history_file(tmp_path, "in_b", lambda hub: True)
    journal = new_journal(history_file(tmp_path))
    await begin(journal, first := running_call(0))
    with monkeypatch.context() as context:
        context.setattr(HistoryFile, "_write", full)
        context.setattr(journals, "MOST", 20)
        for n in range(1, 60):
            await finish(journal, running_call(n))
        await finish(journal, first)
        assert len(journal._writer._running._ended) <= 21
    journal._writer._retry = 0
    await keep(journal)
    assert {call.group.status for call in await kept(gone)} == {"completed"} and 0 in await numbers_in(gone)


CHANGES: list[tuple[Keeping, Keeping, bool]] = [
    ("full", "none", True),
    ("full", "hash", True),
    ("none", "full", True),
    ("full", "full", False),
]


@pytest.mark.parametrize(("before", "after", "is_on"), CHANGES)
async def test_running_call_is_kept_by_the_rules_of_now(
    tmp_path: Path, before: Keeping, after: Keeping, is_on: bool
) -> None:
    """Of its arguments, and whether calls of its tool are kept."""
    gone = history_file(tmp_path, "in_b", lambda hub: True)
    journal = new_journal(history_file(tmp_path), before)
    await begin(journal, running_call(1))
    journal.lasts(running_call(1))  # in the same half second as the change
    rules = JournalRules(after, journal.rules().limits, lambda server, tool: ToolKeeping(is_kept=is_on))
    journal.rules = lambda: rules
    journal.use()
    await journal.flush()
    calls, arguments = await kept(gone), await arguments_in(gone)
    assert [call.group.keeping for call in calls] == [after] * 2 * is_on
    assert [len(text) for text in arguments] == [{"none": 0, "hash": 32, "full": 7}[after]] * 2 * is_on


async def test_running_call_that_is_not_kept_any_more_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    journal = new_journal(store := history_file(tmp_path))
    await keep(journal, past_call())
    assert store._worker is not None  # the default of a library of SQLite differs
    await store._worker.ask(lambda db: db.execute("PRAGMA secure_delete = OFF").fetchall())
    texts = [{"mark": f"needle {number}", "text": "x" * 3000} for number in range(20)]
    await begin(journal, *(past_call(arguments=text, is_running=True) for text in texts))
    rules = JournalRules("full", journal.rules().limits, lambda server, tool: ToolKeeping(is_kept=False))
    journal.rules = lambda: rules
    journal.use()
    await journal.flush()
    await store.close()
    assert b"needle" not in b"".join(path.read_bytes() for path in beside(tmp_path))


async def test_page_names_the_client_of_a_call_as_soon_as_its_hub_is_known_to_be_gone(tmp_path: Path) -> None:
    """Another replica is known to be gone after two leases, and has let go of its calls before."""
    is_gone: list[bool] = []
    await begin(new_journal(history_file(tmp_path)), record := running_call(1))
    moment = wall_time() - 60
    row = msgspec.structs.replace(StreamOfCall.row, id=record.call.id, status="completed", updated=moment)
    earlier = _EarlierCalls(cast("Any", None), history_file(tmp_path, "in_b", lambda hub: bool(is_gone)))
    before = await earlier.summaries([row])
    is_gone.append(True)
    assert [call.client for call in [*before, *await earlier.summaries([row])]] == ["", "editor"]


async def test_number_of_calls_is_bounded_for_ended_ones_alone(tmp_path: Path) -> None:
    """However many run, and however long."""
    journal = new_journal(store := history_file(tmp_path), limits=HistoryLimits(calls=32))
    await begin(journal, *map(running_call, range(1000, 1100)))
    for start in range(0, 200, 2):
        await keep(journal, *(past_call(arguments={"n": n}) for n in range(start, start + 2)))
    assert len(await numbers_in(store)) >= 32
    gone = history_file(tmp_path, "in_b", lambda hub: True)
    assert {*range(1000, 1100)} < {*await numbers_in(gone)}
    await keep(new_journal(gone, limits=HistoryLimits(calls=32), hub="in_b"), past_call(arguments={"n": 0}))
    await keep(new_journal(gone, limits=HistoryLimits(calls=32), hub="in_b"), past_call(arguments={"n": 0}))
    assert len(await kept(gone)) <= 34, "now they have ended"


async def test_running_calls_leave_the_file_when_they_are_too_old_or_too_large(tmp_path: Path) -> None:
    gone = history_file(tmp_path, "in_b", lambda hub: True)
    for limits in (HistoryLimits(keep=-1e9), HistoryLimits(size=20_000)):
        journal = new_journal(store := history_file(tmp_path), limits=limits)
        await begin(journal, *map(running_call, range(100)))
        await keep(journal, past_call(), past_call())
        assert len(await kept(gone)) < 60
        await store.close()


def full(*arguments: object, **named: object) -> None:
    raise StoreFault("unusable", "the disk is full")


async def test_running_calls_are_forgotten_where_nothing_is_kept_any_more(tmp_path: Path) -> None:
    gone = history_file(tmp_path, "in_b", lambda hub: True)
    journal = new_journal(history_file(tmp_path))
    await begin(journal, running_call(1))
    assert await numbers_in(gone) == [1]
    rules = msgspec.structs.replace(journal.rules(), keeping="off")
    journal.rules = lambda: rules
    await journal.flush()
    assert await kept(gone) == [] and not journal._running


_CALL: Final = "1.7e9, 1.7e9, 1)"
_ROW: Final = "INSERT INTO batches (number, hub, base, first, last, calls) VALUES"
IN_THE_WAY = [
    "INSERT INTO texts (place, body) SELECT (max(number) + 1) << 16, x'00' FROM batches",
    "INSERT INTO heads (number, head) VALUES (2, x'00'), (3, x'01')",
    f"{_ROW} ({HIGHEST_NUMBER}, 'in_y', 1, {_CALL}",
    f"{_ROW} ({HIGHEST_NUMBER - 1}, 'in_y', 1, {_CALL}",
    f"{_ROW} ({HIGHEST_NUMBER + 5}, 'in_b', 0, {_CALL}",
    f"{_ROW} ({(1 << 63) - 1}, 'in_b', 0, {_CALL}",
    f"{_ROW} (-5, 'in_b', 0, {_CALL}",
    f"{_ROW} (1000, '../../etc', {RUNNING}, {_CALL}",
    f"{_ROW} (1000, 'in_q', {(1 << 63) - 1}, {_CALL}",
]


@pytest.mark.parametrize("row", IN_THE_WAY)
async def test_row_that_no_hub_writes_keeps_no_call_out(tmp_path: Path, row: str) -> None:
    await (await filled(tmp_path, 3)).close()
    rows_of(tmp_path / HISTORY_FILE, row)
    journal = new_journal(history_file(tmp_path, "in_b"), hub="in_b")
    for n in range(3):
        await begin(journal, running_call(100 + n))
        await keep(journal, past_call(arguments={"n": 10 + n}))
    gone = history_file(tmp_path, "in_c", lambda hub: True)
    assert {*await numbers_in(gone)} == {0, 1, 2, 10, 11, 12, 100, 101, 102} and journal.failing == ""
    assert all(place_of(cursor(*call.order)) == call.order for call in await kept(gone))

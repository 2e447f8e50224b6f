"""A file of streams that somebody deletes or replaces while hubs have it open, or its log, or the index of that."""

import subprocess
import sys
from pathlib import Path

import anyio
import pytest
import structlog
from anyio.streams.buffered import BufferedByteReceiveStream

from mcp_hub.stores.recovery.failsafe import FailsafeStore
from mcp_hub.stores.sqlite import quarantine
from mcp_hub.stores.sqlite.store import FILE
from tests.unit.stores.broken_files import HandClock, in_use, said
from tests.unit.stores.event_stores import append, create, found, new_failsafe, new_row, numbered, opened, replayed

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

READ = """\
import sys
import anyio
from pathlib import Path
from tests.unit.stores.event_stores import new_failsafe, opened
from mcp_hub.calls.reading.stored import fetched

async def main():
    async with opened(store := new_failsafe(Path(sys.argv[1]))):
        print(store.log.is_durable, *[len(await fetched(store.log, id_, 0)) for id_ in sys.argv[2:]])

anyio.run(main)
"""


HUB = """\
import sys
import anyio
from pathlib import Path
from tests.unit.stores.event_stores import append, create, new_failsafe, new_row, opened

async def look(store):
    while True:
        await anyio.sleep(0.05)
        await store.inbox.has_news()

async def main():
    async with opened(store := new_failsafe(Path(sys.argv[1]))), anyio.create_task_group() as tasks:
        tasks.start_soon(look, store)
        row = await create(store, new_row(store), 1)
        print(row.id, flush=True)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            await append(store, row, int(line))
            print(int(store.log.survives(row.id)), flush=True)

anyio.run(main)
"""
"""A hub of another process, which writes when it is told to, and says whether the file has it."""


def elsewhere(folder: Path, *ids: str) -> str:
    """What another process reads: whether the file is usable there, and how many events of each stream."""
    done = subprocess.run([sys.executable, "-c", READ, str(folder), *ids], capture_output=True, text=True, timeout=60)
    return done.stdout.strip() or done.stderr[-300:]


def delete(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    (new := path.with_name("new")).touch()
    new.replace(path)


def copy(path: Path) -> None:
    (new := path.with_name("new")).write_bytes(path.read_bytes())
    new.replace(path)


async def noticed(store: FailsafeStore, clock: HandClock) -> None:
    clock.seconds += 1
    await store.inbox.has_news()
    await store.inbox.has_news()


@pytest.mark.parametrize("ends", [("-wal",), ("-shm",), ("-wal", "-shm")])
@pytest.mark.parametrize("move", [delete, empty, copy])
async def test_log_that_was_moved_is_saved_and_others_read_what_was_committed(
    tmp_path: Path, ends: tuple[str, ...], move: object, clock: HandClock
) -> None:
    assert callable(move)
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path, clock)):
            ended = await create(store, new_row(store, status="completed"), 2)
            row = await create(store, new_row(store), 3)
            for end in ends:
                move(tmp_path / f"{FILE}{end}")
            await append(store, row, 4)  # before it is noticed
            await noticed(store, clock)
            assert store.log.is_durable
            await append(store, row, 5)
            assert elsewhere(tmp_path, row.id, ended.id) == "True 5 2"
            assert await replayed(store, row) == numbered(1, 5)
    assert said(logs)[0] == "store_failed"
    failed = next(entry for entry in logs if entry["event"] == "store_failed")
    assert failed["fault"] == "moved" and all(f"{FILE}{end}" in failed["reason"] for end in ends)
    assert said(logs, "warning") == ["store_log_rescued", "store_recovered"]


async def test_moved_log_is_noticed_by_a_write_which_loses_nothing(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store), 3)
        (tmp_path / f"{FILE}-wal").unlink()
        clock.seconds += 1
        await append(store, row, 4)
        assert [store.log.is_durable, store.log.survives(row.id)] == [False, False]
        assert await replayed(store, row) == numbered(1, 4), "from the old log and memory"
        await store.inbox.has_news()
        await append(store, row, 5)
        assert [store.log.is_durable, store.log.survives(row.id)] == [True, True]
        assert elsewhere(tmp_path, row.id) == "True 5"


async def test_idle_hub_saves_its_log_too(tmp_path: Path, clock: HandClock) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store, status="completed"), 3)
        (tmp_path / f"{FILE}-wal").unlink()
        for _ in range(2):
            clock.seconds += store.leases.interval
            assert await store.leases.orphans() == []
        assert elsewhere(tmp_path, row.id) == "True 3"


async def test_two_hubs_with_the_log_that_was_moved_save_it_once_and_share_the_file_again(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(one := new_failsafe(tmp_path, clock)), opened(two := new_failsafe(tmp_path, clock)):
        rows = [await create(one, new_row(one), 2), await create(two, new_row(two), 2)]
        for end in ("-wal", "-shm"):
            (tmp_path / f"{FILE}{end}").unlink()
        with structlog.testing.capture_logs() as logs:
            await noticed(one, clock)
            assert [one.log.is_durable, two.log.is_durable] == [False, True], "the other one writes to it"
            for _ in range(3):
                await noticed(two, clock)
                await noticed(one, clock)
        assert [one.log.is_durable, two.log.is_durable] == [True, True]
        assert [entry["event"] for entry in logs].count("store_log_rescued") == 1
        await append(one, rows[0], 3)
        await append(two, rows[1], 3)
        for store in (one, two):
            assert [await replayed(store, row) for row in rows] == [numbered(1, 3)] * 2


@pytest.mark.parametrize("ends", [("-wal",), ("-shm",), ("-wal", "-shm")])
async def test_hubs_of_two_processes_save_the_log_that_was_moved_under_both(
    tmp_path: Path, ends: tuple[str, ...]
) -> None:
    command = [sys.executable, "-c", HUB, str(tmp_path)]
    with anyio.fail_after(60):
        async with opened(store := new_failsafe(tmp_path)), await anyio.open_process(command, stderr=None) as other:
            assert other.stdin is not None and other.stdout is not None
            answers = BufferedByteReceiveStream(other.stdout)
            id_ = (await answers.receive_until(b"\n", 100)).decode()
            row = await create(store, new_row(store), 1)
            for end in ends:
                (tmp_path / f"{FILE}{end}").unlink()
            states: list[tuple[bool, bool]] = []
            while states[-2:] != [(True, True)] * 2 or len(states) < 8:
                await anyio.sleep(0.1)
                await other.stdin.send(b"%d\n" % (len(states) + 2))
                await append(store, row, len(states) + 2)
                is_kept = await answers.receive_until(b"\n", 100) == b"1"
                states.append((store.log.survives(row.id), is_kept))
                await store.inbox.has_news()
            count = len(states) + 1
            assert await anyio.to_thread.run_sync(elsewhere, tmp_path, row.id, id_) == f"True {count} {count}"
            assert await replayed(store, row) == numbered(1, count)
            other.kill()


async def test_note_of_an_earlier_rescue_is_not_taken_for_one_of_this_log(tmp_path: Path, clock: HandClock) -> None:
    other = quarantine.Tenancy(tmp_path / FILE)
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store), 3)
        file = in_use(store)
        reading = file._transactions[1]
        other.note(f"{sorted(reading.opened.items())} 0")
        await file._links.reader.ask(reading.renew)
        assert other.begin(lambda: True)
        for end in ("-wal", "-shm"):
            (tmp_path / f"{FILE}{end}").unlink()
        for _ in range(2):
            await noticed(store, clock)
            assert [store.log.is_durable] == [False], "another hub uses the file"
        assert await replayed(store, row) == numbered(1, 3)
        other.end()
        await noticed(store, clock)
        assert [store.log.is_durable] == [True]
        assert elsewhere(tmp_path, row.id) == "True 3"


@pytest.mark.parametrize("move", [delete, empty])
async def test_streams_of_this_hub_are_copied_if_the_file_itself_was_moved(
    tmp_path: Path, move: object, clock: HandClock
) -> None:
    assert callable(move)
    with structlog.testing.capture_logs() as logs:
        async with opened(store := new_failsafe(tmp_path, clock)):
            row = await create(store, new_row(store, key="k"), 3)
            move(tmp_path / FILE)
            await append(store, row, 4)
            await noticed(store, clock)
            await append(store, row, 5)
            assert store.log.is_durable
            assert elsewhere(tmp_path, row.id) == "True 5"
            assert (await found(store, row)).key == "k"
    assert said(logs) == ["store_failed"]
    assert said(logs, "warning") == ["store_streams_copied", "store_recovered"]


async def test_older_copy_of_the_file_gets_the_newer_events_of_running_streams(
    tmp_path: Path, clock: HandClock
) -> None:
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store), 3)
        await in_use(store)._links.writer.ask(lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall())
        copied = (tmp_path / FILE).read_bytes()
        await append(store, row, 4)
        for end in ("-wal", "-shm"):
            (tmp_path / f"{FILE}{end}").unlink()
        (tmp_path / "new").write_bytes(copied)
        (tmp_path / "new").replace(tmp_path / FILE)
        await noticed(store, clock)
        await append(store, row, 5)
        assert elsewhere(tmp_path, row.id) == "True 5"


async def test_moved_file_is_looked_for_at_most_four_times_a_second(
    tmp_path: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0

    def counting(path: Path, known: dict[str, quarantine.Identity]) -> list[str]:
        nonlocal looks
        looks += 1
        return []

    monkeypatch.setattr("mcp_hub.stores.sqlite.transactions.moved", counting)
    async with opened(store := new_failsafe(tmp_path, clock)):
        row = await create(store, new_row(store))
        for number in range(2, 102):
            clock.seconds += 0.01
            await append(store, row, number)
    assert 3 <= looks <= 4

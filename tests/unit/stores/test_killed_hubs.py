"""Hub processes that are killed while they write, and what the next ones find."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import anyio
import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.stores.base import Change, EventStore
from mcp_hub.stores.locks import Instances
from mcp_hub.types import CallId
from tests.unit.stores import writing_hub
from tests.unit.stores.event_stores import SoleStore, opened, replayed

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ROOT = Path(__file__).parents[3]
KILLS = 10
Confirmed = dict[str, tuple[int, str]]


@contextmanager
def hub(folder: Path, most: int = 0) -> Iterator[subprocess.Popen[str]]:
    """A hub that writes, killed at the end if it is still there."""
    command = [sys.executable, writing_hub.__file__, str(folder), str(most)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    with process:
        try:
            yield process
        finally:
            process.kill()


def confirmed(lines: IO[str] | list[str], most: int | None = None) -> tuple[Confirmed, list[bool]]:
    """What the lines say of each stream, and for each line whether it is to survive the process."""
    said: Confirmed = {}
    durable = []
    for text in lines:
        if not text.endswith("\n"):
            break  # cut off in the middle
        id_, last, status, is_durable = text.split()
        said[id_] = int(last), status
        durable.append(is_durable == "True")
        if most is not None and len(durable) >= most:
            break
    return said, durable


def killed_after(folder: Path, writes: int) -> tuple[str, Confirmed]:
    """The instance id of a hub that was killed after so many writes, and all that it had confirmed."""
    with hub(folder) as process:
        assert process.stdout is not None
        instance = process.stdout.readline().strip()
        said, _ = confirmed(process.stdout, writes)
        process.send_signal(signal.SIGKILL)
        rest, durable = confirmed(process.stdout)
    assert all(durable)
    return instance, {**said, **rest}


async def check(store: EventStore, said: Confirmed) -> list[StreamInfo]:
    """Everything that was confirmed is there, without gap or duplicate; the streams that have not ended."""
    running = []
    for id_, (last, status) in said.items():
        row = await store.log.find(CallId(id_))
        assert row is not None
        assert row.last >= last
        assert row.status == status or status == "working"
        lines = await replayed(store, row)
        assert [line.rstrip() for line in lines] == [b'{"seq":%d}' % number for number in range(1, row.last + 1)]
        if not row.has_ended:
            running.append(row)
    return running


async def race(stores: Sequence[EventStore], rows: list[StreamInfo]) -> dict[str, list[str]]:
    """Who won each stream, when all try to end each at once."""
    winners: dict[str, list[str]] = {row.id: [] for row in rows}

    async def claim(store: EventStore, row: StreamInfo) -> None:
        if await store.leases.claim(row, [b'{"seq":%d}' % (row.last + 1)], Change(300.0, status="failed")) is not None:
            winners[row.id].append(store.log.instance)

    async with anyio.create_task_group() as tasks:
        for row in rows:
            for store in stores:
                tasks.start_soon(claim, store, row)
    return winners


async def test_what_a_killed_hub_had_confirmed_is_there_and_its_streams_are_taken_over_once(tmp_path: Path) -> None:
    async with opened(SoleStore(tmp_path)) as first, opened(SoleStore(tmp_path)) as second:
        for number in range(KILLS):
            instance, said = killed_after(tmp_path, 40 + 60 * number)
            running = {row.id: row for row in await check(first, said)}
            orphans = await first.leases.orphans()
            assert {row.id for row in orphans} >= running.keys()
            assert {row.owner for row in orphans} == {instance}
            assert {row.id for row in await second.leases.orphans()} == {row.id for row in orphans}
            winners = await race([first, second], orphans)
            assert all(len(won) == 1 for won in winners.values())
            assert await first.leases.orphans() == await second.leases.orphans() == []
            assert await check(second, {row.id: (row.last + 1, "failed") for row in orphans}) == []
    assert list((tmp_path / "instances").iterdir()) == []


async def test_a_living_hubs_streams_are_nobody_elses(tmp_path: Path) -> None:
    with hub(tmp_path) as living:
        assert living.stdout is not None
        instance = living.stdout.readline().strip()
        said, _ = confirmed(living.stdout, 50)
        killed, _ = killed_after(tmp_path, 50)
        async with opened(SoleStore(tmp_path)) as store:
            assert {row.owner for row in await store.leases.orphans()} == {killed}
            rows = [row for id_ in said if (row := await store.log.find(CallId(id_))) is not None]
            assert {row.owner for row in rows} == {instance}
            assert not any([await store.leases.is_orphan(row) for row in rows])
            assert not any((await race([store], rows)).values())
        assert living.poll() is None
        confirmed(living.stdout, 50)


async def test_a_full_disk_stops_no_call_and_loses_nothing_that_was_to_survive(tmp_path: Path) -> None:
    with hub(tmp_path, 600_000) as process:
        assert process.stdout is not None
        process.stdout.readline()
        lines: list[str] = []
        after = 0
        while after < 200:
            lines.append(process.stdout.readline())
            assert lines[-1], "the hub is gone"
            after += lines[-1].endswith("False\n")
        assert process.poll() is None
    safe, durable = confirmed([line for line in lines if line.endswith("True\n")])
    assert durable
    async with opened(SoleStore(tmp_path)) as store:
        await check(store, safe)


def test_a_child_process_does_not_keep_its_hubs_lock(tmp_path: Path) -> None:
    script = (
        "import sys, subprocess, pathlib\n"
        "from mcp_hub.stores.locks import Instances\n"
        "Instances(pathlib.Path(sys.argv[1]), 'in_parent').enter()\n"
        "child = subprocess.Popen(['sleep', '60'], close_fds=False)\n"
        "print(child.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        try:
            others = Instances(tmp_path, "in_other")
            assert not others.is_gone("in_parent")
            process.kill()
            process.wait()
            os.kill(child, 0)
            assert others.is_gone("in_parent")
        finally:
            os.kill(child, signal.SIGKILL)

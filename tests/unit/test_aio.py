"""The loop, notices, ids and the clock: order, bounds, and one fault that is nobody elses."""

import asyncio
import contextvars
import gc
import itertools
import re
import subprocess
import sys
import time
import weakref
from collections import Counter
from collections.abc import Callable

import anyio
import anyio.lowlevel
import pytest
import structlog

from mcp_hub import notices as module
from mcp_hub.aio import Turn, call_together, keep_running, named_loop
from mcp_hub.clock import SystemClock, process_start
from mcp_hub.ids import ids, new_call_id, new_session_id
from mcp_hub.notices import Notices

pytestmark = pytest.mark.anyio


class Pipe:
    """Counts its writes; one that `breaks` cannot write."""

    def __init__(self, *, breaks: bool = False) -> None:
        self.breaks = breaks
        self.flushes = 0
        self.closed: str | None = None

    def flush(self) -> None:
        self.flushes += 1
        if self.breaks:
            raise OSError("broken")

    def close(self, reason: str = "") -> None:
        self.closed = reason


def test_callbacks_of_loops_by_turns_run_together_on_their_own() -> None:
    seen: list[tuple[int, int]] = []

    async def plan(number: int) -> None:
        call_together(0.01, lambda: seen.append((number, id(asyncio.get_running_loop()))))

    loops = [asyncio.new_event_loop() for _ in range(2)]
    for number in range(6):
        loops[number % 2].run_until_complete(plan(number))
    for loop in loops:
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
    assert seen == [(number, id(loops[number % 2])) for number in (0, 2, 4, 1, 3, 5)]


def test_what_is_more_urgent_does_not_wait_for_what_is_less() -> None:
    seen: list[str] = []

    async def plan() -> None:
        call_together(60, lambda: seen.append("later"))
        for _ in range(2):
            call_together(0.01, lambda: seen.append("soon"))
        await asyncio.sleep(0.05)

    asyncio.run(plan())
    assert seen == ["soon", "soon"]


def test_a_loop_that_is_closed_lets_what_waits_go_and_holds_up_no_other() -> None:
    class Waits:
        def over(self) -> None:
            raise AssertionError("its loop was closed before")

    waits = Waits()
    alive, seen = weakref.ref(waits), list[int]()

    async def plan(seconds: float, callback: Callable[[], None]) -> None:
        call_together(seconds, callback)
        await asyncio.sleep(0)

    asyncio.run(plan(60, waits.over))
    del waits
    gc.collect()
    assert alive() is None

    async def another() -> None:
        await plan(0.01, lambda: seen.append(1))
        await asyncio.sleep(0.05)

    asyncio.run(another())
    assert seen == [1]


def test_callbacks_run_in_order_when_the_outermost_turn_ends() -> None:
    turn, seen = Turn(), list[str]()

    def inner() -> None:
        turn.after(lambda: seen.append("second"))
        seen.append("inner")

    def outer() -> None:
        turn.after(lambda: seen.append("first"))
        turn.run(inner)
        seen.append("outer")

    turn.run(outer)
    assert seen == ["inner", "outer", "first", "second"]


def test_a_pipe_is_flushed_once_after_all_callbacks() -> None:
    turn, pipe, seen = Turn(), Pipe(), list[int]()

    def send() -> None:
        if not seen:
            turn.flush_later(pipe)
        seen.append(pipe.flushes)

    def many() -> None:
        for _ in range(5):
            turn.after(send)

    turn.run(many)
    assert seen == [0] * 5 and pipe.flushes == 1


def test_a_broken_pipe_is_closed_and_stops_no_other() -> None:
    turn, broken, whole = Turn(), Pipe(breaks=True), Pipe()

    def both() -> None:
        turn.flush_later(broken)
        turn.flush_later(whole)

    turn.run(both)
    assert broken.closed is not None and whole.closed is None and whole.flushes == 1


def test_a_failing_callback_stops_no_other() -> None:
    turn, seen = Turn(), list[int]()

    def fails() -> None:
        raise ZeroDivisionError

    def two() -> None:
        turn.after(fails)
        turn.after(lambda: seen.append(1))

    turn.run(two)
    assert seen == [1]


@pytest.mark.parametrize(("crashes", "pauses"), [(0, []), (2, [1, 2]), (8, [1, 2, 4, 8, 16, 32, 60, 60])])
async def test_a_part_that_crashes_begins_anew_after_pauses_that_grow(
    crashes: int, pauses: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    runs: list[str] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def part(name: str) -> None:
        runs.append(name)
        if len(runs) <= crashes:
            raise ExceptionGroup("odd", [ValueError("odd")])

    monkeypatch.setattr(anyio, "sleep", sleep)
    with structlog.testing.capture_logs() as entries:
        await keep_running("flags", part, "x")
    assert slept == pauses and runs == ["x"] * (crashes + 1)
    assert [(entry["event"], entry["part"]) for entry in entries] == [("part_crashed", "flags")] * crashes


def in_passes(begin: Callable[[Turn, list[int]], None]) -> list[int]:
    """What was done after each pass of the loop, until a pass does nothing."""

    async def main() -> list[int]:
        turn, done, passes = Turn(), list[int](), list[int]()
        begin(turn, done)
        while not passes or passes[-1] != len(done):
            passes.append(len(done))
            await asyncio.sleep(0)
        return passes

    return asyncio.run(main())


def test_outside_of_a_turn_everything_waits_for_the_next_pass() -> None:
    def begin(turn: Turn, done: list[int]) -> None:
        for number in range(3):
            turn.after(lambda number=number: done.append(number))  # type: ignore[misc]  # a default that is bound

    assert in_passes(begin) == [0, 3]


def test_after_256_callbacks_the_rest_waits_for_the_next_pass() -> None:
    def begin(turn: Turn, done: list[int]) -> None:
        def many() -> None:
            for number in range(600):
                turn.after(lambda number=number: done.append(number))  # type: ignore[misc]  # a default that is bound

        turn.run(many)

    assert in_passes(begin) == [256, 512, 600]


def test_callbacks_outside_of_tasks_know_their_loop_in_programs_with_sniffio() -> None:
    pytest.importorskip("sniffio")

    async def main() -> list[object]:
        loop = asyncio.get_running_loop()
        found = [loop.create_future(), loop.create_future()]
        loop.call_soon(lambda: found[0].set_result(_outcome(anyio.current_time)))
        await found[0]
        with named_loop():
            work = contextvars.Context().run
            loop.call_soon_threadsafe(lambda: found[1].set_result(_outcome(lambda: work(anyio.current_time))))
            await found[1]
        return [each.result() for each in found]

    unnamed, named = asyncio.run(main())
    assert isinstance(unnamed, anyio.NoEventLoopError) and isinstance(named, float)


def test_a_loop_keeps_its_name_until_the_last_hub_is_closed() -> None:
    sniffio = pytest.importorskip("sniffio")
    first, second = named_loop(), named_loop()
    for one in (first, second):
        one.__enter__()
    first.__exit__(None, None, None)
    assert sniffio.thread_local.name == "asyncio"
    second.__exit__(None, None, None)
    assert sniffio.thread_local.name is None


def _outcome(work: Callable[[], float]) -> object:
    try:
        return work()
    except RuntimeError as error:
        return error


A, B = ("s", "x:a"), ("s", "x:b")


def test_a_reader_gets_what_was_noted_after_its_place_once_for_each_uri() -> None:
    changes = Notices()
    changes.note(A, "x:a", b'{"n":1}')
    place = changes.noted
    assert changes.notices(A, 0) == [("x:a", b'{"n":1}')]
    assert changes.notices(A, place) == changes.notices(B, 0) == []
    changes.note(A, "x:a", b'{"n":2}')
    changes.note(A, "x:a", b'{"n":3}')
    changes.note(B, "x:b")
    assert changes.notices(A, place) == changes.notices(A, 0) == [("x:a", b'{"n":3}')]
    assert changes.notices(B, place) == [("x:b", b"{}")]


def test_params_too_long_are_left_out_and_parts_distinguished_up_to_a_limit() -> None:
    changes = Notices()
    for part in range(module._MOST_PARTS):
        changes.note(A, f"x:a/{part}")
    place = changes.noted
    changes.note(A, "x:a/0")
    assert [uri for uri, _ in changes.notices(A, 0)] == [f"x:a/{n}" for n in (*range(1, module._MOST_PARTS), 0)]
    assert changes.notices(A, place) == [("x:a/0", b"{}")]
    changes.note(A, "x:a/more", b'{"n":1}')
    assert changes.notices(A, 0) == changes.notices(A, place) == [("x:a", b"{}")]
    changes = Notices()
    changes.note(A, "x:a", b" " * (module._MOST_BYTES + 1))
    assert changes.notices(A, 0) == [("x:a", b"{}")]


def test_a_reader_that_fell_behind_takes_everything_for_updated() -> None:
    changes = Notices()
    changes.note(A, "x:a")
    place = changes.noted
    changes.note(B, "x:b")
    for number in range(module._MOST_RESOURCES):
        changes.note(("s", f"x:{number}"), f"x:{number}")
    assert changes.notices(A, place) == [("x:a", b"{}")]
    assert changes.notices(("s", "x:never"), 0) == [("x:never", b"{}")]
    assert changes.notices(A, place + 1) == changes.notices(B, place + 1) == [], "what was lost, this one has read"
    assert len(changes._notices) == module._MOST_RESOURCES


async def test_each_waiter_is_woken_by_what_it_waits_for() -> None:
    changes = Notices()
    woken: list[str] = []

    async def lists() -> None:
        await changes.wait(0)
        woken.append("lists")

    async def anything(name: str, version: int, noted: int) -> None:
        await changes.wait_any(version, noted)
        woken.append(name)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lists)
        tasks.start_soon(anything, "first notice", 1, 0)
        tasks.start_soon(anything, "second notice", 1, 1)
        tasks.start_soon(anything, "version", 0, 9)
        one: Callable[[], None] = lambda: changes.note(A, "x:a")  # noqa: E731  so that it has a type
        for change in (one, one, changes.bump):
            await anyio.wait_all_tasks_blocked()
            change()
            await anyio.wait_all_tasks_blocked()
            woken.append("|")
    assert woken[:4] == ["first notice", "|", "second notice", "|"]
    assert sorted(woken[4:]) == ["lists", "version", "|"]


def test_ids_are_crockford_base32_with_five_bits_of_the_random_source_each() -> None:
    assert re.fullmatch(r"st_[0-9A-HJKMNP-TV-Z]{26}", new_call_id())
    assert re.fullmatch(r"se_[0-9A-HJKMNP-TV-Z]{26}", new_session_id())
    asked: list[int] = []

    def random(count: int) -> bytes:
        asked.append(count)
        return bytes([len(asked)]) * count

    first = list(itertools.islice(ids(random), 257))
    assert asked == [256 * 26] * 2
    assert first[0] != first[256]  # the second refill
    every = "".join(itertools.islice(ids(lambda count: (bytes(range(256)) * count)[:count]), 256))
    assert set(Counter(every).values()) == {len(every) // 32}


AGE = """
import time
from mcp_hub.clock import process_start
print(time.process_time(), time.monotonic() - process_start())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows it")
@pytest.mark.processes
def test_a_process_knows_how_long_it_has_run() -> None:
    began = time.monotonic()
    said = subprocess.run([sys.executable, "-c", AGE], capture_output=True, check=True, timeout=240).stdout
    busy, age = map(float, said.split())
    assert busy <= age <= time.monotonic() - began + 0.02, "the system counts in hundredths"


def test_a_process_has_started_before_now() -> None:
    assert process_start() <= SystemClock.now()

"""One turn of the event loop: order, bounds, and one pipe's fault that is nobody else's."""

import asyncio
import contextvars
from collections.abc import Callable

import anyio
import pytest

from mcp_hub.aio import Turn, named_loop


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


def _outcome(work: Callable[[], float]) -> object:
    try:
        return work()
    except RuntimeError as error:
        return error

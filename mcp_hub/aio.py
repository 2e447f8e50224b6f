"""The few things that the hub takes from asyncio itself: timers, callbacks and waits that cost less than anyio's.

Only hot paths use them: a call, its reader, its writer. Everything else is anyio, a thread for one server among that.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from mcp_hub.logs import get_logger

_running: Any = None
with suppress(ImportError):  # another package has installed it, and then anyio asks it
    from sniffio import thread_local as _running

log = get_logger(__name__)

Timer = asyncio.TimerHandle
Ts = TypeVarTuple("Ts")
_T = TypeVar("_T")

_MOST: Final = 256
"""Callbacks of one turn; the rest waits for the next pass, so that everybody else is served in between."""
_THREAD_LOOK: Final = 0.05
"""Seconds between two looks whether a thread that was abandoned has ended."""


class Flushes(Protocol):
    """Something that collects what it is to write until the turn ends."""

    def flush(self) -> None: ...

    def close(self, reason: str = ...) -> None: ...


class Turn:
    """One turn of the event loop: deliveries and writes wait for its end, and each pipe is written to once.

    One object for an event loop, shared by pipes, fronts and the call registry. Everything that the loop enters runs in
    `run`. Outside of a turn `after` and `flush_later` schedule one turn for all that comes before it.
    """

    __slots__ = ("_is_due", "_is_open", "_marked", "_queue")

    def __init__(self) -> None:
        self._is_open = False
        self._is_due = False
        self._queue: deque[Callable[[], object]] = deque()
        self._marked: list[Flushes] = []

    def run(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Calls `callback`; on leaving the outermost turn, the queue runs in order and marked pipes are flushed."""
        if self._is_open:
            callback(*args)
            return
        self._is_open = True
        try:
            callback(*args)
        finally:
            self._end()

    def after(self, callback: Callable[[], object]) -> None:
        """Calls `callback` at the end of this turn. An exception in it is logged and stops no other callback."""
        self._queue.append(callback)
        if not self._is_open:
            self._schedule()

    def flush_later(self, pipe: Flushes) -> None:
        """Flushes `pipe` at the end of this turn; if that fails, `pipe` alone is closed. Once for each time."""
        self._marked.append(pipe)
        if not self._is_open:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._scheduled)

    def _scheduled(self) -> None:
        self._is_due = False
        if not self._is_open:
            self._is_open = True
            self._end()

    def _end(self) -> None:
        remaining = _MOST
        while self._marked or (self._queue and remaining):
            while self._queue and remaining:
                remaining -= 1
                try:
                    self._queue.popleft()()
                except Exception:
                    log.exception("callback_failed")
            marked, self._marked = self._marked, []
            for pipe in marked:
                try:
                    pipe.flush()
                except Exception:
                    log.exception("flush_failed")
                    pipe.close("writing failed")
        self._is_open = False
        if self._queue:
            self._schedule()


class Bell:
    """Wakes the one task that waits for it; a bell that was rung before wakes at once. An `anyio.Event` costs more."""

    __slots__ = ("_is_rung", "_waiter")

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        self._is_rung = True
        self._wake()

    async def wait(self, seconds: float | None = None) -> bool:
        """Returns when it was rung since the last time; False if it was not within that time."""
        if not self._is_rung:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            timer = loop.call_later(seconds, self._wake) if seconds is not None else None
            try:
                await self._waiter
            finally:
                self._waiter = None
                if timer is not None:
                    timer.cancel()
        was_rung, self._is_rung = self._is_rung, False
        return was_rung

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def call_later(seconds: float, callback: Callable[[], None]) -> Timer:
    """The event loop's timer, for the registry's one wheel."""
    return asyncio.get_running_loop().call_later(seconds, callback)


class Block:
    """A block of code that `give_up` cancels, and nothing else. A cancel scope of `anyio` costs 1 kB, and more time."""

    __slots__ = ("_before", "_host", "is_given_up")

    def __init__(self) -> None:
        self.is_given_up = False

    def __enter__(self) -> None:
        host = asyncio.current_task()
        assert host is not None
        self._host, self._before = host, host.cancelling()

    def give_up(self) -> None:
        """Cancels the block; idempotent, and not to be called by the block itself."""
        if not self.is_given_up:
            self.is_given_up = True
            self._host.cancel()

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> bool:
        """True, which swallows the cancellation, if it was ours alone."""
        return self.is_given_up and self._host.uncancel() <= self._before and kind is asyncio.CancelledError


class Beside(Block):
    """Runs work beside a block and no longer; the work is handed `give_up`.

    The work must not fail. An `anyio` task group would cost 4 kB for each.
    """

    __slots__ = ("_task", "_work")

    def __init__(self, work: Callable[[Callable[[], None]], Coroutine[None, None, None]]) -> None:
        super().__init__()
        self._work = work

    def __enter__(self) -> None:
        super().__enter__()
        self._task = asyncio.get_running_loop().create_task(self._work(self.give_up))

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> bool:
        self._task.cancel()
        return super().__exit__(kind, *raised)


class Background:
    """Work that begins now and runs until `stop`, whatever task has begun it. What it raises is logged."""

    __slots__ = ("_task",)

    def __init__(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work())
        self._task.add_done_callback(_log_failure)

    async def stop(self) -> None:
        """Cancels it and waits until it has ended. Idempotent."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_failed", exc_info=error)


class _Named(threading.local):
    """The number of hubs that have named the loop of a thread, and its name `before` the first of them."""

    hubs = 0
    before: str | None = None


_named: Final = _Named()


@contextmanager
def named_loop() -> Iterator[None]:
    """Says that asyncio runs in this thread, also to callbacks outside of tasks and those that other threads schedule.

    Event loops say it to tasks only. Without it anyio does not work there, as soon as a program has `sniffio`. Blocks
    of one thread may end in any order.
    """
    if _running is None:
        yield
        return
    if not _named.hubs:
        _named.before, _running.name = _running.name, "asyncio"
    _named.hubs += 1
    try:
        yield
    finally:
        _named.hubs -= 1
        if not _named.hubs:
            _running.name = _named.before


def loop_clock() -> Callable[[], float]:
    """The clock of the running loop, in seconds: that of its timers, and of `anyio.current_time`."""
    return asyncio.get_running_loop().time


def call_soon(callback: Callable[[], None]) -> None:
    """In the next pass of the event loop."""
    asyncio.get_running_loop().call_soon(callback)


def entrance() -> Callable[..., object]:
    """Calls a function with arguments in the running loop soon, from a thread or a handler of signals."""
    return asyncio.get_running_loop().call_soon_threadsafe


async def adopt(protocol: Callable[[], asyncio.Protocol], connection: socket.socket) -> None:
    """Hands a connection that was accepted to a protocol of asyncio, which owns it from here on."""
    await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)


class _Busy(Exception):
    """A thread still works for this server."""


class ServerThread:
    """Work for one server in one thread at a time: a file system that does not answer holds one alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns = anyio.CapacityLimiter(1)

    async def run(self, work: Callable[[], _T]) -> _T:
        """The result of work that may be abandoned: it then runs on, and later work waits for its end."""
        while True:
            try:
                call = partial(self._alone, work)
                return await anyio.to_thread.run_sync(call, abandon_on_cancel=True, limiter=self._turns)
            except _Busy:
                await anyio.sleep(_THREAD_LOOK)

    def _alone(self, work: Callable[[], _T]) -> _T:
        if not self._lock.acquire(blocking=False):
            raise _Busy
        try:
            return work()
        finally:
            self._lock.release()

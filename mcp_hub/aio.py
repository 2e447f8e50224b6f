"""Timers, callbacks and waits of asyncio, for hot paths where anyio's cost too much."""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple
from weakref import ref

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
"""Callbacks per turn; others wait for the next pass."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
"""Seconds before a part that has crashed begins anew; each pause is twice the one before."""
_THREAD_LOOK: Final = 0.05
"""Seconds between looks at an abandoned thread."""


class _Flushes(Protocol):
    """A buffer that is flushed at a turn's end."""

    def flush(self) -> None: ...

    def close(self, reason: str = ...) -> None: ...


class Turn:
    """One pass of the event loop; at its end callbacks run, and each pipe is written once.

    One object per loop. Callbacks of the loop enter through `run`.
    """

    __slots__ = ("_is_due", "_is_open", "_marked", "_queue")

    def __init__(self) -> None:
        self._is_open = False
        self._is_due = False
        self._queue: deque[Callable[[], object]] = deque()
        self._marked: list[_Flushes] = []

    def run(self, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """Calls `callback`; the outermost call then ends the turn."""
        if self._is_open:
            callback(*args)
            return
        self._is_open = True
        try:
            callback(*args)
        finally:
            self._end()

    def after(self, callback: Callable[[], object]) -> None:
        """Calls `callback` at the turn's end. Exceptions are logged."""
        self._queue.append(callback)
        if not self._is_open:
            self._schedule()

    def flush_later(self, pipe: _Flushes) -> None:
        """Flushes `pipe` once at the turn's end; closes it if that fails."""
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
    """Wakes the one task that waits, at once after an earlier ring. Cheaper than `anyio.Event`."""

    __slots__ = ("_is_rung", "_waiter")

    def __init__(self) -> None:
        self._is_rung = False
        self._waiter: asyncio.Future[None] | None = None

    def ring(self) -> None:
        if not self._is_rung:  # else the one that waits is awake already
            self._is_rung = True
            self._wake()

    async def wait(self, seconds: float | None = None) -> bool:
        """Waits for a ring; False after `seconds`."""
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
    return asyncio.get_running_loop().call_later(seconds, callback)


class _Together:
    """Callbacks that a loop calls together, within so many seconds."""

    __slots__ = ("__weakref__", "_seconds", "callbacks", "loop")

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.loop = loop
        self._seconds = seconds
        self.callbacks: list[Callable[[], None]] = []

    def run(self) -> None:
        if (together := _together.get(self._seconds)) is not None and together() is self:
            del _together[self._seconds]
        for callback in self.callbacks:
            try:
                callback()
            except Exception:
                log.exception("callback_failed")


_together: Final[dict[float, ref[_Together]]] = {}
"""By seconds. Weak references: a loop that is closed lets its callbacks go."""


def call_together(seconds: float, callback: Callable[[], None]) -> None:
    """Calls `callback` within so many seconds, as one of many that are not urgent; few such numbers exist."""
    loop, planned = asyncio.get_running_loop(), _together.get(seconds)
    together = None if planned is None else planned()
    if together is None or together.loop is not loop:  # another thread's
        together = _Together(loop, seconds)
        _together[seconds] = ref(together)
        loop.call_later(seconds, together.run)
    together.callbacks.append(callback)


class Block:
    """Code that `give_up` cancels. Beside it `work` runs, if given, which must not fail."""

    __slots__ = ("_before", "_host", "_task", "_work", "is_given_up")

    def __init__(self, work: Callable[[Callable[[], None]], Coroutine[None, None, None]] | None = None) -> None:
        self.is_given_up = False
        self._work = work
        self._task: asyncio.Task[None] | None = None

    def __enter__(self) -> None:
        host = asyncio.current_task()
        assert host is not None
        self._host, self._before = host, host.cancelling()
        if self._work is not None:
            self._task = asyncio.get_running_loop().create_task(self._work(self.give_up))

    def give_up(self) -> None:
        """Cancels the block, from outside of it. Idempotent."""
        if not self.is_given_up:
            self.is_given_up = True
            self._host.cancel()

    def __exit__(self, kind: type[BaseException] | None, *raised: object) -> bool:
        if self._task is not None:
            self._task.cancel()
        return self.is_given_up and self._host.uncancel() <= self._before and kind is asyncio.CancelledError


async def keep_running(part: str, run: Callable[[*Ts], Awaitable[object]], *args: *Ts) -> None:
    """Runs a part of the hub that others can do without, to its end. A crash is logged, and it begins anew."""
    pause = _FIRST_PAUSE
    while True:
        try:
            await run(*args)
            return
        except Exception:
            log.exception("part_crashed", part=part, pause=pause)
        await anyio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


class Background:
    """A task that runs until `stop`. Its exceptions are logged."""

    __slots__ = ("_task",)

    def __init__(self, work: Callable[[], Coroutine[None, None, None]]) -> None:
        self._task = asyncio.get_running_loop().create_task(work())
        self._task.add_done_callback(_log_failure)

    def cancel(self) -> None:
        """Cancels it, without waiting."""
        self._task.cancel()

    async def wait(self) -> None:
        """Waits until it has ended."""
        await asyncio.wait([self._task])

    async def stop(self) -> None:
        """Cancels and waits. Idempotent."""
        self._task.cancel()
        await asyncio.wait([self._task])


def _log_failure(task: "asyncio.Task[None]") -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("background_failed", exc_info=error)


class _Named(threading.local):
    hubs = 0
    before: str | None = None


_named: Final = _Named()


@contextmanager
def named_loop() -> Iterator[None]:
    """Tells `sniffio` that this thread runs asyncio, also in callbacks. Blocks may end in any order."""
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


def running_loop() -> object | None:
    """The running loop, to be compared; None under trio, and where nothing runs."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def loop_clock() -> Callable[[], float]:
    return asyncio.get_running_loop().time


def call_soon(callback: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(callback)


def entrance() -> Callable[..., object]:
    """The running loop's `call_soon_threadsafe`."""
    return asyncio.get_running_loop().call_soon_threadsafe


async def adopt(protocol: Callable[[], asyncio.Protocol], connection: socket.socket) -> None:
    """Hands an accepted connection to an asyncio protocol, its new owner."""
    await asyncio.get_running_loop().connect_accepted_socket(protocol, connection)


class _Busy(Exception):
    """The thread is busy."""


class ServerThread:
    """Runs a server's blocking work, in one thread at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns = anyio.CapacityLimiter(1)

    async def run(self, work: Callable[[], _T]) -> _T:
        """Runs `work`. If cancelled, its thread continues, and later work waits."""
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

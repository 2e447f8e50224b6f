"""A thread with one connection and a bounded queue."""

import asyncio  # noqa: TID251  `call_soon_threadsafe`, and futures to wait for what it brings
import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from sqlite3 import Connection
from typing import Any, Final, Protocol, TypeVar

import anyio
import msgspec

from mcp_hub.clock import Clock
from mcp_hub.errors import StoreError
from mcp_hub.logs import get_logger
from mcp_hub.stores.faults import StoreFault

MOST_JOBS: Final = 16_384
"""Limit of pending jobs: each running call has one append in flight."""
MOST_BYTES: Final = 256 << 20
_LOOK: Final = 0.05
"""Seconds between the thread's own looks."""
_LOOKS: Final = 40
"""Own looks without being asked for more."""

T = TypeVar("T")
log = get_logger(__name__)


class Job(msgspec.Struct, frozen=True):
    """Work with the connection; `callback` gets the result or `StoreError` on the event loop.

    `is_vital`: synced before confirmation; `size` in bytes.
    """

    run: Callable[[Connection], object]
    callback: Callable[[Any], None]
    writes: bool = False
    is_vital: bool = False
    size: int = 0


class _Watch(msgspec.Struct):
    """A question, asked so many times; `news` is called on the event loop for another answer."""

    clock: Clock
    job: Job
    seen: object
    news: Callable[[], None]
    due: float
    looks: int = _LOOKS


class _Transactions(Protocol):
    """Methods run in the thread."""

    def open(self) -> None:
        """Raises `StoreFault`."""

    def work(self, jobs: Sequence[Job]) -> list[object]:
        """A result or `StoreError` for each job. Never raises."""

    def close(self) -> None: ...


class Worker:
    """The thread; methods run on the event loop of `start`."""

    def __init__(self, name: str, transactions: _Transactions) -> None:
        self._name = name
        self._transactions = transactions
        self._queue: SimpleQueue[Job | None] = SimpleQueue()
        self._waiting = self._bytes = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: anyio.Event | None = None
        self._is_open = self._is_stopping = False
        self._watch: _Watch | None = None

    async def start(self) -> None:
        """Opens the connection; again, after `stop`. Raises `StoreFault`."""
        self._is_stopping = False
        self._loop = asyncio.get_running_loop()
        self._ended = anyio.Event()
        opened: asyncio.Future[StoreFault | None] = self._loop.create_future()
        threading.Thread(target=self._main, args=(opened,), name=self._name, daemon=True).start()
        fault = await asyncio.shield(opened)
        if fault is not None:
            raise fault
        self._is_open = True

    async def stop(self, seconds: float) -> bool:
        """Finishes jobs and ends the thread; False after `seconds`. Idempotent."""
        if self._ended is None:
            return True
        if not self._is_stopping:
            self._is_open, self._is_stopping = False, True
            self._queue.put(None)
        with anyio.move_on_after(seconds, shield=True):
            await self._ended.wait()
        return self._ended.is_set()

    def submit(self, job: Job) -> None:
        if not self._is_open:
            job.callback(StoreFault("unusable", f"{self._name}: is closed"))
        elif self._waiting >= MOST_JOBS or (self._bytes + job.size > MOST_BYTES and self._waiting):
            job.callback(StoreFault("busy", f"{self._name}: {self._waiting} jobs of {self._bytes} bytes wait already"))
        else:
            self._waiting += 1
            self._bytes += job.size
            self._queue.put(job)

    async def ask(
        self,
        run: Callable[[Connection], T],
        *,
        writes: bool = False,
        is_vital: bool = False,
        on_result: Callable[[T], object] | None = None,
    ) -> T:
        """The result. Raises `StoreError`. Cancellation stops neither the job nor `on_result`."""
        answered: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def settle(result: Any) -> None:
            if on_result is not None and not isinstance(result, StoreError):
                on_result(result)
            if answered.done():
                return
            if isinstance(result, StoreError):
                answered.set_exception(result)
            else:
                answered.set_result(result)

        self.submit(Job(run, settle, writes, is_vital))
        return await answered

    def watch(self, clock: Clock, run: Callable[[Connection], object], seen: object, news: Callable[[], None]) -> None:
        """Calls `news` once soon after the result of `run` is another than `seen`, for two seconds."""
        before, self._watch = (
            self._watch,
            _Watch(clock=clock, job=Job(run, _ignore), seen=seen, news=news, due=clock.now() + _LOOK),
        )
        if before is None or not before.looks:  # the thread may sleep without an end
            self.submit(self._watch.job)

    # -- in the thread

    def _main(self, opened: "asyncio.Future[StoreFault | None]") -> None:
        try:
            self._transactions.open()
        except Exception as error:  # its starter gets it
            fault = error if isinstance(error, StoreFault) else StoreFault("unusable", f"{self._name}: {error}")
            self._hop(self._finish, opened, fault)
            return
        self._hop(_settle, opened, None)
        is_wanted = True
        while is_wanted:
            jobs, is_wanted = self._take()
            if jobs:
                self._hop(self._deliver, jobs, self._transactions.work(jobs))
        self._transactions.close()
        self._hop(self._finish, None, None)

    def _take(self) -> tuple[list[Job], bool]:
        job = self._next()
        jobs: list[Job] = []
        while job is not None:
            jobs.append(job)
            try:
                job = self._queue.get_nowait()
            except Empty:
                return jobs, True
        return jobs, False

    def _next(self) -> Job | None:
        """The next job, with looks meanwhile."""
        while (watch := self._watch) is not None and watch.looks:
            remaining = watch.due - watch.clock.now()
            try:
                if remaining > 0:
                    return self._queue.get(timeout=remaining)
            except Empty:
                pass
            self._look(watch)
        return self._queue.get()

    def _look(self, watch: _Watch) -> None:
        watch.due, watch.looks = watch.clock.now() + _LOOK, watch.looks - 1
        (result,) = self._transactions.work([watch.job])
        if result != watch.seen:
            watch.looks = 0
            self._hop(watch.news)

    def _hop(self, call: Callable[..., None], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            log.debug("store_unheard", worker=self._name)

    # -- on the event loop

    def _finish(self, opened: "asyncio.Future[StoreFault | None] | None", fault: StoreFault | None) -> None:
        assert self._ended is not None
        self._ended.set()
        if opened is not None:
            _settle(opened, fault)

    def _deliver(self, jobs: Sequence[Job], results: Sequence[object]) -> None:
        self._waiting -= len(jobs)
        for job, result in zip(jobs, results, strict=True):
            self._bytes -= job.size
            try:
                job.callback(result)
            except Exception:  # others wait for the rest
                log.exception("store_callback_failed", worker=self._name)


def _ignore(result: object) -> None:
    pass


def _settle(opened: "asyncio.Future[StoreFault | None]", fault: StoreFault | None) -> None:
    if not opened.done():
        opened.set_result(fault)

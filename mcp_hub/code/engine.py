"""Sessions of scripts, and the workers they take turns on."""

import os
import shlex
import sys
import sysconfig
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread

from mcp_hub.aio import Background, Bell, Timer, call_later, entrance, loop_clock
from mcp_hub.code.steps import CodeError, CodeLimits, CodeRaise, CodeStep
from mcp_hub.extras import with_extra
from mcp_hub.types import RawJson

if sys.platform == "linux":
    import fcntl
if TYPE_CHECKING:
    from pydantic_monty import Monty

    from mcp_hub.code.worker import CodeWorker

_T = TypeVar("_T")

_PACKAGE: Final = "pydantic_monty"
_WORKER: Final = "mcp_hub.code.worker"
_CHECKOUT: Final = 30.0
"""Seconds to wait for a process of the pool, which has one for each session."""
_CHECK: Final = 10.0
"""Seconds that a check of types may take."""
_GRACE: Final = 3.0
"""Seconds beside a script's own for a turn."""
_END: Final = 10.0
"""Seconds for a killed worker's thread to return."""
_LOOK: Final = 5.0
"""Seconds between looks of a thread without work, whether the program has ended."""


def is_available() -> bool:
    return find_spec(_PACKAGE) is not None


class _CodeSession:
    """One run of a script. Another session may take its worker between steps."""

    def __init__(self, engine: "CodeEngine") -> None:
        self._engine = engine
        self._worker: CodeWorker | None = None
        self._thread: _Thread | None = None
        self._state = b""
        self._limits = CodeLimits()
        self._printed: Callable[[str], None] = _ignore
        self._lock = anyio.Lock(fast_acquire=True)
        self._is_stepping = False
        self._is_closed = False

    async def start(
        self, code: str, stubs: str, names: Collection[str], limits: CodeLimits, printed: Callable[[str], None]
    ) -> CodeStep:
        """Checks `code`, then runs it to its first step. Raises `CodeError`.

        `names` can be called; `stubs` declares them for the check of types.
        """
        self._limits, self._printed = limits, printed
        async with self._lock:
            await self._checked(code, stubs, names)
            return await self._step(lambda worker: worker.begin())

    async def load(self, snapshot: bytes, limits: CodeLimits, printed: Callable[[str], None]) -> CodeStep:
        """The run as at `snapshot`, without new calls. Raises `CodeError`, `not_resumable` for foreign bytes."""
        self._limits, self._printed = limits, printed
        async with self._lock:
            return await self._step(lambda worker: worker.load(snapshot, limits))

    async def feed(self, answers: Mapping[int, RawJson | CodeRaise]) -> CodeStep:
        """Continues with answers to some or all of `pending`. Raises `CodeError`."""
        async with self._lock:
            if self._worker is None:
                state = self._state
                await self._step(lambda worker: worker.load(state, self._limits))
            return await self._step(lambda worker: worker.feed(answers))

    async def check(self, code: str, stubs: str, names: Collection[str]) -> None:
        """Checks as `start` does; runs nothing. Raises `CodeError`."""
        async with self._lock:
            await self._checked(code, stubs, names)
            await self._release()

    async def park(self) -> None:
        """Gives the worker back until the next `feed`."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                await self._release()

    async def close(self) -> None:
        """Ends the run, also a step that another task waits for. Idempotent."""
        self._is_closed = True
        if self._is_stepping and self._worker is not None:
            self._worker.kill()
        await self.park()

    async def _checked(self, code: str, stubs: str, names: Collection[str]) -> None:
        late = CodeError("types", f"the check of types took longer than {_CHECK:g} s: the script is too intricate")
        await self._turn(lambda worker: worker.prepare(code, stubs, names, self._limits), _CHECK, late)

    async def _step(self, work: Callable[["CodeWorker"], CodeStep]) -> CodeStep:
        """A step; only a run that waits keeps its worker after it."""
        reason = f"the script computes longer than {self._limits.seconds:g} s (hub.code_limits.seconds)"
        late = CodeError("limit", reason, key="seconds")
        step = await self._turn(work, self._limits.seconds + _GRACE, late)
        if step.has_ended:
            await self._release()
        else:
            self._state = step.snapshot
            self._engine.rest(self)
        return step

    async def _turn(self, work: Callable[["CodeWorker"], CodeStep], seconds: float, late: CodeError) -> CodeStep:
        """Work of the worker within `seconds`; a run that fails has no worker any more."""
        if self._worker is None or self._thread is None:
            self._worker, self._thread = await self._engine.worker_for(self)
        worker, thread = self._worker, self._thread
        self._engine.occupy(self)
        self._is_stepping = True
        try:
            if self._is_closed:
                raise CodeError("crashed", "the run is closed")
            return await thread.run(partial(work, worker), seconds)
        except TimeoutError:
            await self._end()
            raise late from None
        except BaseException:
            await self._end()
            raise
        finally:
            self._is_stepping = False
            for text in worker.take_printed():
                self._printed(text)

    async def _end(self) -> None:
        self._is_closed = True
        await self._release()

    async def _release(self) -> None:
        worker, self._worker = self._worker, None
        thread, self._thread = self._thread, None
        if worker is not None and thread is not None:
            with anyio.CancelScope(shield=True):
                try:
                    await thread.run(worker.close)
                finally:
                    thread.end()
                    self._engine.release(self)


class CodeEngine:
    """At most `workers` processes, started at first use, ended after `idle_stop` seconds without a step.

    A session that waits for answers lends its worker to the next that runs, and continues with another.
    """

    def __init__(self, workers: int = 4, idle_stop: float = 60.0) -> None:
        self._workers = workers
        self._idle_stop = idle_stop
        self._pool: _Processes | None = None
        self._opening = anyio.Lock()
        self._freed: anyio.Event | None = None  # that somebody waits for
        self._busy: set[_CodeSession] = set()
        self._resting: dict[_CodeSession, None] = {}
        self._timer: Timer | None = None
        self._stopping: Background | None = None

    def session(self) -> _CodeSession:
        """A new run. Raises `CodeError` (`unavailable`) without the extra."""
        if not is_available():
            raise CodeError("unavailable", f"code cannot run without its extra. Install it with: {with_extra('code')}")
        return _CodeSession(self)

    async def close(self) -> None:
        """Ends all sessions and workers. Idempotent."""
        with anyio.CancelScope(shield=True):
            for session in (*self._busy, *self._resting):
                await session.close()
            await self._stop()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    @property
    def is_running(self) -> bool:
        return self._pool is not None

    async def worker_for(self, session: _CodeSession) -> tuple["CodeWorker", "_Thread"]:
        """A worker for `session`, once there is one, and its thread."""
        while len(self._busy) + len(self._resting) >= self._workers:
            if self._resting:
                await next(iter(self._resting)).park()
            else:
                self._freed = self._freed or anyio.Event()
                await self._freed.wait()
        self._busy.add(session)
        try:
            worker = (await self._opened()).worker()
            return worker, _Thread(worker.kill)
        except BaseException:
            self.release(session)
            raise

    def occupy(self, session: _CodeSession) -> None:
        """The session runs."""
        self._resting.pop(session, None)
        self._busy.add(session)

    def rest(self, session: _CodeSession) -> None:
        """The session's worker may be taken."""
        self._busy.discard(session)
        self._resting[session] = None
        self._wake()

    def release(self, session: _CodeSession) -> None:
        """The session has no worker any more."""
        self._busy.discard(session)
        self._resting.pop(session, None)
        self._wake()

    def _wake(self) -> None:
        if self._freed is not None:
            self._freed.set()
            self._freed = None
        if self._pool is not None:
            self._pool.rested = self._pool.clock()
            if self._timer is None:
                self._timer = call_later(self._idle_stop, self._idle)

    def _idle(self) -> None:
        """Ends the processes, or looks again: a timer for each step would cost more."""
        self._timer = None
        if self._pool is not None:
            since = self._pool.clock() if self._busy else self._pool.rested
            if (remaining := since + self._idle_stop - self._pool.clock()) > 0:
                self._timer = call_later(remaining, self._idle)
            else:
                self._stopping = Background(self._stop)

    async def _opened(self) -> "_Processes":
        async with self._opening:
            if self._pool is not None:
                return self._pool
            try:
                self._pool = await anyio.to_thread.run_sync(_Processes, self._workers, loop_clock())
            except (ImportError, OSError, RuntimeError) as error:
                message = f"code cannot run, its engine does not start: {error}. Install it again: {with_extra('code')}"
                raise CodeError("unavailable", message) from error
            return self._pool

    async def _stop(self) -> None:
        for session in tuple(self._resting):
            await session.park()
        async with self._opening:
            if self._pool is not None and not self._busy and not self._resting:
                pool, self._pool = self._pool, None
                await anyio.to_thread.run_sync(pool.close)


class _Processes:
    """The engine's processes: one at first, others as they are needed."""

    def __init__(self, workers: int, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.rested = clock()  # when the last step ended
        self._worker: Callable[[Monty], CodeWorker] = import_module(_WORKER).CodeWorker
        self._program = _silenced()
        try:
            self._pool = _started(workers, self._program)
        except RuntimeError:  # programs cannot be started from memory
            if self._program is not None:
                os.close(self._program)
                self._program = None
            self._pool = _started(workers, None)

    def worker(self) -> "CodeWorker":
        return self._worker(self._pool)

    def close(self) -> None:
        try:
            self._pool.__exit__(None, None, None)
        finally:
            if self._program is not None:
                os.close(self._program)


def _started(workers: int, program: int | None) -> "Monty":
    """The processes, of which the first has run. Raises `RuntimeError`."""
    package = import_module(_PACKAGE)
    path = None if program is None else f"/proc/self/fd/{program}"
    pool: Monty = package.Monty(
        binary_path=path,
        min_processes=1,
        max_processes=workers,
        checkout_timeout=_CHECKOUT,
        feed_duration_limit_grace=_CHECK,
    ).__enter__()
    try:
        with pool.checkout():
            return pool
    except package.MontyError as error:
        pool.__exit__(None, None, None)
        raise RuntimeError(f"the engine's program cannot be started: {error}") from error


def _silenced() -> int | None:
    """A program in memory: the engine's without its standard error, which says numbers and texts of scripts.

    Its descriptor is inherited, since a shell reads it; Python closes it in what the hub starts otherwise.
    """
    engine = Path(sysconfig.get_path("scripts")) / "monty"
    if sys.platform == "linux" and engine.is_file():
        program = os.memfd_create("mcp-hub-code", os.MFD_ALLOW_SEALING)
        os.set_inheritable(program, True)
        os.write(program, f'#!/bin/sh\nexec {shlex.quote(str(engine))} "$@" 2>/dev/null\n'.encode())
        fcntl.fcntl(program, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK)
        return program
    return None


class _Turn:
    """Work for a thread. `bell` rings once it is done, or given up."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.bell = Bell()
        self.is_given_up = False
        self.error: BaseException | None = None
        self._work = work

    def run(self) -> None:
        try:
            if not self.is_given_up:
                self._work()
        except BaseException as error:
            self.error = error


class _Thread:
    """Works for one worker until `end`. `anyio.to_thread` would cost as much as a step."""

    def __init__(self, kill: Callable[[], None]) -> None:
        self._kill = kill
        self._turns: SimpleQueue[_Turn | None] = SimpleQueue()
        self._enter = entrance()
        threading.Thread(target=self._run, name="mcp-hub-code").start()

    async def run(self, work: Callable[[], _T], seconds: float | None = None) -> _T:
        """The result of `work`. If it is late or cancelled, kills the worker and waits for the thread.

        Raises `TimeoutError`.
        """
        results: list[_T] = []
        turn = _Turn(lambda: results.append(work()))
        self._turns.put(turn)
        try:
            if not await turn.bell.wait(seconds):
                raise TimeoutError
        except BaseException:
            turn.is_given_up = True
            with anyio.CancelScope(shield=True):
                self._kill()
                await turn.bell.wait(_END)
            raise
        if turn.error is not None:
            raise turn.error
        return results[0]

    def end(self) -> None:
        """Ends the thread after its turn."""
        self._turns.put(None)

    def _run(self) -> None:
        while threading.main_thread().is_alive():
            with suppress(Empty):
                if (turn := self._turns.get(timeout=_LOOK)) is None:
                    return
                turn.run()
                with suppress(RuntimeError):  # the loop is closed
                    self._enter(turn.bell.ring)


def _ignore(text: str) -> None:
    """Nothing is printed."""

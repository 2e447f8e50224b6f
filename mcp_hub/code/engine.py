"""Sessions of scripts, and the workers they take turns on."""

import threading
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache, partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import anyio
import anyio.to_thread
import msgspec

from mcp_hub.aio import Background, Timer, call_later
from mcp_hub.errors import HubError
from mcp_hub.extras import with_extra
from mcp_hub.types import JsonObject, RawJson

if TYPE_CHECKING:
    from mcp_hub.code.worker import Pool, Worker

_T = TypeVar("_T")

_WORKER: Final = "mcp_hub.code.worker"
_CHECK: Final = 20.0
"""Seconds that a check of types may take."""
_GRACE: Final = 3.0
"""Seconds beside a script's own for a turn."""
_END: Final = 10.0
"""Seconds for a killed worker's thread to return."""
_FORMAT: Final = 1

CodeErrorKind = Literal["unavailable", "syntax", "types", "raised", "limit", "crashed", "not_resumable"]


class CodeLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one run, keys of `hub.code_limits`; bytes and seconds. `seconds`: of its own computing, over all loads.

    `parallel` and `silence` are for who sends the calls.
    """

    memory: int = 64 << 20
    seconds: float = 10.0
    calls: int = 200
    parallel: int = 8
    silence: float = 300.0
    output: int = 1 << 20
    printed: int = 1 << 20
    snapshot: int = 1 << 20


class CodeError(HubError):
    """A script that cannot run or go on. `line` is 0 where none is known, `source` its text.

    `key` names a reached limit of `hub.code_limits`, `exception` the class of what a script raised.
    `problems`: lines and reasons of a check.
    """

    def __init__(
        self,
        kind: CodeErrorKind,
        message: str,
        *,
        line: int = 0,
        source: str = "",
        key: str = "",
        exception: str = "",
        problems: tuple[tuple[int, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.line = line
        self.source = source
        self.key = key
        self.exception = exception
        self.problems = problems


class CodeRaise(msgspec.Struct, frozen=True):
    """An exception at a call's `await`. `data`: `tool` and `arguments` of `OutcomeUnknown`, `code` of `ToolError`."""

    kind: Literal[
        "ToolError", "OutcomeUnknown", "PermissionError", "TimeoutError", "NameError", "TypeError", "ValueError"
    ]
    message: str
    data: JsonObject | None = None


class CodeCall(msgspec.Struct, frozen=True):
    """A call that a script waits for. `asyncio.sleep` has `{"seconds": …}`."""

    id: int
    name: str
    arguments: RawJson
    line: int


class CodeStep(msgspec.Struct, frozen=True, kw_only=True):
    """A script that waits for answers to `pending`, or has ended with `output`. `line`: where it waits, 0 if unknown.

    `seconds` and `sum_of_calls`: used by the run so far.
    """

    calls: tuple[CodeCall, ...] = ()
    pending: tuple[int, ...] = ()
    snapshot: bytes = b""
    line: int = 0
    output: RawJson | None = None
    has_ended: bool = False
    seconds: float = 0.0
    sum_of_calls: int = 0


@lru_cache(1)
def engine_version() -> str:
    """The version that a snapshot needs, such as `monty 1.4.0 1`; empty without the extra."""
    try:
        return f"monty {version('pydantic-monty-runtime')} {_FORMAT}"
    except PackageNotFoundError:
        return ""


def is_available() -> bool:
    return find_spec("pydantic_monty") is not None


class CodeSession:
    """One run of a script. It has a worker from its first step on; between steps another session may take it."""

    def __init__(self, engine: "CodeEngine") -> None:
        self._engine = engine
        self._worker: Worker | None = None
        self._state = b""
        self._limits = CodeLimits()
        self._printed: Callable[[str], None] = _ignore
        self._lock = anyio.Lock()
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
            return await self._step(lambda worker: worker.start(code, stubs, frozenset(names), limits), _CHECK)

    async def load(self, snapshot: bytes, limits: CodeLimits, printed: Callable[[str], None]) -> CodeStep:
        """The run as it was at `snapshot`, without new calls. Raises `CodeError`, `not_resumable` for foreign bytes."""
        self._limits, self._printed = limits, printed
        async with self._lock:
            return await self._step(lambda worker: worker.load(snapshot, limits))

    async def feed(self, answers: Mapping[int, RawJson | CodeRaise]) -> CodeStep:
        """Goes on with answers to some or all of `pending`. Raises `CodeError`."""
        async with self._lock:
            if self._worker is None:
                state = self._state
                await self._step(lambda worker: worker.load(state, self._limits))
            return await self._step(lambda worker: worker.feed(answers))

    async def check(self, code: str, stubs: str) -> None:
        """Checks syntax and types; runs nothing. Raises `CodeError`."""
        async with self._lock:
            await self._step(lambda worker: worker.check(code, stubs), _CHECK)

    async def park(self) -> None:
        """Gives the worker back until the next `feed`."""
        with anyio.CancelScope(shield=True):
            async with self._lock:
                worker, self._worker = self._worker, None
                if worker is not None:
                    try:
                        await anyio.to_thread.run_sync(worker.close)
                    finally:
                        self._engine.release(self)

    async def close(self) -> None:
        """Ends the run, also a step that another task waits for. Idempotent."""
        self._is_closed = True
        if self._is_stepping and self._worker is not None:
            self._worker.kill()
        await self.park()

    async def _step(self, work: Callable[["Worker"], CodeStep], seconds: float = 0.0) -> CodeStep:
        if self._is_closed:
            raise CodeError("crashed", "the run is closed")
        if self._worker is None:
            self._worker = await self._engine.worker_for(self)
        worker = self._worker
        self._engine.occupy(self)
        self._is_stepping = True
        try:
            with anyio.fail_after(self._limits.seconds + _GRACE + seconds):
                step = await _Turn(worker).run(partial(work, worker))
        except TimeoutError:
            message = f"the script ran longer than {self._limits.seconds:g} s"
            raise CodeError("limit", message, key="seconds") from None
        finally:
            self._is_stepping = False
            for text in worker.take_printed():
                self._printed(text)
        self._state = step.snapshot
        self._engine.rest(self)
        return step


class CodeEngine:
    """At most `workers` processes, started at the first use, ended after `idle_stop` seconds without a session.

    A session that waits for answers lends its worker to one that has none.
    """

    def __init__(self, workers: int = 4, idle_stop: float = 60.0) -> None:
        self._most = workers
        self._idle_stop = idle_stop
        self._pool: Pool | None = None
        self._opening = anyio.Lock()
        self._freed = anyio.Event()
        self._busy: set[CodeSession] = set()
        self._resting: dict[CodeSession, None] = {}
        self._timer: Timer | None = None
        self._stopping: Background | None = None

    def session(self) -> CodeSession:
        """A run to be started. Raises `CodeError` (`unavailable`) without the extra."""
        if not is_available():
            raise CodeError("unavailable", f"code cannot run here, the extra is missing: {with_extra('code')}")
        return CodeSession(self)

    async def close(self) -> None:
        """Ends all sessions and workers. Idempotent."""
        with anyio.CancelScope(shield=True):
            for session in (*self._busy, *self._resting):
                await session.close()
            await self._stop()

    @property
    def is_running(self) -> bool:
        return self._pool is not None

    async def worker_for(self, session: CodeSession) -> "Worker":
        """A worker for `session`, as soon as there is one."""
        while len(self._busy) + len(self._resting) >= self._most:
            if self._resting:
                await next(iter(self._resting)).park()
            else:
                await self._freed.wait()
        self._busy.add(session)
        self._cancel_timer()
        try:
            pool = await self._opened()
            return await anyio.to_thread.run_sync(pool.worker)
        except BaseException:
            self.release(session)
            raise

    def occupy(self, session: CodeSession) -> None:
        """The session runs."""
        self._resting.pop(session, None)
        self._busy.add(session)

    def rest(self, session: CodeSession) -> None:
        """The session waits, and its worker may be taken."""
        self._busy.discard(session)
        self._resting[session] = None
        self._wake()

    def release(self, session: CodeSession) -> None:
        """The session has no worker any more."""
        self._busy.discard(session)
        self._resting.pop(session, None)
        self._wake()
        if self._pool is not None and not self._busy and not self._resting:
            self._cancel_timer()
            self._timer = call_later(self._idle_stop, self._idle)

    def _wake(self) -> None:
        freed, self._freed = self._freed, anyio.Event()
        freed.set()

    def _idle(self) -> None:
        self._stopping = Background(self._stop)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    async def _opened(self) -> "Pool":
        async with self._opening:
            if self._pool is None:
                module = await anyio.to_thread.run_sync(import_module, _WORKER)
                pool: Pool = module.Pool(self._most)
                await anyio.to_thread.run_sync(pool.open)
                self._pool = pool
            return self._pool

    async def _stop(self) -> None:
        self._cancel_timer()
        async with self._opening:
            if self._pool is not None and not self._busy and not self._resting:
                pool, self._pool = self._pool, None
                await anyio.to_thread.run_sync(pool.close)


class _Turn:
    """Work of a worker in a thread. A cancelled one kills the worker and waits for the thread."""

    def __init__(self, worker: "Worker") -> None:
        self._worker = worker
        self._lock = threading.Lock()
        self._finished = threading.Event()
        self._has_begun = False
        self._is_cancelled = False

    async def run(self, work: Callable[[], _T]) -> _T:
        try:
            return await anyio.to_thread.run_sync(self._work, work, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._end()
            raise

    async def _end(self) -> None:
        with self._lock:
            self._is_cancelled = True
        if self._has_begun:
            self._worker.kill()
            await anyio.to_thread.run_sync(self._finished.wait, _END)

    def _work(self, work: Callable[[], _T]) -> _T:
        with self._lock:
            if self._is_cancelled:
                raise CodeError("crashed", "the run was cancelled")
            self._has_begun = True
        try:
            return work()
        finally:
            self._finished.set()


def _ignore(text: str) -> None:
    """Nothing is printed."""

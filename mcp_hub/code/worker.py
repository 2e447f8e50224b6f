"""One script in one process: runs it until it waits for answers. Synchronous; used by one thread at a time.

Time is counted while the process works for the script, over all loads, with the check of types left out.
"""

import hashlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from difflib import get_close_matches
from time import perf_counter
from typing import Final, TypeAlias

import msgspec
from pydantic_monty import (
    ExcType,
    ExternalExceptionData,
    ExternalSettledResult,
    FunctionSnapshot,
    FutureSnapshot,
    Monty,
    MontyComplete,
    MontyCrashedError,
    MontyError,
    MontyRuntimeError,
    MontySession,
    MontySyntaxError,
    MontyTypingError,
    NameLookupSnapshot,
)

from mcp_hub.code.diagnostics import limit_of, mistakes
from mcp_hub.code.source import DECLARATIONS, MODULES, PRELUDE, bound_in, line_at, line_of, rewritten
from mcp_hub.code.steps import CodeCall, CodeError, CodeLimits, CodeRaise, CodeStep, engine_version
from mcp_hub.code.values import TOO_LARGE, checked_arguments, cost, encoded_output
from mcp_hub.masking import hide_head
from mcp_hub.types import RawJson

_Snapshot: TypeAlias = FunctionSnapshot | NameLookupSnapshot | FutureSnapshot | MontyComplete

_RECURSION: Final = 400
_PER_CALL: Final = 8
"""Suspensions per call of the limit: futures, looked-up names and refused calls count, too."""
_PER_BYTE: Final = 3
"""Our bytes of values per byte of the engine that they at most fill."""
_MOST_MESSAGE: Final = 2000
_SCRIPT: Final = "<python-input-1>"
"""The engine's name for the script, which is the second text that it gets."""
_STOP: Final = "hub_begin"
_DATA: Final = "hub_data"
_CLASSES: Final[dict[str, ExcType]] = {
    **{"ToolError": "_csv.Error", "OutcomeUnknown": "binascii.Incomplete", "PermissionError": "PermissionError"},
    **{"TimeoutError": "TimeoutError", "NameError": "NameError", "TypeError": "TypeError", "ValueError": "ValueError"},
}
"""The engine has no classes that inherit; two rare ones of its own stand for ours."""
_NAMES: Final = {"Error": "ToolError", "Incomplete": "OutcomeUnknown"}
_UNSUPPORTED: Final = re.compile(r"^The monty syntax parser does not yet support (?:the )?")
_INTERNAL: Final = "Internal error in monty: "


class _State(msgspec.Struct, array_like=True):
    """The content of a snapshot."""

    version: str
    code: str
    names: tuple[str, ...]
    seconds: float = 0.0
    calls: int = 0
    suspensions: int = 0
    printed: int = 0
    dump: bytes = b""
    data: dict[str, bytes] = {}
    """Further members of exceptions, by the digest of their text."""


class CodeWorker:
    """A run that occupies a process from its first step until `close`."""

    def __init__(self, pool: Monty) -> None:
        self._pool = pool
        self._session: MontySession | None = None
        self._pid: int | None = None
        self._pidfd: int | None = None
        self._lock = threading.Lock()
        self._limits = CodeLimits()
        self._state = _State("", "", ())
        self._snapshot: _Snapshot | None = None
        self._calls: list[CodeCall] = []
        self._printed: list[str] = []

    def prepare(self, code: str, stubs: str, names: Collection[str], limits: CodeLimits) -> CodeStep:
        """Checks syntax and types; runs nothing."""
        with self._lock:
            self._limits = limits
            try:
                self._snapshot = self._checked(code, stubs, names)
            except MontyError as error:
                raise self._translated(error) from None
            return CodeStep(has_ended=True)

    def begin(self) -> CodeStep:
        """Runs what was prepared."""
        with self._lock:
            prepared = self._snapshot
            assert isinstance(prepared, FunctionSnapshot)
            try:
                return self._drive(self._timed(lambda: prepared.resume({"return_value": None})))
            except MontyError as error:
                raise self._translated(error) from None

    def load(self, snapshot: bytes, limits: CodeLimits) -> CodeStep:
        with self._lock:
            self._limits = limits
            try:
                self._state = msgspec.msgpack.decode(snapshot, type=_State)
            except (msgspec.DecodeError, msgspec.ValidationError):
                raise CodeError("not_resumable", "the state of the script cannot be read") from None
            if self._state.version != engine_version():
                message = f"the script was begun by {self._state.version}, and this is {engine_version()}"
                raise CodeError("not_resumable", message)
            try:
                self._enter("")
                assert self._session is not None
                waiting = self._session.load_snapshot(self._state.dump, print_callback=self._print)
                if not isinstance(waiting, FutureSnapshot):
                    raise CodeError("not_resumable", "the script's state does not wait for a call")
                return self._waiting(waiting)
            except MontyCrashedError as error:
                raise self._translated(error) from None
            except (MontyError, RuntimeError, ValueError) as error:
                raise CodeError("not_resumable", f"the engine refused the script's state: {error}") from None

    def feed(self, answers: Mapping[int, RawJson | CodeRaise]) -> CodeStep:
        """Continues. Answers to what is not pending are ignored."""
        with self._lock:
            waiting = self._snapshot
            assert isinstance(waiting, FutureSnapshot)
            pending = waiting.pending_call_ids
            values = (answer for answer in answers.values() if not isinstance(answer, CodeRaise))
            if sum(cost(bytes(value)) for value in values) > _PER_BYTE * self._limits.memory:
                raise self._limit("memory", self._over("memory"))
            results = {number: self._settled(answer) for number, answer in answers.items() if number in pending}
            self._calls = []
            try:
                return self._drive(self._timed(lambda: waiting.resume(results))) if results else self._waiting(waiting)
            except MontyError as error:
                raise self._translated(error) from None

    def close(self) -> None:
        """Gives the process back, after the running turn."""
        with self._lock:
            self._snapshot = None
            session, self._session = self._session, None
            self._pid = None
            if session is not None:
                with suppress(MontyError, RuntimeError):  # its process has ended before
                    session.__exit__(None, None, None)
            if self._pidfd is not None:
                os.close(self._pidfd)
                self._pidfd = None

    def kill(self) -> None:
        """Ends the process, from any thread; the turn then raises `CodeError`."""
        with suppress(ProcessLookupError):
            if sys.platform == "linux" and self._pidfd is not None:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)  # its number may be another's by then
            elif self._pid is not None:
                os.kill(self._pid, signal.SIGTERM)  # an engine that computes does not delay it

    def take_printed(self) -> list[str]:
        """Texts since the last time."""
        printed, self._printed = self._printed, []
        return printed

    def _enter(self, stubs: str) -> None:
        session = self._pool.checkout(
            script_name="script.py",
            limits={
                "max_memory": self._limits.memory,
                "max_feed_duration_secs": max(self._limits.seconds - self._state.seconds, 0.01),
                "max_recursion_depth": _RECURSION,
                "max_suspensions": self._most_suspensions + 10,
            },
            type_check=True,
            type_check_stubs=f"{DECLARATIONS}\n{stubs}",
            type_check_format="json",
            os_policy={"sleep": "call_host"},
        )
        self._session = session.__enter__()
        self._pid = session.worker_pid
        if sys.platform == "linux" and self._pid is not None:
            self._pidfd = os.pidfd_open(self._pid)

    def _checked(self, code: str, stubs: str, names: Collection[str]) -> FunctionSnapshot:
        """The script before its first line, checked."""
        self._state = _State(engine_version(), rewritten(code, f"{_STOP}()"), tuple(sorted(names)))
        shadowed = [f"{name}: _t.Any\n" for name in sorted(bound_in(code).intersection(names))]
        self._enter(f"{stubs}\n{''.join(shadowed)}")
        session = self._session
        assert session is not None
        session.feed_run(PRELUDE, print_callback=self._print, skip_type_check=True)
        try:
            return self._begun(session, is_checked=True)
        except MontyTypingError as error:
            problem = mistakes(error.display(), self._state.code, names)
            if problem is not None:
                raise problem from None
        return self._begun(session, is_checked=False)

    def _begun(self, session: MontySession, *, is_checked: bool) -> FunctionSnapshot:
        waiting = session.feed_start(self._state.code, print_callback=self._print, skip_type_check=not is_checked)
        while isinstance(waiting, FunctionSnapshot) and waiting.function_name == "import_stubs":
            waiting = waiting.resume_not_handled()
        assert isinstance(waiting, FunctionSnapshot)
        assert waiting.function_name == _STOP
        return waiting

    @property
    def _most_suspensions(self) -> int:
        return self._limits.calls * _PER_CALL + 100

    def _drive(self, waiting: _Snapshot) -> CodeStep:
        """Answers what can be answered at once, until nothing is left."""
        while not isinstance(waiting, FutureSnapshot | MontyComplete):
            self._count()
            waiting = self._answered(waiting)
        if isinstance(waiting, FutureSnapshot):
            self._count()
            return self._waiting(waiting)
        return self._ended(waiting)

    def _answered(self, waiting: FunctionSnapshot | NameLookupSnapshot) -> _Snapshot:
        if isinstance(waiting, NameLookupSnapshot):
            name = waiting.variable_name
            if waiting.object_id is None and name in self._state.names:
                return self._timed(lambda: waiting.resume(value=_Callable(name)))
            return self._timed(waiting.resume)
        if waiting.function_name == _DATA:
            data = self._state.data.get(_digest(str(waiting.args[0]))) if waiting.args else None
            return self._timed(lambda: waiting.resume({"return_value": data and msgspec.json.decode(data)}))
        if waiting.is_os_function and waiting.function_name != "asyncio.sleep":
            refusal = _os_refusal(waiting)
            return self._timed(lambda: waiting.resume(refusal) if refusal is not None else waiting.resume_not_handled())
        refusal = self._call(waiting)
        return self._timed(lambda: waiting.resume({"future": ...} if refusal is None else refusal))

    def _call(self, waiting: FunctionSnapshot) -> ExternalExceptionData | None:
        """Notes a call; the exception to raise in the script if it cannot be made."""
        name, arguments = waiting.function_name, waiting.kwargs
        if waiting.is_os_function:
            seconds = waiting.args[0] if waiting.args else 0.0
            arguments = {"seconds": max(seconds, 0.0) if seconds == seconds else 0.0}
        elif name not in self._state.names or waiting.object_id is not None:
            return {"exc_type": "NameError", "message": f"name '{name}' is not defined{self._like(name)}"}
        elif waiting.args:
            return {"exc_type": "TypeError", "message": f"{name}() takes keyword arguments only"}
        used = sum(len(call.arguments) for call in self._calls)
        try:
            encoded = checked_arguments(name, arguments, used, self._limits.output)
        except ValueError as error:
            return {"exc_type": "TypeError", "message": str(error)}
        self._state.calls += 1
        if self._state.calls > self._limits.calls:
            raise self._limit("calls", self._over("calls"), self._line(waiting))
        self._calls.append(CodeCall(waiting.call_id, name, encoded, self._line(waiting)))
        return None

    def _settled(self, answer: RawJson | CodeRaise) -> ExternalSettledResult:
        if not isinstance(answer, CodeRaise):
            try:
                return {"return_value": msgspec.json.decode(answer)}
            except (msgspec.DecodeError, RecursionError):
                answer = CodeRaise("ToolError", TOO_LARGE)
        if answer.data:  # an exception of the engine has a text alone
            self._state.data[_digest(answer.message)] = msgspec.json.encode(answer.data)
        return {"exc_type": _CLASSES[answer.kind], "message": answer.message}

    def _count(self) -> None:
        self._state.suspensions += 1
        if self._state.suspensions > self._most_suspensions:
            raise self._limit("calls", self._over("calls"))
        if self._state.seconds > self._limits.seconds:
            raise self._limit("seconds", self._over("seconds"))

    def _waiting(self, waiting: FutureSnapshot) -> CodeStep:
        self._snapshot = waiting
        self._state.dump = waiting.dump()
        snapshot = msgspec.msgpack.encode(self._state)
        if len(snapshot) > self._limits.snapshot:
            message = f"the state of the script is {len(snapshot)} bytes, the limit is {self._limits.snapshot}"
            raise self._limit("snapshot", message, self._line(waiting))
        return CodeStep(
            calls=tuple(self._calls),
            pending=tuple(sorted(waiting.pending_call_ids)),
            snapshot=snapshot,
            line=self._line(waiting),
            seconds=self._state.seconds,
            sum_of_calls=self._state.calls,
        )

    def _ended(self, complete: MontyComplete) -> CodeStep:
        try:
            output = encoded_output(complete.output, self._limits.output)
        except ValueError as error:
            raise self._limit("output", str(error)) from None
        return CodeStep(output=output, has_ended=True, seconds=self._state.seconds, sum_of_calls=self._state.calls)

    def _timed(self, work: Callable[[], _Snapshot]) -> _Snapshot:
        begun = perf_counter()
        try:
            return work()
        finally:
            self._state.seconds += perf_counter() - begun

    def _print(self, stream: str, text: str) -> None:
        is_long = len(text) > self._limits.printed
        self._state.printed += len(text if is_long else text.encode("utf-8", "surrogatepass"))
        if self._state.printed <= self._limits.printed:
            self._printed.append(text)
        else:
            self.kill()  # an exception would reach the script only when it waits

    def _line(self, waiting: FunctionSnapshot | FutureSnapshot) -> int:
        position = waiting.position
        return line_of(self._state.code, position.start) - 1 if position.filename == _SCRIPT else 0

    def _like(self, name: str) -> str:
        close = get_close_matches(name, self._state.names, 1)
        return f"; did you mean {close[0]}?" if close else ""

    def _limit(self, key: str, message: str, line: int = 0) -> CodeError:
        source = line_at(self._state.code, line + 1) if line else ""
        return CodeError("limit", f"{message} (hub.code_limits.{key})", key=key, line=line, source=source)

    def _over(self, key: str) -> str:
        limits = self._limits
        return {
            "seconds": f"the script computes longer than {limits.seconds:g} s",
            "memory": f"the script needs more memory than {limits.memory >> 20} MiB",
            "calls": f"the script makes more than {limits.calls} calls",
            "printed": f"the script prints more than {limits.printed} bytes",
        }[key]

    def _translated(self, error: MontyError) -> CodeError:
        if isinstance(error, MontyCrashedError):
            if self._state.printed > self._limits.printed:
                return self._limit("printed", self._over("printed"))
            if error.timed_out:
                return self._limit("seconds", self._over("seconds"))
            return CodeError("crashed", f"the script's process ended: {error}")
        if isinstance(error, MontyRuntimeError | MontySyntaxError):
            return self._raised(error)
        return CodeError("raised", hide_head(str(error), _MOST_MESSAGE))

    def _raised(self, error: MontyRuntimeError | MontySyntaxError) -> CodeError:
        exception = error.exception()
        message = hide_head(str(exception), _MOST_MESSAGE).removeprefix(_INTERNAL)
        frames = [frame for frame in error.traceback() if frame.filename == _SCRIPT]
        line = max(frames[-1].line - 1, 0) if frames else 0
        source = line_at(self._state.code, line + 1) if line else ""
        kind = type(exception).__name__
        if (key := limit_of(kind, message)) is not None:
            return self._limit(key, self._over(key), line)
        if isinstance(error, MontySyntaxError) or _UNSUPPORTED.match(message):
            reason = _UNSUPPORTED.sub("", message)
            message = message if reason == message else f"{reason} cannot be used in these scripts"
            return CodeError("syntax", message, line=line, source=source, problems=((line, message),))
        name = _NAMES.get(kind, kind)
        return CodeError("raised", message, line=line, source=source, exception=name)


def _os_refusal(waiting: FunctionSnapshot) -> ExternalExceptionData | None:
    name = waiting.function_name
    if name == "time.sleep":
        return {"exc_type": "RuntimeError", "message": "use await asyncio.sleep(seconds) in place of time.sleep"}
    if name == "import":
        module = hide_head(str(waiting.args[0]), 100) if waiting.args else ""
        message = f"No module named '{module}'; there are {MODULES}"
        return {"exc_type": "ModuleNotFoundError", "message": message}
    return None


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).hexdigest()


class _Callable:
    """A function, of which the engine takes the name."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self) -> None:
        """The engine asks for the call."""

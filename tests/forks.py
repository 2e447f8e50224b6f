"""`--forks N`: collects the tests once, and runs their files in N processes that are forked then.

With xdist every process collects all tests, which takes each half a minute. A process takes the next file when it is
done with one; those that took longest in the last run come first. A process that ends in a test fails that test, and
another one continues its file; one whose test takes longer than `--forks-limit` seconds is killed. Each is the leader
of a session of its own: what a test does to its group reaches nobody else, and what stays behind in it is killed.
"""

import atexit
import os
import signal
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Final, Literal, NoReturn

import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory

_TIMES: Final = "forks/seconds"
"""The place in pytest's cache of the seconds that each file took."""
_LIMIT: Final = 900.0
"""Seconds that a test may take, on a slow machine that others use, too."""
_PATIENCE: Final = 10.0
"""Seconds in which a process ends that is asked to."""
_LEAVING: Final = 5.0
"""Seconds in which those end that a process has left behind: they notice that it is away."""

Files = dict[str, list[pytest.Item]]
_Message = tuple[str, int] | int | str | dict[str, object] | None
"""To a process the next file and the first test to run; from it the test that begins, a report, why it ends, or None
behind the last test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the files in N forked processes")
    parser.addoption("--forks-limit", type=float, default=_LIMIT, metavar="S", help="seconds that a test may take")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    option = session.config.option
    if option.forks < 2 or session.testsfailed or option.collectonly or option.usepdb:
        return None
    files: Files = {}
    for item in session.items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    run = _Run(session, files)
    with _interruptible():
        try:
            run.all(min(option.forks, len(files)))
        finally:
            run.close()
    return True


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ends the processes, too, when this one is asked to end."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Relay:
    """Sends the reports of this process to the first one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


class _Worker:
    """A process, its `file`, and the number of the test that it runs. `since` is when it was heard last."""

    def __init__(self, pid: int, connection: Connection, name: str) -> None:
        self.pid = pid
        self.handle = os.pidfd_open(pid)
        self.connection = connection
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=name)
        self.file, self.at = "", 0
        self.item: pytest.Item | None = None
        self.why = ""
        self.since = time.monotonic()
        self.is_overdue = False

    def end(self) -> int:
        """Waits until it has ended, and those that it left behind. Returns its exit code."""
        self.connection.close()
        if not wait([self.handle], _PATIENCE):
            os.kill(self.pid, signal.SIGKILL)
        os.close(self.handle)
        _, status = os.waitpid(self.pid, 0)
        last = time.monotonic() + _LEAVING
        with suppress(ProcessLookupError, PermissionError):
            while time.monotonic() < last:
                os.killpg(self.pid, 0)
                time.sleep(0.05)
            os.killpg(self.pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(status)


class _Run:
    """The processes, and the files that none of them has taken, with the first test to run."""

    def __init__(self, session: pytest.Session, files: Files) -> None:
        self._session = session
        self._config = session.config
        self._files = files
        self._seconds = Counter[str]()
        self._cache = self._config.cache if self._config.pluginmanager.hasplugin("cacheprovider") else None
        before = {} if self._cache is None else self._cache.get(_TIMES, {})
        order = sorted(files, key=lambda file: -before.get(file, 0.0))
        self._waiting = deque((file, 0) for file in order)
        self._workers: list[_Worker] = []
        self._number = 0
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made before the processes

    def all(self, count: int) -> None:
        for _ in range(count):
            self._fork()
        while self._workers:
            places = [place for worker in self._workers for place in (worker.connection, worker.handle)]
            ready = wait(places, 1.0)
            for worker in list(self._workers):
                if worker.connection in ready:
                    self._hear(worker)
                elif worker.handle in ready:  # a process that it has left behind holds the connection
                    self._lost(worker)
                else:
                    self._look(worker)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)
        if self._cache is not None:
            self._cache.set(_TIMES, {**self._cache.get(_TIMES, {}), **self._seconds})

    def close(self) -> None:
        """Ends the processes that are left after an interruption; a second one kills them."""
        try:
            for worker in self._workers:
                worker.connection.close()
                signal.pidfd_send_signal(worker.handle, signal.SIGINT)
            while self._workers:
                self._workers[-1].end()
                self._workers.pop()
        finally:
            for worker in self._workers:
                with suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)

    def _fork(self) -> None:
        ours, theirs = Pipe()
        self._number += 1
        name = f"w{self._number}"
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *(worker.connection for worker in self._workers)):
                connection.close()
            _work(self._session, self._files, theirs, name)
        theirs.close()
        worker = _Worker(pid, ours, name)
        self._workers.append(worker)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        is_over = not self._waiting or self._session.shouldfail or self._session.shouldstop
        worker.file, worker.at = ("", 0) if is_over else self._waiting.popleft()
        with suppress(OSError):  # it has ended, which is noticed in a moment
            worker.connection.send((worker.file, worker.at))

    def _hear(self, worker: _Worker) -> None:
        try:
            message: _Message = worker.connection.recv()
        except (EOFError, OSError):
            self._lost(worker)
            return
        worker.since = time.monotonic()
        if message is None:
            self._give(worker)
        elif isinstance(message, int):
            worker.at, worker.item = message, self._files[worker.file][message]
        elif isinstance(message, str):
            worker.why = message
        else:
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=message)
            self._seconds[worker.file] += report.duration
            self._report(worker, report)

    def _report(self, worker: _Worker, report: pytest.TestReport) -> None:
        report.node = worker.node  # type: ignore[attr-defined]  # as of xdist: the terminal shows no file per letter
        self._config.hook.pytest_runtest_logreport(report=report)

    def _look(self, worker: _Worker) -> None:
        """Kills a process whose test hangs: first so that it prints what it does."""
        limit: float = self._config.option.forks_limit
        silent = time.monotonic() - worker.since
        if silent > limit + _PATIENCE:
            signal.pidfd_send_signal(worker.handle, signal.SIGKILL)
        elif silent > limit and not worker.is_overdue:
            worker.is_overdue, worker.why = True, f"it took longer than {limit:g} s (--forks-limit)"
            signal.pidfd_send_signal(worker.handle, signal.SIGABRT)

    def _lost(self, worker: _Worker) -> None:
        """The process has ended: after its last file, or in the middle of a test. Raises: `RuntimeError`."""
        self._workers.remove(worker)
        status = worker.end()
        if not worker.file and status == 0:
            return
        reason = f"its process has ended: {status}" + (f"\n{worker.why}" if worker.why else "")
        if worker.item is None:
            raise RuntimeError(f"before its first test, {reason}")
        if not worker.file:  # of fixtures of the session
            self._report(worker, _failed(worker.item, "teardown", reason))
            return
        self._report(worker, _failed(self._files[worker.file][worker.at], "call", reason))
        if worker.at + 1 < len(self._files[worker.file]):
            self._waiting.appendleft((worker.file, worker.at + 1))
        if self._waiting:
            self._fork()


def _failed(item: pytest.Item, when: Literal["call", "teardown"], reason: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", reason, when)


def _work(session: pytest.Session, files: Files, connection: Connection, name: str) -> NoReturn:
    """Runs the files that it is given, in this process, until the name is empty."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        atexit._clear()
        _own_places(session.config, name)
        session.config.pluginmanager.register(_Relay(session.config, connection))
        while (task := connection.recv())[0]:
            _run_file(session, files[task[0]], task[1], connection)
            connection.send(None)
        session._setupstate.teardown_exact(None)
        code = 0
    except BaseException:  # interrupted, or by a hook or a fixture of the session
        with suppress(OSError):
            connection.send(traceback.format_exc())
        with suppress(BaseException):
            session._setupstate.teardown_exact(None)
    finally:
        with suppress(BaseException):
            atexit._run_exitfuncs()
        os._exit(code)


def _run_file(session: pytest.Session, items: list[pytest.Item], first: int, connection: Connection) -> None:
    for number in range(first, len(items)):
        if session.shouldfail or session.shouldstop:
            return
        connection.send(number)
        following = items[number + 1] if number + 1 < len(items) else session  # whose fixtures stay for the next file
        session.config.hook.pytest_runtest_protocol(item=items[number], nextitem=following)


def _own_places(config: pytest.Config, name: str) -> None:
    """Nothing goes to the terminal, captured output to files of this process, folders below one of its own."""
    config.pluginmanager.unregister(name="terminalreporter")
    capture = config.pluginmanager.getplugin("capturemanager")
    if isinstance(capture, CaptureManager) and capture.is_globally_capturing():
        capture.stop_global_capturing()
        capture.start_global_capturing()
    factory = config._tmp_path_factory  # type: ignore[attr-defined]
    assert isinstance(factory, TempPathFactory)
    factory._basetemp = factory.getbasetemp() / name
    factory._basetemp.mkdir()

"""`--forks N`: collects the tests once, and runs their files in N processes that are forked then.

With xdist every process collects all tests, which takes each half a minute. A process takes the next file when it is
done with one; those that took longest in the last run come first. A process that ends in a test fails that test.
"""

import atexit
import os
import signal
from collections import Counter, deque
from contextlib import suppress
from itertools import pairwise
from multiprocessing.connection import Connection, Pipe, wait
from types import SimpleNamespace
from typing import Final, NoReturn

import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory

_TIMES: Final = "forks/seconds"
"""The place in pytest's cache of the seconds that each file took."""

Files = dict[str, list[pytest.Item]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the files in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.option.forks
    if count < 2 or session.testsfailed or session.config.option.collectonly:
        return None
    files: Files = {}
    for item in session.items:
        files.setdefault(item.nodeid.partition("::")[0], []).append(item)
    run = _Run(session, files)
    try:
        run.all(min(count, len(files)))
    finally:
        run.close()
    return True


class _Relay:
    """Sends what happens to the tests of this process to the first one."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._connection.send(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._connection.send(self._config.hook.pytest_report_to_serializable(config=self._config, report=report))


class _Worker:
    """A process, its `file`, and the `test` that it runs."""

    def __init__(self, pid: int, connection: Connection, name: str) -> None:
        self.pid = pid
        self.connection = connection
        self.node = SimpleNamespace(gateway=SimpleNamespace(id=name), _workerinfocache=name)
        self.file = self.test = ""


class _Run:
    """The processes, and the files that none of them has taken."""

    def __init__(self, session: pytest.Session, files: Files) -> None:
        self._session = session
        self._config = session.config
        self._files = files
        self._seconds = Counter[str]()
        cache = self._config.cache
        before = {} if cache is None else cache.get(_TIMES, {})
        order = sorted(files, key=lambda file: -before.get(file, 0.0))
        self._waiting = deque(order)
        self._workers: dict[Connection, _Worker] = {}
        self._number = 0
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made before the processes

    def all(self, count: int) -> None:
        for _ in range(count):
            self._fork()
        while self._workers:
            for ready in wait(list(self._workers)):
                assert isinstance(ready, Connection)
                worker = self._workers[ready]
                try:
                    self._take(worker, ready.recv())
                except EOFError:
                    self._lost(worker)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._config.cache is not None:
            self._config.cache.set(_TIMES, {**self._config.cache.get(_TIMES, {}), **self._seconds})

    def close(self) -> None:
        """Ends the processes that are left after an interruption."""
        for worker in self._workers.values():
            with suppress(ProcessLookupError):
                os.kill(worker.pid, signal.SIGTERM)
            os.waitpid(worker.pid, 0)

    def _fork(self) -> None:
        ours, theirs = Pipe()
        self._number += 1
        name = f"w{self._number}"
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self._workers):
                connection.close()
            _work(self._session, self._files, theirs, name)
        theirs.close()
        worker = self._workers[ours] = _Worker(pid, ours, name)
        self._give(worker)

    def _give(self, worker: _Worker) -> None:
        worker.file = self._waiting.popleft() if self._waiting and not self._session.shouldfail else ""
        worker.connection.send(worker.file)

    def _take(self, worker: _Worker, message: object) -> None:
        if message is None:
            self._give(worker)
        elif isinstance(message, str):
            worker.test = message
        else:
            report = self._config.hook.pytest_report_from_serializable(config=self._config, data=message)
            self._seconds[worker.file] += report.duration
            report.node = worker.node  # as of xdist: the terminal shows no file for each letter
            self._config.hook.pytest_runtest_logreport(report=report)

    def _lost(self, worker: _Worker) -> None:
        """The process has ended: after its last file, or in the middle of a test."""
        del self._workers[worker.connection]
        worker.connection.close()
        _, status = os.waitpid(worker.pid, 0)
        if not worker.file:
            return
        reason = f"its process has ended: {os.waitstatus_to_exitcode(status)}"
        test = worker.test or worker.file
        location = (worker.file, None, test)
        for when in ("setup", "call"):
            outcome = "passed" if when == "setup" else "failed"
            report = pytest.TestReport(test, location, {}, outcome, reason if when == "call" else None, when)  # type: ignore[arg-type]
            report.node = worker.node  # type: ignore[attr-defined]
            self._config.hook.pytest_runtest_logreport(report=report)
        if self._waiting:
            self._fork()


def _work(session: pytest.Session, files: Files, connection: Connection, name: str) -> NoReturn:
    """Runs the files that it is given, in this process, until the name is empty."""
    code = 1
    try:
        atexit._clear()
        _own_places(session.config, name)
        session.config.pluginmanager.register(_Relay(session.config, connection))
        while file := connection.recv():
            for item, following in pairwise([*files[file], session]):  # whose fixtures stay for the next file
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            connection.send(None)
        session._setupstate.teardown_exact(None)
        atexit._run_exitfuncs()
        code = 0
    finally:
        os._exit(code)


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

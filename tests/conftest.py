"""Fixtures for every test, and the guard that keeps `make test-fast` free of other processes."""

import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from inspect import iscoroutinefunction

import pytest
import structlog
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from mcp_hub import logs, masking
from mcp_hub.aio import named_loop
from tests.captured import DATA, MISSING
from tests.examples import examples

# how long an input takes to draw or to try says nothing on a busy machine
settings.register_profile(
    "suite", max_examples=examples(80), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("suite")
os.environ["MCP_HUB_ATTACH"] = "never"  # no test leaves a hub behind; those about background hubs use --attach
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as of what a shell runs in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
logs.own_process()  # so that tests can capture what the hub logs; a host program is a process of its own


def _configure(configure: Callable[..., None], **settings: object) -> None:
    configure(**settings | {"cache_logger_on_first_use": False})


structlog.configure = partial(_configure, structlog.configure)
_started: list[str] = []


def _note_processes(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen" and arguments[0] != "uname":  # which `platform` runs, once
        _started.append(str(arguments[0]))


sys.addaudithook(_note_processes)


def pytest_configure(config: pytest.Config) -> None:
    """Every async test is run by anyio, so that no file has to say so."""
    config.option.anyio_mode = "auto"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves the cases of a test behind the `first` of them to `make proof`."""
    seen = Counter[str]()
    for item in items:
        first = item.get_closest_marker("first")
        if first is not None:
            test = item.nodeid.partition("[")[0]
            seen[test] += 1
            if seen[test] > first.args[0]:
                item.add_marker("proof")


class _Files(LoadFileScheduling):  # type: ignore[misc]
    """Tests of a file run in one process, and so do those that import SDKs of providers, which takes seconds."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        return "SDKs" if scope.startswith(_SDKS) else scope


_SDKS = tuple(f"tests/unit/formats/test_{name}" for name in ("format_", "connectors", "schema_rules"))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Files | None:
    return _Files(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_finish() -> None:
    """What is imported by now stays, so the collector need not look through all of it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips tests without their data here, so that the report has one line for all of them."""
    needed = item.get_closest_marker("data")
    if needed is not None and not (DATA / needed.args[0]).is_dir():
        pytest.skip(MISSING)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _apart(request: pytest.FixtureRequest) -> Iterator[None]:
    """One for all, since each costs 20,000 tests some time.

    * The loop has a name, as in a hub: what a test has without one works where `sniffio` is installed, too.
    * Loggers that a command in this process configures do not keep the stderr of its test.
    * What one test's configuration calls secret is plain text to the next.
    * A unit or property test that starts a process is marked so, because `make test-fast` leaves it out.
    """
    with named_loop() if iscoroutinefunction(request.function) else nullcontext():
        yield
    structlog.reset_defaults()
    masking.forget()
    started, _started[:] = _started[:], []
    if started and request.node.get_closest_marker("processes") is None:
        if not {"unit", "property"}.isdisjoint(request.path.relative_to(request.config.rootpath).parts):
            pytest.fail(f"mark it with pytest.mark.processes: it started {started}")

"""Processes of scripts: they start with the first, are lent, ended and replaced."""

import os
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import anyio
import pytest

from mcp_hub.code import engine as code_engine_module
from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.steps import CodeError, CodeLimits, CodeStep
from tests.unit.code.scripts import NAMES, STUBS, engine, failure, output, run

pytestmark = pytest.mark.processes
WAITING = "x = await echo(value=1)\nx + 1"
ENDLESS = "while True:\n  pass"


def workers() -> list[int]:
    """Processes of ours that run the engine."""
    listed = subprocess.run(
        ["ps", "--ppid", str(os.getpid()), "-o", "pid=,args="], capture_output=True, text=True
    ).stdout
    return [int(line.split()[0]) for line in listed.splitlines() if "monty" in line]


async def start(code_engine: CodeEngine, code: str) -> CodeStep:
    return await code_engine.session().start(code, STUBS, NAMES, CodeLimits(), lambda text: None)


async def test_process_starts_with_the_first_step_and_ends_when_idle() -> None:
    async with engine(idle_stop=0.05) as code_engine:
        session = code_engine.session()
        assert workers() == []
        step = await session.start(WAITING, STUBS, NAMES, CodeLimits(), lambda text: None)
        with anyio.fail_after(30):
            while workers():  # noqa: ASYNC110  # of another program nothing says when it has ended
                await anyio.sleep(0.01)
        assert not code_engine.is_running
        assert output(await session.feed({step.pending[0]: b"2"})) == 3
        assert await run(code_engine, "while len([1] * 1000) and sum(range(400000)) < 0:\n  pass\n1") == 1
    assert workers() == []


async def test_sessions_that_wait_lend_their_workers() -> None:
    async with engine(workers=2) as code_engine:
        sessions = [code_engine.session() for _ in range(5)]
        steps = [await session.start(WAITING, STUBS, NAMES, CodeLimits(), lambda text: None) for session in sessions]
        assert len(workers()) <= 2
        for index, (session, step) in enumerate(zip(sessions, steps, strict=True)):
            assert output(await session.feed({step.pending[0]: str(index).encode()})) == index + 1
        assert len(workers()) <= 2


async def test_sessions_side_by_side_wait_for_a_worker() -> None:
    async with engine(workers=2) as code_engine:
        results: dict[int, object] = {}

        async def compute(number: int) -> None:
            results[number] = await run(code_engine, f"x = await echo(value={number})\nsum(range(1000)) + x")

        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for number in range(6):
                    group.start_soon(compute, number)
        assert results == {number: 499500 + number for number in range(6)}


@pytest.mark.skipif(sys.platform != "linux", reason="programs in memory")
async def test_worker_writes_nothing_to_our_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    async with engine() as code_engine:
        error = await failure(code_engine, "'a' * (60 << 20)")  # of which the process itself says that it is too much
        assert (error.kind, error.key) == ("limit", "memory")
        session = code_engine.session()
        await session.start(WAITING, STUBS, NAMES, CodeLimits(), lambda text: None)
        (pid,) = workers()
        assert os.readlink(f"/proc/{pid}/fd/2") == "/dev/null"
        with open(f"/proc/{pid}/environ") as environment:  # noqa: ASYNC230  # of memory
            assert environment.read().strip("\0") in ("", f"PWD={os.getcwd()}")
    assert capfd.readouterr() == ("", "")


async def test_parked_session_continues() -> None:
    async with engine() as code_engine:
        session = code_engine.session()
        step = await session.start(WAITING, STUBS, NAMES, CodeLimits(), lambda text: None)
        await session.park()
        assert output(await session.feed({step.pending[0]: b"2"})) == 3


async def test_cancelled_step_leaves_no_worker_busy() -> None:
    async with engine(workers=1) as code_engine:
        with anyio.move_on_after(0.3) as scope:
            await start(code_engine, ENDLESS)
        assert scope.cancelled_caught
        with anyio.fail_after(20):
            assert await run(code_engine, "1") == 1


async def test_close_ends_a_step_that_another_task_waits_for() -> None:
    async with engine(workers=1) as code_engine:
        session = code_engine.session()
        errors: list[CodeError] = []

        async def wait() -> None:
            try:
                await session.start(ENDLESS, STUBS, NAMES, CodeLimits(), lambda text: None)
            except CodeError as error:
                errors.append(error)

        with anyio.fail_after(8):
            async with anyio.create_task_group() as group:
                group.start_soon(wait)
                await anyio.sleep(0.5)
                await session.close()
        assert [error.kind for error in errors] == ["crashed"]


async def test_crash_of_a_worker_is_an_error_and_the_next_session_runs() -> None:
    async with engine(workers=1) as code_engine:
        session = code_engine.session()
        step = await session.start(WAITING, STUBS, NAMES, CodeLimits(), lambda text: None)
        for pid in workers():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(CodeError) as caught:
            await session.feed({step.pending[0]: b"2"})
        assert caught.value.kind == "crashed"
        session = code_engine.session()
        assert (await session.load(step.snapshot, CodeLimits(), lambda text: None)).pending == step.pending
        assert output(await session.feed({step.pending[0]: b"2"})) == 3


async def test_ended_engine_has_no_process_and_is_opened_again() -> None:
    async with engine() as code_engine:
        await start(code_engine, WAITING)
        await code_engine.close()
        assert workers() == []
        await code_engine.close()
        assert await run(code_engine, "2") == 2


def test_without_the_extra_the_error_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_engine_module, "find_spec", lambda name: None)
    with pytest.raises(CodeError, match=r"install.*\[.*code.*\]") as caught:
        CodeEngine().session()
    assert caught.value.kind == "unavailable"


async def test_engine_whose_program_is_missing_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MONTY_BIN", str(tmp_path / "monty"))
    monkeypatch.setattr(sysconfig, "get_path", lambda *arguments: str(tmp_path))
    async with engine() as code_engine:
        with pytest.raises(CodeError, match=r"does not start: .*Install it again") as caught:
            await run(code_engine, "1")
        assert caught.value.kind == "unavailable"


def test_engine_is_imported_with_its_first_use() -> None:
    code = "import sys, mcp_hub.code.engine, mcp_hub.code.values; sys.exit('pydantic_monty' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


PROGRAM = """
import sys, anyio
from mcp_hub.code.engine import CodeEngine
from mcp_hub.code.steps import CodeLimits
from tests.unit.code.scripts import run
async def main():
    engine = CodeEngine(3)
    async with anyio.create_task_group() as group:
        for number in range(12):
            group.start_soon(run, engine, f"r = await get_issue(number={number})\\nprint(r)\\n1")
    if "close" in sys.argv:
        await engine.close()
    {rest}
anyio.run(main)
"""


@pytest.mark.first(2)
@pytest.mark.slow
@pytest.mark.parametrize("rest", ["print('ended')", "print('ended'); 1 / 0", "print('ended'); sys.exit(0)"])
def test_program_with_scripts_ends_by_itself(rest: str) -> None:
    """It is not aborted at its end, with an engine that is closed and one that is not."""
    for arguments in ([], ["close"]):
        command = [sys.executable, "-c", PROGRAM.replace("{rest}", rest), *arguments]
        ended = subprocess.run(command, capture_output=True, timeout=120, cwd=Path(__file__).parents[3])
        assert (ended.returncode, ended.stdout) == (1 if "1 / 0" in rest else 0, b"ended\n")

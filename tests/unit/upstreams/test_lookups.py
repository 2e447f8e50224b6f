"""Programs whose outputs are values: what they get, their bounds, and what is said of one that gives none."""

import os
import shlex
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from mcp_hub.clock import SystemClock
from mcp_hub.errors import StartFailed
from mcp_hub.masking import forget, hide
from mcp_hub.upstreams.process.lookups import LARGEST, CommandOutputs
from mcp_hub.upstreams.process.watchdog import Watchdog
from tests.interaction.fronts import is_alive
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import until

pytestmark = [pytest.mark.anyio, pytest.mark.processes]
WAIT = 240.0


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """A test masks nothing for those after it."""
    yield
    forget()


@asynccontextmanager
async def reading(folder: Path, seconds: float = 10.0, **env: str) -> AsyncIterator[CommandOutputs]:
    async with Watchdog(SystemClock()) as watchdog:
        with anyio.fail_after(WAIT):
            yield CommandOutputs(watchdog, SystemClock(), {**os.environ, **env}, str(folder), seconds=seconds)


def shell(script: str) -> tuple[str, ...]:
    return ("sh", "-c", script)


@pytest.mark.parametrize(
    ("argv", "output"),
    [
        (("printf", r"a value\n"), "a value"),
        (("printf", r"a value\r\n"), "a value"),
        (("printf", r"two lines\nof it\n\n"), "two lines\nof it\n"),
        (("echo", "$HOME", "|", "x; y", "~", "*"), "$HOME | x; y ~ *"),
        (shell("cat; echo at the end"), "at the end"),
        (shell("echo $OF_THE_HUB; pwd"), "here\nFOLDER"),
        (("./tool",), "beside"),
        pytest.param(shell(f"head -c {LARGEST} /dev/zero | tr '\\0' x"), "x" * LARGEST, marks=pytest.mark.proof),
        (shell("echo value; sleep 60 & exit 0"), "value"),
        (("printf", "${cmd:touch hit}"), "${cmd:touch hit}"),
    ],
    ids=[str(number) for number in range(10)],
)
async def test_output_is_the_value_without_one_line_break(tmp_path: Path, argv: tuple[str, ...], output: str) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\necho beside\n")
    (tmp_path / "tool").chmod(0o755)
    async with reading(tmp_path, OF_THE_HUB="here") as outputs:
        value = await outputs.read(argv, "git")
    assert value == output.replace("FOLDER", str(tmp_path))
    assert value not in hide(f"a {value} b")


@pytest.mark.parametrize(
    ("argv", "reason"),
    [
        (shell("echo a-failing-value; exit 3"), 'program "sh" exited with code 3'),
        (shell("kill -9 $$"), 'program "sh" killed by SIGKILL'),
        (shell("echo the vault is locked >&2; exit 1"), "exited with code 1 and says: the vault is locked"),
        (shell("v=s3cr3t-abc; echo $v; echo got $v >&2; exit 1"), "code 1 and says: got ***"),
        (shell("exit 0"), "writes nothing to its standard output"),
        (shell("echo; echo"), "writes nothing to its standard output"),
        (shell("yes"), f"writes more than {LARGEST} bytes"),
        (shell(f"head -c {LARGEST + 1} /dev/zero"), f"writes more than {LARGEST} bytes"),
        (shell(r"printf '\377'"), "writes no UTF-8 text"),
        (shell(r"printf 'a\0b'"), "writes a NUL"),
        (("no-such-program-here",), 'program "no-such-program-here" was not found. Install it'),
        (("./none",), 'program "./none" was not found'),
        (("./folder",), 'program "./folder" cannot be run: '),
    ],
    ids=[str(number) for number in range(13)],
)
async def test_program_without_a_value_is_named_with_the_reason(
    tmp_path: Path, argv: tuple[str, ...], reason: str
) -> None:
    (tmp_path / "folder").mkdir()
    async with reading(tmp_path) as outputs:
        with pytest.raises(StartFailed) as failed:
            await outputs.read(argv, "git")
    assert reason in str(failed.value) and failed.value.code == "lookup_failed" and not failed.value.can_retry
    assert "s3cr3t" not in str(failed.value) and "a-failing-value" not in str(failed.value)
    assert len(str(failed.value)) < 800


FAMILY = "sleep 300 & echo $! > child; setsid sleep 300 & echo $! > far; trap '' TERM; echo $$ > self; sleep 300"


@pytest.mark.parametrize("seconds", [0.05, pytest.param(3.0, marks=pytest.mark.proof)])
async def test_program_and_all_that_it_started_end_at_the_time_limit(tmp_path: Path, seconds: float) -> None:
    async with reading(tmp_path, seconds=seconds) as outputs:
        with pytest.raises(StartFailed, match=f"gave no value within {seconds:g} s, and was ended"):
            await outputs.read(shell(FAMILY), "git")
    pids = [int(path.read_text() or 0) for name in ("child", "far", "self") if (path := tmp_path / name).exists()]
    assert not any(is_alive(pid) for pid in pids if pid) and (seconds < 1 or len(pids) == 3)


async def test_program_and_all_that_it_started_end_when_nobody_waits_for_it(tmp_path: Path) -> None:
    async with reading(tmp_path) as outputs, group() as tasks:
        tasks.start_soon(outputs.read, shell(FAMILY), "git")
        await until(lambda: (tmp_path / "self").exists() and (tmp_path / "self").read_text() != "")
    for name in ("child", "far", "self"):
        assert not is_alive(int((tmp_path / name).read_text()))


async def test_daemon_of_a_program_outlives_it(tmp_path: Path) -> None:
    code = "import os, time; os.setsid(); print(os.getpid(), flush=True); time.sleep(60)"
    daemon = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} > pid"
    async with reading(tmp_path) as outputs:
        await outputs.read(shell(f"{daemon} & while ! [ -s pid ]; do sleep 0.01; done 2>/dev/null; cat pid"), "git")
    pid = int((tmp_path / "pid").read_text())
    try:
        assert is_alive(pid)
    finally:
        os.kill(pid, 9)


async def test_servers_share_a_run_and_a_start_of_the_same_server_gets_a_new_one(tmp_path: Path) -> None:
    argv = shell("echo run >> runs; echo $(wc -l < runs)-value")
    async with reading(tmp_path) as outputs:
        first: list[str] = []

        async def read(server: str) -> None:
            first.append(await outputs.read(argv, server, 0.0))

        async with anyio.create_task_group() as tasks:
            for server in ("a", "b", "c"):
                tasks.start_soon(read, server)
        assert first == ["1-value"] * 3
        assert await outputs.read(argv, "d", 0.0) == "1-value"
        assert await outputs.read(argv, "a", 0.0) == "2-value"  # it starts again
        assert await outputs.read(argv, "b", 0.0) == "2-value"
        assert await outputs.read(argv, "e", SystemClock().now()) == "3-value"  # it was made only now
        assert await outputs.read(argv, "f") == "4-value"


async def test_failure_is_shared_by_those_that_waited_and_not_by_the_next(tmp_path: Path) -> None:
    argv = shell("echo run >> runs; [ -e works ] && echo value")
    async with reading(tmp_path) as outputs:

        async def fail(server: str) -> None:
            with pytest.raises(StartFailed):
                await outputs.read(argv, server)

        async with anyio.create_task_group() as tasks:
            for server in ("a", "b", "c"):
                tasks.start_soon(fail, server)
        assert (tmp_path / "runs").read_text().count("run") == 1
        (tmp_path / "works").touch()
        assert await outputs.read(argv, "b") == "value"
        (tmp_path / "works").unlink()
        with pytest.raises(StartFailed) as failed:
            await outputs.read(argv, "b")
        assert failed.value.can_retry  # it worked before


async def test_server_that_refuses_every_value_runs_its_command_ten_times_a_minute(tmp_path: Path) -> None:
    argv = shell("echo run >> runs; echo $(wc -l < runs)-value")
    async with reading(tmp_path) as outputs:
        values = [await outputs.read(argv, "a") for _ in range(13)]
        assert values == [f"{run}-value" for run in (*range(1, 11), 10, 10, 10)]
        assert await outputs.read(argv, "a", 0.0) == "11-value"  # a start is another matter
        assert [await outputs.read(argv, "", 0.0) for _ in range(3)] == ["11-value"] * 3  # a process for each call

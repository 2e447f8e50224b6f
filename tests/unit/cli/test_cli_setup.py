"""What every command runs on."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main, setup


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_a_busy_loop_gives_way_to_the_stores_thread_soon() -> None:
    async def interval() -> float:
        return sys.getswitchinterval()

    assert setup.run(interval) <= 0.001


@pytest.mark.processes
def test_the_hub_starts_without_rich() -> None:
    look = (
        "import sys, mcp_hub.cli, mcp_hub.app.build; print([name for name in sys.modules if name.startswith('rich')])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("seconds", ["nan", "-nan", "inf", "-1", "soon"])
@pytest.mark.parametrize("command", [["list", "--wait"], ["doctor", "--wait"], ["login", "far", "--timeout"]])
def test_seconds_that_cannot_be_waited_are_a_usage_error(command: list[str], seconds: str) -> None:
    result = CliRunner().invoke(main, [*command, seconds])
    assert result.exit_code == 2
    assert f"Invalid value for '{command[-1]}'" in result.output


@pytest.mark.parametrize("command", ["resume", "cancel"])
@pytest.mark.parametrize("more", [[], ["--url", "http://127.0.0.1:1"]])
def test_a_stream_without_an_id_is_a_usage_error(command: str, more: list[str]) -> None:
    for stream in ("", " "):
        result = CliRunner().invoke(main, [command, stream, *more])
        assert result.exit_code == 2
        assert "Invalid value for 'STREAM': The id of a stream is missing" in result.output

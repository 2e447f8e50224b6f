"""What every command runs on."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main, setup
from mcp_hub.cli.access import hub as access
from mcp_hub.errors import ConfigError, ConfigFinding, EventsGone, HubError, InvalidParams, StoreError, UpstreamLost


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
def test_hub_starts_without_what_few_of_its_users_need() -> None:
    names = ("rich", "importlib.metadata", "json5", "mcp_hub.codes")  # plugins of pydantic read all metadata
    look = (
        "import sys, mcp_hub.cli, mcp_hub.app.build, mcp_hub.cli.commands.serve; "
        f"print([name for name in sys.modules if name.startswith({names!r})])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=240)
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


@pytest.mark.parametrize(
    ("error", "stream", "code", "said"),
    [
        (InvalidParams("no"), None, 2, "no [invalid_params]"),
        (InvalidParams("no"), "st_1", 2, "st_1: no [invalid_params]"),
        (
            EventsGone(3),
            "st_1",
            2,
            "st_1: Events after this cursor are gone. The earliest that is kept is 3. [events_gone]",
        ),
        (UpstreamLost("gone"), "st_1", 3, "gone [upstream_crashed]"),
        (StoreError("full"), "st_1", 3, "full [store_unavailable]"),
        (ConfigError(ConfigFinding("not_a_hub", "no hub")), "st_1", 2, "no hub [not_a_hub]"),
    ],
)
def test_errors_of_a_hub_have_their_exit_codes(
    error: HubError, stream: str | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(_: object) -> int:
        raise error

    with pytest.raises(SystemExit) as left:
        access.run_opened(nullcontext, fails, stream)
    assert (left.value.code, capsys.readouterr().err) == (code, f"{said}\n")

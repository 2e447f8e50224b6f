"""Values that no command can use are usage errors, before anything is started."""

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main


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
    ("loose", "how"),
    [("zone=UTC", "--arg 'zone=UTC'"), ('{"zone": "a=b"}', "--args-json TEXT"), ("UTC", "--arg NAME=VALUE"), ("", "")],
)
def test_arguments_behind_the_name_of_a_tool_are_told_how_they_are_given(loose: str, how: str) -> None:
    result = CliRunner().invoke(main, ["call", "time_now", loose, "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert f"{loose!r}: the tool's arguments are given as options: --arg" in result.output and how in result.output

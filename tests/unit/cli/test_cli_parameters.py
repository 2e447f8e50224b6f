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
        assert "Invalid value for 'STREAM': the id of a stream is missing" in result.output

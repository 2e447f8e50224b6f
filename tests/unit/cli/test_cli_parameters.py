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

"""Command lines that lack something or have it in another place: the error says how to write it."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from mcp_hub.cli import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call"], "Missing argument 'NAME'. mcp-hub tools lists the names."),
        (["restart"], "Missing argument 'SERVER'. mcp-hub list names the servers."),
        (["enable"], "Missing argument 'SERVER...'. mcp-hub list names the servers."),
        (["resume"], "Missing argument 'STREAM'. mcp-hub streams lists them."),
        (["search"], "Missing argument 'QUERY...'. For example: mcp-hub search create an issue"),
        (["add"], "For example: mcp-hub add time -- uvx mcp-server-time"),
        (["-c", "x.yaml", "list"], "Options stand behind the command: mcp-hub COMMAND -c …"),
        (["add", "time", "--command", "uvx"], "No such option '--command'. The command stands behind --"),
        (["leave", "--wat"], "No such option '--wat'. Did you mean '--wait'?"),
        (["call", "nope"], "Unknown tool: nope. List them with: mcp-hub tools [unknown_entry]"),
        (["secrets"], 'There is no command "secrets". mcp-hub edit opens the configuration, which names them'),
        (["start"], "Clients start the hub themselves. mcp-hub open starts it in the background"),
        (["Validate"], "mcp-hub check reads the configuration, mcp-hub doctor tries servers."),
        (["lst"], 'There is no command "lst". Did you mean "list"?'),
        (["resume", "st_nope"], "or never existed. List them with: mcp-hub streams [unknown_stream]"),
    ],
)
def test_wrong_command_line_is_answered_with_the_right_one(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    (tmp_path / "servers.yaml").write_text("servers: {}")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output

"""The command by which clients start the hub, and the links that install it."""

import base64
import json
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from mcp_hub.cli.clients.command import Installation, NoCommand, hub_command
from mcp_hub.cli.clients.entries import Command
from mcp_hub.cli.clients.links import LINKED, install_link

COMMAND = Command('/opt/é "x" & y/mcp-hub', ("serve", "--config", "/a b/s.yaml"))
ENTRY = {"command": COMMAND.program, "args": list(COMMAND.args)}


def test_links_hold_the_command_whatever_its_characters() -> None:
    links = {name: urlsplit(install_link(name, COMMAND) or "") for name in LINKED}
    for name in ("cursor", "lm-studio"):
        query = parse_qs(links[name].query)
        assert json.loads(base64.b64decode(query["config"][0])) == ENTRY and query["name"] == ["mcp-hub"]
    vscode = {"name": "mcp-hub", "type": "stdio", **ENTRY}
    assert (links["vscode"].scheme, links["vscode"].path) == ("vscode", "mcp/install")
    assert json.loads(unquote(links["vscode"].query)) == vscode
    goose = parse_qs(links["goose"].query)
    assert (goose["cmd"], goose["arg"]) == ([COMMAND.program], list(COMMAND.args))
    assert install_link("zed", COMMAND) is None


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_command_is_that_of_the_installation(tmp_path: Path) -> None:
    installation = Installation(tmp_path / "bin", tmp_path / "bin/python")
    assert hub_command(installation, {}, ("a",)) == Command(str(tmp_path / "bin/python"), ("-m", "mcp_hub", "a"))
    script = program(tmp_path / "bin/mcp-hub")
    assert hub_command(installation, {}, ("a",)) == Command(str(script), ("a",))


@pytest.mark.parametrize("variable", [None, "UV_CACHE_DIR"])
def test_throw_away_installation_is_started_through_uvx(tmp_path: Path, variable: str | None) -> None:
    folder = "cache" if variable else ".cache/uv/archive-v0"
    program(tmp_path / folder / "x/bin/mcp-hub")
    installation = Installation(tmp_path / folder / "x/bin", tmp_path / folder / "x/bin/python")
    env = {"PATH": str(tmp_path / "tools")} | ({variable: str(tmp_path / folder)} if variable else {})
    with pytest.raises(NoCommand):
        hub_command(installation, env, ())
    uvx = program(tmp_path / "tools/uvx")
    command = hub_command(installation, env, ("serve",))
    assert command.program == str(uvx) and command.args[0].startswith("mcp-hub@") and command.args[1:] == ("serve",)

"""A configuration with a mistake in it: the hub says where, and starts nothing."""

import json
import sys
from pathlib import Path

import pytest

from tests.upstreams.child import Child
from tests.upstreams.launch import argv, journal

pytestmark = pytest.mark.anyio

BAD_CONFIGS = {
    "unknown key": ('  b:\n    command: "true"\n    colour: red\n', 7),
    "no command": ("  b:\n    args: [x]\n", 5),
    "wrong type": ('  b:\n    command: "true"\n    args: {a: 1}\n', 7),
    "not YAML": ("  b: [\n", 6),
    "twice": ('  a:\n    command: "true"\n', 5),
    "unset variable": ('  b:\n    command: "${NOBODY_SET_THIS}"\n', 6),
}


@pytest.mark.parametrize("front", [(), ("--http", "--port", "0")], ids=["stdio", "http"])
@pytest.mark.parametrize("name", BAD_CONFIGS)
async def test_bad_configuration_is_reported_with_its_line_and_nothing_starts(
    name: str, front: tuple[str, ...], tmp_path: Path
) -> None:
    text, number = BAD_CONFIGS[name]
    command, *args = argv(name="a", journal=tmp_path / "journal")
    config = tmp_path / "servers.yaml"
    good = f"servers:\n  a:\n    command: {json.dumps(command)}\n    args: {json.dumps(args)}\n"
    config.write_text(good + text)
    argv_ = [sys.executable, "-m", "mcp_hub", "serve", *front, "--config", str(config)]
    async with Child(argv_, {"MCP_HUB_STATE_DIR": str(tmp_path / "state")}) as hub:
        assert await hub.wait() == 2
        await hub.wait_stderr(rf"servers\.yaml:{number}\b")
        assert "Traceback" not in hub.stderr
    assert journal(tmp_path / "journal") == []

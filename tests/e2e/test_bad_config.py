"""A configuration with a mistake in it: the hub says where, and starts the servers without one, or nothing."""

import json
from pathlib import Path

import pytest

from tests.fork_server import forked_command
from tests.upstreams.child import Child, until
from tests.upstreams.launch import argv, events, journal

pytestmark = pytest.mark.anyio

BAD_SERVERS = {
    "unknown key": ('  b:\n    command: "true"\n    colour: red\n', 7),
    "no command": ("  b:\n    args: [x]\n", 5),
    "wrong type": ('  b:\n    command: "true"\n    args: {a: 1}\n', 7),
    "unset variable": ('  b:\n    command: "${NOBODY_SET_THIS}"\n', 6),
}
BAD_CONFIGS = {
    "not YAML": ("  b: [\n", 6),
    "twice": ('  a:\n    command: "true"\n', 5),
    "outside of servers": ("hub:\n  colour: red\n", 6),
}
FRONTS = pytest.mark.parametrize("front", [(), ("--http", "--port", "0")], ids=["stdio", "http"])


def serving(folder: Path, text: str, front: tuple[str, ...]) -> Child:
    """A hub with a good server, and `text` behind it."""
    command, *args = argv(name="a", journal=folder / "journal")
    config = folder / "servers.yaml"
    good = f"servers:\n  a:\n    command: {json.dumps(command)}\n    args: {json.dumps(args)}\n"
    config.write_text(good + text)
    argv_ = [*forked_command(), "serve", *front, "--config", str(config)]
    return Child(argv_, {"MCP_HUB_STATE_DIR": str(folder / "state")})


@FRONTS
@pytest.mark.parametrize("name", BAD_CONFIGS)
@pytest.mark.first(2)
async def test_bad_configuration_is_reported_with_its_line_and_nothing_starts(
    name: str, front: tuple[str, ...], tmp_path: Path
) -> None:
    text, number = BAD_CONFIGS[name]
    async with serving(tmp_path, text, front) as hub:
        assert await hub.wait() == 2
        await hub.wait_stderr(rf"servers\.yaml:{number}\b")
        assert "Traceback" not in hub.stderr
    assert journal(tmp_path / "journal") == []


@pytest.mark.first(2)
@FRONTS
@pytest.mark.parametrize("name", BAD_SERVERS)
async def test_bad_server_is_reported_with_its_line_and_the_others_start(
    name: str, front: tuple[str, ...], tmp_path: Path
) -> None:
    text, number = BAD_SERVERS[name]
    async with serving(tmp_path, text, front) as hub:
        await hub.wait_stderr(rf"servers\.yaml:{number}\b.*the server (is left out|has failed)")
        await until(lambda: events(tmp_path / "journal", "start"))
        assert "Traceback" not in hub.stderr

"""The first minute: four clients with twelve servers get one hub with ten, and every step is taken back.

The second home has files that their clients rewrite before that; `make clients` takes the other ways out of it.
"""

import json
import sys
from pathlib import Path

import anyio
import pytest
import yaml

from rigs.clients.first import MOST, SECRET, SERVERS, FirstHome, entry
from rigs.clients.home import StoryHome, rewrite
from rigs.clients.story import move_in, undo

pytestmark = [pytest.mark.processes, pytest.mark.slow]

SERVER = """\
import json, os, sys
name = sys.argv[1]
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message and message["method"] in ("initialize", "tools/list"):
        result = {"tools": [{"name": os.environ.get("API_KEY", "ask")[:9], "inputSchema": {"type": "object"}}]}
        if message["method"] == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
            result["serverInfo"] = {"name": name, "version": "1"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    elif "id" in message:
        error = {"code": -32601, "message": "Method not found"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}), flush=True)
"""
"""A server that starts in milliseconds, with one tool that is named after its key."""
GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
REQUESTS = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": GREETING},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]


def local(folder: Path, name: str) -> dict[str, object]:
    env = {"API_KEY": SECRET} if name == "vault" else {}
    return entry(sys.executable, "-S", str(folder / "server.py"), name, **env)


@pytest.mark.proof
def test_twelve_servers_of_four_clients_become_one_hub_with_ten_and_every_byte_comes_back(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    servers = {name: own if name == "broken" else local(tmp_path, name) for name, own in SERVERS.items()}
    (tmp_path / "home").mkdir()
    home = FirstHome(tmp_path / "home", servers, ["/usr/bin", "/bin"])

    assert home.connect() < MOST
    assert list(yaml.safe_load(home.config.read_text())["servers"]) == list(SERVERS)
    assert SECRET not in home.config.read_text()

    lines = home.entries()
    assert [line[-1] for line in lines] == ["claude-desktop", "claude-code", "cursor", "codex"]
    assert {tuple(line[:-1]) for line in lines} == {(*lines[0][:-2], "--client")}
    answers = home.run(lines[2], "".join(f"{json.dumps(one)}\n" for one in REQUESTS)).splitlines()
    (listed,) = [one["result"]["tools"] for one in map(json.loads, answers) if one.get("id") == 2]
    names = {tool["name"] for tool in listed}
    expected = {f"{name}_ask" for name in SERVERS if name not in ("broken", "vault")} | {f"vault_{SECRET[:9]}"}
    assert names >= expected, names

    assert home.undo() == []
    assert [path for path in home.folder.rglob("*mcp-hub-backup*") if path.is_file()] == []


@pytest.mark.proof
def test_undo_keeps_what_five_clients_have_written_meanwhile(tmp_path: Path) -> None:
    home = StoryHome(tmp_path)
    move_in(home)
    rewrite(home)
    lines = anyio.run(undo, home)
    assert [line.partition(":")[0] for line in lines] == [".config/Claude/claude_desktop_config.json"]

"""A home folder with four clients and twelve servers: two doubles, one that is broken, one with secrets, odd names."""

import json
from pathlib import Path
from typing import Any, Final

CANARIES: Final = ("ghp_CANARYcanary1234567890", "CANARY.header.9876543210", "CANARYpassw0rd!")
ODD_NAME: Final = "we\"ird' & ; \n $(x) é"
DESKTOP: Final[Any] = {
    "mcpServers": {
        "time": {"command": "uvx", "args": ["mcp-server-time"]},
        "github": {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": CANARIES[0]}},
        ODD_NAME: {"command": "sh", "args": ["-c", "echo 'a \"b\"'; x & é"]},
        "mcp-hub": {"command": "/opt/mcp-hub", "args": ["serve"]},
    }
}
CURSOR: Final = """{
  // mine
  "mcpServers": {
    "clock": {"command": "uvx", "args": ["mcp-server-time"]}, // the same as time
    "github": {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": "${env:GH2}"}},
    "team": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer %s"}},
    "off": {"command": "x", "disabled": true},
  },
}
"""
CODEX: Final = """[mcp_servers.team]
url = "https://mcp.example.com/mcp/"
http_headers = { Authorization = "Bearer %s" }
[mcp_servers.db]
command = "uvx"
args = ["db-mcp", "--password", "%s"]
tool_timeout_sec = 60
[mcp_servers.broken]
command = "/nowhere/such-server"
"""
GEMINI: Final[Any] = {
    "theme": "x",
    "mcp": {"excluded": ["left-out"]},
    "mcpServers": {
        "everything": {"command": "npx", "args": ["-y", "everything"], "env": {"K": "$GEM_KEY"}, "trust": True},
        "remote": {"httpUrl": "https://r.example.com/mcp"},
        "jobs": {"command": "jobs-server", "timeout": 60000},
        "left-out": {"command": "x"},
    },
}
FILES: Final = {
    ".config/Claude/claude_desktop_config.json": json.dumps(DESKTOP),
    ".cursor/mcp.json": CURSOR % CANARIES[1],
    ".codex/config.toml": CODEX % CANARIES[1:],
    ".gemini/settings.json": json.dumps(GEMINI),
}


def make_home(home: Path) -> None:
    """Writes the files of the four clients."""
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

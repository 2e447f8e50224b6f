"""A client that asks and closes its side at once, as a shell pipe does, is answered before the hub ends."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.upstreams.launch import argv, servers_yaml

GUARD = 20.0
"""Seconds: a guard against a hub that does not end, not a measurement."""
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "pipe", "version": "1"}}


def piped(root: Path, *requests: tuple[str, str, dict[str, Any]]) -> dict[Any, dict[str, Any]]:
    """What a hub answers to these lines and the end of its input, by id; each once."""
    config = root / "servers.yaml"
    config.write_text(servers_yaml({"a": argv()}))
    config.chmod(0o600)
    lines = [{"jsonrpc": "2.0", "id": id_, "method": method, "params": params} for id_, method, params in requests]
    done = subprocess.run(
        [sys.executable, "-m", "mcp_hub", "serve", "--config", str(config), "--client", "mcp-hub"],
        input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True, text=True, timeout=GUARD, check=True,
        env={"MCP_HUB_STATE_DIR": str(root / "state"), "PATH": "/usr/bin:/bin", "HOME": str(root)},
    )  # fmt: skip
    messages = [json.loads(line) for line in done.stdout.split("\n") if line]
    answers = [message for message in messages if "id" in message]
    assert len({answer["id"] for answer in answers}) == len(answers)
    return {answer["id"]: answer for answer in answers}


def called(tool: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "tools/call", {"name": f"a_{tool}", "arguments": arguments}


def test_what_was_asked_before_the_end_is_answered(tmp_path: Path) -> None:
    answers = piped(
        tmp_path,
        ("hello", "initialize", HELLO),
        ("list", "tools/list", {}),
        ("echo", *called("echo", text="hi")),
        ("nobody", *called("nobody")),
    )
    assert [tool["name"] for tool in answers["list"]["result"]["tools"]].count("a_echo") == 1
    assert answers["echo"]["result"]["structuredContent"] == {"text": "hi"}
    assert answers["nobody"]["error"]["code"] == -32602


def test_what_takes_longer_is_told_that_the_hub_ends(tmp_path: Path) -> None:
    answers = piped(tmp_path, ("hello", "initialize", HELLO), ("long", *called("slow", seconds=60)))
    assert answers["long"]["error"]["code"] == 1005

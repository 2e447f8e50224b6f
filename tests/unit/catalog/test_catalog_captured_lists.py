"""The lists of 33 public servers go through the catalog unharmed (data outside the repository)."""

import json
import os
import re
from pathlib import Path

import pytest

from mcp_hub.catalog.rules import ServerRules, ViewRules
from mcp_hub.catalog.view import build
from mcp_hub.types import Era, Kind, Snapshot

DATA = os.environ.get("MCP_HUB_EVAL_DATA")
LISTS = sorted(Path(DATA, "tool-lists").glob("*.json")) if DATA else []

pytestmark = pytest.mark.skipif(not LISTS, reason="MCP_HUB_EVAL_DATA names no folder with tool-lists/*.json")


def captured(path: Path) -> Snapshot:
    content = json.loads(path.read_bytes())
    tools = tuple(json.dumps(tool, ensure_ascii=False).encode() for tool in content["tools"])
    return Snapshot(path.stem, Era.HANDSHAKE, {Kind.TOOL: tools}, capabilities=content["capabilities"])


def test_every_captured_tool_is_exported_under_a_legal_name_with_its_schema() -> None:
    snapshots = [captured(path) for path in LISTS]
    view = build(snapshots, ViewRules({one.server: ServerRules(one.server) for one in snapshots}))
    assert len(LISTS) == 33 and view.quarantined == ()
    names = [entry.exported for entry in view.entries(Kind.TOOL)]
    assert len(names) == len(set(names)) == 611
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,47}", name) for name in names)
    sent = [raw for snapshot in snapshots for raw in snapshot.lists[Kind.TOOL]]
    for raw, entry in zip(sent, view.entries(Kind.TOOL), strict=True):
        schema = re.search(rb'"inputSchema": (.*)', raw, re.DOTALL)
        assert json.loads(entry.raw) == {**json.loads(raw), "name": entry.exported}
        assert (
            schema is not None and json.dumps(json.loads(raw)["inputSchema"], ensure_ascii=False).encode() in entry.raw
        )

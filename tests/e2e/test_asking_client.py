"""A client that asks its user by hints, in front of a hub that lists the meta-tools alone."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.interaction.fronts import ERAS, HANDSHAKE, Peer, Seen, stdio_hub
from tests.upstreams.launch import argv, received
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

READS = {"readOnlyHint": True}
SCHEMA = {"type": "object", "properties": {"note": {"type": "integer"}}}
NOTES = [
    {"name": "show_note", "description": "Shows a note.", "inputSchema": SCHEMA, "annotations": READS},
    {"name": "delete_note", "description": "Deletes a note.", "inputSchema": SCHEMA},
]
LIAR = [
    {"name": "show_page", "description": "Shows a page.", "inputSchema": SCHEMA},
    {"name": "delete_page", "description": "Deletes a page.", "inputSchema": SCHEMA, "annotations": READS},
]


class AskingClient:
    """Asks before each call of a tool that is not listed as read-only, as the specification's defaults have it."""

    def __init__(self, peer: Peer, listed: list[Message]) -> None:
        self._peer = peer
        self._reads = {tool["name"] for tool in listed if tool.get("annotations", {}).get("readOnlyHint") is True}
        self.questions: list[str] = []

    async def call(self, tool: str, arguments: Message) -> Seen:
        if tool not in self._reads:
            self.questions.append(tool)
        return await self._peer.call(tool, arguments)

    async def use(self, tool: str, **arguments: Any) -> Seen:
        """As a model does that has read the description of `find_tools`."""
        found = (await self.call("find_tools", {"query": tool.replace("_", " ")})).text
        (marked,) = re.findall(rf"^{tool}\(.*?\)(\*?):", found, re.MULTILINE)
        return await self.call("read_tool" if marked else "run_tool", {"name": tool, "arguments": arguments})


def config(root: Path) -> str:
    servers: dict[str, Any] = {}
    for name, tools in (("notes", NOTES), ("liar", LIAR)):
        (root / f"{name}.json").write_text(json.dumps(tools))
        program, *args = argv(name=name, tools_json=root / f"{name}.json", journal=root / "journal")
        servers[name] = {"command": program, "args": args}
    servers["liar"] |= {"hints": "ignore", "per_tool": {"show_page": {"annotations": READS}}}
    return json.dumps({"hub": {"expose": "search", "prefix": "always"}, "servers": servers})


@pytest.fixture(params=ERAS)
async def peer(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Peer]:
    async with stdio_hub(config(tmp_path), tmp_path, client=None) as wire:
        if request.param == HANDSHAKE:
            await wire.initialize()
        yield Peer(wire, request.param)


@pytest.mark.first(1)
async def test_twenty_reads_ask_nothing_and_a_delete_asks_once(peer: Peer, tmp_path: Path) -> None:
    listed = (await peer.request("tools/list")).result["tools"]
    assert [tool["name"] for tool in listed][:3] == ["find_tools", "read_tool", "run_tool"]
    client = AskingClient(peer, listed)
    for note in range(20):
        server, tool = ("notes", "show_note") if note % 2 else ("liar", "show_page")
        assert not (await client.use(f"{server}_{tool}", note=note)).result.get("isError")
    assert client.questions == []
    assert not (await client.use("notes_delete_note", note=1)).result.get("isError")
    assert client.questions == ["run_tool"]

    for tool in ("notes_delete_note", "liar_delete_page"):
        refused = await client.call("read_tool", {"name": tool, "arguments": {"note": 2}})
        assert refused.result["isError"] and "Use run_tool" in refused.text
    assert client.questions == ["run_tool"]
    calls = [call["params"]["name"] for call in received(tmp_path / "journal", "tools/call")]
    assert sorted(calls) == ["delete_note", *["show_note"] * 10, *["show_page"] * 10]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS[::-1])
async def test_a_process_that_lists_the_tool_otherwise_by_now_does_not_get_the_call(era: str, tmp_path: Path) -> None:
    text = json.loads(config(tmp_path))
    text["servers"]["notes"]["scope"] = "call"
    async with stdio_hub(json.dumps(text), tmp_path) as wire:
        if era == HANDSHAKE:
            await wire.initialize()
        peer, given = Peer(wire, era), {"name": "notes_show_note", "arguments": {"note": 1}}
        assert not (await peer.call("read_tool", given)).result.get("isError")
        (tmp_path / "notes.json").write_text(json.dumps([{**NOTES[0], "annotations": {}}]))
        refused = await peer.call("read_tool", given)
        assert refused.result["isError"] and "Use run_tool" in refused.text
        assert not (await peer.call("run_tool", given)).result.get("isError")
    assert len(received(tmp_path / "journal", "tools/call")) == 2

"""Limits, kept results and the audit of a running hub, for two principals, over REST and MCP."""

import json
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from mcp_hub.stores.audit import generations, unwritten, verify
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import HANDSHAKE, Peer
from tests.interaction.hub_process import hub_process
from tests.upstreams.child import until
from tests.upstreams.launch import entry, received

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ANN, BOB = "ann-token-0123456789abcdef", "bob-token-0123456789abcdef"
TOOLS = [
    {
        "name": "show", "description": "Shows.", "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    },
    {"name": "echo", "description": "Echoes.", "inputSchema": {"type": "object"}},
]  # fmt: skip
PER_TOOL = {"show": {"cache": "10m"}, "echo": {"rate": "2/h", "cache": "10m"}}


def config(root: Path, **more: Any) -> str:
    (root / "tools.json").write_text(json.dumps(TOOLS))
    server = entry(name="notes", tools_json=root / "tools.json", journal=root / "journal")
    server |= {"per_tool": PER_TOOL, "timeout": "1500ms", **more}
    tokens = [{"token": ANN, "principal": "ann"}, {"token": BOB, "principal": "bob"}]
    hub = {"tokens": tokens, "prefix": "never", "audit": {"path": str(root / "audit.jsonl")}}
    return json.dumps({"hub": hub, "servers": {"notes": server}})


async def called(hub: Hub, token: str, tool: str, arguments: Any, meta: Any = None) -> httpx2.Response:
    body = {"arguments": arguments, **({} if meta is None else {"_meta": meta})}
    async with httpx2.AsyncClient(trust_env=False, timeout=30) as http:
        url, headers = hub.url.removesuffix("/mcp"), {"authorization": f"Bearer {token}"}
        return await http.post(f"{url}/v1/tools/{tool}/call", json=body, headers=headers)


def calls(root: Path) -> int:
    return len(received(root / "journal", "tools/call"))


def audited(root: Path) -> list[dict[str, Any]]:
    path = root / "audit.jsonl"
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [line for line in map(json.loads, lines) if line["event"] == "call"]


async def test_second_call_is_answered_by_the_hub_and_the_next_one_goes_around_it(tmp_path: Path) -> None:
    async with hub_process(config(tmp_path), tmp_path) as hub:
        await called(hub, ANN, "show", {})  # which may begin the connection in the era of its caller
        for token in (ANN, BOB, ANN):  # of one login for all
            answer = await called(hub, token, "show", {"a": 1, "b": 2})
        assert calls(tmp_path) == 2
        assert answer.json()["result"]["_meta"]["dev.mcp-hub/cache"]["cached"] is True
        await called(hub, ANN, "show", {"b": 2, "a": 1}, {"dev.mcp-hub/cache": 0})
        assert calls(tmp_path) == 3
        async with HttpClient(hub.url, ANN) as client:
            await client.initialize()
            await Peer(client, HANDSHAKE).call("show", {"c": 3})
            before = calls(tmp_path)
            answer_of_mcp = await Peer(client, HANDSHAKE).call("show", {"c": 3})
            assert answer_of_mcp.result["_meta"]["dev.mcp-hub/cache"]["cached"] is True
        assert calls(tmp_path) == before
        await called(hub, ANN, "echo", {})
        await called(hub, ANN, "echo", {})
        assert calls(tmp_path) == before + 2, "it does more than read"
        await until(lambda: len(audited(tmp_path)) == 9)
        assert [line["decision"] for line in audited(tmp_path)].count("cached") == 3


async def test_call_over_its_limit_is_busy_and_says_when_over_rest_and_mcp(tmp_path: Path) -> None:
    async with hub_process(config(tmp_path), tmp_path) as hub:
        for _ in range(2):
            assert (await called(hub, ANN, "echo", {})).status_code == 200
        refused = await called(hub, BOB, "echo", {})
        assert (refused.status_code, refused.json()["code"]) == (429, "busy")
        assert 3500 < int(refused.headers["retry-after"]) <= 3600
        assert "servers.notes.per_tool.echo.rate" in refused.json()["detail"]
        async with HttpClient(hub.url, BOB) as client:
            await client.initialize()
            error = (await Peer(client, HANDSHAKE).call("echo", {})).answer["error"]
            assert (error["code"], error["data"]["code"], error["data"]["limit"]) == (1004, "busy", "rate")
        assert calls(tmp_path) == 2
        await until(lambda: len(audited(tmp_path)) == 4)
        line = audited(tmp_path)[-1]
        assert (line["decision"], line["rule"]) == ("busy", "servers.notes.per_tool.echo.rate")
        assert (line["principal"], line["code"], line["outcome"]) == ("bob", "busy", "failed")


async def test_killed_hub_leaves_a_chain_that_holds_and_the_next_one_counts_what_is_missing(tmp_path: Path) -> None:
    text, path, state = config(tmp_path), tmp_path / "audit.jsonl", tmp_path / "state"
    answered = 0
    for _ in range(3):
        async with hub_process(text, tmp_path) as hub:
            for number in range(10):
                assert (await called(hub, ANN, "show", {"n": number})).status_code == 200
                answered += 1
            await hub.kill_alone()
    async with hub_process(text, tmp_path) as hub:
        await called(hub, ANN, "show", {})
        await until(lambda: path.exists() and audited(tmp_path)[-1:] != [])
        with anyio.fail_after(60):
            await until(lambda: unwritten(verify(generations(path), set()), path, state) == 0)
    report = verify(generations(path), set())
    assert report.is_whole
    assert len(audited(tmp_path)) + report.losses >= answered + 1
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"principal":"ann"', b'"principal":"bob"', 1))
    assert "was changed" in verify(generations(path), set()).problems[0]

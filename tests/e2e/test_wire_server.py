"""What the hub says as a server of its own, seen by raw clients: each front, each era of client."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import HttpClient
from tests.e2e.raw_wire import UPSTREAMS, Wire
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_session
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio

INFO = "io.modelcontextprotocol/serverInfo"


# -- the hub as a server


async def test_hub_answers_ping_itself_where_the_era_has_it(wire: Wire) -> None:
    seen = await wire.peer.request("ping")
    if wire.peer.era == HANDSHAKE:
        assert seen.result == {}
    else:
        assert seen.error["code"] == -32601
        assert seen.status in (None, 404)


async def test_unknown_methods_and_those_of_the_other_era_are_not_found(wire: Wire) -> None:
    foreign = ["tools/nothing", "", "notifications/progress"]
    foreign += ["server/discover", "subscriptions/listen"] if wire.peer.era == HANDSHAKE else ["logging/setLevel"]
    foreign += [] if wire.peer.era == HANDSHAKE else ["resources/subscribe", "resources/unsubscribe"]
    for method in foreign:
        seen = await wire.peer.request(method)
        assert seen.error["code"] == -32601, (method, seen.error)
        assert seen.status in ((None, 404) if wire.peer.era == MODERN else (None, 200))


async def test_discovery_names_versions_capabilities_servers_and_the_hub(wire_hub: Any) -> None:
    async with connected(wire_hub[0], MODERN) as peer:
        await peer.names()
        result = (await peer.request("server/discover")).result
    assert result["supportedVersions"] == ["2026-07-28"]
    assert result["resultType"] == "complete"
    assert result["_meta"][INFO]["name"] == "mcp-hub"
    assert {"tools", "resources", "prompts", "completions", "logging"} <= result["capabilities"].keys()
    assert "ttlMs" in result
    assert "cacheScope" in result
    for name in ("h", "m"):
        assert re.search(rf"^{name} \(\d+\): I am {name}$", result["instructions"], re.MULTILINE)
    assert len(result["instructions"].encode()) <= 800


async def test_unknown_version_in_the_envelope_is_refused_by_name(wire_hub: Any) -> None:
    async with connected(wire_hub[0], MODERN) as peer:
        wire = peer.wire
        for version in ("2099-01-01", "1.0"):
            if isinstance(wire, HttpClient):
                answer = await wire.request("tools/list", modern(version=version))
                assert answer.status == 400
                error = answer.last["error"]
            else:
                error = (await wire.request("tools/list", modern(version=version)))["error"]
            assert error["code"] == -32022
            assert error["data"] == {"supported": ["2026-07-28"], "requested": version}


async def test_incomplete_envelope_is_invalid_params(wire_hub: Any) -> None:
    async with connected(wire_hub[0], MODERN) as peer:
        params = modern()
        del params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
        for broken in (params, modern(log_level="loud"), modern(capabilities={}, token=1.5)):  # type: ignore[arg-type]
            if isinstance(peer.wire, HttpClient):
                answer = await peer.wire.request("tools/list", broken)
                assert answer.status == 400
                error = answer.last["error"]
            else:
                error = (await peer.wire.request("tools/list", broken))["error"]
            assert error["code"] == -32602, error


async def test_instructions_say_what_servers_are_for_as_soon_as_they_are_ready(tmp_path: Path) -> None:
    servers = {"a": argv(instructions="I do sums. More."), "b": argv(instructions="I do not.")}
    settings = json.loads(servers_yaml(servers))
    settings["servers"]["b"]["description"] = "configured"
    async with http_hub(json.dumps(settings), tmp_path) as running, HttpClient(running.url) as client:
        for name in servers:
            await running.wait_stderr(rf'"upstream": "{name}".*upstream_ready')
        instructions = (await client.initialize()).last["result"]["instructions"]
        assert re.search(r"^a \(\d+\): I do sums$", instructions, re.MULTILINE)
        assert re.search(r"^b \(\d+\): configured$", instructions, re.MULTILINE)


# -- one pipe


async def test_requests_of_both_eras_interleave_on_one_pipe(tmp_path: Path) -> None:
    servers = {name: argv(name=name, era=era) for name, era in UPSTREAMS.items()}
    async with stdio_session(servers_yaml(servers), tmp_path) as client:
        await client.request("tools/list")
        for i in range(200):
            upstream = "hm"[i // 2 % 2]
            call = {"name": f"{upstream}_progress", "arguments": {"n": 2, "nonce": f"n{i}"}}
            params = modern(call, token=i) if i % 2 else {**call, "_meta": {"progressToken": str(i)}}
            await client.send_request("tools/call", params, id=str(i) if i % 3 else i + 1000)
        for i in range(200):
            answer = await client.response(str(i) if i % 3 else i + 1000)
            assert json.loads(answer["result"]["content"][0]["text"])["nonce"] == f"n{i}"
            assert ("resultType" in answer["result"]) == bool(i % 2)
            token = i if i % 2 else str(i)
            progress = client.notifications("notifications/progress")
            mine = [p for p in progress if p["params"]["progressToken"] == token]
            assert [p["params"]["message"] for p in mine] == [f"n{i} 1", f"n{i} 2"]
            assert client.transcript.index(mine[-1]) < client.transcript.index(answer)
        assert await client.close() == 0


# -- lists


LISTS = {
    "tools/list": ("tools", "name"),
    "prompts/list": ("prompts", "name"),
    "resources/list": ("resources", "uri"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate"),
}


async def test_lists_are_paged_on_both_sides(tmp_path: Path) -> None:
    servers = {"a": argv("--page", "7", name="a", tools=20), "b": argv("--page", "1", name="b")}
    whole = {"a": argv(name="a", tools=20), "b": argv(name="b")}
    lists: list[dict[tuple[str, str], list[str]]] = []
    for name, config_text in (("paged", servers_yaml(servers, hub={"page_size": 5})), ("whole", servers_yaml(whole))):
        (tmp_path / name).mkdir()
        async with http_hub(config_text, tmp_path / name) as hub:
            lists.append({})
            for era in ERAS:
                async with connected(hub, era) as peer:
                    for method, (key, field) in LISTS.items():
                        lists[-1][era, method] = await peer.names(method, key, field)
                        if name == "paged":
                            await _check_cursors(peer, method, key)
    paged, complete = lists
    assert paged == complete
    assert len(paged[HANDSHAKE, "tools/list"]) > 50
    assert len(set(paged[HANDSHAKE, "tools/list"])) == len(paged[HANDSHAKE, "tools/list"])


async def _check_cursors(peer: Peer, method: str, key: str) -> None:
    cursors: list[object] = ["nonsense", "AAAA", 5, {}, "é" * 1000]
    for cursor in cursors:
        error = (await peer.request(method, {"cursor": cursor})).error
        assert error["code"] == -32602, (cursor, error)
    first = (await peer.request(method)).result
    if "nextCursor" in first:
        assert len(first[key]) == 5
        second = [(await peer.request(method, {"cursor": first["nextCursor"]})).result for _ in range(2)]
        assert second[0] == second[1]
        assert first[key] != second[0][key]

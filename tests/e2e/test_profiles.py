"""Profiles by URL, token and flag, and overrides, as clients of each front and era meet them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.sse_client import SseClient
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_session
from tests.upstreams.child import WAIT
from tests.upstreams.launch import entry, received

pytestmark = pytest.mark.anyio

FREE, BOUND = "free-token", "bound-token"
READING = ["a_echo", "a_odd"]
README, BLOB = "test://a/readme", "test://a/blob"
PROFILES = {
    "small": {
        "tools": {"allow": ["a_ec*", {"tag": "slow"}, "a_big"], "deny": ["a_big"]},
        "resources": {"deny": [BLOB, "test://a/item/{id}"]},
        "prompts": {"deny": ["*_fixed"]},
    },
    "re ad": {"tools": {"allow": [{"readOnlyHint": True}]}},
}
PER_TOOL = {
    "slow": {"tags": ["slow"]},
    "log": {"name": "say", "description": "Says it.", "arguments": {"level": "error"}, "fixed": {"logger": "hub"}},
    "progress*": {"hide": True},
}


def config(root: Path, **hub: Any) -> str:
    own = {**entry(name="a", journal=root / "journal"), "per_tool": PER_TOOL}
    return json.dumps({"hub": {"expose": "full", **hub}, "servers": {"a": own}, "profiles": PROFILES})


@pytest.fixture(scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """Without tokens: whoever comes may choose."""
    root = tmp_path_factory.mktemp("profiles")
    async with http_hub(config(root), root) as running:
        yield running


@pytest.fixture(scope="module")
async def guarded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    """With a token that is bound to a profile, and one that is not."""
    root = tmp_path_factory.mktemp("guarded")
    tokens = [{"token": FREE, "principal": "p"}, {"token": BOUND, "principal": "p", "profile": "small"}]
    async with http_hub(config(root, tokens=tokens), root) as running:
        yield running


@asynccontextmanager
async def peer_at(url: str, era: str, token: str | None = None) -> AsyncIterator[Peer]:
    async with HttpClient(url, token) as client:
        if era == HANDSHAKE:
            assert (await client.initialize()).status == 200
        yield Peer(client, era)


async def status_at(url: str, era: str, token: str | None = None) -> tuple[int, str]:
    """What a first request is answered there."""
    async with HttpClient(url, token) as client:
        peer = Peer(client, era)
        answer = await (client.initialize() if era == HANDSHAKE else client.request("tools/list", peer.params()))
        return answer.status, answer.last["error"]["message"] if "error" in answer.last else ""


async def tools_of(peer: Peer) -> list[str]:
    """Those of the server; the hub has some of its own."""
    return [name for name in await peer.names() if name.startswith("a_") or name == "say"]


# -- by URL


@pytest.mark.parametrize("era", ERAS)
async def test_url_narrows_every_list_and_what_it_hides_cannot_be_used(hub: Hub, era: str) -> None:
    async with peer_at(f"{hub.url}/p/small", era) as peer:
        assert await tools_of(peer) == ["a_echo", "a_slow"]
        assert (await peer.call("a_echo", {"text": "x"})).result["structuredContent"] == {"text": "x"}
        for name in ("a_big", "big", "say", "log", "a_log", "a_progress", "echo"):
            error = (await peer.call(name)).error
            assert (error["code"], name in error["message"]) == (-32602, True)
        uris = await peer.names("resources/list", "resources", "uri")
        assert README in uris and BLOB not in uris
        assert (await peer.request("resources/read", {"uri": README})).result["contents"]
        for uri in (BLOB, "test://a/item/1", f"hub://a/{BLOB}"):
            assert (await peer.request("resources/read", {"uri": uri})).error["code"] in (-32002, -32602)
        assert await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate") == []
        assert "a_fixed" not in await peer.names("prompts/list", "prompts")
        assert (await peer.request("prompts/get", {"name": "a_fixed"})).error["code"] == -32602
        ref = {"type": "ref/prompt", "name": "a_fixed"}
        completion = {"ref": ref, "argument": {"name": "x", "value": ""}}
        assert (await peer.request("completion/complete", completion)).error["code"] == -32602


@pytest.mark.parametrize("era", ERAS)
async def test_url_without_a_profile_has_everything_but_what_is_hidden_for_all(hub: Hub, era: str) -> None:
    async with connected(hub, era) as peer:
        names = await tools_of(peer)
        assert {"a_echo", "a_big", "a_slow", "say"} <= set(names)
        assert not {"a_log", "a_progress", "a_progress_odd"} & set(names)
        for name in ("progress", "a_progress", "a_progress_odd", "a_log"):
            assert (await peer.call(name, {"n": 1})).error["code"] == -32602
    async with peer_at(f"{hub.url}/p/re%20ad", era) as peer:
        assert await tools_of(peer) == READING


@pytest.mark.parametrize("era", ERAS)
async def test_unknown_profile_is_not_found_and_no_other_is_named(hub: Hub, era: str) -> None:
    status, said = await status_at(f"{hub.url}/p/nothing", era)
    assert status == 404 and '"nothing"' in said and "small" not in said


async def test_session_is_bound_to_the_profile_that_it_began_with(hub: Hub) -> None:
    async with HttpClient(f"{hub.url}/p/small") as client:
        await client.initialize()
        for other in (hub.url, f"{hub.url}/p/re%20ad"):
            client.url = other
            assert (await client.request("tools/list")).status == 404
            assert (await client.delete()).status == 404
        client.url = f"{hub.url}/p/small"
        assert (await client.request("tools/list")).status == 200


async def test_old_sse_transport_has_profiles_of_its_own(hub: Hub) -> None:
    async with SseClient.connect(f"{hub.url}/p/re%20ad") as client:
        await client.initialize()
        assert "/messages/p/re%20ad?sessionId=" in client.endpoint
        listed = (await client.request("tools/list"))["result"]["tools"]
        assert [tool["name"] for tool in listed if tool["name"].startswith("a_")] == READING
        right = client.endpoint
        client.endpoint = right.replace("/p/re%20ad", "")
        assert (await client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})).status_code == 404
        client.endpoint = right.replace("re%20ad", "small")
        assert (await client.post({"jsonrpc": "2.0", "id": 9, "method": "ping"})).status_code == 404


async def test_rest_takes_the_profile_from_the_query(hub: Hub) -> None:
    async with RestClient(hub) as client:
        listed = (await client.ask("GET", "/tools?profile=small")).json()["tools"]
        assert [tool["name"] for tool in listed if tool["name"].startswith("a_")] == ["a_echo", "a_slow"]
        body = {"arguments": {"text": "x"}}
        assert (await client.ask("POST", "/tools/a_echo/call?profile=small", body)).status_code == 200
        hidden = await client.ask("POST", "/tools/a_big/call?profile=small", {})
        assert (hidden.status_code, hidden.json()["code"]) == (404, "unknown_tool")
        unknown = await client.ask("GET", "/tools?profile=nothing")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_profile")
        assert unknown.headers["content-type"] == "application/problem+json"


async def test_rest_lists_the_resources_and_prompts_that_mcp_lists(hub: Hub) -> None:
    async with RestClient(hub) as client:
        for profile in ("", "small"):
            query, path = (f"?profile={profile}", f"/p/{profile}") if profile else ("", "")
            async with peer_at(f"{hub.url}{path}", MODERN) as peer:
                for kind, key in (("resources", "uri"), ("prompts", "name")):
                    shown = (await client.ask("GET", f"/{kind}{query}")).json()
                    assert [one[key] for one in shown[kind]] == await peer.names(f"{kind}/list", kind, key)
                templates = await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate")
                shown = (await client.ask("GET", f"/resources{query}")).json()
                assert [one["uriTemplate"] for one in shown["resourceTemplates"]] == templates
        assert templates == [] and BLOB not in str(shown) and README in str(shown)
        everything = (await client.ask("GET", "/resources")).json()
        assert everything["resourceTemplates"] and BLOB in str(everything)


# -- by token and by flag


@pytest.mark.parametrize("era", ERAS)
async def test_token_that_is_bound_has_its_profile_and_no_other(guarded: Hub, era: str) -> None:
    for url in (guarded.url, f"{guarded.url}/p/small"):
        async with peer_at(url, era, BOUND) as peer:
            assert await tools_of(peer) == ["a_echo", "a_slow"]
    foreign, unknown = [await status_at(f"{guarded.url}/p/{name}", era, BOUND) for name in ("re%20ad", "nothing")]
    assert foreign[0] == 404 and foreign == (unknown[0], unknown[1].replace("nothing", "re ad"))
    async with RestClient(guarded, BOUND) as client:
        assert (await client.ask("GET", "/tools?profile=re%20ad")).status_code == 404


@pytest.mark.parametrize("era", ERAS)
async def test_token_that_is_not_bound_may_choose(guarded: Hub, era: str) -> None:
    async with peer_at(f"{guarded.url}/p/re%20ad", era, FREE) as peer:
        assert await tools_of(peer) == READING
    assert (await status_at(f"{guarded.url}/p/small", era))[0] == 401


async def test_flag_binds_everybody(tmp_path: Path) -> None:
    async with http_hub(config(tmp_path), tmp_path, "--profile", "small") as running:
        for era in ERAS:
            async with connected(running, era) as peer:
                assert await tools_of(peer) == ["a_echo", "a_slow"]
            assert (await status_at(f"{running.url}/p/re%20ad", era))[0] == 404
    async with stdio_session(config(tmp_path), tmp_path, "--profile", "re ad") as client:
        assert await tools_of(Peer(client, HANDSHAKE)) == READING
        assert (await Peer(client, HANDSHAKE).call("a_slow", {"seconds": 0})).error["code"] == -32602
        assert await client.close() == 0


# -- overrides


@pytest.mark.parametrize("era", ERAS)
async def test_tool_that_is_overridden_is_listed_and_called_as_the_settings_say(hub: Hub, era: str) -> None:
    async with connected(hub, era) as peer:
        (listed,) = [tool for tool in (await peer.request("tools/list")).result["tools"] if tool["name"] == "say"]
        assert listed["description"] == "Says it."
        assert sorted(listed["inputSchema"]["properties"]) == ["data", "delay", "level", "n"]
        assert listed["inputSchema"]["required"] == ["data"]
        assert (await peer.call("say", {"data": era})).result["content"]
        refused = (await peer.call("say", {"data": "x", "logger": "mine"})).error
        assert refused["code"] == -32602 and "'logger'" in refused["message"]
    journal = Path(hub.argv[hub.argv.index("--config") + 1]).parent / "journal"
    (call,) = [
        one["params"] for one in received(journal, "tools/call") if one["params"]["arguments"].get("data") == era
    ]
    assert (call["name"], call["arguments"]) == ("log", {"data": era, "level": "error", "logger": "hub"})


async def test_pattern_that_matches_nothing_is_warned_of_once_its_server_is_listed(tmp_path: Path) -> None:
    text = json.loads(config(tmp_path, pinned=["a_echo", "b_*"]))
    text["servers"]["a"]["tools"] = {"deny": ["no_such"]}
    async with http_hub(json.dumps(text), tmp_path) as running:
        async with connected(running, HANDSHAKE) as peer:
            await peer.names()
        said = await running.wait_stderr(r".*no_such.*pattern_unmatched", WAIT)
        assert "servers.a.tools.deny.0" in said.group()
        assert "hub.pinned.1" in (await running.wait_stderr(r".*b_\*.*pattern_unmatched", WAIT)).group()
        assert "a_echo" not in running.stderr

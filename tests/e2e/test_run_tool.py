"""The meta-tools on real fronts: what cannot be called, what is wrong, what is still starting."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import HttpClient
from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import ERAS, FRONTS, HANDSHAKE, MODERN, Peer, Seen, connected, http_hub, stdio_hub
from tests.upstreams.child import HttpUpstream
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio


def config(**servers: Any) -> str:
    """Server `a`, whose tool `env` nobody is to know of, and others."""
    text = json.loads(servers_yaml({"a": argv(name="a"), **servers}))
    text["servers"]["a"]["tools"] = {"deny": ["env"]}
    return json.dumps(text)


@pytest.fixture(scope="module", params=FRONTS)
async def hub(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    root = tmp_path_factory.mktemp(request.param)
    async with AsyncExitStack() as stack:
        remote = await stack.enter_async_context(HttpUpstream(name="r", era=MODERN))
        text = config(r=remote.url)
        if request.param == "stdio":
            client = await stack.enter_async_context(stdio_hub(text, root))
            await client.initialize()
            yield client
        else:
            yield await stack.enter_async_context(http_hub(text, root))


@pytest.fixture(params=ERAS)
async def peer(request: pytest.FixtureRequest, hub: Any) -> AsyncIterator[Peer]:
    async with connected(hub, request.param, runs_tools=True) as peer:
        await peer.names()
        yield peer


def refusal(seen: Seen) -> str:
    assert seen.result["isError"] is True, seen.answer
    return seen.text


async def test_what_is_hidden_is_as_unknown_as_what_never_was(peer: Peer) -> None:
    for hidden, absent in (("a_env", "a_emv"), ("env", "emv"), ("A_ENV", "A_EMV")):
        there, none = refusal(await peer.call(hidden)), refusal(await peer.call(absent))
        said, _, near = there.partition(". Did you mean ")
        assert said == none.partition(". Did you mean ")[0].replace(absent, hidden)
        assert "a_env" not in near and "find_tools" in there
    peer.runs_tools = False
    found = await peer.call("find_tools", {"query": "a_env"})
    assert "a_env" not in found.text
    assert "a_env" not in (await peer.call("find_tools", {"query": "environment of the server"})).text


async def test_a_name_that_is_nearly_right_is_put_right(peer: Peer) -> None:
    assert "a_echo" in refusal(await peer.call("a_ecko"))


async def test_of_the_hubs_own_tools_run_tool_runs_all_but_itself(peer: Peer) -> None:
    assert "a_echo(text:str" in (await peer.call("find_tools", {"query": "echo arguments"})).text
    assert refusal(await peer.call("run_tool", {"name": "a_echo", "arguments": {"text": "x"}}))
    assert "read_result" in refusal(await peer.call("read_result", {"id": "r0"}))
    assert refusal(await peer.call("hub_wait", {"stream": "st_0"}))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"arguments": None},
        {"arguments": {}},
        {"arguments": {"name": 5}},
        {"arguments": {"name": "a_echo", "arguments": [1]}},
    ],
    ids=str,
)
async def test_wrong_arguments_are_explained_to_the_model(peer: Peer, params: dict[str, Any]) -> None:
    peer.runs_tools = False
    assert "run_tool: " in refusal(await peer.request("tools/call", {"name": "run_tool", **params}))


async def test_headers_that_a_modern_server_wants_are_made_of_what_is_meant(peer: Peer) -> None:
    """Its SDK would refuse a request without them (2026-07-28 basic/transports, "Mcp-Param")."""
    arguments = {"region": "eu", "n": 7, "flag": True}
    assert (await peer.call("r_region", arguments)).result["structuredContent"] == arguments


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_right_after_the_start_waits_for_its_server(era: str, tmp_path: Path) -> None:
    text = servers_yaml({"a": argv("--start-delay", "0.5", name="a")})
    async with stdio_hub(text, tmp_path) as wire:
        if era == HANDSHAKE:
            await wire.initialize()
        peer = Peer(wire, era, runs_tools=True)
        assert (await peer.call("a_echo", {"text": "early"})).result["structuredContent"] == {"text": "early"}


async def test_over_rest_they_are_tools_like_any_other(tmp_path: Path) -> None:
    async with http_hub(config(), tmp_path) as hub, RestClient(hub) as rest:
        async with HttpClient(hub.url) as client:
            await Peer(client, MODERN).names()
        said = await rest.call("run_tool", {"name": "a_echo", "arguments": {"text": "x"}})
        assert said.status_code == 200 and said.json()["result"]["structuredContent"] == {"text": "x"}, said.text
        found = await rest.call("find_tools", {"query": "echo arguments"})
        assert found.status_code == 200 and "a_echo(" in found.text, found.text
        hidden = await rest.call("run_tool", {"name": "a_env"})
        assert hidden.status_code == 200 and hidden.json()["result"]["isError"], hidden.text

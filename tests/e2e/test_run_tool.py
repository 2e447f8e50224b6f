"""The meta-tools on real fronts: what cannot be called, what is wrong, what is still starting."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.interaction.fronts import ERAS, FRONTS, MODERN, Peer, Seen, connected, http_hub, stdio_hub
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


async def test_headers_that_a_modern_server_wants_are_made_of_what_is_meant(peer: Peer) -> None:
    """Its SDK would refuse a request without them (2026-07-28 basic/transports, "Mcp-Param")."""
    arguments = {"region": "eu", "n": 7, "flag": True}
    assert (await peer.call("r_region", arguments)).result["structuredContent"] == arguments

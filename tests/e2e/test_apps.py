"""Two servers with an app at one address and tools of the same names, behind one hub: on every front, in both eras.

The one half is made with the official SDK of the extension, the other speaks the modern era, too.
"""

import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from rigs.clients.install import NotInstalled, node, node_package
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, Peer, http_hub, stdio_hub
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.processes]

HERE = Path(__file__).parent
SDK = "@modelcontextprotocol/ext-apps@1.7.0"
UI = "io.modelcontextprotocol/ui"
SHOWS: Message = {"extensions": {UI: {"mimeTypes": ["text/html;profile=mcp-app"]}}}
ADDRESS, OTHER = "ui://board/main", "ui://b/board/main"


def servers(kind: str) -> Message:
    """The two servers of this kind, and one to which the hub declares no apps."""
    if kind == "plain":
        argv = [sys.executable, str(HERE / "app_server.py")]
    else:
        try:
            modules = node_package(SDK).parents[1]
        except NotInstalled as reason:
            pytest.skip(str(reason))
        argv = [str(node()), str(HERE / "app_server.mjs"), str(modules)]
    return {
        name: {"command": argv[0], "args": [*argv[1:], name], "start": "eager", **more}
        for name, more in {"a": {}, "b": {}, "off": {"apps": False}}.items()
    }


def config(kind: str) -> str:
    hub = {"prefix": "always", "expose": "search"}
    profiles = {"both": {"servers": ["a", "b"]}, "only_b": {"servers": ["b"], "tools": {"deny": ["b_plain"]}}}
    return json.dumps({"hub": hub, "servers": servers(kind), "profiles": profiles})


@pytest.fixture(scope="module")
async def urls(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable[[str], Awaitable[str]]]:
    """The URL of the hub over HTTP in front of servers of a kind, which is started when a test asks for it."""
    async with AsyncExitStack() as stack:
        made: dict[str, Hub] = {}

        async def url(kind: str) -> str:
            if kind not in made:
                root = tmp_path_factory.mktemp(kind)
                made[kind] = await stack.enter_async_context(http_hub(config(kind), root, relays_all=False))
            return made[kind].url

        yield url


@asynccontextmanager
async def client(wire: StdioClient | HttpClient, era: str, capabilities: Message) -> AsyncIterator[Peer]:
    if era == HANDSHAKE:
        await wire.initialize("2025-11-25", capabilities)
    yield Peer(wire, era, capabilities=capabilities)


@asynccontextmanager
async def client_at(url: str, era: str, capabilities: Message) -> AsyncIterator[Peer]:
    async with HttpClient(url) as wire, client(wire, era, capabilities) as peer:
        yield peer


async def tools_of(peer: Peer) -> dict[str, Message]:
    return {tool["name"]: tool for tool in (await peer.request("tools/list")).result["tools"]}


@pytest.mark.first(1)
@pytest.mark.parametrize(("kind", "era"), [("sdk", HANDSHAKE), ("plain", MODERN)])
async def test_an_app_is_shown_and_calls_its_own_server_over_stdio(kind: str, era: str, tmp_path: Path) -> None:
    async with stdio_hub(config(kind), tmp_path, "--profile", "both", client=None) as wire:
        async with client(wire, era, SHOWS) as peer:
            await check_lists(peer)
            await check_model(peer)
            await check_app(peer)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["sdk", "plain"])
@pytest.mark.first(2)
async def test_an_app_is_shown_and_calls_its_own_server_over_http_and_other_clients_see_none_of_it(
    kind: str, era: str, urls: Callable[[str], Awaitable[str]]
) -> None:
    url = f"{await urls(kind)}/p/both"
    async with client_at(url, era, SHOWS) as peer, client_at(url, era, {}) as other:
        await check_lists(peer)
        await check_model(peer)
        await check_app(peer, is_known=era == HANDSHAKE)
        plain = await tools_of(other)
        assert not any("ui" in tool.get("_meta", {}) for tool in plain.values()) and "b_refresh" not in plain
        assert "Unknown tool" in (await other.call("b_refresh")).error["message"]
        await check_model(other)


async def check_lists(peer: Peer) -> None:
    """Tools with apps are listed beside those of the search, each with the address that the client can read."""
    tools = await tools_of(peer)
    metas = {name: tool["_meta"]["ui"] for name, tool in tools.items() if "ui" in tool.get("_meta", {})}
    assert metas == {
        **{"a_show": {"resourceUri": ADDRESS}, "a_refresh": {"resourceUri": ADDRESS, "visibility": ["app"]}},
        **{"b_show": {"resourceUri": OTHER}, "b_refresh": {"resourceUri": OTHER, "visibility": ["app"]}},
    }
    assert "find_tools" in tools and "b_plain" not in tools


async def check_model(peer: Peer) -> None:
    """A model finds and runs what is for it alone."""
    found = (await peer.call("find_tools", {"query": "refresh the board", "limit": 50})).text
    assert "b_show" in found and "refresh" not in found.lower().replace("refresh the board", "")
    listed, exact = [(await peer.call("find_tools", asked)).text for asked in ({"server": "b"}, {"query": "b_refresh"})]
    assert "b_plain" in listed and "b_refresh" not in listed and "Refreshes" not in exact
    for runner in ("run_tool", "read_tool"):
        refused = (await peer.call(runner, {"name": "b_refresh"})).result
        assert refused["isError"] and "Unknown tool: b_refresh" in refused["content"][0]["text"]


async def check_app(peer: Peer, *, is_known: bool = True) -> None:
    """The app of b is read and then calls by its server's own names; `is_known`: the hub knows that it was."""
    unclear = (await peer.call("refresh")).error
    assert unclear["code"] == -32602 and "use a_refresh, b_refresh" in unclear["message"]
    (content,) = (await peer.request("resources/read", {"uri": OTHER})).result["contents"]
    assert (content["uri"], content["mimeType"], content["text"]) == (OTHER, "text/html;profile=mcp-app", "<p>b</p>")
    assert content["_meta"]["ui"] == {"csp": {"connectDomains": ["https://b.example"]}, "prefersBorder": True}
    if is_known:
        assert (await peer.call("refresh")).text == "b is fresh"
    else:
        assert "use a_refresh, b_refresh" in (await peer.call("refresh")).error["message"]
    named = await peer.request("tools/call", {"name": "refresh", "_meta": {"dev.mcp-hub/server": "b"}})
    assert named.text == "b is fresh" and (await peer.call("a_refresh")).text == "a is fresh"
    for server, address in (("a", ADDRESS), ("b", OTHER)):
        said, link = (await peer.call(f"{server}_show")).result["content"]
        assert (said["text"], link["uri"]) == (f"{server} shows", address)
    (first,) = (await peer.request("resources/read", {"uri": ADDRESS})).result["contents"]
    assert (first["uri"], first["text"]) == (ADDRESS, "<p>a</p>")


@pytest.mark.parametrize("era", ERAS)
async def test_a_profile_with_one_server_keeps_its_address_and_its_names(
    era: str, urls: Callable[[str], Awaitable[str]]
) -> None:
    url = await urls("plain")
    async with client_at(f"{url}/p/only_b", era, SHOWS) as peer:
        assert (await tools_of(peer))["b_show"]["_meta"]["ui"]["resourceUri"] == ADDRESS
        assert (await peer.call("refresh")).text == "b is fresh", "no other server could be meant"
        assert "error" in (await peer.call("plain")).answer, "which the profile hides"
        (content,) = (await peer.request("resources/read", {"uri": ADDRESS})).result["contents"]
        assert content["text"] == "<p>b</p>"
    async with client_at(url, era, SHOWS) as peer:
        found = (await peer.call("find_tools", {"server": "off"})).text
        assert "off_plain" in found and "off_show" not in found, "it was told of no apps and offers none"


async def test_a_session_that_outlives_the_hub_still_knows_whose_app_it_has_read(tmp_path: Path) -> None:
    plain = json.loads(config("plain"))
    plain["servers"] |= {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}
    text = json.dumps(plain)
    async with http_hub(text, tmp_path, relays_all=False) as hub, HttpClient(hub.url) as before:
        await before.initialize("2025-11-25", SHOWS)
        job = {"name": "jobs_run_job", "arguments": {"steps": 2, "seconds": 0.1}, "_meta": {"progressToken": 1}}
        assert len((await before.request("tools/call", job)).events) > 1, "a stream that it may come back for"
        await before.request("resources/read", {"uri": OTHER})
    async with http_hub(text, tmp_path, relays_all=False) as hub, HttpClient(hub.url) as after:
        after.session, after.version = before.session, before.version
        await after.request("tools/list")
        answer = await after.request("tools/call", {"name": "refresh", "arguments": {}})
    assert answer.last["result"]["content"][0]["text"] == "b is fresh"

"""What clients of a running hub are listed while a server of it is not known yet, and once it is, on every front."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient
from tests.e2e.sse_client import SseClient
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, http_hub, stdio_session
from tests.upstreams.child import WAIT
from tests.upstreams.held_start import __file__ as HELD_START
from tests.upstreams.launch import argv
from tests.upstreams.messages import modern
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

FAST = ["a_one", "a_two"]
SEARCH = ["find_tools", "read_tool", "run_tool", "read_result"]
CHANGED = "notifications/tools/list_changed"


class Slow:
    """Two servers, `a`, and `b` with `count` tools, which starts when it is let go."""

    def __init__(self, root: Path, count: int) -> None:
        self.root = root
        self.tools = [f"b_tool_{number}" for number in range(count)]
        self._write("a", [name.removeprefix("a_") for name in FAST])
        self._write("b", [name.removeprefix("b_") for name in self.tools])

    def _write(self, server: str, names: list[str]) -> None:
        tools = [{"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}} for name in names]
        (self.root / f"{server}.json").write_text(json.dumps(tools))

    def config(self, **hub: Any) -> str:
        fast, slow = (argv(name=name, tools_json=self.root / f"{name}.json") for name in "ab")
        held = [slow[0], HELD_START, str(self.root / "gate"), *slow]
        servers = {name: {"command": own[0], "args": own[1:]} for name, own in (("a", fast), ("b", held))}
        return json.dumps({"hub": hub, "servers": servers})

    def let_go(self) -> None:
        (self.root / "gate").touch()


@asynccontextmanager
async def over_stdio(slow: Slow, client: str | None = "claude-code", **hub: Any) -> AsyncIterator[StdioClient]:
    async with stdio_session(slow.config(**hub), slow.root, client=client) as running:
        yield running
        assert running.noise == [] and await running.close() == 0


async def is_known(client: StdioClient, after: int) -> None:
    await client.wait_for(lambda message: message.get("method") == CHANGED, after=after)


# -- stdio


async def test_the_search_is_listed_while_a_server_is_unknown_and_no_longer_once_it_is(tmp_path: Path) -> None:
    slow, own = Slow(tmp_path, 5), ["hub_calls", "hub_cancel"]
    async with over_stdio(slow, None, first_list_wait="200ms") as hub:
        peer = Peer(hub, HANDSHAKE)
        await peer.request("ping")
        await known_first(peer)
        assert await peer.names() == [*SEARCH, *own, *FAST]
        found = await peer.call("find_tools", {"query": "tool 3"})
        assert found.text.splitlines()[-1] == "Starting, tools not known yet: b."
        before = len(hub.transcript)
        slow.let_go()
        await is_known(hub, before)
        lists = [(await peer.request("tools/list")).result["tools"] for _ in range(2)]
        assert [tool["name"] for tool in lists[0]] == ["read_result", *own, *FAST, *slow.tools]
        assert json.dumps(lists[0]) == json.dumps(lists[1])
        assert "b_tool_3()" in (await peer.call("find_tools", {"query": "tool 3"})).text, "though it is not listed"


@pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")
async def test_run_code_is_listed_while_no_server_is_up_and_waits_for_what_its_script_names(tmp_path: Path) -> None:
    slow = Slow(tmp_path, 5)
    config = json.loads(slow.config(first_list_wait="200ms", code="all"))
    del config["servers"]["a"]
    async with stdio_session(json.dumps(config), tmp_path, client="claude-code") as hub:
        peer = Peer(hub, HANDSHAKE)
        assert "run_code" in await peer.names()
        assert (await peer.call("run_code", {"code": "1 + 1"})).text == "2", "it needs nobody"
        waiting = await hub.send_request("tools/call", {"name": "run_code", "arguments": {"code": "await b_tool_3()"}})
        slow.let_go()
        result = (await hub.response(waiting))["result"]
        assert not result.get("isError"), result


async def known_first(peer: Peer) -> None:
    """Waits until server `a` is up: the answer to a call of its tool waits for nobody else."""
    while "error" in (await peer.call("a_one")).answer:
        await anyio.lowlevel.checkpoint()


async def test_a_session_keeps_its_mode_though_it_would_be_another_one_now(tmp_path: Path) -> None:
    slow = Slow(tmp_path, 70)
    async with over_stdio(slow, None, first_list_wait="200ms", max_result_tokens=0) as hub:
        peer = Peer(hub, HANDSHAKE)
        await known_first(peer)
        early = ["hub_calls", "hub_cancel"]
        assert await peer.names() == ["find_tools", "read_tool", "run_tool", *early, *FAST]
        before = len(hub.transcript)
        slow.let_go()
        await is_known(hub, before)
        assert await peer.names() == [*early, *FAST, *slow.tools]
        assert await Peer(hub, MODERN).names() == ["find_tools", "read_tool", "run_tool", "hub_calls"], (
            "a modern request is a session of its own"
        )
        assert await peer.names() == [*early, *FAST, *slow.tools]


async def test_a_first_list_and_calls_of_tools_nobody_knows_wait_for_servers_that_start(tmp_path: Path) -> None:
    slow = Slow(tmp_path, 70)
    async with over_stdio(slow, first_list_wait="60s") as hub:
        asked = [
            await hub.send_request("tools/list"),
            await hub.send_request("tools/call", {"name": "find_tools", "arguments": {"query": "tool 3"}}),
            await hub.send_request("tools/call", {"name": "run_tool", "arguments": {"name": "b_tool_3"}}),
            await hub.send_request("tools/call", {"name": "run_tool", "arguments": {"name": "b_tool_x"}}),
        ]
        await hub.request("ping")
        assert not any(message.get("id") in asked for message in hub.transcript)
        slow.let_go()
        listed, found, run, unknown = [(await hub.response(id_))["result"] for id_ in asked]
        names = [tool["name"] for tool in listed["tools"]]
        assert names == ["read_result", "hub_calls", *FAST, *slow.tools], "deferred by the client"
        assert "b_tool_3()" in found["content"][0]["text"] and "starting" not in found["content"][0]["text"]
        assert not run.get("isError")
        assert unknown["isError"] and "b_tool_" in unknown["content"][0]["text"].partition("b_tool_x")[2]


# -- HTTP


async def test_over_http_each_session_has_the_mode_of_its_first_list_and_each_modern_request_that_of_now(
    tmp_path: Path,
) -> None:
    slow = Slow(tmp_path, 70)
    search = [*SEARCH, "hub_calls"]
    early = [*search, *FAST]
    async with (
        http_hub(slow.config(first_list_wait=0), tmp_path, relays_all=False) as hub,
        HttpClient(hub.url) as old,
        HttpClient(hub.url) as new,
        SseClient.connect(hub.url) as sse,
    ):
        await old.initialize()
        await sse.initialize()
        await known_first(Peer(old, HANDSHAKE))
        assert await Peer(old, HANDSHAKE).names() == await Peer(new, MODERN).names() == early
        assert sse_names(await sse.request("tools/list")) == early
        listen = new.message("subscriptions/listen", modern({"notifications": {"toolsListChanged": True}}))
        async with old.listen() as heard_old, new.stream(listen) as heard_new:
            await heard_new.wait_for(lambda message: "acknowledged" in message.get("method", ""))
            slow.let_go()
            for heard in (heard_old, heard_new):
                await heard.wait_for(lambda message: message.get("method") == CHANGED, WAIT)
            await sse.wait_for(lambda message: message.get("method") == CHANGED)
        kept = ["read_result", "hub_calls", *FAST, *slow.tools]
        assert await Peer(old, HANDSHAKE).names() == sse_names(await sse.request("tools/list")) == kept
        assert await Peer(new, MODERN).names() == search
        async with HttpClient(hub.url) as late:
            await late.initialize()
            assert await Peer(late, HANDSHAKE).names() == search
            assert not (await Peer(late, HANDSHAKE).call("run_tool", {"name": "b_tool_69"})).result.get("isError")
            assert not (await Peer(late, HANDSHAKE).call("b_tool_69")).result.get("isError"), "by its name, too"


def sse_names(answer: dict[str, Any]) -> list[str]:
    return [tool["name"] for tool in answer["result"]["tools"]]

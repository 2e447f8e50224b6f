"""Clients that would cut a long call, on both fronts, with their deadlines compressed to a fraction of a second."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient
from tests.e2e.held_tools import RESULT, Held, config
from tests.interaction.fronts import Peer, http_hub, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

STREAMS = "dev.mcp-hub/streams"
CLIENTS = {
    "claude-desktop": {"soft_deadline": "600ms"},
    "unknown": {"soft_deadline": "500ms"},
    "short": {"soft_deadline": "400ms"},
}
DESKTOP = "claude-ai"
UNKNOWN = "somebody"


@asynccontextmanager
async def over_stdio(root: Path, name: str, *args: str) -> AsyncIterator[StdioClient]:
    async with stdio_hub(config(clients=CLIENTS), root, *args, client=None) as client:
        await client.initialize(name=name)
        yield client


@pytest.fixture(scope="module", params=["stdio", "http"])
async def desktop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Peer, Held]]:
    """One client for all tests, whose nonces differ."""
    root = tmp_path_factory.mktemp("desktop")
    held = Held(root)
    if request.param == "stdio":
        async with over_stdio(root, DESKTOP) as client:
            yield Peer(client, "handshake"), held
        return
    async with http_hub(config(clients=CLIENTS), root) as hub, HttpClient(hub.url) as client:
        await client.initialize(name=DESKTOP)
        yield Peer(client, "handshake"), held


def text_of(result: Message) -> str:
    (block,) = result["content"]
    return str(block["text"])


def still(result: Message) -> dict[str, Any]:
    """The arguments that go on waiting for what this says is still running."""
    assert not result["isError"]
    mark = result["_meta"][STREAMS]
    assert mark["status"] == "working"
    return {"id": mark["stream"], "after": int(mark["cursor"])}


async def waited(peer: Peer, how: dict[str, Any]) -> tuple[str, Any]:
    """What `hub_calls` says until it is over: all new output, and the last answer."""
    output = ""
    while True:
        seen = await peer.call("hub_calls", how)
        if "error" in seen.answer or STREAMS not in seen.result.get("_meta", {}):
            return output, seen
        how = still(seen.result)
        new = text_of(seen.result).partition("New output:\n")[2]
        output += new


@pytest.mark.first(1)
async def test_a_desktop_client_gets_its_answer_in_time_and_the_result_later(desktop: tuple[Peer, Held]) -> None:
    peer, held = desktop
    with anyio.fail_after(240):
        first = await peer.call("job", {"nonce": "a"})
        assert text_of(first.result).endswith("Output so far:\npart one\n")
        how = still(first.result)
        held.say("a.more")
        second = await peer.call("hub_calls", how)
        assert text_of(second.result).endswith("New output:\npart two\n")
        held.say("a.done")
        _, last = await waited(peer, still(second.result))
        assert last.result == RESULT
        again = await peer.call("hub_calls", {"id": how["id"]})
        assert again.result == RESULT


async def test_the_call_can_be_cancelled(desktop: tuple[Peer, Held]) -> None:
    peer, _ = desktop
    how = still((await peer.call("job", {"nonce": "c"})).result)
    assert "job" in (await peer.call("hub_cancel", {"stream": how["id"]})).text
    _, last = await waited(peer, how)
    assert last.result["isError"] and "was cancelled" in last.text
    assert not (await peer.call("hub_cancel", {"stream": how["id"]})).result.get("isError")


async def test_many_calls_at_once_keep_apart(tmp_path: Path) -> None:
    held = Held(tmp_path)
    async with over_stdio(tmp_path, DESKTOP) as client:
        peer = Peer(client, "handshake")
        ids = [
            await client.send_request("tools/call", {"name": "job", "arguments": {"nonce": f"n{n}"}}) for n in range(8)
        ]
        hows = [still((await client.response(id_))["result"]) for id_ in ids]
        assert len({how["id"] for how in hows}) == 8
        for n in range(8):
            held.say(f"n{n}.more")
            held.say(f"n{n}.done")
        for how in hows:
            assert (await waited(peer, how))[1].result == RESULT


@pytest.mark.parametrize(
    ("name", "args", "has_cancel"),
    [
        (UNKNOWN, (), True),
        ("claude-code", (), False),
        (UNKNOWN, ("--client", "claude-code"), False),
        ("claude-code", ("--client", "Short"), True),
    ],
)
@pytest.mark.first(2)
async def test_over_stdio_the_name_or_the_option_decides(
    tmp_path: Path, name: str, args: tuple[str, ...], has_cancel: bool
) -> None:
    held = Held(tmp_path)
    async with over_stdio(tmp_path, name, *args) as client:
        peer = Peer(client, "handshake")
        names = await peer.names()
        assert "hub_calls" in names and ("hub_cancel" in names) is has_cancel
        if has_cancel:
            assert still((await peer.call("job", {"nonce": "a"})).result)
            return
        assert "outputSchema" in json.dumps((await peer.request("tools/list")).result)
        id_ = await client.send_request("tools/call", {"name": "job", "arguments": {"nonce": "a"}})
        await until(lambda: held.has_begun("a"))
        unknown = await peer.call("hub_cancel", {"stream": "st_0"})
        assert unknown.error["code"] == -32602
        held.say("a.more")
        held.say("a.done")
        answer = await client.response(id_)
        assert answer["result"]["structuredContent"] == {"n": 7}


@pytest.mark.parametrize("ends_first", [True, False])
@pytest.mark.first(1)
async def test_the_hub_is_restarted_before_the_client_asks(tmp_path: Path, ends_first: bool) -> None:
    held = Held(tmp_path)
    text = config(clients=CLIENTS)
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url) as client:
        await client.initialize(name=DESKTOP)
        how = still((await Peer(client, "handshake").call("job", {"nonce": "r"})).result)
        if ends_first:
            held.say("r.more")
            held.say("r.done")
            peer = Peer(client, "handshake")
            assert (await waited(peer, how))[1].result == RESULT
        hub.kill()
    async with http_hub(text, tmp_path) as hub, HttpClient(hub.url) as client:
        await client.initialize(name=DESKTOP)
        seen = await Peer(client, "handshake").call("hub_calls", how)
        if ends_first:
            assert seen.result == RESULT
        else:
            assert seen.error["code"] == 1006 and seen.error["data"]["outcome"] == "unknown"


async def test_an_unknown_kind_of_client_is_refused_at_the_start(tmp_path: Path) -> None:
    Held(tmp_path)
    for args, reason in (
        (("--client", "shrot"), "unknown client"),
        (("--client", "short", "--http"), "--client belongs"),
    ):
        async with stdio_hub(config(clients=CLIENTS), tmp_path, *args, client=None) as client:
            assert await client.wait() == 2
        assert reason in client.stderr

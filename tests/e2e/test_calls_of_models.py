"""A model looks into calls that its client waits for, and finds those that an earlier session has lost."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from tests.e2e.background import Background
from tests.e2e.held_tools import RESULT, Held, config
from tests.interaction.fronts import ERAS, HANDSHAKE, Peer, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

CODE = "claude-code"
NONE = "No running or recent calls."


@asynccontextmanager
async def over_stdio(root: Path, kind: str = CODE) -> AsyncIterator[StdioClient]:
    async with stdio_hub(config(), root, client=kind) as client:
        await client.initialize(name="somebody")
        yield client


async def listed(peer: Peer) -> list[str]:
    """The line of each call."""
    text = (await peer.call("hub_calls")).text
    return [] if text == NONE else text.partition("\n\n")[2].splitlines()


async def shown(peer: Peer, words: str) -> str:
    """The id of the one listed call, once its line has these words."""
    with anyio.fail_after(240):
        while len(lines := await listed(peer)) != 1 or words not in lines[0]:
            await anyio.lowlevel.checkpoint()
    return lines[0].split()[0]


@pytest.mark.first(1)
@pytest.mark.parametrize("era", ERAS)
async def test_a_model_sees_into_a_call_that_its_client_waits_for_and_so_does_a_later_session(
    tmp_path: Path, era: str
) -> None:
    held = Held(tmp_path)
    async with over_stdio(tmp_path) as client:
        peer = Peer(client, era)
        names = await peer.names()
        assert "hub_calls" in names and "hub_cancel" not in names
        params = peer.params({"name": "job", "arguments": {"nonce": "a"}})
        job = await client.send_request("tools/call", params)
        await until(lambda: held.has_begun("a"))
        id_ = await shown(peer, " job: working for ")
        await shown(peer, ": part one")
        async with over_stdio(tmp_path) as other:
            stranger = Peer(other, HANDSHAKE)
            assert await listed(stranger) == [], "that session has not ended"
            held.say("a.more")
            held.say("a.done")
            assert (await stranger.call("hub_calls", {"id": id_})).result == RESULT, "by its id"
        assert (await client.response(job))["result"]["structuredContent"] == {"n": 7}
        await shown(peer, " job: completed ")
        assert await client.close() == 0
    async with over_stdio(tmp_path) as client:
        peer = Peer(client, era)
        assert await shown(peer, " job: completed ") == id_
        assert (await peer.call("hub_calls", {"id": id_})).result["structuredContent"] == {"n": 7}
    async with over_stdio(tmp_path, "codex") as client:
        assert await listed(Peer(client, HANDSHAKE)) == []


@pytest.mark.slow
async def test_a_client_of_the_background_hub_finds_calls_of_ended_sessions_in_its_folder(hubs: Background) -> None:
    held, text = Held(hubs.root), config()
    async with hubs.client(text, "--client", CODE) as other:
        await other.initialize(name="somebody")
        async with hubs.client(text, "--client", CODE) as first:
            await first.initialize(name="somebody")
            await first.send_request("tools/call", {"name": "job", "arguments": {"nonce": "a"}})
            await until(lambda: held.has_begun("a"))
            await shown(Peer(first, HANDSHAKE), ": part one")
            assert await listed(Peer(other, HANDSHAKE)) == [], "that session has not ended"
            first.process.kill()
        id_ = await shown(Peer(other, HANDSHAKE), ": part one")
        held.say("a.more")
        held.say("a.done")
        assert (await Peer(other, HANDSHAKE).call("hub_calls", {"id": id_})).result == RESULT

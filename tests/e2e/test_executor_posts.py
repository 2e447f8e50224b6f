"""Accepted posts of a worker outlive the hub; so does the epoch that keeps earlier workers out."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub

pytestmark = pytest.mark.anyio

CONFIG = "servers: {}\n"
TOOL = {"name": "shout", "inputSchema": {"type": "object"}}


async def registered(client: RestClient) -> int:
    answer = await client.ask("PUT", "/executors/w", {"tools": [TOOL], "lease": "60s"})
    return int(answer.json()["epoch"])


async def fetched(client: RestClient, epoch: int) -> str:
    (offer,) = (await client.ask("GET", f"/executors/w/calls?epoch={epoch}")).json()["offers"]
    return str(offer["tool_call_id"])


async def posted(client: RestClient, epoch: int, seq: int, call: str, **body: Any) -> int:
    sent = {"tool_call_id": call, **body}
    answer = await client.ask("POST", "/tool-results/stream", sent, producer_epoch=str(epoch), producer_seq=str(seq))
    return answer.status_code


@pytest.mark.first(1)
@pytest.mark.parametrize("complete", [False, True])
async def test_what_was_acknowledged_is_there_after_a_kill(complete: bool, tmp_path: Path) -> None:
    with anyio.fail_after(240):
        async with http_hub(CONFIG, tmp_path) as hub, RestClient(hub) as client:
            epoch = await registered(client)
            streams = [await client.started("shout", {"n": n}) for n in range(3)]
            offers = (await client.ask("GET", f"/executors/w/calls?epoch={epoch}")).json()["offers"]
            for offer in offers[:-1]:
                assert await posted(client, epoch, 1, offer["tool_call_id"], content="early") == 200
            for seq, offer in zip((2, 2, 1), offers, strict=True):
                more = {"complete": True} if complete else {}
                assert await posted(client, epoch, seq, offer["tool_call_id"], content="late", **more) == 200
            await hub.kill_alone()
        async with http_hub(CONFIG, tmp_path) as hub, RestClient(hub) as client:
            for stream, said in zip(streams, ("earlylate", "earlylate", "late"), strict=True):
                page = (await client.ask("GET", f"/streams/{stream}/events?after=0")).json()
                texts = [
                    block["text"]
                    for event in page["events"]
                    if event["type"] == "delta"
                    for block in event["data"]["content"]
                ]
                assert "".join(texts) == said
                ending = (await client.until(stream, "completed", "failed"))["status"]
                assert ending == ("completed" if complete else "failed")


async def test_a_worker_of_the_hub_before_is_not_taken_for_the_one_that_registers_now(tmp_path: Path) -> None:
    async with http_hub(CONFIG, tmp_path) as hub, RestClient(hub) as client:
        old = await registered(client)
        await registered(client)
        await hub.kill_alone()
    async with http_hub(CONFIG, tmp_path) as hub, RestClient(hub) as client:
        new = await registered(client)
        assert new == old + 2
        await client.started("shout")
        assert (await client.ask("GET", f"/executors/w/calls?epoch={old}")).status_code == 403
        call = await fetched(client, new)
        assert await posted(client, old, 1, call, content="of another time", complete=True) == 403
        assert await posted(client, new, 1, call, content="mine", complete=True) == 200


async def test_a_worker_takes_no_name_from_a_server(tmp_path: Path) -> None:
    module = tmp_path / "tools_here.py"
    module.write_text(
        "from mcp_hub.upstreams.functions.registry import Registry\nregistry = Registry()\n"
        "@registry.tool(name='shout')\ndef shout() -> str:\n    return 'of the server'\n"
    )
    config = "servers:\n  own:\n    local: tools_here:registry\n    prefix: never\n"
    async with http_hub(config, tmp_path) as hub, RestClient(hub) as client:
        assert (await client.call("shout")).json()["result"]["content"][0]["text"] == "of the server"
        await registered(client)
        tools = [tool["name"] for tool in (await client.ask("GET", "/tools")).json()["tools"]]
        assert "shout" in tools and len(tools) == 2
        assert (await client.call("shout")).json()["result"]["content"][0]["text"] == "of the server"

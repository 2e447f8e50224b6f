"""Progress as fast as an upstream can send it: nothing is lost, merged or out of order for a client that reads."""

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mcp_hub.protocol.shape.results import COALESCED
from tests.interaction.fronts import ERAS, MODERN, connected, http_hub, stdio_hub
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio

COUNT = 20_000


def check(progress: list[dict[str, object]]) -> None:
    assert [params["progress"] for params in progress] == list(range(1, COUNT + 1))
    assert not any("_meta" in params for params in progress)


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.proof
async def test_twenty_thousand_notifications_arrive_over_http(era: str, tmp_path: Path) -> None:
    async with http_hub(servers_yaml({"a": argv()}), tmp_path) as running, connected(running, era) as peer:
        check((await peer.call("a_progress", {"n": COUNT}, token="p")).progress)


async def test_twenty_thousand_notifications_arrive_over_stdio(tmp_path: Path) -> None:
    async with stdio_hub(servers_yaml({"a": argv()}), tmp_path) as client, connected(client, MODERN) as peer:
        check((await peer.call("a_progress", {"n": COUNT}, token="p")).progress)


async def test_who_reads_only_when_all_is_over_gets_the_result_and_the_number_of_what_it_missed(tmp_path: Path) -> None:
    """Promises 1 and 3: one answer, and what was coalesced for a slow reader is marked."""
    count, version = 60_000, {"protocolVersion": "2025-11-25", "capabilities": {}}
    hello = {**version, "clientInfo": {"name": "slow", "version": "1"}}
    call = {"name": "a_progress", "arguments": {"n": count}, "_meta": {"progressToken": "p"}}
    headers = {"accept": "application/json, text/event-stream"}
    async with (
        http_hub(servers_yaml({"a": argv()}), tmp_path) as running,
        httpx2.AsyncClient(timeout=240, verify=False) as http,
    ):
        opened = await http.post(running.url, json=request(1, "initialize", hello), headers=headers)
        headers["mcp-session-id"] = opened.headers["mcp-session-id"]
        async with http.stream("POST", running.url, json=request(2, "tools/call", call), headers=headers) as response:
            while 'outcome="ok",server="a"} 1.0' not in (await http.get(f"{running.url[:-4]}/metrics")).text:
                pass  # asked again at once: the call is over in a second or two
            body = (await response.aread()).decode()
    messages = [json.loads(line.removeprefix("data: ")) for line in body.split("\n") if line.startswith("data: {")]
    assert [list(message) for message in messages if "id" in message] == [["jsonrpc", "id", "result"]]
    told = [message["params"] for message in messages if "method" in message]
    assert [params["progress"] for params in told] == sorted({params["progress"] for params in told})
    hidden = sum(params.get("_meta", {}).get(COALESCED, 0) for params in told)
    assert hidden > 0 and hidden + len(told) == count and told[-1]["progress"] == count


def request(id_: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}

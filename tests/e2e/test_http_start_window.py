"""Handshake requests over HTTP while their server still starts: their ids are taken all the same."""

import json
from pathlib import Path

import anyio
import pytest

from tests.e2e.client import HttpClient
from tests.interaction.fronts import http_hub
from tests.upstreams.launch import argv, servers_yaml

pytestmark = pytest.mark.anyio


async def test_an_id_in_use_is_refused_also_while_its_call_waits_for_a_server(tmp_path: Path) -> None:
    settings = json.loads(servers_yaml({"a": argv(start_delay=1.5)}))
    settings["hub"] = {"first_list_wait": "15s"}
    async with http_hub(json.dumps(settings), tmp_path) as running, HttpClient(running.url) as client:
        await client.initialize()
        statuses: list[int] = []

        async def ask() -> None:
            answer = await client.request("tools/call", {"name": "a_echo", "arguments": {}}, id=5)
            statuses.append(answer.status)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            tasks.start_soon(ask)
        assert sorted(statuses) == [200, 400]
        await ask()
        assert statuses[-1] == 200

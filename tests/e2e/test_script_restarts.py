"""A script that is a tool, when its hub is killed in its middle: the next hub continues it, and writes once."""

import json
from importlib.util import find_spec
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from tests.e2e.rest_client import RestClient
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed"),
]

TOOLS = """
from pathlib import Path

from mcp_hub import tool


@tool
def store(text: str) -> str:
    with Path({written!r}).open("a") as file:
        file.write(text + "\\n")
    return f"stored {{text}}"
"""
SCRIPT = """import asyncio


async def main(text: str) -> str:
    print("begin")
    first = await tools_store(text=text)
    await asyncio.sleep(3)
    return f"{first}, {await tools_store(text='after')}"
"""


async def test_script_of_a_killed_hub_is_continued_by_the_next_and_writes_once(tmp_path: Path) -> None:
    written = tmp_path / "written"
    (tmp_path / "writing_tools.py").write_text(TOOLS.format(written=str(written)))
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "slow.py").write_text(SCRIPT)
    servers = {"tools": {"local": "writing_tools"}, "desk": {"scripts": "./scripts"}}
    config = json.dumps({"servers": servers, "hub": {"code": "all", "prefix": "always"}})
    async with http_hub(config, tmp_path) as hub, RestClient(hub) as rest:
        stream = await rest.started("desk_slow", {"text": "once"})
        with anyio.fail_after(WAIT):
            while "tool-result" not in (await rest.ask("GET", f"/streams/{stream}/events?after=0&wait=0.2")).text:
                await anyio.lowlevel.checkpoint()
        await hub.kill_alone()
    async with http_hub(config, tmp_path) as again, RestClient(again) as rest:
        ended = await rest.until(stream, "completed", "tool_error", "failed")
        assert ended["result"]["content"] == [
            {"type": "text", "text": "begin\n"},
            {"type": "text", "text": "stored once, stored after"},
        ]
    assert written.read_text() == "once\nafter\n"

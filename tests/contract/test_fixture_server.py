"""The fixture server is a true MCP server: the official SDK's clients accept it over every transport.

What its tools and faults do is seen by the tests that use them.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import PromptReference, TextContent

from tests.upstreams.http_child import HttpUpstream
from tests.upstreams.launch import argv

pytestmark = pytest.mark.anyio

Mode = Literal["legacy", "auto"]


@asynccontextmanager
async def connected(over: str, era: str, mode: Mode) -> AsyncIterator[Client]:
    if over == "http":
        async with HttpUpstream("--page", "3", era=era, name="sdk") as server, Client(server.url, mode=mode) as client:
            yield client
    else:
        command, *args = argv("--page", "3", era=era, name="sdk")
        async with Client(StdioServerParameters(command=command, args=args), mode=mode) as client:
            yield client


@pytest.mark.parametrize(
    ("over", "era", "mode"),
    [("stdio", "handshake", "auto"), ("stdio", "modern", "auto"), ("http", "both", "legacy"), ("http", "both", "auto")],
)
async def test_sdk_client_accepts_the_server(over: str, era: str, mode: Mode) -> None:
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    with anyio.fail_after(20):
        async with connected(over, era, mode) as client:
            assert (await client.list_tools()).next_cursor == "", "a cursor may be empty"
            assert (await client.call_tool("echo", {"text": "hi"})).structured_content == {"text": "hi"}
            await client.call_tool("progress", {"n": 3}, progress_callback=on_progress)
            for resource in (await client.list_resources()).resources:
                (contents,) = (await client.read_resource(resource.uri)).contents
                assert contents.uri == resource.uri
            (template,) = (await client.list_resource_templates()).resource_templates
            assert template.uri_template == "test://sdk/item/{id}"
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["greet", "fixed", "asking"]
            (said,) = (await client.get_prompt("greet", {"who": "you"})).messages
            assert isinstance(said.content, TextContent) and said.content.text == "Hello, you, from sdk"
            greet = PromptReference(type="ref/prompt", name="greet")
            found = await client.complete(greet, {"name": "who", "value": "al"})
            assert found.completion.values == ["alan", "alice", "albert"]
    assert seen == [1, 2, 3]

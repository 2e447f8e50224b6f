"""Scripts in the library: results, events, and when they begin."""

from importlib.util import find_spec
from pathlib import Path

import msgspec
import pytest
from mcp_types import TextContent

from mcp_hub import Completed, Delta, ToolCall, ToolResult, UnknownEntry
from tests.unit.library.test_library import CONFIG, hub_of

pytestmark = pytest.mark.anyio

needs_engine = pytest.mark.skipif(find_spec("pydantic_monty") is None, reason="the extra code is not installed")
CODE = {**CONFIG, "hub": {"store": "memory", "code": "all"}}
SCRIPT = "print('counting')\nawait jobs_count_words(text='a b')\n"


@needs_engine
async def test_script_has_the_forms_of_a_call(tmp_path: Path) -> None:
    async with hub_of(tmp_path, CODE) as hub:  # at once: the script waits for the servers
        events: list[object] = []
        result = await hub.run_code(SCRIPT, on_event=events.append)
        assert isinstance(result.content[0], TextContent) and not result.is_error
        assert result.structured_content is not None and result.structured_content["words"] == 2
        raw = await hub.run_code(SCRIPT, again=True, raw=True)
        assert msgspec.json.decode(raw)["content"] == [part.model_dump(exclude_none=True) for part in result.content]
        kinds = [type(event) for event in events]
        assert kinds.index(ToolCall) < kinds.index(ToolResult) and Delta in kinds
        async with hub.stream_tool("run_code", {"code": "1 + 1"}) as stream:
            *_, ending = [event async for event in stream]
        assert isinstance(ending, Completed)


async def test_hub_without_scripts_has_no_such_tool(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub:
        with pytest.raises(UnknownEntry, match="run_code"):
            await hub.run_code("1")


@needs_engine
async def test_mistake_of_a_script_is_a_result(tmp_path: Path) -> None:
    async with hub_of(tmp_path, CODE) as hub:
        failed = await hub.run_code("await jobs_count_words(txt='a')")
    assert failed.is_error and isinstance(failed.content[0], TextContent) and "txt" in failed.content[0].text

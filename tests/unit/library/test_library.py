"""The public Hub over Python functions: tools, calls, streams, life."""

import ast
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp_types import TextContent

import mcp_hub
from mcp_hub import (
    CallCancelled,
    CallEvent,
    Cancelled,
    Completed,
    ConfigError,
    Delta,
    Hub,
    HubMisuse,
    ModelMismatch,
    Progressed,
    RpcError,
    ToolCall,
    ToolResult,
    UnknownEntry,
    UnknownStream,
    UpstreamUnavailable,
)
from mcp_hub.masking import hide
from mcp_hub.protocol.shape.stream_events import encoded
from mcp_hub.types import CallId
from tests.unit.library import odd_tools

pytestmark = pytest.mark.anyio

WAIT = 240.0
CONFIG = {"servers": {"jobs": {"local": "mcp_hub.examples.jobs:registry"}}, "hub": {"store": "memory"}}
ODD = {"servers": {"odd": {"local": "tests.unit.library.odd_tools"}}, "hub": {"store": "memory"}}


@pytest.fixture(params=[True, False], ids=["uvloop", "asyncio"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return ("asyncio", {"use_uvloop": request.param})


def hub_of(folder: Path, config: object = None, **options: Any) -> Hub:
    env = {"MCP_HUB_STATE_DIR": str(folder), "HOME": str(folder), "PATH": "/usr/bin"}
    return Hub.from_config(config or CONFIG, env=env, **options)  # type: ignore[arg-type]  # tests give bad ones


def shown(event: CallEvent) -> bytes:
    return encoded(CallId("st_"), 0, "", event)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    with anyio.fail_after(240):
        async with hub_of(tmp_path) as opened:
            yield opened


async def test_tools_results_and_hits_are_models_or_their_json(hub: Hub) -> None:
    tools = await hub.list_tools()
    raws = [json.loads(raw) for raw in await hub.list_tools(raw=True)]
    assert [tool.name for tool in tools] == ["jobs_run_job", "jobs_count_words", "jobs_wait"]
    assert [raw["name"] for raw in raws] == [tool.name for tool in tools]
    assert tools[1].input_schema == raws[1]["inputSchema"]
    (tool, hit), *others = await hub.search("count the words of a text")
    assert tool.name == hit.id == "jobs_count_words" and not hit.weak
    assert all(hit.score > other.score > 0 for _, other in others)
    ((raw, same),) = await hub.search("count the words of a text", limit=1, raw=True)
    assert json.loads(raw)["name"] == "jobs_count_words" and same == hit
    assert [hit.weak for _, hit in await hub.search("how many words of love did the poet of the sea and wind write")][
        :1
    ] == [True]
    result = await hub.call_tool("jobs_count_words", {"text": "one two"})
    assert result.structured_content == {"words": 2, "lines": 1, "characters": 7} and not result.is_error
    raw = await hub.call_tool("jobs_count_words", {"text": "one two"}, raw=True)
    assert json.loads(raw)["structuredContent"] == result.structured_content and b"resultType" not in raw
    result = await hub.call_tool("jobs_count_words", {"text": 1})
    assert result.is_error and isinstance(result.content[0], TextContent) and "text" in result.content[0].text
    with pytest.raises(UnknownEntry) as caught:
        await hub.call_tool("jobs_count_word")
    assert caught.value.code == -32602 and "jobs_count_words" in str(caught.value)


async def test_events_are_handed_over_in_order_and_waited_for(hub: Hub) -> None:
    seen: list[CallEvent] = []
    handled = 0

    async def on_event(event: CallEvent) -> None:
        nonlocal handled
        seen.append(event)
        await anyio.lowlevel.checkpoint()
        handled += 1

    await hub.call_tool("jobs_run_job", {"steps": 3, "seconds": 0}, on_event=on_event)
    assert [event.progress for event in seen if isinstance(event, Progressed)] == [1, 2, 3]
    assert (
        "".join(event.text for event in seen if isinstance(event, Delta)) == "step 1 done\nstep 2 done\nstep 3 done\n"
    )
    assert [event.message for event in seen if isinstance(event, Progressed)][0] == "step 1 of 3"
    assert handled == len(seen) == 6


async def test_what_on_event_raises_ends_the_call(hub: Hub) -> None:
    def on_event(event: CallEvent) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await hub.call_tool("jobs_run_job", {"steps": 900, "seconds": 60}, on_event=on_event)


async def test_failed_server_and_a_result_without_a_model_say_so(tmp_path: Path) -> None:
    config = {"servers": {"bad": {"local": "absent_module_of_test:registry"}}, "hub": {"store": "memory"}}
    async with hub_of(tmp_path, config) as hub:
        assert [(status.server, status.state.value) for status in hub.servers()] == [("bad", "failed")]
        with pytest.raises(UpstreamUnavailable, match="absent_module_of_test"):
            await hub.call_tool("bad_tool")
    async with hub_of(tmp_path, ODD) as hub:
        with pytest.raises(ModelMismatch, match="raw=True"):
            await hub.call_tool("odd_block")
        assert b'"type":"hologram"' in await hub.call_tool("odd_block", raw=True)


@pytest.mark.slow
async def test_a_stream_continues_behind_any_event_and_after_its_follower_has_left(hub: Hub) -> None:
    async with hub.stream_tool("jobs_run_job", {"steps": 4, "seconds": 0.2}) as stream:
        whole = [(stream.cursor, shown(event)) async for event in stream]
        assert (await stream.result()).structured_content == {"steps": 4, "seconds": 0.2, "status": "done"}
    assert whole[-1][1].startswith(b'{"v":1') and b'"type":"end"' in whole[-1][1] and stream.id is not None
    for cursor, _ in whole[:-1]:
        async with hub.resume(stream.id, after=cursor) as again:
            assert [(again.cursor, shown(event)) async for event in again] == [own for own in whole if own[0] > cursor]
    async with hub.stream_tool("jobs_run_job", {"steps": 5, "seconds": 0.3}) as stream:
        async for _ in stream:
            break
    assert stream.id is not None
    result = await hub.resume(stream.id, after=stream.cursor).result(raw=True)
    assert json.loads(result)["structuredContent"]["status"] == "done"


async def test_stream_needs_no_block_and_ends_when_it_is_cancelled(hub: Hub) -> None:
    stream = hub.stream_tool("jobs_count_words", {"text": "a"})
    assert stream.id is None and stream.cursor == 0
    assert [type(event) async for event in stream] == [Completed]
    assert [event async for event in stream] == []
    async with hub.stream_tool("jobs_wait", {"seconds": 600}) as stream:
        await stream.cancel()
        assert isinstance([event async for event in stream][-1], Cancelled)
        with pytest.raises(CallCancelled):
            await stream.result()


@pytest.mark.parametrize("id_", ["st_00000000000000000000000000", "", "ü"])
async def test_an_unknown_stream_is_refused(hub: Hub, id_: str) -> None:
    with pytest.raises(UnknownStream):
        await anext(hub.resume(id_))


async def test_calls_of_other_tools_that_a_function_shows_are_in_the_stream_of_its_call(tmp_path: Path) -> None:
    with anyio.fail_after(WAIT):
        async with hub_of(tmp_path, ODD) as own, own.stream_tool("odd_ask_agent") as stream:
            seen = [event async for event in stream]
            assert [part.text for part in (await stream.result()).content if isinstance(part, TextContent)] == [
                "High at noon."
            ]
    assert [event for event in seen if isinstance(event, ToolCall | ToolResult)] == [
        ToolCall("c1", "search", b'{"query":"tides"}'),
        ToolResult("c1", b'[{"type":"text","text":"3 pages"}]'),
    ]


async def test_cancelling_the_task_that_waits_cancels_the_call(tmp_path: Path) -> None:
    odd_tools.begun, odd_tools.ended = anyio.Event(), anyio.Event()
    with anyio.fail_after(WAIT):
        async with hub_of(tmp_path, ODD) as own:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(own.call_tool, "odd_endless")
                await odd_tools.begun.wait()
                tasks.cancel_scope.cancel()
            await odd_tools.ended.wait()


async def test_calls_that_run_when_the_hub_closes_get_an_ending(tmp_path: Path) -> None:
    errors: list[RpcError] = []
    started = anyio.Event()

    async def call(hub: Hub) -> None:
        try:
            await hub.call_tool("jobs_run_job", {"steps": 1000, "seconds": 100}, on_event=lambda event: started.set())
        except RpcError as error:
            errors.append(error)

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            async with hub_of(tmp_path) as hub:
                tasks.start_soon(call, hub)
                await started.wait()
    assert [error.code for error in errors] == [1005]


# -- life


async def test_a_hub_is_opened_once_at_a_time_and_says_so_while_it_is_not_open(tmp_path: Path) -> None:
    hub = hub_of(tmp_path)
    for use in (hub.list_tools, lambda: hub.call_tool("a"), hub.stream_tool("a").result, hub.connect().__aenter__):
        with pytest.raises(HubMisuse) as caught:
            await use()
        assert caught.value.code == "hub_not_open"
    hub = hub_of(tmp_path)
    async with hub:
        with pytest.raises(HubMisuse) as caught:
            await hub.__aenter__()
        assert caught.value.code == "hub_open_already"
        assert len(await hub.list_tools()) == 3
    async with hub:
        assert len(await hub.list_tools()) == 3


async def test_a_hub_closes_in_the_task_that_opened_it(tmp_path: Path) -> None:
    async with hub_of(tmp_path) as hub:
        codes: list[str] = []

        async def close() -> None:
            with pytest.raises(HubMisuse) as caught:
                await hub.__aexit__(None, None, None)
            codes.append(caught.value.code)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(close)
        assert codes == ["hub_other_task"] and await hub.list_tools()


async def test_an_opened_hub_is_closed_in_any_task_and_again(tmp_path: Path) -> None:
    env = {"MCP_HUB_STATE_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin"}
    opened: list[Hub] = []

    async def open_one() -> None:
        opened.append(await Hub.open(CONFIG, env=env))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(open_one)
    (hub,) = opened
    with pytest.raises(HubMisuse, match="another event loop"):
        await anyio.to_thread.run_sync(anyio.run, hub.close)
    assert len(await hub.list_tools()) == 3 and "open" in repr(hub)
    running: list[str] = []

    async def call() -> None:
        with pytest.raises(RpcError) as caught:
            await hub.call_tool("jobs_run_job", {"steps": 1000, "seconds": 100}, on_event=lambda event: begun.set())
        running.append(str(caught.value.code))

    begun = anyio.Event()
    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(call)
            await begun.wait()
            tasks.start_soon(hub.close)
            tasks.start_soon(hub.close)
    assert running == ["1005"] and "closed" in repr(hub)
    await hub.close()
    with pytest.raises(HubMisuse) as caught:
        await hub.list_tools()
    assert caught.value.code == "hub_not_open"
    async with hub:  # it is a hub like any other
        assert len(await hub.list_tools()) == 3
        with pytest.raises(HubMisuse) as caught:
            await hub.close()
        assert caught.value.code == "hub_other_task" and await hub.list_tools()


async def test_a_hub_that_cannot_open_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="comand"):
        await Hub.open({"servers": {"a": {"comand": "x"}}})
    (tmp_path / "state").mkdir(mode=0o777)
    (tmp_path / "state").chmod(0o777)
    hub = hub_of(tmp_path / "state")
    with pytest.raises(ConfigError):
        await hub.__aenter__()
    with pytest.raises(ConfigError):
        await Hub.open(CONFIG, env={"MCP_HUB_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)})


async def test_opening_that_is_cancelled_closes_again(tmp_path: Path) -> None:
    env = {"MCP_HUB_STATE_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin"}
    with anyio.CancelScope() as scope:
        scope.cancel()
        await Hub.open(CONFIG, env=env)
    assert scope.cancelled_caught
    hub = await Hub.open(CONFIG, env=env)
    assert len(await hub.list_tools()) == 3
    await hub.close()


def test_without_asyncio_a_hub_says_so(tmp_path: Path) -> None:
    """As under trio, which steps a coroutine just like this."""
    env = {"MCP_HUB_STATE_DIR": str(tmp_path), "HOME": str(tmp_path)}
    for coroutine in (Hub.open(CONFIG, env=env), hub_of(tmp_path).__aenter__()):
        with pytest.raises(HubMisuse) as caught:
            coroutine.send(None)
        assert caught.value.code == "hub_needs_asyncio" and "trio" in str(caught.value)


def test_a_hub_of_another_loop_is_not_used_and_one_whose_loop_is_over_closes(tmp_path: Path) -> None:
    env = {"MCP_HUB_STATE_DIR": str(tmp_path), "HOME": str(tmp_path), "PATH": "/usr/bin"}

    async def opened() -> Hub:
        return await Hub.open(CONFIG, env=env)

    hub = anyio.run(opened)  # at its end the loop cancels what still runs

    async def use() -> str:
        with pytest.raises(HubMisuse) as caught:
            await hub.list_tools()
        await hub.close()
        return caught.value.code

    assert anyio.run(use) in ("hub_not_open", "hub_other_loop")


async def test_two_hubs_of_one_program_know_nothing_of_each_other_and_mask_while_open(tmp_path: Path) -> None:
    async with hub_of(tmp_path / "a") as one:
        async with hub_of(tmp_path / "b", ODD) as two:
            assert {tool.name.partition("_")[0] for tool in await one.list_tools()} == {"jobs"}
            assert {tool.name.partition("_")[0] for tool in await two.list_tools()} == {"odd"}
        assert not (await one.call_tool("jobs_count_words", {"text": "a"})).is_error
    tokens = [{"token": "library-canary-4711", "principal": "alice"}]
    one = hub_of(tmp_path, {**CONFIG, "hub": {"store": "memory", "tokens": tokens}})
    said = "said library-canary-4711"
    assert hide(said) == said
    async with one:
        async with hub_of(tmp_path / "b", {**CONFIG, "hub": {"store": "memory", "tokens": tokens}}):
            assert hide(said) == "said ***"
        assert hide(said) == "said ***"
    assert hide(said) == said


@pytest.mark.parametrize(
    ("config", "options", "named"),
    [
        ({"servers": {"a": {"comand": "x"}}}, {}, "servers.a"),
        ({"servers": {}}, {"profile": "review"}, "review"),
        ("/nowhere/servers.yaml", {}, "/nowhere/servers.yaml"),
    ],
)
def test_a_configuration_with_mistakes_is_refused_before_anything_starts(
    tmp_path: Path, config: object, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigError, match=named):
        hub_of(tmp_path, config, **options)


async def test_a_file_is_read_and_a_profile_restricts_what_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "servers.yaml"
    file.write_text(json.dumps({**CONFIG, "profiles": {"few": {"tools": {"allow": ["jobs_wait"]}}}}))
    async with hub_of(tmp_path, file, profile="few") as hub:
        assert [tool.name for tool in await hub.list_tools()] == ["jobs_wait"]
        with pytest.raises(UnknownEntry):
            await hub.call_tool("jobs_count_words", {"text": "a"})


PAGE = (Path(__file__).parents[3] / "docs/library.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS, ids=range(len(BLOCKS)))
def test_each_block_compiles_and_imports_public_names_only(block: str) -> None:
    for node in ast.walk(ast.parse(block)):
        if isinstance(node, ast.ImportFrom) and node.module == "mcp_hub":
            assert {alias.name for alias in node.names} <= set(mcp_hub.__all__)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("hub", "stream"):
            own = mcp_hub.Hub if node.value.id == "hub" else mcp_hub.ToolStream
            assert hasattr(own, node.attr), node.attr


def test_each_error_and_event_that_the_page_names_is_public() -> None:
    named = re.findall(r"^\| `(\w+)`", PAGE, re.MULTILINE)
    assert {name for name in named if name[0].isupper()} <= set(mcp_hub.__all__)


async def test_a_path_projects_results_and_the_ends_of_streams(hub: Hub) -> None:
    result = await hub.call_tool("jobs_count_words", {"text": "one two"}, path="$.words")
    assert result.content == [TextContent(type="text", text="2")] and result.structured_content is None
    async with hub.stream_tool("jobs_run_job", {"steps": 1, "seconds": 0}, path="$.status") as stream:
        last = [event async for event in stream][-1]
    assert isinstance(last, Completed) and json.loads(last.result)["content"][0]["text"] == '"done"'
    with pytest.raises(RpcError, match="at its end"):
        await hub.call_tool("jobs_count_words", {"text": "one two"}, path="$.words[")

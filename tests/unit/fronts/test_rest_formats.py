"""`/v1/tools` in the formats of providers: shapes, options, selections, refusals, and answers that are kept."""

import gc
import weakref
from functools import partial
from typing import Any

import pytest

from mcp_hub.formats.tools import export
from mcp_hub.fronts.rest.formats.tools import kept_exports
from tests.unit.fronts.local_hub import TOOLS
from tests.unit.fronts.rest_peer import ELSEWHERE, NARROW, RestPeer, problem


async def listed(peer: RestPeer, query: str, **options: Any) -> list[dict[str, Any]]:
    response = await peer.ask("GET", f"/v1/tools?{query}", **options)
    assert response.status == 200, response.body
    found: list[dict[str, Any]] = response.json["tools"]
    return found


async def offer(peer: RestPeer, *names: str) -> None:
    """A worker registers these tools."""
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in names]
    response = await peer.ask("PUT", "/v1/executors/worker", {"tools": tools, "lease": 60})
    assert response.status == 200, response.body


SHAPES = {
    "mcp": {"name", "description", "inputSchema"},
    "anthropic": {"name", "description", "input_schema"},
    "openai": {"type", "function"},
    "openai-responses": {"type", "name", "description", "parameters", "strict"},
    "gemini": {"name", "description", "parametersJsonSchema"},
}


@pytest.mark.parametrize("name", SHAPES)
async def test_tools_come_in_the_shape_of_the_format_and_always_in_the_same_bytes(peer: RestPeer, name: str) -> None:
    first = await peer.ask("GET", f"/v1/tools?format={name}")
    again = await peer.ask("GET", f"/v1/tools?format={name}")
    assert first.status == 200 and first.body == again.body
    tools = first.json["tools"]
    if name == "gemini":
        tools = tools[0]["functionDeclarations"]
    assert [(tool.get("function") or tool)["name"] for tool in tools] == TOOLS
    assert all(SHAPES[name] <= tool.keys() or "description" not in tool for tool in tools)
    assert SHAPES[name] - {"description"} <= tools[0].keys()


@pytest.mark.parametrize("name", ["anthropic", "openai", "openai-responses"])
async def test_strict_is_asked_for_by_the_query(peer: RestPeer, name: str) -> None:
    (strict,), (plain,) = [await listed(peer, f"format={name}&strict={flag}&tools=echo") for flag in (1, 0)]
    assert (strict.get("function") or strict)["strict"] is True
    assert not (plain.get("function") or plain).get("strict")


async def test_deferred_tools_come_behind_the_tool_that_finds_them(peer: RestPeer) -> None:
    search, *others = await listed(peer, "format=anthropic&defer=1")
    assert search["name"] == "find_tools" and "defer_loading" not in search
    assert [tool["name"] for tool in others] == TOOLS and all(tool["defer_loading"] for tool in others)
    assert "run_tool" not in search["description"] and f"{len(TOOLS)} tools" in search["description"]
    search, *others = await listed(peer, "format=openai-responses&defer=1&tools=echo")
    assert (search["type"], search["execution"]) == ("tool_search", "client") and "Search 1 tool" in search[
        "description"
    ]
    assert [tool["name"] for tool in others[0]["tools"]] == ["echo"] and others[0]["type"] == "namespace"
    _, *flat = await listed(peer, "format=openai-responses&defer=1&group=none")
    assert [(tool["name"], tool["defer_loading"]) for tool in flat] == [(name, True) for name in TOOLS]
    search, *others = await listed(peer, "format=gemini-interactions&defer=1")
    assert (search["type"], search["execution"], search["name"]) == ("tool_search", "client", "find_tools")
    assert [(tool["name"], tool["defer_loading"]) for tool in others] == [(name, True) for name in TOOLS]
    assert [tool["name"] for tool in await listed(peer, "format=anthropic&defer=1&inline=1")] == ["find_tools"]
    assert [tool["name"] for tool in await listed(peer, "format=mcp&defer=1")] == ["find_tools", *TOOLS]


async def test_tools_of_each_server_are_a_namespace_if_the_query_says_so(peer: RestPeer) -> None:
    await offer(peer, "more")
    local, worker = await listed(peer, "format=openai-responses&group=server")
    assert (local["type"], local["name"]) == ("namespace", "local")
    assert local["description"].startswith("local: echo, steps, ")
    assert [tool["name"] for tool in local["tools"]] == TOOLS
    assert [tool["name"] for tool in worker["tools"]] == ["more"] and worker["name"] != "local"
    found = (await peer.ask("GET", "/v1/search?q=echo&format=openai-responses&group=server&tools=echo")).json["tools"]
    assert [(space["name"], [tool["name"] for tool in space["tools"]]) for space in found] == [("local", ["echo"])]
    item = {"type": "function_call", "call_id": "c1", "name": "echo", "namespace": "local", "arguments": '{"text":"x"}'}
    answer = (await peer.ask("POST", "/v1/tools/call?format=openai-responses", item)).json
    assert answer["messages"] == [
        {"type": "function_call_output", "call_id": "c1", "output": "x", "namespace": "local"}
    ]


async def test_listing_is_narrowed_to_what_the_user_selected(peer: RestPeer) -> None:
    assert [tool["name"] for tool in await listed(peer, "tools=hold,echo")] == ["echo", "hold"]
    orders = [await peer.ask("GET", f"/v1/tools?format=gemini&tools={names}") for names in ("echo,hold", "hold,echo")]
    assert orders[0].body == orders[1].body
    assert [tool["name"] for tool in await listed(peer, "tools=echo&server=local&format=anthropic")] == ["echo"]
    assert len(await listed(peer, "server=local")) == len(TOOLS)
    assert [tool["name"] for tool in await listed(peer, "server=local", token=NARROW)] == ["echo"]
    problem(await peer.ask("GET", "/v1/tools?server=other"), 404, "unknown_server")
    problem(await peer.ask("GET", "/v1/tools?server=local", token=ELSEWHERE), 404, "unknown_server")
    said = problem(await peer.ask("GET", "/v1/tools?tools=echo,nothing"), 404, "unknown_tool")["detail"]
    assert "nothing" in said and "echo" not in said
    problem(await peer.ask("GET", "/v1/tools?tools=hold", token=NARROW), 404, "unknown_tool")


async def test_unknown_format_is_answered_with_the_known_ones(peer: RestPeer) -> None:
    said = problem(await peer.ask("GET", "/v1/tools?format=claude"), 400, "unknown_format")["detail"]
    assert "claude" in said and all(name in said for name in SHAPES)


async def test_more_tools_than_the_provider_takes_are_refused_and_never_cut(peer: RestPeer) -> None:
    await offer(peer, *(f"more_{at}" for at in range(129 - len(TOOLS))))
    names = [tool["name"] for tool in await listed(peer, "format=mcp")]
    assert len(names) == 129
    for name in ("openai", "openai-responses"):
        said = problem(await peer.ask("GET", f"/v1/tools?format={name}"), 400, "too_many_tools")["detail"]
        assert all(way in said for way in ("129", "128", "tools=", "profile=", "expose=search", "defer=1"))
        assert len(await listed(peer, f"format={name}&tools={','.join(names[:128])}")) == 128
    search, *spaces = await listed(peer, "format=openai-responses&defer=1")
    assert search["type"] == "tool_search" and {space["type"] for space in spaces} == {"namespace"}
    assert sorted(tool["name"] for space in spaces for tool in space["tools"]) == sorted(names)
    assert max(len(space["tools"]) for space in spaces) == 10
    assert len({space["name"] for space in spaces}) == len(spaces)
    assert len(await listed(peer, "format=openai-responses&defer=1&group=none")) == 130
    assert len(await listed(peer, "format=openai&expose=search")) == 3


async def test_export_is_made_once_until_the_tools_change(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counted(*given: Any, **options: Any) -> Any:
        made.append(given)
        return export(*given, **options)

    monkeypatch.setattr("mcp_hub.fronts.rest.formats.tools.export", counted)
    first = (await peer.ask("GET", "/v1/tools?format=openai")).body
    for _ in range(3):
        assert (await peer.ask("GET", "/v1/tools?format=openai")).body == first
    assert len(made) == 1
    await listed(peer, "format=openai&strict=1")
    await listed(peer, "format=openai", token=NARROW)
    assert len(made) == 3
    await offer(peer, "more")
    assert [tool["function"]["name"] for tool in await listed(peer, "format=openai")] == [*TOOLS, "more"]


class _View:
    pass


async def test_answers_are_bounded_and_go_with_their_view() -> None:
    kept, view = kept_exports(), _View()
    for at in range(40):
        await kept(view, at, partial(b"%d".__mod__, at))
    assert await kept(view, 39, lambda: b"anew") == b"39"
    assert await kept(view, 0, lambda: b"anew") == b"anew"
    assert await kept(_View(), 39, lambda: b"of another") == b"of another"
    gone = weakref.ref(view)
    del view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(("name", "code"), [("anthropic", "code_execution_"), ("openai-responses", "programmatic")])
async def test_code_that_a_model_writes_may_call_read_only_tools_if_the_query_says_so(
    peer: RestPeer, name: str, code: str
) -> None:
    schema = {"type": "object"}
    reads = {"name": "look", "inputSchema": schema, "annotations": {"readOnlyHint": True}}
    await peer.ask("PUT", "/v1/executors/w", {"tools": [reads], "lease": 60})
    query = f"format={name}&tools=echo,look"
    callers = {
        tool["name"]: tool.get("allowed_callers") for tool in await listed(peer, f"{query}&callers=programmatic")
    }
    assert callers["echo"] is None, "nobody is asked before code calls a tool"
    assert callers["look"] is not None and callers["look"][0] == "direct" and callers["look"][1].startswith(code)
    for without in ("", "&callers=direct"):
        assert not any("allowed_callers" in tool for tool in await listed(peer, f"{query}{without}"))


async def test_definitions_say_where_hints_come_from_if_the_query_wants_it(peer: RestPeer) -> None:
    reads = {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
    await peer.ask("PUT", "/v1/executors/w", {"tools": [reads], "lease": 60})
    plain, explained = [await listed(peer, f"tools=echo,look{query}") for query in ("", "&hints=1")]
    hints = {tool["name"]: tool["_meta"].pop("dev.mcp-hub/hints")["readOnlyHint"] for tool in explained}
    assert hints == {"echo": {"value": False, "origin": "default"}, "look": {"value": True, "origin": "server"}}
    assert [{**tool, "_meta": tool["_meta"] or None} for tool in explained] == [
        {**tool, "_meta": tool.get("_meta")} for tool in plain
    ]
    problem(await peer.ask("GET", "/v1/tools?format=gemini&hints=1"), 400, "invalid_parameter")


async def test_losses_are_listed_by_tool_and_only_of_what_is_selected(peer: RestPeer) -> None:
    """A worker's tool has a parameter that Gemini cannot name, and takes anything, which no provider enforces."""
    odd = {"type": "object", "properties": {"x-id": {"type": "string"}}, "additionalProperties": {}}
    await peer.ask("PUT", "/v1/executors/w", {"tools": [{"name": "odd", "inputSchema": odd}], "lease": 60})
    renamed = (await peer.ask("GET", "/v1/tools/losses?format=gemini&tools=odd")).json
    assert renamed["format"] == "gemini"
    assert {loss["path"] for loss in renamed["losses"]["odd"] if loss["kind"] == "renamed"} == {"x-id"}
    strict = (await peer.ask("GET", "/v1/tools/losses?format=openai&strict=1")).json["losses"]
    assert [loss["kind"] for loss in strict["odd"]][-1] == "not_strict" and all(loss["what"] for loss in strict["odd"])
    assert (await peer.ask("GET", "/v1/tools/losses?format=openai&strict=1&tools=echo")).json["losses"] == {}
    assert (await peer.ask("GET", "/v1/tools/losses")).json == {"format": "mcp", "losses": {}}

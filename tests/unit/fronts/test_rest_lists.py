"""`/v1/search`: the tools that fit a query, as programs read them. Resources and prompts need a server with some."""

from typing import Any

import pytest

from tests.unit.fronts.rest_peer import ELSEWHERE, NARROW, RestPeer, problem


async def test_search_gives_the_tools_that_fit_with_their_scores(peer: RestPeer) -> None:
    found = (await peer.ask("GET", "/v1/search?q=hold")).json
    best = found["hits"][0]
    assert (found["query"], found["starting"], best["name"], best["server"]) == ("hold", [], "hold", "local")
    assert best["score"] == pytest.approx(sum(best["parts"].values())) and "definition" not in best
    listed = (await peer.ask("GET", "/v1/tools")).json["tools"]
    full = (await peer.ask("GET", "/v1/search?q=hold&detail=full&limit=1")).json["hits"]
    assert [hit["definition"] for hit in full] == [tool for tool in listed if tool["name"] == "hold"]


async def test_search_finds_only_what_the_caller_may_use(peer: RestPeer) -> None:
    for token, names in ((NARROW, ["echo"]), (ELSEWHERE, [])):
        for query in ("echo", "hold"):
            found = (await peer.ask("GET", f"/v1/search?q={query}", token=token)).json["hits"]
            assert {hit["name"] for hit in found} <= set(names)
    assert (await peer.ask("GET", "/v1/search?q=echo", token=NARROW)).json["hits"]
    problem(await peer.ask("GET", "/v1/search?q=echo&server=local", token=ELSEWHERE), 404, "unknown_server")
    assert (await peer.ask("GET", "/v1/search?q=echo&server=local", token=NARROW)).json["hits"]


async def found(peer: RestPeer, query: str, body: object = None, **options: Any) -> Any:
    method = "GET" if body is None else "POST"
    response = await peer.ask(method, f"/v1/search{query}", body, **options)
    assert response.status == 200, response.body
    return response.json


async def test_search_answers_in_the_format_of_a_provider(peer: RestPeer) -> None:
    listed = {tool["name"]: tool for tool in (await peer.ask("GET", "/v1/tools")).json["tools"]}
    assert (await found(peer, "?q=hold&limit=1&format=mcp"))["tools"] == [listed["hold"]]
    answer = await found(peer, "?q=hold&limit=1&format=anthropic")
    assert answer == {"content": [{"type": "tool_reference", "tool_name": "hold"}]}
    (declared,) = (await found(peer, "?q=hold&limit=1&format=gemini"))["tools"][0]["functionDeclarations"]
    assert declared["name"] == "hold"
    item = await found(peer, "?format=openai-responses&strict=1", {"query": "hold", "limit": 1})
    (space,) = item["tools"]
    assert item["type"] == "tool_search_output" and space["name"] == "local" and space["tools"][0]["strict"] is True
    flat = await found(peer, "?format=openai-responses&strict=1&group=none", {"query": "hold", "limit": 1})
    assert flat["tools"] == space["tools"]
    step = await found(peer, "?q=hold&limit=1&format=gemini-interactions")
    assert [(tool["type"], tool["name"]) for tool in step["result"]] == [("function", "hold")]
    assert await found(peer, "", {"query": "hold"}) == await found(peer, "?q=hold")


async def test_search_answers_the_call_of_a_model(peer: RestPeer) -> None:
    call = {"type": "tool_use", "id": "toolu_1", "name": "find_tools", "input": {"query": "hold", "limit": 1}}
    assert await found(peer, "?format=anthropic", {"call": call}) == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "tool_reference", "tool_name": "hold"}],
    }
    inline = await found(peer, "?format=anthropic&inline=1", {"call": call})
    result, system = inline["messages"]
    assert (result["role"], result["content"][0]["tool_use_id"]) == ("user", "toolu_1")
    assert (system["role"], system["content"][0]["tool"]["definition"]["name"]) == ("system", "hold")
    refused = await found(peer, "?format=anthropic&inline=1", {"call": {**call, "input": {}}})
    assert [message["content"][0]["is_error"] for message in refused["messages"]] == [True]
    problem(await peer.ask("POST", "/v1/search?format=openai&inline=1", {"query": "x"}), 400, "invalid_parameter")
    for wrong in ({}, {"query": "hold", "server": "nowhere"}):
        answer = await found(peer, "?format=anthropic", {"call": {**call, "input": wrong}})
        assert answer["tool_use_id"] == "toolu_1" and answer["is_error"] is True


async def test_search_is_narrowed_to_what_the_user_selected(peer: RestPeer) -> None:
    assert [hit["name"] for hit in (await found(peer, "?q=hold+echo&tools=echo,steps"))["hits"]] == ["echo"]
    body = {"query": "hold echo", "tools": ["echo"], "server": "local"}
    assert [hit["name"] for hit in (await found(peer, "", body))["hits"]] == ["echo"]
    call = {"id": "1", "name": "find_tools", "arguments": {"query": "hold echo"}}
    assert [one["name"] for one in (await found(peer, "?format=mcp", {"call": call, "tools": ["echo"]}))["tools"]] == [
        "echo"
    ]
    for more, name in (({}, "hold"), ({"tools": ["echo"]}, "echo")):  # the body goes before the query
        hits = (await found(peer, "?tools=hold&server=local", {"query": "hold echo", **more}))["hits"]
        assert [hit["name"] for hit in hits] == [name]
    for one in ("hold", "echo"):  # the limit counts hits that are selected
        assert [hit["name"] for hit in (await found(peer, f"?q=hold+echo&limit=1&tools={one}"))["hits"]] == [one]
    assert (await found(peer, "?q=hold&tools=echo"))["weak"] is True
    problem(await peer.ask("GET", "/v1/search?q=hold&tools=nothing"), 404, "unknown_tool")
    problem(await peer.ask("POST", "/v1/search", {"query": "x", "tools": ["hold"]}, token=NARROW), 404, "unknown_tool")


async def test_near_duplicate_that_is_selected_stands_for_one_that_is_not(peer: RestPeer) -> None:
    (hold,) = [tool for tool in (await peer.ask("GET", "/v1/tools")).json["tools"] if tool["name"] == "hold"]
    assert (await peer.ask("PUT", "/v1/executors/worker", {"tools": [hold]})).status == 200
    first = (await found(peer, "?q=hold+nonce&limit=1"))["hits"][0]
    (other,) = first["also"]
    (hit,) = (await found(peer, f"?q=hold+nonce&tools={other}"))["hits"]
    assert (hit["name"], hit.get("also", [])) == (other, [])

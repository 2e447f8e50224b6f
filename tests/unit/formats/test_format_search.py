"""The answers to a model's search for tools, checked with the providers' own types."""

import json
from typing import Any

import pytest

from mcp_hub.formats.providers import Format
from mcp_hub.formats.tools import read_search, write_found
from tests.unit.formats import sdk_types
from tests.unit.formats.sdk_types import fits, sdk_type
from tests.unit.formats.tool_lists import OWN, refused

ARGUMENTS = {"query": "find a page", "limit": "3"}
TEXT = json.dumps(ARGUMENTS)
CALLS: dict[Format, dict[str, Any]] = {
    Format.MCP: {"id": "c1", "name": "find_tools", "arguments": ARGUMENTS},
    Format.ANTHROPIC: {"type": "tool_use", "id": "c1", "name": "find_tools", "input": ARGUMENTS, "toolset_name": "t"},
    Format.OPENAI: {"type": "function", "id": "c1", "function": {"name": "find_tools", "arguments": TEXT}},
    Format.OPENAI_RESPONSES: {
        "type": "tool_search_call", "id": "ts_1", "call_id": "c1", "execution": "client", "arguments": ARGUMENTS,
    },
    Format.GEMINI: {"functionCall": {"id": "c1", "name": "find_tools", "args": ARGUMENTS}, "thoughtSignature": "AA=="},
}  # fmt: skip
CALLS[Format.GEMINI_INTERACTIONS] = {"type": "function_call", "id": "c1", "name": "find_tools", "arguments": ARGUMENTS}
BROKEN: dict[Format, dict[str, Any]] = {
    Format.MCP: {**CALLS[Format.MCP], "arguments": {}},
    Format.ANTHROPIC: {**CALLS[Format.ANTHROPIC], "input": '{"query": "fi'},
    Format.OPENAI: {"type": "function", "id": "c1", "function": {"name": "find_tools", "arguments": "{"}},
    Format.OPENAI_RESPONSES: {**CALLS[Format.OPENAI_RESPONSES], "arguments": {"query": " "}},
    Format.GEMINI: {"functionCall": {"id": "c1", "name": "find_tools", "args": {"query": 5, "limit": "x"}}},
    Format.GEMINI_INTERACTIONS: {**CALLS[Format.GEMINI_INTERACTIONS], "arguments": {"query": ""}},
}
FOUND = OWN[2:4]
NAMES = [tool["name"] for tool in FOUND]


def test_anthropic_gets_references_in_the_result_of_the_call() -> None:
    block = write_found(FOUND, Format.ANTHROPIC, read_search(CALLS[Format.ANTHROPIC], Format.ANTHROPIC))
    assert (block["type"], block["tool_use_id"], block["toolset_name"]) == ("tool_result", "c1", "t")
    assert block["content"] == [{"type": "tool_reference", "tool_name": name} for name in NAMES]
    del block["toolset_name"]  # of the beta API
    assert fits(sdk_types.ANTHROPIC, "ToolResultBlockParam", block, exclude_unset=True)
    assert write_found(FOUND, Format.ANTHROPIC) == {"content": block["content"]}


def test_anthropic_gets_definitions_in_a_message_where_the_request_has_none() -> None:
    into = Format.ANTHROPIC
    answer = write_found(FOUND, into, read_search(CALLS[into], into), is_inline=True)
    result, system = answer["messages"]
    assert answer["betas"] == ["inline-tools-2026-09-15"] and result["content"][0]["tool_use_id"] == "c1"
    assert all(fits(sdk_types.BETA, "BetaContentBlockParam", one) for one in result["content"])
    assert system["role"] == "system"
    for added in system["content"]:
        assert fits(sdk_types.BETA, "BetaRequestToolAdditionBlockParam", added, exclude_unset=True)
    assert [one["tool"]["definition"]["name"] for one in system["content"]] == NAMES
    assert "cache_control" not in json.dumps(system)
    assert write_found(FOUND, into, is_inline=True) == {"messages": [system], "betas": answer["betas"]}
    assert len(write_found([], into, read_search(CALLS[into], into), is_inline=True)["messages"]) == 1


def test_responses_get_a_search_output_with_deferred_functions() -> None:
    item = write_found(
        FOUND, Format.OPENAI_RESPONSES, read_search(CALLS[Format.OPENAI_RESPONSES], Format.OPENAI_RESPONSES)
    )
    assert (item["type"], item["call_id"], item["execution"], item["status"]) == (
        "tool_search_output", "c1", "client", "completed",
    )  # fmt: skip
    assert [(tool["name"], tool["defer_loading"]) for tool in item["tools"]] == [(name, True) for name in NAMES]
    assert fits(sdk_types.RESPONSES, "ResponseToolSearchOutputItemParam", item, exclude_unset=True)
    assert write_found(FOUND, Format.OPENAI_RESPONSES) == {**item, "call_id": None}
    strict = write_found(FOUND[:1], Format.OPENAI_RESPONSES, is_strict=True)
    assert strict["tools"][0]["strict"] is True


def test_responses_get_the_found_tools_in_the_namespaces_of_the_request() -> None:
    call = read_search(CALLS[Format.OPENAI_RESPONSES], Format.OPENAI_RESPONSES)
    item = write_found(FOUND, Format.OPENAI_RESPONSES, call, groups={NAMES[1]: ("net", "Networks.")})
    first, second = item["tools"]
    assert (first["name"], second["type"], second["name"]) == (NAMES[0], "namespace", "net")
    assert [(tool["name"], tool["defer_loading"]) for tool in second["tools"]] == [(NAMES[1], True)]
    assert fits(sdk_types.RESPONSES, "ResponseToolSearchOutputItemParam", item, exclude_unset=True)


def test_gemini_gets_declarations_and_the_answer_to_the_call() -> None:
    answer = write_found(FOUND, Format.GEMINI, read_search(CALLS[Format.GEMINI], Format.GEMINI))
    (tool,) = answer["tools"]
    parsed = sdk_type(sdk_types.GEMINI, "Tool").model_validate(tool)
    assert [one["name"] for one in parsed.model_dump()["function_declarations"]] == NAMES
    (part,) = sdk_type(sdk_types.GEMINI, "Content").model_validate(answer["messages"][0]).parts
    assert part.function_response is not None and part.function_response.id == "c1"
    assert all(name in json.dumps(part.function_response.response) for name in NAMES)
    assert write_found(FOUND, Format.GEMINI) == {"tools": [tool]}


def test_interactions_get_functions_in_the_result_of_the_call() -> None:
    into = Format.GEMINI_INTERACTIONS
    step = write_found(FOUND, into, read_search(CALLS[into], into))
    assert (step["type"], step["call_id"], step["name"]) == ("function_result", "c1", "find_tools")
    assert [(tool["type"], tool["name"]) for tool in step["result"]] == [("function", name) for name in NAMES]
    assert all("defer_loading" not in tool for tool in step["result"])
    assert fits(sdk_types.INTERACTIONS, "FunctionResultStep", step, exclude_unset=True)
    assert write_found(FOUND, into) == {"result": step["result"]}


def test_openai_chat_gets_functions_and_the_answer_to_the_call() -> None:
    answer = write_found(FOUND, Format.OPENAI, read_search(CALLS[Format.OPENAI], Format.OPENAI))
    assert [tool["function"]["name"] for tool in answer["tools"]] == NAMES
    (message,) = answer["messages"]
    assert message["tool_call_id"] == "c1"
    assert fits(sdk_types.OPENAI, "ChatCompletionMessageParam", message, exclude_unset=True)


def test_mcp_gets_the_definitions() -> None:
    answer = write_found(FOUND, Format.MCP, read_search(CALLS[Format.MCP], Format.MCP))
    assert answer["tools"] == FOUND and answer["messages"][0]["id"] == "c1"
    assert write_found(FOUND, Format.MCP) == {"tools": FOUND}


@pytest.mark.parametrize("into", Format)
def test_arguments_of_any_provider_are_read(into: Format) -> None:
    call = read_search(CALLS[into], into)
    assert (call.fault, call.arguments) == (None, ARGUMENTS)


@pytest.mark.parametrize("into", Format)
def test_search_with_broken_arguments_is_answered_with_an_error_that_the_model_can_act_on(into: Format) -> None:
    call = read_search(BROKEN[into], into)
    assert call.fault is not None and call.fault.code == "invalid_arguments"
    answer = write_found([], into, call)
    if into is Format.OPENAI_RESPONSES:
        assert (answer["status"], answer["tools"], answer["call_id"]) == ("incomplete", [], "c1")
    else:
        assert call.fault.message in json.dumps(answer, ensure_ascii=False).replace('\\"', '"')
    if into is Format.ANTHROPIC:
        assert answer["is_error"] is True


@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI, Format.GEMINI, Format.GEMINI_INTERACTIONS])
def test_search_that_finds_nothing_says_so(into: Format) -> None:
    assert "other words" in json.dumps(write_found([], into, read_search(CALLS[into], into)))


@pytest.mark.parametrize("body", [{}, {"content": [CALLS[Format.ANTHROPIC], {**CALLS[Format.ANTHROPIC], "id": "c2"}]}])
def test_anything_but_one_call_is_refused(body: dict[str, Any]) -> None:
    refused("invalid_calls", read_search, body, Format.ANTHROPIC)

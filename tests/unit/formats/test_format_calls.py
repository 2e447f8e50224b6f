"""Calls in each format: read, written and read again; what must go back goes back; faults that a model can act on."""

import json
from typing import Any

import pytest

from mcp_hub.formats.calls import MAX_CALLS, read_calls, write_calls, write_results
from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.records import ModelCall
from mcp_hub.formats.tools import export
from tests.unit.formats import sdk_types
from tests.unit.formats.sdk_types import fits, sdk_type
from tests.unit.formats.tool_lists import refused

Json = dict[str, Any]
CALLER = {"type": "code_execution_20260120", "tool_id": "srvtoolu_1"}
PROGRAM = {"type": "program", "caller_id": "prog_1"}
ITEMS: dict[Format, list[Json]] = {
    Format.ANTHROPIC: [
        {"type": "tool_use", "id": "toolu_1", "name": "add", "input": {"a": 1, "b": 2}, "caller": CALLER},
        {"type": "tool_use", "id": "toolu_2", "name": "echo", "input": {"text": "é"}, "toolset_name": "files"},
    ],
    Format.OPENAI: [
        {"type": "function", "id": "call_1", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}},
        {"type": "function", "id": "call_2", "function": {"name": "echo", "arguments": '{"text":"é"}'}},
    ],
    Format.OPENAI_RESPONSES: [
        {
            **{"type": "function_call", "call_id": "call_1", "name": "add", "arguments": '{"a":1,"b":2}'},
            **{"id": "fc_1", "status": "completed", "caller": PROGRAM, "namespace": "math"},
        },
        {"type": "function_call", "call_id": "call_2", "name": "echo", "arguments": '{"text":"é"}', "id": "fc_2"},
    ],
    Format.GEMINI: [
        {"functionCall": {"id": "c1", "name": "add", "args": {"a": 1, "b": 2}}, "thoughtSignature": "c2lnbmVk"},
        {"functionCall": {"id": "c2", "name": "echo", "args": {"text": "é"}}},
    ],
    Format.GEMINI_INTERACTIONS: [
        {"type": "function_call", "id": "c1", "name": "add", "arguments": {"a": 1, "b": 2}},
        {"type": "function_call", "id": "c2", "name": "echo", "arguments": {"text": "é"}},
    ],
    Format.MCP: [
        {"id": "1", "name": "add", "arguments": {"a": 1, "b": 2}},
        {"id": "2", "name": "echo", "arguments": {"text": "é"}},
    ],
}
ANTHROPIC: Json = {
    **{"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use"},
    **{"stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}},
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Let me look."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}},
        *ITEMS[Format.ANTHROPIC],
    ],
}
MESSAGE: Json = {"role": "assistant", "content": None, "refusal": None, "tool_calls": ITEMS[Format.OPENAI]}
OPENAI: Json = {
    **{"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"},
    "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": None, "message": MESSAGE}],
}
RESPONSES: Json = {
    **{"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "tools": [], "tool_choice": "auto"},
    "parallel_tool_calls": True,
    "output": [
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        *ITEMS[Format.OPENAI_RESPONSES],
    ],
}
PARTS: list[Json] = [{"text": "hm", "thought": True}, *ITEMS[Format.GEMINI]]
GEMINI: Json = {
    "responseId": "r1",
    "candidates": [{"content": {"role": "model", "parts": PARTS}, "finishReason": "STOP"}],
}
INTERACTION: Json = {
    **{"id": "i1", "status": "requires_action"},
    "steps": [{"type": "thought", "signature": "c2ln"}, *ITEMS[Format.GEMINI_INTERACTIONS]],
}
ANSWERS = {
    Format.ANTHROPIC: ANTHROPIC,
    Format.OPENAI: OPENAI,
    Format.OPENAI_RESPONSES: RESPONSES,
    Format.GEMINI: GEMINI,
    Format.GEMINI_INTERACTIONS: INTERACTION,
}
SDK: dict[Format, tuple[str, str]] = {
    Format.ANTHROPIC: (sdk_types.ANTHROPIC, "Message"),
    Format.OPENAI: (sdk_types.OPENAI, "ChatCompletion"),
    Format.OPENAI_RESPONSES: (sdk_types.RESPONSES, "Response"),
    Format.GEMINI: (sdk_types.GEMINI, "GenerateContentResponse"),
    Format.GEMINI_INTERACTIONS: (sdk_types.INTERACTIONS, "Interaction"),
}


def item(into: Format, call_id: str, name: str, arguments: str) -> Json:
    """A call as the model sends it, with arguments as text."""
    match into:
        case Format.ANTHROPIC:
            return {"type": "tool_use", "id": call_id, "name": name, "input": _or_text(arguments)}
        case Format.OPENAI:
            return {"type": "function", "id": call_id, "function": {"name": name, "arguments": arguments}}
        case Format.OPENAI_RESPONSES:
            return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}
        case Format.GEMINI:
            return {"functionCall": {"id": call_id, "name": name, "args": _or_text(arguments)}}
        case Format.GEMINI_INTERACTIONS:
            return {"type": "function_call", "id": call_id, "name": name, "arguments": _or_text(arguments)}
        case Format.MCP:
            return {"id": call_id, "name": name, "arguments": _or_text(arguments)}


def _or_text(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


@pytest.mark.parametrize("into", Format)
def test_calls_come_back_with_all_that_goes_with_them(into: Format) -> None:
    calls = read_calls(ITEMS[into], into)
    assert [(call.name, call.arguments) for call in calls] == [("add", {"a": 1, "b": 2}), ("echo", {"text": "é"})]
    assert len({call.id for call in calls}) == 2
    assert write_calls(calls, into) == ITEMS[into]


@pytest.mark.parametrize("into", PROVIDERS)
def test_a_whole_answer_its_message_or_the_object_of_the_sdk_hold_the_same_calls(into: Format) -> None:
    calls = read_calls(ITEMS[into], into)
    assert read_calls(ANSWERS[into], into) == calls
    parsed = sdk_type(*SDK[into]).model_validate(ANSWERS[into])
    assert [call.arguments for call in read_calls(parsed, into)] == [call.arguments for call in calls]
    assert [call.id for call in read_calls(parsed, into)] == [call.id for call in calls]
    assert read_calls(ITEMS[into][0], into) == calls[:1]


def test_what_must_go_back_untouched_is_there() -> None:
    (first, second) = read_calls(ANTHROPIC, Format.ANTHROPIC)
    assert first.extra == {"caller": CALLER} and second.extra == {"toolset_name": "files"}
    (first, _) = read_calls(RESPONSES, Format.OPENAI_RESPONSES)
    assert first.extra == {"id": "fc_1", "status": "completed", "caller": PROGRAM, "namespace": "math"}
    (first, _) = read_calls(sdk_type(*SDK[Format.GEMINI]).model_validate(GEMINI), Format.GEMINI)
    assert first.extra == {"thoughtSignature": "c2lnbmVk"}


def test_written_calls_fit_the_types_of_the_sdk() -> None:
    calls = read_calls(ITEMS[Format.MCP], Format.MCP)
    kinds = {
        Format.ANTHROPIC: (sdk_types.ANTHROPIC, "ToolUseBlockParam"),
        Format.OPENAI: (sdk_types.OPENAI, "ChatCompletionMessageFunctionToolCallParam"),
        Format.OPENAI_RESPONSES: (sdk_types.RESPONSES, "ResponseFunctionToolCallParam"),
        Format.GEMINI_INTERACTIONS: (sdk_types.INTERACTIONS, "FunctionCallStep"),
    }
    for into, kind in kinds.items():
        assert all(fits(*kind, one) for one in write_calls(calls, into))
    for one in write_calls(calls, Format.GEMINI):
        part = sdk_type(sdk_types.GEMINI, "Part").model_validate(one)
        assert part.model_dump(by_alias=True, exclude_none=True) == one


def test_gemini_may_send_no_ids() -> None:
    parts = [{"functionCall": {"name": "add", "args": {}}}, {"functionCall": {"name": "add", "args": {"a": 1}}}]
    calls = read_calls({"parts": parts}, Format.GEMINI)
    assert [call.id for call in calls] == ["call_0", "call_1"]
    assert write_calls(calls, Format.GEMINI) == parts


@pytest.mark.parametrize("into", [Format.OPENAI_RESPONSES, Format.GEMINI_INTERACTIONS])
def test_calls_that_have_their_result_are_not_read_again(into: Format) -> None:
    calls = read_calls(ITEMS[into], into)
    (first, _) = write_results(calls, {call.id: {"content": []} for call in calls}, into)
    body: Any = [*ITEMS[into], first]
    assert read_calls(body, into) == calls[1:]
    member = "steps" if into is Format.GEMINI_INTERACTIONS else "output"
    assert read_calls({member: body}, into) == calls[1:]


@pytest.mark.parametrize("into", [Format.ANTHROPIC, Format.OPENAI, Format.OPENAI_RESPONSES])
@pytest.mark.parametrize("end", range(1, 13))
def test_arguments_cut_anywhere_are_a_fault_that_says_what_to_do(into: Format, end: int) -> None:
    broken = '{"a":1,"b":2}'[:end]
    good, bad = read_calls([item(into, "1", "add", "{}"), item(into, "2", "add", broken)], into)
    assert good.fault is None
    assert bad.fault is not None and bad.fault.code == "invalid_arguments"
    assert "Call it again" in bad.fault.message and "not called" in bad.fault.message


@pytest.mark.parametrize("into", Format)
@pytest.mark.parametrize("arguments", ["[]", "3", '"x"'])
def test_arguments_that_are_not_an_object_are_a_fault(into: Format, arguments: str) -> None:
    (call,) = read_calls(item(into, "1", "add", arguments), into)
    assert call.fault is not None and call.fault.code == "invalid_arguments" and call.arguments == {}


@pytest.mark.parametrize("into", [Format.OPENAI, Format.OPENAI_RESPONSES])
def test_no_text_is_no_arguments(into: Format) -> None:
    assert [call.arguments for call in read_calls(item(into, "1", "add", ""), into)] == [{}]


@pytest.mark.parametrize("into", Format)
def test_deep_arguments_are_a_fault(into: Format) -> None:
    fine = '{"a":' * 50 + "1" + "}" * 50
    deep = '{"a":' * 51 + "1" + "}" * 51
    assert [call.fault for call in read_calls(item(into, "1", "add", fine), into)] == [None]
    (call,) = read_calls(item(into, "1", "add", deep), into)
    assert call.fault is not None and call.fault.code == "arguments_too_deep"


@pytest.mark.parametrize("into", Format)
def test_a_mebibyte_of_arguments_is_taken_and_no_more(into: Format) -> None:
    fits = json.dumps({"a": "x" * ((1 << 20) - 9)}, separators=(",", ":"))
    assert len(fits) <= 1 << 20
    assert [call.fault for call in read_calls(item(into, "1", "add", fits), into)] == [None]
    (call,) = read_calls(item(into, "1", "add", json.dumps({"a": "x" * (1 << 20)})), into)
    assert call.fault is not None and call.fault.code == "arguments_too_large"
    (call,) = read_calls(item(into, "1", "add", json.dumps({"a": "é" * 600_000}, ensure_ascii=False)), into)
    assert call.fault is not None and call.fault.code == "arguments_too_large"


@pytest.mark.parametrize("into", Format)
def test_64_calls_are_taken_and_no_more_nor_two_with_one_id_nor_what_is_no_answer(into: Format) -> None:
    many = [item(into, str(number), "add", "{}") for number in range(MAX_CALLS + 1)]
    assert len(read_calls(many[:MAX_CALLS], into)) == MAX_CALLS
    refused("too_many_calls", read_calls, many, into)
    refused("duplicate_call_id", read_calls, [item(into, "1", "add", "{}"), item(into, "1", "echo", "{}")], into)
    names: list[Any] = [None, 3, ""]
    for body in (None, 3, "x", [3], [None], *(item(into, "1", name, "{}") for name in names)):
        refused("invalid_calls", read_calls, body, into)


@pytest.mark.parametrize("into", Format)
def test_a_call_of_a_tool_that_was_not_selected_is_a_fault(into: Format) -> None:
    tools = [{"name": "add", "inputSchema": {"type": "object"}}]
    first, second = read_calls(ITEMS[into], into, tools)
    assert first.fault is None
    assert second.fault is not None and second.fault.code == "unknown_tool" and "echo" in second.fault.message


ODD: Json = {
    "name": "find",
    "inputSchema": {
        "type": "object",
        "properties": {
            "x-id": {"type": "string"},
            "where": {
                "type": "array",
                "items": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "string"}]},
            },
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["x-id"],
        "$defs": {"Filter": {"type": "object", "properties": {"$op": {"type": "string"}, "x-id": {"type": "null"}}}},
    },
}


def test_renamed_parameters_get_their_names_back() -> None:
    (declared,) = export([ODD], Format.GEMINI).body["tools"][0]["functionDeclarations"]
    assert list(declared["parametersJsonSchema"]["properties"]) == ["x_id", "where", "labels"]
    assert declared["parametersJsonSchema"]["required"] == ["x_id"]
    sent = {"x_id": "7", "where": [{"_op": "eq", "x_id": None}, "x_id"], "labels": {"x_id": "free"}}
    (call,) = read_calls({"functionCall": {"name": "find", "args": sent}}, Format.GEMINI, [ODD])
    own = {"x-id": "7", "where": [{"$op": "eq", "x-id": None}, "x_id"], "labels": {"x_id": "free"}}
    assert call.arguments == own
    (written,) = write_calls([ModelCall("1", "find", own)], Format.GEMINI, [ODD])
    assert written["functionCall"]["args"] == sent


@pytest.mark.parametrize("into", [Format.OPENAI, Format.OPENAI_RESPONSES])
def test_the_null_of_an_optional_parameter_is_taken_out(into: Format) -> None:
    tool: Json = {
        "name": "find",
        "inputSchema": {
            "type": "object",
            "properties": {
                "q": {"type": "string"},
                "limit": {"type": "integer"},
                "since": {"type": ["string", "null"]},
                "any": {},
                "must": {"type": "string"},
                "deep": {"type": "object", "properties": {"n": {"enum": ["a", "b"]}, "m": {"enum": ["a", None]}}},
            },
            "required": ["must"],
        },
    }
    sent = {"q": None, "limit": None, "since": None, "any": None, "must": None, "deep": {"n": None, "m": None}}
    (call,) = read_calls(item(into, "1", "find", json.dumps({**sent, "extra": None})), into, [tool])
    assert call.arguments == {"since": None, "any": None, "must": None, "deep": {"m": None}, "extra": None}
    (call,) = read_calls(item(Format.ANTHROPIC, "1", "find", json.dumps(sent)), Format.ANTHROPIC, [tool])
    assert call.arguments == sent

"""Results in each format: text, media, structure and errors; ids and what the provider wants echoed."""

import json
from typing import Any

import pytest

from mcp_hub.formats.calls import error_result, read_calls, read_results, write_results
from mcp_hub.formats.providers import PROVIDERS, Format
from mcp_hub.formats.records import CallFault, ModelCall
from tests.unit.formats import sdk_types
from tests.unit.formats.lost_texts import lost_texts
from tests.unit.formats.sdk_types import fits, sdk_type
from tests.unit.formats.test_format_calls import ANSWERS, PROGRAM, RESPONSES
from tests.unit.formats.tool_lists import refused

Json = dict[str, Any]
PNG = "iVBORw0KGgo="
TEXT: Json = {"content": [{"type": "text", "text": "3"}]}
RICH: Json = {
    "content": [
        {"type": "text", "text": "Here:"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "file:///a/b.pdf", "mimeType": "application/pdf", "blob": "JVBERi0="}},
        {"type": "resource", "resource": {"uri": "file:///c.txt", "mimeType": "text/plain", "text": "see"}},
        {"type": "resource", "resource": {"uri": "file:///d.zip", "mimeType": "application/zip", "blob": "UEs="}},
        {"type": "resource_link", "uri": "https://example.org/x", "name": "x", "description": "a link"},
        {"type": "text", "text": ""},
    ]
}
STRUCTURED: Json = {"content": [{"type": "text", "text": '{"sum": 3}'}], "structuredContent": {"sum": 3}}
BARE: Json = {"content": [], "structuredContent": {"sum": 3}}
FAILED: Json = error_result("no such file")
KINDS = {"text": TEXT, "rich": RICH, "structured": STRUCTURED, "bare": BARE, "failed": FAILED, "empty": {"content": []}}


def answered(into: Format, result: Json) -> list[Json]:
    return write_results([ModelCall("c1", "add", {})], {"c1": result}, into)


@pytest.mark.parametrize("result", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("into", PROVIDERS)
def test_results_fit_the_types_of_the_sdk(into: Format, result: Json) -> None:
    for message in answered(into, result):
        match into:
            case Format.ANTHROPIC:
                assert fits(sdk_types.ANTHROPIC, "MessageParam", message)
            case Format.OPENAI:
                kind = f"ChatCompletion{'Tool' if message['role'] == 'tool' else 'User'}MessageParam"
                assert fits(sdk_types.OPENAI, kind, message)
            case Format.OPENAI_RESPONSES:
                assert fits(sdk_types.RESPONSE_INPUT, "FunctionCallOutput", message)
            case Format.GEMINI_INTERACTIONS:
                assert fits(sdk_types.INTERACTIONS, "FunctionResultStep", message, exclude_unset=True)
            case Format.GEMINI:
                parsed = sdk_type(sdk_types.GEMINI, "Content").model_validate(message)
                assert parsed.model_dump(mode="json", by_alias=True, exclude_none=True) == message


def test_anthropic_gets_text_images_documents_and_errors() -> None:
    ((message,), (failed,)) = answered(Format.ANTHROPIC, RICH), answered(Format.ANTHROPIC, FAILED)
    (block,) = message["content"]
    assert (block["type"], block["tool_use_id"]) == ("tool_result", "c1")
    assert [part["type"] for part in block["content"]] == ["text", "image", "text", "document", "text", "text", "text"]
    assert block["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PNG}
    assert block["content"][3]["title"] == "b.pdf"
    assert "audio/wav" in block["content"][2]["text"]
    assert block["content"][4]["text"] == "file:///c.txt\nsee"
    assert failed["content"][0]["is_error"] is True and "is_error" not in block


def test_openai_chat_gets_media_in_a_message_of_its_own() -> None:
    tool, user = answered(Format.OPENAI, RICH)
    assert (tool["role"], tool["tool_call_id"]) == ("tool", "c1")
    assert "image/png, in the next message" in tool["content"] and "application/zip" in tool["content"]
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "input_audio", "file"]
    assert user["content"][1]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    (failed,) = answered(Format.OPENAI, FAILED)
    assert failed["content"] == "Error: no such file"


def test_openai_chat_answers_all_calls_before_it_shows_media() -> None:
    calls = [ModelCall("1", "see", {}), ModelCall("2", "add", {})]
    messages = write_results(calls, {"1": RICH, "2": TEXT}, Format.OPENAI)
    assert [message["role"] for message in messages] == ["tool", "tool", "user"]


def test_openai_responses_gets_a_list_where_there_are_media() -> None:
    (item,) = answered(Format.OPENAI_RESPONSES, RICH)
    assert [part["type"] for part in item["output"]] == [
        *("input_text", "input_image", "input_text", "input_file", "input_text", "input_text", "input_text")
    ]
    assert answered(Format.OPENAI_RESPONSES, STRUCTURED)[0]["output"] == '{"sum":3}'
    assert answered(Format.OPENAI_RESPONSES, FAILED)[0]["output"] == "Error: no such file"


def test_gemini_gets_output_or_error_and_parts() -> None:
    (message,) = answered(Format.GEMINI, RICH)
    response = message["parts"][0]["functionResponse"]
    assert (message["role"], response["id"], response["name"]) == ("user", "c1", "add")
    assert [part["inlineData"]["mimeType"] for part in response["parts"]] == ["image/png", "application/pdf"]
    assert answered(Format.GEMINI, BARE)[0]["parts"][0]["functionResponse"]["response"] == {"output": {"sum": 3}}
    error = answered(Format.GEMINI, FAILED)[0]["parts"][0]["functionResponse"]["response"]
    assert error == {"error": "no such file"}


def test_a_structure_that_the_text_repeats_is_said_once() -> None:
    ((message,), (bare,)) = answered(Format.ANTHROPIC, STRUCTURED), answered(Format.ANTHROPIC, BARE)
    assert message["content"][0]["content"] == [{"type": "text", "text": '{"sum": 3}'}]
    assert bare["content"][0]["content"] == [{"type": "text", "text": '{"sum":3}'}]


WEATHER = {"city": "Oslo", "days": [{"celsius": 3}, {"celsius": 5}]}
HELD = {
    "its JSON": [json.dumps(WEATHER, indent=2)],
    "a member": ["Oslo\n"],
    "items of a list": ['{"celsius": 3}', '{"celsius": 5}'],
    "blank": [" "],
}
PROSE = {
    "words": ["Bring a coat."],
    "its JSON with words": [f"Weather: {json.dumps(WEATHER)}"],
    "other JSON": ['{"celsius": 4}'],
    "a member and words": ["Oslo", "Bring a coat."],
}


def with_structure(texts: list[str]) -> Json:
    return {"content": [{"type": "text", "text": text} for text in texts], "structuredContent": WEATHER}


@pytest.mark.parametrize("texts", HELD.values(), ids=HELD)
def test_a_structure_stands_for_texts_that_it_holds(texts: list[str]) -> None:
    (item,) = answered(Format.OPENAI_RESPONSES, with_structure(texts))
    assert json.loads(item["output"]) == WEATHER
    (message,) = answered(Format.GEMINI, with_structure(texts))
    assert message["parts"][0]["functionResponse"]["response"] == {"output": WEATHER}


@pytest.mark.parametrize("texts", PROSE.values(), ids=PROSE)
@pytest.mark.parametrize("into", PROVIDERS)
def test_texts_beside_a_structure_are_not_lost(into: Format, texts: list[str]) -> None:
    result = with_structure(texts)
    assert lost_texts(result, answered(into, result)) == []


def test_a_program_gets_the_structure_alone() -> None:
    call = ModelCall("c1", "weather", {}, {"caller": PROGRAM})
    (item,) = write_results([call], {"c1": with_structure(["Bring a coat."])}, Format.OPENAI_RESPONSES)
    assert json.loads(item["output"]) == WEATHER


@pytest.mark.parametrize("into", PROVIDERS)
def test_parallel_calls_are_answered_in_their_order_with_their_ids(into: Format) -> None:
    calls = read_calls(ANSWERS[into], into)
    results = {call.id: error_result(call.name) for call in reversed(calls)}
    back = read_results(write_results(calls, results, into), into)
    assert back == [(call.id, error_result(call.name)) for call in calls]


def test_what_the_provider_wants_echoed_is_echoed() -> None:
    first, second = read_calls(RESPONSES, Format.OPENAI_RESPONSES)
    items = write_results([first, second], {first.id: TEXT, second.id: TEXT}, Format.OPENAI_RESPONSES)
    assert items[0] == {
        "type": "function_call_output",
        "call_id": "call_1",
        "output": "3",
        "caller": PROGRAM,
        "namespace": "math",
    }
    assert items[1].keys() == {"type", "call_id", "output"}
    calls = read_calls(ANSWERS[Format.ANTHROPIC], Format.ANTHROPIC)
    (message,) = write_results(calls, {call.id: TEXT for call in calls}, Format.ANTHROPIC)
    assert [block.get("toolset_name") for block in message["content"]] == [None, "files"]


def test_a_call_of_gemini_without_an_id_is_answered_without_one() -> None:
    (call,) = read_calls({"functionCall": {"name": "add", "args": {}}}, Format.GEMINI)
    (message,) = write_results([call], {call.id: TEXT}, Format.GEMINI)
    assert message["parts"][0]["functionResponse"] == {"name": "add", "response": {"output": "3"}}


@pytest.mark.parametrize("into", PROVIDERS)
def test_a_fault_is_the_result_of_its_call(into: Format) -> None:
    calls = [ModelCall("1", "add", {}, {}, CallFault("invalid_arguments", "Send JSON.")), ModelCall("2", "add", {})]
    back = read_results(write_results(calls, {"2": TEXT}, into), into)
    assert back == [("1", error_result("Send JSON.")), ("2", TEXT)]


@pytest.mark.parametrize("into", Format)
@pytest.mark.parametrize("result", [TEXT, FAILED, RICH], ids=["text", "failed", "rich"])
def test_results_come_back(into: Format, result: Json) -> None:
    ((call_id, back),) = read_results(answered(into, result), into)
    assert call_id == "c1" and bool(back.get("isError")) is bool(result.get("isError"))
    if result is not RICH:
        assert back == result
    elif into is not Format.OPENAI:
        images = [block for block in back["content"] if block["type"] == "image"]
        assert images == [{"type": "image", "mimeType": "image/png", "data": PNG}]


IMAGE, AUDIO = ("image/png", PNG), ("audio/wav", "UklGRg==")
PDF, ZIP = ("application/pdf", "JVBERi0="), ("application/zip", "UEs=")
CARRIED = {
    Format.ANTHROPIC: [IMAGE, PDF],
    Format.OPENAI: [],  # they are in the message by the user
    Format.OPENAI_RESPONSES: [IMAGE, PDF],
    Format.GEMINI: [IMAGE, PDF],
    Format.GEMINI_INTERACTIONS: [IMAGE, AUDIO, PDF],
    Format.MCP: [IMAGE, AUDIO, PDF, ZIP],
}


@pytest.mark.parametrize("into", Format)
def test_media_that_a_format_carries_come_back_byte_for_byte_and_the_others_are_named(into: Format) -> None:
    ((_, back),) = read_results(answered(into, RICH), into)
    holders = [block.get("resource", block) for block in back["content"]]
    media = [(one["mimeType"], data) for one in holders if (data := one.get("data") or one.get("blob"))]
    assert media == CARRIED[into]
    said = " ".join(block.get("text", "") for block in back["content"])
    assert all(one[0] in said for one in (IMAGE, AUDIO, PDF, ZIP) if one not in CARRIED[into])


@pytest.mark.parametrize("into", Format)
def test_a_result_for_an_unknown_call_and_a_call_without_a_result_are_refused(into: Format) -> None:
    call = ModelCall("1", "add", {})
    refused("unknown_call", write_results, [call], {"1": TEXT, "2": TEXT}, into)
    refused("missing_result", write_results, [call], {}, into)


@pytest.mark.parametrize("messages", [[{}], [3], [{"role": "tool"}], [{"content": [{}]}]])
@pytest.mark.parametrize("into", Format)
def test_results_that_are_none_are_refused(into: Format, messages: Any) -> None:
    refused("invalid_results", read_results, messages, into)

"""The SDKs themselves: they send what this package writes as it is, and what they read is read here."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from pydantic import TypeAdapter, ValidationError

from mcp_hub.formats.calls import read_calls, read_results, write_calls, write_results
from mcp_hub.formats.providers import PROVIDERS, Format, output_reader
from mcp_hub.formats.records import as_objects
from mcp_hub.formats.tools import export, read_search, read_tools
from tests.unit.formats import sdk_types
from tests.unit.formats.provider_streams import STREAMS
from tests.unit.formats.test_format_calls import ANSWERS, ITEMS, RESPONSES
from tests.unit.formats.test_format_results import FAILED, RICH
from tests.unit.formats.tool_lists import OWN

if TYPE_CHECKING:
    import anthropic as anthropic_sdk
    import anthropic.types as anthropic_types
    import openai as openai_sdk
    import openai.types.chat as chat_types
    import openai.types.responses as response_types
    from google import genai
    from google.genai import types
else:
    anthropic_sdk, anthropic_types = sdk_types.Later("anthropic"), sdk_types.Later(sdk_types.ANTHROPIC)
    openai_sdk, chat_types = sdk_types.Later("openai"), sdk_types.Later(sdk_types.OPENAI)
    response_types = sdk_types.Later(sdk_types.RESPONSES)
    genai, types = sdk_types.Later("google.genai"), sdk_types.Later(sdk_types.GEMINI)

Json = dict[str, Any]
ASK: Json = {"role": "user", "content": "Add 1 and 2."}
Ask = Callable[[httpx2.Client, list[Json], list[Json]], Any]


def anthropic(http: httpx2.Client, tools: list[Json], messages: list[Json]) -> Any:
    client = anthropic_sdk.Anthropic(api_key="k", http_client=http)
    given: Any = [ASK, *messages]  # of a union of types
    return client.messages.create(
        model="m", max_tokens=9, messages=given, tools=as_objects(tools, anthropic_types.ToolParam)
    )


def openai(http: httpx2.Client, tools: list[Json], messages: list[Json]) -> Any:
    client = openai_sdk.OpenAI(api_key="k", http_client=http)
    given: Any = [ASK, *messages]
    return client.chat.completions.create(
        model="m", messages=given, tools=as_objects(tools, chat_types.ChatCompletionFunctionToolParam)
    )


def responses(http: httpx2.Client, tools: list[Json], messages: list[Json]) -> Any:
    client = openai_sdk.OpenAI(api_key="k", http_client=http)
    given: Any = [ASK, *messages]
    return client.responses.create(model="m", input=given, tools=as_objects(tools, response_types.FunctionToolParam))


def gemini(http: httpx2.Client, tools: list[Json], messages: list[Json]) -> Any:
    client = genai.Client(api_key="k", http_options=types.HttpOptions(httpx_client=http))
    config = types.GenerateContentConfig(tools=[*as_objects(tools, types.Tool)])
    given: Any = as_objects([{"role": "user", "parts": [{"text": "Add."}]}, *messages], types.Content)
    return client.models.generate_content(model="m", contents=given, config=config)


def interactions(http: httpx2.Client, tools: list[Json], messages: list[Json]) -> Any:
    client = genai.Client(api_key="k", http_options=types.HttpOptions(httpx_client=http))
    asked = {"type": "user_input", "content": [{"type": "text", "text": "Add."}]}
    given: Any = [asked, *messages]
    defined: Any = tools
    return client.interactions.create(model="m", input=given, tools=defined)


ASKS: dict[Format, tuple[Ask, str]] = {
    Format.ANTHROPIC: (anthropic, "messages"),
    Format.OPENAI: (openai, "messages"),
    Format.OPENAI_RESPONSES: (responses, "input"),
    Format.GEMINI: (gemini, "contents"),
    Format.GEMINI_INTERACTIONS: (interactions, "input"),
}


def assistant(into: Format, items: list[Json]) -> list[Json]:
    """The model's turn with these calls, as the next request has it."""
    match into:
        case Format.ANTHROPIC:
            return [{"role": "assistant", "content": items}]
        case Format.OPENAI:
            return [{"role": "assistant", "tool_calls": items}]
        case Format.OPENAI_RESPONSES | Format.GEMINI_INTERACTIONS:
            return items
        case _:
            return [{"role": "model", "parts": items}]


def as_sent(into: Format, sent: list[Json], kind: type[types.Tool | types.Content]) -> list[Json]:
    """What was sent as the provider spells it: google-genai writes some members in snake case."""
    if into is not Format.GEMINI:
        return sent
    return [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in as_objects(sent, kind)]


@pytest.mark.parametrize("into", PROVIDERS)
def test_the_sdk_sends_tools_calls_and_results_as_they_are_and_its_answer_is_read(into: Format) -> None:
    sent: list[Json] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=ANSWERS[into])

    ask, member = ASKS[into]
    tools = export(OWN, into, is_strict=True).body["tools"]
    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        calls = read_calls(ask(http, tools, []), into)
        assert [(call.name, call.arguments) for call in calls] == [("add", {"a": 1, "b": 2}), ("echo", {"text": "é"})]
        results = write_results(calls, {calls[0].id: RICH, calls[1].id: FAILED}, into)
        turn = assistant(into, write_calls(calls, into))
        ask(http, tools, [*turn, *results])
    assert [as_sent(into, one["tools"], types.Tool) for one in sent] == [tools, tools]
    assert as_sent(into, sent[1][member], types.Content)[1:] == [*turn, *results]


def test_what_does_not_fit_the_type_of_an_sdk_is_refused_by_it() -> None:
    with pytest.raises(ValidationError):
        as_objects([{"parts": 3}], types.Content)


def test_every_part_of_an_answer_of_gemini_is_taken() -> None:
    (candidate,) = types.GenerateContentResponse.model_validate(ANSWERS[Format.GEMINI]).candidates or []
    content = candidate.content or types.Content()
    parts = content.parts or []
    calls = read_calls(ITEMS[Format.GEMINI], Format.GEMINI)
    for some in (candidate, content, parts):
        assert [call.arguments for call in read_calls(some, Format.GEMINI)] == [call.arguments for call in calls]
    alone = read_calls([part.function_call for part in parts if part.function_call], Format.GEMINI)
    assert [(call.id, call.name, call.arguments) for call in alone] == [
        (call.id, call.name, call.arguments) for call in calls
    ]
    assert [call.extra for call in alone] == [{}, {}]
    assert write_calls(alone, Format.GEMINI)[0] == {
        "functionCall": {"id": "c1", "name": "add", "args": {"a": 1, "b": 2}}
    }


def test_bytes_of_objects_of_gemini_come_back_in_the_alphabet_of_mcp() -> None:
    data = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes([0xFB, 0xFF, 0xFE, 0xFF])).decode()
    assert "+" in data or "/" in data
    result = {"content": [{"type": "image", "mimeType": "image/png", "data": data}]}
    (call,) = read_calls(ITEMS[Format.GEMINI][:1], Format.GEMINI)
    objects = as_objects(write_results([call], {call.id: result}, Format.GEMINI), types.Content)
    assert read_results(objects, Format.GEMINI) == [("c1", result)]


def test_tools_of_gemini_are_read_from_objects() -> None:
    body = export(OWN, Format.GEMINI).body
    config = types.GenerateContentConfig(tools=body["tools"])
    assert read_tools({"tools": config.tools}, Format.GEMINI) == read_tools(body, Format.GEMINI)


def test_a_call_of_the_search_tool_is_taken_as_an_object() -> None:
    item = {"type": "tool_search_call", "id": "ts", "call_id": "c1", "execution": "client", "arguments": {"query": "x"}}
    parsed = response_types.ResponseToolSearchCall.model_validate({**item, "status": "completed"})
    call = read_search(parsed, Format.OPENAI_RESPONSES)
    assert (call.id, call.arguments, call.fault) == ("c1", {"query": "x"}, None)


def test_stream_events_of_the_responses_api_are_taken_as_objects() -> None:
    """With the members that the SDK requires and this package does not read."""
    adapter: TypeAdapter[Any] = TypeAdapter(response_types.ResponseStreamEvent)
    chunks = STREAMS[Format.OPENAI_RESPONSES](list)
    more: Json = {"item_id": "x", "content_index": 0, "summary_index": 0, "logprobs": [], "name": "x"}
    full = [{**more, **chunk} for chunk in chunks]
    for chunk in full:
        if "response" in chunk:
            chunk["response"] = {**RESPONSES, "output": [], **chunk["response"]}
        if chunk.get("item", {}).get("type") == "reasoning":
            chunk["item"]["summary"] = []
    reader, plain = output_reader(Format.OPENAI_RESPONSES), output_reader(Format.OPENAI_RESPONSES)
    events = [event for chunk in full for event in reader.feed(adapter.validate_python(chunk))]
    assert events + reader.close() == [event for chunk in chunks for event in plain.feed(chunk)] + plain.close()
    assert reader.calls == plain.calls and len(reader.calls) == 2

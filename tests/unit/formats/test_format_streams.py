"""Streamed output of each provider as the normalised events: cut anywhere, broken off, broken."""

import json
import random
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from mcp_hub.formats.calls import write_calls
from mcp_hub.formats.providers import PROVIDERS, Format, output_reader
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import (
    ModelEvent,
    OutputEnd,
    OutputError,
    OutputStart,
    TextDelta,
    ThinkingDelta,
    ToolCallChunk,
    ToolCallEnd,
    ToolCallStart,
    as_json,
)
from mcp_hub.protocol.sse import EventParser, SseEvent
from tests.unit.formats import sdk_types
from tests.unit.formats.prompted_texts import merged, whole
from tests.unit.formats.provider_streams import EXTRA, FIRST, SECOND, STREAMS, Cut
from tests.unit.formats.sdk_types import adapter_of
from tests.unit.formats.tool_lists import refused

Json = dict[str, Any]
CUTTING = [into for into in PROVIDERS if into is not Format.GEMINI]
FIRST_VALUE = {"text": 'é \U0001f600 }{"', "n": [1, {"a": None}]}


def read(into: Format, chunks: list[Any]) -> tuple[list[ModelEvent], OutputReader]:
    reader = output_reader(into)
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.close(), reader


def expected(into: Format) -> list[ModelEvent]:
    first = FIRST if into is not Format.GEMINI else json.dumps(FIRST_VALUE, ensure_ascii=False, separators=(",", ":"))
    return [
        OutputStart("out_1"),
        ThinkingDelta("hm"),
        TextDelta("Hi"),
        ToolCallStart("c1", "echo"),
        ToolCallChunk("c1", first),
        ToolCallEnd("c1", first),
        ToolCallStart("c2", "add"),
        ToolCallChunk("c2", SECOND),
        ToolCallEnd("c2", SECOND),
        OutputEnd("tool_calls"),
    ]


def in_order(events: list[ModelEvent]) -> list[ModelEvent]:
    """OpenAI Chat says only at the end that a call is complete: its ends come then."""
    ends = {event.id: event for event in events if isinstance(event, ToolCallEnd)}
    rest = [event for event in events if not isinstance(event, ToolCallEnd)]
    found: list[ModelEvent] = []
    for event in rest:
        found += [event, ends[event.id]] if isinstance(event, ToolCallChunk) else [event]
    return found


@pytest.mark.parametrize("into", PROVIDERS)
def test_a_stream_is_the_events(into: Format) -> None:
    events, reader = read(into, STREAMS[into](whole))
    assert in_order(events) == expected(into)
    assert [(call.id, call.name, call.arguments) for call in reader.calls] == [
        ("c1", "echo", FIRST_VALUE),
        ("c2", "add", {"b": 2}),
    ]
    assert reader.calls[0].extra == EXTRA[into]
    assert [call.fault for call in reader.calls] == [None, None]


@pytest.mark.parametrize("into", CUTTING)
def test_arguments_cut_anywhere_are_the_same(into: Format) -> None:
    cuts: list[Cut] = [list]
    cuts += [partial(_halved, at) for at in range(len(FIRST) + 1)]
    cuts += [partial(_grouped, random.Random(seed)) for seed in range(50)]
    for cut in cuts:
        events, reader = read(into, STREAMS[into](cut))
        assert in_order(list(merged(events))) == expected(into)
        assert reader.calls[0].arguments == FIRST_VALUE


def _halved(at: int, text: str) -> list[str]:
    return [text[:at], text[at:]]


def _grouped(rng: random.Random, text: str) -> list[str]:
    places = sorted({0, len(text), *(rng.randrange(len(text) + 1) for _ in range(6))})
    return [text[start:end] for start, end in pairwise(places)]


@pytest.mark.first(len(PROVIDERS))
@pytest.mark.parametrize("into", PROVIDERS)
@pytest.mark.parametrize("part", range(3))
def test_bytes_cut_anywhere_are_the_same(into: Format, part: int) -> None:
    chunks = STREAMS[into](lambda text: [text[:9], text[9:]])
    raw = b"".join(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n" for chunk in chunks)
    for at in range(part, len(raw), 3):
        parser, reader = EventParser(1 << 20), output_reader(into)
        events: list[ModelEvent] = []
        for piece in (raw[:at], raw[at:]):
            for event in parser.events(piece):
                assert isinstance(event, SseEvent)
                events += reader.feed(json.loads(event.data))
        assert in_order(list(merged(events))) == expected(into)


SDK: dict[Format, tuple[str, str]] = {
    Format.ANTHROPIC: (sdk_types.ANTHROPIC, "RawMessageStreamEvent"),
    Format.OPENAI: (sdk_types.OPENAI, "ChatCompletionChunk"),
    Format.GEMINI: (sdk_types.GEMINI, "GenerateContentResponse"),
    Format.GEMINI_INTERACTIONS: (sdk_types.INTERACTIONS, "InteractionSSEEvent"),
}
"""Events of the Responses API hold a whole response, which these streams do not have."""


@pytest.mark.parametrize("into", [into for into in PROVIDERS if into is not Format.OPENAI_RESPONSES])
def test_the_objects_of_the_sdk_are_chunks_too(into: Format) -> None:
    adapter = adapter_of(*SDK[into])
    chunks = [chunk for chunk in STREAMS[into](whole) if chunk.get("type") != "ping"]
    events, reader = read(into, [adapter.validate_python(chunk) for chunk in chunks if _is_known(chunk)])
    assert in_order(events) == expected(into)
    assert reader.calls[0].extra == EXTRA[into]


def _is_known(chunk: Json) -> bool:
    block = chunk.get("content_block", {})
    return not (block.get("type") == "thinking" and "signature" not in block)


@pytest.mark.parametrize("into", PROVIDERS)
def test_a_stream_that_breaks_off_is_interrupted_and_its_open_call_broken(into: Format) -> None:
    chunks = STREAMS[into](list)
    for length in range(len(chunks)):
        events, reader = read(into, chunks[:length])
        assert [type(event) for event in events if isinstance(event, OutputEnd)] == [OutputEnd]
        assert isinstance(events[-1], OutputEnd) and isinstance(events[0], OutputStart)
        open_calls = {event.id for event in events if isinstance(event, ToolCallStart)}
        ended = [event.id for event in events if isinstance(event, ToolCallEnd | OutputError)]
        assert sorted(ended, key=str) == sorted(open_calls)
        assert [call.id for call in reader.calls if call.fault] == [
            event.id for event in events if isinstance(event, OutputError)
        ]
        assert events[-1] == OutputEnd("interrupted") or length == len(chunks)


def test_eager_arguments_that_end_as_broken_json_are_an_error_of_that_call_alone() -> None:
    chunks = STREAMS[Format.ANTHROPIC](lambda text: [text[:-3]] if text == FIRST else [text])
    events, reader = read(Format.ANTHROPIC, chunks)
    (error,) = [event for event in events if isinstance(event, OutputError)]
    assert (error.id, error.code) == ("c1", "invalid_arguments") and "Call it again" in error.message
    assert ToolCallEnd("c2", SECOND) in events and events[-1] == OutputEnd("tool_calls")
    first, second = reader.calls
    assert first.fault is not None and first.fault.message == error.message and second.fault is None
    assert write_calls([first], Format.ANTHROPIC)[0]["caller"] == {"type": "direct"}


@pytest.mark.parametrize("into", CUTTING)
def test_arguments_over_the_limit_are_not_kept(into: Format) -> None:
    piece = '{"a":"' + "x" * 400_000
    chunks = STREAMS[into](lambda text: [piece, piece, piece] if text == FIRST else [text])
    events, reader = read(into, chunks)
    (error,) = [event for event in events if isinstance(event, OutputError)]
    assert (error.id, error.code) == ("c1", "arguments_too_large")
    assert sum(len(event.arguments) for event in events if isinstance(event, ToolCallChunk)) < 1_000_000
    assert [call.fault is None for call in reader.calls] == [False, True]


def test_interleaved_calls_of_one_delta_are_kept_apart() -> None:
    def chunk(*calls: Json, reason: str | None = None) -> Json:
        delta = {"tool_calls": list(calls)} if calls else {}
        return {"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    chunks = [
        chunk(
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": '{"n"'}},
            {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{"}},
        ),
        chunk({"index": 1, "function": {"arguments": "}"}}, {"index": 0, "function": {"arguments": ":1}"}}),
        chunk(reason="tool_calls"),
    ]
    _, reader = read(Format.OPENAI, chunks)
    assert [(call.id, call.name, call.arguments) for call in reader.calls] == [("a", "f", {"n": 1}), ("b", "g", {})]


def test_servers_that_repeat_ids_or_leave_out_indexes_are_understood() -> None:
    def chunk(call: Json) -> Json:
        return {"id": "x", "choices": [{"delta": {"tool_calls": [call]}}]}

    chunks = [
        chunk({"id": "a", "function": {"name": "f", "arguments": '{"n":'}}),
        chunk({"id": "a", "function": {"name": "f", "arguments": "1}"}}),
        chunk({"id": "b", "function": {"name": "g", "arguments": "{}"}}),
        {"id": "x", "choices": [{"delta": {}, "finish_reason": "stop"}]},
    ]
    events, reader = read(Format.OPENAI, chunks)
    assert [(call.id, call.arguments) for call in reader.calls] == [("a", {"n": 1}), ("b", {})]
    assert events[-1] == OutputEnd("tool_calls")


def test_gemini_streams_arguments_by_path() -> None:
    def chunk(call: Json, **members: Any) -> Json:
        return {"candidates": [{"content": {"parts": [{"functionCall": call, **members}]}}]}

    chunks = [
        chunk({"name": "f", "id": "c", "willContinue": True}, thoughtSignature="c2ln"),
        chunk({"partialArgs": [{"jsonPath": "$.a", "stringValue": "on", "willContinue": True}], "willContinue": True}),
        chunk({"partialArgs": [{"jsonPath": "$.a", "stringValue": "e"}], "willContinue": True}),
        chunk(
            {
                "partialArgs": [
                    {"jsonPath": "$.b[0]", "boolValue": False},
                    {"jsonPath": "$.b[1].c", "numberValue": 2},
                    {"jsonPath": "$['d e'].f", "nullValue": "NULL_VALUE"},
                ],
                "willContinue": True,
            }
        ),
        chunk({}),
        {"candidates": [{"finishReason": "STOP"}]},
    ]
    events, reader = read(Format.GEMINI, chunks)
    (call,) = reader.calls
    assert call.arguments == {"a": "one", "b": [False, {"c": 2}], "d e": {"f": None}}
    assert (call.id, call.extra) == ("c", {"thoughtSignature": "c2ln"})
    assert [type(event) for event in events] == [OutputStart, ToolCallStart, ToolCallChunk, ToolCallEnd, OutputEnd]


def ending(into: Format, said: str) -> list[Json]:
    match into:
        case Format.ANTHROPIC:
            return [{"type": "message_delta", "delta": {"stop_reason": said}}, {"type": "message_stop"}]
        case Format.OPENAI:
            return [{"choices": [{"index": 0, "delta": {}, "finish_reason": said}]}]
        case Format.OPENAI_RESPONSES:
            return [{"type": "response.incomplete", "response": {"incomplete_details": {"reason": said}}}]
        case Format.GEMINI_INTERACTIONS:
            return [{"event_type": "interaction.completed", "interaction": {"status": said}}]
        case _:
            return [{"candidates": [{"finishReason": said}]}]


REASONS: dict[Format, dict[str, str]] = {
    Format.ANTHROPIC: {
        "stop": "end_turn stop_sequence",
        "tool_calls": "tool_use",
        "length": "max_tokens model_context_window_exceeded",
        "interrupted": "pause_turn refusal",
    },
    Format.OPENAI: {"stop": "stop", "length": "length", "interrupted": "content_filter"},
    Format.OPENAI_RESPONSES: {"length": "max_output_tokens", "interrupted": "content_filter"},
    Format.GEMINI: {"stop": "STOP", "length": "MAX_TOKENS", "interrupted": "SAFETY"},
    Format.GEMINI_INTERACTIONS: {
        "stop": "completed requires_action",
        "length": "incomplete budget_exceeded",
        "interrupted": "cancelled requires_continuation",
    },
}
ENDINGS: list[tuple[Format, list[Json], str]] = [
    *(
        (into, ending(into, said), to)
        for into, own in REASONS.items()
        for to, all_ in own.items()
        for said in all_.split()
    ),
    (Format.OPENAI_RESPONSES, [{"type": "response.completed", "response": {}}], "stop"),
    (Format.GEMINI, [{"promptFeedback": {"blockReason": "SAFETY"}}], "interrupted"),
]


@pytest.mark.parametrize(("into", "chunks", "reason"), ENDINGS)
def test_the_reason_of_the_end(into: Format, chunks: list[Json], reason: str) -> None:
    events, _ = read(into, chunks)
    (end,) = [event for event in events if isinstance(event, OutputEnd)]
    assert end.finish_reason == reason and events[-1] == end


FAILURES: list[tuple[Format, Json]] = [
    (Format.ANTHROPIC, {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}}),
    (Format.OPENAI, {"error": {"message": "boom"}}),
    (Format.OPENAI_RESPONSES, {"type": "error", "code": "x", "message": "boom"}),
    (Format.OPENAI_RESPONSES, {"type": "response.failed", "response": {"error": {"message": "boom"}}}),
    (Format.GEMINI, {"error": {"code": 503, "message": "boom"}}),
    (Format.GEMINI_INTERACTIONS, {"event_type": "error", "error": {"message": "boom"}}),
    (Format.GEMINI, {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": "boom"}]}),
]


def test_every_provider_has_endings_and_failures() -> None:
    assert {into for into, *_ in ENDINGS} == {into for into, _ in FAILURES} == set(PROVIDERS)


@pytest.mark.parametrize(("into", "chunk"), FAILURES)
def test_an_error_of_the_provider_is_an_event(into: Format, chunk: Json) -> None:
    events, _ = read(into, [chunk])
    (error,) = [event for event in events if isinstance(event, OutputError)]
    assert error.code == "output_failed" and error.message.endswith("boom") and error.id is None
    assert events[-1] == OutputEnd("interrupted")


ODD: list[Any] = [None, 3, "x", [], {}, {"type": 3}, {"choices": 3}, {"choices": [3, {"delta": {"tool_calls": [{}]}}]}]
ODD += [{"candidates": [{"content": {"parts": [{"functionCall": {}}, 3]}}]}, {"type": "content_block_delta"}]
ODD += [{"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": 3, "name": None}}]
ODD += [{"type": "response.output_item.done", "item": {"type": "function_call"}}, {"type": "content_block_stop"}]
ODD += [{"choices": [{"delta": {"tool_calls": [{"function": {"name": 3, "arguments": 4}}]}}]}]


@pytest.mark.parametrize("into", PROVIDERS)
def test_a_reader_never_raises(into: Format) -> None:
    rng = random.Random(7)
    good = STREAMS[into](list)
    for _ in range(200):
        chunks = [rng.choice(ODD) if rng.random() < 0.3 else rng.choice(good) for _ in range(12)]
        events, _ = read(into, chunks)
        assert sum(isinstance(event, OutputEnd) for event in events) == 1
        starts = [event.id for event in events if isinstance(event, ToolCallStart)]
        ends = [event.id for event in events if isinstance(event, ToolCallEnd | OutputError) and event.id is not None]
        assert sorted(starts) == sorted(ends)


def test_events_are_json_with_their_type() -> None:
    assert as_json(ToolCallChunk("c", '{"')) == {"type": "tool_call_chunk", "id": "c", "arguments": '{"'}
    assert as_json(OutputError("output_failed", "x")) == {"type": "error", "code": "output_failed", "message": "x"}
    assert as_json(OutputEnd("stop")) == {"type": "end", "finish_reason": "stop"}


def test_mcp_has_no_streams_of_output() -> None:
    refused("unknown_format", output_reader, Format.MCP)

"""Streams of calls as servers really send them: the model's calls, with its arguments, or faults."""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_hub.formats.calls import read_calls, write_calls, write_results
from mcp_hub.formats.providers import PROVIDERS, Format, output_reader
from mcp_hub.formats.reader import OutputReader
from mcp_hub.formats.records import ModelEvent, OutputEnd, OutputError, ToolCallChunk, ToolCallEnd, ToolCallStart
from mcp_hub.formats.tools import read_search
from tests.unit.formats.call_streams import ANTHROPIC, CASES, GEMINI, INTERACTIONS, RESPONSES, SEARCH, Case
from tests.unit.formats.chat_call_streams import CHAT, DOOR, LIGHT
from tests.unit.formats.documented_results import broken_result

Json = dict[str, Any]


def read(case: Case) -> tuple[list[ModelEvent], OutputReader]:
    reader = output_reader(case.into)
    events = [event for chunk in case.chunks for event in reader.feed(chunk)]
    return events + reader.close(), reader


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.into}, {case.kind}")
def test_calls_of_a_stream_are_as_the_model_meant(case: Case) -> None:
    events, reader = read(case)
    assert [(call.name, call.fault.code if call.fault else call.arguments) for call in reader.calls] == case.calls
    assert events[-1] == OutputEnd(case.reason)  # type: ignore[arg-type]
    starts = {event.id: event.name for event in events if isinstance(event, ToolCallStart)}
    assert list(starts.values()) == [name for name, _ in case.calls]
    ends = {event.id: event for event in events if isinstance(event, ToolCallEnd | OutputError) and event.id}
    assert ends.keys() == starts.keys() == {call.id for call in reader.calls}
    for call in reader.calls:
        text = "".join(event.arguments for event in events if isinstance(event, ToolCallChunk) and event.id == call.id)
        end = ends[call.id]
        assert isinstance(end, OutputError) is (call.fault is not None)
        assert not isinstance(end, ToolCallEnd) or end.arguments == (text or "{}")


KINDS = [{kind for kind, *_ in table} for table in (CHAT, RESPONSES, ANTHROPIC, GEMINI, INTERACTIONS)]


def test_every_api_has_the_kinds_that_it_can_have() -> None:
    everywhere = set.intersection(*KINDS)
    assert everywhere >= {"object", "list for an object", "cut after the name", "cut inside", "one id for two"}
    assert everywhere >= {"cut in the second", "no arguments"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.into}, {case.kind}")
def test_results_of_a_stream_name_the_calls_as_the_provider_does(case: Case) -> None:
    _, reader = read(case)
    results = {call.id: {"content": [{"type": "text", "text": "ok"}]} for call in reader.calls if not call.fault}
    messages = write_results(reader.calls, results, case.into)
    assert broken_result(case.into, messages) == []
    assert "mcp_hub" not in str(messages) + str(write_calls(reader.calls, case.into))
    if case.kind == "one id for two":
        assert str(messages).count("'a'") == 2 and len(write_calls(reader.calls, case.into)) == 2


def test_a_search_in_a_stream_goes_to_the_search() -> None:
    case = next(case for case in CASES if case.kind == "search")
    _, reader = read(case)
    (item,) = write_calls(reader.calls, Format.OPENAI_RESPONSES)
    assert item == SEARCH
    assert read_search(item, Format.OPENAI_RESPONSES).arguments == {"query": "lamps"}


# -- whole answers


def answer(into: Format, reason: str, *calls: tuple[str, Any]) -> Json:
    match into:
        case Format.ANTHROPIC:
            blocks = [
                {"type": "tool_use", "id": f"c{at}", "name": name, "input": value or {}}
                for at, (name, value) in enumerate(calls)
            ]
            return {"stop_reason": reason, "content": blocks}
        case Format.OPENAI:
            items = [
                {"type": "function", "id": f"c{at}", "function": {"name": name, "arguments": value}}
                for at, (name, value) in enumerate(calls)
            ]
            return {"choices": [{"finish_reason": reason, "message": {"tool_calls": items}}]}
        case Format.OPENAI_RESPONSES:
            output = [
                {"type": "function_call", "call_id": f"c{at}", "name": name, "arguments": value}
                for at, (name, value) in enumerate(calls)
            ]
            return {"output": output, "incomplete_details": {"reason": reason} if reason else None}
        case Format.GEMINI_INTERACTIONS:
            steps = [
                {"type": "function_call", "id": f"c{at}", "name": name, "arguments": value}
                for at, (name, value) in enumerate(calls)
            ]
            return {"status": reason, "steps": steps}
        case _:
            parts = [{"functionCall": {"name": name, "args": value}} for name, value in calls]
            return {"candidates": [{"finishReason": reason, "content": {"parts": parts}}]}


ENDS: dict[Format, tuple[str, str, Any]] = {
    Format.ANTHROPIC: ("tool_use", "max_tokens", {}),
    Format.OPENAI: ("tool_calls", "length", ""),
    Format.OPENAI_RESPONSES: ("", "max_output_tokens", ""),
    Format.GEMINI: ("STOP", "MAX_TOKENS", None),
    Format.GEMINI_INTERACTIONS: ("requires_action", "incomplete", {}),
}


@pytest.mark.parametrize("into", PROVIDERS)
def test_the_last_call_of_an_answer_that_was_cut_is_a_fault_without_its_arguments(into: Format) -> None:
    whole, cut, nothing = ENDS[into]
    first, second = read_calls(answer(into, cut, ("door", nothing), ("light", nothing)), into)
    assert (first.fault, first.arguments) == (None, {})
    assert second.fault is not None and second.fault.code == "invalid_arguments" and "cut off" in second.fault.message
    assert [call.fault for call in read_calls(answer(into, whole, ("door", nothing)), into)] == [None]


def test_the_last_call_of_a_cut_answer_of_anthropic_may_lack_some_arguments() -> None:
    first, second = read_calls(
        answer(Format.ANTHROPIC, "max_tokens", ("door", DOOR), ("light", LIGHT)), Format.ANTHROPIC
    )
    assert first.fault is None and second.fault is not None and second.arguments == {}


def test_an_item_that_is_incomplete_is_a_fault() -> None:
    item = {"type": "function_call", "call_id": "c", "name": "door", "arguments": "{}", "status": "incomplete"}
    (call,) = read_calls(item, Format.OPENAI_RESPONSES)
    assert call.fault is not None and call.fault.code == "invalid_arguments"


@pytest.mark.parametrize("calls", [..., None, []])
def test_a_legacy_function_call_is_answered_as_one(calls: Any) -> None:
    message: Json = {
        "role": "assistant",
        "content": None,
        "function_call": {"name": "door", "arguments": '{"open":false}'},
    }
    message |= {} if calls is ... else {"tool_calls": calls}
    (call,) = read_calls({"choices": [{"message": message, "finish_reason": "function_call"}]}, Format.OPENAI)
    assert (call.name, call.arguments, call.fault) == ("door", DOOR, None)
    messages = write_results([call], {call.id: {"content": [{"type": "text", "text": "shut"}]}}, Format.OPENAI)
    assert messages == [{"role": "function", "name": "door", "content": "shut"}]
    assert write_calls([call], Format.OPENAI) == [{"function_call": {"name": "door", "arguments": '{"open":false}'}}]


def test_a_message_with_calls_of_both_kinds_has_those_of_today() -> None:
    tool_calls = [{"type": "function", "id": "c", "function": {"name": "light", "arguments": "{}"}}]
    message = {"tool_calls": tool_calls, "function_call": {"name": "light", "arguments": "{}"}}
    assert [call.id for call in read_calls(message, Format.OPENAI)] == ["c"]


# -- broken streams

JUNK: list[Any] = [None, 3, -1, "", "x", [], {}, [1], {"a": 1}, True]


def broken(rng: random.Random, chunks: list[Json]) -> list[Json]:
    """The chunks with some lost, repeated, in another order or with other values."""
    given = list(chunks)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(given))
        match rng.randrange(4):
            case 0 if len(given) > 1:
                del given[at]
            case 1:
                given.insert(at, rng.choice(given))
            case 2:
                rng.shuffle(given)
            case _:
                given[at] = json.loads(json.dumps(given[at]))
                holder, key = rng.choice(list(places(given[at])))
                holder[key] = rng.choice(JUNK)
    return given


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, member in members:
        yield value, key
        yield from places(member)


@pytest.mark.parametrize("into", PROVIDERS)
def test_broken_streams_are_read_to_their_end_and_calls_are_what_their_chunks_say(into: Format) -> None:
    rng = random.Random(11)
    own = [case for case in CASES if case.into is into]
    for _ in range(400):
        first, second = rng.choices(own, k=2)
        events, reader = read(first._replace(chunks=broken(rng, [*first.chunks, *second.chunks])))
        assert [isinstance(event, OutputEnd) for event in events].count(True) == 1
        starts = [event.id for event in events if isinstance(event, ToolCallStart)]
        ends = [event.id for event in events if isinstance(event, ToolCallEnd | OutputError) and event.id is not None]
        assert len(set(starts)) == len(starts) and sorted(starts) == sorted(ends)
        chunks = [event for event in events if isinstance(event, ToolCallChunk)]
        for event in events:
            if isinstance(event, ToolCallEnd):
                said = "".join(chunk.arguments for chunk in chunks if chunk.id == event.id)
                assert event.arguments == (said or "{}")
        results: dict[str, Json] = {call.id: {"content": []} for call in reader.calls if call.fault is None}
        assert broken_result(into, write_results(reader.calls, results, into)) == []

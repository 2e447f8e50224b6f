"""A stream whose chunks are lost, repeated or in another order gives the calls that the model meant, or faults."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from mcp_hub.formats.providers import Format, output_reader
from mcp_hub.formats.records import ModelCall
from tests.unit.formats.call_streams import OVER, added, event, function
from tests.unit.formats.chat_call_streams import DOOR, DOOR_TEXT, LIGHT, LIGHT_TEXT

Json = dict[str, Any]
MEANT = [("light", LIGHT), ("door", DOOR)]
TEXTS = {"light": LIGHT_TEXT, "door": DOOR_TEXT}


def anthropic() -> Iterator[Json]:
    yield {"type": "message_start", "message": {"id": "out"}}
    for at, (name, text) in enumerate(TEXTS.items()):
        block = {"type": "tool_use", "id": name, "name": name, "input": {}}
        yield {"type": "content_block_start", "index": at, "content_block": block}
        for piece in (text[:7], text[7:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        yield {"type": "content_block_stop", "index": at}
    yield {"type": "message_delta", "delta": {"stop_reason": "tool_use"}}
    yield {"type": "message_stop"}


def responses() -> Iterator[Json]:
    yield {"type": "response.created", "response": {"id": "out"}}
    for at, (name, text) in enumerate(TEXTS.items()):
        item = function(name, text, name)
        yield added(item, at)
        for piece in (text[:7], text[7:]):
            yield event("function_call_arguments.delta", at, delta=piece)
        yield event("function_call_arguments.done", at, arguments=text)
        yield event("output_item.done", at, item={**item, "status": "completed"})
    yield event("completed", None, response={"output": [function(name, text, name) for name, text in TEXTS.items()]})


def interactions() -> Iterator[Json]:
    yield {"event_type": "interaction.created", "interaction": {"id": "out"}}
    for at, (name, text) in enumerate(TEXTS.items()):
        step = {"type": "function_call", "id": name, "name": name, "arguments": {}}
        yield {"event_type": "step.start", "index": at, "step": step}
        for piece in (text[:7], text[7:]):
            delta = {"type": "arguments_delta", "arguments": piece}
            yield {"event_type": "step.delta", "index": at, "delta": delta}
        yield {"event_type": "step.stop", "index": at}
    yield {"event_type": "interaction.completed", "interaction": {"status": "requires_action"}}


STREAMS = {
    Format.ANTHROPIC: list(anthropic()),
    Format.OPENAI_RESPONSES: list(responses()),
    Format.GEMINI_INTERACTIONS: list(interactions()),
}


def broken(chunks: list[Json]) -> Iterator[list[Json]]:
    """The chunks without one, with one twice, with one at every other place, and cut off."""
    for at, chunk in enumerate(chunks):
        others = chunks[:at] + chunks[at + 1 :]
        yield chunks[:at]
        yield [*chunks[: at + 1], *chunks[at:]]
        yield others
        yield from ([*others[:place], chunk, *others[place:]] for place in range(len(chunks)))


def calls_of(into: Format, chunks: list[Json]) -> list[ModelCall]:
    reader = output_reader(into)
    for chunk in chunks:
        reader.feed(chunk)
    reader.close()
    return list(reader.calls)


def made(into: Format, chunks: list[Json]) -> list[Any]:
    """Calls by name with their arguments, or the code of their fault."""
    return [(call.name, call.fault.code if call.fault else call.arguments) for call in calls_of(into, chunks)]


@pytest.mark.parametrize("into", STREAMS)
def test_calls_of_a_broken_stream_are_those_meant_or_faults(into: Format) -> None:
    assert made(into, STREAMS[into]) == MEANT
    for chunks in broken(STREAMS[into]):
        calls = [(call.name, call.arguments) for call in calls_of(into, chunks) if call.fault is None]
        assert [call for call in calls if call not in MEANT] == []
        assert len(calls) == len({name for name, _ in calls})


CUT = "invalid_arguments"
LIGHT_ITEM = function("light", LIGHT_TEXT)


def delta(piece: str) -> Json:
    return event("function_call_arguments.delta", delta=piece)


@pytest.mark.parametrize(
    ("chunks", "calls"),
    [
        ([added(LIGHT_ITEM), event("completed", None, response={"output": [LIGHT_ITEM]})], [("light", LIGHT)]),
        (
            [added(LIGHT_ITEM, 1), event("completed", None, response={"output": [{"type": "reasoning"}, LIGHT_ITEM]})],
            [("light", LIGHT)],
        ),
        (
            [added(LIGHT_ITEM), delta(LIGHT_TEXT[:9]), event("completed", None, response={"output": [LIGHT_ITEM]})],
            [("light", LIGHT)],
        ),
        (
            [added(LIGHT_ITEM), delta(DOOR_TEXT), event("completed", None, response={"output": [LIGHT_ITEM]})],
            [("light", CUT)],
        ),
        ([added(LIGHT_ITEM), OVER], [("light", CUT)]),
    ],
)
def test_the_response_at_the_end_completes_its_calls(chunks: list[Json], calls: list[Any]) -> None:
    assert made(Format.OPENAI_RESPONSES, chunks) == calls


def test_a_chat_that_does_not_stream_has_its_calls_in_a_message() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "light", "arguments": LIGHT_TEXT}}
    chunk = {"choices": [{"index": 0, "message": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]}
    assert made(Format.OPENAI, [chunk]) == [("light", LIGHT)]


def part(path: str, **value: Any) -> Json:
    return {"jsonPath": path, **value}


def gemini(*partial: Json, **members: Any) -> list[Json]:
    """A call whose arguments come by path, one a chunk."""
    begin = {"name": "light", "id": "a", "willContinue": True, **members}
    calls = [begin, *({"partialArgs": [piece], "willContinue": True} for piece in partial), {}]
    chunks: list[Json] = [{"candidates": [{"content": {"parts": [{"functionCall": call}]}}]} for call in calls]
    return [*chunks, {"candidates": [{"finishReason": "STOP"}]}]


ROOM = part("$.room", stringValue="h")


@pytest.mark.parametrize(
    ("partial", "arguments"),
    [
        # one letter is the same object wherever it comes from
        ([part("$.n", stringValue="l", willContinue=True), part("$.n", stringValue="l")], {"n": "ll"}),
        ([ROOM, part("$.on", boolValue=True), part("$.on", boolValue=True)], {"room": "h", "on": True}),
        ([part("$.n", nullValue=None)], {"n": None}),
        ([part("$.n[0][0]", numberValue=1), part("$.n[0][1]", numberValue=0)], {"n": [[1, 0]]}),
        ([part("$['a.b']['c\\'d']", stringValue="v")], {"a.b": {"c'd": "v"}}),
        ([ROOM, part("$.room", numberValue=3)], CUT),
        ([part("$.on", boolValue=True), part("$.on", numberValue=1)], CUT),
        ([ROOM, part("$.room.floor", stringValue="2")], CUT),
        ([part("$.room.floor", stringValue="2"), part("$.room[0]", stringValue="b")], CUT),
        ([part("$.room.floor", stringValue="2"), part("$.room", stringValue="b")], CUT),
        ([part("$.n[1]", numberValue=2)], CUT),
        ([part("$.n[0]", numberValue=2), part("$.n[99999]", numberValue=2)], CUT),
        ([ROOM, part("$..on", boolValue=True)], CUT),
        ([ROOM, part("$", boolValue=True)], CUT),
        ([ROOM, {"boolValue": True}], CUT),
        ([ROOM, part("$" + ".a" * 99, boolValue=True)], CUT),
        ([ROOM, part("$.on", structValue={"a": 1})], CUT),
    ],
)
def test_parts_of_arguments_without_a_place_or_a_value_are_a_fault(partial: list[Json], arguments: Any) -> None:
    assert made(Format.GEMINI, gemini(*partial)) == [("light", arguments)]


def test_whole_arguments_in_two_versions_are_a_fault() -> None:
    chunks = gemini(args={"on": True})
    again = {"candidates": [{"content": {"parts": [{"functionCall": {"args": {"on": False}, "willContinue": True}}]}}]}
    assert made(Format.GEMINI, chunks) == [("light", {"on": True})]
    assert made(Format.GEMINI, [chunks[0], again, *chunks[1:]]) == [("light", CUT)]
    assert json.dumps(calls_of(Format.GEMINI, [chunks[0], chunks[0], *chunks[1:]])[0].arguments) == '{"on": true}'

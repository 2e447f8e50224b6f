"""Streams of calls as servers really send them: by kind, for each API, with the calls that the model meant.

A call is its name with its arguments, or with the code of its fault.
"""

from typing import Any, NamedTuple

from mcp_hub.formats.providers import Format
from tests.unit.formats.chat_call_streams import CHAT, CUT, DOOR, DOOR_TEXT, LIGHT, LIGHT_TEXT, Call, Json


class Case(NamedTuple):
    """`calls` in their order, and why the output ended."""

    kind: str
    into: Format
    chunks: list[Json]
    calls: list[Call]
    reason: str = "tool_calls"


# -- OpenAI Responses


def event(kind: str, at: int | None = 0, **members: Any) -> Json:
    place = {} if at is None else {"output_index": at}
    return {"type": f"response.{kind}", **place, **members}


def function(name: str | None, arguments: Any = "", call_id: str | None = "a", **members: Any) -> Json:
    item = {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": name, "arguments": arguments}
    return {key: value for key, value in {**item, **members}.items() if value is not None}


def added(item: Json, at: int | None = 0) -> Json:
    return event("output_item.added", at, item={**item, "arguments": ""})


def done(item: Json, at: int | None = 0) -> Json:
    return event("output_item.done", at, item=item)


ARGUMENTS, OVER = "function_call_arguments", event("completed", None, response={"id": "out"})
LENGTH = event("incomplete", None, response={"incomplete_details": {"reason": "max_output_tokens"}})
FILTER = event("incomplete", None, response={"incomplete_details": {"reason": "content_filter"}})
LIGHT_ITEM = function("light", LIGHT_TEXT)
SEARCH: Json = {
    **{"type": "tool_search_call", "id": "ts", "call_id": "s", "execution": "client", "status": "completed"},
    "arguments": {"query": "lamps"},
}

RESPONSES: list[tuple[str, list[Json], list[Call], str]] = [
    ("object", [added(LIGHT_ITEM), done(function("light", LIGHT)), OVER], [("light", LIGHT)], ""),
    ("object, later", [added(LIGHT_ITEM), event(f"{ARGUMENTS}.done", arguments=LIGHT), OVER], [("light", LIGHT)], ""),
    ("list for an object", [added(LIGHT_ITEM), done(function("light", [1])), OVER], [("light", CUT)], ""),
    (
        "only in …done",
        [added(LIGHT_ITEM), event(f"{ARGUMENTS}.done", arguments=LIGHT_TEXT), OVER],
        [("light", LIGHT)],
        "",
    ),
    (
        "only in …done, item without",
        [added(LIGHT_ITEM), event(f"{ARGUMENTS}.done", arguments=LIGHT_TEXT), done(function("light")), OVER],
        [("light", LIGHT)],
        "",
    ),
    (
        "more in …done",
        [
            added(LIGHT_ITEM),
            event(f"{ARGUMENTS}.delta", delta=LIGHT_TEXT[:9]),
            event(f"{ARGUMENTS}.done", arguments=LIGHT_TEXT),
            OVER,
        ],
        [("light", LIGHT)],
        "",
    ),
    (
        "the same with spaces",
        [
            added(LIGHT_ITEM),
            event(f"{ARGUMENTS}.delta", delta=LIGHT_TEXT),
            done(function("light", '{"room": "hall", "on": true}')),
        ]
        + [OVER],
        [("light", LIGHT)],
        "",
    ),
    (
        "another in …done",
        [added(LIGHT_ITEM), event(f"{ARGUMENTS}.delta", delta=LIGHT_TEXT), done(function("light", DOOR_TEXT)), OVER],
        [("light", CUT)],
        "",
    ),
    ("only the item", [done(LIGHT_ITEM), OVER], [("light", LIGHT)], ""),
    ("only the response", [event("completed", None, response={"output": [LIGHT_ITEM]})], [("light", LIGHT)], ""),
    (
        "the response repeats",
        [done(LIGHT_ITEM), event("completed", None, response={"output": [LIGHT_ITEM]})],
        [("light", LIGHT)],
        "",
    ),
    ("cut after the name", [added(LIGHT_ITEM), LENGTH], [("light", CUT)], "length"),
    ("cut after the name", [added(LIGHT_ITEM), done(function("light")), LENGTH], [("light", CUT)], "length"),
    (
        "cut after the name",
        [added(LIGHT_ITEM), done(function("light", status="incomplete")), LENGTH],
        [("light", CUT)],
        "length",
    ),
    (
        "cut in the second",
        [
            *(added(function("door", "")), done(function("door", "", status="completed"))),
            *(added(function("light", "", "b"), 1), done(function("light", "", "b"), 1), LENGTH),
        ],
        [("door", {}), ("light", CUT)],
        "length",
    ),
    (
        "cut inside",
        [added(LIGHT_ITEM), event(f"{ARGUMENTS}.delta", delta='{"room'), LENGTH],
        [("light", CUT)],
        "length",
    ),
    ("no arguments", [added(function("door")), done(function("door")), OVER], [("door", {})], ""),
    ("id first", [added(function(None)), done(LIGHT_ITEM), OVER], [("light", LIGHT)], ""),
    (
        "name first",
        [
            added(function("light", call_id=None)),
            event(f"{ARGUMENTS}.done", arguments=LIGHT_TEXT),
            done(LIGHT_ITEM),
            OVER,
        ],
        [("light", LIGHT)],
        "",
    ),
    (
        "no index",
        [
            *(added(function("light"), None), added(function("door", "", "b"), None)),
            event(f"{ARGUMENTS}.delta", None, item_id="fc_b", delta=DOOR_TEXT),
            event(f"{ARGUMENTS}.delta", None, item_id="fc_a", delta=LIGHT_TEXT),
            *(done(LIGHT_ITEM, None), done(function("door", DOOR_TEXT, "b"), None), OVER),
        ],
        [("light", LIGHT), ("door", DOOR)],
        "",
    ),
    (
        "one id for two",
        [done(LIGHT_ITEM), done(function("door", DOOR_TEXT), 1), OVER],
        [("light", LIGHT), ("door", "duplicate_call_id")],
        "",
    ),
    ("search", [done(SEARCH), OVER], [("tool_search", {"query": "lamps"})], ""),
    (
        "search, begun before",
        [event("output_item.added", item={**SEARCH, "arguments": {}, "status": "in_progress"}), done(SEARCH), OVER],
        [("tool_search", {"query": "lamps"})],
        "",
    ),
    ("search of the server", [done({**SEARCH, "execution": "server", "call_id": None}), OVER], [], "stop"),
    ("refusal", [event("refusal.delta", delta="I will not."), OVER], [], "interrupted"),
    ("refusal, whole", [event("refusal.done", refusal="I will not."), OVER], [], "interrupted"),
    (
        "refusal behind a call",
        [done(LIGHT_ITEM), event("refusal.delta", 1, delta="No."), OVER],
        [("light", LIGHT)],
        "interrupted",
    ),
    ("filter behind a call", [done(LIGHT_ITEM), FILTER], [("light", LIGHT)], "interrupted"),
    (
        "filter in a call",
        [added(LIGHT_ITEM), event(f"{ARGUMENTS}.delta", delta='{"ro'), FILTER],
        [("light", CUT)],
        "interrupted",
    ),
    ("filter after the name", [added(LIGHT_ITEM), FILTER], [("light", CUT)], "interrupted"),
]

# -- Anthropic


def begun(name: str, at: int = 0, call_id: str = "a", value: Any = ...) -> Json:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": {} if value is ... else value}
    return {"type": "content_block_start", "index": at, "content_block": block}


def more(text: Any, at: int = 0) -> Json:
    return {"type": "content_block_delta", "index": at, "delta": {"type": "input_json_delta", "partial_json": text}}


def stopped(at: int = 0) -> Json:
    return {"type": "content_block_stop", "index": at}


def ended(reason: str) -> list[Json]:
    return [{"type": "message_delta", "delta": {"stop_reason": reason}}, {"type": "message_stop"}]


USE = ended("tool_use")
DOOR_BLOCK = [begun("door"), more(DOOR_TEXT), stopped()]

ANTHROPIC: list[tuple[str, list[Json], list[Call], str]] = [
    ("object", [begun("light", value=LIGHT), stopped(), *USE], [("light", LIGHT)], ""),
    ("object, later", [begun("light"), more(LIGHT), stopped(), *USE], [("light", LIGHT)], ""),
    ("object and text", [begun("light", value=LIGHT), more(LIGHT_TEXT), stopped(), *USE], [("light", LIGHT)], ""),
    ("list for an object", [begun("light", value=[1]), stopped(), *USE], [("light", CUT)], ""),
    ("cut after the name", [begun("light"), stopped(), *ended("max_tokens")], [("light", CUT)], "length"),
    ("cut after the name", [begun("light"), more(""), stopped(), *ended("max_tokens")], [("light", CUT)], "length"),
    ("cut after the name", [begun("light"), *ended("max_tokens")], [("light", CUT)], "length"),
    (
        "cut after the name",
        [begun("light"), stopped(), *ended("model_context_window_exceeded")],
        [("light", CUT)],
        "length",
    ),
    (
        "cut in the second",
        [begun("door"), stopped(), begun("light", 1, "b"), stopped(1), *ended("max_tokens")],
        [("door", {}), ("light", CUT)],
        "length",
    ),
    ("cut inside", [begun("light"), more('{"room'), stopped(), *ended("max_tokens")], [("light", CUT)], "length"),
    ("no arguments", [begun("door"), more(""), stopped(), *USE], [("door", {})], ""),
    (
        "one id for two",
        [*DOOR_BLOCK, begun("light", 1), more(LIGHT_TEXT, 1), stopped(1), *USE],
        [("door", DOOR), ("light", "duplicate_call_id")],
        "",
    ),
    ("never a name", [begun(""), more(DOOR_TEXT), stopped(), *USE], [("", "malformed_call")], ""),
    ("refusal", ended("refusal"), [], "interrupted"),
    ("refusal behind a call", [*DOOR_BLOCK, *ended("refusal")], [("door", DOOR)], "interrupted"),
    ("refusal in a call", [begun("door"), more('{"op'), stopped(), *ended("refusal")], [("door", CUT)], "interrupted"),
    ("refusal after the name", [begun("door"), stopped(), *ended("refusal")], [("door", CUT)], "interrupted"),
]

# -- Gemini


def part(call: Json, reason: str | None = None, **members: Any) -> Json:
    candidate: Json = {"content": {"parts": [{"functionCall": call, **members}]}}
    return {"responseId": "out", "candidates": [candidate | ({"finishReason": reason} if reason else {})]}


def finished(reason: str) -> Json:
    return {"candidates": [{"finishReason": reason}]}


STOP = finished("STOP")
PARTIAL: Json = {"jsonPath": "$.room", "stringValue": "ha"}

GEMINI: list[tuple[str, list[Json], list[Call], str]] = [
    ("object", [part({"name": "light", "args": LIGHT}), STOP], [("light", LIGHT)], ""),
    ("text for an object", [part({"name": "light", "args": LIGHT_TEXT}), STOP], [("light", LIGHT)], ""),
    ("list for an object", [part({"name": "light", "args": [1]}), STOP], [("light", CUT)], ""),
    ("cut after the name", [part({"name": "light"}), finished("MAX_TOKENS")], [("light", CUT)], "length"),
    ("cut after the name", [part({"name": "light", "args": {}}, "MAX_TOKENS")], [("light", CUT)], "length"),
    (
        "cut after the name",
        [part({"name": "light", "willContinue": True}), finished("MAX_TOKENS")],
        [("light", CUT)],
        "length",
    ),
    (
        "cut inside",
        [part({"name": "light", "partialArgs": [PARTIAL], "willContinue": True}), finished("MAX_TOKENS")],
        [("light", CUT)],
        "length",
    ),
    (
        "never completed",
        [part({"name": "light", "partialArgs": [PARTIAL], "willContinue": True}), STOP],
        [("light", CUT)],
        "",
    ),
    (
        "cut in the second",
        [part({"name": "door"}), part({"name": "light"}), finished("MAX_TOKENS")],
        [("door", {}), ("light", CUT)],
        "length",
    ),
    (
        "another before the end",
        [
            part({"name": "light", "partialArgs": [PARTIAL], "willContinue": True}),
            part({"name": "door", "args": DOOR}),
            STOP,
        ],
        [("light", CUT), ("door", DOOR)],
        "",
    ),
    ("no arguments", [part({"name": "door"}), STOP], [("door", {})], ""),
    (
        "one id for two",
        [part({"id": "a", "name": "light", "args": LIGHT}), part({"id": "a", "name": "door", "args": DOOR}), STOP],
        [("light", LIGHT), ("door", "duplicate_call_id")],
        "",
    ),
    ("never a name", [part({"args": DOOR}), STOP], [("", "malformed_call")], ""),
    ("filter", [finished("PROHIBITED_CONTENT")], [], "interrupted"),
    (
        "filter behind a call",
        [part({"name": "door", "args": DOOR}), finished("SAFETY")],
        [("door", DOOR)],
        "interrupted",
    ),
    ("filter after the name", [part({"name": "door"}), finished("SAFETY")], [("door", CUT)], "interrupted"),
]

# -- Gemini's interactions


def step(call: Json, *arguments: Any, at: int = 0, call_id: str = "a", stops: bool = True) -> list[Json]:
    begun = {"type": "function_call", "id": call_id, "arguments": {}, **call}
    events: list[Json] = [{"event_type": "step.start", "index": at, "step": begun}]
    for piece in arguments:
        delta = {"type": "arguments_delta", "arguments": piece}
        events.append({"event_type": "step.delta", "index": at, "delta": delta})
    return [*events, {"event_type": "step.stop", "index": at}] if stops else events


def over(status: str) -> Json:
    return {"event_type": "interaction.completed", "interaction": {"status": status}}


ACTION, INCOMPLETE = over("requires_action"), over("incomplete")

INTERACTIONS: list[tuple[str, list[Json], list[Call], str]] = [
    ("object", [*step({"name": "light", "arguments": LIGHT}), ACTION], [("light", LIGHT)], ""),
    ("object, later", [*step({"name": "light"}, LIGHT), ACTION], [("light", LIGHT)], ""),
    ("text", [*step({"name": "light"}, LIGHT_TEXT[:5], LIGHT_TEXT[5:]), ACTION], [("light", LIGHT)], ""),
    ("list for an object", [*step({"name": "light", "arguments": [1]}), ACTION], [("light", CUT)], ""),
    ("cut after the name", [*step({"name": "light"}), INCOMPLETE], [("light", CUT)], "length"),
    ("cut after the name", [*step({"name": "light"}, stops=False), INCOMPLETE], [("light", CUT)], "length"),
    ("cut inside", [*step({"name": "light"}, '{"room'), INCOMPLETE], [("light", CUT)], "length"),
    (
        "cut in the second",
        [*step({"name": "door"}), *step({"name": "light"}, at=1, call_id="b"), INCOMPLETE],
        [("door", {}), ("light", CUT)],
        "length",
    ),
    ("no arguments", [*step({"name": "door"}), ACTION], [("door", {})], ""),
    (
        "one id for two",
        [*step({"name": "light"}, LIGHT_TEXT), *step({"name": "door"}, DOOR_TEXT, at=1), ACTION],
        [("light", LIGHT), ("door", "duplicate_call_id")],
        "",
    ),
    (
        "search of the server",
        [*step({"type": "tool_search_call", "arguments": {"function_names": ["door"]}}), over("completed")],
        [],
        "stop",
    ),
    ("stopped behind a call", [*step({"name": "door"}, DOOR_TEXT), over("cancelled")], [("door", DOOR)], "interrupted"),
    ("stopped after the name", [*step({"name": "door"}), over("cancelled")], [("door", CUT)], "interrupted"),
]

_TABLES = {
    Format.OPENAI: CHAT,
    Format.OPENAI_RESPONSES: RESPONSES,
    Format.ANTHROPIC: ANTHROPIC,
    Format.GEMINI: GEMINI,
    Format.GEMINI_INTERACTIONS: INTERACTIONS,
}
CASES = [
    Case(kind, into, chunks, calls, reason or "tool_calls")
    for into in _TABLES
    for kind, chunks, calls, reason in _TABLES[into]
]

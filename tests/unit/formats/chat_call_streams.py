"""Streams of calls of OpenAI's chat completions, and of servers that imitate them."""

from typing import Any

Json = dict[str, Any]
Call = tuple[str, Json | str]
"""A name with its arguments, or with the code of its fault."""


def chat(*calls: Json, reason: str | None = None, **delta: Any) -> Json:
    if calls:
        delta["tool_calls"] = list(calls)
    return {"id": "out", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def piece(index: int | None = None, call_id: str | None = None, name: str | None = None, arguments: Any = None) -> Json:
    function = {"name": name, "arguments": arguments}
    members: Json = {"index": index, "id": call_id, "type": "function" if call_id else None}
    present = {key: value for key, value in members.items() if value is not None}
    return {**present, "function": {key: value for key, value in function.items() if value is not None}}


LIGHT: Json = {"room": "hall", "on": True}
LIGHT_TEXT = '{"room":"hall","on":true}'
DOOR: Json = {"open": False}
DOOR_TEXT = '{"open":false}'
CUT = "invalid_arguments"
DONE = chat(reason="tool_calls")

CHAT: list[tuple[str, list[Json], list[Call], str]] = [
    ("object", [chat(piece(0, "a", "light", LIGHT)), DONE], [("light", LIGHT)], ""),
    ("object, later", [chat(piece(0, "a", "light")), chat(piece(0, arguments=LIGHT)), DONE], [("light", LIGHT)], ""),
    ("list for an object", [chat(piece(0, "a", "light", [1])), DONE], [("light", CUT)], ""),
    ("number for an object", [chat(piece(0, "a", "light", 3)), DONE], [("light", CUT)], ""),
    ("cut after the name", [chat(piece(0, "a", "light", "")), chat(reason="length")], [("light", CUT)], "length"),
    ("cut after the name", [chat(piece(0, "a", "light")), chat(reason="length")], [("light", CUT)], "length"),
    ("cut after the name", [chat(piece(0, "a", "light"), reason="length")], [("light", CUT)], "length"),
    (
        "cut in the second",
        [chat(piece(0, "a", "door", DOOR_TEXT)), chat(piece(1, "b", "light", "")), chat(reason="length")],
        [("door", DOOR), ("light", CUT)],
        "length",
    ),
    ("cut inside", [chat(piece(0, "a", "light", '{"room":')), chat(reason="length")], [("light", CUT)], "length"),
    ("whole, then cut", [chat(piece(0, "a", "door", DOOR_TEXT)), chat(reason="length")], [("door", DOOR)], "length"),
    ("no arguments", [chat(piece(0, "a", "door", "")), DONE], [("door", {})], ""),
    (
        "id first",
        [chat(piece(0, "a")), chat(piece(0, name="light", arguments=LIGHT_TEXT)), DONE],
        [("light", LIGHT)],
        "",
    ),
    (
        "name first",
        [chat(piece(0, name="light")), chat(piece(0, "a")), chat(piece(0, arguments=LIGHT_TEXT)), DONE],
        [("light", LIGHT)],
        "",
    ),
    (
        "arguments before the name",
        [
            chat(piece(0, "a", arguments='{"open":')),
            chat(piece(0, name="door")),
            chat(piece(0, arguments="false}")),
            DONE,
        ],
        [("door", DOOR)],
        "",
    ),
    (
        "a name in pieces",
        [chat(piece(0, "a", "set_")), chat(piece(0, name="light")), chat(piece(0, arguments=LIGHT_TEXT)), DONE],
        [("set_light", LIGHT)],
        "",
    ),
    (
        "names repeated",
        [chat(piece(0, "a", "light", '{"room":"hall",')), chat(piece(0, "a", "light", '"on":true}')), DONE],
        [("light", LIGHT)],
        "",
    ),
    ("never a name", [chat(piece(0, "a", arguments=DOOR_TEXT)), DONE], [("", "malformed_call")], ""),
    (
        "no index, by turns",
        [
            chat(piece(None, "a", "light", '{"room":"hall",')),
            chat(piece(arguments='"on":true}')),
            chat(piece(None, "b", "door", '{"open"')),
            chat(piece(arguments=":false}")),
            DONE,
        ],
        [("light", LIGHT), ("door", DOOR)],
        "",
    ),
    (
        "no index, in one chunk",
        [chat(piece(None, "a", "light", LIGHT_TEXT), piece(None, "b", "door", DOOR_TEXT)), DONE],
        [("light", LIGHT), ("door", DOOR)],
        "",
    ),
    (
        "no index, no ids",
        [chat(piece(name="door", arguments=DOOR_TEXT)), chat(piece(name="light", arguments=LIGHT_TEXT)), DONE],
        [("door", DOOR), ("light", LIGHT)],
        "",
    ),
    (
        "no index, no ids, one name",
        [chat(piece(name="door", arguments=DOOR_TEXT)), chat(piece(name="door", arguments='{"open":true}')), DONE],
        [("door", DOOR), ("door", {"open": True})],
        "",
    ),
    (
        "no index, no arguments",
        [chat(piece(name="door")), chat(piece(name="light")), DONE],
        [("door", {}), ("light", {})],
        "",
    ),
    (
        "no index, by id",
        [
            chat(piece(None, "a", "light", '{"room":"hall",')),
            chat(piece(None, "b", "door", '{"open":')),
            chat(piece(None, "a", arguments='"on":true}')),
            chat(piece(None, "b", arguments="false}")),
            DONE,
        ],
        [("light", LIGHT), ("door", DOOR)],
        "",
    ),
    (
        "one index for all",
        [chat(piece(0, "a", "light", LIGHT_TEXT)), chat(piece(0, "b", "door", DOOR_TEXT)), DONE],
        [("light", LIGHT), ("door", DOOR)],
        "",
    ),
    (
        "one index for all, no ids",
        [chat(piece(0, None, "light", LIGHT_TEXT)), chat(piece(0, None, "door", DOOR_TEXT)), DONE],
        [("light", LIGHT), ("door", DOOR)],
        "",
    ),
    (
        "the whole call once more",
        [chat(piece(0, "a", "door", DOOR_TEXT)), chat(piece(0, "a", "door", DOOR_TEXT), reason="tool_calls")],
        [("door", DOOR)],
        "",
    ),
    (
        "text behind a whole call",
        [chat(piece(0, "a", "door", DOOR_TEXT)), chat(piece(0, arguments='{"open":true}')), DONE],
        [("door", CUT)],
        "",
    ),
    (
        "one id for two",
        [chat(piece(0, "a", "light", LIGHT_TEXT)), chat(piece(1, "a", "door", DOOR_TEXT)), DONE],
        [("light", LIGHT), ("door", "duplicate_call_id")],
        "",
    ),
    (
        "legacy",
        [
            chat(function_call={"name": "light", "arguments": ""}),
            chat(function_call={"arguments": '{"room":"hall"'}),
            chat(function_call={"arguments": ',"on":true}'}),
            chat(reason="function_call"),
        ],
        [("light", LIGHT)],
        "",
    ),
    ("legacy, cut", [chat(function_call={"name": "light"}), chat(reason="length")], [("light", CUT)], "length"),
    ("refusal", [chat(refusal="I will not."), chat(reason="stop")], [], "interrupted"),
    (
        "refusal behind a call",
        [chat(piece(0, "a", "door", DOOR_TEXT)), chat(refusal="No."), chat(reason="tool_calls")],
        [("door", DOOR)],
        "interrupted",
    ),
    (
        "filter behind a call",
        [chat(piece(0, "a", "door", DOOR_TEXT)), chat(reason="content_filter")],
        [("door", DOOR)],
        "interrupted",
    ),
    (
        "filter in a call",
        [chat(piece(0, "a", "door", '{"open"')), chat(reason="content_filter")],
        [("door", CUT)],
        "interrupted",
    ),
    (
        "filter after the name",
        [chat(piece(0, "a", "door", "")), chat(reason="content_filter")],
        [("door", CUT)],
        "interrupted",
    ),
]

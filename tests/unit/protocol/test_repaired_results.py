"""Right values: what becomes of results that clients refuse, and that those which they read stay byte for byte.

The verdicts are those of the TypeScript SDKs 1.32 and 2.4 and of the Python SDKs 1.30 and 2.3.
"""

import json
import sys
import tracemalloc
from typing import Any

import msgspec
import pytest

from mcp_hub.protocol.definitions.messages import repaired_params, repaired_result
from mcp_hub.protocol.definitions.models import are_long_texts, is_base64, is_readable
from mcp_hub.types import HANDSHAKE, MODERN

TEXT = {"type": "text", "text": "x"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "a:b", "name": "n"}
FILE = {"uri": "a:b", "text": "t"}
PNG = "iVBORw0KGgo="
ABSENT = object()
READ = {"uri": msgspec.Raw(b'"a:asked"')}


def block(base: dict[str, Any], **members: Any) -> dict[str, Any]:
    whole = {**base, **members}
    return {"content": [{name: value for name, value in whole.items() if value is not ABSENT}]}


def embedded(**members: Any) -> dict[str, Any]:
    return {"content": [{"type": "resource", "resource": {**FILE, **members}}]}


def message(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


def values(*texts: Any, **members: Any) -> dict[str, Any]:
    return {"completion": {"values": list(texts), **members}}


def texts(*said: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text} for text in said]}


TOOL, PROMPT, RESOURCE, COMPLETION = "tools/call", "prompts/get", "resources/read", "completion/complete"
PLAIN = texts("x")
EMPTY: tuple[Any, ...] = (None, {}, [None])
TRUE: tuple[Any, ...] = ("true", "True", "yes", "1", 1)
FALSE: tuple[Any, ...] = ("false", "NO", "0", "", 0)
REPAIRED: list[tuple[str, Any, dict[str, Any]]] = [
    *((TOOL, {**PLAIN, name: None, "x": None}, {**PLAIN, "x": None}) for name in ("_meta", "isError", "resultType")),
    (TOOL, {**PLAIN, "structuredContent": None}, PLAIN),
    (TOOL, {**PLAIN, "structuredContent": []}, {**PLAIN, "structuredContent": {}}),
    (TOOL, {**PLAIN, "structuredContent": [1]}, PLAIN),
    (TOOL, {"content": [], "structuredContent": [1, "é"]}, texts('[1, "é"]')),
    *((TOOL, {**PLAIN, "isError": value}, {**PLAIN, "isError": True}) for value in TRUE),
    *((TOOL, {**PLAIN, "isError": value}, {**PLAIN, "isError": False}) for value in FALSE),
    *((TOOL, {"content": value, "a": 1}, {"content": [], "a": 1}) for value in EMPTY),
    (TOOL, {}, {"content": []}),
    (TOOL, {"structuredContent": {"a": 1}}, {"structuredContent": {"a": 1}, "content": []}),
    (TOOL, {"content": TEXT}, PLAIN),
    (TOOL, {"content": "x"}, PLAIN),
    (TOOL, {"content": ["x", None, TEXT]}, texts("x", "x")),
    (TOOL, {"content": [{"text": "x"}]}, PLAIN),
    (TOOL, {**PLAIN, "_meta": []}, {**PLAIN, "_meta": {}}),
    *((TOOL, {**PLAIN, "_meta": value}, PLAIN) for value in ("s", 5)),
    *((TOOL, block(TEXT, **{name: None}), PLAIN) for name in ("_meta", "annotations")),
    *((TOOL, block(TEXT, **{name: []}), block(TEXT, **{name: {}})) for name in ("_meta", "annotations")),
    *((TOOL, block(TEXT, annotations=value), PLAIN) for value in ("s", 5)),
    *(
        (TOOL, block(TEXT, annotations={name: value, "x": None}), block(TEXT, annotations={"x": None}))
        for name, value in (
            *(("audience", audience) for audience in (None, "user", ["tool"], ["user", None])),
            *(("priority", priority) for priority in (None, 2, "0.5")),
            *(("lastModified", time) for time in (None, "2025-01-01T00:00:00", 5)),
        )
    ),
    (TOOL, block(TEXT, text=None), texts("")),
    (TOOL, block(TEXT, text=ABSENT), {"content": [{"type": "text", "text": ""}]}),
    (TOOL, block(TEXT, text=5), texts("5")),
    (TOOL, block(TEXT, text={"a": None}), texts('{"a": null}')),
    *((TOOL, block(IMAGE, **{name: None}), block(IMAGE)) for name in ("_meta", "annotations")),
    (TOOL, block(IMAGE, mimeType=ABSENT, mime_type="image/x"), block(IMAGE, mime_type="image/x", mimeType="image/x")),
    (TOOL, block(IMAGE, mimeType=None, data=PNG), block(IMAGE, data=PNG)),
    (TOOL, block(IMAGE, mimeType=ABSENT, data=f"data:image/gif;x=y;base64,{PNG}"),
     block(IMAGE, mimeType="image/gif", data=PNG)),
    (TOOL, block(IMAGE, data="_-8="), block(IMAGE, data="/+8=")),
    *(
        (TOOL, block(LINK, **{name: None}), block(LINK))
        for name in ("title", "description", "mimeType", "size", "icons", "_meta", "annotations")
    ),
    (TOOL, block(LINK, size="12"), block(LINK, size=12)),
    (TOOL, block(LINK, size=1.5), block(LINK)),
    (TOOL, block(LINK, name=None), block(LINK, name="a:b")),
    (TOOL, block(LINK, icons=[{"src": "a", "sizes": "any", "theme": "blue"}]),
     block(LINK, icons=[{"src": "a", "sizes": ["any"]}])),
    *((TOOL, embedded(**{name: None}), embedded()) for name in ("_meta", "mimeType")),
    (TOOL, embedded(text=None), embedded(text="")),
    (PROMPT, {**message(TEXT), "description": None, "_meta": None}, message(TEXT)),
    *((PROMPT, {"messages": value}, {"messages": []}) for value in EMPTY),
    (PROMPT, {}, {"messages": []}),
    (PROMPT, message("x"), message(TEXT)),
    (PROMPT, message({**TEXT, "_meta": None}), message(TEXT)),
    (PROMPT, message([TEXT, "x"]), {"messages": 2 * message(TEXT)["messages"]}),
    *((RESOURCE, {"contents": [{**FILE, name: None}]}, {"contents": [FILE]}) for name in ("_meta", "mimeType")),
    *((RESOURCE, {"contents": value}, {"contents": []}) for value in EMPTY),
    (RESOURCE, {"contents": FILE, "_meta": None}, {"contents": [FILE]}),
    (RESOURCE, {"contents": [{"text": "t"}]}, {"contents": [{"uri": "a:asked", "text": "t"}]}),
    (RESOURCE, {"contents": [{"text": "t", "uri": None}]}, {"contents": [{"uri": "a:asked", "text": "t"}]}),
    (RESOURCE, {"contents": [{**FILE, "text": None}]}, {"contents": [{**FILE, "text": ""}]}),
    (RESOURCE, {"contents": [{"uri": "a:b", "blob": "_-8="}]}, {"contents": [{"uri": "a:b", "blob": "/+8="}]}),
    (COMPLETION, values("a", total=None, hasMore=None), values("a")),
    (COMPLETION, values("a", 2, None), values("a", "2")),
    (COMPLETION, values(total="3", hasMore="no"), values(total=3, hasMore=False)),
    (COMPLETION, values(total=1.5), values()),
    (COMPLETION, {}, values()),
    *((COMPLETION, {"completion": value}, values()) for value in (None, {}, {"values": None})),
    (COMPLETION, values(*map(str, range(150))), values(*map(str, range(100)), total=150, hasMore=True)),
]  # fmt: skip


@pytest.mark.parametrize(("method", "sent", "read"), REPAIRED)
def test_a_result_loses_nothing_and_is_read(method: str, sent: Any, read: dict[str, Any]) -> None:
    repaired = repaired_result(method, json.dumps(sent, ensure_ascii=False).encode(), HANDSHAKE, READ)
    assert json.loads(repaired) == read
    assert repaired_result(method, repaired, HANDSHAKE, READ) is repaired


LEFT = [
    (TOOL, {**PLAIN, "structuredContent": {"a": None}, "isError": False, "unknown": None}),
    (TOOL, block(TEXT, text="\ud83d\ude00 \\ \" null [] \"annotations\":null", annotations={"audience": ["user"]})),
    (TOOL, {"content": [TEXT, IMAGE, LINK, embedded()["content"][0], block(IMAGE, type="audio")["content"][0]]}),
    (TOOL, {"content": [{"type": "video", "annotations": None}, TEXT]}),  # of a later version
    (TOOL, block(IMAGE, mimeType=ABSENT)),  # nothing says what it is
    (TOOL, {"content": 5}),
    (TOOL, {"task": {"taskId": "1", "ttl": None}}),
    (TOOL, {"resultType": "input_required", "inputRequests": {}}),
    (PROMPT, message(TEXT)),
    (PROMPT, {"messages": [{"role": "system", "content": TEXT}]}),
    (RESOURCE, {"contents": [{**FILE, "blob": None}, {"uri": "a:b", "blob": "aGk=", "text": None}]}),
    (RESOURCE, {"contents": [{"uri": "a:b"}]}),
    (COMPLETION, values("a", total=3, hasMore=True)),
    ("other/method", {"content": None}),
]  # fmt: skip


@pytest.mark.parametrize("spelling", [(",", ":"), (", ", " : ")])
@pytest.mark.parametrize(("method", "sent"), LEFT)
def test_a_result_without_a_cure_keeps_its_bytes(method: str, sent: dict[str, Any], spelling: tuple[str, str]) -> None:
    raw = json.dumps(sent, separators=spelling).encode()
    assert repaired_result(method, raw, HANDSHAKE, {}) is raw


@pytest.mark.parametrize("value", [None, [1], "s", 5])
def test_structured_content_of_any_type_stays_in_the_modern_era(value: Any) -> None:
    raw = json.dumps({**PLAIN, "resultType": "complete", "structuredContent": value}).encode()
    assert repaired_result(TOOL, raw, MODERN, {}) is raw
    if value is not None:
        assert repaired_result(TOOL, raw, HANDSHAKE, {}, is_modern_caller=True) is raw


def test_results_of_tools_in_one_another_are_looked_at_once() -> None:
    inner: dict[str, Any] = {"type": "text", "text": 1}
    for _ in range(140):
        inner = {"type": "tool_result", "toolUseId": "a", "content": [inner], "isError": "no"}
    read = json.loads(repaired_result("tools/call", json.dumps({"content": [inner]}).encode(), HANDSHAKE, {}))
    assert read["content"] == [{**inner, "isError": False}]


def test_result_that_is_nested_as_deep_as_can_be_decoded_breaks_nothing() -> None:
    for depth in range(sys.getrecursionlimit() - 150, sys.getrecursionlimit()):
        meta = b'{"a":' * depth + b"1" + b"}" * depth
        result = b'{"content":[],"isError":"no","_meta":%s}' % meta
        assert repaired_result("tools/call", result, HANDSHAKE, {}) != b""


def test_a_result_beyond_the_limit_keeps_its_bytes() -> None:
    raw = json.dumps({"content": ["x" * (8 << 20)]}).encode()
    assert repaired_result(TOOL, raw, HANDSHAKE, {}) is raw


LOG, ELICIT, SAMPLE = "notifications/message", "elicitation/create", "sampling/createMessage"
USED = {"type": "tool_result", "toolUseId": "u"}
SAID = {"level": "info", "data": None}


def form(**members: Any) -> dict[str, Any]:
    """A question with a schema of its own."""
    return {"message": "m", "requestedSchema": {"type": "object", "properties": {}, **members}}


def field(**members: Any) -> dict[str, Any]:
    return form(properties={"a": {"type": "string", **members}})


def sample(content: Any = TEXT, **members: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], "maxTokens": 1, **members}


PARAMS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (LOG, {**SAID, "logger": None, "_meta": None, "x": None}, {**SAID, "x": None}),
    *(
        (LOG, {**SAID, "level": sent}, {**SAID, "level": read})
        for sent, read in [
            ("warn", "warning"), ("WARNING", "warning"), (" Warn ", "warning"), ("err", "error"), ("severe", "error"),
            ("fatal", "critical"), ("panic", "emergency"), ("emerg", "emergency"), ("trace", "debug"),
            ("verbose", "debug"), ("information", "info"), ("log", "info"), ("loud", "info"), ("", "info"),
            ("success", "notice"), (30, "warning"), ("40", "error"), (10, "debug"), (60, "critical"), (0, "emergency"),
            (3, "error"), (6.0, "info"), (-5, "debug"), (1e300, "critical"), (True, "info"), ({"a": 1}, "info"),
            (None, "info"), ("9" * 5000, "info"),
        ]
    ),
    (LOG, {"data": 1}, {"level": "info", "data": 1}),
    (LOG, {**SAID, "logger": 5, "_meta": []}, {**SAID, "logger": "5", "_meta": {}}),
    ("notifications/elicitation/complete", {"elicitationId": "e", "_meta": None}, {"elicitationId": "e"}),
    ("notifications/resources/updated", {"uri": "a:b", "_meta": None}, {"uri": "a:b"}),
    ("roots/list", {"_meta": None}, {}),
    (ELICIT, {**form(), "mode": None, "elicitationId": None, "_meta": None}, form()),
    (ELICIT, form(required=None, **{"$schema": None}), form()),
    (ELICIT, form(properties=[], required={}), form(required=[])),
    *(
        (ELICIT, field(**{name: None}), field())
        for name in ("title", "description", "default", "format", "enum", "enumNames", "minLength", "maximum")
    ),
    (ELICIT, field(x=None, enum=["a", None]), field(x=None, enum=["a", None])),
    *(
        (SAMPLE, sample(**{name: None}), sample())
        for name in ("systemPrompt", "includeContext", "temperature", "stopSequences", "metadata", "modelPreferences",
                     "tools", "toolChoice", "_meta")
    ),
    (SAMPLE, sample(metadata=[], stopSequences={}), sample(metadata={}, stopSequences=[])),
    (
        SAMPLE,
        sample(modelPreferences={"hints": [{"name": None}], "costPriority": None, "speedPriority": 1}),
        sample(modelPreferences={"hints": [{}], "speedPriority": 1}),
    ),
    (SAMPLE, sample(modelPreferences={"hints": None}), sample(modelPreferences={})),
    (SAMPLE, sample(toolChoice={"mode": None}), sample(toolChoice={})),
    (
        SAMPLE,
        sample(tools=[{"name": "t", "title": None, "inputSchema": {"type": "object"}}]),
        sample(tools=[{"name": "t", "inputSchema": {"type": "object"}}]),
    ),
    (SAMPLE, sample({**TEXT, "annotations": None, "_meta": None}), sample()),
    (SAMPLE, sample([{**TEXT, "_meta": None}]), sample([TEXT])),
    (SAMPLE, sample("x"), sample(TEXT)),
    (
        SAMPLE,
        sample([{**USED, "content": None, "isError": None, "structuredContent": None}]),
        sample([{**USED, "content": []}]),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("method", "sent", "read"), PARAMS)
def test_params_of_questions_and_notices_are_repaired(method: str, sent: dict[str, Any], read: dict[str, Any]) -> None:
    members = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in sent.items()}
    repaired = repaired_params(method, members)
    assert json.loads(msgspec.json.encode(repaired)) == read
    assert repaired_params(method, repaired) is repaired


def test_large_image_is_looked_at_without_a_copy_of_it() -> None:
    text = b'"' + b"A" * (8 << 20)
    for data, is_read in (
        (text + b'"', True),
        (text + b'-"', False),
        (text[:65_533] + b"data:" + text[1:] + b'"', False),
    ):
        raw = msgspec.Raw(data)
        tracemalloc.start()
        try:
            assert is_base64(raw) is is_read
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize(
    ("members", "is_plain"),
    [
        ({}, True),
        ({"isError": False}, True),
        ({"isError": True}, False),
        ({"content": []}, True),
        ({"content": [TEXT, TEXT]}, True),
        ({"content": [TEXT, LINK]}, False),
        ({"content": [{**TEXT, "annotations": {}}]}, False),
        ({"content": [{"type": "text", "text": 7}]}, False),
        ({"content": [{"text": "x"}]}, False),
        ({"content": None}, False),
        ({"_meta": {}}, False),
        ({"structuredContent": {}}, False),
    ],
)
def test_a_long_result_of_texts_is_known_as_one(members: dict[str, Any], is_plain: bool) -> None:
    raw = json.dumps({"content": [TEXT], **members}).encode()
    assert are_long_texts(raw, HANDSHAKE) is are_long_texts(raw, MODERN) is is_plain
    assert is_readable("tools/call", raw, HANDSHAKE) or not is_plain


def test_a_result_type_is_plain_in_its_own_era_alone() -> None:
    raw = json.dumps({"content": [TEXT], "resultType": "complete"}).encode()
    assert are_long_texts(raw, MODERN) and not are_long_texts(raw, HANDSHAKE)
    assert not are_long_texts(raw.replace(b"complete", b"input_required"), MODERN)

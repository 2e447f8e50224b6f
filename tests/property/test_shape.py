import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Log, Progressed
from mcp_hub.protocol.eras import CALL_METHODS
from mcp_hub.protocol.shape.results import COALESCED, call_result, log_frame, progress_frame
from mcp_hub.types import Era, JsonObject

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN
MODERN_KEYS = ("resultType", "ttlMs", "cacheScope")

methods = st.sampled_from(sorted(CALL_METHODS))
names = st.text(max_size=6) | st.sampled_from(["content", "_meta", "isError", "x-future", "result", "Type"])
values = st.recursive(
    st.none() | st.integers() | st.text(max_size=6) | st.just("resultType"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=5,
)
plain = st.dictionaries(names.filter(lambda name: name not in MODERN_KEYS), values, max_size=5)
structured = st.dictionaries(st.text(max_size=3), values, max_size=2)
results = st.builds(
    lambda some, more: some | more, plain, st.fixed_dictionaries({}, optional={"structuredContent": structured})
)
separators = st.sampled_from([(",", ":"), (", ", ": "), (" ,\t", " : ")])


@st.composite
def spelled(draw: st.DrawFn, objects: st.SearchStrategy[JsonObject]) -> tuple[JsonObject, bytes]:
    """An object, and one way to write it down."""
    value = draw(objects)
    blank = draw(st.sampled_from(["", " ", "\t"]))
    text = json.dumps(value, separators=draw(separators), ensure_ascii=draw(st.booleans()))
    return value, (text[:1] + blank + text[1:]).encode()


def decoded(*parts: bytes | msgspec.Raw | memoryview) -> JsonObject:
    """The object in these parts; a member that is there twice is an error."""

    def once(pairs: list[tuple[str, Any]]) -> JsonObject:
        assert len({name for name, _ in pairs}) == len(pairs)
        return dict(pairs)

    result = json.loads(b"".join(map(bytes, parts)), object_pairs_hook=once)
    assert isinstance(result, dict)
    return result


@given(methods, spelled(results))
def test_for_a_modern_caller_the_result_type_is_added_once_and_nothing_is_lost(
    method: str, case: tuple[JsonObject, bytes]
) -> None:
    value, raw = case
    shaped = decoded(*call_result(method, Completed(raw, HANDSHAKE), MODERN))
    assert shaped.pop("resultType") == "complete"
    if method == "resources/read":
        assert (shaped.pop("ttlMs"), shaped.pop("cacheScope")) == (0, "private")
    assert shaped == value


@given(methods, plain, values)
def test_a_result_type_of_the_old_era_means_nothing_in_the_new_one(method: str, value: JsonObject, odd: object) -> None:
    raw = json.dumps({**value, "resultType": odd}).encode()
    shaped = decoded(*call_result(method, Completed(raw, HANDSHAKE), MODERN))
    assert shaped["resultType"] == "complete"
    assert value.items() <= shaped.items()


@given(methods, results, st.sampled_from([{}, {"resultType": "complete"}]), st.booleans())
def test_for_a_handshake_caller_no_modern_key_is_left_and_nothing_else_is_lost(
    method: str, value: JsonObject, mark: JsonObject, cached: bool
) -> None:
    cache = {"ttlMs": 5, "cacheScope": "public"} if cached and method == "resources/read" else {}
    raw = json.dumps({**mark, **value, **cache}).encode()
    assert decoded(*call_result(method, Completed(raw, MODERN), HANDSHAKE)) == value


@given(methods, spelled(results))
def test_up_and_down_again_is_the_identity(method: str, case: tuple[JsonObject, bytes]) -> None:
    value, raw = case
    up = b"".join(map(bytes, call_result(method, Completed(raw, HANDSHAKE), MODERN)))
    assert decoded(*call_result(method, Completed(up, MODERN), HANDSHAKE)) == value


COMPLETE: JsonObject = {"resultType": "complete", "ttlMs": 9, "cacheScope": "private"}
OWN: dict[Era, JsonObject] = {HANDSHAKE: {}, MODERN: COMPLETE}


@pytest.mark.parametrize("era", Era)
@given(methods, st.data())
def test_within_an_era_the_bytes_stay(era: Era, method: str, data: st.DataObject) -> None:
    _, raw = data.draw(spelled(results.map(lambda value: value | OWN[era])))
    assert call_result(method, Completed(raw, era), era) == (raw,)


@given(methods, results)
def test_a_modern_result_without_its_type_gets_one(method: str, value: JsonObject) -> None:
    shaped = decoded(*call_result(method, Completed(json.dumps(value).encode(), MODERN), MODERN))
    assert shaped.pop("resultType") == "complete" and value.items() <= shaped.items()


@pytest.mark.parametrize("era", Era)
@pytest.mark.parametrize("hint", [{"ttlMs": 5, "cacheScope": "public"}, {"ttlMs": 0}, {"cacheScope": "private"}])
def test_cache_hints_never_reach_a_handshake_wire(era: Era, hint: JsonObject) -> None:
    raw = json.dumps({**hint, "contents": []}).encode()
    assert decoded(*call_result("resources/read", Completed(raw, era), HANDSHAKE)) == {"contents": []}


@pytest.mark.parametrize(
    ("sent", "shared", "hints"),
    [
        ({"ttlMs": 500, "cacheScope": "public"}, True, (500, "public")),
        ({"ttlMs": 500, "cacheScope": "public"}, False, (500, "private")),
        ({"ttlMs": 500, "cacheScope": "private"}, True, (500, "private")),
        ({"ttlMs": 500}, True, (500, "private")),
        ({"cacheScope": "public"}, True, (0, "public")),
        ({}, True, (0, "private")),
        ({"ttlMs": -1, "cacheScope": "all"}, True, (0, "private")),
        ({"ttlMs": "5", "cacheScope": None}, True, (0, "private")),
        ({"ttlMs": 1.5, "cacheScope": "public"}, False, (0, "private")),
    ],
)
def test_what_was_read_is_cached_as_the_server_says_but_for_all_users_only_if_it_is_the_same_for_all(
    sent: JsonObject, shared: bool, hints: tuple[int, str]
) -> None:
    raw = json.dumps({"resultType": "complete", "contents": [], "x": 1, **sent}).encode()
    shaped = decoded(*call_result("resources/read", Completed(raw, MODERN), MODERN, shared=shared))
    assert (shaped.pop("ttlMs"), shaped.pop("cacheScope")) == hints
    assert shaped == {"resultType": "complete", "contents": [], "x": 1}


def test_what_a_handshake_server_sent_is_never_cached() -> None:
    raw = json.dumps({"contents": [], "ttlMs": 500, "cacheScope": "public"}).encode()
    shaped = decoded(*call_result("resources/read", Completed(raw, HANDSHAKE), MODERN, shared=True))
    assert shaped == {"resultType": "complete", "contents": [], "ttlMs": 0, "cacheScope": "private"}


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "resources/read"])
def test_a_question_is_not_cached(method: str) -> None:
    asks = {"resultType": "input_required", "requestState": "s", "x": 1}
    raw = json.dumps({**asks, "ttlMs": 5, "cacheScope": "public"}).encode()
    assert decoded(*call_result(method, Completed(raw, MODERN), MODERN, shared=True)) == asks


def test_a_completion_cannot_ask() -> None:
    with pytest.raises(RpcError, match="asked for input that this client cannot be asked for"):
        call_result("completion/complete", Completed(b'{"resultType":"input_required"}', MODERN), MODERN)


@pytest.mark.parametrize("kind", ["task", "input_required", "complete"])
def test_a_result_type_never_reaches_a_handshake_wire(kind: str) -> None:
    """protocol.md §1: an extension `resultType` goes to modern clients only; "never onto a handshake wire"."""
    raw = json.dumps({"resultType": kind, "content": []}).encode()
    try:
        shaped = call_result("tools/call", Completed(raw, HANDSHAKE), HANDSHAKE)
    except RpcError:
        return
    assert "resultType" not in decoded(*shaped)


@pytest.mark.parametrize("era", Era)
def test_a_result_of_an_extension_is_refused_to_who_did_not_agree_to_it(era: Era) -> None:
    raw = b'{"taskId":"1","resultType":"task"}'
    with pytest.raises(RpcError) as caught:
        call_result("tools/call", Completed(raw, MODERN), era)
    assert decoded(caught.value.encoded())["data"] == {"code": "upstream_error", "upstream": {"resultType": "task"}}


@pytest.mark.parametrize(
    ("era", "raw"),
    [
        (MODERN, b'{"resultType":"input_required","inputRequests":{}}'),
        (MODERN, b'{"resultType": "complete"}'),
        (HANDSHAKE, b'{"content":[],"structuredContent":[1]}'),  # between the two
    ],
)
def test_questions_and_odd_structures_pass_within_their_era(era: Era, raw: bytes) -> None:
    assert call_result("tools/call", Completed(raw, era), era) == (raw,)


@given(methods, plain, st.text().filter(lambda kind: kind != "complete"))
def test_what_a_handshake_caller_cannot_be_asked_is_an_error_that_says_so(
    method: str, value: JsonObject, kind: str
) -> None:
    raw = json.dumps({**value, "resultType": kind}).encode()
    with pytest.raises(RpcError) as caught:
        call_result(method, Completed(raw, MODERN), HANDSHAKE)
    assert decoded(caught.value.encoded())["data"] == {"code": "upstream_error", "upstream": {"resultType": kind}}


@given(values.filter(lambda value: not isinstance(value, dict)))
def test_structured_content_that_is_no_object_stays_in_the_modern_era(value: object) -> None:
    raw = json.dumps({"resultType": "complete", "content": [], "structuredContent": value}).encode()
    assert decoded(*call_result("tools/call", Completed(raw, MODERN), HANDSHAKE)) == {"content": []}
    assert call_result("tools/call", Completed(raw, MODERN), MODERN) == (raw,)


def raws(members: JsonObject) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(json.dumps(value).encode()) for name, value in members.items()}


tokens = st.integers() | st.text(max_size=6)
numbers = st.integers(-(10**15), 10**15) | st.floats(-1e15, 1e15)
rests = st.dictionaries(
    names.filter(lambda name: name not in ("progressToken", "progress", "total")), values, max_size=3
) | st.fixed_dictionaries({"message": st.text(max_size=6)})


@given(tokens, numbers, st.none() | numbers, rests, st.integers(0, 3))
def test_progress_goes_out_under_the_callers_token_with_all_it_came_with(
    token: int | str, value: float, total: float | None, rest: JsonObject, skipped: int
) -> None:
    text = json.dumps(token).encode()
    frame = progress_frame(text, Progressed(value, total, raws(rest) or None, skipped))
    assert frame.count(b"\n") == 1 and text in frame
    message = decoded(frame)
    assert message.pop("params") == {
        **{"progressToken": token, "progress": value},
        **({} if total is None else {"total": total}),
        **rest,
        **({"_meta": {**_object(rest.get("_meta")), COALESCED: skipped}} if skipped else {}),
    }
    assert message == {"jsonrpc": "2.0", "method": "notifications/progress"}


def _object(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


@given(spelled(plain))
def test_a_log_message_keeps_its_params(case: tuple[JsonObject, bytes]) -> None:
    value, raw = case
    expected = {"jsonrpc": "2.0", "method": "notifications/message", "params": value}
    assert decoded(log_frame(Log("info", raw))) == expected and raw in log_frame(Log("info", raw))


TAILED = b',"resultType":"complete"}'


@pytest.mark.parametrize(
    ("raw", "shaped"),
    [
        (b'{"content":[],"isError":false' + TAILED, {"content": [], "isError": False}),
        (b'{"content":[],"x":{"a":1' + TAILED + b"}", {"content": [], "x": {"a": 1, "resultType": "complete"}}),
        (b'{"ttlMs":1,"x":2' + TAILED, {"ttlMs": 1, "x": 2}),
        (b'{"structuredContent":[1],"content":[]' + TAILED, {"content": []}),
        (b'{"text":",\\"resultType\\":\\"complete\\"}"' + TAILED, {"text": ',"resultType":"complete"}'}),
    ],
)
def test_a_result_type_that_comes_last_is_taken_off_for_a_handshake_caller(raw: bytes, shaped: JsonObject) -> None:
    assert decoded(*call_result("tools/call", Completed(raw, MODERN), HANDSHAKE)) == shaped
    for_modern = call_result("tools/call", Completed(raw, MODERN), MODERN)
    assert decoded(*for_modern) == {"resultType": "complete"} | json.loads(raw)

"""The rules of docs/specification/streams.md: a log that keeps them passes, one that breaks any of them does not."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mcp_hub.conformance import vectors
from mcp_hub.conformance.vectors import Mismatch, matched, read, read_all
from mcp_hub.types import Era

SPECIFICATION = Path(__file__).parents[3] / "docs/specification"
STREAM = "st_1"
Log = list[dict[str, Any]]


def event(seq: int, type_: str, **data: Any) -> dict[str, Any]:
    return {"v": 1, "stream": STREAM, "seq": seq, "ts": "2026-11-20T11:02:03.412Z", "type": type_, "data": data}


def log() -> Log:
    text = {"channel": "content", "index": 0, "content": [{"type": "text", "text": "a"}]}
    start = {"server": "s", "tool": "t", "name": "t", "args_sha256": "0" * 64, "attempt": 1}
    ending = {"outcome": "ok", "result": {"content": []}}
    middle = [event(2, "delta", **text), event(3, "progress", progress=1.5)]
    return [event(1, "start", **start), *middle, event(4, "end", **ending)]


def notifications(sent: Log, **changed: Any) -> Log:
    """A progress notification for each."""
    found = []
    for one in sent:
        part = {"stream": STREAM, "cursor": str(one["seq"]), "events": [{k: one[k] for k in ("seq", "type", "data")}]}
        params = {"progressToken": "p", "progress": float(one["seq"]), "_meta": {vectors.STREAMS: {**part, **changed}}}
        found.append({"method": "notifications/progress", "params": params})
    return found


def test_a_log_and_its_notifications_pass() -> None:
    whole = vectors.whole_log(log(), STREAM)
    vectors.same(vectors.live_events(notifications(log()[1:-1]), STREAM, "p"), whole[1:-1])


BROKEN: dict[str, Callable[[Log], Log]] = {
    "gap": lambda events: [*events[:2], events[3]],
    "repeat": lambda events: [*events[:2], *events[1:]],
    "two endings": lambda events: [*events, {**events[-1], "seq": 5}],
    "after the ending": lambda events: [*events, event(5, "progress", progress=9)],
    "two starts": lambda events: [events[0], {**events[0], "seq": 2}, *events[2:]],
    "other stream": lambda events: [{**events[0], "stream": "st_2"}, *events[1:]],
    "without an ending": lambda events: events[:-1],
    "without a time": lambda events: [{key: value for key, value in events[0].items() if key != "ts"}, *events[1:]],
    "backwards": lambda events: [events[0], events[2], events[1], events[3]],
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_log_fails(fault: str) -> None:
    with pytest.raises(Mismatch):
        vectors.whole_log(BROKEN[fault](log()), STREAM)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        ([], "no notification has events"),
        (notifications(log()), "the event start is sent"),
        (notifications(log()[1:]), "the ending is sent before the response"),
        (notifications([log()[1], event(4, "progress", progress=1)]), "event 2 is followed by 4"),
        (notifications(log()[1:2] * 2), "it has to increase"),
        (notifications(log()[1:2], cursor="3"), "cursor 3 is not that of event 2"),
        (notifications(log()[1:2], stream="st_2"), "a notification is of stream st_2"),
        (notifications(log()[1:2], events=[]), "a notification has no events"),
        (notifications(log()[1:2], events="x"), "Expected `array`"),
    ],
)
def test_broken_notifications_fail(sent: Log, why: str) -> None:
    with pytest.raises(Mismatch, match=why):
        vectors.live_events(sent, STREAM, "p")


PAGE = {"events": log()[1:3], "cursor": "3", "truncated": False, "closed": False}


@pytest.mark.parametrize(
    ("changed", "after", "most"),
    [
        ({}, 0, None),
        ({"cursor": "2"}, 1, None),
        ({}, 1, 1),
        ({"events": BROKEN["gap"](log())[1:]}, 1, None),
        ({"events": log()[1:], "cursor": "4"}, 1, None),
        ({"events": [], "cursor": "2"}, 1, None),
        ({"closed": "yes"}, 1, None),
    ],
)
def test_a_page_holds_what_follows_its_cursor(changed: Mapping[str, object], after: int, most: int | None) -> None:
    assert vectors.page(PAGE, 1, 2).cursor == "3"
    with pytest.raises(Mismatch):
        vectors.page({**PAGE, **changed}, after, most)


def test_a_template_takes_the_first_value_of_a_variable_and_holds_others_to_it() -> None:
    values: dict[str, object] = {}
    matched({"a": "$one", "b": {"c": "$one"}}, {"a": 7, "b": {"c": 7, "d": 1}}, values)
    assert values == {"$one": 7}
    for template, value in (({"a": "$one"}, {"a": 8}), ({"a": 1}, {}), ({"a": 1}, {"a": True}), ({"a": {}}, {"a": []})):
        with pytest.raises(Mismatch):
            matched(template, value, values)


def test_a_broken_vector_is_named_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"scenario": "x", "section": "1", "says": "y", "rules": []}\n{"read"\n')
    with pytest.raises(ValueError, match=r"x\.jsonl:2: "):
        read(path)


def test_every_vector_can_be_read_and_names_a_section_that_exists() -> None:
    text = (SPECIFICATION / "streams.md").read_text()
    for scenario in read_all(SPECIFICATION / "vectors"):
        assert scenario.steps
        assert all(f"\n### {section}. " in text for section in scenario.section.split(", "))


@pytest.mark.parametrize("fault", [None, "other stream", "without a time"])
def test_events_are_as_the_schema_says(fault: str | None) -> None:
    events = log() if fault is None else BROKEN[fault](log())
    result = {"events": events, "cursor": "4", "truncated": False, "closed": True}
    schemas = SPECIFICATION / "schema"
    registry = jsonschema_rs.Registry([(path.name, json.loads(path.read_text())) for path in schemas.glob("*.json")])
    validator = jsonschema_rs.validator_for(json.loads((schemas / "read-result.json").read_text()), registry=registry)
    assert validator.is_valid(result) == (fault != "without a time")


def again() -> Log:
    """A log with two attempts and a question."""
    start, delta, _, end = log()
    asked = [
        event(6, "input-required", key="k", method="elicitation/create", params={}),
        event(7, "input-received", key="k"),
    ]
    failure = {"attempt": 2, "reason": "lost"}
    repeated = [event(3, "attempt", **failure, after=0.5), event(4, "reset", **failure, discard_from=2)]
    return [start, delta, *repeated, {**delta, "seq": 5}, *asked, {**end, "seq": 8}]


def changed(seq: int, **members: Any) -> Callable[[Log], Log]:
    return lambda events: [{**one, "data": {**one["data"], **members}} if one["seq"] == seq else one for one in events]


def retyped(seq: int, type_: str, **data: Any) -> Callable[[Log], Log]:
    return lambda events: [{**one, "type": type_, "data": data} if one["seq"] == seq else one for one in events]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (changed(3, attempt=1), "attempt 1 follows 1"),
        (retyped(4, "progress", progress=1), "no reset before event 5"),
        (changed(4, discard_from=4), "event 4 discards from 4"),
        (changed(4, attempt=1), "event 4 resets attempt 1"),
        (retyped(5, "input-required", key="k", method="m", params={}), "the key k is used twice"),
        (retyped(6, "progress", progress=1), "event 7 answers k"),
        (retyped(5, "delta", channel="content", index=0), "delta has no content"),
        (changed(8, result={"content": [], "isError": True}), "isError is True in ok"),
        (changed(8, outcome="tool_error"), "isError is False in tool_error"),
        (retyped(8, "end", outcome="ok"), "the ending has no result"),
        (
            retyped(8, "error", code="x", **{"class": "x"}, retryable=True, outcome="unknown", detail="", jsonrpc={}),
            "unknown outcome is retryable",
        ),
    ],
)
def test_a_log_whose_events_contradict_each_other_fails(fault: Callable[[Log], Log], why: str) -> None:
    assert len(vectors.whole_log(again(), STREAM)) == 8
    with pytest.raises(Mismatch, match=why):
        vectors.whole_log(fault(again()), STREAM)


def test_a_result_in_the_log_is_that_of_the_response() -> None:
    ending = vectors.whole_log(log(), STREAM)[-1]
    marked = {"content": [], "_meta": {vectors.STREAMS: {}}}
    vectors.same_result(ending, {"result": marked}, Era.HANDSHAKE)
    vectors.same_result(ending, {"result": {"content": [1]}}, Era.MODERN)  # of the other era
    vectors.same_result(ending, {"result": {**marked, "resultType": "complete"}}, Era.HANDSHAKE)
    question = {**marked, "resultType": "input_required"}
    for response in ({"result": {"content": [1]}}, {"result": question}, {"error": {"code": 1, "message": "x"}}):
        with pytest.raises(Mismatch):
            vectors.same_result(ending, response, Era.HANDSHAKE)


def test_joined_deltas_are_the_text_of_the_result() -> None:
    whole = changed(8, result={"content": [{"type": "text", "text": "a"}]})(again())
    vectors.joined(vectors.whole_log(whole, STREAM))
    with pytest.raises(Mismatch, match="the deltas of block 0"):
        vectors.joined(vectors.whole_log(changed(4, discard_from=3)(whole), STREAM))


def test_what_is_shown_beside_events_is_checked() -> None:
    text = {"channel": "content", "index": 0, "content": [{"type": "text", "text": "a\n b"}]}
    fine = notifications([event(2, "progress", progress=2.0), event(3, "delta", **text)])
    fine[1]["params"] |= {"message": "a b", "progress": 2.000001}
    vectors.shown_progress(fine, "p")
    faults = [(0, "progress", 1.5), (1, "progress", 3), (1, "progress", 2.5)]
    for part, member, value in (*faults, *((1, "message", line) for line in ("a\nb", "x" * 201, "other", "", None))):
        broken = json.loads(json.dumps(fine))
        broken[part]["params"][member] = value
        with pytest.raises(Mismatch):
            vectors.shown_progress(broken, "p")


def test_smaller_pages_are_one() -> None:
    first, second = vectors.page({**PAGE, "events": log()[1:2], "cursor": "2"}, 1, 2), vectors.page(PAGE, 1, 2)
    assert vectors.may_follow(first, 2) and vectors.may_follow(second, None) and not vectors.may_follow(second, 2)
    following = vectors.page({"events": log()[2:], "cursor": "4", "truncated": False, "closed": True}, 2, None)
    assert [one["seq"] for one in vectors.together(first, following).events] == [2, 3, 4]
    assert not vectors.may_follow(vectors.together(first, following), None)

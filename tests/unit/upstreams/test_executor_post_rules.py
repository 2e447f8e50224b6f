"""Posts of a worker for a call, one rule after the other, in the order of `test_executor_posts_properties`."""

import json
from typing import Any

import msgspec
import pytest

from mcp_hub.errors import Rejected
from mcp_hub.events import Completed, Delta, Failed, InputRequired, Log, Post, Progressed, ToolCall, ToolResult
from mcp_hub.upstreams.executors.posts import ExecutorLimits, Production, _Taken, read_tools
from tests.unit.upstreams.executor_workers import refusing


def event(type_: str, **data: Any) -> bytes:
    return json.dumps({"type": type_, "data": data}).encode()


def post(seq: int, *events: bytes, **more: Any) -> Post:
    return Post(more.pop("epoch", 1), seq, events, **more)


def production(**limits: int) -> Production:
    return Production(ExecutorLimits(**limits))


STEP = event("progress", progress=1)


def text(words: str, index: int = 0, channel: str = "content") -> bytes:
    return event("delta", channel=channel, index=index, content=[{"type": "text", "text": words}])


def state(p: Production) -> tuple[object, ...]:
    return p.taken, p.credit, p.ended, set(p._open), list(p._gathered), p._size, p._epoch


def refused(p: Production, sent: Post, code: str, epoch: int = 1) -> Rejected:
    before = state(p)
    with refusing(code) as caught:
        p.receive(sent, epoch)
    assert state(p) == before, "a refusal changes nothing"
    return caught.value


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (event("progress", progress=3, total=120), Progressed(3, 120)),
        (event("progress", progress=0.5, message="m"), Progressed(0.5, None, {"message": msgspec.Raw(b'"m"')})),
        (text("a", 2, "aux"), Delta(b'[{"type": "text", "text": "a"}]', 2, "aux")),
        (event("log", level="info", data={"a": 1}), Log("info", b'{"level":"info","data":{"a": 1}}')),
        (event("tool-call", call="c", name="n", arguments={"x": 1}), ToolCall("c", "n", b'{"x": 1}')),
        (event("tool-result", call="c", isError=True, content=[]), ToolResult("c", b"[]", True)),
        (
            event("input-required", key="k", method="roots/list", params={"a": 1}),
            InputRequired("k", "roots/list", b'{"a": 1}'),
        ),
    ],
)
def test_each_type_of_event_is_read(raw: bytes, expected: object) -> None:
    assert production().receive(post(1, raw), 1) == _Taken((expected,))  # type: ignore[arg-type]  # any of the kinds


def test_events_on_several_lines_come_on_one() -> None:
    raw = json.dumps({"type": "log", "data": {"level": "info", "data": [1]}}, indent=1).encode()
    taken = production().receive(post(1, raw), 1)
    assert taken and isinstance(taken.events[0], Log) and b"\n" not in bytes(taken.events[0].params)
    done = production().receive(post(1, complete=True, result=b'{\n"content":[]}'), 1)
    assert done and done.ending == Completed(b'{ "content":[]}')


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (event("start"), "the hub says when a call starts"),
        (event("end", outcome="ok"), "`complete` with a `result`"),
        (event("error", code=1), "`complete` with an `error`"),
        (event("input-received", key="k"), "the hub says"),
        (event("reset", attempt=2), "the hub alone"),
        (event("other"), "unknown type"),
        (event("progress", progress=True), "progress"),
        (event("delta", content="a"), "content"),
        (event("delta", content=[{"text": "a"}]), "type"),
        (event("delta", content=[], index=-1), "index"),
        (event("delta", content=[], channel="x"), "channel"),
        (event("log", level="loud", data=1), "level"),
        (event("log", level="info"), "data"),
        (event("tool-call", call="c", name="n", arguments=[]), "arguments"),
        (event("input-required", key="k", method="tools/call", params={}), "method"),
        (b'{"type":"log","data":{"level":"info","data":"\xff"}}', "events[1]"),
        (b'{"type":"log","data":{"level":"info","data":"\\ud800"}}', "events[1]"),
        (b'{"type":"log","data":{"level":"info","data":' + b"[" * 100_000 + b"]" * 100_000 + b"}}", "too deep"),
        (b"[]", "events[1]"),
    ],
)
def test_an_event_that_is_wrong_is_named_and_refuses_the_whole_post(raw: bytes, reason: str) -> None:
    problem = str(refused(production(), post(1, STEP, raw), "malformed"))
    assert problem.startswith("events[1]") and reason in problem


@pytest.mark.parametrize(
    "sent",
    [
        post(0),
        post(1, STEP, content="a"),
        post(1, result=b"{}"),
        post(1, complete=True, result=b"{}", error=b'{"code":1,"message":"m"}'),
        post(1, complete=True, result=b"[]"),
        post(1, complete=True, result=b'{"a":"\xff"}'),
        post(1, complete=True, error=b'{"code":"1","message":"m"}'),
        post(1, content="\ud800"),
    ],
)
def test_a_post_of_the_wrong_form_is_refused(sent: Post) -> None:
    refused(production(), sent, "malformed")


def test_events_cost_credit_until_readers_have_caught_up_and_the_end_costs_none() -> None:
    p = production(window=3)
    assert p.receive(post(1, STEP, STEP), 1) and p.credit == 1
    assert refused(p, post(2, STEP, STEP), "no_credit").members["credit"] == 1
    assert p.receive(post(2, STEP), 1) and p.credit == 0
    assert p.receive(post(3), 1) == _Taken(())
    p.drained()
    assert p.receive(post(4, STEP, STEP, STEP), 1) and p.credit == 0
    assert p.receive(post(5, complete=True), 1) == _Taken((), Completed(b'{"content":[],"isError":false}'))


@pytest.mark.parametrize(
    "sent",
    [
        post(1, event("log", level="info", data="x" * 100)),
        post(1, content="é" * 51),
        post(1, *[event("log", level="info", data="x" * 30)] * 3),
        post(1, complete=True, result=b'{"a":"' + b"x" * 200 + b'"}'),
        post(1, complete=True, error=b'{"code":1,"message":"' + b"x" * 200 + b'"}'),
    ],
)
def test_what_is_over_a_limit_in_bytes_is_refused(sent: Post) -> None:
    refused(production(event=100, post=200), sent, "too_large")


def test_more_events_than_the_window_holds_can_never_be_taken() -> None:
    assert refused(production(window=2), post(1, STEP, STEP, STEP), "too_large").members["limit"] == 2


def test_an_error_ends_the_call_as_it_was_sent() -> None:
    raw = b'{"code":-32000,"message":"broken","data":[1.50]}'
    taken = production().receive(post(1, complete=True, error=raw), 1)
    assert taken and isinstance(taken.ending, Failed)
    assert (taken.ending.error.code, taken.ending.error.message) == (-32000, "broken")
    assert taken.ending.error.encoded() == raw


def test_without_a_result_the_content_deltas_are_the_result() -> None:
    p = production()
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    p.receive(post(1, text("c", 1), text("not this", channel="aux"), text("a")), 1)
    p.receive(post(2, content="é\n"), 1)
    taken = p.receive(post(3, event("delta", content=[image]), text("b"), complete=True), 1)
    assert taken and isinstance(taken.ending, Completed)
    content = json.loads(bytes(taken.ending.result))
    texts = [{"type": "text", "text": words} for words in ("aé\n", "b", "c")]
    assert content == {"content": [texts[0], image, *texts[1:]], "isError": False}


def test_too_much_content_for_a_result_is_not_kept_and_needs_one() -> None:
    p = production(text=100)
    p.receive(post(1, content="x" * 60), 1)
    refused(p, post(2, content="x" * 60, complete=True), "too_large")
    p.receive(post(2, content="x" * 60), 1)
    assert p._gathered == []
    refused(p, post(3, complete=True), "too_large")
    assert p.receive(post(3, complete=True, result=b'{"content":[]}'), 1)


def test_a_key_is_that_of_one_question_until_its_answer_is_fetched() -> None:
    ask = event("input-required", key="k", method="roots/list", params={})
    p = production(questions=2)
    refused(p, post(1, ask, ask), "malformed")
    p.receive(post(1, ask), 1)
    refused(p, post(2, ask), "malformed")
    others = [event("input-required", key=key, method="roots/list", params={}) for key in "ab"]
    refused(p, post(2, *others), "too_large")
    p.answered("k")
    assert p.receive(post(2, ask, others[0]), 1)


@pytest.mark.parametrize(
    ("tools", "code"),
    [
        ([b'{"name":"t"}'], "malformed"),
        ([b'{"name":"","inputSchema":{}}'], "malformed"),
        ([b'{"name":"t","inputSchema":[]}'], "malformed"),
        ([b'{"name":"t","inputSchema":{}}'] * 2, "malformed"),
        ([b'{"name":"t","inputSchema":{"x":"\xff"}}'], "malformed"),
        ([b'{"name":"%d","inputSchema":{}}' % n for n in range(4)], "too_large"),
        ([b'{"name":"t","inputSchema":{"x":"' + b"x" * 100 + b'"}}'], "too_large"),
    ],
)
def test_definitions_that_are_wrong_are_refused(tools: list[bytes], code: str) -> None:
    with refusing(code, match="tools"):
        read_tools(tools, 3, 100)
    raw = b'{ "inputSchema":{"type": "object"},"name":"t","x":1.0 }'
    assert read_tools([raw], 1, 100) == {"t": raw}, "kept byte for byte"

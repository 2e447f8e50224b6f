"""The lines of streams.md §1, one event at a time."""

import json
from hashlib import sha256
from typing import Any

import msgspec
import pytest

from mcp_hub import errors, events
from mcp_hub.calls.metering import is_tool_error
from mcp_hub.protocol.jsonrpc.rpc_errors import from_wire
from mcp_hub.protocol.shape.stream_events import decoded, encoded, start_data
from mcp_hub.types import CallId, Era, JsonObject

STREAM = CallId("st_0123456789ABCDEFGHJKMNPQRS")
TS = "2026-11-20T11:02:03.412Z"
UNKNOWN: JsonObject = {"outcome": "unknown"}


def line(event: events.CallEvent) -> bytes:
    return encoded(STREAM, 3, TS, event)


def data(event: events.CallEvent) -> Any:
    return json.loads(line(event))["data"]


def read(kind: str, text: str) -> events.CallEvent:
    return decoded(b'{"v":1,"stream":"s","seq":1,"ts":"t","type":"%b","data":%b}' % (kind.encode(), text.encode()))[1]


MESSAGE = {"message": msgspec.Raw(b'"compiling core"')}


@pytest.mark.parametrize(
    ("event", "kind", "shown"),
    [
        (events.Started(), "start", "{}"),
        (events.Progressed(3, 120, MESSAGE), "progress", '{"progress":3,"total":120,"message":"compiling core"}'),
        (events.Progressed(3.5), "progress", '{"progress":3.5}'),
        (
            events.Progressed(4.000001, 9, server_value=4),
            "progress",
            '{"progress":4.000001,"total":9,"_meta":{"dev.mcp-hub/progress":{"server":4}}}',
        ),
        (
            events.Progressed(0, None, {"_meta": msgspec.Raw(b'{"a":1}')}, 2, None, True),
            "progress",
            '{"progress":0,"_meta":{"a":1,"dev.mcp-hub/coalesced":2,"dev.mcp-hub/progress":{"server":null,"by":"hub"}}}',
        ),
        (events.Progressed(4, None, None, 2), "progress", '{"progress":4,"_meta":{"dev.mcp-hub/coalesced":2}}'),
        (events.Delta(b'[{"type":"text"}]'), "delta", '{"channel":"content","index":0,"content":[{"type":"text"}]}'),
        (events.Delta(b"[]", 2, "aux"), "delta", '{"channel":"aux","index":2,"content":[]}'),
        (events.Log("warning", b'{"level":"warning","data":1}'), "log", '{"level":"warning","data":1}'),
        (events.ToolCall("c1", "t", b"{}"), "tool-call", '{"call":"c1","name":"t","arguments":{}}'),
        (events.ToolResult("c1", b"[]"), "tool-result", '{"call":"c1","isError":false,"content":[]}'),
        (events.ToolResult("c1", b"[]", True), "tool-result", '{"call":"c1","isError":true,"content":[]}'),
        (events.InputRequired("a", "roots", b"{}"), "input-required", '{"key":"a","method":"roots","params":{}}'),
        (events.InputReceived("a", action="accept"), "input-received", '{"key":"a","action":"accept"}'),
        (events.InputReceived("a", 2), "input-received", '{"key":"a","remaining":2}'),
        (events.Attempt(2, "lost", 0.5), "attempt", '{"attempt":2,"reason":"lost","after":0.5}'),
        (events.Attempt(3, "x", 1, "a"), "attempt", '{"attempt":3,"reason":"x","after":1,"detail":"a"}'),
        (events.Reset(2, "lost", 3), "reset", '{"attempt":2,"reason":"lost","discard_from":3}'),
        (events.Completed(b'{"content":[]}'), "end", '{"outcome":"ok","result":{"content":[]}}'),
        (events.Completed(b"{}", Era.MODERN), "end", '{"outcome":"ok","result":{},"era":"modern"}'),
        (events.Cancelled(), "end", '{"outcome":"cancelled"}'),
        (events.Cancelled("why"), "end", '{"outcome":"cancelled","reason":"why"}'),
    ],
)
def test_a_line_is_as_the_design_has_it_and_comes_back(event: events.CallEvent, kind: str, shown: str) -> None:
    head = f'{{"v":1,"stream":"{STREAM}","seq":3,"ts":"{TS}","type":"{kind}","data":'
    assert line(event).decode() == head + shown + "}"
    assert line(decoded(line(event))[1]) == line(event)


@pytest.mark.parametrize(
    ("result", "is_error"),
    [
        (b'{"isError":true}', True),
        (b'{"content":[],"isError":true}', True),
        *((b'{"content":[],"isError"%b}' % rest, True) for rest in (b" :\ttrue ", b" : \n true")),
        (b'{"content":[{"isError":false}],"isError":true}', True),
        *((b'{"content":[],"isError":%b}' % value, False) for value in (b"false", b"null", b'"true"')),
        (b'{"content":[]}', False),
        (b'{"content":[{"isError":true}]}', False),
        (b'{"structuredContent":{"isError":true},"content":[]}', False),
        (b'{"structuredContent":{"isError":true},"isError":false}', False),
        (b'{"content":[{"type":"text","text":"\\"isError\\":true"}]}', False),
        (b'{"a":"isError","isError":null}', False),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b',"isError":true}', False),
        (b'{"isError":true', False),
    ],
)
def test_a_result_that_says_so_at_its_top_is_a_tools_error(result: bytes, is_error: bool) -> None:
    outcome = b"tool_error" if is_error else b"ok"
    assert b'"data":{"outcome":"%b","result":' % outcome in line(events.Completed(result))
    assert is_tool_error(result) is is_error


def test_a_large_result_with_huge_numbers_and_unknown_fields_survives_byte_for_byte() -> None:
    result = b'{ "n":123456789012345678901234567890.10,"\\u00e9":1e999, "x-new":[ ],"t":"%b"}' % (b"y" * 5_000_000)
    _, event = decoded(line(events.Completed(msgspec.Raw(result))))
    assert isinstance(event, events.Completed) and bytes(event.result) == result


def test_the_start_says_what_is_called_and_not_with_what() -> None:
    arguments = b'{"secret": "s3cret"}'
    start = start_data("ci", "run_tests", "ci_run_tests", msgspec.Raw(arguments), 1, 1_795_172_523.412)
    text = encoded(STREAM, 1, TS, events.Started(), start)
    assert json.loads(text)["data"] == {
        **{"server": "ci", "tool": "run_tests", "name": "ci_run_tests", "attempt": 1},
        **{"args_sha256": sha256(arguments).hexdigest(), "deadline": "2026-11-20T11:02:03.412Z"},
    }
    assert decoded(text) == (1, events.Started())
    assert "deadline" not in json.loads(start_data("ci", "t", "n", b"{}", 2, None))
    end = events.Cancelled()
    assert encoded(STREAM, 1, TS, end, start) == encoded(STREAM, 1, TS, end), "of a start alone"


ERRORS: list[tuple[errors.RpcError, str, str, bool]] = [
    (from_wire(b'{"code":-32000,"message":"no"}'), "tool_error", "tool", False),
    (from_wire(b'{"code":"bad"}'), "upstream_error", "upstream_protocol", False),
    (errors.RpcError("internal error of the hub"), "internal_error", "internal", False),
    (errors.InvalidParams("x"), "invalid_params", "client", False),
    (errors.InvalidParams("x", symbol="unknown_state"), "unknown_state", "client", False),
    (errors.UnknownEntry("x"), "unknown_entry", "client", False),
    (errors.UnknownEntry("x", symbol="tool_removed"), "tool_removed", "client", False),
    (errors.UnknownStream(), "unknown_stream", "client", False),
    (errors.EventsGone(7), "events_gone", "client", False),
    (errors.method_not_found("x"), "method_not_found", "client", False),
    (errors.not_approved("x"), "not_approved", "auth", False),
    (errors.AccountNeeded("a", "ann"), "account_needed", "auth", False),
    (errors.InvalidParams("x", symbol="not_read_only"), "not_read_only", "client", False),
    (errors.UpstreamUnavailable("x"), "upstream_unavailable", "upstream_transport", True),
    (errors.UpstreamUnavailable("x", symbol="session_elsewhere"), "session_elsewhere", "upstream_transport", False),
    (errors.UpstreamLost("x", data=UNKNOWN), "upstream_crashed", "upstream_crash", False),
    (errors.UpstreamLost("x"), "upstream_crashed", "upstream_crash", True),
    (errors.HttpRefused("a", 500, "x"), "upstream_refused", "upstream_transport", False),
    (errors.HttpRefused("a", 404, "x"), "upstream_refused", "upstream_transport", False),
    (errors.HttpRefused("a", 401, "x"), "upstream_refused", "auth", False),
    (errors.HttpRefused("a", 403, "x"), "upstream_refused", "auth", False),
    (errors.HttpRefused("a", 429, "x"), "upstream_refused", "rate_limit", True),
    (errors.DeadlineExceeded("x", data={"limit": "timeout"}), "deadline_exceeded", "upstream_timeout", False),
    (errors.DeadlineExceeded("x", data={"limit": "max_duration"}), "deadline_exceeded", "deadline", False),
    (errors.DeadlineExceeded("x", data={"limit": "question_timeout"}), "deadline_exceeded", "client", False),
    (errors.Busy("x"), "busy", "capacity", True),
    (errors.StoreUnavailable("x"), "store_unavailable", "capacity", True),
    (errors.CallCancelled("x"), "cancelled", "cancelled", False),
    (errors.HubStopping("x", data=UNKNOWN), "hub_stopped", "hub_restart", False),
    (errors.HubRestarted("x", data=UNKNOWN), "hub_restarted", "hub_restart", False),
    (errors.HubRestarted("x"), "hub_restarted", "hub_restart", True),
    (errors.owner_lost("x", UNKNOWN), "owner_lost", "owner_lost", False),
    (errors.executor_lost("x", UNKNOWN), "executor_lost", "upstream_crash", False),
]


@pytest.mark.parametrize(("error", "code", "group", "is_retryable"), ERRORS)
def test_error_says_whose_it_is_and_if_to_retry(
    error: errors.RpcError, code: str, group: str, is_retryable: bool
) -> None:
    shown = data(events.Failed(error))
    assert (shown["code"], shown["class"], shown["retryable"]) == (code, group, is_retryable)
    assert shown.get("outcome") == (error.data or {}).get("outcome")
    assert shown["detail"] == error.message
    assert shown["jsonrpc"] == json.loads(bytes(error.encoded()))
    assert bytes(again(error).encoded()) == bytes(error.encoded())


def test_every_error_that_can_reach_a_client_has_a_code_of_its_own() -> None:
    codes = {type(error): code for error, code, _, _ in ERRORS if type(error) is not errors.RpcError}
    kinds = [errors.RpcError]
    for kind in kinds:
        kinds += [sub for sub in kind.__subclasses__() if sub.__module__ == "mcp_hub.errors"]
    assert set(kinds) == {errors.RpcError, *codes}
    assert len(set(codes.values())) == len(codes)


def test_a_class_of_error_that_nobody_named_counts_as_what_it_is_derived_from() -> None:
    class Odd(errors.Busy):
        """A subclass that only this test knows."""

    assert data(events.Failed(Odd("x")))["code"] == "busy"


def again(error: errors.RpcError) -> errors.RpcError:
    """The error as it is read from its line."""
    _, event = decoded(line(events.Failed(error)))
    assert isinstance(event, events.Failed) and type(event.error) is type(error)
    return event.error


@pytest.mark.parametrize(
    "error",
    [
        errors.InvalidParams("x", symbol="invalid_cursor"),
        errors.RpcError("x", symbol="client_error"),
        errors.RpcError("x", code=1011, data={"upstream": {"server": "git"}, **UNKNOWN}, symbol="odd_thing"),
    ],
)
def test_an_error_with_a_code_of_its_own_keeps_it(error: errors.RpcError) -> None:
    _, event = decoded(line(events.Failed(error)))
    assert isinstance(event, events.Failed) and event.error.symbol == error.symbol
    assert event.error.data == error.data and event.error.encoded() == error.encoded()


def test_a_stored_code_that_nobody_writes_is_not_taken_over() -> None:
    text = line(events.Failed(errors.InvalidParams("x"))).replace(b"invalid_params", b"<b>", 1)
    _, event = decoded(text)
    assert isinstance(event, events.Failed) and event.error.symbol == "invalid_params"


def test_an_upstreams_error_comes_back_as_its_bytes() -> None:
    raw = b'{ "code":-32000,"message":"no","data":{"n":123456789012345678901234567890,"x":1.10},"more":[1e999]}'
    error = again(from_wire(raw))
    assert (bytes(error.raw or b""), error.message, error.code) == (raw, "no", -32000)


def test_a_number_that_no_float_can_hold_does_not_make_an_error_unreadable() -> None:
    error = errors.RpcError("no", data={"n": msgspec.Raw(b"1e999"), "upstream": {"server": "git"}})
    assert again(error).encoded() == error.encoded() and again(error).about_upstream == {"server": "git"}


def test_what_an_error_tells_of_a_refusal_or_of_lost_events_is_there_again() -> None:
    told = ((errors.HttpRefused("a", 429, "HTTP 429"), "status", 429), (errors.EventsGone(17), "earliest", 17))
    for error, name, value in told:
        assert getattr(again(error), name) == value


def test_the_detail_of_an_error_is_short_and_its_message_whole() -> None:
    shown = data(events.Failed(errors.RpcError("x" * 1000)))
    assert len(shown["detail"]) == 200 and len(shown["jsonrpc"]["message"]) == 1000


def test_an_error_with_a_code_of_another_version_is_an_error_all_the_same() -> None:
    event = read("error", '{"code":"lost_again","class":"lost_again","jsonrpc":{"code":1009,"message":"m"}}')
    assert isinstance(event, events.Failed) and type(event.error) is errors.RpcError
    assert (event.error.code, event.error.message, event.error.data) == (1009, "m", None)


def test_a_count_takes_the_place_of_an_upstreams_own_and_leaves_the_rest_of_its_meta() -> None:
    rest = {"_meta": msgspec.Raw(b'{"dev.mcp-hub/coalesced":9,"x":1}')}
    merged = line(events.Progressed(1, None, rest, 2))
    assert json.loads(merged)["data"]["_meta"] == {"dev.mcp-hub/coalesced": 2, "x": 1}
    assert decoded(merged)[1] == events.Progressed(1, None, {"_meta": msgspec.Raw(b'{"x":1}')}, 2)


@pytest.mark.parametrize("meta", [b"5", b"null", b"[]", b'"x"'])
def test_meta_that_is_no_object_passes_unless_a_count_needs_its_place(meta: bytes) -> None:
    event = events.Progressed(1, None, {"_meta": msgspec.Raw(meta)})
    assert decoded(line(event)) == (3, event)
    assert decoded(line(events.Progressed(1, None, event.members, 2))) == (3, events.Progressed(1, None, None, 2))


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ('{"v":2,"stream":"s","seq":1,"ts":"t","type":"progress","data":{"progress":1}}', "enum value 2"),
        ('{"v":1,"stream":"s","seq":0,"ts":"t","type":"progress","data":{"progress":1}}', ">= 1"),
        ('{"v":1,"stream":"s","seq":1.5,"ts":"t","type":"progress","data":{"progress":1}}', "int"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"reset","data":{"attempt":2}}', "'reason'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"renamed","data":{}}', "'renamed'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"progress"}', "data"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"progress","data":{}}', "'progress'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"progress","data":{"progress":"1"}}', "int | float"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"log","data":{"data":1}}', "level"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"delta","data":{"index":0,"channel":"x"}}', "'content'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"start","data":[]}', "object"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"end","data":{"outcome":"fine","result":{}}}', "'fine'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"end","data":{"outcome":"ok"}}', "'result'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"end","data":{"outcome":"ok","result":{},"era":"x"}}', "'x'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"error","data":{"code":"x","class":"y"}}', "'jsonrpc'"),
        ('{"v":1,"stream":"s","seq":1,"ts":"t","type":"error","data":{"code":"x","class":"y","jsonrpc":1}}', "object"),
        (
            '{"v":1,"stream":"s","seq":1,"ts":"t","type":"start","data":' + "[" * 100_000 + "]" * 100_000 + "}",
            "recursion",
        ),
        ("", "truncated"),
    ],
)
def test_what_is_no_event_is_refused_and_named(text: str, what: str) -> None:
    with pytest.raises(ValueError, match="not an event of a stream") as caught:
        decoded(text.encode())
    assert what in str(caught.value)

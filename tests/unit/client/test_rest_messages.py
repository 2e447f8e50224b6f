"""What a client makes of addresses, answers and events without a connection, and when it tries again."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub import errors
from mcp_hub.client.http import connect
from mcp_hub.client.rest import decoded, endpoint, error_for, rest_url
from mcp_hub.client.stream_reader import EventDecoder, Patience
from mcp_hub.events import CallEvent, Cancelled, Completed, Delta, Progressed, Started
from mcp_hub.protocol.rest.calls import StreamStatus
from tests.unit.client.scripted_peer import CLOSED, STREAM, lines, sse

URL = "http://hub/v1/x"
PROBLEM = "application/problem+json"
RPC_ERROR = b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"a token"}}'


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://127.0.0.1:8765/mcp", "http://127.0.0.1:8765/v1/tools/a%2Fb%20%C3%BC/call"),
        ("https://example.com/hub/mcp", "https://example.com/hub/v1/tools/a%2Fb%20%C3%BC/call"),
        ("https://example.com/mcp?key=1", "https://example.com/v1/tools/a%2Fb%20%C3%BC/call?key=1"),
    ],
)
def test_rest_front_lies_beside_the_mcp_endpoint(endpoint: str, url: str) -> None:
    assert rest_url(endpoint, "tools", "a/b ü", "call") == url


def error(status: int, code: str, **members: object) -> errors.HubError:
    body = msgspec.json.encode({"title": "x", "status": status, "code": code, "detail": "why", **members})
    return error_for(URL, status, PROBLEM, body)


@pytest.mark.parametrize(
    ("status", "code", "kind", "said"),
    [
        (404, "unknown_stream", errors.UnknownStream, "Unknown stream"),
        (404, "unknown_tool", errors.UnknownEntry, "why"),
        (404, "unknown_question", errors.InvalidParams, "why"),
        (400, "invalid_cursor", errors.InvalidParams, "why"),
        (422, "idempotency_key_reused", errors.InvalidParams, "why"),
        (503, "busy", errors.Busy, "why"),
        (503, "store_unavailable", errors.UpstreamUnavailable, "why"),
        (500, "internal_error", errors.UpstreamUnavailable, "why"),
        (
            401,
            "unauthorized",
            errors.ConfigError,
            "http://hub/v1/x refused the request: why. Give the token with --token",
        ),
        (403, "origin_not_allowed", errors.ConfigError, "refused the request with HTTP 403: why"),
    ],
)
def test_problem_is_the_error_that_it_names(status: int, code: str, kind: type[errors.HubError], said: str) -> None:
    found = error(status, code)
    assert type(found) is kind
    assert said in str(found)


def test_problem_of_a_failed_call_or_a_trimmed_stream_is_its_error() -> None:
    found = error(410, "events_gone", earliest=7)
    assert isinstance(found, errors.EventsGone)
    assert found.earliest == 7
    wire = {"code": 1005, "message": "the hub stops", "data": {"outcome": "unknown"}}
    found = error(503, "hub_stopped", **{"class": "hub_restart", "jsonrpc": wire})
    assert isinstance(found, errors.HubStopping)
    assert (found.code, found.message, found.data) == (1005, "the hub stops", {"outcome": "unknown"})
    own = error(502, "tool_error", **{"class": "tool", "jsonrpc": {"code": -5, "message": "no"}})
    assert isinstance(own, errors.RpcError)
    assert (type(own), own.code, own.message) == (errors.RpcError, -5, "no")


@pytest.mark.parametrize(
    ("status", "kind", "body", "error_kind", "said"),
    [
        (404, "text/html", b"<html>", errors.ConfigError, "it answered with HTTP 404"),
        (200, "text/html", b"<html>", errors.ConfigError, "it answered with text/html"),
        (200, "", b"", errors.ConfigError, "it answered with nothing"),
        (502, "text/html", b"<html>", errors.UpstreamUnavailable, "answered with HTTP 502"),
        (401, "application/json", RPC_ERROR, errors.ConfigError, "refused the request: a token. Give the token"),
    ],
)
def test_answer_that_is_no_problem_says_what_to_fix(
    status: int, kind: str, body: bytes, error_kind: type[errors.HubError], said: str
) -> None:
    found = error_for(URL, status, kind, body)
    assert type(found) is error_kind
    assert said in str(found)
    assert URL in str(found)


def test_state_of_a_stream_is_read_whatever_else_it_has() -> None:
    row = (
        b'{"stream":"st_1","status":"completed","method":"tools/call","name":"a","server":"s","created":"x",'
        b'"updated":"x","first":1,"last":7,"new":[],"result":{"a": 1}}'
    )
    status = decoded(URL, row, StreamStatus)
    assert (status.stream, status.name, status.last, status.has_ended) == ("st_1", "a", 7, True)
    assert status.result == msgspec.Raw(b'{"a": 1}')
    assert not decoded(URL, row.replace(b"completed", b"input_required"), StreamStatus).has_ended


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"stream":1,"status":"working"}'])
def test_answer_that_cannot_be_read_is_lost(body: bytes) -> None:
    with pytest.raises(errors.UpstreamLost, match="cannot be read"):
        decoded(URL, body, StreamStatus)


EVENTS: list[CallEvent] = [
    Started(),
    Progressed(1, 2, {"message": msgspec.Raw(b'"a"')}),
    Delta(msgspec.Raw(b'[{"type":"text","text":"a\\nb"}]')),
    Cancelled("enough"),
]
STORED = lines(EVENTS)
KEEP_ALIVE = b": keep-alive\n\n"


def reader(after: int = 0) -> EventDecoder:
    return EventDecoder("http://hub", after)


@given(st.lists(st.integers(0, 1200), max_size=8))
def test_events_are_the_same_however_they_are_cut(cuts: list[int]) -> None:
    body = KEEP_ALIVE + sse(STORED[:2]) + KEEP_ALIVE + sse(STORED[2:]) + CLOSED
    places = sorted(min(cut, len(body)) for cut in cuts)
    read = reader()
    found = []
    for start, end in zip([0, *places], [*places, len(body)], strict=True):
        found += read.feed(body[start:end])
    assert found == list(enumerate(EVENTS, 1))
    assert (read.stream, read.is_closed, read.is_torn) == (STREAM, True, False)


@given(st.integers(0, 4), st.data())
def test_what_lies_before_the_cursor_is_not_repeated(after: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, after))
    read = reader(after)
    assert read.feed(sse(STORED[start:])) == list(enumerate(EVENTS, 1))[after:]
    assert not read.is_over


def test_event_that_is_cut_off_is_none_and_an_unknown_one_keeps_its_number() -> None:
    read = reader()
    body = sse(STORED[:2])
    assert [seq for seq, _ in read.feed(body[:-1])] == [1]
    assert [seq for seq, _ in read.feed(b"\n")] == [2]
    read = reader()
    reset = STORED[1].replace(b'"type":"progress"', b'"type":"reset"')
    assert read.feed(sse([STORED[0], reset, STORED[2]])) == [(1, EVENTS[0]), (2, None), (3, EVENTS[2])]
    read = EventDecoder("http://hub", 0, limit=300)
    long = lines([Completed(msgspec.Raw(b'{"x":"%b"}' % (b"x" * 300)))], 2)
    assert [seq for seq, _ in read.feed(sse(STORED[:1]) + sse(long))] == [1]
    assert read.broken == "http://hub sent an event of more than 300 bytes"


@pytest.mark.parametrize("data", [b"{}", b"oops", b'{"seq":"1","stream":"s"}', b"[" * 100_000])
def test_what_is_no_event_breaks_the_stream(data: bytes) -> None:
    read = reader()
    assert read.feed(b"data: %b\n\n" % data + sse(STORED)) == []
    assert read.broken is not None
    assert read.broken.startswith("http://hub sent a message that is not an event")


CHANCES = st.floats(0, 1, exclude_max=True)


def test_pauses_grow_to_three_seconds_and_follow_the_hub_if_there_is_time() -> None:
    patience = Patience(1000, lambda: 1.0)
    assert [patience.pause(0) for _ in range(7)] == [0.2, 0.4, 0.8, 1.6, 3.0, 3.0, 3.0]
    patience = Patience(10, lambda: 0.5)
    assert patience.pause(0, retry_after=5) == 5
    assert patience.pause(7, retry_after=3) == 3
    assert patience.pause(7, retry_after=5) is None, "it would have to come back too early"


@given(st.lists(st.tuples(CHANCES, st.floats(0, 5)), min_size=1, max_size=60), st.floats(0, 60))
def test_attempts_in_a_row_end_within_the_time(steps: list[tuple[float, float]], seconds: float) -> None:
    chances = iter([chance for chance, _ in steps])
    patience = Patience(seconds, lambda: next(chances))
    now = 1000.0
    for _, took in steps:
        pause = patience.pause(now)
        if pause is None:
            assert now >= 1000 + seconds
            return
        assert 0 <= pause <= 3
        assert now + pause <= 1000 + seconds + 1e-6
        now += pause + took


ENDPOINT = "http://127.0.0.1:8765/mcp"


@pytest.mark.parametrize(
    ("given", "url"),
    [
        *((given, ENDPOINT) for given in ("http://127.0.0.1:8765", "http://127.0.0.1:8765/", ENDPOINT)),
        (f"{ENDPOINT}/", ENDPOINT),
        ("https://example.com/hub?x=1", "https://example.com/hub?x=1"),
        ("http://[::1]:8765", "http://[::1]:8765/mcp"),
    ],
)
def test_endpoint_may_be_given_with_or_without_its_path(given: str, url: str) -> None:
    assert endpoint(given) == url


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8765", "localhost:8765", "ftp://a", "http://", "http://a:b", "http://a b", "http://a\n/mcp"]
)
def test_text_that_is_not_a_url_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigError) as refused:
        endpoint(url)
    assert [finding.code for finding in refused.value.findings] == ["invalid_hub_url"]


def test_password_or_token_that_cannot_be_sent_is_refused_and_not_shown() -> None:
    with pytest.raises(errors.ConfigError) as refused:
        endpoint("http://me:hunter22@127.0.0.1:8765")
    assert "hunter22" not in str(refused.value)
    with pytest.raises(errors.ConfigError) as refused:
        connect(ENDPOINT, "hunter22\n")
    assert "hunter22" not in str(refused.value)

"""What a client of a hub sends, and what it makes of the answers, without a connection."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.client.messages import AnswerReader, endpoint, progress_of, request
from mcp_hub.errors import (
    ConfigError,
    DeadlineExceeded,
    HubError,
    HubStopping,
    RpcError,
    UnknownEntry,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.events import CallEvent, Completed, Failed, Log, Progressed
from mcp_hub.protocol import sse
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.shape import results
from mcp_hub.types import Era

URL = "http://127.0.0.1:8765/mcp"
JSON, STREAM = "application/json", "text/event-stream; charset=utf-8"
DONE = b'{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete"}}'


def read(body: bytes, kind: str = JSON, status: int = 200, **more: Any) -> list[CallEvent]:
    reader = AnswerReader(URL, 7, status, kind, **more)
    return reader.feed(body) + reader.finish()


def error_of(body: bytes, kind: str = JSON, status: int = 200, **more: Any) -> HubError:
    [event] = read(body, kind, status, **more)
    assert isinstance(event, Failed)
    return event.error


def error_body(code: int, message: str = "no", id_: bytes | None = b"7") -> bytes:
    return envelope.error_frame(id_, RpcError(message, code=code).encoded())


@pytest.mark.parametrize(
    ("given_", "url"),
    [
        ("http://127.0.0.1:8765", URL),
        ("http://127.0.0.1:8765/", URL),
        (URL, URL),
        (f"{URL}/", URL),
        ("https://example.com/hub?x=1", "https://example.com/hub?x=1"),
        ("http://[::1]:8765", "http://[::1]:8765/mcp"),
    ],
)
def test_endpoint_may_be_given_with_or_without_its_path(given_: str, url: str) -> None:
    assert endpoint(given_) == url


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8765", "localhost:8765", "ftp://a", "http://", "http://a:b", "http://a b", "http://a\n/mcp"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="not the URL of a hub"):
        endpoint(url)


def test_password_in_a_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError) as refused:
        endpoint("http://me:hunter22@127.0.0.1:8765")
    assert "hunter22" not in str(refused.value)


def test_request_carries_its_envelope_in_body_and_headers() -> None:
    sent = request(7, "tools/call", {"name": "ü", "arguments": msgspec.Raw(b'{"a":1.0}')}, "ü", {"mcp-param-a": "1"})
    body = json.loads(sent.body)
    assert b'{"a":1.0}' in sent.body
    assert (body["id"], body["method"], body["params"]["name"]) == (7, "tools/call", "ü")
    meta = body["params"]["_meta"]
    assert meta["io.modelcontextprotocol/protocolVersion"] == sent.headers["mcp-protocol-version"] == "2026-07-28"
    assert meta["io.modelcontextprotocol/clientInfo"]["name"] == "mcp-hub-client"
    assert meta["io.modelcontextprotocol/clientCapabilities"] == {}
    assert meta["progressToken"] == 7
    assert {key: sent.headers[key] for key in ("mcp-method", "mcp-name", "mcp-param-a")} == {
        "mcp-method": "tools/call", "mcp-name": "=?base64?w7w=?=", "mcp-param-a": "1",
    }  # fmt: skip


def test_json_answer_is_the_ending() -> None:
    assert read(DONE) == [Completed(msgspec.Raw(b'{"resultType":"complete"}'), Era.MODERN)]


LOG = Log("info", msgspec.Raw(b'{"level":"info","data":1}'))
HALF = Progressed(1, 2.5, {"message": msgspec.Raw(b'"half"')})


@given(st.lists(st.integers(0, 1000), max_size=6))
def test_stream_gives_its_events_in_order_however_it_is_cut(cuts: list[int]) -> None:
    frames = [results.progress_frame(b"7", HALF), results.log_frame(LOG), b"not JSON", DONE, results.log_frame(LOG)]
    stream = sse.COMMENT + b"".join(map(sse.message, frames))
    places = sorted(min(cut, len(stream)) for cut in cuts)
    reader = AnswerReader(URL, 7, 200, STREAM)
    chunks = [stream[start:end] for start, end in zip([0, *places], [*places, len(stream)], strict=True)]
    events = [event for chunk in chunks for event in reader.feed(chunk)] + reader.finish()
    assert events == [HALF, LOG, Completed(msgspec.Raw(b'{"resultType":"complete"}'), Era.MODERN)]


@given(
    st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    st.none() | st.integers(0, 2**53),
    st.sampled_from([None, {"message": msgspec.Raw(b'"a"')}, {"_meta": msgspec.Raw(b'{"a":1}')}]),
    st.integers(0, 1000),
)
def test_progress_is_what_a_hub_wrote_of_it(
    progress: float, total: float | None, rest: dict[str, msgspec.Raw] | None, skipped: int
) -> None:
    event = Progressed(progress, total, rest, skipped)
    message = envelope.decode(results.progress_frame(b"7", event))
    assert isinstance(message, envelope.Envelope)
    assert progress_of(envelope.raw_object(message.params) or {}) == event


@pytest.mark.parametrize("params", [{}, {"progress": b'"1"'}, {"progress": b"1", "total": b"[]"}])
def test_progress_that_cannot_be_read_is_none(params: dict[str, bytes]) -> None:
    assert progress_of({key: msgspec.Raw(value) for key, value in params.items()}) is None


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1001, UpstreamUnavailable),
        (1002, UpstreamLost),
        (1003, DeadlineExceeded),
        (1005, HubStopping),
        (-5, RpcError),
        (-32602, RpcError),
    ],
)
@pytest.mark.parametrize("status", [200, 400])
def test_error_answer_is_the_error_that_it_names(code: int, kind: type[RpcError], status: int) -> None:
    error = error_of(error_body(code), status=status)
    assert isinstance(error, RpcError)
    assert (type(error), error.code, error.message) == (kind, code, "no")
    assert bytes(error.encoded()) == bytes(RpcError("no", code=code).encoded())


def test_invalid_params_for_a_tool_that_is_not_listed_means_that_there_is_none() -> None:
    assert isinstance(error_of(error_body(-32602), status=400, is_listed=False), UnknownEntry)
    assert type(error_of(error_body(-5), is_listed=False)) is RpcError


@pytest.mark.parametrize(
    ("status", "kind", "body", "message"),
    [
        (
            401,
            JSON,
            error_body(-32600, "a token is required", None),
            "a token is required; give the token with --token",
        ),
        (403, JSON, error_body(-32600, "origin x", None), "refused the request with HTTP 403: origin x"),
        (421, JSON, error_body(-32600, "host x", None), "refused the request with HTTP 421: host x"),
        (404, JSON, error_body(-32600, "the endpoint is /mcp", None), "no MCP endpoint.*404: the endpoint is /mcp"),
        (404, "text/html", b"<html>", "is no MCP endpoint of a hub: it answered with HTTP 404"),
        (301, "", b"", "it answered with HTTP 301"),
        (200, "text/html", b"<html>", "it answered with text/html"),
        (200, JSON, b'{"jsonrpc":"2.0","id":8,"result":{}}', "it answered with application/json"),
        (200, JSON, b"[" * 100_000, "it answered with application/json"),
        (200, "", b"", "it answered with nothing"),
    ],
)
def test_answer_that_is_none_of_a_hub_says_what_to_mend(status: int, kind: str, body: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read(body, kind, status)
    assert str(refused.value).startswith(URL)


def test_hub_that_is_overloaded_is_unavailable() -> None:
    error = error_of(error_body(1004, "busy", None), status=503)
    assert isinstance(error, UpstreamUnavailable)
    assert "HTTP 503: busy" in error.message


@pytest.mark.parametrize(
    ("body", "kind", "what"),
    [
        (sse.message(b'{"jsonrpc":"2.0","id":8,"result":{}}'), STREAM, "ended its answer too early"),
        (sse.message(DONE)[:-1], STREAM, "ended its answer too early"),
        (b'{"jsonrpc":"2.0","id":7,"result":[]}', JSON, "a result that is no object"),
        (sse.message(DONE), STREAM, "more than 20 bytes"),
        (DONE, JSON, "more than 20 bytes"),
    ],
)
def test_answer_that_breaks_off_or_grows_too_long_loses_the_call(body: bytes, kind: str, what: str) -> None:
    error = error_of(body, kind, limit=20 if "20" in what else 1000)
    assert isinstance(error, UpstreamLost)
    assert what in error.message

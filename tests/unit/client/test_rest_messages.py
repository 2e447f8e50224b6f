"""What a client makes of the answers of the REST front, without a connection."""

import msgspec
import pytest

from mcp_hub.client.rest import decoded
from mcp_hub.client.rest_messages import error_for, rest_url
from mcp_hub.errors import (
    Busy,
    ConfigError,
    EventsGone,
    HubError,
    HubStopping,
    InvalidParams,
    RpcError,
    UnknownEntry,
    UnknownStream,
    UpstreamLost,
    UpstreamUnavailable,
)
from mcp_hub.protocol.rest.streams import StreamStatus

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


def error(status: int, code: str, **members: object) -> HubError:
    body = msgspec.json.encode({"title": "x", "status": status, "code": code, "detail": "why", **members})
    return error_for(URL, status, PROBLEM, body)


@pytest.mark.parametrize(
    ("status", "code", "kind", "said"),
    [
        (404, "unknown_stream", UnknownStream, "Unknown stream"),
        (404, "unknown_tool", UnknownEntry, "why"),
        (404, "unknown_question", InvalidParams, "why"),
        (400, "invalid_cursor", InvalidParams, "why"),
        (422, "idempotency_key_reused", InvalidParams, "why"),
        (503, "busy", Busy, "why"),
        (503, "store_unavailable", UpstreamUnavailable, "why"),
        (500, "internal_error", UpstreamUnavailable, "why"),
        (401, "unauthorized", ConfigError, "http://hub/v1/x refused the request: why. Give the token with --token"),
        (403, "origin_not_allowed", ConfigError, "refused the request with HTTP 403: why"),
    ],
)
def test_problem_is_the_error_that_it_names(status: int, code: str, kind: type[HubError], said: str) -> None:
    found = error(status, code)
    assert type(found) is kind
    assert said in str(found)


def test_trimmed_events_name_the_earliest() -> None:
    found = error(410, "events_gone", earliest=7)
    assert isinstance(found, EventsGone)
    assert found.earliest == 7


def test_problem_of_a_failed_call_is_the_error_of_the_call() -> None:
    wire = {"code": 1005, "message": "the hub stops", "data": {"outcome": "unknown"}}
    found = error(503, "hub_stopped", **{"class": "hub_restart", "jsonrpc": wire})
    assert isinstance(found, HubStopping)
    assert (found.code, found.message, found.data) == (1005, "the hub stops", {"outcome": "unknown"})
    own = error(502, "tool_error", **{"class": "tool", "jsonrpc": {"code": -5, "message": "no"}})
    assert isinstance(own, RpcError)
    assert (type(own), own.code, own.message) == (RpcError, -5, "no")


@pytest.mark.parametrize(
    ("status", "kind", "body", "error_kind", "said"),
    [
        (404, "text/html", b"<html>", ConfigError, "it answered with HTTP 404"),
        (200, "text/html", b"<html>", ConfigError, "it answered with text/html"),
        (200, "", b"", ConfigError, "it answered with nothing"),
        (502, "text/html", b"<html>", UpstreamUnavailable, "answered with HTTP 502"),
        (401, "application/json", RPC_ERROR, ConfigError, "refused the request: a token. Give the token"),
    ],
)
def test_answer_that_is_no_problem_says_what_to_fix(
    status: int, kind: str, body: bytes, error_kind: type[HubError], said: str
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
    with pytest.raises(UpstreamLost, match="cannot be read"):
        decoded(URL, body, StreamStatus)

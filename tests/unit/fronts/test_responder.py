"""What reaches a client of its call, by what it asked for and by its era."""

import json
from typing import Any, cast

import pytest

from mcp_hub.call import Call
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import new_record
from mcp_hub.errors import DeadlineExceeded, RpcError
from mcp_hub.events import BY_CLIENT, CallEvent, Cancelled, Completed, Delta, Failed, Log, Progressed, Started
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.hub import HubPort
from mcp_hub.protocol.eras import LOG_LEVELS, level_admits
from mcp_hub.protocol.jsonrpc.envelope import whole
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.types import CallId, Era
from tests.unit.calls.call_scripts import handle_of
from tests.unit.fakes import HandClock, ResponderPort, unused

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN


class Client:
    """A responder and the record that it follows."""

    def __init__(
        self, era: Era = HANDSHAKE, token: bytes | None = None, level: str | None = None, method: str = "tools/call"
    ) -> None:
        call = Call(CallId("st_1"), "git", method, {}, {}, "s", "p", era, {})
        self.record = new_record(call, unused, TimeLimits(1, 1), HandClock())
        self.woken = 0
        session = Session("s", LOCAL, era, "2025-11-25", log_level=level)
        self.responder = CallResponder(
            cast(HubPort, ResponderPort()), b'"r1"', session, handle_of(self.record), token, self.wake
        )
        self.record.log.append(Started())

    def wake(self) -> None:
        self.woken += 1

    def gets(self, *events: CallEvent) -> list[Any]:
        """The notifications that it is sent for these."""
        for event in events:
            self.record.send(event)
        return [json.loads(frame) for frame in self.responder.take()]

    @property
    def answer(self) -> Any:
        assert self.responder.answer is not None
        return json.loads(whole(self.responder.answer))


def log(level: str) -> Log:
    return Log(level, json.dumps({"level": level, "data": 1}).encode())


@pytest.mark.parametrize("era", Era)
def test_progress_goes_only_to_who_gave_a_token_and_under_that_token(era: Era) -> None:
    sent = (Progressed(1, 9), Progressed(2.5))
    assert Client(era).gets(*sent) == []
    (first, second) = Client(era, token=b'"t\\u0041"').gets(*sent)
    assert first["params"] == {"progressToken": "tA", "progress": 1, "total": 9}
    assert second["params"] == {"progressToken": "tA", "progress": 2.5}


def test_progress_increases_whatever_the_upstream_sends() -> None:
    values = [message["params"]["progress"] for message in Client(token=b"1").gets(*map(Progressed, (5, 5, 1, -3, 6)))]
    assert values == sorted(set(values)) and (values[0], values[-1]) == (5, 6)


@pytest.mark.parametrize(
    ("era", "level", "received"),
    [
        (HANDSHAKE, None, ["debug", "error", "odd"]),
        (HANDSHAKE, "debug", ["debug", "error", "odd"]),
        (HANDSHAKE, "warning", ["error", "odd"]),
        (HANDSHAKE, "emergency", ["odd"]),
        (MODERN, None, []),
        (MODERN, "debug", ["debug", "error", "odd"]),
        (MODERN, "error", ["error", "odd"]),
    ],
)
def test_log_messages_go_to_who_wants_them(era: Era, level: str | None, received: list[str]) -> None:
    messages = Client(era, level=level).gets(log("debug"), log("error"), log("odd"))
    assert [message["params"]["level"] for message in messages] == received
    assert {message["method"] for message in messages} <= {"notifications/message"}


def test_a_level_admits_itself_and_what_is_worse() -> None:
    for place, wanted in enumerate(LOG_LEVELS):
        assert [level for level in LOG_LEVELS if level_admits(wanted, level)] == list(LOG_LEVELS[place:])


def test_all_that_comes_before_the_result_is_sent_before_it_and_in_order() -> None:
    client = Client(token=b"7")
    messages = client.gets(Progressed(1), log("info"), Progressed(2), Delta(b"[]"), Completed(b'{"content":[]}'))
    assert [message["method"].rpartition("/")[2] for message in messages] == ["progress", "message", "progress"]
    assert client.answer == {"jsonrpc": "2.0", "id": "r1", "result": {"content": []}}
    assert client.responder.ended and not client.responder.has_more


def test_a_client_is_woken_when_there_is_more_and_not_after_it_has_left() -> None:
    client = Client()
    woken = client.woken
    client.record.send(log("info"))
    assert client.woken > woken and client.responder.has_more and not client.responder.ended
    client.responder.close()
    woken = client.woken
    client.record.send(log("info"))
    assert client.woken == woken


def test_a_call_that_its_client_took_back_has_no_answer() -> None:
    client = Client()
    assert client.gets(Cancelled(BY_CLIENT)) == []
    assert client.responder.ended and client.responder.answer is None


def test_a_call_that_somebody_else_cancelled_is_answered_with_an_error() -> None:
    client = Client()
    assert client.gets(Cancelled("enough")) == []
    assert client.responder.ended and client.responder.answer is not None
    error = json.loads(whole(client.responder.answer))["error"]
    assert error["code"] == 1009 and "enough" in error["message"]


@pytest.mark.parametrize(
    ("upstream", "client", "expected"),
    [
        (HANDSHAKE, MODERN, {"resultType": "complete", "a": 1}),
        (HANDSHAKE, HANDSHAKE, {"a": 1}),
        (MODERN, MODERN, {"resultType": "complete", "a": 1}),
        (MODERN, HANDSHAKE, {"a": 1}),
    ],
)
def test_a_result_has_the_shape_of_the_clients_era(upstream: Era, client: Era, expected: dict[str, Any]) -> None:
    raw = b'{"resultType":"complete","a":1}' if upstream is MODERN else b'{"a":1}'
    receiver = Client(client)
    receiver.gets(Completed(raw, upstream))
    assert receiver.answer["result"] == expected and receiver.responder.error_code is None


@pytest.mark.parametrize("kind", ['"hologram"', '"input_required"', "5", "null"])
def test_a_result_type_of_a_server_of_a_handshake_era_means_nothing(kind: str) -> None:
    client = Client(HANDSHAKE)
    client.gets(Completed(f'{{"resultType":{kind},"a":1}}'.encode(), HANDSHAKE))
    assert client.answer["result"] == {"a": 1}


def test_a_result_that_the_client_could_not_understand_is_an_error() -> None:
    client = Client(HANDSHAKE)
    client.gets(Completed(b'{"resultType":"task","taskId":"1"}', MODERN))
    assert client.answer["error"]["code"] == client.responder.error_code == -32603


@pytest.mark.parametrize(
    ("raw", "era", "code"),
    [
        (b'{"code":-32002,"message":"no","data":{"uri":"x:1"},"more":1}', HANDSHAKE, -32002),
        (b'{"code":-32002,"message":"no","data":{"uri":"x:1"},"more":1}', MODERN, -32602),
        (b'{"code":-32022,"message":"no"}', MODERN, -32603),
        (b'{"code":7,"message":"no"}', MODERN, 7),
    ],
)
def test_an_error_has_the_code_that_the_clients_era_allows(raw: bytes, era: Era, code: int) -> None:
    client = Client(era)
    client.gets(Failed(RpcError("no", code=json.loads(raw)["code"], raw=raw)))
    assert client.answer["error"]["code"] == client.responder.error_code == code
    assert client.answer["id"] == "r1"


def test_an_error_of_the_hub_passes_with_its_data() -> None:
    client = Client(MODERN)
    client.gets(Failed(DeadlineExceeded("too long", data={"seconds": 1})))
    assert client.answer["error"] == {
        "code": 1003,
        "message": "too long",
        "data": {"code": "deadline_exceeded", "seconds": 1, "upstream": {"server": "git"}},
    }

"""Calls of methods that the hub does not know: they may write, and have the limits of their server."""

from typing import Any

import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.calls.attempts import Retries
from mcp_hub.calls.gates.steps import ORDER, Gates
from mcp_hub.calls.plan import CallPlan, CallRules
from mcp_hub.calls.reading.stored import exported_name, own_name
from mcp_hub.clock import SystemClock
from mcp_hub.errors import UpstreamLost
from mcp_hub.events import Log
from mcp_hub.protocol.shape.questions import can_answer, for_version
from mcp_hub.protocol.shape.results import log_frame
from mcp_hub.protocol.shape.stream_events import decoded, encoded
from mcp_hub.types import HANDSHAKE, CallId

ACME = "acme/change"


def call(method: str) -> Call:
    params = {"name": msgspec.Raw(b'"look"')}
    return Call(
        CallId("st_1"), "one", method, params, meta={}, session="s", principal="p", era=HANDSHAKE, capabilities={}
    )  # fmt: skip


@pytest.mark.parametrize(("method", "repeats"), [(ACME, False), ("tools/call", False), ("prompts/get", True)])
def test_a_call_that_may_have_reached_the_server_is_not_repeated(method: str, repeats: bool) -> None:
    retries = Retries(lambda call: CallRules(), lambda server: 0, SystemClock())
    assert retries.covers(call(method), UpstreamLost("gone", data={"outcome": "unknown"})) is repeats
    assert CallPlan().is_read_only(call(method)) is repeats


def test_its_name_is_its_method_whatever_params_name() -> None:
    assert own_name(call(ACME)) == exported_name(call(ACME)) == ACME
    assert own_name(call("tools/call")) == "look"


def test_limits_of_the_server_hold_and_rules_for_tools_do_not() -> None:
    gates, asked = Gates(), []

    async def step(*values: Any) -> Any: ...

    def maker(name: str) -> Any:
        def make(*key: Any) -> Any:
            asked.append((name, *key))
            return step

        return make

    for name in ORDER:
        gates.install(name, maker(name))
    assert len(gates.steps(call(ACME))) == 2
    assert asked == [("rate", "one", "", None), ("concurrency", "one", "", None)]
    assert len(gates.steps(call("tools/call"))) == len(ORDER)
    assert gates.steps(call("prompts/get")) == ()


@pytest.mark.parametrize("params", [b"{}", b'{"level":"info","method":"tools/call"}', b'{"x":1.50}'])
def test_a_notification_keeps_its_method_in_a_stream_and_a_log_message_gets_none(params: bytes) -> None:
    for method in (ACME, None):
        if method is None and b"level" not in params:
            continue
        line = encoded(CallId("st_1"), 2, "2026-01-01T00:00:00.000Z", Log("info", params, method))
        _, event = decoded(line)
        assert isinstance(event, Log) and event.method == method
        assert bytes(event.params) == params
        name = method or "notifications/message"
        assert log_frame(event).strip() == b'{"jsonrpc":"2.0","method":"%b","params":%b}' % (name.encode(), params)


def test_params_of_a_question_stay_as_they_are() -> None:
    params = b'{"task":1,"_meta":{"progressToken":5},"mode":"url"}'
    assert for_version("acme/question", params, "2025-06-18", "e1") == params
    assert can_answer({}, "2025-11-25", "acme/question", params) is None
    assert can_answer({}, "2026-07-28", "acme/question", params) is not None
    assert can_answer({}, "2025-11-25", "tools/call", params) is not None

"""What servers ask in the middle of a call, and whom: exactly the caller of one call, or nobody."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import CallEnded
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.events import Completed
from mcp_hub.types import Era, JsonObject
from mcp_hub.upstreams.peer.peer import Peer
from tests.unit.upstreams.function_calls import Recorder
from tests.unit.upstreams.scripted import Server, answering, talking, together
from tests.unit.upstreams.task_calls import HANDSHAKE, Running, call, calling
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import until

pytestmark = pytest.mark.anyio

FORM = {"message": "name?", "requestedSchema": {"type": "object", "properties": {}}}


async def declined(server: Server, id_: Any) -> JsonObject:
    refusal = await server.line()
    assert refusal["id"] == id_
    error: JsonObject = refusal["error"]
    return error


async def ended(server: Server, request: JsonObject, made: Running) -> None:
    """The call continues after the question, to its result."""
    await server.send(id=request["id"], result={"content": []})
    assert isinstance(await made.outcome(), Completed)


@asynccontextmanager
async def beside(
    sessions: str, principals: str = ""
) -> AsyncIterator[tuple[Peer, Server, list[Running], list[JsonObject]]]:
    """Calls of these sessions that a handshake server has, and their requests; of `p` unless there are principals."""
    async with talking() as (peer, server), group() as tasks:
        pairs = zip(sessions, principals or "p" * len(sessions), strict=True)
        calls = [Running(tasks, peer.call, call(session=s, principal=p, **HANDSHAKE)) for s, p in pairs]
        yield peer, server, calls, [await server.expect("tools/call") for _ in calls]


async def test_a_question_goes_to_the_caller_and_the_answer_back_byte_for_byte() -> None:
    async with calling() as (_, server, made):
        request = await server.expect("tools/call")
        await server.send(id="e1", method="elicitation/create", params={**FORM, "x": 1})
        (key,) = await made.asked()
        question = made.record.questions.open[key]
        assert (question.method, json.loads(bytes(question.params))) == ("elicitation/create", {**FORM, "x": 1})
        big = '{"action":"accept","content":{"n":1.10},"later":18446744073709551617}'
        assert made.record.questions.answer(key, msgspec.Raw(big.encode()))
        assert not made.record.questions.answer(key, msgspec.Raw(b"{}")), "an answer counts once"
        chunk = await server.chunk()
        assert chunk == b'{"jsonrpc":"2.0","id":"e1","result":%s}\n' % big.encode()
        await ended(server, request, made)


async def test_the_callers_error_reaches_the_server_and_the_call_continues() -> None:
    async with calling() as (_, server, made):
        request = await server.expect("tools/call")
        await server.send(id=1, method="sampling/createMessage", params={"messages": [], "maxTokens": 1})
        (key,) = await made.asked()
        made.record.questions.answer(key, RpcError("User rejected", code=-1, data={"why": 1}))
        assert await declined(server, 1) == {"code": -1, "message": "User rejected", "data": {"why": 1}}
        await ended(server, request, made)


@pytest.mark.parametrize("params", [None, []])
async def test_question_without_params_gets_an_object(params: Any) -> None:
    async with calling(capabilities={"roots": {}}) as (_, server, made):
        request = await server.expect("tools/call")
        await server.send(id=1, method="roots/list", params=params)
        (key,) = await made.asked()
        assert bytes(made.record.questions.open[key].params) == b"{}"
        made.record.questions.answer(key, msgspec.Raw(b'{"roots":[]}'))
        await server.line()
        await ended(server, request, made)


URL = {"mode": "url", "url": "https://x", "message": "m"}
LACKS: list[tuple[JsonObject, str, JsonObject, str, int]] = [
    ({}, "elicitation/create", FORM, "elicitation", -32601),
    ({}, "elicitation/create", URL, "elicitation", -32601),
    ({"elicitation": {}}, "elicitation/create", URL, "elicitation.url", -32602),
    ({"elicitation": {"form": {}}}, "elicitation/create", URL, "elicitation.url", -32602),
    ({"sampling": {}}, "sampling/createMessage", {"tools": []}, "sampling.tools", -32601),
    ({"elicitation": {}}, "roots/list", {}, "roots", -32601),
]


@pytest.mark.parametrize(("capabilities", "method", "params", "lack", "code"), LACKS)
async def test_question_that_the_caller_cannot_answer_is_declined_by_name(
    capabilities: JsonObject, method: str, params: JsonObject, lack: str, code: int
) -> None:
    async with calling(capabilities=capabilities) as (_, server, made):
        request = await server.expect("tools/call")
        await server.send(id=1, method=method, params=params)
        error = await declined(server, 1)
        assert error["code"] == code and lack in error["message"] and not made.record.questions.open
        await ended(server, request, made)


async def test_a_question_is_asked_again_on_another_call_of_its_session_if_the_call_it_was_asked_on_ends() -> None:
    """Nothing says which of the calls has asked: the end of one is no end of the question while others wait."""
    async with beside("aa") as (_, server, made, requests):
        await server.send(id="e1", method="elicitation/create", params=FORM)
        (key,) = await made[1].asked()
        await ended(server, requests[1], made[1])
        made[1].record.questions.open.pop(key).answered(CallEnded("the call has ended"))
        (key,) = await made[0].asked()
        made[0].record.questions.answer(key, msgspec.Raw(b'{"action":"decline"}'))
        assert (await server.line()) == {"jsonrpc": "2.0", "id": "e1", "result": {"action": "decline"}}
        await ended(server, requests[0], made[0])


@pytest.mark.parametrize("session", ["a", "b"])
async def test_a_question_ends_with_the_last_call_that_may_have_asked_it(session: str) -> None:
    """A call of another session that came later has not asked."""
    async with talking(Era.HANDSHAKE) as (peer, server), group() as tasks:
        first = Running(tasks, peer.call, call(session="a", **HANDSHAKE))
        request = await server.expect("tools/call")
        await server.send(id="e1", method="elicitation/create", params=FORM)
        (key,) = await first.asked()
        if session == "b":
            other = Running(tasks, peer.call, call(session="b", **HANDSHAKE))
            await server.expect("tools/call")
        await ended(server, request, first)
        first.record.questions.open.pop(key).answered(CallEnded("the call has ended"))
        assert (await declined(server, "e1"))["message"] == "the call has ended"
        assert session == "a" or not other.record.questions.open


async def test_a_question_beside_calls_of_other_sessions_is_that_of_the_call_which_is_left() -> None:
    async with beside("ab") as (peer, server, made, (first, second)):
        await server.send(id=1, method="elicitation/create", params=FORM)
        await until(lambda: peer.messages.is_interactive)
        assert not any(one.record.questions.open for one in made)
        await ended(server, first, made[0])
        assert await made[1].asked()
        made[1].record.questions.answer("q1", b'{"action":"decline"}')
        answer = await server.line()
        assert answer["id"] == 1 and answer["result"] == {"action": "decline"}
        await ended(server, second, made[1])


async def test_when_all_calls_may_be_waiting_the_newest_question_is_declined() -> None:
    async with beside("ab") as (_, server, made, (first, _)):
        for id_ in (1, 2):
            await server.send(id=id_, method="elicitation/create", params=FORM)
        assert "nobody to ask" in (await declined(server, 2))["message"]
        await ended(server, first, made[0])  # the second question was its own
        assert await made[1].asked()


async def test_a_question_is_not_held_where_it_may_be_that_of_another_principal() -> None:
    async with beside("abc", "abc") as (_, server, made, requests):
        await server.send(id=1, method="elicitation/create", params=FORM)
        assert "nobody to ask" in (await declined(server, 1))["message"]
        await ended(server, requests[0], made[0])
        assert not any(one.record.questions.open for one in made)


@asynccontextmanager
async def after_cancellation(principal: str = "p") -> AsyncIterator[tuple[Server, Running, JsonObject]]:
    """A call of another session than a cancelled one of this principal, and the ping behind the cancellation."""
    async with talking() as (peer, server), group() as tasks:
        gone = Running(tasks, peer.call, call(session="a", principal=principal, **HANDSHAKE))
        await server.expect("tools/call")
        gone.scope.cancel()
        await server.expect("notifications/cancelled")
        ping = await server.expect("ping")
        other = Running(tasks, peer.call, call(session="b", principal="p", **HANDSHAKE))
        await server.expect("tools/call")
        yield server, other, ping


@pytest.mark.parametrize("is_read_first", [True, False])
async def test_question_after_a_cancellation_is_of_the_other_call_once_the_server_has_read_it(
    is_read_first: bool,
) -> None:
    async with after_cancellation() as (server, other, ping):
        if is_read_first:
            await server.send(id=ping["id"], result={})
        await server.send(id=1, method="elicitation/create", params=FORM)
        if not is_read_first:
            await server.flush()
            assert not other.record.questions.open, "it may be that of the cancelled call"
            await server.send(id=ping["id"], result={})
        (key,) = await other.asked()
        other.record.questions.answer(key, msgspec.Raw(b'{"action":"decline"}'))
        assert await server.line() == {"jsonrpc": "2.0", "id": 1, "result": {"action": "decline"}}


async def test_question_at_a_server_that_answers_no_ping_is_of_the_other_call_after_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.peer.callers._ECHO", 0.3)
    async with after_cancellation() as (server, other, _):
        await server.send(id=1, method="elicitation/create", params=FORM)
        assert await other.asked()


async def test_question_after_a_cancellation_is_declined_if_the_other_call_ends_first() -> None:
    async with after_cancellation() as (server, other, ping):
        await server.send(id=1, method="elicitation/create", params=FORM)
        await server.flush()
        other.scope.cancel()
        await server.expect("notifications/cancelled")
        await server.expect("ping")
        await server.send(id=ping["id"], result={})
        assert "nobody to ask" in (await declined(server, 1))["message"] and not other.record.questions.open


@pytest.mark.parametrize("is_read", [True, False])
async def test_question_after_a_cancellation_by_another_principal_is_declined(is_read: bool) -> None:
    async with after_cancellation("q") as (server, other, ping):
        if is_read:
            await server.send(id=ping["id"], result={})
        await server.send(id=1, method="elicitation/create", params=FORM)
        assert "nobody to ask" in (await declined(server, 1))["message"] and not other.record.questions.open


@pytest.mark.parametrize("sessions", ["ab", "abc"])
async def test_a_question_is_declined_once_a_call_that_may_have_asked_is_given_up(sessions: str) -> None:
    async with beside(sessions) as (peer, server, made, _):
        await server.send(id=1, method="elicitation/create", params=FORM)
        await until(lambda: peer.messages.is_interactive)
        made[0].scope.cancel()
        await server.expect("notifications/cancelled")
        ping = await server.expect("ping")
        await server.send(id=ping["id"], result={})
        assert "nobody to ask" in (await declined(server, 1))["message"]
        assert not any(one.record.questions.open for one in made)


async def test_unclear_question_is_declined_and_a_withdrawn_one_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.peer.questions._UNCLEAR", 0.1)
    async with beside("abc") as (_, server, made, _):
        await server.send(id=1, method="elicitation/create", params=FORM)
        await server.send(method="notifications/cancelled", params={"requestId": 1})
        await server.send(id=2, method="elicitation/create", params=FORM)
        assert "nobody to ask" in (await declined(server, 2))["message"]
        assert not any(one.record.questions.open for one in made)


async def test_outside_any_call_nobody_is_asked_and_the_server_does_not_count_as_interactive() -> None:
    async with talking() as (peer, server):
        await server.send(id=1, method="roots/list")
        assert "nobody to ask" in (await declined(server, 1))["message"] and not peer.messages.is_interactive


async def test_a_completion_cannot_be_asked_about_but_the_tool_call_beside_it_can() -> None:
    async with talking() as (peer, server), group() as tasks:
        completion = Running(tasks, peer.call, call(method="completion/complete", **HANDSHAKE))
        await server.send(id=1, method="roots/list")
        await server.expect("completion/complete")
        assert "nobody to ask" in (await declined(server, 1))["message"]
        tool = Running(tasks, peer.call, call(**HANDSHAKE))
        Running(tasks, peer.call, call(method="completion/complete", **HANDSHAKE))  # the newest call
        await anyio.wait_all_tasks_blocked()
        await server.send(id=2, method="roots/list")
        assert await tool.asked() and not completion.record.questions.open


async def test_a_question_that_the_server_takes_back_is_withdrawn() -> None:
    async with calling() as (_, server, made):
        await server.send(id=5, method="roots/list")
        await made.asked()
        await server.send(method="notifications/cancelled", params={"requestId": 5})
        await until(lambda: not made.record.questions.open)


@pytest.mark.parametrize(
    ("ids", "said"), [([5, 5], "still being answered"), (range(65), "64 questions")], ids=["the same id", "too many"]
)
async def test_a_question_too_many_is_refused(ids: Sequence[int], said: str) -> None:
    async with calling() as (_, server, made):
        await server.expect("tools/call")
        for number in ids:
            await server.send(id=number, method="roots/list")
        assert said in (await declined(server, ids[-1]))["message"]
        assert len(made.record.questions.open) == len(ids) - 1


def wants(state: str | None = None, **requests: Any) -> JsonObject:
    asked_for = {key: {"method": method, "params": params} for key, (method, params) in requests.items()}
    result: JsonObject = {"resultType": "input_required"}
    if asked_for:
        result["inputRequests"] = asked_for
    return result if state is None else {**result, "requestState": state}


async def test_a_modern_server_gets_its_answers_in_a_retry_with_its_state() -> None:
    async with calling(Era.MODERN) as (_, server, made):
        wanted = wants("s1", a=("elicitation/create", FORM), b=("roots/list", {}))
        first = await server.answer("tools/call", wanted)
        one, two = await made.asked(2)
        made.record.questions.answer(two, msgspec.Raw(b'{"roots":[]}'))
        made.record.questions.answer(one, msgspec.Raw(b'{"action":"decline"}'))
        second = await server.answer("tools/call", {"resultType": "complete", "content": []})
        assert second["id"] != first["id"]
        assert second["params"]["requestState"] == "s1"
        assert second["params"]["inputResponses"] == {"a": {"action": "decline"}, "b": {"roots": []}}
        assert second["params"]["name"] == "x"
        assert isinstance(await made.outcome(), Completed)


async def test_an_answer_to_a_server_that_has_gone_meanwhile_fails_the_call_which_is_not_begun_anew() -> None:
    async with calling(Era.MODERN) as (peer, server, made):
        await server.answer("tools/call", wants("s1", a=("elicitation/create", FORM)))
        (key,) = await made.asked()
        server.close()
        await until(lambda: not peer.wire.can_send)
        made.record.questions.answer(key, msgspec.Raw(b'{"action":"decline"}'))
        lost = await made.error()
        assert isinstance(lost, UpstreamLost) and (lost.data or {})["outcome"] == "unknown"


async def test_a_state_alone_is_handed_back_at_once() -> None:
    async with calling(Era.MODERN) as (_, server, made):
        await server.answer("tools/call", wants("only"))
        retry = await server.answer("tools/call", {"resultType": "complete", "content": []})
        assert retry["params"]["requestState"] == "only" and "inputResponses" not in retry["params"]
        assert isinstance(await made.outcome(), Completed)


async def test_a_server_that_never_has_enough_is_given_up() -> None:
    async with calling(Era.MODERN) as (_, server, made):
        for number in range(10):
            await server.answer("tools/call", wants(f"s{number}"))
        assert "10 times" in (await made.error()).message


async def test_an_error_of_the_client_fails_the_call_and_is_shown() -> None:
    async with calling(Era.MODERN) as (_, server, made):
        await server.answer("tools/call", wants("s", a=("roots/list", {}), b=("elicitation/create", FORM)))
        keys = await made.asked(2)
        made.record.questions.answer(keys[0], RpcError("no", code=-1))
        data = (await made.error()).data or {}
        assert data["question"] == "roots/list" and b'"code":-1' in bytes(data["error"])
        assert not made.record.questions.open, "the other question is off"


async def test_what_the_caller_did_not_declare_fails_the_call_by_name() -> None:
    async with calling(Era.MODERN, capabilities={"roots": {}}) as (_, server, made):
        await server.answer("tools/call", wants("s", a=("sampling/createMessage", {"messages": []})))
        assert "did not declare sampling" in (await made.error()).message


async def test_for_a_modern_caller_the_result_that_asks_passes_through() -> None:
    retry = {"input_responses": {"k": msgspec.Raw(b'{"a":1}')}, "request_state": "s0"}
    async with calling(Era.MODERN, era=Era.MODERN, version="2026-07-28", **retry) as (_, server, made):
        wanted = wants("s1", a=("roots/list", {}))
        sent = await server.answer("tools/call", wanted)
        assert sent["params"]["inputResponses"] == {"k": {"a": 1}} and sent["params"]["requestState"] == "s0"
        outcome = await made.outcome()
        assert isinstance(outcome, Completed) and json.loads(bytes(outcome.result)) == wanted


async def test_when_the_call_is_cancelled_its_questions_are_off() -> None:
    async with calling(Era.MODERN) as (_, server, made):
        await server.answer("tools/call", wants("s", a=("roots/list", {})))
        await made.asked()
    assert not made.record.questions.open


CHANGES = [("a", 0, False), ("a", 1, True), ("a", 1, False), ("b", 0, False), ("b", 2, True), ("a", 1, False)]


@pytest.mark.parametrize(
    ("era", "calls"), [(Era.HANDSHAKE, [*CHANGES, ("a", 2, True)]), (Era.MODERN, [("s", 1, False)])]
)
async def test_changed_roots_reach_a_server_once_before_a_call(era: Era, calls: list[tuple[str, int, bool]]) -> None:
    done = {"resultType": "complete", "content": []}
    async with talking(era) as (peer, server):
        for session, changes, is_passed_on in calls:
            news = [("notifications/roots/list_changed", None)] * is_passed_on
            made = msgspec.structs.replace(call(), session=session, roots_changes=changes)
            await together(answering(*news, ("tools/call", done))(server), peer.call(made, Recorder()))

"""The fixture server asks a modern client by result: what travels in `requestState`, and what a retry may be."""

from typing import Any

import pytest

from tests.e2e.answers import EVERYTHING, Answers, error, follow_input, never
from tests.e2e.client import StdioClient, modern
from tests.interaction.fronts import HANDSHAKE, MODERN
from tests.unit.asked_peers import ALL, asked, told
from tests.upstreams.launch import argv

pytestmark = pytest.mark.anyio


async def test_retry_may_meet_another_process() -> None:
    async with StdioClient(argv(era=MODERN)) as one, StdioClient(argv(era=MODERN)) as other:
        processes = [one, other]

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            processes.reverse()
            return await processes[0].request("tools/call", params)

        params = modern({"name": "ask_two", "arguments": {"nonce": "x"}}, capabilities=EVERYTHING)
        answer, rounds = await follow_input(send, params, Answers(ALL))
    assert list(answer["result"]["structuredContent"]["answers"]) == ["first", "second"]
    assert [list(found["inputRequests"]) for found in rounds] == [["first"], ["second"]]


async def test_what_was_not_answered_is_asked_again() -> None:
    async with StdioClient(argv(era=MODERN)) as c:
        params = modern({"name": "ask_both", "arguments": {}}, capabilities=EVERYTHING)
        first = (await c.request("tools/call", params))["result"]
        assert list(first["inputRequests"]) == ["first", "second"]
        retry = {"inputResponses": {"second": {"action": "decline"}, "unknown": {}}}
        again = (await c.request("tools/call", {**params, **retry, "requestState": first["requestState"]}))["result"]
        assert list(again["inputRequests"]) == ["first"]
        retry = {"inputResponses": {"first": {"action": "cancel"}}, "requestState": again["requestState"]}
        done = (await c.request("tools/call", {**params, **retry}))["result"]
        assert done["structuredContent"]["answers"] == {
            "first": {"result": {"action": "cancel"}},
            "second": {"result": {"action": "decline"}},
        }


async def test_state_alone_is_a_round() -> None:
    async with asked(MODERN, Answers({})) as peer:
        seen = await peer.call("ask_state_only", {"n": 3, "nonce": "s"})
        assert [list(found) for found in seen.rounds] == [["resultType", "requestState", "_meta"]] * 3
        assert told(seen) == {"nonce": "s", "answers": {}}
    async with asked(HANDSHAKE, Answers({})) as peer:
        assert told(await peer.call("ask_state_only", {"n": 3})) == {"nonce": None, "answers": {}}


async def test_state_may_be_left_out() -> None:
    answers = Answers(ALL)
    async with asked(MODERN, answers) as peer:
        seen = await peer.call("ask_form", {"no_state": True})
    assert "requestState" not in seen.rounds[0]
    assert told(seen)["answers"]["form"]["result"]["action"] == "accept"


async def test_state_that_was_changed_or_belongs_elsewhere_is_refused() -> None:
    async with StdioClient(argv(era=MODERN)) as c:
        params = modern({"name": "ask_form", "arguments": {"nonce": "a"}}, capabilities=EVERYTHING)
        state = (await c.request("tools/call", params))["result"]["requestState"]
        answered = {"inputResponses": {"form": {"action": "accept"}}}
        for given, changed in ((state[:-1], "a"), (f"x{state}", "a"), ("", "a"), ("é", "a"), (state, "b")):
            retry = modern({**params, "arguments": {"nonce": changed}, **answered, "requestState": given})
            assert (await c.request("tools/call", retry))["error"]["code"] == -32602, given
        wrong = {**params, "inputResponses": [], "requestState": state}
        assert (await c.request("tools/call", wrong))["error"]["code"] == -32602
        right = {**params, **answered, "requestState": state}
        assert "result" in await c.request("tools/call", right)


async def test_follower_stops_where_nothing_is_answered() -> None:
    answers = Answers({"elicitation/create": never(), "roots/list": error(1, "no")})
    async with asked(MODERN, answers) as peer:
        seen = await peer.call("ask_both", {"kinds": ["form", "roots"]})
    assert seen.result["resultType"] == "input_required"
    assert len(seen.rounds) == 1

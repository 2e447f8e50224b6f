"""Clients that answer a question wrongly, twice, late or never, and states that were forged, taken or used before."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.answers import EVERYTHING, Answers, Reply, form
from tests.interaction.fronts import FRONTS, HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_hub
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

HUB = {"limits": {"question_timeout": "1s"}}
CAPABLE = {"io.modelcontextprotocol/clientCapabilities": EVERYTHING}


def config(**hub: Any) -> str:
    return servers_yaml({"s": argv(name="s", era=HANDSHAKE)}, hub=hub or HUB)


@asynccontextmanager
async def asked(front: str, root: Path, answers: Answers) -> AsyncIterator[Peer]:
    """A handshake client that answers like that."""
    async with AsyncExitStack() as stack:
        if front == "http":
            hub = await stack.enter_async_context(http_hub(config(), root))
            yield await stack.enter_async_context(connected(hub, HANDSHAKE, answers=answers))
        else:
            wire = await stack.enter_async_context(stdio_hub(config(), root))
            wire.answers = answers
            await wire.initialize()
            yield await stack.enter_async_context(connected(wire, HANDSHAKE, answers=answers))


def answer_of(seen: Any, key: str = "form") -> Message:
    told: Message = seen.result["structuredContent"]["answers"][key]
    return told


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.first(1)
async def test_an_answer_to_another_question_is_none_to_this_one(front: str, tmp_path: Path) -> None:
    scripts = [form(answer="a").with_id(9999), form(answer="b").with_id("9999"), form(answer="c")]
    async with asked(front, tmp_path, Answers({"elicitation/create": scripts})) as peer:
        for _ in range(2):
            assert (await peer.call("s_ask_form", {})).error["code"] == 1003
        assert answer_of(await peer.call("s_ask_form", {}))["result"]["content"] == {"answer": "c"}


@pytest.mark.parametrize("front", FRONTS)
async def test_the_second_of_two_answers_does_not_count_for_the_next_question(front: str, tmp_path: Path) -> None:
    scripts = [form(answer="first").twice(), form(answer="second").late(0.1)]
    async with asked(front, tmp_path, Answers({"elicitation/create": scripts})) as peer:
        seen = await peer.call("s_ask_two", {})
        assert answer_of(seen, "first")["result"]["content"] == {"answer": "first"}
        assert answer_of(seen, "second")["result"]["content"] == {"answer": "second"}


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.first(1)
async def test_a_late_answer_is_dropped_and_does_no_harm(front: str, tmp_path: Path) -> None:
    gate = anyio.Event()
    scripts = [form(answer="late").late(gate), form(answer="in time").late(0.2)]
    async with asked(front, tmp_path, Answers({"elicitation/create": scripts})) as peer:
        assert (await peer.call("s_ask_form", {})).error["code"] == 1003
        gate.set()
        assert answer_of(await peer.call("s_ask_form", {}))["result"]["content"] == {"answer": "in time"}


NO_ANSWERS: list[Message] = [
    {"result": []},
    {"result": "yes"},
    {"result": None},
    {"error": "no"},
    {"error": {"message": "no code"}},
    {"error": None},
]


@pytest.mark.parametrize("front", FRONTS)
async def test_an_invalid_answer_becomes_an_error_for_the_server_and_the_call_continues(
    front: str, tmp_path: Path
) -> None:
    answers = Answers({"elicitation/create": [Reply(body) for body in NO_ANSWERS]})
    async with asked(front, tmp_path, answers) as peer:
        for body in NO_ANSWERS:
            seen = await peer.call("s_ask_form", {})
            assert "error" in answer_of(seen) and isinstance(answer_of(seen)["error"]["code"], int), body


# -- states


async def pending(peer: Peer, tool: str = "s_ask_form", **arguments: Any) -> Message:
    """The body of a call whose client is asked now, with the state to come back with."""
    body: Message = {"name": tool, "arguments": arguments, "_meta": CAPABLE}
    first = (await peer.request("tools/call", body)).result
    (key,) = first["inputRequests"]
    responses = {key: {"action": "accept", "content": {"answer": "x"}}}
    return {**body, "requestState": first["requestState"], "inputResponses": responses}


@pytest.fixture(scope="module", params=FRONTS)
async def modern(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Peer]:
    """A modern client on each front, in front of a handshake server `s` and a modern one, `m`."""
    root = tmp_path_factory.mktemp("modern")
    text = servers_yaml({"s": argv(name="s", era=HANDSHAKE), "m": argv(name="m", era=MODERN)}, hub={"limits": {}})
    async with (stdio_hub if request.param == "stdio" else http_hub)(text, root) as hub, connected(hub, MODERN) as peer:
        await peer.names()
        yield peer


async def test_only_the_state_that_was_given_opens_the_call_and_only_once(modern: Peer) -> None:
    good = await pending(modern)
    state = good["requestState"]
    forged = ["x", "", "hub1.", state[:-1], state + "x", state[:-1] + ("0" if state[-1] != "0" else "1"), "up1.x" * 20]
    for wrong in forged[:-1]:
        error = (await modern.request("tools/call", {**good, "requestState": wrong})).error
        assert error["code"] == -32602 and "requestState" in error["message"], wrong
    for body in (
        {**good, "arguments": {"message": "other"}},
        {**good, "name": "s_ask_url"},
        {**good, "inputResponses": []},
        {**good, "inputResponses": {"q1": "yes"}},
        {**good, "requestState": 7},
        {**good, "requestState": "x" * 100_000},
    ):
        assert (await modern.request("tools/call", body)).error["code"] == -32602, body
    assert answer_of(await modern.request("tools/call", good))["result"]["content"] == {"answer": "x"}
    assert (await modern.request("tools/call", good)).error["code"] == -32602, "it was used"


async def test_answers_that_are_missing_are_asked_for_again_and_others_ignored(modern: Peer) -> None:
    good = await pending(modern)
    again = (await modern.request("tools/call", {**good, "inputResponses": {"other": {"action": "accept"}}})).result
    assert again["resultType"] == "input_required" and again["requestState"] != good["requestState"]
    assert again["inputRequests"].keys() == good["inputResponses"].keys()
    body = {**good, "requestState": again["requestState"]}
    assert answer_of(await modern.request("tools/call", body))["result"]["content"] == {"answer": "x"}


async def test_a_state_is_of_no_use_to_another_principal(tmp_path: Path) -> None:
    tokens = [{"token": name * 8, "principal": name} for name in ("anna", "bert")]
    async with (
        http_hub(config(tokens=tokens), tmp_path) as hub,
        connected(hub, MODERN, "anna" * 8) as anna,
        connected(hub, MODERN, "bert" * 8) as bert,
    ):
        await anna.names()
        good = await pending(anna)
        assert (await bert.request("tools/call", good)).error == (
            await anna.request("tools/call", good | {"requestState": "hub1.x"})
        ).error
        assert answer_of(await anna.request("tools/call", good))["result"]["content"] == {"answer": "x"}


async def test_a_modern_servers_own_state_is_of_no_use_to_another_principal_and_outlives_the_hub(
    tmp_path: Path,
) -> None:
    tokens = [{"token": name * 8, "principal": name} for name in ("anna", "bert")]
    text = servers_yaml({"m": argv(name="m", era=MODERN)}, hub={"tokens": tokens, "limits": {}})
    async with (
        http_hub(text, tmp_path) as hub,
        connected(hub, MODERN, "anna" * 8) as anna,
        connected(hub, MODERN, "bert" * 8) as bert,
        connected(hub, HANDSHAKE, "bert" * 8) as older,
    ):
        await anna.names()
        good = await pending(anna, "m_ask_form")
        bare = good["requestState"].rpartition(".up1")[2].partition(".")[2].partition(".")[2]
        asked = await older.request("tools/call", good | {"requestState": bare})
        assert asked.text == "client cannot form", "nobody has answered"
        stolen = await bert.request("tools/call", good)
        assert stolen.error["code"] == -32602
        assert stolen.error == (await anna.request("tools/call", good | {"requestState": "up1.x"})).error
    async with http_hub(text, tmp_path) as hub, connected(hub, MODERN, "anna" * 8) as anna:
        await anna.names()
        answers = json.loads((await anna.request("tools/call", good)).text)["answers"]
        assert answers["form"]["result"]["action"] == "accept"


async def test_a_modern_servers_own_state_comes_back_as_it_was(modern: Peer) -> None:
    good = await pending(modern, "m_ask_form")
    assert good["requestState"].startswith("up1.")
    bare = {**good, "requestState": good["requestState"].removeprefix("up1.")}
    assert (await modern.request("tools/call", bare)).error["code"] == -32602
    assert (
        json.loads((await modern.request("tools/call", good)).text)["answers"]["form"]["result"]["action"] == "accept"
    )

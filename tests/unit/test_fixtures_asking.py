"""The fixture server asks its client, in the way of each era, and says exactly what it was told; the clients answer."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.answers import Answers, error, follow_input, form, never, result
from tests.e2e.client import StdioClient, until
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN
from tests.unit.asked_peers import ALL, ROOTS, SAMPLED, WIRES, asked, told
from tests.upstreams.launch import argv, events, received

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("over", WIRES)
@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(
    ("tool", "key", "method", "answer"),
    [
        ("ask_form", "form", "elicitation/create", {"action": "accept", "content": {"answer": "yes"}}),
        ("ask_sampling", "sampling", "sampling/createMessage", SAMPLED),
        ("ask_roots", "roots", "roots/list", ROOTS),
    ],
)
async def test_tool_asks_and_tells_what_came_back(
    era: str, over: str, tool: str, key: str, method: str, answer: dict[str, Any]
) -> None:
    answers = Answers(ALL)
    async with asked(era, answers, over=over) as peer:
        seen = await peer.call(tool, {"nonce": "n1", "extra": {"x": 2**70}})
    assert told(seen) == {"nonce": "n1", "answers": {key: {"result": answer}}}
    (params,) = answers.params(method)
    assert (params["x"], params["_meta"]) == (2**70, {"example.org/nonce": "n1"})
    assert len(seen.rounds) == (era == MODERN)
    assert len(seen.params(method)) == (era == HANDSHAKE)
    assert answers.sent == [{key: answer} if era == MODERN else {"jsonrpc": "2.0", "id": 1, "result": answer}]


async def test_questions_have_the_shape_of_their_era() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    asked_for: dict[str, Any] = {}
    for era in ERAS:
        answers = Answers(ALL)
        async with asked(era, answers) as peer:
            await peer.call("ask_form", {"message": "how many?", "schema": schema})
            await peer.call("ask_url", {"url": "https://example.org/pay"})
        asked_for[era] = answers.params("elicitation/create")
    assert asked_for[MODERN] == [
        {"mode": "form", "message": "how many?", "requestedSchema": schema},
        {"mode": "url", "message": "url", "url": "https://example.org/pay"},
    ]
    assert asked_for[HANDSHAKE][0] == asked_for[MODERN][0]
    assert asked_for[HANDSHAKE][1].pop("elicitationId")
    assert asked_for[HANDSHAKE][1] == asked_for[MODERN][1]


async def test_versions_without_modes_are_asked_without_one() -> None:
    answers = Answers(ALL)
    async with StdioClient(argv()) as wire:
        wire.answers = answers
        await wire.initialize("2025-06-18")
        await wire.call("ask_form")
    assert "mode" not in answers.params("elicitation/create")[0]


async def test_url_is_followed_by_its_completion_before_or_after_the_result() -> None:
    method = "notifications/elicitation/complete"
    answers = Answers(ALL)
    async with asked(HANDSHAKE, answers) as peer:
        seen = await peer.call("ask_url")
        (before,) = seen.params(method)
        assert before == {"elicitationId": answers.asked[0]["params"]["elicitationId"]}
        seen = await peer.call("ask_url", {"complete_after": 0.05})
        assert seen.params(method) == []
        assert isinstance(peer.wire, StdioClient)
        second = answers.asked[1]["params"]["elicitationId"]
        await peer.wire.wait_for(lambda m: m.get("method") == method and m["params"]["elicitationId"] == second)


@pytest.mark.parametrize("over", WIRES)
async def test_errors_and_declines_reach_the_tool_verbatim(over: str) -> None:
    answers = Answers(
        {"elicitation/create": [form("decline"), form("cancel")], "roots/list": error(-7, "no", {"deep": [1, None]})}
    )
    async with asked(HANDSHAKE, answers, over=over) as peer:
        for action in ("decline", "cancel"):
            assert told(await peer.call("ask_form"))["answers"] == {"form": {"result": {"action": action}}}
        refused = {"code": -7, "message": "no", "data": {"deep": [1, None]}}
        assert told(await peer.call("ask_roots"))["answers"] == {"roots": {"error": refused}}
        unscripted = told(await peer.call("ask_sampling", {"force": True}))
        assert unscripted["answers"]["sampling"]["error"]["code"] == -32601


@pytest.mark.parametrize("over", WIRES)
@pytest.mark.parametrize("era", ERAS)
async def test_two_questions_come_one_after_the_other_or_at_once(era: str, over: str) -> None:
    answers = Answers({"elicitation/create": [form(n=1), form(n=2), form(n=3), form(n=4)]})
    async with asked(era, answers, over=over) as peer:
        one_by_one = await peer.call("ask_two", {"nonce": "x"})
        at_once = await peer.call("ask_both", {"nonce": "x"})
    for seen, first, second, rounds in ((one_by_one, 1, 2, 2), (at_once, 3, 4, 1)):
        found = {key: given["result"]["content"]["n"] for key, given in told(seen)["answers"].items()}
        assert found == {"first": first, "second": second}
        assert len(seen.rounds) == (rounds if era == MODERN else 0)
    assert [params["message"] for params in answers.params("elicitation/create")] == ["first x", "second x"] * 2


@pytest.mark.parametrize("over", WIRES)
async def test_questions_at_once_do_not_wait_for_each_other(over: str) -> None:
    """The first is answered only after the second has been."""
    release = anyio.Event()

    def reply(question: dict[str, Any]) -> Any:
        if question["params"]["message"] == "first":
            return form(n=1).late(release)
        release.set()
        return form(n=2)

    answers = Answers({"elicitation/create": reply})
    async with asked(HANDSHAKE, answers, over=over) as peer:
        told_of = told(await peer.call("ask_both"))["answers"]
    assert [given["result"]["content"]["n"] for given in told_of.values()] == [1, 2]


@pytest.mark.parametrize("over", WIRES)
@pytest.mark.parametrize("era", ERAS)
async def test_any_number_of_rounds(era: str, over: str) -> None:
    answers = Answers(ALL)
    async with asked(era, answers, over=over) as peer:
        seen = await peer.call("ask_many", {"n": 12})
    assert list(told(seen)["answers"]) == [f"q{i}" for i in range(1, 13)]
    assert len(answers.asked) == 12
    assert len(seen.rounds) == (12 if era == MODERN else 0)


@pytest.mark.parametrize("over", WIRES)
@pytest.mark.parametrize("era", ERAS)
async def test_client_is_asked_only_for_what_it_declared_unless_forced(era: str, over: str) -> None:
    answers = Answers({"roots/list": result(ROOTS)})
    async with asked(era, answers, over=over) as peer:
        for tool, lacking in (("ask_form", "form"), ("ask_url", "url"), ("ask_sampling", "sampling")):
            assert (await peer.call(tool)).text == f"client cannot {lacking}"
        both = await peer.call("ask_both", {"kinds": ["roots", "sampling"]})
        assert both.text == "client cannot sampling"
        assert answers.asked == []
        seen = await peer.call("ask_form", {"force": True})
        assert len(answers.asked) == 1
        assert (seen.result.get("resultType") == "input_required") == (era == MODERN)


async def test_plain_elicitation_capability_means_forms_only() -> None:
    async with StdioClient(argv()) as wire:
        await wire.initialize(capabilities={"elicitation": {}})
        answer = await wire.call("ask_url")
        assert answer["result"]["content"][0]["text"] == "client cannot url"
        await wire.send_request("tools/call", {"name": "ask_form", "arguments": {}})
        assert (await wire.wait_for(lambda m: m.get("method") == "elicitation/create"))["id"] == 1


@pytest.mark.parametrize("over", WIRES)
@pytest.mark.parametrize("era", ERAS)
async def test_work_after_the_answer_reports_progress(era: str, over: str) -> None:
    answers = Answers(ALL)
    async with asked(era, answers, over=over) as peer:
        seen = await peer.call("ask_then_wait", {"seconds": 0.01, "steps": 2, "nonce": "w"}, token="t")
        assert [(p["progress"], p["message"]) for p in seen.progress] == [(1, "w 1"), (2, "w 2")]
        assert (await peer.call("ask_then_wait", {"seconds": 0.01})).progress == []


@pytest.mark.parametrize("era", ERAS)
async def test_work_after_the_answer_can_be_cancelled(era: str, tmp_path: Path) -> None:
    log = tmp_path / "journal"
    answers = Answers(ALL)
    async with asked(era, answers, journal=log) as peer:
        wire = peer.wire
        assert isinstance(wire, StdioClient)

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            request_id = await wire.send_request("tools/call", params)
            if era == HANDSHAKE or "inputResponses" in params:
                await wire.wait_for(lambda m: m.get("method") == "notifications/progress")
                await wire.notify("notifications/cancelled", {"requestId": request_id})
                return {}
            return await wire.response(request_id)

        arguments = {"seconds": 600, "steps": 600_000, "nonce": "w"}
        params = peer.params({"name": "ask_then_wait", "arguments": arguments}, token="t")
        if era == HANDSHAKE:
            params["_meta"] = {"progressToken": "t"}
        await follow_input(send, params, answers)
        await until(lambda: events(log, "cancelled"))
    assert events(log, "cancelled")[0]["nonce"] == "w"


async def test_cancelled_call_takes_its_question_back() -> None:
    answers = Answers({"elicitation/create": never()})
    async with asked(HANDSHAKE, answers) as peer:
        wire = peer.wire
        assert isinstance(wire, StdioClient)
        request_id = await wire.send_request("tools/call", {"name": "ask_form", "arguments": {}})
        question = await wire.wait_for(lambda m: m.get("method") == "elicitation/create")
        await wire.notify("notifications/cancelled", {"requestId": request_id})
        taken = await wire.wait_for(lambda m: m.get("method") == "notifications/cancelled")
        assert taken["params"] == {"requestId": question["id"]}
        seen = await peer.call("ask_form", {"give_up": 0.05})
        assert told(seen)["answers"] == {"form": {"cancelled": True}}
        assert [m for m in wire.transcript if "method" not in m and m["id"] == request_id] == []


async def test_answers_come_twice_late_under_another_id_or_never(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    release = anyio.Event()
    script = [form(n=1).twice(), form(n=2).late(0.01), form(n=3).with_id("other"), form(n=4).late(release), never()]
    answers = Answers({"elicitation/create": script})
    async with asked(HANDSHAKE, answers, journal=log) as peer:
        for expected in (1, 2):
            assert told(await peer.call("ask_form"))["answers"]["form"]["result"]["content"] == {"n": expected}
        for _ in range(3):
            assert told(await peer.call("ask_form", {"give_up": 0.05}))["answers"] == {"form": {"cancelled": True}}
        release.set()
        await until(lambda: len(events(log, "stray")) == 3)
    assert [event["id"] for event in events(log, "stray")] == [1, "other", 4]
    assert len(answers.sent) == 5


async def test_url_that_is_required_is_refused_until_it_was_visited() -> None:
    async with asked(HANDSHAKE, None) as peer:
        arguments = {"nonce": "u", "urls": 2, "complete_after": 0.01}
        refused = (await peer.call("url_required", arguments)).error
        assert refused["code"] == -32042
        ids = [elicitation.pop("elicitationId") for elicitation in refused["data"]["elicitations"]]
        assert refused["data"]["elicitations"][1] == {
            "mode": "url",
            "message": "url1 u",
            "url": "https://example.org/u",
            "_meta": {"example.org/nonce": "u"},
        }
        for elicitation_id in ids:
            assert isinstance(peer.wire, StdioClient)
            await peer.wire.wait_for(lambda m, i=elicitation_id: m.get("params", {}).get("elicitationId") == i)  # type: ignore[misc]
        assert told(await peer.call("url_required", arguments)) == {"nonce": "u", "refused": 1}
        assert "error" in (await peer.call("url_required", {"nonce": "other"})).answer
    answers = Answers(ALL)
    async with asked(MODERN, answers) as peer:
        seen = await peer.call("url_required", {"nonce": "u", "urls": 2})
        assert list(told(seen)["answers"]) == ["url0", "url1"]
        assert len(seen.rounds) == 1


@pytest.mark.parametrize("over", WIRES)
@pytest.mark.parametrize("era", ERAS)
async def test_prompt_and_resource_ask_before_they_are_given(era: str, over: str) -> None:
    answers = Answers(ALL)
    async with asked(era, answers, over=over, name="a") as peer:
        assert "asking" in await peer.names("prompts/list", "prompts")
        seen = await peer.request("prompts/get", {"name": "asking", "arguments": {"nonce": "p"}})
        given = {"form": {"result": {"action": "accept", "content": {"answer": "yes"}}}}
        text = seen.result["messages"][0]["content"]["text"]
        assert json.loads(text) == {"nonce": "p", "answers": given}
        seen = await peer.request("resources/read", {"uri": "test://a/item/asking"})
        (contents,) = seen.result["contents"]
        assert (contents["uri"], json.loads(contents["text"])) == (
            "test://a/item/asking",
            {"nonce": None, "answers": given},
        )
        for first in seen.rounds:
            assert not {"ttlMs", "cacheScope"} & first.keys()
    assert len(answers.asked) == 2


# -- outside of a call


async def test_roots_are_asked_for_at_the_start(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with asked(HANDSHAKE, Answers(ALL), "--ask-roots-at-start", journal=log):
        await until(lambda: events(log, "answered"))
    async with asked(HANDSHAKE, None, "--ask-roots-at-start", journal=log):
        await until(lambda: len(events(log, "answered")) == 2)
    able, unable = events(log, "answered")
    assert (able["kind"], able["result"]) == ("roots", ROOTS)
    assert unable["cannot"] == "client cannot roots"


async def test_question_comes_after_the_call_that_announced_it(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with asked(HANDSHAKE, Answers(ALL), journal=log) as peer:
        seen = await peer.call("ask_later", {"nonce": "l", "kind": "sampling", "delay": 0.05})
        assert (seen.text, seen.before) == ("later", [])
        await until(lambda: events(log, "answered"))
    (answered,) = events(log, "answered")
    assert (answered["kind"], answered["nonce"], answered["result"]) == ("sampling", "l", SAMPLED)
    async with asked(MODERN, None, journal=log) as peer:
        assert (await peer.call("ask_later")).text == "client cannot be asked later"
        await peer.call("ask_later", {"force": True, "delay": 0})
        assert isinstance(peer.wire, StdioClient)
        await peer.wire.wait_for(lambda m: m.get("method") == "elicitation/create")


async def test_completion_of_ask_asks(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    params = {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "who", "value": "ask"}}
    async with asked(HANDSHAKE, Answers(ALL), journal=log) as peer:
        seen = await peer.request("completion/complete", params)
        assert seen.result["completion"]["values"] == []
        assert len(seen.params("elicitation/create")) == 1
    assert events(log, "answered")[0]["result"]["content"] == {"answer": "yes"}
    async with asked(MODERN, Answers(ALL)) as peer:
        seen = await peer.request("completion/complete", params)
        assert seen.result["completion"]["values"] == []
        assert len(seen.rounds) == 1


async def test_answers_are_journaled_as_they_arrived(tmp_path: Path) -> None:
    log = tmp_path / "journal"
    async with asked(HANDSHAKE, Answers(ALL), journal=log) as peer:
        await peer.call("ask_roots")
    assert [m for m in received(log) if "method" not in m] == [{"jsonrpc": "2.0", "id": 1, "result": ROOTS}]

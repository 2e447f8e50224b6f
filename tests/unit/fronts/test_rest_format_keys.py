"""One idempotency key for all calls of a request in a provider's format."""

import pytest

from mcp_hub.errors import UpstreamUnavailable
from mcp_hub.formats.providers import Format
from tests.unit.fronts.format_calls import ModelCalls, call, outcomes
from tests.unit.fronts.rest_peer import RestPeer, problem

KEY = {"idempotency-key": "k"}
TWO: ModelCalls = ("c1", "hold", {"nonce": "a"}), ("c2", "hold", {"nonce": "b"})


async def test_same_key_and_request_are_the_same_calls_and_bring_the_rest_of_the_answer(peer: RestPeer) -> None:
    first = await call(peer, *TWO, headers={**KEY, "prefer": "wait=0"})
    assert first.status == 202
    await peer.tools.has_come("a")
    await peer.tools.has_come("b")
    peer.tools.go.set()
    answers = [(await call(peer, *TWO, headers=KEY)) for _ in range(2)]
    assert answers[0].status == 200 and answers[0].body == answers[1].body
    assert [one["stream"] for one in answers[0].json["calls"]] == [one["stream"] for one in first.json["calls"]]
    assert outcomes(Format.ANTHROPIC, answers[0].json["messages"]) == [("c1", "a", False), ("c2", "b", False)]
    assert sorted(peer.tools.held) == ["a", "b"]


async def test_same_key_for_another_request_is_refused_and_makes_no_call(peer: RestPeer) -> None:
    await call(peer, *TWO, headers={**KEY, "prefer": "wait=0"})
    await peer.tools.has_come("b")
    others: list[tuple[ModelCalls, str, str]] = [
        (TWO[:1], "", "anthropic"),
        (TWO[1:], "", "anthropic"),
        ((TWO[1], TWO[0]), "", "anthropic"),
        ((*TWO, ("c3", "hold", {"nonce": "c"})), "", "anthropic"),
        ((("c0", *TWO[0][1:]), TWO[1]), "", "anthropic"),
        (TWO, "&server=local", "anthropic"),
        (TWO, "&tools=hold", "anthropic"),
        (TWO, "", "openai"),
    ]
    for calls, query, into in others:
        refused = await call(peer, *calls, query=query, into=into, headers=KEY)
        problem(refused, 422, "idempotency_key_reused")
    alone = await peer.call("hold", {"nonce": "a"}, headers=KEY).ended()
    problem(alone, 422, "idempotency_key_reused")
    assert sorted(peer.tools.held) == ["a", "b"]
    problem(await call(peer, *TWO, headers={"idempotency-key": "é"}), 400, "invalid_idempotency_key")


async def test_key_of_a_request_whose_first_call_was_refused_is_that_of_the_others(peer: RestPeer) -> None:
    calls: ModelCalls = ("c1", "ecko", {}), ("c2", "hold", {"nonce": "a"})
    first = await call(peer, *calls, headers={**KEY, "prefer": "wait=0"})
    await peer.tools.has_come("a")
    again = await call(peer, *calls, headers={**KEY, "prefer": "wait=0"})
    assert again.json["calls"][1]["stream"] == first.json["calls"][1]["stream"] and peer.tools.held == ["a"]


async def test_key_of_a_request_with_any_call_that_was_made_is_not_that_of_another(peer: RestPeer) -> None:
    """Also where the other one is shorter, so that it has only calls in the places of those that were refused."""
    calls: ModelCalls = ("c1", "ecko", {}), ("c2", "echo", {"text": "x"})
    first = await call(peer, *calls, headers=KEY)
    assert [one["status"] for one in first.json["calls"]] == ["refused", "completed"]
    other: ModelCalls = (("c1", "hold", {"nonce": "a"}),)
    for refused in (await call(peer, *other, headers=KEY), await peer.call(*other[0][1:], headers=KEY).ended()):
        problem(refused, 422, "idempotency_key_reused")
    assert peer.tools.held == []


async def test_one_look_into_the_store_finds_a_used_key(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    find, asked = peer.app.streams.store.log.find_key, list[str]()

    async def find_key(principal: str, key: str) -> object:
        asked.append(key)
        return await find(principal, key)

    await call(peer, *TWO, headers={**KEY, "prefer": "wait=0"})
    await peer.tools.has_come("b")
    peer.tools.go.set()
    await call(peer, *TWO, headers=KEY)
    monkeypatch.setattr(peer.app.streams.store.log, "find_key", find_key)
    problem(await call(peer, *TWO, query="&server=local", headers=KEY), 422, "idempotency_key_reused")
    assert asked == ["k"]


async def test_call_that_was_never_made_is_made_by_the_next_request_with_the_key(peer: RestPeer) -> None:
    peer.tools.refusals.append(UpstreamUnavailable("not up yet"))
    calls: ModelCalls = ("c1", "echo", {"text": "x"}), ("c2", "refuse", {"text": "y"})
    first, again, last = [(await call(peer, *calls, headers=KEY)).json["calls"] for _ in range(3)]
    assert [one["status"] for one in first] == ["completed", "failed"]
    assert first[1]["problem"]["code"] == "upstream_unavailable"
    assert [one["status"] for one in again] == ["completed", "completed"] and again == last
    assert again[0] == first[0] and again[1]["stream"] != first[1]["stream"]

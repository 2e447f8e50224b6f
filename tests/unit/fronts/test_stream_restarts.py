"""Streams of a hub that was killed, and of one that runs beside this: what the store has is enough to go on with."""

import json
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.events import BY_CLIENT, Log, Progressed
from mcp_hub.fronts.http.response import HttpError
from mcp_hub.fronts.http.resume import ClientCalls
from mcp_hub.fronts.mcp.client_requests import answered_elsewhere
from mcp_hub.sessions.session import Caller
from mcp_hub.stores.base import Message
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fronts.http_peer import Connection, MadeCall, Neighbour, World, declined, reply

RESTARTED = 1006


async def accepted_again(world: World) -> ClientCalls:
    """The session of the client, as the store has it."""
    kept = await world.resumption.sessions.find("s", Caller())
    assert kept is not None
    return ClientCalls(kept)


def without_retry(connection: Connection) -> bytes:
    """What was sent, without what only primes."""
    return b"".join(part + b"\n\n" for part in connection.body.split(b"\n\n")[:-1] if b"retry:" not in part)


@virtual
async def test_an_ended_call_is_replayed_by_the_next_hub_byte_for_byte() -> None:
    call = MadeCall(World(), key=7)
    await call.progresses(1, 2)
    await call.happens(Log("info", b'{"level":"info","data": "x"}'), Progressed(3, 9, {"message": msgspec.Raw(b'"m"')}))
    await call.ends()
    after = call.world.killed()
    client = await accepted_again(after)
    whole = await after.get(client, call.place(0))
    assert without_retry(whole) == without_retry(call.post) and whole.is_complete
    rest = await after.get(client, call.place(4))
    assert rest.ids == [4, 5, 6] and rest.messages == whole.messages[3:]


@virtual
async def test_a_call_that_ran_in_a_killed_hub_ends_with_an_error_once_and_for_all() -> None:
    call = MadeCall(World(), key=7)
    await call.progresses(1, 2)
    after = call.world.killed()
    client = await accepted_again(after)
    for _ in range(2):
        resumed = await after.get(client, call.place(2))
        progress, response = resumed.messages
        assert progress["params"] == {"progressToken": "t", "progress": 2}
        assert response["id"] == 7 and response["error"]["code"] == RESTARTED
        assert response["error"]["data"] == {
            "code": "hub_restarted",
            "upstream": {"server": "git"},
            "outcome": "unknown",
        }
        assert resumed.is_complete and resumed.ids == [2, 3, 4]
    assert (await after.get(client, call.place(4))).status == 204
    assert not client.has_open(7)


@virtual
async def test_after_a_restart_nobody_else_can_come_back_either() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    after = call.world.killed()
    refused = [await after.get(after.client(id_="other"), call.place(place)) for place in (0, 2, 99)]
    beyond = await after.get(await accepted_again(after), call.place(99))
    assert {(peer.status, peer.body) for peer in [*refused, beyond]} == {(400, beyond.body)}


# -- beside another hub


@virtual
async def test_a_call_of_another_hub_is_followed_asked_about_and_cancelled_through_the_store() -> None:
    call = MadeCall(World(), key=7)
    await call.progresses(1)
    await call.asks()
    beside = call.world.beside()
    client = await accepted_again(beside)
    resumed = await beside.get(client, call.place(2))
    (question,) = resumed.questions
    assert client.has_open(7)
    reply(client, question["id"])
    await beside.resumption.forward_answers(client)
    (message,) = [each for each in await call.world.store.inbox.take() if each.kind != "touch"]
    assert (message.stream, message.kind) == (call.record.call.id, "input")
    assert json.loads(message.body) == {"key": "q1", "result": {"action": "decline"}}
    call.world.streams._take(message)
    assert [bytes(answer) for answer in call.answers] == [b'{"action":"decline"}']
    await call.asks()
    await sleep(1)
    assert len(resumed.questions) == 2 and resumed.questions[1]["id"] != question["id"]
    await beside.resumption.cancel(client, 7)
    (message,) = [each for each in await call.world.store.inbox.take() if each.kind != "touch"]
    assert (message.kind, message.body) == ("cancel", BY_CLIENT.encode())
    call.world.streams._take(message)
    await sleep(5)
    assert call.world.cancelled == [call.record] and resumed.is_complete
    assert resumed.messages[-1]["params"] == {"requestId": resumed.questions[1]["id"]}


@virtual
async def test_an_answer_that_cannot_be_passed_on_is_refused_and_its_repetition_passed_on() -> None:
    call = MadeCall(World())
    await call.asks()
    await sleep(0.1)
    beside = call.world.beside()
    client = await accepted_again(beside)
    (question,) = (await beside.get(client, call.place(1))).questions

    async def post(message: Message) -> bool:
        raise StoreError("away")

    inbox = beside.store.inbox
    beside.store.inbox = cast(Any, SimpleNamespace(post=post))
    reply(client, question["id"])
    with pytest.raises(HttpError) as refused:
        await beside.resumption.forward_answers(client)
    assert refused.value.status == 503
    beside.store.inbox = inbox
    await answered_elsewhere(beside.hub, client.session, declined(question["id"]))
    (message,) = [each for each in await call.world.store.inbox.take() if each.kind != "touch"]
    assert json.loads(message.body) == {"key": "q1", "result": {"action": "decline"}}


@virtual
async def test_an_answer_to_what_no_stored_call_has_asked_is_refused_and_one_to_what_is_settled_is_not() -> None:
    """A replica that was cut from the store has asked, and its stream is in its memory alone."""
    call = MadeCall(World())
    await call.asks()
    await sleep(0.1)
    beside = call.world.beside()
    client = await accepted_again(beside)
    (question,) = call.post.questions
    rows = beside.store.log.rows

    async def none(principal: str | None, limit: int) -> list[StreamInfo]:
        return []

    cast(Any, beside.store.log).rows = none
    with pytest.raises(StoreError):
        await answered_elsewhere(beside.hub, client.session, declined(question["id"]))
    cast(Any, beside.store.log).rows = rows
    for _ in range(2):
        await answered_elsewhere(beside.hub, client.session, declined(question["id"]))
        for message in [each for each in await call.world.store.inbox.take() if each.kind != "touch"]:
            call.world.streams._take(message)
        await sleep(1)
    assert len(call.answers) == 1
    with pytest.raises(StoreError):
        await answered_elsewhere(beside.hub, client.session, declined(question["id"] + 1))


@virtual
async def test_what_was_settled_elsewhere_is_not_asked_again() -> None:
    call = MadeCall(World())
    call.record.questions.answer(await call.asks(), b"{}")
    await call.asks()
    await sleep(0.1)
    beside = call.world.beside()
    resumed = await beside.get(await accepted_again(beside), call.place(0))
    assert len(resumed.questions) == 1 and resumed.ids[-1] == 4
    await call.ends()
    await sleep(1)
    assert "result" in resumed.messages[-1] and resumed.messages[-2]["method"] == "notifications/cancelled"


@virtual
async def test_a_follower_of_a_call_whose_hub_is_killed_gets_its_end() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    beside = call.world.beside()
    resumed = await beside.get(await accepted_again(beside), call.place(2))
    await sleep(20)
    assert not resumed.is_complete
    call.world.window.log.is_dead = True
    cast(Neighbour, beside.store).be_alone()
    await sleep(10)
    assert resumed.is_complete and resumed.messages[-1]["error"]["code"] == RESTARTED


@virtual
async def test_a_client_need_not_follow_a_call_to_cancel_it_at_another_hub() -> None:
    world = World()
    calls = [MadeCall(world, world.client(), key) for key in (7, 8)]
    others = [MadeCall(world, world.client(id_="s2"), 7), MadeCall(world, world.client(), 9)]
    for call in (*calls, *others):
        await call.progresses(1)
    await others[1].ends()
    beside = world.beside()
    client = await accepted_again(beside)

    async def cancelled() -> list[Any]:
        return [message.stream for message in await world.store.inbox.take() if message.kind == "cancel"]

    for key in ("7", 9, 10):
        await beside.resumption.cancel(client, key)
    assert await cancelled() == []
    await beside.resumption.cancel(client, 7)
    assert await cancelled() == [calls[0].record.call.id]
    await beside.resumption.cancel_all(client)
    assert set(await cancelled()) == {call.record.call.id for call in calls}


@virtual
async def test_what_a_session_runs_is_looked_for_only_if_it_was_elsewhere() -> None:
    """Clients end each session, and of the calls of one that was here all along nothing has to be read."""
    world = World()
    client = world.client()
    call = MadeCall(world, client, 7)
    await call.progresses(1)
    looked: list[str | None] = []

    async def rows(principal: str | None, limit: int) -> list[StreamInfo]:
        looked.append(principal)
        return []

    world.store.log.rows = rows  # type: ignore[method-assign]
    await world.resumption.cancel(client, 8)
    await world.resumption.cancel_all(client)
    assert looked == [] and world.cancelled == [call.record]
    again = await accepted_again(world.beside())
    await world.resumption.cancel_all(again)
    assert looked == ["local"]

"""Questions to a client that loses its connection: asked again as they were, until they are settled."""

from typing import Any

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc import envelope
from mcp_hub.protocol.jsonrpc.envelope import Envelope
from tests.unit.calls.virtual_time import sleep, virtual
from tests.unit.fronts.http_peer import Connection, MadeCall, World, values


def asked(connection: Connection) -> list[Any]:
    return [message for message in connection.messages if "method" in message and "id" in message]


def answer(call: MadeCall, id_: int, result: bytes = b'{"action":"decline"}') -> None:
    message = envelope.decode(b'{"jsonrpc":"2.0","id":%d,"result":%s}' % (id_, result))
    assert isinstance(message, Envelope)
    call.client.questions.take(message)


@virtual
async def test_a_question_waits_for_the_client_and_may_be_answered_without_a_stream() -> None:
    call = MadeCall(World())
    await call.progresses(1)
    await call.drops()
    await call.asks()
    first = await call.comes_back(2)
    (question,) = asked(first)
    first.leave()
    again = await call.comes_back(2)
    assert asked(again) == [question]
    again.leave()
    await sleep(0.01)
    answer(call, question["id"])
    await sleep(0.01)
    assert [bytes(result) for result in call.answers] == [b'{"action":"decline"}']
    settled = await call.comes_back(2)
    await call.ends()
    assert values(settled) == ["answer"] and asked(settled) == []


@virtual
async def test_a_client_learns_at_every_reading_that_a_question_is_off() -> None:
    call = MadeCall(World())
    key = await call.asks()
    await sleep(0.01)
    (question,) = asked(call.post)
    await call.drops()
    call.record.withdraw(key)
    await call.asks()
    for _ in range(2):
        resumed = await call.comes_back(2)
        off, other = resumed.messages
        assert (off["method"], off["params"]) == ("notifications/cancelled", {"requestId": question["id"]})
        assert other["method"] == "elicitation/create" and other["id"] != question["id"]
        resumed.leave()
        await sleep(0.01)
    await call.ends()
    for _ in range(2):
        resumed = await call.comes_back(4)
        off, response = resumed.messages
        assert off["params"] == {"requestId": other["id"]} and "result" in response
        assert resumed.ids == [4, 5], "what belongs to no event has no place"


@virtual
async def test_a_question_to_a_session_that_is_over_is_not_waited_for() -> None:
    world = World()
    client = world.client()
    call = MadeCall(world, client)
    await call.asks()
    await sleep(0.01)
    await call.drops()
    world.resumption.close(client)
    await sleep(0.01)
    (refused,) = call.answers
    assert isinstance(refused, RpcError) and "the client is gone" in str(refused)


@virtual
async def test_one_session_at_two_hubs_is_asked_under_ids_of_their_own() -> None:
    """An answer to the question of one, late or sent to the other, is none to a question of the other."""
    world = World()
    ids = [world.client().questions._requests.expect("elicitation/create").id for _ in range(100)]
    assert len(set(ids)) == 100 and all(0 < id_ <= 1 << 30 for id_ in ids)

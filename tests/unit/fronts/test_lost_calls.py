"""A call that another hub has taken over while its client stays connected here: what the new owner asks reaches it."""

import json
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, cast

import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.errors import StoreError
from mcp_hub.events import BY_CLIENT, Cancelled, Progressed
from mcp_hub.fronts.mcp.client_requests import answered_elsewhere
from mcp_hub.protocol.meta import STREAMS
from mcp_hub.stores.base import Message
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import CallId
from tests.unit.calls.durable_hub import HOW, DurableCall, DurableHub, ask, settle
from tests.unit.calls.shared_store import HubStore, Shared
from tests.unit.calls.virtual_time import named_like, run, sleep, virtual
from tests.unit.fakes import LoneReplicas, enveloped
from tests.unit.fronts.http_peer import MadeCall, World, declined, reply
from tests.unit.fronts.task_hub import Running, Sent, TaskHub
from tests.upstreams.messages import rpc

ANSWER = {"action": "accept", "content": {"name": "Ada"}}
ASKED: dict[str, Any] = {"elicitation": {}}
FOLLOWS: dict[str, Any] = {"elicitation": {}, "extensions": {STREAMS: {}}}


class Replica(HubStore):
    """A replica's store. While it is cut off, others take over what it runs."""

    replicas = LoneReplicas()  # type: ignore[assignment]

    def is_cut_off(self) -> None:
        self.shared.alive.discard(self.instance)

    def is_back(self) -> None:
        self.shared.alive.add(self.instance)

    def survives(self, stream: CallId) -> bool:
        return True

    async def orphans(self) -> list[StreamInfo]:
        return [row for row in await super().orphans() if row.owner != self.instance]

    async def rows(self, principal: str | None, limit: int) -> list[StreamInfo]:
        return await self.shared.core.log.rows(principal, limit)

    async def is_orphan(self, row: StreamInfo) -> bool:
        return row.owner != self.instance and await super().is_orphan(row)


class Moved:
    """A handshake client's call at `world`, as `call`; once it `moves` it runs at another hub, as `there`."""

    def __init__(self) -> None:
        self.shared = Shared()
        self.store = Replica(self.shared)
        self.world = World(store=cast(MemoryStore, self.store))
        self.other = DurableHub(Replica(self.shared), takes_up=True).runs()
        self.call = MadeCall(self.world, key=7)
        self.id = self.call.record.call.id

    async def moves(self) -> "Moved":
        await self.call.progresses(1)
        self.call.record.continuable(HOW)
        await sleep(1)
        self.store.is_cut_off()
        await settle(lambda: bool(self.other.taken_up))
        self.store.is_back()
        return self

    async def lost(self) -> "Moved":
        """The same, and this hub knows."""
        await self.moves()
        self.world.streams._take(Message(self.id, "lost", b""))
        await sleep(5)
        return self

    @property
    def there(self) -> DurableCall:
        return self.other.taken_up[0]


@pytest.mark.parametrize("knows", [True, False])
@virtual
async def test_a_handshake_client_is_asked_what_the_new_owner_asks_and_its_answer_gets_there(knows: bool) -> None:
    moved = Moved()
    await (moved.lost() if knows else moved.moves())
    answers = ask(moved.there)
    await sleep(1)
    if not knows:
        assert moved.call.post.questions == []
        moved.call.record.send(Progressed(2))  # which is refused
        await sleep(1)
    [question] = moved.call.post.questions
    assert moved.call.client.has_open(7)
    reply(moved.call.client, question["id"])
    await moved.world.resumption.forward_answers(moved.call.client)
    await settle(lambda: bool(answers))
    assert [bytes(cast(bytes, answer)) for answer in answers] == [b'{"action":"decline"}']
    again = ask(moved.there)
    await sleep(1)
    assert len(moved.call.post.questions) == 2 and not again
    moved.there.ends()
    await settle(lambda: moved.call.post.is_complete)
    *_, withdrawn, response = moved.call.post.messages
    assert withdrawn["params"] == {"requestId": moved.call.post.questions[1]["id"]}
    assert response["id"] == 7 and "result" in response
    assert moved.call.post.ids == sorted(moved.call.post.ids), "each message has its place"
    assert not moved.call.client.has_open(7)


@virtual
async def test_an_answer_to_what_the_lost_owner_had_asked_goes_nowhere_and_the_new_one_asks_again() -> None:
    moved = Moved()
    await moved.call.asks()
    await moved.lost()
    answers = ask(moved.there)
    await sleep(1)
    before, after = moved.call.post.questions
    assert before["id"] != after["id"]
    withdrawn = [message["params"] for message in moved.call.post.messages if "cancelled" in message.get("method", "")]
    assert withdrawn == [{"requestId": before["id"]}]
    for question in (before, after):
        reply(moved.call.client, question["id"])
        await moved.world.resumption.forward_answers(moved.call.client)
    await settle(lambda: bool(answers))
    await sleep(1)
    assert len(answers) == 1 and moved.call.answers == []


@virtual
async def test_a_second_answer_to_what_the_new_owner_asked_is_taken_for_one() -> None:
    moved = Moved()
    await moved.call.progresses(*range(2, 60))
    await moved.lost()
    answers = ask(moved.there)
    await sleep(1)
    [question] = moved.call.post.questions
    reply(moved.call.client, question["id"])
    await moved.world.resumption.forward_answers(moved.call.client)
    await settle(lambda: bool(answers))
    assert moved.shared.row(moved.id).last > 40  # type: ignore[union-attr]
    await answered_elsewhere(moved.world.hub, moved.call.client.session, declined(question["id"]))
    with pytest.raises(StoreError):
        await answered_elsewhere(moved.world.hub, moved.call.client.session, declined(question["id"] + 1))


@virtual
async def test_a_client_that_comes_back_to_where_its_call_was_lost_is_asked_there() -> None:
    moved = await Moved().lost()
    await moved.call.drops()
    answers = ask(moved.there)
    resumed = await moved.call.comes_back(2)
    await sleep(1)
    [question] = resumed.questions
    reply(moved.call.client, question["id"])
    await moved.world.resumption.forward_answers(moved.call.client)
    await settle(lambda: bool(answers))
    resumed = await moved.call.comes_back(2)
    await sleep(1)
    assert resumed.questions == [], "it is settled"


@pytest.mark.parametrize("knows", [True, False])
@virtual
async def test_a_handshake_client_s_cancellation_reaches_the_new_owner(knows: bool) -> None:
    moved = Moved()
    await (moved.lost() if knows else moved.moves())
    await moved.world.resumption.cancel(moved.call.client, 7)
    if not knows:
        await sleep(1)
        moved.world.streams._take(Message(moved.id, "lost", b""))
    await settle(lambda: moved.there.record.log.ended)
    assert moved.there.record.stopping == Cancelled(BY_CLIENT)
    await settle(lambda: moved.call.post.is_complete)


# -- modern clients, and those of the hub's extension on a pipe


class Pair:
    """Two hubs; `call` runs at the first one until it `moves`, then as `there` at the other one."""

    def __init__(self, front: str) -> None:
        self.shared = Shared()
        self.one, self.two, self.three = (TaskHub(front, store=Replica(self.shared)) for _ in range(3))

    async def serve(self, scenario: Callable[["Pair"], Coroutine[Any, Any, None]]) -> None:
        async def at_two(_: TaskHub) -> None:
            await self.two.serve(at_three)

        async def at_three(_: TaskHub) -> None:
            await self.three.serve(lambda _: scenario(self))

        await self.one.serve(at_two)

    async def moves(self, *, knows: bool = True) -> None:
        self.one.running.channel.continuable(HOW)
        await sleep(1)
        store = cast(Replica, self.one.streams.store)
        store.is_cut_off()
        self.three.streams.store.orphans = _none  # type: ignore[attr-defined]
        await settle(lambda: bool(self.two.server.calls))
        store.is_back()
        await sleep(1)
        if knows:
            self.one.streams._take(Message(self.id, "lost", b""))
            await sleep(6)

    @property
    def id(self) -> CallId:
        return self.one.running.call.id

    @property
    def there(self) -> Running:
        return self.two.server.calls[0]

    async def answered(self, hub: TaskHub, asked: Sent, **options: Any) -> Sent:
        """The retry with answers to all that a result asks."""
        result = asked.result
        assert result["resultType"] == "input_required", result
        retry = {
            "name": "slow", "arguments": {}, "requestState": result["requestState"],
            "inputResponses": dict.fromkeys(result["inputRequests"], ANSWER),
        }  # fmt: skip
        sent = await hub.send("tools/call", retry, **options)
        await sleep(1)
        return sent


async def _none() -> list[StreamInfo]:
    return []


Scenario = Callable[..., Coroutine[Any, Any, None]]


def on_each_front(scenario: Scenario) -> Callable[..., None]:
    named: Callable[..., None] = named_like(scenario, _test(scenario), "front")
    pytest.mark.parametrize("front", ["pipe", "http"])(named)
    return named


def over_the_pipe(scenario: Scenario) -> Callable[..., None]:
    return named_like(scenario, _test(scenario))


def _test(scenario: Scenario) -> Callable[..., None]:
    def test(front: str = "pipe", **given: Any) -> None:
        async def served() -> None:
            await Pair(front).serve(partial(scenario, **given))

        run(served)

    return test


def heard(running: Running) -> list[Any]:
    return [json.loads(bytes(cast(bytes, answer))) for answer in running.answers]


@pytest.mark.parametrize("retried_at", ["one", "two", "three"])
@on_each_front
async def test_a_modern_client_is_asked_what_the_new_owner_asks_and_answers_anywhere(
    pair: Pair, retried_at: str
) -> None:
    sent = await pair.one.call("slow", capabilities=FOLLOWS, token="t")
    await pair.one.running.says(1, "begun")
    await pair.moves()
    await pair.there.asks()
    await sleep(1)
    again = await pair.answered(getattr(pair, retried_at), sent, capabilities=FOLLOWS, token="t")
    assert heard(pair.there) == [ANSWER]
    await pair.there.asks("and now?")
    await sleep(1)
    last = await pair.answered(pair.three, again, capabilities=FOLLOWS, token="t")
    assert heard(pair.there) == [ANSWER, ANSWER]
    await pair.there.ends()
    await sleep(1)
    assert last.result["content"][0]["text"] == "done" and not pair.there.is_cancelled


@pytest.mark.parametrize("retried_at", ["one", "two", "three"])
@pytest.mark.parametrize("knows", [True, False])
@on_each_front
async def test_a_modern_client_that_answers_the_lost_owner_s_question_is_asked_the_new_one_s(
    pair: Pair, retried_at: str, knows: bool
) -> None:
    sent = await pair.one.call("slow", capabilities=ASKED)
    await pair.one.running.asks()
    await pair.moves(knows=knows)
    await pair.there.asks("again?")
    again = await pair.answered(getattr(pair, retried_at), sent, capabilities=ASKED)
    if not knows and retried_at == "one":
        pair.one.streams._take(Message(pair.id, "lost", b""))
        await sleep(6)
        assert again.error["data"]["code"] == "owner_lost" and again.error["data"]["outcome"] == "unknown"
        return
    assert heard(pair.there) == []
    last = await pair.answered(pair.three, again, capabilities=ASKED)
    assert heard(pair.there) == [ANSWER]
    await pair.there.ends()
    await sleep(1)
    assert last.result["content"][0]["text"] == "done"


@on_each_front
async def test_a_modern_client_that_leaves_where_its_call_was_lost_cancels_it_at_the_new_owner(pair: Pair) -> None:
    sent = await pair.one.call("slow", capabilities=FOLLOWS, token="t")
    await pair.one.running.says(1, "begun")
    await pair.moves()
    sent.leave()
    await settle(lambda: pair.there.is_cancelled)


@on_each_front
async def test_a_modern_client_that_was_told_of_the_loss_does_not_cancel_the_call(pair: Pair) -> None:
    sent = await pair.one.call("slow", capabilities=ASKED)
    await pair.one.running.says(1, "begun")
    await pair.moves()
    assert sent.error["data"]["code"] == "owner_lost"
    await sleep(5)
    assert not pair.there.is_cancelled


@pytest.mark.parametrize("at", ["one", "three"])
@on_each_front
async def test_a_task_is_asked_answered_and_cancelled_where_its_call_was_lost(pair: Pair, at: str) -> None:
    id_ = await pair.one.task()
    await pair.moves()
    hub: TaskHub = getattr(pair, at)
    await pair.there.asks()
    task = await hub.get(id_)
    assert task["status"] == "input_required"
    await hub.send("tasks/update", {"taskId": id_, "inputResponses": dict.fromkeys(task["inputRequests"], ANSWER)})
    await settle(lambda: bool(pair.there.answers))
    assert heard(pair.there) == [ANSWER]
    await hub.send("tasks/cancel", {"taskId": id_})
    await settle(lambda: pair.there.is_cancelled)


@pytest.mark.parametrize("is_cancelled", [False, True])
@over_the_pipe
async def test_a_handshake_client_on_a_pipe_is_asked_and_answers_there(pair: Pair, is_cancelled: bool) -> None:
    duplex, pipe = pair.one._duplex, pair.one._pipe
    agreed = {"protocolVersion": "2025-11-25", "capabilities": FOLLOWS, "clientInfo": {"name": "c", "version": "1"}}
    duplex.on_request(enveloped(rpc("initialize", agreed, id=1)))
    params = {"name": "slow", "arguments": {}, "_meta": {"progressToken": "t"}}
    duplex.on_request(enveloped(rpc("tools/call", params, id=2)))
    await sleep(0.1)
    await pair.one.running.says(1, "begun")
    await pair.moves()
    await pair.there.asks()
    await sleep(1)
    [question] = [message for message in pipe.sent if message.get("method") == "elicitation/create"]
    if is_cancelled:
        duplex.on_notification(enveloped(rpc("notifications/cancelled", {"requestId": 2})))
        await settle(lambda: pair.there.is_cancelled)
        return
    answer = enveloped({"jsonrpc": "2.0", "id": question["id"], "result": ANSWER})
    pipe.requests.pending.pop(question["id"]).settle(answer)
    await settle(lambda: bool(pair.there.answers))
    assert heard(pair.there) == [ANSWER]
    await pair.there.ends()
    await settle(lambda: any(message.get("id") == 2 and "result" in message for message in pipe.sent))

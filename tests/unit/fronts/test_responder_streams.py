"""A call that becomes durable while its client follows it: what is read then, and what stands in for the result."""

import json
from typing import Any, cast

import pytest

from mcp_hub.call import Call, Early
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.reading import stream as stream_module
from mcp_hub.calls.streams.table import StreamTable
from mcp_hub.errors import Fenced, UnknownStream
from mcp_hub.events import CallEvent, Completed, Delta, Ending, Log, Progressed, Started
from mcp_hub.fronts.mcp.responder import CallResponder
from mcp_hub.hub import HubPort
from mcp_hub.ids import new_call_id
from mcp_hub.protocol.jsonrpc.envelope import whole
from mcp_hub.protocol.meta import STREAMS
from mcp_hub.protocol.shape.results import COALESCED
from mcp_hub.sessions.session import LOCAL, Session
from mcp_hub.stores.base import StoreLimits
from mcp_hub.stores.memory import MemoryStore
from mcp_hub.types import Era, JsonObject
from tests.unit.calls.call_scripts import LoneOwner, handle_of
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual
from tests.unit.fakes import ResponderPort
from tests.unit.fronts.http_peer import LateStore

DONE = Completed(b'{"content":[]}')
INFO = Log("info", b'{"level":"info","data":1}')
TASK = Early(5.0, is_task=True)
OUTPUT = Early(5.0, is_task=False)
DELTA = Delta(b'[{"type":"text","text":"a"}]')


class Client:
    """A responder, the record that it follows and the store that this is written to."""

    def __init__(
        self,
        *,
        partials: bool = False,
        by_cursor: bool = False,
        early: Early | None = None,
        store: MemoryStore | None = None,
        limits: StreamLimits | None = None,
    ) -> None:
        self.store = store or MemoryStore()
        self.streams = StreamTable(self.store, LoopClock(), limits or StreamLimits())
        call = Call(new_call_id(), "git", "tools/call", {}, {}, "s", "local", Era.HANDSHAKE, {})
        self.record = LoneOwner(self.streams).record(call)
        capabilities: JsonObject = {"extensions": {STREAMS: {}}} if partials else {}
        session = Session("s", LOCAL, Era.HANDSHAKE, "2025-11-25", capabilities)
        self.record.log.append(Started())
        self.woken = 0
        self.responder = CallResponder(
            cast(HubPort, ResponderPort()),
            b"1",
            session,
            handle_of(self.record, self.streams, early=early),
            b'"t"',
            self.wake,
            by_cursor=by_cursor,
        )

    def wake(self) -> None:
        self.woken += 1

    async def happens(self, *events: CallEvent) -> None:
        for event in events:
            if isinstance(event, Ending):
                self.record.log.append(event)
            else:
                self.record.send(event)
        await sleep(0.02)

    def gets(self, most: int | None = None) -> list[tuple[int, Any]]:
        return [(seq, json.loads(frame)) for seq, frame in self.responder.numbered(most)]

    @property
    def mark(self) -> Any:
        return self.result["_meta"][STREAMS]

    @property
    def result(self) -> Any:
        assert self.responder.answer is not None
        return json.loads(whole(self.responder.answer))["result"]


def numbers(got: list[tuple[int, Any]]) -> list[int]:
    return [seq for seq, _ in got]


@virtual
async def test_what_is_sent_by_cursor_is_sent_once_it_is_committed() -> None:
    client = Client(by_cursor=True)
    client.record.send(Progressed(1))
    assert not client.responder.has_more and client.gets() == []
    await sleep(0)
    await client.happens(Progressed(2), INFO)
    assert client.woken and client.responder.has_more
    assert numbers(client.gets()) == [2, 3, 4]
    row = await client.store.log.find(client.record.call.id)
    assert row is not None and row.last == client.responder.cursor == 4


@virtual
async def test_what_follows_by_cursor_is_not_merged_before_its_first_look() -> None:
    """A hundred messages of one read of the upstream's pipe are a hundred messages."""
    client = Client(by_cursor=True)
    await client.happens(*map(Progressed, range(1, 101)), DONE)
    assert numbers(client.gets()) == list(range(2, 102))
    assert client.mark == {"stream": client.record.call.id, "cursor": "102", "status": "completed"}


@virtual
async def test_others_are_sent_what_is_not_yet_committed_and_marked_with_what_is() -> None:
    client = Client()
    client.record.send(Progressed(1))
    assert len(client.gets()) == 1
    client.record.log.append(DONE)
    client.gets()
    assert client.mark["cursor"] == "0", "nothing is committed yet"


@pytest.mark.parametrize("by_cursor", [True, False])
@virtual
async def test_a_quick_silent_call_has_no_stream_and_no_mark(by_cursor: bool) -> None:
    client = Client(by_cursor=by_cursor)
    await client.happens(DONE)
    assert client.gets() == [] and client.result == {"content": []}
    client.responder.close()
    assert client.record.stream is None
    assert await client.store.log.find(client.record.call.id) is None


@virtual
async def test_a_delivery_that_was_paused_follows_again_from_any_place() -> None:
    client = Client(by_cursor=True)
    await client.happens(Progressed(1), Progressed(2), INFO)
    first = client.gets()
    client.responder.pause()
    assert client.record.stream is not None and client.record.stream.readers == ()
    await client.happens(DONE)
    for after in (0, 2, 4):
        reader = client.record.stream.reader(client.wake, after)
        client.responder.follow(client.wake, reader)
        assert client.gets() == [frame for frame in first if frame[0] > after] and client.result
    client.responder.follow(client.wake, client.record.stream.reader(client.wake, 5))
    assert client.responder.ended and client.responder.answer is None


# -- the extension


@virtual
async def test_a_client_of_the_extension_gets_each_event_with_its_cursor_and_the_usual_ones_too() -> None:
    client = Client(partials=True)
    await client.happens(Progressed(1), DELTA, INFO, DONE)
    got = client.gets()
    kinds = [
        (seq, message["method"], message["params"].get("_meta", {}).get(STREAMS, {}).get("cursor"))
        for seq, message in got
    ]
    progress, log = "notifications/progress", "notifications/message"
    assert kinds == [(2, progress, "2"), (3, progress, "3"), (0, progress, "4"), (4, log, None)]
    values = [message["params"]["progress"] for _, message in got if message["method"] == progress]
    assert values == sorted(set(values))
    assert client.mark["cursor"] == "5"


@virtual
async def test_the_last_message_of_an_event_is_the_one_with_its_number() -> None:
    """A connection that breaks between the two has to bring both again."""
    client = Client(partials=True, by_cursor=True)
    await client.happens(INFO, INFO)
    assert numbers(client.gets()) == [0, 2, 0, 3]


# -- what cannot be read


async def overtaken(client: Client) -> list[int]:
    """Lets more come than the store keeps, before the client reads; then the numbers of what it still gets."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "_TAIL_EVENTS", 4)
        for _ in range(30):
            await client.happens(INFO)
        got: list[int] = []
        while client.responder.has_more and not client.responder.ended:
            got += [seq for seq in numbers(client.gets()) if seq]
    return got


def small_store() -> MemoryStore:
    return MemoryStore(StoreLimits(stream_events=8))


@virtual
async def test_a_client_that_has_come_back_to_its_place_is_sent_to_name_another() -> None:
    client = Client(by_cursor=True, store=small_store())
    await client.happens(INFO)
    client.gets()
    assert client.record.stream is not None
    client.responder.follow(client.wake, client.record.stream.reader(client.wake, 2))
    got = await overtaken(client)
    assert got == list(range(3, len(got) + 3)) and len(got) < 10
    assert client.responder.ended and client.responder.state == "lost" and client.responder.answer is None


@virtual
async def test_a_slow_reader_of_its_own_request_gets_its_result_and_learns_what_it_missed() -> None:
    client = Client(by_cursor=True, store=small_store())
    got = await overtaken(client)
    assert got == sorted(set(got)) and not client.responder.ended
    missed = got[-1] - 1 - len(got)
    assert missed > 10
    await client.happens(Progressed(1), Progressed(2), Completed(b'{"content":[]}'))
    told = [message for _, message in client.gets() if message.get("method") == "notifications/progress"]
    assert [message["params"].get("_meta", {}).get(COALESCED) for message in told] == [missed, None]
    assert client.responder.ended and client.result["content"] == []


@virtual
async def test_a_reader_without_a_place_continues_with_the_remaining_events() -> None:
    client = Client(partials=True, store=small_store())
    got = await overtaken(client)
    row = await client.store.log.find(client.record.call.id)
    assert row is not None and row.first > 10
    assert got[-(row.last - row.first + 1) :] == list(range(row.first, row.last + 1))
    assert got == sorted(set(got)) and not client.responder.ended


@virtual
async def test_a_stream_that_is_gone_altogether_ends_with_an_error() -> None:
    client = Client(by_cursor=True)
    await client.happens(INFO)
    client.gets()
    assert client.record.stream is not None
    client.record.stream.fail(UnknownStream())
    assert client.gets() == [] and client.responder.ended and client.responder.state != "lost"
    assert "cannot be read any more" in json.loads(whole(client.responder.answer or b""))["error"]["message"]


@virtual
async def test_a_stream_that_another_hub_has_claimed_ends_with_an_error_that_says_so() -> None:
    client = Client(by_cursor=True)
    await client.happens(INFO)
    client.gets()
    assert client.record.stream is not None
    client.record.stream.fail(Fenced("stream st_1: another hub has claimed it"))
    assert client.gets() == [] and client.responder.ended
    error = json.loads(whole(client.responder.answer or b""))["error"]
    assert (error["data"]["code"], error["data"]["outcome"]) == ("owner_lost", "unknown")


# -- in place of the result


@virtual
async def test_what_stands_in_for_the_result_comes_when_it_is_due_and_behind_what_was_said() -> None:
    client = Client(by_cursor=True, early=TASK)
    await sleep(4.9)
    assert not client.responder.ended
    await client.happens(Progressed(1))
    await sleep(0.2)
    assert client.responder.has_more
    assert numbers(client.gets(1)) == [2] and client.responder.detached and client.result["resultType"] == "task"


@pytest.mark.parametrize(("early", "ends"), [(OUTPUT, True), (TASK, True), (OUTPUT, False)])
@virtual
async def test_a_slow_client_gets_every_event_before_what_stands_in_for_the_result(early: Early, ends: bool) -> None:
    client = Client(partials=True, early=early, store=LateStore())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module, "_TAIL_EVENTS", 4)
        for _ in range(20):
            await client.happens(INFO)
        await sleep(5)
        if ends:
            await client.happens(Completed(b'{"content":[],"isError":true}'))
        got: list[int] = []
        while not client.responder.ended:
            await sleep(0.2)  # a page is fetched
            while client.responder.has_more and not client.responder.ended:
                got += [seq for seq in numbers(client.gets()) if seq]
    assert got == list(range(2, 22)) and client.responder.detached != ends
    status, cursor = ("completed", "22") if ends else ("working", "21")
    assert client.mark == {"stream": client.record.call.id, "cursor": cursor, "status": status}


@pytest.mark.parametrize("case", ["ended before", "not ready", "closed"])
@virtual
async def test_it_does_not_come_when_it_is_not_wanted(case: str) -> None:
    client = Client(early=TASK, limits=StreamLimits(detached=case != "not ready"))
    if case == "ended before":
        await client.happens(DONE)
        client.gets()
    elif case == "closed":
        client.responder.close()
    await sleep(10)
    assert not client.responder.detached and client.gets() == []
    assert not client.responder.detached


@virtual
async def test_a_call_that_is_followed_no_longer_holds_nobody() -> None:
    client = Client(early=TASK)
    await client.happens(Progressed(1))
    client.responder.close()
    assert client.record.stream is not None and not client.record.stream.readers

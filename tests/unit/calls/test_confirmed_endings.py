"""Where replicas share the store: a client without cursors gets an ending that nobody can contradict."""

from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.calls.handle import CallHandle
from mcp_hub.calls.plan import CallRules, TimeLimits
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.errors import DeadlineExceeded, HubError, HubRestarted, RpcError, StoreError
from mcp_hub.events import CallEvent, Completed, Failed, Started, ToolCall, failed_by
from mcp_hub.stores.base import Message
from tests.unit.calls.call_scripts import DONE
from tests.unit.calls.durable_hub import HOW, DurableCall, DurableHub, Follower, Pair, pair_with_call, settle, store_of
from tests.unit.calls.virtual_time import sleep, virtual

STEP = ToolCall("c", "t", b"{}")


def port(pair: Pair) -> StreamPort:
    return StreamPort(pair.one.streams, lambda server, tool: CallRules())


class Client:
    """Reads a call as a front without cursors does."""

    def __init__(self, pair: Pair, call: DurableCall) -> None:
        pair.one.store.replicas = object()  # type: ignore[misc, assignment]
        self.events: list[CallEvent] = []
        self.reader = CallHandle(call.record.call, call.record, port(pair)).reader(self._wake)
        self._wake()

    def _wake(self) -> None:
        reader = getattr(self, "reader", None)
        while reader is not None and reader.has_more:
            self.events += reader.take()

    @property
    def error(self) -> RpcError:
        ending = self.events[-1]
        assert isinstance(ending, Failed)
        return ending.error


def failure(reader: Follower) -> HubError | None:
    return reader.reader.failed


@virtual
async def test_a_call_without_a_stream_is_answered_at_once() -> None:
    pair = Pair()
    call = pair.one.call()
    client = Client(pair, call)
    call.ends()
    await sleep(0.1)
    assert client.events == [Started(), DONE] and client.reader.at_end


@virtual
async def test_events_come_at_once_and_the_ending_when_the_store_has_confirmed_it() -> None:
    pair, call = await pair_with_call()
    client = Client(pair, call)
    store_of(pair.one).holds_back = True
    call.says(STEP)
    call.ends()
    await sleep(5)
    assert client.events == [Started(), STEP] and not client.reader.has_more and client.reader.take() == []
    store_of(pair.one).let_go()
    await sleep(1)
    assert client.events == [Started(), STEP, DONE] and client.reader.at_end


@pytest.mark.parametrize(
    ("how", "answer"),
    [
        (DONE, {"result": msgspec.json.decode(DONE.result)}),
        (RpcError("no", code=7), {"error": {"code": 7, "message": "no"}}),
    ],
)
@virtual
async def test_a_call_that_another_hub_has_ended_meanwhile_has_no_second_end(how: Any, answer: Any) -> None:
    pair, call = await pair_with_call()
    client = Client(pair, call)
    store_of(pair.one).holds_back = True
    pair.shared.alive.discard(pair.one.store.log.instance)
    await settle(lambda: pair.status(call.id) == "failed")
    call.ends(how)
    await sleep(1)
    assert client.events == [Started()]
    store_of(pair.one).let_go()
    await settle(lambda: client.reader.at_end)
    assert (
        isinstance(client.error, HubRestarted) and client.error.symbol == "owner_lost" and client.error.data is not None
    )
    assert (client.error.data["outcome"], client.error.data["answer"]) == ("unknown", answer)
    assert len([event for event in pair.events(call.id) if isinstance(event, Completed | Failed)]) == 1


@virtual
async def test_the_wait_for_the_store_ends_with_the_call_s_time() -> None:
    pair = Pair()
    call = pair.one.call(limits=TimeLimits(30, 30))
    await sleep(1)
    client = Client(pair, call)
    store_of(pair.one).holds_back = True
    call.ends()
    await sleep(28)
    assert client.events == [Started()]
    await sleep(2)
    assert client.error.symbol == "store_unavailable" and client.error.is_outcome_unknown
    assert (client.error.data or {})["answer"] == {"result": msgspec.json.decode(DONE.result)}


@virtual
async def test_a_call_whose_time_is_over_says_so_while_the_store_answers() -> None:
    pair = Pair(delay=0.05)
    call = pair.one.call(limits=TimeLimits(30, 30))
    await sleep(1)
    client = Client(pair, call)
    await sleep(31)
    assert isinstance(client.error, DeadlineExceeded)


@virtual
async def test_an_ending_that_the_store_refuses_is_not_given_as_if_it_were_kept() -> None:
    pair, call = await pair_with_call()
    client = Client(pair, call)
    store_of(pair.one).refusals = [StoreError("no")]
    call.ends()
    await settle(lambda: client.reader.at_end)
    assert client.error.symbol == "store_unavailable" and client.error.is_outcome_unknown


@virtual
async def test_a_client_that_leaves_while_the_ending_waits_hears_nothing_more() -> None:
    pair, call = await pair_with_call()
    client = Client(pair, call)
    store_of(pair.one).holds_back = True
    call.ends()
    await sleep(1)
    client.reader.close()
    store_of(pair.one).let_go()
    await sleep(120)
    assert client.events == [Started()]


@pytest.mark.parametrize("is_continued", [False, True])
@virtual
async def test_a_lost_call_is_stopped_at_its_server_unless_the_other_hub_goes_on_with_it(is_continued: bool) -> None:
    pair, call = await pair_with_call()
    if is_continued:
        call.record.continuable(HOW)
        await sleep(1)
    pair.one.streams._take(Message(call.id, "lost", b""))
    await settle(lambda: call.record.log.ended)
    assert failed_by(call.record.log.ending, "owner_lost") and call.was_left is is_continued


@virtual
async def test_what_a_hub_may_have_lost_is_refused_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    pair, call = await pair_with_call()
    monkeypatch.setattr(pair.one.store, "is_held", lambda stream: False)
    streams = pair.one.streams
    with pytest.raises(StoreError):
        await streams.open("p", call.id)
    with pytest.raises(StoreError):
        await streams.cancel("p", call.id, "enough")
    with pytest.raises(StoreError):
        await streams.answer("p", call.id, "q1", b"{}")
    with pytest.raises(RpcError) as unknown:
        await port(pair).begin(call.record, None, "d")
    assert unknown.value.is_outcome_unknown and unknown.value.symbol == "store_unavailable", "it has been sent"
    monkeypatch.undo()
    assert (await streams.open("p", call.id)).row.id == call.id


@virtual
async def test_a_cancellation_that_the_store_does_not_confirm_is_refused_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pair, call = await pair_with_call()
    call.record.continuable(HOW)
    await sleep(1)
    monkeypatch.setattr(pair.one.store, "append", lambda *append: None)
    with anyio.fail_after(10), pytest.raises(StoreError):
        await pair.one.streams.cancel("p", call.id, "enough")


@virtual
async def test_a_reader_waits_for_the_store_until_the_end_of_the_call_s_time_and_may_come_back() -> None:
    pair = Pair()
    pair.one.store.replicas = object()  # type: ignore[misc, assignment]
    call = pair.one.call(limits=TimeLimits(30, 30))
    await sleep(1)
    reader = await pair.one.follow(call.id)
    store_of(pair.one).holds_back = True
    call.says(STEP)
    await sleep(27)
    assert reader.events == [Started()] and failure(reader) is None
    await sleep(5)
    assert isinstance(failure(reader), StoreError) and call.record.stream is not None
    assert call.record.stream.failed is None and call.record.writer is not None
    reader.reader.close()
    with pytest.raises(StoreError):
        await pair.one.streams.open("p", call.id, 1)
    store_of(pair.one).let_go()
    again = await pair.one.follow(call.id, 1)
    await settle(lambda: again.at_end)
    assert reader.lines + again.lines == pair.shared.lines(call.id)


@virtual
async def test_a_reader_waits_for_the_store_for_five_seconds_at_least() -> None:
    pair = Pair()
    pair.one.store.replicas = object()  # type: ignore[misc, assignment]
    call = pair.one.call(limits=TimeLimits(30, 30))
    await sleep(29)
    reader = await pair.one.follow(call.id)
    store_of(pair.one).holds_back = True
    call.says(STEP)
    await sleep(4.5)
    assert failure(reader) is None
    await sleep(1.5)
    assert failure(reader) is not None


@virtual
async def test_a_call_that_begins_is_not_said_to_be_stored_when_its_readers_give_up() -> None:
    pair = Pair()
    pair.one.store.replicas = object()  # type: ignore[misc, assignment]
    store_of(pair.one).holds_back = True
    call = pair.one.call(limits=TimeLimits(10, 10))
    with pytest.raises(RpcError) as unknown:
        await port(pair).begin(call.record, None, "d")
    assert unknown.value.is_outcome_unknown


@virtual
async def test_a_reader_of_another_replica_s_stream_waits_a_minute_for_the_store() -> None:
    pair, call = await pair_with_call()
    pair.two.store.replicas = object()  # type: ignore[misc, assignment]
    reader = await pair.two.follow(call.id)
    store_of(pair.two).is_durable = False
    await sleep(58)
    store_of(pair.two).is_durable = True
    await sleep(1)
    store_of(pair.two).is_durable = False
    await sleep(58)
    assert failure(reader) is None
    await sleep(4)
    assert isinstance(failure(reader), StoreError)
    again = await pair.two.follow(call.id, reader.reader.cursor)
    store_of(pair.two).is_durable = True
    call.ends()
    await settle(lambda: again.at_end)


@virtual
async def test_a_single_hub_s_reader_waits_as_long_as_its_file() -> None:
    hub = DurableHub().runs()
    call = hub.call(limits=TimeLimits(30, 30))
    await sleep(1)
    reader = await hub.follow(call.id)
    store_of(hub).holds_back = True
    await sleep(300)
    assert failure(reader) is None
    store_of(hub).let_go()
    await settle(lambda: reader.at_end)

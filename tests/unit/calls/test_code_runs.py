"""Runs of scripts: what is committed before what is sent, and what becomes of them when a hub dies."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from mcp_hub.calls.code import run, runs, sending, state
from mcp_hub.calls.runner import CallRecord
from mcp_hub.errors import StoreUnavailable
from mcp_hub.events import Cancelled, Delta, Failed, Progressed, ToolCall, ToolResult
from tests.unit.calls.code_runs import CodeHub, CodeStore, MadeEngine, Recorder, Server, output, script
from tests.unit.calls.durable_hub import settle, written
from tests.unit.calls.shared_store import Shared
from tests.unit.calls.virtual_time import LoopClock, sleep, virtual

MIXED = script(
    [("read", {"x": 1, "seconds": 0.1}), ("write", {"x": 1, "seconds": 0.2})],
    [("write", {"x": 2, "seconds": 2}), ("write", {"x": 3}), ("read", {"x": 2, "seconds": 1}), ("put", {"x": 1})],
    [("destroy", {"x": 1})],
)
WRITES = ["write 1", "write 2", "write 3", "destroy 1"]
READS = ["read 1", "read 2"]


def a_hub(store: CodeStore | None = None, server: Server | None = None, engine: MadeEngine | None = None) -> CodeHub:
    return CodeHub(store or CodeStore(), server or Server(), engine)


async def ended(record: CallRecord, seconds: float = 600) -> Any:
    await settle(lambda: record.log.ended, seconds)
    return record.log.ending


@virtual
async def test_script_gets_the_values_of_its_calls_at_a_limit_of_one_running_call() -> None:
    hub = a_hub()
    record = hub.runs_script(MIXED)
    expected = ["read 1", "write 1", "write 2", "write 3", "read 2", "put 1", "destroy 1"]
    assert output(await ended(record)) == expected
    assert hub.server.counts == Counter(dict.fromkeys(expected, 1))
    assert all(inner.call.parent == record.call.id for inner in hub.sent)


@virtual
async def test_log_has_each_call_its_result_what_was_printed_and_the_count() -> None:
    hub = a_hub()
    record = hub.runs_script(script([("read", {"x": 1})], [("write", {"x": 1})], prints="now"))
    await ended(record)
    events = written(hub, record.call.id)
    calls = [(event.name, bytes(event.arguments)) for event in events if isinstance(event, ToolCall)]
    assert calls == [("read", b'{"x":1}'), ("write", b'{"x":1}')]
    results = [event for event in events if isinstance(event, ToolResult)]
    assert [event.call for event in results] == [event.call for event in events if isinstance(event, ToolCall)]
    assert [event.progress for event in events if isinstance(event, Progressed)] == [1, 2]
    assert "".join(event.text for event in events if isinstance(event, Delta)) == "nownownow"


@virtual
async def test_batch_with_a_writing_call_is_as_firm_as_an_ending_and_others_are_not() -> None:
    store = CodeStore()
    hub = a_hub(store)
    await ended(hub.runs_script(script([("read", {"x": 1})], [("write", {"x": 1})], [("read", {"x": 2})])))
    firm = [change.is_firm for change in store.changes if change.status == "working" and change.continuation]
    # the first batch makes the stream, the next one says that no other hub runs the same code; what was read goes with
    # the next batch, what a write gave at once
    assert firm == [True, True, False, False]


@virtual
async def test_nothing_is_sent_before_its_batch_is_stored() -> None:
    store = CodeStore()
    hub = a_hub(store)
    store.holds_back = True
    record = hub.runs_script(script([("read", {"x": 1}), ("write", {"x": 1})]))
    await settle(lambda: hub.engine.steps == 1)
    with pytest.raises(AssertionError, match="never"):
        await settle(lambda: bool(hub.server.counts), 2)
    store.let_go()
    assert output(await ended(record)) == ["read 1", "write 1"]


@virtual
async def test_batch_that_memory_alone_has_sends_nothing_and_ends_by_name() -> None:
    store = CodeStore()
    hub = a_hub(store)
    store.is_away = True
    ending = await ended(hub.runs_script(script([("write", {"x": 1})])))
    assert isinstance(ending, Failed) and ending.error.symbol == "code_not_stored"
    assert not hub.server.counts


@virtual
async def test_batch_waits_for_a_store_that_comes_back() -> None:
    store = CodeStore()
    hub = a_hub(store)
    store.is_away = True
    record = hub.runs_script(script([("write", {"x": 1})]))
    with pytest.raises(AssertionError, match="never"):
        await settle(lambda: bool(hub.server.counts), 2)
    store.is_away = False
    assert output(await ended(record)) == ["write 1"]


@pytest.mark.parametrize("again", [False, True])
@virtual
async def test_nothing_runs_before_the_key_of_the_replicas_is_known(again: bool) -> None:
    hub = a_hub()
    known = hub.key

    def unknown() -> bytes:
        raise StoreUnavailable("not yet")

    hub.key = unknown
    ending = await ended(hub.runs_script(MIXED, again=again))
    assert isinstance(ending, Failed) and isinstance(ending.error, StoreUnavailable)
    assert not hub.server.counts and hub.engine.steps == 0
    hub.key = known
    assert output(await ended(hub.runs_script(MIXED, again=again)))[0] == "read 1"


@virtual
async def test_too_large_a_state_ends_by_name_and_sends_nothing() -> None:
    hub = a_hub()
    hub.engine.padding = 2 << 20
    ending = await ended(hub.runs_script(script([("write", {"x": 1})])))
    assert isinstance(ending, Failed) and ending.error.symbol == "code_snapshot_too_large"
    assert not hub.server.counts


def is_over(shared: Shared, id_: str) -> bool:
    row = shared.row(id_)
    return row is not None and row.has_ended


async def resumed_from(shared: Shared, counts: Counter[str], code_mode: str = "all") -> CodeHub:
    """A hub that finds the store as another one left it, and a server that was called so often."""
    server = Server()
    server.counts += counts
    hub = a_hub(CodeStore(shared), server)
    hub.runs()
    await settle(lambda: all(row.has_ended for row in shared.core.streams.rows()))
    return hub


def check(shared: Shared, hub: CodeHub, id_: str, expected: list[str]) -> list[Any]:
    """Each write was made at most once, or the script was told; the others have their values."""
    ending = written(hub, id_)[-1]
    values = output(ending)  # type: ignore[arg-type]
    assert len(values) == len(expected)
    for value, name in zip(values, expected, strict=True):
        if name in WRITES:
            assert hub.server.counts[name] <= 1, name
            assert value == "OutcomeUnknown" or (value == name and hub.server.counts[name] == 1), (name, value)
        else:
            assert value == name
    return values


@virtual
async def test_kill_between_any_two_steps_makes_no_write_twice_and_tells_the_script() -> None:
    server = Server()
    store = Recorder(Shared(), server)
    first = a_hub(store, server)
    record = first.runs_script(MIXED)
    expected = output(await ended(record))
    unknown = 0
    assert len(store.copies) > 10
    for shared, after, before in store.copies[:-1]:
        for counts in (after, before):
            copy = Recorder(Shared(), server)  # so that each has its own
            copy.shared.core = shared.core
            copy._copies()
            [(fresh, _, _)] = copy.copies
            hub = await resumed_from(fresh, counts)
            unknown += check(fresh, hub, record.call.id, expected).count("OutcomeUnknown")
            await hub.dies()
    assert unknown > 0, "some of them were in flight"


@virtual
async def test_killed_hub_s_held_calls_are_sent_and_sent_reads_are_repeated() -> None:
    store = CodeStore()
    hub = a_hub(store)
    hub.code_limits = type(hub.code_limits)(parallel=2)
    stage = [
        ("read", {"x": 1, "seconds": 100}),
        ("write", {"x": 1, "seconds": 100}),
        ("write", {"x": 2}),
        ("read", {"x": 2}),
    ]
    record = hub.runs_script(script(stage))
    await settle(lambda: hub.server.running == 2)
    await hub.dies()
    other = a_hub(CodeStore(store.shared), hub.server).runs()
    await settle(lambda: hub.server.counts["read 2"] == 1)
    await settle(lambda: is_over(store.shared, record.call.id), 300)
    values = output(written(other, record.call.id)[-1])  # type: ignore[arg-type]
    assert values == ["read 1", "OutcomeUnknown", "write 2", "read 2"]
    assert hub.server.counts == Counter({"read 1": 2, "write 1": 1, "write 2": 1, "read 2": 1})


async def left(server: Server, code: str, ready: str, mode: str = "all") -> tuple[CodeHub, CallRecord]:
    """A hub that died once its server was called so; another one is to take its run over."""
    hub = a_hub(server=server)
    hub.code_mode = mode  # type: ignore[assignment]
    record = hub.runs_script(code, {"elicitation": {}})
    await settle(lambda: bool(server.counts[ready]))
    return hub, record


def another(hub: CodeHub, mode: str = "all") -> CodeHub:
    assert isinstance(hub.store, CodeStore)
    other = a_hub(CodeStore(hub.store.shared), hub.server)
    other.code_mode = mode  # type: ignore[assignment]
    return other


async def taken_up(hub: CodeHub, record: CallRecord) -> list[Any]:
    hub.runs()
    assert isinstance(hub.store, CodeStore)
    shared = hub.store.shared
    await settle(lambda: is_over(shared, record.call.id), 5000)
    return output(written(hub, record.call.id)[-1])  # type: ignore[arg-type]


@virtual
async def test_slow_call_with_a_stream_of_its_own_has_its_outcome_looked_up() -> None:
    server = Server()
    hub = a_hub(server=server)
    record = hub.runs_script(script([("write", {"x": 1, "seconds": 3})]))
    await settle(lambda: bool(hub.sent) and hub.sent[0].log.ended)
    # the inner stream is stored; the outcome of the run is not, as if the hub had died in between
    assert isinstance(hub.store, CodeStore)
    copy = Recorder(hub.store.shared, server)
    copy._copies()
    [(shared, _, _)] = copy.copies
    await ended(record)
    store = CodeStore(shared)
    other = a_hub(store, server)
    assert await taken_up(other, record) == ["write 1"]
    assert server.counts["write 1"] == 1


@virtual
async def test_tool_that_was_reading_and_is_not_any_more_is_not_repeated() -> None:
    hub, record = await left(Server(), script([("read", {"x": 1, "seconds": 100})]), "read 1")
    await hub.dies()
    other = another(hub)
    other.code_traits["read"] = []
    assert await taken_up(other, record) == ["OutcomeUnknown"]


@virtual
async def test_worker_that_is_lost_is_replaced_twice_and_no_call_is_made_again() -> None:
    hub = a_hub()
    hub.engine.crashes = [1, 3]
    record = hub.runs_script(MIXED)
    await ended(record)
    assert max(hub.server.counts.values()) == 1 and hub.engine.loads == 1
    output(record.log.ending)
    hub.engine.crashes = [hub.engine.steps + number for number in (2, 3, 4)]
    record = hub.runs_script(script([("write", {"x": 9})]))
    ending = await ended(record)
    assert isinstance(ending, Failed) and ending.error.symbol == "code_crashed"
    assert [call["tool"] for call in (ending.error.data or {})["calls"]] == ["write"]
    assert hub.server.counts["write 9"] == 1


@virtual
async def test_at_most_so_many_calls_are_in_flight_and_in_all() -> None:
    hub = a_hub()
    hub.code_limits = type(hub.code_limits)(parallel=3, calls=20)
    record = hub.runs_script(script([("read", {"x": number}) for number in range(20)]))
    assert len(output(await ended(record))) == 20
    assert hub.server.most == 3
    ending = await ended(hub.runs_script(script([("read", {"x": number}) for number in range(21)])))
    assert isinstance(ending, Failed) and ending.error.symbol == "code_limit"
    assert (ending.error.data or {})["limit"] == "hub.code_limits.calls"
    assert hub.server.counts.total() == 20


@virtual
async def test_outcomes_are_fed_in_the_order_in_which_they_came() -> None:
    hub = a_hub()
    stage = [("read", {"x": number, "seconds": 3 - number}) for number in range(3)]
    await ended(hub.runs_script(script(stage)))
    assert hub.engine.fed == [[3], [2], [1]]


@virtual
async def test_cancelled_run_sends_nothing_more_and_is_not_resumed() -> None:
    hub, record = await left(Server(), script([("write", {"x": 1, "seconds": 1})], [("write", {"x": 2})]), "write 1")
    await hub.streams.cancel("p", record.call.id, "enough")
    await ended(record)
    assert hub.server.counts == Counter({"write 1": 1}) and hub.server.running == 0

    hub, record = await left(Server(), script([("read", {"x": 1, "seconds": 9})], [("write", {"x": 2})]), "read 1")
    record.continuable(record.resumption.state if record.resumption else None)
    assert record.resumption is not None
    record._resume_by(type(record.resumption)(record.resumption.state, "enough"))  # as a cancel that was acknowledged
    await settle(lambda: record.writer is not None and record.writer.is_committed(lambda: None))
    await hub.dies()
    other = another(hub).runs()
    assert isinstance(hub.store, CodeStore)
    shared = hub.store.shared
    await settle(lambda: is_over(shared, record.call.id))
    assert written(other, record.call.id)[-1] == Cancelled("enough")
    assert hub.server.counts == Counter({"read 1": 1})


@virtual
async def test_owner_that_was_fenced_sends_nothing_more() -> None:
    hub, record = await left(Server(), script([("read", {"x": 1, "seconds": 9})], [("write", {"x": 2})]), "read 1")
    assert isinstance(hub.store, CodeStore)
    hub.store.shared.alive.discard(hub.store.instance)  # it is stopped, and wakes up again
    other = another(hub)
    values = await taken_up(other, record)
    await ended(record)
    assert values == ["read 1", "write 2"]
    assert hub.server.counts["write 2"] == 1
    assert all(bytes(inner.call.params["name"]) == b'"read"' for inner in hub.sent)


@virtual
async def test_hub_that_stops_leaves_the_run_to_the_next_one() -> None:
    hub, record = await left(Server(), script([("read", {"x": 1, "seconds": 9})], [("write", {"x": 2})]), "read 1")
    hub.runs()
    await hub.stops()
    assert isinstance(hub.store, CodeStore)
    assert not is_over(hub.store.shared, record.call.id)
    hub.store.die()
    assert await taken_up(another(hub), record) == ["read 1", "write 2"]


@virtual
async def test_state_of_another_key_engine_or_epoch_ends_by_name_with_the_calls_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    code = script([("write", {"x": 1})], [("read", {"x": 2, "seconds": 9})])
    for change in ("key", "engine", "epoch"):
        hub, record = await left(Server(), code, "read 2")
        await hub.dies()
        other = another(hub)
        with monkeypatch.context() as patch:
            if change == "key":
                other.code_runs._parts = replace(other.code_runs._parts, key=lambda: b"x" * 32)
            elif change == "engine":
                patch.setattr(runs, "engine_version", lambda: "another")
            else:
                patch.setattr(state, "_seal", tampered(state._seal))
            other.runs()
            assert isinstance(hub.store, CodeStore)
            await settle(partial(is_over, hub.store.shared, record.call.id))
        ending = written(other, record.call.id)[-1]
        assert isinstance(ending, Failed) and ending.error.symbol == "code_not_resumable", change
        made = [(call["tool"], call["outcome"]) for call in (ending.error.data or {})["calls"]]
        assert made == [("write", "ok"), ("read", "unknown")]
        assert hub.server.counts == Counter({"write 1": 1, "read 2": 1})


def tampered(seal: Any) -> Any:
    """Seals of another epoch than the one that is written down."""
    return lambda run, call, epoch, engine, key: seal(run, call, epoch + 1, engine, key)


@virtual
async def test_sleep_ends_at_its_time_after_a_takeover(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (run, sending):
        monkeypatch.setattr(module, "wall_time", lambda: LoopClock().now())
    store = CodeStore()
    hub = a_hub(store)
    record = hub.runs_script(script([("asyncio.sleep", {"seconds": 3600}), ("read", {"x": 1})], [("write", {"x": 2})]))
    began = LoopClock().now()
    await settle(lambda: bool(hub.server.counts), 100)
    await sleep(1000)
    await hub.dies()
    other = another(hub).runs()
    while not is_over(store.shared, record.call.id):
        assert LoopClock().now() - began < 4000
        await sleep(5)
    assert output(written(other, record.call.id)[-1]) == [None, "read 1", "write 2"]  # type: ignore[arg-type]
    assert LoopClock().now() - began == pytest.approx(3600, abs=30)


@virtual
async def test_script_whose_hub_dies_before_its_first_call_is_begun_anew() -> None:
    hub = a_hub()
    hub.tools_take = 30.0
    record = hub.runs_script(MIXED)
    await sleep(5)
    await hub.dies()
    assert len(await taken_up(another(hub), record)) == 7
    assert max(hub.server.counts.values()) == 1

"""Scripts whose hub, store or client is lost at a bad moment: no write twice, no answer forgotten, nothing after a
cancel.
"""

from collections import Counter
from functools import partial
from typing import Any

import pytest

from mcp_hub.call import StreamInfo
from mcp_hub.calls.code import sending
from mcp_hub.calls.code.state import writes_of
from mcp_hub.calls.runner import CallRecord
from mcp_hub.events import InputReceived
from tests.unit.calls.code_runs import CodeHub, CodeStore, Recorder, Server, output, script
from tests.unit.calls.durable_hub import settle, written
from tests.unit.calls.shared_store import Shared
from tests.unit.calls.test_code_consent import CODE, FORMS, answer, asking
from tests.unit.calls.test_code_runs import MIXED, a_hub, another, ended, is_over, left, taken_up
from tests.unit.calls.virtual_time import sleep, virtual


def shared_of(hub: CodeHub) -> Shared:
    assert isinstance(hub.store, CodeStore)
    return hub.store.shared


@virtual
async def test_client_that_timed_out_twice_gets_the_run_by_the_same_code() -> None:
    hub = asking("all")
    hub.registry.limit(10, 10)
    hub.runs()
    first = hub.runs_script(CODE)
    await settle(lambda: bool(hub.server.counts))
    assert hub.port.streams.timed_out.give_up(first, "request timed out")
    second = hub.runs_script(CODE)
    await sleep(1)
    assert hub.port.streams.timed_out.give_up(second, "request timed out")
    await ended(second)
    await settle(lambda: is_over(shared_of(hub), second.call.id))
    assert output(await ended(hub.runs_script(CODE))) == ["write 1"]
    assert hub.server.counts == Counter({"write 1": 1})


@virtual
async def test_mode_of_the_moment_holds_after_a_wait_for_the_store() -> None:
    hub = asking("all")
    assert isinstance(hub.store, CodeStore)
    hub.store.is_away = True
    record = hub.runs_script(script([("write", {"x": 1})], [("read", {"x": 1})]))
    await sleep(2)
    hub.code_mode = "reads"
    hub.store.is_away = False
    assert output(await ended(record)) == ["PermissionError", "read 1"]
    assert hub.server.counts == Counter({"read 1": 1})


@virtual
async def test_answer_is_stored_with_what_it_allows() -> None:
    server = Server()
    store = Recorder(Shared(), server)
    hub = CodeHub(store, server)
    hub.code_mode = "ask"
    record = hub.runs_script(script([("write", {"x": 1})]), FORMS)
    await settle(lambda: bool(record.questions.open))
    await hub.follow(record.call.id)  # so that events are stored at once
    await answer(record, "once")
    await ended(record)
    answered = 0
    for shared, counts, _ in store.copies:
        server = Server()
        server.counts += counts
        other = CodeHub(CodeStore(shared), server)
        other.code_mode = "ask"
        is_answered = any(isinstance(event, InputReceived) for event in written(other, record.call.id))
        if not is_answered or is_over(shared, record.call.id):
            continue
        answered += 1
        other.runs()
        await settle(partial(is_over, shared, record.call.id))
        [value] = output(written(other, record.call.id)[-1])  # type: ignore[arg-type]
        assert value in ("write 1", "OutcomeUnknown") and server.counts["write 1"] <= 1
        await other.dies()
    assert answered


DURABLE = script([("write", {"x": 1, "seconds": 100, "durable": True})], [("read", {"x": 1})])


@virtual
async def test_durable_call_of_a_lost_hub_is_followed_and_not_sent_again() -> None:
    hub, record = await left(Server(), DURABLE, "write 1")
    await sleep(5)
    await hub.dies()
    assert await taken_up(another(hub), record) == ["write 1", "read 1"]
    assert hub.server.counts == Counter({"write 1": 1, "read 1": 1})


@virtual
async def test_cancel_after_a_takeover_ends_the_call_that_is_followed() -> None:
    hub, record = await left(Server(), DURABLE, "write 1")
    await sleep(5)
    await hub.dies()
    other = another(hub).runs()
    await settle(lambda: bool(other.records and other.sent))
    await sleep(2)
    await other.streams.cancel("p", record.call.id, "enough")
    await settle(lambda: is_over(shared_of(hub), record.call.id))
    await settle(lambda: not hub.server.running, 20)
    assert hub.server.counts == Counter({"write 1": 1})


@virtual
async def test_call_that_was_surely_not_sent_is_refused_and_not_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, record = await left(Server(), script([("write", {"x": 1, "seconds": 50})]), "write 1")
    await hub.dies()

    async def unsent(*_: object) -> str:
        return "unsent"

    monkeypatch.setattr(sending, "recovered", unsent)
    assert await taken_up(another(hub, "reads"), record) == ["PermissionError"]


@virtual
async def test_call_that_waited_for_a_cancelled_run_is_not_run_by_the_next_hub() -> None:
    hub = asking("all")
    hub.registry.limit(10, 10)
    hub.runs()
    first = hub.runs_script(script([("write", {"x": 1}), ("read", {"x": 1, "seconds": 60})]))
    await settle(lambda: bool(hub.server.counts))
    await sleep(2)
    second = hub.runs_script(script([("write", {"x": 1}), ("read", {"x": 1, "seconds": 60})]))
    hub.port.streams.detach(second)
    await sleep(2)
    for each in [second]:
        each.task and each.task.cancel()
    await hub.streams.cancel("p", first.call.id, "enough")
    await settle(lambda: is_over(shared_of(hub), first.call.id))
    await hub.dies()
    other = another(hub).runs()
    await settle(lambda: is_over(shared_of(hub), second.call.id))
    assert other.server.counts == Counter({"write 1": 1, "read 1": 1})


@virtual
async def test_run_is_found_by_the_same_code_behind_many_newer_streams() -> None:
    hub = asking("all")
    hub.registry.limit(1000, 1000)
    hub.runs()
    record = hub.runs_script(script([("write", {"x": 1}), ("read", {"x": 1, "seconds": 60})]))
    await settle(lambda: bool(hub.server.counts))
    calls = [hub.call() for _ in range(300)]
    await sleep(5)
    assert all(shared_of(hub).row(call.id) for call in calls)
    other = another(hub).runs()
    same = other.runs_script(script([("write", {"x": 1}), ("read", {"x": 1, "seconds": 60})]))
    assert output(await ended(same)) == output(await ended(record))
    assert hub.server.counts == Counter({"write 1": 1, "read 1": 1})


@virtual
async def test_same_code_at_two_replicas_at_once_writes_once() -> None:
    hub = asking("all")
    other = another(hub).runs()
    hub.runs()
    records: list[CallRecord] = [each.runs_script(CODE) for each in (hub, other)]
    endings = [await ended(record) for record in records]
    assert [output(ending) for ending in endings] == [["write 1"]] * 2
    assert hub.server.counts == Counter({"write 1": 1})


async def nothing_for_long(principal: str | None, limit: int) -> list[StreamInfo]:
    await sleep(1000)
    return []


@pytest.mark.parametrize("seconds", [0.01, 60.0])
@virtual
async def test_run_that_is_lost_before_it_may_write_joins_the_one_that_did(seconds: float) -> None:
    """Its hub began first, could not store that for a while, and was killed before it had looked for others."""
    hub = asking("all")
    assert isinstance(hub.store, CodeStore)
    code = script([("write", {"x": 1})], [("write", {"x": 2}), ("read", {"x": 1, "seconds": seconds})])
    hub.runs()
    hub.store.delay = lambda: 1.5
    first = hub.runs_script(code)
    await sleep(0.5)
    other = another(hub).runs()
    second = other.runs_script(code)
    await settle(lambda: hub.server.counts["write 2"] == 1)
    hub.store.rows = nothing_for_long  # type: ignore[method-assign]
    hub.store.delay = None
    await sleep(4)
    row = shared_of(hub).row(first.call.id)
    assert row is not None and writes_of(row.continuation) == "soon"
    await hub.dies()
    third = another(hub).runs()
    await settle(partial(is_over, shared_of(hub), first.call.id))
    expected = ["write 1", "write 2", "read 1"]
    assert output(await ended(second)) == output(written(third, first.call.id)[-1]) == expected  # type: ignore[arg-type]
    assert hub.server.counts == Counter({"write 1": 1, "write 2": 1, "read 1": 1})


@virtual
async def test_run_that_is_lost_before_it_may_write_has_sent_nothing_and_says_so() -> None:
    hub = asking("all")
    assert isinstance(hub.store, CodeStore)
    hub.runs()
    hub.tools_take = 1.0
    record = hub.runs_script(script([("write", {"x": 1})], [("write", {"x": 2})]))
    await sleep(0.5)
    hub.store.rows = nothing_for_long  # type: ignore[method-assign]
    await sleep(2)
    await hub.dies()
    assert await taken_up(another(hub), record) == ["write 1", "write 2"]
    assert hub.server.counts == Counter({"write 1": 1, "write 2": 1})


class _Backwards(CodeStore):
    """Continues the newest stream first."""

    async def orphans(self) -> list[StreamInfo]:
        return (await super().orphans())[::-1]


@virtual
async def test_two_equal_scripts_that_had_not_begun_do_not_wait_for_each_other_at_the_next_hub() -> None:
    hub = asking("all")
    hub.registry.limit(10, 10)
    hub.tools_take = 30.0
    records = []
    for _ in range(2):
        records.append(hub.runs_script(CODE))
        await sleep(2)
    await hub.dies()
    other = CodeHub(_Backwards(shared_of(hub)), hub.server)
    other.registry.limit(10, 10)
    other.runs()
    for record in records:
        await settle(partial(is_over, shared_of(hub), record.call.id))
    assert hub.server.counts == Counter({"write 1": 1})


@virtual
async def test_script_of_a_hub_where_code_is_off_now_calls_nothing_more() -> None:
    stages: Any = [("read", {"x": 1, "seconds": 100}), ("write", {"x": 1, "seconds": 100})], [("write", {"x": 2})]
    hub, record = await left(Server(), script(*stages), "write 1")
    await hub.dies()
    assert await taken_up(another(hub, "off"), record) == ["PermissionError", "OutcomeUnknown", "PermissionError"]
    assert hub.server.counts == Counter({"read 1": 1, "write 1": 1})


@virtual
async def test_script_that_only_reads_commits_rarely_and_reads_again_what_was_not_committed() -> None:
    server = Server()
    store = Recorder(Shared(), server)
    hub = CodeHub(store, server, rarely=0.25)
    quick = hub.runs_script(script(*[[("read", {"x": x})] for x in range(8)]))
    values = [f"read {x}" for x in range(8)]
    assert output(await ended(quick)) == values
    assert len(store.copies) <= 2, "it has ended before a commit was due"
    store.copies.clear()
    slow = hub.runs_script(script(*[[("read", {"x": x, "seconds": 0.1})] for x in range(8)]))
    await settle(lambda: server.counts["read 7"] == 2)
    await hub.dies()
    assert 1 < len(store.copies) < 8
    other = a_hub(CodeStore(store.shared), server).runs()
    await settle(lambda: is_over(store.shared, slow.call.id), 300)
    assert output(written(other, slow.call.id)[-1]) == values  # type: ignore[arg-type]
    assert sum(server.counts.values()) < 8 + 8 + 8, "it did not begin anew"


@virtual
async def test_write_waits_for_a_commit_in_a_script_that_commits_rarely() -> None:
    server = Server()
    store = Recorder(Shared(), server)
    record = CodeHub(store, server, rarely=1000).runs_script(MIXED)
    await ended(record)
    for shared, after, _ in store.copies:
        row = shared.row(record.call.id)
        known = b"" if row is None or row.continuation is None else row.continuation
        for key in (key for key in after if key.startswith(("write", "destroy"))):
            assert row is not None and (row.has_ended or b'"write"' in known or b'"destroy"' in known), key

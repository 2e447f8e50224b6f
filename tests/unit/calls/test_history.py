"""The history of calls: what is kept of a call, in which order and within which bounds, and what it says it lost."""

import json
import threading
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub import masking
from mcp_hub.call import CallingClient
from mcp_hub.calls.history import journal as journals
from mcp_hub.calls.history import waiting
from mcp_hub.calls.history.batches import JournalRules, ToolKeeping
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.history.waiting import FULL, MOST, VALUE
from mcp_hub.clock import SystemClock
from mcp_hub.errors import RpcError, StoreError
from mcp_hub.events import Cancelled, Completed, Ending, Failed
from mcp_hub.stores.faults import StoreFault
from mcp_hub.stores.history.base import (
    COMPLETED,
    CUT_ARGUMENTS,
    CUT_RESULT,
    MASKED_ARGUMENTS,
    MASKED_RESULT,
    Batch,
    Keeping,
)
from mcp_hub.stores.history.file import HistoryFile
from mcp_hub.stores.history.reading import CallFilter, PastFigures, percentile, scanned, texts_of
from tests.unit.calls.past import EVERYTHING, Lists, arguments_in, end, history_file, keep, kept, new_journal, past_call
from tests.unit.wire.raw_lines import group
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

SECRET = 'se"cret-value-0123456789\n'


async def test_each_call_is_kept_with_arguments_and_in_order() -> None:
    store = history_file(None)
    journal = new_journal(store)
    for start in range(0, 3000, 750):
        end(journal, [past_call(arguments={"n": n}) for n in range(start, start + 750)])
        await journal.flush()
    assert await arguments_in(store) == [f'{{"n":{n}}}' for n in range(3000)]
    calls = await kept(store)
    assert [call.number for call in calls] == list(range(3000)) and len({call.id for call in calls}) == 3000


async def test_call_that_differs_from_the_one_before_it_in_one_thing_is_kept_as_itself() -> None:
    journal = new_journal(store := history_file(None))
    usual = ("a", "echo", "tools/call", "p", "", "completed")
    different = {
        ("b", *usual[1:]): past_call(server="b"),
        ("a", "other", *usual[2:]): past_call("other"),
        ("a", "echo", "prompts/get", *usual[3:]): past_call(method="prompts/get"),
        (*usual[:3], "q", *usual[4:]): past_call(principal="q"),
        (*usual[:4], "t", "completed"): past_call(client=CallingClient("t")),
        (*usual[:4], "REST", "completed"): past_call(session="rest#1"),
        (*usual[:5], "tool_error"): past_call(ending=Completed(b'{"content":[],"isError":true}')),
    }
    await keep(journal, past_call(), *(record for call in different.values() for record in (call, past_call())))
    groups = [call.group for call in await kept(store)]
    assert [
        (group.server, group.tool, group.method, group.principal, group.client, group.status) for group in groups
    ] == [usual, *(row for texts in different for row in (texts, usual))]


@pytest.mark.parametrize(("keeping", "supplied"), [("hash", {}), ("full", {"b": 1})])
async def test_the_key_is_first_read_by_a_thread_and_may_change(keeping: Keeping, supplied: dict[str, object]) -> None:
    readers = list[int]()

    def key() -> bytes:
        readers.append(threading.get_ident())
        return bytes([len(readers)]) * 32

    rules = JournalRules(keeping, EVERYTHING, lambda server, tool: ToolKeeping(defaults=supplied))
    journal = CallJournal(store := history_file(None), "in_a", lambda: rules, Lists(), key, SystemClock())
    journal.use()
    for _ in range(2):
        await keep(journal, past_call(arguments={"a": 1}))
    first, second = await arguments_in(store)
    assert readers[0] != threading.get_ident() and (first != second) is (keeping == "hash")


@dataclass
class Told:
    """What is kept of one call: its arguments, its result, its reason."""

    keeping: Keeping
    arguments: str
    result: str
    message: str


@pytest.mark.parametrize("told", [
    Told("full", '{"a":1}', '{"content":[]}', "no such row"),
    Told("hash", "", "", ""),
    Told("none", "", "", ""),
], ids=lambda told: told.keeping)  # fmt: skip
async def test_arguments_results_and_reasons_are_kept_as_the_setting_says(told: Told) -> None:
    journal = new_journal(store := history_file(None), told.keeping)
    failure, relayed = (
        Failed(RpcError("no such row")),
        RpcError("no such row", raw=b'{"code":-5,"message":"no such row"}'),
    )
    await keep(journal, past_call(arguments={"a": 1}), past_call(arguments={"a": 1}, ending=failure))
    await keep(journal, past_call("file:///a", method="resources/read"), past_call("b", ending=Failed(relayed)))
    result = b'{"content":[{"type":"text","text":"no such row"}],"isError":true}'
    await keep(journal, past_call(), past_call(arguments={"a": 1}, ending=Completed(result)))
    good, bad, read, of_server, _, error = await kept(store)
    assert (error.group.status, error.code, error.message) == ("tool_error", "", told.message)
    [texts, again, _] = await texts_of(store, [good, bad, read])
    assert (texts[1], bad.code, bad.message) == (told.result, "internal_error", told.message)
    assert (of_server.code, of_server.message) == ("tool_error", told.message), "as the event of a stream says"
    sizes = (good.arguments_bytes, good.result_bytes, bad.result_bytes)
    assert sizes == ((0, 0, 0) if told.keeping == "none" else (7, 14, 0))
    assert (read.group.name == "file:///a") == (told.keeping == "full"), "the URI of a resource is an argument"
    if told.keeping == "hash":
        assert texts[0] == again[0] and len(texts[0]) == 32
    else:
        assert texts[0] == told.arguments


async def test_calls_of_a_tool_that_is_off_leave_nothing() -> None:
    store = history_file(None)
    journal = new_journal(store, of_tool=lambda server, tool: ToolKeeping(tool != "pay"))
    await keep(journal, past_call("pay"), past_call("echo"), past_call("pay"))
    assert [call.group.tool for call in await kept(store)] == ["echo"]


async def test_arguments_that_the_settings_supply_are_left_out() -> None:
    """Their values are those of the operator: callers see neither."""
    supplied = ToolKeeping(defaults={"limit": 10}, fixed={"key": "hidden"})
    journal = new_journal(store := history_file(None), of_tool=lambda server, tool: supplied)
    await keep(
        journal,
        past_call(arguments={"q": "x", "key": "hidden", "limit": 10}),
        past_call(arguments={"limit": 11}),
        past_call(arguments={"limit": 10.0}),
    )
    assert await arguments_in(store) == ['{"q":"x"}', '{"limit":11}', '{"limit":10.0}']


LONG = "x" * (VALUE - 10)
MASKED = [
    ({"a": f"my {SECRET}"}, '{"a":"my ***"}', MASKED_ARGUMENTS),
    ({"a": "Bearer abcdefghij0123456789"}, '{"a":"Bearer ***"}', MASKED_ARGUMENTS),
    ({"a": "b" * 5000}, '{"a":"' + "b" * VALUE + '…"}', CUT_ARGUMENTS),
    ({"a": LONG + SECRET * 300}, '{"a":"' + LONG + '***…"}', CUT_ARGUMENTS | MASKED_ARGUMENTS),
    (
        {"a": {"b": [SECRET, "c" * 5000]}},
        '{"a":{"b":["***","' + "c" * VALUE + '…"]}}',
        CUT_ARGUMENTS | MASKED_ARGUMENTS,
    ),
    ({"pin": 1234567890, "b": "x"}, '{"pin":***,"b":"x"}', MASKED_ARGUMENTS),
    ({"a": "100 % \\ \n"}, json.dumps({"a": "100 % \\ \n"}, separators=(",", ":")), 0),
]


@pytest.mark.parametrize(("given", "expected", "flags"), MASKED, ids=range(len(MASKED)))
async def test_arguments_are_masked_before_values_are_cut(given: object, expected: str, flags: int) -> None:
    masking.learn([SECRET, "1234567890"])
    journal = new_journal(store := history_file(None))
    await keep(journal, past_call(arguments={"n": 0}), past_call(arguments=given), past_call(arguments={"n": 1}))
    assert await arguments_in(store) == ['{"n":0}', expected, '{"n":1}'], "neighbours stay"
    assert (await kept(store))[1].flags == flags | COMPLETED


async def test_result_is_masked_before_its_beginning_is_cut() -> None:
    masking.learn([SECRET])
    journal = new_journal(store := history_file(None))
    text = json.dumps({"a": "y" * (VALUE - 20) + SECRET * 300}).encode()
    await keep(journal, past_call(ending=Completed(text)), past_call(ending=Completed(b"z" * 1_000_000)))
    [first, second] = await texts_of(store, calls := await kept(store))
    assert first[1].startswith('{"a": "yyy') and first[1].endswith("y***")
    assert "cret-val" not in first[1]
    assert [call.flags for call in calls] == [CUT_RESULT | MASKED_RESULT | COMPLETED, CUT_RESULT | COMPLETED]
    assert second[1] == "z" * VALUE and calls[1].result_bytes == 1_000_000


@pytest.mark.parametrize(("ending", "status"), [
    (Completed(b'{"isError":true}'), "tool_error"),
    (Cancelled("by the client"), "cancelled"),
    (Failed(RpcError("x")), "failed"),
])  # fmt: skip
async def test_status_is_that_of_the_ending(ending: Ending, status: str) -> None:
    journal = new_journal(store := history_file(None))
    await keep(journal, past_call(ending=ending))
    assert [call.group.status for call in await kept(store)] == [status]


async def test_definition_that_changes_about_the_time_of_a_call_is_not_known() -> None:
    lists = Lists()
    journal = new_journal(store := history_file(None), lists=lists)
    await keep(journal, past_call())
    journal._begun_with = journal._terms()
    lists.digest_now = "d2"
    await keep(journal, past_call())
    await keep(journal, past_call())
    assert [call.group.definition for call in await kept(store)] == ["d1", "", "d2"]


async def test_arguments_that_the_settings_supply_are_part_of_the_definition() -> None:
    """A call that is made again would get others."""
    rules = [
        ToolKeeping(),
        ToolKeeping(defaults={"limit": 1}),
        ToolKeeping(defaults={"limit": True}),
        ToolKeeping(fixed={"limit": 1}),
        ToolKeeping(fixed={"limit": 2}),
    ]
    journal = new_journal(store := history_file(None), of_tool=lambda server, tool: rules[int(tool)])
    await keep(journal, *(past_call(str(number)) for number in range(len(rules))))
    digests = [call.group.definition for call in await kept(store)]
    assert digests == [journal.definition("a", str(number)) for number in range(len(rules))]
    assert len({*digests}) == len(rules) and digests[0] == "d1"
    lists = Lists()
    journal = new_journal(store := history_file(None), of_tool=lambda server, tool: rules[1], lists=lists)
    await keep(journal, past_call())
    journal.lasts(record := past_call(is_running=True))
    lists.digest_now = "d2"
    record.log.append(Completed(b"{}"))
    await keep(journal, record, past_call())
    digests = [call.group.definition for call in await kept(store)]
    assert digests[1] == "" and len({*digests}) == 3 and digests[2] == journal.definition("a", "echo")


async def test_oldest_calls_are_dropped_and_counted_when_too_many_wait() -> None:
    journal = new_journal(store := history_file(None), "none")
    record = past_call()
    end(journal, [record] * (MOST + FULL + 100))
    await journal.flush()
    [loss] = await store.losses()
    assert (loss.kind, loss.count) == ("dropped", 2 * FULL) and len(await kept(store, 20_000)) == MOST - FULL + 100


async def test_large_texts_that_wait_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PORTION_BYTES", 100_000)
    journal = new_journal(store := history_file(None))
    record = past_call(raw=b'{"a":"' + b"x" * 30_000 + b'"}', ending=Completed(b"y" * 10_000_000))
    end(journal, [record] * 60)
    portions = [*journal._queue._sealed, journal._queue._open]
    assert len(portions) <= 8 and all(portion.texts and portion.texts.size < 200_000 for portion in portions)
    await journal.flush()
    [loss] = await store.losses()
    assert loss.count + len(await kept(store)) == 60 and await kept(store)


async def test_text_that_is_not_json_moves_no_other_one() -> None:
    """A NUL in a result, and bytes that are not text."""
    journal = new_journal(store := history_file(None))
    odd = past_call(arguments={"n": 1}, ending=Completed(b"a\0b\0\xff\xc3"))
    await keep(journal, past_call(arguments={"n": 0}), odd, past_call(arguments={"n": 2}))
    assert await arguments_in(store) == ['{"n":0}', '{"n":1}', '{"n":2}']
    assert (await texts_of(store, await kept(store)))[1][1] == "ab\ufffd\ufffd"


class Broken(HistoryFile):
    """Cannot be written while it is `full`, and refuses batches of `refused` calls."""

    full = False
    refused = 0

    async def write(self, batch: Batch, *rest: object) -> bool:
        if rest[0] == self.refused:
            raise StoreError("a text is none")
        if self.full:
            raise StoreFault("full", "the disk is full")
        return await super().write(batch, *rest)  # type: ignore[arg-type]


async def test_calls_that_cannot_be_written_are_written_later_or_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST", 20)
    store = Broken(None, "in_a", lambda hub: False, lambda: 1.0, history_file(None)._clock)
    journal = new_journal(store)
    await keep(journal, past_call(arguments={"n": 0}))
    store.full = True
    for n in range(1, 6):
        await keep(journal, *(past_call(arguments={"n": n}) for _ in range(5)))
    assert "full" in journal.failing
    store.full = False
    journal._writer._retry = 0
    await journal.flush()
    told = [json.loads(text or "")["n"] for text in await arguments_in(store)]
    assert told == [0, *(n for n in range(2, 6) for _ in range(5))], "those that fit into the bound"
    [loss] = await store.losses()
    assert (loss.kind, loss.count) == ("unwritten", 5) and "full" in loss.reason and journal.failing == ""


async def test_setting_that_changes_between_two_calls_moves_no_text() -> None:
    rules = [new_journal(history_file(None), keeping).rules() for keeping in ("none", "full", "none")]
    journal = new_journal(store := history_file(None))
    for n, now in enumerate(rules):
        journal.rules = lambda now=now: now  # type: ignore[misc]
        journal.use()
        end(journal, [past_call(arguments={"n": n})] * 2)
    journal.rules = lambda: rules[1]
    await journal.flush()
    assert await arguments_in(store) == ["", "", '{"n":1}', '{"n":1}', "", ""]
    assert [call.group.keeping for call in await kept(store)] == ["none"] * 2 + ["full"] * 2 + ["none"] * 2


async def test_clients_that_share_a_session_are_named_apart() -> None:
    """Requests of 2026-07-28 over one pipe may be those of several clients."""
    journal = new_journal(store := history_file(None))
    clients = [CallingClient("a"), CallingClient("b" * 300), None]
    await keep(journal, *(past_call(client=client) for client in clients * 2))
    assert [call.group.client for call in await kept(store)] == ["a", "b" * 200, ""] * 2


async def test_batches_with_the_same_and_other_groups_grow_together() -> None:
    """Calls of several sessions, which share the texts of a group, and calls of other tools."""
    journal = new_journal(store := history_file(None))
    for n in range(6):
        records = [past_call(tool, session=f"rest#{n}{m}") for m, tool in enumerate("abab")]
        await keep(journal, *records, past_call(f"t{n}"))
    assert [call.group.tool for call in await kept(store)] == [tool for n in range(6) for tool in (*"abab", f"t{n}")]
    assert len(await store.index()) == 1


async def test_calls_are_written_once_that_works_though_no_other_call_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "_PATIENCE", 0.02)
    store = Broken(None, "in_a", lambda hub: False, lambda: 1.0, history_file(None)._clock)
    journal = new_journal(store)
    store.full = True
    await keep(journal, past_call())
    async with group() as tasks:
        tasks.start_soon(journal.run)
        store.full = False
        with anyio.fail_after(240):
            while not await kept(store):
                await anyio.lowlevel.checkpoint()
    assert journal.failing == ""


async def test_calls_are_written_after_another_task_has_written_some(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as one that removes all before."""
    monkeypatch.setattr(journals, "PACE", 0.02)
    journal = new_journal(store := history_file(None))
    async with group() as tasks:
        tasks.start_soon(journal.run)
        await anyio.wait_all_tasks_blocked()
        await journal.flush()
        end(journal, [past_call()])
        with anyio.fail_after(WAIT):
            while not await kept(store):
                await anyio.lowlevel.checkpoint()


async def test_batch_that_is_refused_holds_up_no_other_one() -> None:
    store = Broken(None, "in_a", lambda hub: False, lambda: 1.0, history_file(None)._clock)
    store.refused = 3
    journal = new_journal(store)
    for count in (1, 3, 2):
        await keep(journal, *(past_call(arguments={"n": count}) for _ in range(count)))
    assert await arguments_in(store) == ['{"n":1}', '{"n":2}', '{"n":2}'] and journal.failing == ""
    [loss] = await store.losses()
    assert (loss.kind, loss.count, loss.reason) == ("unwritten", 3, "a text is none")


async def test_texts_of_other_calls_are_never_those_of_a_call() -> None:
    """Batches that grow, and calls without texts between others."""
    journal = new_journal(store := history_file(None))
    for n in range(7):
        await keep(journal, past_call(arguments={"n": n}), past_call(arguments=None, ending=Cancelled(None)))
    calls = await kept(store)
    for place in (12, 3, 0, 13):
        [texts] = await texts_of(store, [calls[place]])
        assert texts == (("", "") if place % 2 else (f'{{"n":{place // 2}}}', '{"content":[]}'))


async def test_figures_count_calls_failures_and_durations_by_point() -> None:
    journal = new_journal(store := history_file(None))
    await keep(journal, *(past_call(tool) for tool in "aab"))
    figures, chosen = PastFigures(0.0, 1e10, 1), CallFilter(lambda group: True)
    async for _ in scanned(store, chosen, partial(figures.add, chosen=chosen)):
        pass
    tools, servers, more = figures.rows()
    assert [(row.tool, row.calls, row.failed, len(row.series)) for row in tools] == [("a", 2, 0, 1), ("b", 1, 0, 1)]
    assert [(row.server, row.tool, row.calls) for row in servers] == [("a", "", 3)] and more == 0


@given(st.lists(st.floats(0, 100), min_size=1).map(sorted), st.sampled_from([0.5, 0.95]))
def test_percentile_is_not_exceeded_by_its_share(durations: list[float], share: float) -> None:
    found = percentile(durations, share)
    assert sum(took <= found for took in durations) >= share * len(durations)
    assert sum(took < found for took in durations) < share * len(durations)

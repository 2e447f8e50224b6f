"""How durable calls are listed, followed and ended on the command line, without a hub."""

import io
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import cast

import anyio
import msgspec
import pytest
from msgspec import UNSET
from rich.console import Console
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mcp_hub.app.dashboard.past_calls import loss_text
from mcp_hub.app.http import HttpFront
from mcp_hub.call import StreamInfo
from mcp_hub.cli.access.following import followed
from mcp_hub.cli.access.local_streams import LocalStreams
from mcp_hub.cli.commands.running.history import _lines, _notes
from mcp_hub.cli.commands.serve import _stop_when
from mcp_hub.cli.commands.streams import rest_text, stream_table, waiting_text
from mcp_hub.cli.http_server import http_server
from mcp_hub.cli.render.renderers import renderer
from mcp_hub.cli.render.tables import age, print_table
from mcp_hub.client import HubStream
from mcp_hub.clock import SystemClock
from mcp_hub.errors import HubRestarted, StoreError
from mcp_hub.events import CallEvent, Cancelled, Completed, Failed, InputRequired, Progressed, Started
from mcp_hub.protocol.rest.calls import StreamList, StreamStatus
from mcp_hub.protocol.rest.history import HistoryCall, HistoryLoss, HistoryPage
from mcp_hub.protocol.shape.stream_events import encoded
from mcp_hub.stores.base import Change, Chunk, EventStore, StoreLimits
from mcp_hub.stores.history.base import LostCalls
from mcp_hub.stores.recovery.failsafe import failsafe_on_file
from mcp_hub.types import CallId, Status, plural
from tests.unit.fronts.local_hub import local_hub
from tests.upstreams.child import WAIT

pytestmark = pytest.mark.anyio

MADE = "2026-11-20T11:00:00.000Z"
NOON = 1795176000.0  # 2026-11-20T12:00:00Z


def status(**more: object) -> StreamStatus:
    row = {"stream": "st_1", "status": "working", "method": "tools/call", "name": "job", "server": "git"}
    times = {"created": MADE, "updated": MADE, "first": 1, "last": 1}
    return msgspec.convert({**row, **times, **more}, StreamStatus)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (3600, "1 h"), (86400, "1 d")],
)
def test_age_is_in_the_largest_unit(seconds: float, shown: str) -> None:
    assert age(NOON, NOON + seconds) == shown


@pytest.mark.parametrize(("created", "shown"), [("2026-11-20T13:00:00+02:00", "1 h"), ("yesterday", "")])
def test_age_heeds_the_time_zone_and_is_empty_if_it_is_not_known(created: str, shown: str) -> None:
    assert [*stream_table([status(created=created)], NOON, 200).columns[3].cells] == [shown]


def test_table_has_what_a_person_looks_for_and_nothing_that_a_terminal_would_obey() -> None:
    made = stream_table([status(message="half\n\x1b[2Jdone"), status(status="failed", message="x" * 200)], NOON, 200)
    cells = [[str(cell) for cell in column.cells] for column in made.columns]
    assert [str(column.header) for column in made.columns] == ["stream", "tool", "status", "age", "message"]
    assert cells[:4] == [["st_1"] * 2, ["job"] * 2, ["working", "failed"], ["1 h"] * 2]
    assert cells[4] == ["half \\x1b[2Jdone", "x" * 79 + "…"]
    since = "2026-11-20T11:59:48.000Z"
    row = status(waits_for="helpdesk_ask of Cur\x1bsor", waits_since=since, message="said before")
    assert (
        waiting_text(row, NOON) == "waits for helpdesk_ask of Cur\x1bsor, 12 s" and waiting_text(status(), NOON) == ""
    )
    cells = [[str(cell) for cell in column.cells] for column in stream_table([row], NOON, 200).columns]
    assert (cells[2], cells[4]) == (["waiting"], ["waits for helpdesk_ask of Cur\\x1bsor, 12 s"])


@pytest.mark.parametrize(
    ("rows", "unstored", "waiting", "hubs", "starts"),
    [
        (0, 0, 0, 0, "No durable calls are stored."),
        (1, 0, 0, 2, ""),
        (0, 1, 0, 0, "1 call runs: not stored yet."),
        (0, 1, 1, 0, "1 call runs, waiting for its turn: not stored yet."),
        (1, 3, 1, 0, "3 more calls run, 1 of them waiting for its turn: not stored yet."),
        (1, 3, 2, 0, "3 more calls run, 2 of them waiting for their turn: not stored yet."),
        (0, 0, 0, 1, "No durable calls are stored. A hub of one client runs: this command cannot count"),
        (0, 0, 0, 2, "No durable calls are stored. 2 hubs of one client each run: this command cannot count"),
    ],
)
def test_nothing_is_said_to_be_stored_only_where_no_call_runs(
    rows: int, unstored: int, waiting: int, hubs: int, starts: str
) -> None:
    text = rest_text(StreamList([status()] * rows, unstored, waiting), hubs)
    assert text.startswith(starts) and bool(text) == bool(starts)
    assert ("No durable" in text) == (not rows and not unstored)


@pytest.mark.parametrize(("count", "bytes_", "tokens", "lost", "notes"), [
    (1, "1 byte", "1 token", "1 call could not be written, and is missing.", "1 more such note: --json shows it."),
    (2, "2 bytes", "2 tokens", "2 calls could not be written, and are missing.",
     "2 more such notes: --json shows them."),
])  # fmt: skip
def test_history_counts_one_as_one(count: int, bytes_: str, tokens: str, lost: str, notes: str) -> None:
    call = HistoryCall("st_1", "git", "log", "log", "tools/call", "p", "c", "failed", 1.0, 1.0, 0.0)
    sizes = {"arguments_bytes": count, "result_bytes": count, "tokens_in": count, "tokens_out": count}
    kept = msgspec.structs.replace(call, **sizes, arguments_text="a", result_text="r")
    assert f"({tokens})" in _lines(kept)[5] and f"({tokens})" in _lines(kept)[6]
    without = _lines(msgspec.structs.replace(call, **sizes))
    assert all(f"not kept ({bytes_})" in line for line in without[5:7])
    loss = loss_text(LostCalls("unwritten", 1.0, "in_1", count))
    assert loss == lost
    page = HistoryPage([], "full", losses=[HistoryLoss("unwritten", 1.0, loss)] * (3 + count))
    assert _notes(page)[-1] == notes and len(_notes(page)) == 4


@pytest.mark.parametrize(("fields", "subject", "status"), [
    ({}, "tool:      log of git, tools/call", "completed"),
    ({"name": "git_log"}, "tool:      git_log (log of git), tools/call", "completed"),
    ({"server": "", "status": "tool_error"}, "tool:      log of the hub, tools/call", "tool_error"),
    ({"status": "cancelled", "code": "cancelled", "message": "cancelled on request"}, "", "cancelled on request"),
    ({"status": "cancelled", "code": "cancelled"}, "", "cancelled"),
    ({"status": "cancelled", "code": "cancelled", "message": "too slow"}, "", "cancelled: too slow"),
    ({"status": "failed", "code": "upstream_error", "message": "no row"}, "", "failed: no row [upstream_error]"),
    ({"status": "timed_out", "code": "deadline_exceeded"}, "", "timed_out [deadline_exceeded]"),
    ({"method": "prompts/get"}, "prompt:    log of git, prompts/get", "completed"),
    (
        {"method": "resources/read", "name": "file:///a", "tool": "file:///a"},
        "resource:  file:///a of git, resources/read", "completed",
    ),
    (
        {"method": "resources/read", "name": "resources/read", "tool": "resources/read"},
        "resource:  not kept, of git, resources/read", "completed",
    ),
])  # fmt: skip
def test_shown_call_says_each_fact_once(fields: dict[str, str], subject: str, status: str) -> None:
    call = HistoryCall("st_1", "git", "log", "log", "tools/call", "p", "c", "completed", 1.0, 1.0)
    lines = _lines(msgspec.structs.replace(call, **fields))
    assert lines[4] == f"status:    {status}" and lines[1].endswith(subject)


@pytest.mark.parametrize("noun", ["call", "entry", "key", "more such note"])
def test_noun_follows_its_number(noun: str) -> None:
    many = {"entry": "entries"}.get(noun, f"{noun}s")
    assert [plural(count, noun) for count in (0, 1, 2)] == [f"0 {many}", f"1 {noun}", f"2 {many}"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_row_is_one_line_of_a_terminal_and_its_stream_and_status_are_whole(width: int) -> None:
    id_ = "st_01JZX5G7K8M9N0P1Q2R3S4T5V6"
    row = status(stream=id_, name="everything_trigger-long-running-operation", message="m " * 40)
    out = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    with out.capture() as captured:
        out.print(stream_table([msgspec.structs.replace(row, status="input_required")], NOON, width))
    _, _, line = captured.get().splitlines()
    assert line.startswith(f"{id_}   ever") and " input_required " in line and "1 h" in line
    assert ("operation " in line) == (width == 200) and ("m m" in line) == (width > 60)


def test_a_row_is_whole_where_the_output_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(stream_table([status(name="n" * 200, message="m " * 39)], NOON, 200))
    assert ["n" * 200, "working", "1", "h", *"m" * 39] == capsys.readouterr().out.splitlines()[2].split()[1:]


class Given:
    """Events that are there already."""

    stream: str | None = "st_1"

    def __init__(self, events: Sequence[CallEvent]) -> None:
        self._events = events
        self.cursor = 0

    async def __aiter__(self) -> AsyncIterator[CallEvent]:
        for event in self._events:
            self.cursor += 1
            yield event


def given(*events: CallEvent) -> HubStream:
    return cast(HubStream, Given(events))


async def said(question: InputRequired) -> str:
    return f"asked {question.method}"


async def shown(*events: CallEvent) -> tuple[int | None, list[str]]:
    """The exit code, and the type and number of each line."""
    out = io.BytesIO()
    code = await followed(given(*events), renderer("jsonl", out), said)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    return code, [f"{line['type']} {line['seq']}" for line in lines]


async def test_call_is_followed_to_its_ending_and_questions_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    done = Completed(b'{"content":[]}')
    assert await shown(Started(), Progressed(1), done, Progressed(2)) == (0, ["progress 2", "end 3"])
    assert await shown(Completed(b'{"content":[],"isError":true}')) == (1, ["end 1"])
    assert await shown(Failed(HubRestarted("gone")), done) == (3, ["error 1"])
    assert await shown(Progressed(1)) == (None, ["progress 1"])
    capsys.readouterr()
    assert await shown(Cancelled("enough"), done) == (130, ["end 1"])
    assert capsys.readouterr().err == "The call was cancelled: enough.\n"
    asked = InputRequired("q", "roots/list", b"{}")
    assert await shown(asked, Cancelled(None)) == (130, ["input-required 1", "end 2"])
    assert capsys.readouterr().err == "asked roots/list\nThe call was cancelled.\n"
    out = io.BytesIO()
    assert await followed(given(Progressed(1), Cancelled("\x1b[2J")), renderer("text", out), said) == 130
    assert (out.getvalue(), capsys.readouterr().err) == (b"", "The call was cancelled: \\x1b[2J.\n")


async def test_lines_have_the_numbers_of_events_and_the_values_of_the_server() -> None:
    out = io.BytesIO()
    beat = Progressed(3 + 1e-6, 9, server_value=3, is_hubs=True)
    await followed(given(Progressed(3, 9), beat, Progressed(3 + 2e-6, 9, server_value=3)), renderer("jsonl", out), said)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [(line["seq"], line["progress"]) for line in lines] == [(1, 3), (3, 3)]
    out = io.BytesIO()
    show = renderer("jsonl", out)
    await followed(given(Progressed(1)), show, said)
    show.error(HubRestarted("gone"), "gone")
    assert [json.loads(line).get("seq") for line in out.getvalue().splitlines()] == [1, None]


ID = CallId("st_" + "0" * 26)
SECONDS = 240


async def opened(folder: Path) -> EventStore:
    store = failsafe_on_file(folder, StoreLimits(), SystemClock())
    await store.open()
    assert store.log.is_durable
    return store


class Owner:
    """Writes one stream, each event when it is told to."""

    def __init__(self, store: EventStore, continuation: bytes | None = None) -> None:
        self._store = store
        self._continuation = continuation
        self._last = 0

    async def write(self, event: CallEvent, status: Status = "working", kind: str | None = None) -> None:
        """`kind` stands for the event's own type."""
        seq = self._last = self._last + 1
        line = encoded(ID, seq, "2026-11-20T11:02:03.412Z", event)
        if kind is not None:
            line = line.replace(b'"type":"end"', b'"type":"%b"' % kind.encode())
        written, errors = anyio.Event(), list[StoreError | None]()

        def done(error: StoreError | None) -> None:
            errors.append(error)
            written.set()

        if seq == 1:
            owner, point = self._store.log.instance, self._continuation
            row = StreamInfo(ID, "local", owner, "jobs", "tools/call", "job", 1.0, 1.0, last=1, continuation=point)
            self._store.log.create(row, Chunk(1, (line,)), done)
        else:
            self._store.log.append(ID, 1, Chunk(seq, (line,)), Change(2.0, status), done)
        await written.wait()
        assert errors == [None]


@pytest.mark.parametrize("kind", [None, "finish"], ids=["known", "unknown"])
async def test_follower_sees_what_another_process_writes_and_its_end(kind: str | None, tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        here, there = await opened(tmp_path), await opened(tmp_path)
        owner, access = Owner(there), LocalStreams(here)
        await owner.write(Started())
        seen: list[tuple[int, CallEvent]] = []
        async with access.resume(ID) as stream:
            async for event in stream:
                seen.append((stream.cursor, event))
                if isinstance(event, Started):
                    await owner.write(Progressed(1))
                elif isinstance(event, Progressed):
                    await owner.write(Cancelled(None), "cancelled", kind)
            assert stream.cursor == 3
        ending = [] if kind else [(3, Cancelled(None))]
        assert seen == [(1, Started()), (2, Progressed(1)), *ending]
        [status] = await access.streams(9)
        assert (status.status, status.last) == ("cancelled", 3)
        for store in (here, there):
            await store.close()


async def test_cancel_is_a_message_to_the_owner(tmp_path: Path) -> None:
    with anyio.fail_after(SECONDS):
        here, there = await opened(tmp_path), await opened(tmp_path)
        await Owner(there).write(Started())
        assert (await LocalStreams(here).cancel(ID)).status == "working"
        [message] = await there.inbox.take()
        assert (message.stream, message.kind) == (ID, "cancel")
        for store in (here, there):
            await store.close()


@pytest.mark.parametrize(("continuation", "status", "says"), [
    (None, "failed", "Its hub has ended. The outcome of the call is unknown."),
    (b"{}", "working", "Its hub has ended. The next one continues the call."),
])  # fmt: skip
async def test_call_of_a_hub_that_is_gone_does_not_seem_to_run(
    continuation: bytes | None, status: Status, says: str, tmp_path: Path
) -> None:
    with anyio.fail_after(SECONDS):
        here, there = await opened(tmp_path), await opened(tmp_path)
        await Owner(there, continuation).write(Started())
        access = LocalStreams(here)
        [runs] = await access.streams(9)
        assert (runs.status, runs.message) == ("working", UNSET) and await access.status(ID) == runs
        await there.close()
        [orphan] = await access.streams(9)
        assert (orphan.status, orphan.message) == (status, says) and await access.status(ID) == orphan
        row = await here.log.find(ID)
        assert row is not None and not row.has_ended, "a look changes nothing"
        await here.close()


async def test_readiness_ends_before_calls_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[str]] = []
    async with local_hub(tmp_path) as (app, _):
        front = HttpFront(app, None, is_local=lambda settings: True)
        health, metrics = front.health, front.metrics
        assert health.reasons() == [] and b"mcp_hub_ready 1.0" in metrics.rendered(None)[0]
        monkeypatch.setattr(front.mcp, "close", lambda: seen.append([reason.code for reason in health.reasons()]))
        stopped = anyio.Event()
        server = http_server(front.endpoints, HttpToolsProtocol)
        stopped.set()
        with anyio.fail_after(WAIT):
            await _stop_when(stopped, app, server, front)
        assert seen == [["stopping"]] and server.should_exit
        assert b"mcp_hub_ready 0.0" in metrics.rendered(None)[0]

"""What a call's log tells its meter once it has ended, and the ring of ended calls: bounded, read behind a number."""

import math
from typing import cast

import msgspec
import pytest

from mcp_hub.call import Call, CallingClient
from mcp_hub.calls.coalesce import LAG
from mcp_hub.calls.history.recent import RecentCalls, first_text, shown_principal
from mcp_hub.calls.metering import Meters, MethodFigures, Outcome, outcome_of
from mcp_hub.calls.plan import TimeLimits
from mcp_hub.calls.runner import CallRecord, new_record
from mcp_hub.clock import wall_time
from mcp_hub.errors import CallCancelled, DeadlineExceeded, RpcError
from mcp_hub.events import Cancelled, Completed, Ending, Failed, Log, Progressed, Started
from mcp_hub.ids import new_call_id
from mcp_hub.masking import learn
from mcp_hub.types import Era
from tests.unit.fakes import HandClock, unused


def begun(name: str, principal: str = "p", session: str = "s", method: str = "tools/call") -> CallRecord:
    asked = msgspec.Raw(msgspec.json.encode(name))
    call = Call(
        new_call_id(), "a", method, {}, {}, session, principal, Era.MODERN, {}, exported_name=asked,
        client=CallingClient(session.capitalize()),
    )  # fmt: skip
    record = new_record(call, cast("object", None), TimeLimits(1, 1), HandClock(5.0))  # type: ignore[arg-type]  # never run
    record.log.begin()
    return record


def ended(name: str = "echo", ending: Ending | None = None, principal: str = "p") -> CallRecord:
    record = begun(name, principal)
    record.log.append(ending or Completed(b"{}"))
    return record


def test_endings_are_read_behind_a_number_and_bounded_in_number() -> None:
    recent = RecentCalls(capacity=6, portion=2)
    for name in "abcdefg":
        recent.ended(ended(name), Outcome.OK, 5.5)
    assert [call.name for call in recent.newest()] == ["g", "f", "e", "d", "c"], "the oldest two went together"
    for seq, behind in ((7, ""), (6, "g"), (5, "fg"), (4, "efg"), (2, "cdefg")):
        assert "".join(call.name for call in recent.behind(seq) or ()) == behind
    assert recent.behind(7) == [] and recent.behind(1) is None and recent.behind(8) is None, "gone, and never there"
    assert recent.newest()[0].took == recent.newest()[-1].took == pytest.approx(0.5)


def test_texts_of_clients_cannot_make_it_large() -> None:
    recent = RecentCalls()
    recent.ended(ended("x" * 300), Outcome.OK, 6)
    recent.ended(ended("x" * 1_000_000, Failed(RpcError("y" * 1_000_000))), Outcome.RPC_ERROR, 6)
    usual, long = reversed(recent.newest())
    assert len(usual.name) == 300
    assert len(long.name) == len(long.message) == 89, "at most 8 MiB for 10,000 calls"


def test_principals_with_a_long_common_beginning_are_two() -> None:
    recent = RecentCalls()
    begin = f"https://auth.example.com/realms/{'x' * 100}#"
    principals = ["p", "p" * 80, f"{begin}alice", f"{begin}bob", shown_principal(f"{begin}bob")]
    for principal in principals:
        recent.ended(ended("x" * 1_000_000, principal=principal), Outcome.OK, 6)
        assert recent.newest()[0].principal == shown_principal(principal)
        assert len(recent.newest()[0].principal) <= 81
    assert len({call.principal for call in recent.newest()}) == len(principals)


def test_a_failure_says_why_without_secrets() -> None:
    learn(["hunter22"])
    recent = RecentCalls()
    recent.ended(ended(ending=Failed(RpcError("no such row: hunter22"))), Outcome.RPC_ERROR, 6)
    recent.ended(ended(ending=Cancelled("enough")), Outcome.CANCELLED, 6)
    read = begun("file:///hunter22/a", method="resources/read")
    read.log.append(Completed(b"{}"))
    recent.ended(read, Outcome.OK, 6)
    assert recent.newest()[0].name == "file:///***/a"
    recent.ended(ended(ending=Failed(DeadlineExceeded("too late"))), Outcome.TIMED_OUT, 6)
    shown = [(call.status, call.message) for call in recent.newest()]
    assert shown == [
        ("timed_out", "too late"),
        ("completed", ""),
        ("cancelled", "enough"),
        ("failed", "no such row: ***"),
    ]


def tool_error(text: str) -> Completed:
    return Completed(msgspec.json.encode({"content": [{"type": "text", "text": text}], "isError": True}))


TOOL_ERRORS = [
    ('{"content":[{"type":"text","text":"no \\"row\\"\\n\\ud83d\\ude00"}]}', 'no "row"\n\U0001f600'),
    ('{"structuredContent":{"text":"x"},"content" : [ {"text" : "of hunter22", "type": "text"} ]}', "of ***"),
    ('{"content":[{"type":"resource","resource":{"uri":"a:b","text":"in a resource"}}]}', "in a resource"),
    (f'{{"content":[{{"type":"text","text":"{"y" * 5000}"}}]}}', "y" * 200),
    (f'{{"content":[{{"type":"text","text":"{"." * 700}{chr(92)}ud83d{chr(92)}ude00 and more"}}]}}', "." * 200),
    ('{"content":[]}', ""), ("{}", ""), ('{"content":[{"text":7}]}', ""), ('{"content":[{"text":"\\q"}]}', ""),
    ('"text":"no content"', "no content"), ("\ufffd", ""),
]  # fmt: skip


def test_result_with_an_error_says_its_first_text() -> None:
    learn(["hunter22"])
    recent = RecentCalls()
    for result, text in TOOL_ERRORS:
        recent.ended(ended(ending=Completed(msgspec.Raw(result.encode()))), Outcome.TOOL_ERROR, 6)
        assert recent.newest()[0].message == text
    for cut in range(1000, 1040):  # within an escape at the end of what is searched
        text = '{"content":[{"text":"' + "." * (cut - 24) + "\\ud83d\\ude00" * 9
        assert set(first_text(text)) == {"."}, cut


def test_no_piece_of_a_secret_is_left_where_a_text_is_cut() -> None:
    secret = "Zq7Xv8Wk9Vj5Ug4Te3Sd2"
    learn([secret])
    recent = RecentCalls()
    for pad in range(len(secret)):
        text = "." * pad + f"{secret} " * 50
        recent.ended(ended(text), Outcome.OK, 6)
        recent.ended(ended(ending=Failed(RpcError(text, raw=b"{}"))), Outcome.RPC_ERROR, 6)
        recent.ended(ended(ending=Cancelled(text)), Outcome.CANCELLED, 6)
        recent.ended(ended(ending=tool_error(text)), Outcome.TOOL_ERROR, 6)
        record = begun(text)
        record.is_short = False
        record.send(Progressed(1.0, members={"message": msgspec.Raw(msgspec.json.encode(text))}))
        (live,) = recent.live([record], 6)
        shown = [(call.name, call.message) for call in (*recent.newest()[:4], live)]
        assert not [piece for piece in pieces(secret) if piece in str(shown)], pad


def test_progress_is_shown_also_when_much_was_said_since() -> None:
    record = begun("build")
    record.is_short = False
    reader = record.log.reader(lambda: None)
    record.send(Progressed(3.0, 9.0))
    for _ in range(30):
        record.log.append(Log("info", b'{"level":"info"}'))
        reader.take()
        (live,) = RecentCalls().live([record], 6)
        assert (live.progress, live.total) == (3.0, 9.0)


def pieces(secret: str) -> list[str]:
    return [secret[at : at + 4] for at in range(len(secret) - 3)]


def running(name: str, principal: str = "p", session: str = "s") -> CallRecord:
    record = begun(name, principal, session)
    record.state = "task"
    return record


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ([("ask", "p", "cursor")], "ask of Cursor"),
        ([("ask", "p", "")], "ask"),
        ([("ask", "p", "cursor"), ("ask", "p", "cursor"), ("b", "p", "zed")], "ask of Cursor and 2 more calls"),
        ([("ask", "q", "cursor")], "a call of somebody else"),
        ([("ask", "q", "cursor"), ("tell", "p", "zed")], "tell of Zed and 1 more call"),
        ([("ask", "q", "cursor"), ("tell", "r", "zed")], "2 calls of others"),
        ([], 'its turn at server "a"'),
    ],
)
def test_a_wait_names_the_call_and_the_client_that_it_is_for(others: list[tuple[str, str, str]], reason: str) -> None:
    there, waiting = [running(*other) for other in others], running("mine", session="mine")
    elsewhere = running("elsewhere", session="far")
    waiting.times.begin_wait(lambda: {record.call.session: None for record in there})
    records = [elsewhere, *there, waiting]
    calls = RecentCalls().running(records, lambda record: record.call.principal == "p")
    found = calls.wait_of(waiting)
    assert found is not None and (found.reason, found.since) == (reason, 5.0)
    assert all(calls.wait_of(record) is None for record in (elsewhere, *there))
    waiting.times.end_wait()
    assert calls.wait_of(waiting) is None


def test_a_call_that_waits_is_shown_as_waiting_with_the_reason_however_it_waits() -> None:
    learn(["hunter23"])
    recent = RecentCalls()
    holder, queued, starting = running("hold", session="zed"), begun("queued"), running("early")
    starting.times.begin_wait('server "hunter23" to start')
    records = [holder, queued, starting]
    assert recent.live(records, 5.2) == [], "as short as a quick call"
    shown = {call.name: (call.status, call.waits_for) for call in recent.live(records, 17.0)}
    reasons = {"queued": ("waiting", "hold of Zed and 1 more call"), "early": ("waiting", 'server "***" to start')}
    assert shown == reasons
    holder.is_short = False
    assert recent.live(records, 17.0)[0].waits_for == ""
    (since,) = {round(wall_time() - call.waits_since) for call in recent.live([queued], 17.0)}
    assert since == 12


def metered_call() -> CallRecord:
    call = Call(new_call_id(), "a", "tools/call", {}, {}, "s", "p", Era.MODERN, {})
    record = new_record(call, unused, TimeLimits(1, 1), HandClock(0.0))
    record.log.append(Started())
    return record


def metered(record: CallRecord, took: float = 0.0) -> MethodFigures:
    record.log.append(Completed(b"{}"))
    meters = Meters()
    meters.ended(record, took)
    (figures,) = meters.figures({"a"})
    return figures


def test_progress_that_is_no_number_is_refused() -> None:
    record = metered_call()
    for value in (1, 2, math.nan, math.inf, 3):
        record.send(Progressed(value))
    meter = metered(record)
    assert (meter.events, meter.refused, meter.merged) == (3, 2, 0)


def test_what_a_slow_reader_does_not_get_is_counted() -> None:
    record = metered_call()
    reader = record.log.reader(lambda: None)
    for _ in range(LAG + 10):
        record.send(Log("info", b'{"level":"info","data":1}'))
    meter = metered(record)
    assert meter.merged == 11 and meter.events + meter.merged >= LAG + 10
    reader.close()


@pytest.mark.parametrize(("took", "bucket"), [(0.0, 0), (0.01, 0), (0.011, 1), (300.0, 13), (300.1, 14)])
def test_a_bucket_holds_its_upper_end(took: float, bucket: int) -> None:
    meter = metered(metered_call(), took)
    assert meter.whole == meter.at_server
    counts, seconds = meter.whole
    assert counts.index(1) == bucket and sum(counts) == 1 and seconds == pytest.approx(took)


@pytest.mark.parametrize(
    ("ending", "outcome"),
    [
        (Completed(b"{}"), Outcome.OK),
        (Completed(b'{"isError":true}'), Outcome.TOOL_ERROR),
        (Failed(RpcError("x")), Outcome.RPC_ERROR),
        (Failed(CallCancelled("x")), Outcome.CANCELLED),
        (Failed(DeadlineExceeded("x")), Outcome.TIMED_OUT),
        (Cancelled("x"), Outcome.CANCELLED),
    ],
)
def test_each_ending_is_one_outcome(ending: Ending, outcome: Outcome) -> None:
    assert outcome_of(ending) is outcome

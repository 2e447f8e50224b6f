"""The audit beside the history: what a line has, what is lost, and what delays nobody."""

import json
import threading
from collections import deque
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, cast

import anyio
import msgspec
import pytest

from mcp_hub import masking
from mcp_hub.call import Question
from mcp_hub.calls.history import audit as audit_module
from mcp_hub.calls.history import waiting
from mcp_hub.calls.history.audit import AuditTrail
from mcp_hub.calls.history.audit_lines import LineRules
from mcp_hub.calls.history.batches import JournalRules, ToolKeeping
from mcp_hub.calls.history.journal import CallJournal
from mcp_hub.calls.metering import outcome_of
from mcp_hub.calls.runner import CallRecord
from mcp_hub.clock import SystemClock
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, Failed
from mcp_hub.stores.audit import generations, to_collector, unwritten, verify
from mcp_hub.stores.audit_file import AuditFile, LinePlace
from mcp_hub.types import CallId
from tests.unit.calls.past import EVERYTHING, Lists, history_file, past_call

pytestmark = pytest.mark.anyio


class Audited:
    """A journal with an audit."""

    def __init__(self, folder: Path, arguments: str = "hash", keeping: str = "off", **tools: ToolKeeping) -> None:
        self.folder = folder
        of_tool = lambda server, tool: tools.get(tool, ToolKeeping())  # noqa: E731
        self.output = AuditFile(folder / "audit.jsonl", 1 << 20, 3, folder / "state")
        rules = LineRules(cast("Any", arguments), of_tool, lambda: b"k" * 32)
        self.trail = AuditTrail(self.output, rules, "in_a", lambda call: None)
        self.store = history_file(folder)
        journal_rules = JournalRules(cast("Any", keeping), EVERYTHING, of_tool)
        self.journal = CallJournal(
            self.store, "in_a", lambda: journal_rules, Lists(), lambda: b"k" * 32, SystemClock(), self.trail
        )
        self.journal.use()
        self.observed = self.trail.observing(self.journal.ended)
        self.trail.claim()

    def end(self, *records: CallRecord) -> None:
        for record in records:
            self.observed(record, outcome_of(record.log.ending), SystemClock().now())

    async def lines(self, *records: CallRecord) -> list[dict[str, Any]]:
        """The lines that these calls, and what has come before, have been given."""
        self.end(*records)
        await self.journal.flush()
        await self.trail._try(self.trail._write)
        path = self.folder / "audit.jsonl"
        return [json.loads(line) for line in path.read_bytes().splitlines()[1:]]

    def report(self) -> Any:
        return verify(generations(self.folder / "audit.jsonl"), set())

    def waiting(self) -> int:
        """Records that were counted and have no line yet."""
        return unwritten(self.report(), self.folder / "audit.jsonl", self.folder / "state")


async def test_line_has_who_called_what_and_how_it_ended(tmp_path: Path) -> None:
    hub = Audited(tmp_path)
    call = past_call("echo", {"text": "secret words"}, Completed(b'{"content":[]}'), "team", "git")
    failed = past_call("drop", {}, Failed(RpcError("no", symbol="busy")))
    trace = {"traceparent": msgspec.Raw(b'"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"')}
    traced = past_call("echo")
    traced.call = msgspec.structs.replace(traced.call, meta=trace, profile="ops")
    hub.trail.decisions[failed.call.id] = ("denied", "servers.a.per_tool.drop", "")
    first, second, third = await hub.lines(call, failed, traced)
    assert first.pop("time").endswith("Z")
    assert len(first.pop("chain")) == 64
    assert 0 <= first.pop("took") < 60
    assert len(first.pop("arguments")) == 32
    assert first == {
        "seq": 2, "event": "call", "id": call.call.id, "decision": "allowed", "principal": "team", "server": "git",
        "method": "tools/call", "tool": "echo", "outcome": "completed", "arguments_bytes": 23, "result_bytes": 14,
    }  # fmt: skip
    assert (second["decision"], second["rule"]) == ("denied", "servers.a.per_tool.drop")
    assert (second["outcome"], second["code"]) == ("failed", "busy")
    assert (third["trace"], third["profile"]) == ("0af7651916cd43dd8448eb211c80319c", "ops")
    assert b"secret words" not in (tmp_path / "audit.jsonl").read_bytes()
    assert not hub.trail.decisions
    assert not hub.trail._traces
    assert hub.report().is_whole


async def test_arguments_as_the_rule_says(tmp_path: Path) -> None:
    masking.learn({"s3cr3t-of-the-hub"})
    tools = {
        "fixed": ToolKeeping(fixed={"token": 1}, defaults={"page": 1}),
        "quiet": ToolKeeping(is_kept=False),
    }
    long = {"text": "x" * 5000 + "s3cr3t-of-the-hub"}
    calls: tuple[Callable[[], CallRecord], ...] = (
        lambda: past_call("echo", {"text": "s3cr3t-of-the-hub", "a": 1}),
        lambda: past_call("fixed", {"token": 1, "page": 1, "text": "y"}),
        lambda: past_call("quiet", {"text": "private"}),
        lambda: past_call("echo", long),
        lambda: past_call("file:///private", method="resources/read"),
        lambda: past_call("echo"),
    )  # fmt: skip
    for rule in ("full", "none", "hash"):
        (folder := tmp_path / rule).mkdir()
        hub = Audited(folder, rule, "off", **tools)
        lines = await hub.lines(*(call() for call in calls))
        texts: list[Any] = [line.get("arguments") for line in lines]
        whole = (folder / "audit.jsonl").read_text()
        assert "s3cr3t" not in whole
        assert "private" not in whole.replace("file:///private", "" if rule == "full" else "private")
        if rule == "full":
            assert json.loads(texts[0])["a"] == 1
            assert json.loads(texts[1]) == {"text": "y"}
            assert texts[2] is None
            assert len(texts[3]) < 4500
        elif rule == "none":
            assert set(texts) == {None}
        else:
            assert all(len(text) == 32 for text in (texts[0], texts[1], texts[3]))
            assert (texts[2], texts[5]) == (None, None)
        assert [line["arguments_bytes"] > 0 for line in lines] == [True, True, True, True, False, False]


async def test_history_that_is_off_keeps_nothing_and_one_that_is_on_keeps_the_same_as_without(tmp_path: Path) -> None:
    hub = Audited(tmp_path)
    await hub.lines(past_call("echo", {"a": 1}))
    assert await hub.store.index() == []
    assert await hub.store.losses() == []
    (folder := tmp_path / "on").mkdir()
    hub = Audited(folder, "full", "none")
    await hub.lines(past_call("echo", {"a": 1}))
    assert await hub.store.scan(await hub.store.index(), lambda batch: batch.sizes) == [b""]


async def test_events_of_the_log_with_a_kind_get_lines(tmp_path: Path) -> None:
    masking.learn({"s3cr3t-of-the-hub"})
    hub = Audited(tmp_path)
    hub.trail.event({"event": "config_reloaded", "level": "info", "settings": ["hub.budget"], "audit": "settings"})
    hub.trail.event({"event": "noise", "level": "info"})
    hub.trail.event({
        "event": "upstream_login_changed", "audit": "login", "upstream": "git", "principal": "team", "logged_in": True,
        "seq": "x", "note": "s3cr3t-of-the-hub" + "x" * 3000, "timestamp": "t",
    })  # fmt: skip
    settings, login = await hub.lines()
    assert (settings["event"], settings["what"], settings["data"]["settings"]) == (
        "settings",
        "config_reloaded",
        ["hub.budget"],
    )
    assert (login["event"], login["server"], login["principal"], login["data"]["logged_in"]) == (
        "login",
        "git",
        "team",
        True,
    )
    assert "s3cr3t" not in login["data"]["note"]
    assert len(login["data"]["note"]) <= 1000
    assert hub.report().is_whole


async def test_questions_get_lines(tmp_path: Path) -> None:
    hub = Audited(tmp_path)
    record = past_call("echo", principal="team", is_running=True)
    record.stream = None
    hub.journal.lasts(record)
    answers: list[object] = []
    ask = record.questions.ask
    for method in ("elicitation/create", "elicitation/create", "sampling/createMessage", "roots/list"):
        ask(Question(method, b"{}", answers.append))
    record.questions.answer("q1", b'{"action":"accept","content":{"x":"private"}}')
    record.questions.answer("q1", b"{}")
    record.questions.withdraw("q2")
    record.questions.answer("q4", b"{}")
    record.questions.close()
    assert len(answers) == 4
    lines = await hub.lines()
    assert [(line["event"], line["method"], line["outcome"]) for line in lines] == [
        ("question", "elicitation/create", "accept"),
        ("question", "elicitation/create", "failed"),
        ("question", "sampling/createMessage", "unanswered"),
    ]
    assert {line["principal"] for line in lines} == {"team"}
    assert b"private" not in (tmp_path / "audit.jsonl").read_bytes()


async def test_calls_that_were_too_many_are_counted_in_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "FULL", 10)
    monkeypatch.setattr(waiting, "MOST", 20)
    hub = Audited(tmp_path)
    lines = await hub.lines(*(past_call() for _ in range(95)))
    report = hub.report()
    assert 0 < len(lines) < 95
    assert (report.losses, hub.waiting(), report.breaks) == (95 - len(lines), 0, 0)


class Stuck:
    """A place that takes nothing until it is told to."""

    def __init__(self, output: AuditFile) -> None:
        self._place = output
        self.fails = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._place, name)

    def write(self, records: deque[bytes], about: bytes) -> None:
        if self.fails:
            raise OSError(28, "No space left on device")
        self._place.write(records, about)


async def test_place_that_takes_nothing_loses_the_oldest_and_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_module, "MOST", 30)
    monkeypatch.setattr(audit_module, "_MOST_EVENTS", 0)
    hub = Audited(tmp_path)
    hub.trail.output = output = cast("Any", Stuck(hub.output))
    for _ in range(6):
        hub.end(*(past_call() for _ in range(20)))
        await hub.journal.flush()
        await hub.trail._try(hub.trail._write)
    assert hub.trail.failing == "No space left on device"
    output.fails = False
    lines = await hub.lines()
    assert hub.trail.failing == ""
    assert (len(lines), hub.report().losses, hub.waiting()) == (30, 90, 0)


async def test_place_that_never_comes_back_holds_up_neither_history_nor_the_end(tmp_path: Path) -> None:
    hub, blocked = Audited(tmp_path, keeping="full"), threading.Event()

    class Hung:
        count, lose, location = hub.output.count, hub.output.lose, "hung"
        write = staticmethod(lambda records, about: blocked.wait(30))
        close = staticmethod(lambda about: blocked.wait(30))

    hub.trail.output = cast("Any", Hung())
    try:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(hub.trail.run)
                hub.end(past_call())
                await hub.journal.flush()
                assert len(await hub.store.index()) == 1
                tasks.cancel_scope.cancel()
            await hub.trail.close(0.1)
    finally:
        blocked.set()


async def test_collector_gets_lines_and_one_that_refuses_them_loses_none(tmp_path: Path) -> None:
    bodies, status = list[Any](), [500]

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if status[0] == 200:
                bodies.append((self.path, self.headers["authorization"], body))
            self.send_response(status[0])
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        send = to_collector(
            f"http://127.0.0.1:{server.server_port}/v1/logs?key=a%20b", {"authorization": "Bearer x"}, "hub"
        )
        output, records = LinePlace("collector", send), deque([b'"n":1', b'"n":2'])
        for answer in (500, 302):
            status[0] = answer
            with pytest.raises(OSError, match=f"HTTP {answer}"):
                await anyio.to_thread.run_sync(output.write, records, b'"time":""')
        status[0] = 200
        await anyio.to_thread.run_sync(output.write, records, b'"time":""')
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert [(path, secret) for path, secret, _ in bodies] == [("/v1/logs?key=a%20b", "Bearer x")] * 2
    texts = [
        record["body"]["stringValue"]
        for _, _, body in bodies
        for record in body["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    ]
    (file := tmp_path / "sent").write_text("".join(f"{text}\n" for text in texts))
    report = verify([file], set())
    assert (report.lines, report.is_whole) == (3, True)


async def test_decisions_of_dropped_calls_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "_HUGE", 3)
    hub = Audited(tmp_path)
    hub.trail.decisions |= {CallId(f"c{n}"): ("denied", "", "") for n in range(50)}
    await hub.lines(past_call())
    assert len(hub.trail.decisions) == 3

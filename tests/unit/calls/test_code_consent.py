"""Who approves the writes of a script, questions of its servers, and the same code again."""

from collections import Counter
from typing import Any

import msgspec
import pytest

from mcp_hub.call import Call, CallChannel, Question
from mcp_hub.calls.code import sending
from mcp_hub.calls.runner import CallRecord
from mcp_hub.code.steps import CodeLimits
from mcp_hub.errors import RpcError
from mcp_hub.events import Completed, InputRequired, ToolResult, cancelled_by_client
from mcp_hub.types import RawJson
from tests.unit.calls.code_runs import CodeHub, CodeStore, Server, output, script
from tests.unit.calls.durable_hub import settle, written
from tests.unit.calls.test_code_runs import a_hub, another, ended, is_over
from tests.unit.calls.virtual_time import sleep, virtual

FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


def asking(code_mode: Any = "ask", server: Server | None = None) -> CodeHub:
    hub = a_hub(server=server)
    hub.code_mode = code_mode
    return hub


async def question(record: CallRecord) -> tuple[str, Any]:
    """The open question of a run: its key and params."""
    await settle(lambda: bool(record.questions.open))
    [(key, asked)] = record.questions.open.items()
    return key, msgspec.json.decode(asked.params)


async def answer(record: CallRecord, choice: str) -> str:
    """Answers the open question; its message."""
    key, params = await question(record)
    content = {"action": "accept", "content": {"answer": choice}}
    record.questions.answer(key, msgspec.json.encode(content) if choice else b'{"action":"decline"}')
    message: str = params["message"]
    return message


@virtual
async def test_mode_reads_refuses_every_other_tool_by_its_name() -> None:
    hub = asking("reads")
    record = hub.runs_script(script([("read", {"x": 1}), ("write", {"x": 1}), ("put", {"x": 1})]))
    assert output(await ended(record)) == ["read 1", "PermissionError", "PermissionError"]
    assert hub.server.counts == Counter({"read 1": 1})
    assert hub.sent[0].call.must_read, "the process that gets it looks again"
    results = [bytes(event.content) for event in written(hub, record.call.id) if isinstance(event, ToolResult)]
    assert b"hub.code is `reads`" in results[0]


@virtual
async def test_first_call_of_a_writing_tool_asks_and_the_answer_holds_for_the_run() -> None:
    hub = asking()
    stages: Any = [("write", {"x": 1}), ("write", {"x": 2}), ("read", {"x": 1})], [("write", {"x": 3})]
    record = hub.runs_script(script(*stages), FORMS)
    _, params = await question(record)
    assert params["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "run", "no"]
    await settle(lambda: hub.server.counts["read 1"] == 1)
    assert hub.server.counts.total() == 1, "the others wait for the first answer"
    message = await answer(record, "run")
    assert 'write with {"x":1}' in message and "0 calls so far" in message and "\n" in message
    assert output(await ended(record)) == ["write 1", "write 2", "read 1", "write 3"]
    asked = [event for event in written(hub, record.call.id) if isinstance(event, InputRequired)]
    assert len(asked) == 1


@virtual
async def test_once_holds_for_one_call_and_no_raises_in_the_script() -> None:
    hub = asking()
    record = hub.runs_script(script([("write", {"x": 1}), ("write", {"x": 2}), ("write", {"x": 3})]), FORMS)
    assert '{"x":1}' in await answer(record, "once")
    await settle(lambda: hub.server.counts["write 1"] == 1)
    await answer(record, "no")
    await answer(record, "")
    assert output(await ended(record)) == ["write 1", "PermissionError", "PermissionError"]
    assert hub.server.counts == Counter({"write 1": 1})


@virtual
async def test_destructive_tool_asks_each_time() -> None:
    hub = asking()
    record = hub.runs_script(script([("destroy", {"x": 1})], [("destroy", {"x": 2})]), FORMS)
    _, params = await question(record)
    assert params["requestedSchema"]["properties"]["answer"]["enum"] == ["once", "no"]
    await answer(record, "run")
    await settle(lambda: hub.server.counts["destroy 1"] == 1)
    await answer(record, "once")
    assert output(await ended(record)) == ["destroy 1", "destroy 2"]


@virtual
async def test_without_anybody_to_ask_the_call_is_refused() -> None:
    hub = asking()
    assert output(await ended(hub.runs_script(script([("write", {"x": 1})])))) == ["PermissionError"]
    assert not hub.server.counts


@virtual
async def test_mode_of_now_holds_for_each_call() -> None:
    hub = asking("all")
    record = hub.runs_script(script([("write", {"x": 1, "seconds": 1})], [("write", {"x": 2})]))
    await settle(lambda: bool(hub.server.counts))
    hub.code_mode = "reads"
    assert output(await ended(record)) == ["write 1", "PermissionError"]


@pytest.mark.parametrize("change", ["mode", "hint", "rule", "appears"])
@virtual
async def test_rules_of_the_moment_of_sending_hold_after_a_long_commit(change: str) -> None:
    hub = asking("reads" if change == "appears" else "ask" if change in ("hint", "rule") else "all")
    assert isinstance(hub.store, CodeStore)
    if change == "appears":
        del hub.code_traits["write"]
    elif change == "hint":
        hub.code_traits["write"] = ["read-only"]
    elif change == "rule":  # which would have asked
        hub.code_traits["write"] = ["asks"]
    hub.store.is_away = True
    record = hub.runs_script(script([("write", {"x": 1})]))
    await sleep(1)
    hub.code_traits["write"] = []
    if change == "mode":
        hub.code_mode = "reads"
    hub.store.is_away = False
    assert output(await ended(record)) == ["PermissionError"]
    assert not hub.server.counts


@virtual
async def test_script_that_was_called_to_only_read_calls_nothing_else_in_any_mode() -> None:
    hub = asking("all")
    record = hub.runs_script(script([("write", {"x": 1}), ("read", {"x": 1})]), must_read=True)
    assert output(await ended(record)) == ["PermissionError", "read 1"]
    assert all(inner.call.must_read for inner in hub.sent)


@virtual
async def test_answer_for_all_calls_counts_once_where_it_was_not_offered() -> None:
    hub = asking()
    record = hub.runs_script(script([("destroy", {"x": 1})], [("destroy", {"x": 2})]), FORMS)
    await answer(record, "run")
    await settle(lambda: hub.server.counts["destroy 1"] == 1)
    hub.code_traits["destroy"] = []
    await answer(record, "no")
    assert output(await ended(record)) == ["destroy 1", "PermissionError"]


@virtual
async def test_what_was_allowed_is_not_for_another_tool_that_gets_the_name() -> None:
    hub = asking()
    hub.code_traits["write"] = ["write of git"]
    record = hub.runs_script(script([("write", {"x": 1})], [("write", {"x": 2})], [("write", {"x": 3})]), FORMS)
    await answer(record, "run")
    await settle(lambda: hub.server.counts["write 1"] == 1)
    hub.code_traits["write"] = ["write of other"]
    assert '"x":2' in (await question(record))[1]["message"]
    hub.code_traits["write"] = ["write of third"]
    await answer(record, "run")
    await sleep(1)
    assert hub.server.counts.total() == 1, "a third one was not asked for"
    await answer(record, "no")
    await answer(record, "no")
    assert output(await ended(record)) == ["write 1", "PermissionError", "PermissionError"]


@virtual
async def test_same_code_in_another_folder_is_another_run() -> None:
    hub = asking("all")
    hub.registry.limit(10, 10)
    records = [hub.runs_script(CODE, directory=folder) for folder in ("/a", "/b", "/a")]
    for record in records:
        await ended(record)
    assert hub.server.counts == Counter({"write 1": 2})


@virtual
async def test_question_shows_all_arguments_and_what_would_not_be_seen() -> None:
    hub = asking()
    record = hub.runs_script(script([("write", {"x": 1, "long": "a" * 9000, "path": "/etc\u202e\u200b"})]), FORMS)
    _, params = await question(record)
    assert "/etc<U+202E><U+200B>" in params["message"] and len(params["message"]) < 5000
    await answer(record, "no")
    await ended(record)
    record = hub.runs_script(script([("write", {f"x{i}": "a" * 90 for i in range(99)})]), FORMS)
    _, params = await question(record)
    assert "more characters not shown" in params["message"] and len(params["message"]) < 5000


@virtual
async def test_restart_neither_forgets_nor_widens_what_was_allowed() -> None:
    hub = asking()
    slow: Any = {"x": 0, "seconds": 100}
    stages: Any = [("write", {"x": 1}), ("put", {"x": 1})], [("read", slow)], [("write", {"x": 2}), ("put", {"x": 2})]
    record = hub.runs_script(script(*stages), FORMS)
    await answer(record, "run")
    await answer(record, "once")
    await settle(lambda: hub.server.counts["read 0"] == 1)
    await hub.dies()
    other = another(hub, "ask").runs()
    await settle(lambda: other.server.counts["write 2"] == 1, 300)
    assert '"x":2' in await answer(other.records[0], "once")
    assert isinstance(hub.store, CodeStore)
    shared = hub.store.shared
    await settle(lambda: is_over(shared, record.call.id))
    assert output(written(other, record.call.id)[-1]) == ["write 1", "put 1", "read 0", "write 2", "put 2"]  # type: ignore[arg-type]


@virtual
async def test_open_question_is_asked_again_by_the_next_hub_and_its_call_was_not_sent() -> None:
    hub = asking()
    record = hub.runs_script(script([("write", {"x": 1})]), FORMS)
    await question(record)
    await hub.dies()
    other = another(hub, "ask").runs()
    await settle(lambda: bool(other.records) and bool(other.records[0].questions.open))
    await answer(other.records[0], "once")
    assert isinstance(hub.store, CodeStore)
    shared = hub.store.shared
    await settle(lambda: is_over(shared, record.call.id))
    assert output(written(other, record.call.id)[-1]) == ["write 1"]  # type: ignore[arg-type]
    assert hub.server.counts == Counter({"write 1": 1})


class _Asking(Server):
    """Asks before it answers."""

    async def call(self, call: Call, channel: CallChannel) -> Completed:
        answers: list[RawJson | RpcError] = []
        channel.ask(Question("elicitation/create", b'{"message":"sure?"}', answers.append))
        await settle(lambda: bool(answers))
        text = bytes(answers[0]).decode() if not isinstance(answers[0], RpcError) else "error"
        return Completed.of(text)


@virtual
async def test_question_of_a_server_goes_to_the_caller_of_the_script_and_its_answer_back() -> None:
    hub = asking("all", _Asking())
    record = hub.runs_script(script([("read", {"x": 1})]), FORMS)
    key, params = await question(record)
    assert params == {"message": "sure?"}
    record.questions.answer(key, b'{"action":"accept","content":{"yes":true}}')
    assert output(await ended(record)) == [{"action": "accept", "content": {"yes": True}}]


CODE = script([("write", {"x": 1, "seconds": 5})])


@virtual
async def test_same_code_joins_the_run_that_is_under_way() -> None:
    hub = asking("all")
    first, second, third = (hub.runs_script(CODE) for _ in range(3))
    hub.registry.limit(10, 10)
    assert [output(await ended(record)) for record in (first, second, third)] == [["write 1"]] * 3
    assert hub.server.counts == Counter({"write 1": 1})


@virtual
async def test_again_runs_it_anew_and_so_does_another_profile_and_a_received_ending() -> None:
    hub = asking("all")
    hub.registry.limit(10, 10)
    record = hub.runs_script(CODE)
    await settle(lambda: bool(hub.server.counts))
    await ended(hub.runs_script(CODE, again=True))
    await ended(record)
    assert hub.server.counts == Counter({"write 1": 2})
    await ended(hub.runs_script(CODE))
    assert hub.server.counts == Counter({"write 1": 3}), "its client has had the result"


@virtual
async def test_client_that_timed_out_leaves_the_run_and_gets_it_by_the_same_code() -> None:
    hub = asking("all")
    hub.registry.limit(10, 10)
    hub.runs()
    record = hub.runs_script(CODE)
    await settle(lambda: bool(hub.server.counts))
    assert hub.port.streams.timed_out.give_up(record, "request timed out")
    await sleep(1)
    assert output(await ended(hub.runs_script(CODE))) == ["write 1"]
    assert hub.server.counts == Counter({"write 1": 1})
    # and one that cancels for another reason ends it
    record = hub.runs_script(CODE, again=True)
    await settle(lambda: hub.server.counts["write 1"] == 2)
    assert not hub.port.streams.timed_out.give_up(record, "no more")
    await ended(record)
    assert record.log.ending.reason == cancelled_by_client("no more")  # type: ignore[union-attr]


@pytest.mark.parametrize("hub_is_new", [False, True])
@virtual
async def test_ending_that_nobody_received_answers_the_same_code_for_ten_minutes(hub_is_new: bool) -> None:
    hub = asking("all")
    hub.runs()
    record = hub.runs_script(CODE)
    await settle(lambda: bool(hub.server.counts))
    hub.port.streams.leave(record)
    await ended(record)
    await settle(lambda: isinstance(hub.store, CodeStore) and is_over(hub.store.shared, record.call.id))
    late = another(hub, "all").runs() if hub_is_new else hub
    again = await ended(late.runs_script(CODE))
    assert output(again) == ["write 1"] and b"again: true" in bytes(again.result)
    assert hub.server.counts == Counter({"write 1": 1})
    assert "again: true" not in str(output(await ended(late.runs_script(CODE)))), "and now it was received"
    assert hub.server.counts == Counter({"write 1": 2})


@virtual
async def test_ending_of_a_run_that_only_read_is_not_kept_for_the_same_code() -> None:
    hub = asking("all")
    code = script([("read", {"x": 1, "seconds": 2})])
    record = hub.runs_script(code)
    await settle(lambda: bool(hub.server.counts))
    hub.port.streams.leave(record)
    await ended(record)
    await settle(lambda: isinstance(hub.store, CodeStore) and is_over(hub.store.shared, record.call.id))
    await ended(hub.runs_script(code))
    assert hub.server.counts == Counter({"read 1": 2})


@virtual
async def test_media_of_many_results_are_kept_up_to_a_limit_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "_MEDIA", 5000)
    server = Server()
    picture = {"content": [{"type": "image", "mimeType": "image/png", "data": "a" * 2000}]}
    server.ends = {f"read {x}": Completed(msgspec.json.encode(picture)) for x in range(9)}
    record = asking("all", server).runs_script(script([("read", {"x": x}) for x in range(9)]))
    values = await ended(record)
    text, *blocks = msgspec.json.decode(values.result)["content"]
    assert [block["type"] for block in blocks] == ["image", "image"]
    assert text["text"].count('"missing":"not kept') == 7


@virtual
@pytest.mark.parametrize(("memory", "most"), [(13_000, 1), (30_000, 2), (1 << 20, 4)])
async def test_fewer_calls_are_in_flight_after_long_results(memory: int, most: int) -> None:
    server = Server()
    long = {"content": [{"type": "text", "text": "a" * 3000}]}
    server.ends = {"read 0": Completed(msgspec.json.encode(long))}
    hub = asking("all", server)
    hub.registry.limit(10, 10)
    hub.code_limits = CodeLimits(memory=memory)
    code = script([("read", {"x": 0})], [("read", {"x": x}) for x in range(1, 5)])
    assert len(output(await ended(hub.runs_script(code)))) == 5 and server.most == most


@virtual
async def test_results_that_come_at_once_are_bounded_by_the_memory_of_the_script() -> None:
    server = Server()
    long = {"content": [{"type": "text", "text": "a" * 3000}]}
    server.ends = {f"read {x}": Completed(msgspec.json.encode(long)) for x in range(5)}
    hub = asking("all", server)
    hub.registry.limit(10, 10)
    hub.code_limits = CodeLimits(memory=7000)
    values = output(await ended(hub.runs_script(script([("read", {"x": x}) for x in range(5)]))))
    assert values == ["a" * 3000, "a" * 3000, "ToolError", "ToolError", "ToolError"]

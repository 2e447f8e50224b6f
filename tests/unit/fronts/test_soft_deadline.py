"""Whose calls are answered before they end, when, with what, and what becomes of the calls."""

import json
from typing import Any

import pytest
from msgspec import Raw

from mcp_hub.app.limits import Current
from mcp_hub.calls.hub_tools.own_tools import CALLS_TOOL, OFFERED
from mcp_hub.catalog.offers.rules import ServerRules, ViewRules
from mcp_hub.catalog.tokens import estimate
from mcp_hub.catalog.views.exposure import exposed
from mcp_hub.catalog.views.view import build
from mcp_hub.config.schema.clients import ClientSettings
from mcp_hub.config.schema.hub import HubSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.events import Progressed
from mcp_hub.protocol.meta import take_meta
from mcp_hub.sessions.clients import ClientKinds
from mcp_hub.sessions.session import LOCAL, Caller, Session
from mcp_hub.types import CacheHint, Era, Kind, Snapshot
from tests.unit.calls.virtual_time import sleep
from tests.unit.fronts.soft_hub import DEADLINE, EARLY, STREAMS, TALKING, SoftHub, delta, in_virtual_time, said, soft
from tests.unit.fronts.task_hub import TASKS, text

H, M = Era.HANDSHAKE, Era.MODERN
STDIO = Caller(has_own_hub=True)


def chosen(client: str) -> Caller:
    return Caller(has_own_hub=True, client=client)


@pytest.mark.parametrize(
    ("caller", "era", "name", "capabilities", "deadline"),
    [
        (STDIO, H, "claude-ai", {}, 200),
        (STDIO, H, "claude-code", {}, None),
        (STDIO, H, "somebody", {}, 45),
        (STDIO, H, None, {}, 45),
        (STDIO, H, 7, {}, 45),
        (STDIO, H, "x" * 10_000, {}, 45),
        (STDIO, M, "somebody", {}, None),
        (STDIO, M, "claude-ai", {}, 200),
        (STDIO, M, "claude-ai", TASKS, None),
        (STDIO, H, "claude-ai", TASKS, 200),
        (chosen("codex"), H, "claude-code", {}, 240),
        (chosen("codex"), M, "somebody", {}, 240),
        (chosen("codex"), M, "somebody", TASKS, None),
        (chosen("claude-code"), H, "claude-ai", {}, None),
        (LOCAL, H, "somebody", {}, None),
        (LOCAL, H, "claude-ai", {}, 200),
        (LOCAL, M, "somebody", {}, None),
        (LOCAL, M, "claude-ai", {}, 200),
    ],
)
def test_who_has_a_deadline(caller: Caller, era: Era, name: Any, capabilities: Any, deadline: float | None) -> None:
    info = {} if name is None else {"name": name}
    session = Session("s", caller, era, "2025-11-25", dict(capabilities), info)
    current = Current(Settings())
    assert ClientKinds(current.client, current.soft_deadline, ())(session).soft_deadline == deadline


@pytest.mark.parametrize(
    ("name", "clients", "form"),
    [
        ("claude-code", {}, "line"),
        ("somebody", {}, "text"),
        ("somebody", {"somebody": ClientSettings(partials="off")}, None),
        ("claude-code", {"claude-code": ClientSettings(max_tools=9)}, "line"),
        ("somebody", {"unknown": ClientSettings(partials="off")}, None),
        ("claude-code", {"unknown": ClientSettings(partials="off")}, None),
    ],
)
def test_partial_content_is_shown_as_messages(name: str, clients: dict[str, ClientSettings], form: str | None) -> None:
    session = Session("s", STDIO, H, "2025-11-25", {}, {"name": name})
    current = Current(Settings(hub=HubSettings(clients=clients)))
    assert ClientKinds(current.client, current.soft_deadline, ())(session).partials == form


def test_no_name_is_too_long_to_be_looked_up() -> None:
    names: list[str | None] = []

    def find(client_name: str | None, chosen: str | None, known_only: bool) -> float | None:
        names.append(client_name)
        return None

    kinds = ClientKinds(Current(Settings()).client, find, ())
    for _ in range(2):
        assert kinds(Session("s", LOCAL, H, "", client_info={"name": "x" * 1_000_000})).soft_deadline is None
    assert names == ["x" * 256], "and only once"


@in_virtual_time
async def test_a_call_that_takes_too_long_is_answered_with_what_there_is(hub: SoftHub) -> None:
    sent = await hub.calls()
    await hub.running.happens(delta("one, "), delta("two\n"))
    await sleep(DEADLINE - 1)
    assert not sent.is_answered
    await sleep(1)
    mark = soft(sent)
    assert said(sent).endswith("Output so far:\none, two\n")
    assert mark["stream"] == hub.running.call.id
    assert f'hub_calls with {{"id":"{mark["stream"]}","after":{mark["cursor"]}}}' in said(sent)
    assert f'hub_cancel with {{"stream":"{mark["stream"]}"}}' in said(sent)
    await hub.running.ends()
    assert not hub.running.is_cancelled and len(sent.messages) == 1


@in_virtual_time
async def test_a_call_that_is_over_in_time_is_an_ordinary_one(hub: SoftHub) -> None:
    sent = await hub.calls()
    await sleep(DEADLINE - 1)
    await hub.running.ends(text("quick"))
    assert said(sent) == "quick"
    await sleep(DEADLINE)
    assert len(sent.messages) == 1


@in_virtual_time
async def test_messages_of_progress_stand_in_for_content(hub: SoftHub) -> None:
    sent = await hub.calls()
    assert hub.running.call.wants_progress, "though the client gave no token"
    for step, message in enumerate(["compiling", "compiling", "linking"], 1):
        await hub.running.says(step, message)
    await hub.running.happens(Progressed(9))
    await sleep(DEADLINE)
    assert said(sent).endswith("Output so far:\ncompiling\nlinking\n")


@in_virtual_time
async def test_content_goes_before_progress_and_only_the_end_of_it(hub: SoftHub) -> None:
    sent = await hub.calls()
    await hub.running.says(1, "unseen")
    await hub.running.happens(delta("é" * 5000), delta("the end"), delta("beside", channel="aux"))
    await sleep(DEADLINE)
    _, _, shown = said(sent).partition("(the end of it):\n")
    assert shown.endswith("éthe end") and set(shown[:-7]) == {"é"}
    assert 1990 <= len(shown.encode()) <= 2000


@in_virtual_time
async def test_a_call_that_asks_is_answered_in_time_and_its_question_withdrawn_first(hub: SoftHub) -> None:
    sent = await hub.calls(elicitation={})
    await hub.running.asks("sure?\x1b[2J")
    await sleep(DEADLINE)
    question, off, answer = hub.sent_to_client[-3:]
    assert (question["method"], off["method"]) == ("elicitation/create", "notifications/cancelled")
    assert off["params"]["requestId"] == question["id"] and answer["id"] == sent.answer["id"]
    assert soft(sent) and 'The tool waits for an answer: elicitation/create: "sure?\\x1b[2J"\n' in said(sent)
    assert "call hub_calls" in said(sent) and hub.running.answers == []


@in_virtual_time
async def test_an_answer_that_comes_after_the_early_one_counts(hub: SoftHub) -> None:
    sent = await hub.calls(elicitation={})
    await hub.running.asks()
    question = hub.sent_to_client[-1]
    await sleep(DEADLINE + 1)
    waits = await hub.tool("hub_calls", {"id": soft(sent)["stream"]})
    again = hub.sent_to_client[-1]
    assert again["method"] == "elicitation/create" and again["id"] != question["id"]
    hub.answered(question, {"action": "accept"})
    await sleep(1)
    assert len(hub.running.answers) == 1
    assert hub.sent_to_client[-1]["params"]["requestId"] == again["id"], "it is not asked any more"
    await hub.running.ends(text("done"))
    assert said(waits) == "done"


@pytest.mark.parametrize("answer", [{"error": {"code": 0, "message": "cancelled"}}, {"result": {"action": "cancel"}}])
@in_virtual_time
async def test_a_client_that_confirms_the_withdrawal_has_not_answered(hub: SoftHub, answer: Any) -> None:
    sent = await hub.calls(elicitation={})
    await hub.running.asks()
    question = hub.sent_to_client[-1]
    await sleep(DEADLINE + 1)
    hub.replied(question, answer)
    await sleep(1)
    assert soft(sent) and hub.running.answers == []
    await hub.tool("hub_calls", {"id": soft(sent)["stream"]})
    hub.replied(hub.sent_to_client[-1], answer)
    await sleep(1)
    assert len(hub.running.answers) == 1, "an answer to a question that is open is one"


@in_virtual_time
async def test_a_wait_that_asks_is_answered_in_time_too_and_every_answer_counts(hub: SoftHub) -> None:
    stream = await hub.softly(elicitation={})
    await hub.running.asks()
    asked = []
    for _ in range(2):
        waits = await hub.tool("hub_calls", {"id": stream})
        asked.append(hub.sent_to_client[-1])
        await sleep(DEADLINE)
        assert soft(waits) and "The tool waits for an answer" in said(waits)
        assert hub.sent_to_client[-2]["params"]["requestId"] == asked[-1]["id"]
    hub.answered(asked[0], {"action": "accept"})
    hub.answered(asked[1], {"action": "decline"})
    await sleep(1)
    (answer,) = hub.running.answers
    assert not isinstance(answer, Exception) and json.loads(bytes(answer)) == {"action": "accept"}


@in_virtual_time
async def test_so_many_questions_that_are_off_may_still_be_answered(hub: SoftHub) -> None:
    stream = await hub.softly(elicitation={})
    for number in range(64):
        await hub.running.asks(str(number))
    for _ in range(2):
        await hub.tool("hub_calls", {"id": stream})
        await sleep(DEADLINE)
    assert len(hub.waits_for) == 64


@in_virtual_time
async def test_one_call_too_many_without_a_client_waits_for_its_result(hub: SoftHub) -> None:
    calls = [await hub.calls() for _ in range(4)]  # three may be detached
    await sleep(DEADLINE * 2)
    assert [sent.is_answered for sent in calls] == [True, True, True, False]
    await hub.running.ends(text("at last"))
    assert said(calls[-1]) == "at last"


@in_virtual_time
async def test_a_modern_client_gets_an_answer_of_its_era(hub: SoftHub) -> None:
    sent = await hub.call("slow", capabilities={})
    await sleep(DEADLINE)
    assert sent.result["resultType"] == "complete" and soft(sent)


@in_virtual_time
async def test_a_client_that_cancels_before_the_answer_ends_the_call_and_not_after_it(hub: SoftHub) -> None:
    before = await hub.calls()
    before.leave()
    after = await hub.tool("slow")
    await sleep(DEADLINE)
    assert soft(after)
    after.leave()
    await sleep(10)
    assert [call.is_cancelled for call in hub.server.calls] == [True, False] and not before.messages


@pytest.mark.slow
@in_virtual_time
async def test_a_call_that_nobody_asks_after_ends_within_the_hour(hub: SoftHub) -> None:
    stream = await hub.softly()
    await sleep(3500)
    await hub.tool("hub_calls", {"id": stream})
    await sleep(3500)
    assert hub.streams.owned(hub.running.call.id), "it was asked after"
    await sleep(200)
    assert hub.running.is_cancelled


@in_virtual_time
async def test_the_tools_are_listed_first_and_without_output_schemas(hub: SoftHub) -> None:
    await hub.hello()
    tools = (await hub.ask("tools/list", {})).result["tools"]
    assert [tool["name"] for tool in tools][:3] == ["hub_calls", "hub_cancel", "slow"]
    assert not any("outputSchema" in tool for tool in tools)
    raws = []
    for _ in range(2):
        await hub.ask("tools/list", {})
        raws.append(json.loads(hub.raw[-1])["result"])
        hub.port.changes.bump()
    assert json.dumps(raws[0]) == json.dumps(raws[1])


@in_virtual_time
async def test_programs_neither_see_nor_reach_them(hub: SoftHub) -> None:
    tools = (await hub.send("tools/list", {}, principal="you")).result["tools"]
    assert [tool["name"] for tool in tools][:1] == ["slow"] and all("outputSchema" in tool for tool in tools)
    await hub.send("tools/call", {"name": "slow", "arguments": {}}, principal="you")
    stream = hub.running.call.id
    for name in ("hub_calls", "hub_cancel"):
        sent = await hub.send("tools/call", {"name": name, "arguments": {"stream": stream}}, principal="you")
        assert sent.error["code"] == -32602 and "Unknown tool" in sent.error["message"]
    await sleep(DEADLINE * 3)
    assert not hub.running.is_cancelled


@in_virtual_time
async def test_only_calls_of_the_servers_tools_are_answered_early(hub: SoftHub) -> None:
    session = Session("s", Caller("me"), M, "2026-07-28")
    wait = {"name": Raw(b'"hub_calls"'), "arguments": Raw(b'{"id":"st_0"}')}
    for params, has_answer in (({"name": Raw(b'"slow"')}, True), (wait, False)):
        call = hub.port.call(session, "tools/call", params, take_meta({}))
        assert (call.early is not None) is has_answer
        call.cancel()


def test_a_list_that_depends_on_the_client_is_for_nobody_else() -> None:
    hints = {kind: CacheHint(60_000, public=True) for kind in Kind}
    definition = b'{"name":"t","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},"_meta":{"a":1.0}}'
    offered = Snapshot("git", M, {Kind.TOOL: (definition,), Kind.PROMPT: ()}, hints)
    rules = ViewRules({"git": ServerRules()})
    plain = build([offered], rules)
    early = exposed(plain, rules, EARLY, "full")
    assert b'"cacheScope":"public"' in plain.page(Kind.TOOL, M, None, 9)
    page = early.page(Kind.TOOL, M, None, 9)
    assert (
        b'"cacheScope":"private"' in page and b'{"name":"t","inputSchema":{"type":"object"},"_meta":{"a":1.0}}' in page
    )
    assert early.page(Kind.PROMPT, M, None, 9) == plain.page(Kind.PROMPT, M, None, 9)


def test_the_tools_cost_little_context() -> None:
    seen = [{key: tool[key] for key in ("name", "description", "inputSchema")} for tool in map(json.loads, OFFERED)]
    assert len(json.dumps(seen, separators=(",", ":"))) < 600
    always = {**json.loads(CALLS_TOOL), "_meta": {"anthropic/alwaysLoad": True}}  # as for a client that defers tools
    assert estimate(json.dumps(always, separators=(",", ":"))) <= 80
    assert [tool["annotations"]["readOnlyHint"] for tool in map(json.loads, OFFERED)] == [True, False]


def shown(hub: SoftHub, token: str) -> list[tuple[float, str | None]]:
    """The progress that came under a token."""
    params = [sent["params"] for sent in hub.sent_to_client if sent.get("method") == "notifications/progress"]
    return [(own["progress"], own.get("message")) for own in params if own["progressToken"] == token]


@in_virtual_time
async def test_a_client_that_gave_a_token_is_shown_partial_content(hub: SoftHub) -> None:
    hub.port.views._client_kind = lambda session: TALKING
    await hub.hello()
    await hub.tool("slow")
    await hub.running.happens(delta("unseen"))
    await hub.tool("slow", token="t")
    await hub.running.happens(delta("one\n"))
    await hub.running.happens(delta("two\n"), Progressed(1))
    assert shown(hub, "t") == [(0, "one"), (1e-6, "two"), (1, None)]
    assert len([sent for sent in hub.sent_to_client if "method" in sent]) == 3


@in_virtual_time
async def test_a_client_of_the_extension_gets_events_and_no_messages_made_of_them(hub: SoftHub) -> None:
    hub.port.views._client_kind = lambda session: TALKING
    await hub.hello(experimental={STREAMS: {}})
    await hub.tool("slow", token="t")
    await hub.running.happens(delta("one\n"), delta("two\n"))
    assert [message for _, message in shown(hub, "t")] == ["one", "two"]
    notes = [sent["params"]["_meta"][STREAMS] for sent in hub.sent_to_client if "method" in sent]
    assert [note["events"][0]["type"] for note in notes] == ["delta", "delta"]


@pytest.mark.parametrize("extension", [{}, {"experimental": {STREAMS: {}}}])
@in_virtual_time
async def test_a_wait_shows_progress_and_partial_content_like_the_call(hub: SoftHub, extension: Any) -> None:
    hub.port.views._client_kind = lambda session: TALKING
    sent = await hub.calls(**extension)
    await hub.running.happens(Progressed(1, 9), delta("old\n"))
    await sleep(DEADLINE)
    mark = soft(sent)
    waits = await hub.tool("hub_calls", {"id": mark["stream"], "after": int(mark["cursor"])}, token="w")
    await hub.running.happens(Progressed(2, 9), delta("new\n"), Progressed(2, 9))
    assert shown(hub, "w") == [(2, None), (2 + 1e-6, "new"), (2 + 1e-6 + 1e-6, None)]
    await sleep(DEADLINE)
    assert said(waits).endswith("New output:\nnew\n")

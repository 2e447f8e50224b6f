"""The history over REST and under the dashboard: who sees which calls, filters, figures, calls that are made again."""

import gc
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from mcp_hub import masking
from mcp_hub.app.dashboard import past_calls
from mcp_hub.errors import RpcError
from tests.unit.calls import past
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, BOB, ELSEWHERE, NARROW, OPERATOR, Response, modern_request
from tests.upstreams.messages import rpc


class Pinned(msgspec.Struct):
    """The fingerprint of a definition."""

    digest: str


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    """A hub with tokens that keeps arguments all the same."""
    async with dashboard_hub(tmp_path, tokens=True, history={"arguments": "full"}) as peer:
        yield peer


async def called(hub: DashboardPeer, tool: str, token: str, **arguments: Any) -> None:
    await hub.call(tool, arguments, token=token).ended()


async def listed(hub: DashboardPeer, token: str = OPERATOR, query: str = "") -> list[dict[str, Any]]:
    await hub.app.journal.flush()
    response = await hub.ask("GET", f"/v1/history?{query}", token=token)
    assert response.status == 200, response.body
    return response.json["calls"]  # type: ignore[no-any-return]


async def test_each_principal_sees_its_own_calls_and_an_operator_all(hub: DashboardPeer) -> None:
    await called(hub, "echo", ALICE, text="of alice")
    await called(hub, "fail", BOB, text="of bob")
    [of_alice], [of_bob] = await listed(hub, ALICE), await listed(hub, BOB)
    assert (of_alice["principal"], of_bob["principal"], of_bob["status"]) == ("alice", "bob", "tool_error")
    assert [call["principal"] for call in await listed(hub)] == ["bob", "alice"]
    assert await listed(hub, ALICE, "principal=bob") == [of_alice], "who asks for others gets its own"
    assert await listed(hub, query="principal=bob") == [{**of_bob, "hub": hub.app.journal.store._hub}]  # type: ignore[attr-defined]
    never = await hub.ask("GET", "/v1/history/st_never", token=ALICE)
    for method, end in (("GET", ""), ("POST", "/run")):
        others = await hub.ask(method, f"/v1/history/{of_bob['id']}{end}", token=ALICE, body={} if end else None)
        assert (others.status, others.body) == (404, never.body)
    own = (await hub.ask("GET", f"/v1/history/{of_alice['id']}", token=ALICE)).json
    assert own["arguments"] == {"text": "of alice"} and own["run"] == {"possible": True}
    assert (await hub.ask("GET", f"/v1/history/{of_bob['id']}", token=OPERATOR)).json["arguments"] == {"text": "of bob"}
    figures = (await hub.ask("GET", "/v1/history/figures?span=1h", token=ALICE)).json
    assert [(row["tool"], row["calls"], row["failed"]) for row in figures["rows"]] == [("echo", 1, 0)]
    assert len((await hub.ask("GET", "/v1/history/figures?span=7d", token=OPERATOR)).json["rows"]) == 2
    for token in (ALICE, NARROW):
        assert (await hub.ask("DELETE", "/v1/history", token=token)).status == 403
    assert (await hub.ask("DELETE", "/v1/history", token=OPERATOR)).json == {"removed": 2}
    assert await listed(hub) == []


async def test_caller_within_a_profile_sees_calls_at_its_servers(hub: DashboardPeer) -> None:
    await called(hub, "echo", ALICE, text="x")
    assert len(await listed(hub, ELSEWHERE)) == 1
    assert [call["tool"] for call in (await hub.get("/v1/history"))["calls"]] == ["echo"], "as on the page"
    assert {"place", "failing"} & (await hub.ask("GET", "/v1/history", token=ALICE)).json.keys() == set()


async def test_filters_choose_calls_and_cursors_lead_to_the_next_page(hub: DashboardPeer) -> None:
    for n in range(5):
        await called(hub, "echo", ALICE, text=str(n))
    await called(hub, "fail", ALICE, text="5")
    chosen = {
        "": 6, "tool=ec*": 5, "tool=echo&failed=1": 0, "failed=1": 1, "status=tool_error": 1, "server=local": 6,
        "server=git": 0, "since=1h": 6, "until=1h": 0, "method=prompts/get": 0, "client=REST": 6, "limit=2": 2,
        "since=2026-01-01T00:00:00Z": 6,
    }  # fmt: skip
    for query, count in chosen.items():
        assert len(await listed(hub, query=query)) == count, query
    pages: list[str] = []
    before = ""
    while True:
        page = (await hub.ask("GET", f"/v1/history?limit=4&details=1{before}", token=OPERATOR)).json
        pages += [call["arguments"]["text"] for call in page["calls"]]
        if "before" not in page:
            break
        before = f"&before={page['before']}"
    assert pages == ["5", "4", "3", "2", "1", "0"]


async def test_empty_answer_names_what_no_call_has(hub: DashboardPeer) -> None:
    await called(hub, "echo", ALICE, text="x")
    none = {kind: f'No call of {kind} "{{}}" is in the history.' for kind in ("server", "tool", "client")}
    expected = {
        "server=locla": ['There is no server "locla".', none["server"].format("locla") + ' Did you mean "local"?'],
        "server=hub": [none["server"].format("hub")],
        "tool=ecko": [none["tool"].format("ecko") + ' Did you mean "echo"?'],
        "tool=zz*&client=RSET": [none["tool"].format("zz*"), none["client"].format("RSET") + ' Did you mean "REST"?'],
        "tool=ecko&since=1h": ['No call of tool "ecko" is in this time. Did you mean "echo"?'],
        "server=" + "x" * 300: [
            f'There is no server "{"x" * 100}".', none["server"].format("x" * 100),
        ],
        "server=local&tool=ec*&client=REST&failed=1": [],
        "method=prompts/get": [], "tool=echo": [],
    }  # fmt: skip
    for query, hints in expected.items():
        await listed(hub, ALICE, query)
        page = (await hub.ask("GET", f"/v1/history?{query}", token=ALICE)).json
        assert page.get("hints", []) == hints, query
    of_bob = (await hub.ask("GET", "/v1/history?tool=ecko&client=RSET", token=BOB)).json["hints"]
    assert of_bob == [none["tool"].format("ecko"), none["client"].format("RSET")], "names of others are not given away"


async def test_calls_of_the_hub_s_own_tools_are_those_of_server_hub(hub: DashboardPeer) -> None:
    await modern_call(hub, "Editor", "find_tools", query="echo a text").ended()
    await called(hub, "echo", ALICE, text="x")
    [call] = await listed(hub, query="server=hub")
    assert (call["server"], call["tool"], call["client"]) == ("", "find_tools", "Editor")
    figures = (await hub.ask("GET", "/v1/history/figures?span=1h&server=hub", token=OPERATOR)).json
    assert [row["tool"] for row in figures["rows"]] == ["find_tools"]


async def test_wrong_parameters_are_refused(hub: DashboardPeer) -> None:
    for query in (
        "since=yesterday",
        "limit=0",
        "failed=2",
        "status=good",
        "before=x",
        f"tool={'x' * 400}",
        "until=1e99",
    ):
        assert (await hub.ask("GET", f"/v1/history?{query}", token=OPERATOR)).status == 400, query
    assert (await hub.ask("GET", "/v1/history/figures?span=1y", token=OPERATOR)).status == 400


@pytest.mark.parametrize(("mark", "client"), [
    ("mcp-hub call", "mcp-hub call"), ("mcp-hub history run", "mcp-hub history run"), ("dashboard", "dashboard"),
    ("1", "REST"), ("Claude Code", "REST"), ("mcp-hub call x y", "REST"), ("mcp-hub " + "x" * 300, "REST"),
])  # fmt: skip
async def test_commands_and_the_page_have_names_as_clients(hub: DashboardPeer, mark: str, client: str) -> None:
    for _ in range(2):
        body, sent = {"arguments": {"text": "x"}}, {"x-mcp-hub": mark}
        made = await hub.ask("POST", "/v1/tools/echo/call", body, token=ALICE, headers=sent)
        assert made.status == 200
    assert [call["client"] for call in await listed(hub, ALICE)] == [client] * 2
    assert [call["client"] for call in (await hub.get("/state"))["calls"]] == [client] * 2


async def test_call_whose_arguments_cannot_be_read_is_not_made_again(hub: DashboardPeer) -> None:
    """Nor is it made without them, which a tool may take for all that there is."""
    past.end(hub.app.journal, [past.past_call("echo", raw=b'{"text":1e999}', principal="alice", server="local")])
    [call] = await listed(hub, ALICE, "details=1")
    assert call["arguments_text"] == '{"text":1e999}' and call["run"]["code"] == "not_kept"
    refused = await hub.ask("POST", f"/v1/history/{call['id']}/run", token=ALICE, body={})
    assert (refused.status, refused.json["code"]) == (409, "not_runnable")


async def test_call_is_made_again_with_its_arguments(hub: DashboardPeer) -> None:
    await called(hub, "echo", ALICE, text="again")
    [past] = await listed(hub, ALICE)
    answer = await hub.ask("POST", f"/v1/history/{past['id']}/run", {}, token=ALICE)
    assert answer.status == 200 and answer.json["result"]["content"][0]["text"] == "again", answer.body
    assert len(await listed(hub, ALICE)) == 2


async def test_call_is_not_made_again_where_that_is_not_the_same_call(
    hub: DashboardPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    masking.learn(["hunter2-hunter2"])
    for text in ("changes later", "x" * 5000, "my hunter2-hunter2"):
        await called(hub, "echo", ALICE, text=text)
    calls = await listed(hub, ALICE)
    monkeypatch.setattr(past_calls, "fingerprint", lambda fields: Pinned("another"))
    for known in gc.get_objects():
        if isinstance(known, past_calls._ToolDefinitions):
            known._digests.clear()
    reasons = []
    for call in calls:
        answer = await hub.ask("POST", f"/v1/history/{call['id']}/run", {}, token=ALICE)
        assert (answer.status, answer.json["code"]) == (409, "not_runnable")
        reasons.append(answer.json["reason"])
    assert reasons == ["masked", "cut", "changed"]
    assert len(await listed(hub, ALICE)) == 3, "nothing was called"


@pytest.mark.parametrize(("tokens", "setting", "keeping"), [
    (False, {}, "full"), (True, {}, "none"), (True, {"history": "off"}, "off"), (False, {"history": False}, "off"),
    (True, {"history": {"arguments": "hash"}}, "hash"), (False, {"http": {"allow_public": True}}, "none"),
])  # fmt: skip
async def test_one_persons_hub_keeps_arguments_and_one_with_tokens_does_not(
    tmp_path: Path, tokens: bool, setting: dict[str, Any], keeping: str
) -> None:
    async with dashboard_hub(tmp_path, tokens=tokens, **setting) as hub:
        await called(hub, "echo", ALICE if tokens else "", text="needle")
        await hub.app.journal.flush()
        page = (await hub.ask("GET", "/v1/history?details=1", token=hub.front.operator)).json
        assert page["keeping"] == keeping
        assert ("needle" in json.dumps(page)) == (keeping == "full")
        assert len(page["calls"]) == (keeping != "off")


def modern_call(hub: DashboardPeer, client: str, tool: str, **arguments: Any) -> Response:
    """A `tools/call` of 2026-07-28 that is under way, each a request of its own."""
    body, headers = modern_request("tools/call", {"name": tool, "arguments": arguments}, client=client)
    return hub.start("POST", "/mcp", body, headers=headers)


async def test_client_of_a_call_has_the_same_name_live_and_in_the_history(hub: DashboardPeer) -> None:
    """Two clients of 2026-07-28 by turns, whose sessions end with their requests, one of 2025 that is gone, REST."""
    hub.tools.refusals = [RpcError("no such row") for _ in range(2)]
    with capture_logs():  # tracebacks are slow
        for tool in ("echo", "fail", "refuse"):
            for client in ("Editor", "Agent", "Editor", "Agent")[: 2 if tool == "refuse" else 4]:
                await modern_call(hub, client, tool, text=client).ended()
    for n in range(2):
        hasty = modern_call(hub, "Hasty", "hold", nonce=f"h{n}")
        await hub.tools.has_come(f"h{n}")
        running = (await hub.get("/state"))["live"]
        assert [call["client"] for call in running if call["name"] == "hold"] in ([], ["Hasty"])
        hasty.leave()
        await hasty.done.wait()
    await called(hub, "echo", ALICE, text="")
    sent = await hub.session("2024-11-05")
    await hub.ask("POST", "/mcp", rpc("tools/call", {"name": "fail", "arguments": {"text": ""}}, id=2), headers=sent)
    await hub.ask("DELETE", "/mcp", headers=sent)
    calls = await listed(hub), (await hub.get("/state"))["calls"]
    past, live = ({one["id"]: (one["status"], one["client"], one.get("message")) for one in each} for each in calls)
    assert past == live
    both = [("completed", 2), ("tool_error", 2), ("failed", 1)]
    assert all(message for status, _, message in past.values() if status in ("tool_error", "failed"))
    assert Counter(call[:2] for call in past.values()) == {
        **{(status, client): count for status, count in both for client in ("Editor", "Agent")},
        ("cancelled", "Hasty"): 2, ("completed", "REST"): 1, ("tool_error", "raw-client"): 1,
    }  # fmt: skip
    clients = (await hub.get("/clients"))["clients"]
    assert {one["name"]: one["calls"] for one in clients} == {"Editor": 5, "Agent": 5, "Hasty": 2, "raw-client": 1}

"""The snapshot of the dashboard, and the feed that continues behind it without a gap."""

import json
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from mcp_hub.app.dashboard.watch import _EarlierCalls
from mcp_hub.call import StreamInfo
from mcp_hub.errors import RpcError
from mcp_hub.fronts.dashboard.feed import EACH_FEEDS, MOST_FEEDS, OpenFeeds
from mcp_hub.fronts.rest.problem import Problem
from mcp_hub.masking import learn
from mcp_hub.protocol.eras import LATEST_HANDSHAKE
from mcp_hub.protocol.meta import RequestMeta
from mcp_hub.protocol.rest.overview import CallSummary
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.types import Era
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, BOB, NARROW, OPERATOR, Response, problem
from tests.upstreams.child import WAIT, until


def batches(response: Response) -> list[Any]:
    return [json.loads(event.data) for event in response.events if event.event == "batch"]


def ended(response: Response) -> list[str]:
    """The names of the tools whose calls it says have ended."""
    return [call["name"] for batch in batches(response) for call in batch.get("ended", ())]


async def test_a_snapshot_has_quick_calls_which_no_store_has(full: DashboardPeer) -> None:
    await full.call("echo", {"text": "a"}, token=None).ended()
    await full.call("fail", {"text": "why"}, token=None).ended()
    state = await full.get("/state")
    shown = [(call["name"], call["status"], call["server"], call["client"]) for call in state["calls"]]
    assert shown == [("fail", "tool_error", "local", "REST"), ("echo", "completed", "local", "REST")]
    assert [server["server"] for server in state["servers"]["servers"]] == ["local"]


async def test_a_feed_continues_behind_its_cursor_without_a_gap(full: DashboardPeer) -> None:
    await full.call("echo", {"text": "before"}, token=None).ended()
    cursor = (await full.get("/state"))["cursor"]
    await full.call("big", {"size": 1}, token=None).ended()
    feed = full.page("GET", f"/feed?after={cursor}")
    await feed.has(b'"big"')
    assert ended(feed) == ["big"], "what the snapshot has does not come again"
    last = [event.id for event in feed.events if event.id][-1]
    feed.leave()
    await full.call("fail", {"text": "x"}, token=None).ended()
    again = full.page("GET", f"/feed?after={last}")
    await again.has(b'"fail"')
    assert ended(again) == ["fail"]


async def test_a_running_call_shows_progress_and_its_ending(full: DashboardPeer) -> None:
    feed = full.page("GET", f"/feed?after={(await full.get('/state'))['cursor']}")
    await full.detached("steps", {"n": 2}, authorization="")
    await feed.has(b'"message":"step 1"')
    live = [call for batch in batches(feed) for call in batch.get("live", ())][-1]
    assert (live["progress"], live["total"], live["status"], live["stream"]) == (1, 2, "working", True)
    full.tools.go.set()
    await feed.has(b'"completed"')
    await until(lambda: not [batch["live"] for batch in batches(feed) if "live" in batch][-1])


async def test_call_that_ends_during_the_snapshot_is_fed(full: DashboardPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    summaries = _EarlierCalls.summaries

    async def late(earlier: _EarlierCalls, rows: Sequence[StreamInfo]) -> list[CallSummary]:
        await full.call("echo", {"text": "a"}, token=None).ended()
        return await summaries(earlier, rows)

    monkeypatch.setattr(_EarlierCalls, "summaries", late)
    state = await full.get("/state")
    assert not state["calls"]
    feed = full.page("GET", f"/feed?after={state['cursor']}")
    await feed.has(b'"echo"')
    assert ended(feed) == ["echo"]


async def test_a_call_that_ends_between_snapshot_and_feed_does_not_seem_to_run(full: DashboardPeer) -> None:
    await full.detached("steps", {"n": 1}, authorization="")
    await until(lambda: any(call.stream for call in full.app.registry.under_way))
    state = await full.get("/state")
    full.tools.go.set()
    await until(lambda: not full.app.registry.under_way)
    feed = full.page("GET", f"/feed?after={state['cursor']}")
    await feed.has(b"event: batch")
    first = batches(feed)[0]
    assert first["live"] == [] and [ended["id"] for ended in first["ended"]] == [state["live"][0]["id"]]


async def test_a_server_that_changes_is_news(full: DashboardPeer) -> None:
    state = await full.get("/state")
    feed = full.page("GET", f"/feed?after={state['cursor']}")
    await feed.has(b'"servers":')
    assert (await full.post("/v1/servers/local/restart", {})).status == 202
    with anyio.fail_after(WAIT):
        while len([batch for batch in batches(feed) if "servers" in batch]) < 2:
            await feed.has(b'"servers":')
            await anyio.sleep(0.05)
    assert batches(feed)[-1]["tools"] > state["tools"]


@pytest.mark.parametrize("cursor", ["other:0", "{epoch}:99"])
async def test_a_cursor_of_another_start_asks_for_a_new_snapshot(full: DashboardPeer, cursor: str) -> None:
    epoch = (await full.get("/state"))["cursor"].partition(":")[0]
    response = await full.page("GET", f"/feed?after={cursor.format(epoch=epoch)}").ended()
    assert [event.event for event in response.events] == ["reset"]


async def test_what_is_not_a_cursor_and_one_feed_too_many_are_refused(full: DashboardPeer) -> None:
    problem(await full.page("GET", "/feed?after=x").ended(), 400, "invalid_cursor")
    cursor = (await full.get("/state"))["cursor"]
    feeds = [full.page("GET", f"/feed?after={cursor}") for _ in range(MOST_FEEDS)]
    for feed in feeds:
        await feed.has(b"event: batch")
    problem(await full.page("GET", f"/feed?after={cursor}").ended(), 503, "busy")
    feeds[0].leave()
    with anyio.fail_after(WAIT):
        await feeds[0].done.wait()
    await full.page("GET", f"/feed?after={cursor}").has(b"event: batch")


async def test_no_principal_takes_the_feeds_of_others(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True) as full:
        cursor = (await full.get("/state"))["cursor"]

        async def opened(token: str) -> bool:
            feed = full.page("GET", f"/feed?after={cursor}", token=token)
            with anyio.fail_after(WAIT):
                while not (feed.status and (feed.body or feed.is_complete)):
                    await anyio.lowlevel.checkpoint()
            if feed.status == 503:
                assert problem(await feed.ended(), 503, "busy") and feed.headers["retry-after"] == "5"
            return feed.status == 200

        for token in (ALICE, NARROW):  # both are Alice's
            count = sum([await opened(token) for _ in range(2 * EACH_FEEDS)])
            assert count == (EACH_FEEDS if token == ALICE else 0)
        assert await opened(BOB) and await opened(OPERATOR) and await opened(full.front.operator)


def test_feeds_are_left_for_those_who_have_none() -> None:
    feeds, held = OpenFeeds(), ExitStack()
    with held:
        taken = 0
        for at in range(100):
            with suppress(Problem):
                held.enter_context(feeds.opened(Caller(f"crowd {at % 4}")))
                taken += 1
        assert taken == MOST_FEEDS - 8
        late = [ExitStack() for _ in range(8)]
        for at, one in enumerate(late):
            one.enter_context(feeds.opened(Caller(f"late {at}")))
        with pytest.raises(Problem):
            held.enter_context(feeds.opened(Caller("too late")))
        held.enter_context(feeds.opened(Caller("crowd 0", is_operator=True)))
        late[0].close()
        held.enter_context(feeds.opened(Caller("too late")))
        for one in late:
            one.close()


async def test_feeds_end_when_the_hub_stops(full: DashboardPeer) -> None:
    feed = full.page("GET", f"/feed?after={(await full.get('/state'))['cursor']}")
    await feed.has(b"event: batch")
    full.front.close()
    await feed.ended()


async def test_calls_that_wait_say_for_which_call_and_those_without_a_stream_are_counted(tmp_path: Path) -> None:
    limits = {"running_calls": 1, "waiting_calls": 5}
    async with dashboard_hub(tmp_path, tokens=True, is_local=False, limits=limits) as full:
        holder = await full.detached("hold", {"nonce": "1"}, authorization=f"Bearer {ALICE}")
        waiting = full.call("big", {"size": 1}, token=ALICE)
        feed = full.page("GET", f"/feed?after={(await full.get('/state'))['cursor']}")
        await feed.has(b'"waits_for"')
        live = [call for batch in batches(feed) for call in batch.get("live", ())][-1]
        assert (live["name"], live["status"], live["waits_for"]) == ("big", "waiting", "hold of REST")
        session = Session("s", Caller("alice"), Era.HANDSHAKE, LATEST_HANDSHAKE)
        params = {"name": msgspec.Raw(b'"echo"'), "arguments": msgspec.Raw(b'{"text":"x"}')}
        call = full.app.hub.call(session, "tools/call", params, RequestMeta(None, None, None, None, None, {}))
        listed = (await full.ask("GET", "/v1/streams", token=ALICE)).json
        assert [(row["stream"], row.get("waits_for")) for row in listed["streams"][1:]] == [(holder, None)]
        assert listed["streams"][0]["waits_for"] == "hold of REST" and "waits_since" in listed["streams"][0]
        assert (listed["unstored"], listed["waiting"]) == (1, 1)
        assert (await full.ask("GET", "/v1/streams", token=BOB)).json == {"streams": []}, "nothing of somebody else"
        full.tools.go.set()
        assert (await waiting.ended()).status == 200
        call.record.cancel()
        assert "unstored" not in (await full.ask("GET", "/v1/streams", token=ALICE)).json


def shown(call: dict[str, Any]) -> tuple[str, str, str]:
    return call["status"], call.get("message", ""), call.get("client", "")


async def test_stored_call_is_shown_as_it_was_while_its_hub_ran(tmp_path: Path) -> None:
    """Calls that last said "part 1", and of which only the store of a hub that has ended still knows."""
    learn(["hunter24"])
    async with dashboard_hub(tmp_path, store={}) as full:
        failed, cancelled, completed = [await full.detached("steps", {"n": 1}) for _ in range(3)]
        with anyio.fail_after(WAIT):
            for id_ in (failed, cancelled, completed):
                while (await full.ask("GET", f"/v1/streams/{id_}")).json.get("message") != "part 1":
                    await anyio.lowlevel.checkpoint()
        assert (await full.ask("DELETE", f"/v1/streams/{cancelled}")).status == 202
        await full.until(cancelled, "cancelled")
        full.tools.refusals = [RpcError(f"no such row: hunter24 {'x' * 300}")]
        full.tools.go.set()
        await full.until(failed, "failed", "completed")
        await full.until(completed, "completed", "failed")
        before = {call["id"]: shown(call) for call in (await full.get("/state"))["calls"]}
    async with dashboard_hub(tmp_path, store={}) as full:
        for _ in range(2):
            calls = (await full.get("/state"))["calls"]
            assert {call["id"]: shown(call) for call in calls} == before
    assert sorted(status for status, _, client in before.values() if client) == ["cancelled", "completed", "failed"]
    (reason,) = [message for status, message, _ in before.values() if status == "failed"]
    assert reason.startswith("no such row: *** xxx") and len(reason) <= 201

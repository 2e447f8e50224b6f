"""Streams over REST: following in every form from any place, what is refused, answers, cancelling, whose they are."""

import asyncio
import json
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from msgspec import Raw

from mcp_hub.call import StreamInfo
from mcp_hub.calls.plan import StreamLimits
from mcp_hub.calls.reading import stream
from mcp_hub.calls.streams.port import StreamPort
from mcp_hub.errors import StoreError
from mcp_hub.fronts import following
from mcp_hub.fronts.mcp.tasks import task_of
from mcp_hub.fronts.rest import streams
from mcp_hub.fronts.rest.streams import status_of
from mcp_hub.protocol.meta import take_meta
from mcp_hub.protocol.shape.tasks import created
from mcp_hub.sessions.session import Caller, Session
from mcp_hub.stores.base import damage
from mcp_hub.types import CallId, Era
from tests.unit.fronts.rest_peer import ALICE, SSE, Response, RestPeer, problem, rest_hub
from tests.upstreams.child import WAIT

NDJSON = {"accept": "application/x-ndjson"}
UNKNOWN = "st_" + "0" * 26


async def finished(peer: RestPeer, n: int = 3) -> tuple[str, list[bytes]]:
    """A stream that has ended, and its lines."""
    peer.tools.go.set()
    response = await peer.call("steps", {"n": n}, headers=SSE).ended()
    return json.loads(response.lines[0])["stream"], response.lines


@pytest.mark.parametrize("expires", [253_402_300_799.9999, 1e12, 1e300])
def test_stream_that_is_kept_beyond_the_year_9999_names_the_last_moment_that_has_a_date(expires: float) -> None:
    row = StreamInfo(
        CallId(UNKNOWN), "me", "hub", "git", "tools/call", "push", 1.0, 2.0, last=2, status="completed", expires=expires
    )  # fmt: skip
    assert damage(row) == "", "a shared store may hold such a record"
    assert status_of(row).expires == "9999-12-31T23:59:59.000Z"
    task = msgspec.json.decode(created(task_of(msgspec.structs.replace(row, ttl=expires))))
    assert task["ttlMs"] <= 2**53 - 1 and task["status"] == "completed"


async def test_every_form_has_the_exact_suffix_from_any_place(peer: RestPeer) -> None:
    id_, lines = await finished(peer)
    for after in range(len(lines) + 1):
        url = f"/v1/streams/{id_}/events?after={after}"
        page, again = await peer.ask("GET", url), await peer.ask("GET", url)
        expected = b'{"events":[%b],"cursor":%d,"closed":true,"durable":false}' % (b",".join(lines[after:]), len(lines))
        assert page.body == again.body == expected
        ndjson = await peer.ask("GET", url, headers=NDJSON)
        assert ndjson.body == b"".join(line + b"\n" for line in lines[after:])
        sse = await peer.ask("GET", f"/v1/streams/{id_}/events", headers={**SSE, "last-event-id": str(after)})
        assert sse.lines == lines[after:] and sse.events[-1].event == "closed"
        assert [event.id for event in sse.events[:-1]] == [str(seq) for seq in range(after + 1, len(lines) + 1)]
    both = await peer.ask("GET", f"/v1/streams/{id_}/events?after=0", headers={"last-event-id": "4"})
    assert both.body.startswith(b'{"events":[' + lines[4]), "the header goes before the query"


@pytest.mark.parametrize("survives", [True, False])
async def test_stream_in_memory_only_says_so(peer: RestPeer, monkeypatch: pytest.MonkeyPatch, survives: bool) -> None:
    id_, _ = await finished(peer)
    monkeypatch.setattr(peer.app.streams.store.log, "survives", lambda stream: survives)
    bodies = [(await peer.ask("GET", f"/v1/streams/{id_}{more}")).json for more in ("", "/events")]
    bodies += (await peer.ask("GET", "/v1/streams")).json["streams"]
    assert [body.get("durable") for body in bodies] == [None if survives else False] * 3


async def test_client_that_takes_several_forms_gets_the_one_that_says_most(peer: RestPeer) -> None:
    id_, _ = await finished(peer)
    for accept, media in [
        ("application/json, text/event-stream, application/x-ndjson", "text/event-stream"),
        ("application/x-ndjson, */*", "application/x-ndjson"),
        ("application/json;q=0, */*", "application/x-ndjson"),
        ("*/*", "application/json"),
        *((accept, None) for accept in ("text/html", "application/json;q=0", "")),
    ]:
        response = await peer.ask("GET", f"/v1/streams/{id_}/events", headers={"accept": accept})
        if media is None:
            problem(response, 406, "not_acceptable")
        else:
            assert (response.status, response.headers["content-type"]) == (200, media)
    both = {"accept": "application/json", "Accept": "application/x-ndjson"}
    response = await peer.ask("GET", f"/v1/streams/{id_}/events", headers=both)
    assert response.headers["content-type"] == "application/x-ndjson", "several lines of a header are one list"


@pytest.mark.parametrize("limit", [1, 3, 9])
async def test_page_has_at_most_what_was_asked_for(peer: RestPeer, limit: int) -> None:
    id_, lines = await finished(peer, 20)
    seen: list[Any] = []
    cursor, closed = 0, False
    while not closed:
        page = (await peer.ask("GET", f"/v1/streams/{id_}/events?after={cursor}&limit={limit}")).json
        assert 1 <= len(page["events"]) <= limit
        seen += page["events"]
        cursor, closed = page["cursor"], page["closed"]
    assert seen == [json.loads(line) for line in lines] and cursor == len(lines)


async def test_page_has_no_more_bytes_than_an_answer_can_have(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_PAGE_BYTES", 10_000)
    response = await peer.call("flood", {"n": 60}, headers=SSE).ended()
    url = f"/v1/streams/{json.loads(response.lines[0])['stream']}/events"
    page = (await peer.ask("GET", url)).json
    assert 1 < len(page["events"]) < len(response.lines) and not page["closed"]


async def test_long_poll_waits_for_the_next_event_but_no_longer_than_it_may(peer: RestPeer) -> None:
    id_ = await peer.detached("steps", {"n": 2})
    url = f"/v1/streams/{id_}/events"
    while (seen := (await peer.ask("GET", f"{url}?wait=0")).json)["cursor"] < 3:
        await anyio.lowlevel.checkpoint()
    at_once = (await peer.ask("GET", f"{url}?after=3&wait=0")).json
    assert at_once == {"events": [], "cursor": 3, "closed": False, "durable": False} and not seen["closed"]
    polling = peer.start("GET", f"{url}?after=3")
    await anyio.wait_all_tasks_blocked()
    assert not polling.status
    peer.tools.go.set()
    assert [event["seq"] for event in (await polling.ended()).json["events"]][0] == 4


@pytest.mark.slow
async def test_stream_of_a_client_of_another_front_is_not_ended_by_who_looks_at_it(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, per_tool={"hold": {"orphan": 0.01}}) as peer:
        session = Session("se_1", Caller("alice"), Era.HANDSHAKE, "2025-11-25")
        params = {"name": Raw(b'"hold"'), "arguments": Raw(b'{"nonce":"a"}')}
        call = peer.app.hub.call(session, "tools/call", params, take_meta({}))
        record = call.record
        writer = peer.app.streams.begin(record)
        await peer.tools.has_come("a")
        assert (await peer.ask("GET", f"/v1/streams/{record.call.id}")).json["status"] == "working"
        follower = peer.start("GET", f"/v1/streams/{record.call.id}/events", headers=SSE)
        await follower.has(b"event: start")
        follower.leave()
        await follower.done.wait()
        assert writer.absence.until is None
        call.leave()
        again = await peer.ask("GET", f"/v1/streams/{record.call.id}/events?wait=0")
        assert again.status == 200 and writer.absence.until is not None
        with anyio.fail_after(WAIT):
            while peer.app.streams.owned(record.call.id) is not None:  # who asked would be somebody who has come back
                await anyio.lowlevel.checkpoint()
        assert (await peer.until(record.call.id, "cancelled"))["reason"] == "its client did not come back"


async def test_follower_that_takes_nothing_is_disconnected(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.fronts.http.response._STALLED", 0.01)
    id_ = await peer.detached("steps", {"n": 2})
    response = peer.start("GET", f"/v1/streams/{id_}/events", headers=SSE)
    response.stall()
    await response.ended()
    assert response.status == 200 and not response.is_complete
    writer = peer.app.streams.owned(CallId(id_))
    assert writer is not None and writer.stream.readers == ()


async def test_leading_zeros_of_a_cursor_and_other_names_in_the_query_are_nothing(peer: RestPeer) -> None:
    id_, lines = await finished(peer)
    url, zeros = f"/v1/streams/{id_}/events", "0" * 5000 + "4"  # more digits than Python reads
    pages = [await peer.ask("GET", url, headers={"last-event-id": zeros})]
    pages += [await peer.ask("GET", f"{url}?{query}") for query in (f"after={zeros}", "after=4&x=1&x=2&Limit=x")]
    assert [page.body.startswith(b'{"events":[' + lines[4]) for page in pages] == [True] * 3


# -- what is refused


async def test_cursor_or_parameter_that_cannot_be_read_is_refused(peer: RestPeer) -> None:
    id_, lines = await finished(peer)
    url = f"/v1/streams/{id_}/events"
    for cursor in ("-1", "x", "1.5", "", "9" * 19, "0x1", "st_1:2", "%D9%A3"):
        problem(await peer.ask("GET", f"{url}?after={cursor}"), 400, "invalid_cursor")
        if "%" not in cursor:
            problem(await peer.ask("GET", url, headers={"last-event-id": cursor}), 400, "invalid_cursor")
    for parameter in ("wait=x", "wait=-1", "wait=", "limit=0", "limit=-1", "limit=x", "limit=1.5", "limit=1&limit=2"):
        for headers in ({}, NDJSON, SSE):
            problem(await peer.ask("GET", f"{url}?{parameter}", headers=headers), 400, "invalid_parameter")
    for parameter in ("wait=0.000001", "wait=1000000000000", "limit=1000000000000"):
        page = await peer.ask("GET", f"{url}?{parameter}")
        assert page.status == 200 and len(page.json["events"]) == len(lines), parameter


async def test_cursor_beyond_the_end_is_refused_and_one_at_the_end_closes_at_once(peer: RestPeer) -> None:
    id_, lines = await finished(peer)
    beyond = await peer.ask("GET", f"/v1/streams/{id_}/events?after={len(lines) + 1}", headers=SSE)
    assert problem(beyond, 400, "invalid_cursor")["last"] == len(lines)
    at_end = await peer.ask("GET", f"/v1/streams/{id_}/events?after={len(lines)}", headers=SSE)
    assert [event.event for event in at_end.events] == ["closed"]
    polled = await peer.ask("GET", f"/v1/streams/{id_}/events?after={len(lines)}")
    assert polled.json == {"events": [], "cursor": len(lines), "closed": True, "durable": False}


async def test_trimmed_events_are_gone(tmp_path: Path) -> None:
    async with rest_hub(tmp_path, limits={"stream_events": 5}) as peer:
        peer.tools.go.set()
        response = await peer.call("steps", {"n": 20}, headers={"idempotency-key": "k"}).ended()
        id_ = response.json["stream"]
        first = (await peer.ask("GET", f"/v1/streams/{id_}")).json["first"]
        assert first > 1
        gone = problem(await peer.ask("GET", f"/v1/streams/{id_}/events?after=0"), 410, "events_gone")
        assert gone["earliest"] == first
        kept = (await peer.ask("GET", f"/v1/streams/{id_}/events?after={first - 1}")).json
        assert kept["closed"] and kept["events"][0]["seq"] == first
        again = await peer.call("steps", {"n": 20}, headers={"idempotency-key": "k", **SSE}).ended()
        assert json.loads(again.lines[0])["seq"] == first


async def test_more_followers_than_may_be_are_refused(tmp_path: Path) -> None:
    async with rest_hub(tmp_path) as peer:
        peer.app.streams.limits = StreamLimits(followers=1)
        id_ = await peer.detached("hold", {"nonce": "a"})
        first = peer.start("GET", f"/v1/streams/{id_}/events", headers=SSE)
        await first.has(b"event: start")
        refused = await peer.ask("GET", f"/v1/streams/{id_}/events", headers=SSE)
        problem(refused, 503, "busy")
        first.leave()
        await first.done.wait()
        assert (await peer.ask("GET", f"/v1/streams/{id_}/events?wait=0")).status == 200


async def test_store_that_cannot_be_read_is_a_problem(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_KEPT_EVENTS", 0)
    monkeypatch.setattr(stream, "_TAIL_EVENTS", 0)
    id_, _ = await finished(peer)

    def fetch(stream: str, after: int, most: int, done: Any) -> None:
        done(StoreError("the disk is gone"))

    monkeypatch.setattr(peer.app.streams.store.log, "fetch", fetch)
    sse = await peer.ask("GET", f"/v1/streams/{id_}/events", headers=SSE)
    (event,) = sse.events
    assert event.event == "problem" and event.message["code"] == "store_unavailable"
    problem(await peer.ask("GET", f"/v1/streams/{id_}/events"), 503, "store_unavailable")
    ndjson = await peer.ask("GET", f"/v1/streams/{id_}/events", headers=NDJSON)
    assert (ndjson.status, ndjson.body) == (200, b"")


# -- cancelling


async def test_cancelling_ends_the_call_and_again_does_nothing(peer: RestPeer) -> None:
    id_ = await peer.detached("hold", {"nonce": "a"})
    await peer.tools.has_come("a")
    assert (await peer.ask("DELETE", f"/v1/streams/{id_}")).status == 202
    known = await peer.until(id_, "cancelled")
    assert known["reason"] == "cancelled on request" and peer.tools.cancelled == ["a"]
    again = await peer.ask("DELETE", f"/v1/streams/{id_}")
    assert (again.status, again.json["status"]) == (200, "cancelled")


async def test_hub_that_stops_ends_followers_of_running_calls(peer: RestPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_LAST_EVENTS", 0.01)
    id_ = await peer.detached("hold", {"nonce": "a"})
    following = peer.start("GET", f"/v1/streams/{id_}/events", headers=SSE)
    await following.has(b"event: start")
    polling = peer.start("GET", f"/v1/streams/{id_}/events?after=1")
    await anyio.wait_all_tasks_blocked()
    peer.rest.close()
    assert (await following.ended()).is_complete and [event.event for event in following.events] == ["start"]
    problem(await polling.ended(), 503, "hub_stopped")


@pytest.mark.parametrize("accept", ["text/event-stream", "application/json", "text/event-stream, application/json"])
async def test_who_begins_a_call_can_follow_it_where_one_follower_is_all(tmp_path: Path, accept: str) -> None:
    async with rest_hub(tmp_path) as peer:
        peer.app.streams.limits = StreamLimits(followers=1)
        headers = {"idempotency-key": "k", "accept": accept}
        first = peer.call("hold", {"nonce": "a"}, headers=headers)
        await peer.tools.has_come("a")
        problem(await peer.call("hold", {"nonce": "a"}, headers=headers).ended(), 503, "busy")
        peer.tools.go.set()
        assert (await first.ended()).status == 200 and b'"completed"' in first.body
        assert (await peer.call("hold", {"nonce": "a"}, headers=headers).ended()).status == 200
        assert peer.tools.held == ["a"] and not peer.tools.cancelled


@pytest.mark.parametrize(("key", "status"), [("k", 503), (None, 502)])
async def test_request_that_waits_for_the_store_when_the_hub_stops_is_told_so(
    peer: RestPeer, monkeypatch: pytest.MonkeyPatch, key: str | None, status: int
) -> None:
    monkeypatch.setattr(streams, "_LAST_EVENTS", 0)
    response, waits = Response(b'{"arguments":{"nonce":"a"}}'), anyio.Event()

    async def never(*given: object) -> None:
        waits.set()
        await anyio.sleep_forever()

    monkeypatch.setattr(StreamPort, "begin", never)
    headers = {"host": "localhost", "content-type": "application/json", "authorization": f"Bearer {ALICE}"}
    headers |= {} if key is None else {"idempotency-key": key}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    request = asyncio.create_task(response.run(peer._endpoints, "POST", "/v1/tools/hold/call", pairs))
    await waits.wait()
    peer.rest.close()
    await anyio.sleep(0.01)
    request.cancel("timeout graceful shutdown exceeded")
    await request
    said = problem(response, status, "hub_stopped")
    assert said.get("outcome") == (None if key else "unknown")

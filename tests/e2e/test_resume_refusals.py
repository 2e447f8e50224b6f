"""What reading on is refused on every front, whose a stream is, and calls that are steered from another hub."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.e2e.bad_input import ALICE, BOB, TOKENS
from tests.e2e.client import HttpClient
from tests.e2e.rest_client import RestClient
from tests.e2e.three_hubs import STREAMS, Fleet, config, ending, fleet, ndjson, said, whole
from tests.e2e.ways_to_read import check_rest, every_way, read_page
from tests.e2e.ways_to_start import TAKES
from tests.fork_server import forked_command
from tests.unit.cli.command import SECONDS
from tests.upstreams.child import WAIT
from tests.upstreams.launch import entry
from tests.upstreams.messages import Message, modern

pytestmark = pytest.mark.anyio

UNKNOWN = "st_" + "0" * 26
INVALID = -32602
ANSWER: Message = {"action": "accept", "content": {"name": "Ada"}}


@pytest.fixture(scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path_factory.mktemp("refusals"), config({"fixture": entry(era="modern")})) as running:
        yield running


@pytest.fixture
async def a(hubs: Fleet) -> AsyncIterator[RestClient]:
    async with RestClient(hubs.a) as client:
        yield client


@pytest.fixture
async def b(hubs: Fleet) -> AsyncIterator[RestClient]:
    async with RestClient(hubs.b) as client:
        yield client


@pytest.fixture
async def done(a: RestClient) -> tuple[str, int]:
    """A stream that has ended, and the number of its last event."""
    id_ = await a.started("job", {"nonce": "done", "steps": 20, "hold": 0})
    return id_, (await a.until(id_, "completed"))["last"]


async def resume(hubs: Fleet, *args: str, token: str | None = None) -> tuple[int, str, str]:
    env = hubs.env if token is None else {**hubs.env, "MCP_HUB_TOKEN": token}
    with anyio.fail_after(SECONDS):
        done = await anyio.run_process([*forked_command(), "resume", *args], check=False, env=env)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


async def test_cursor_at_the_end_closes_at_once(hubs: Fleet, b: RestClient, done: tuple[str, int]) -> None:
    """Otherwise each would be waited for longer than a test waits."""
    id_, last = done
    url = f"/streams/{id_}/events?after={last}&wait=60"
    with anyio.fail_after(WAIT):
        async with b.events(url) as stream:
            (closed,) = (await stream.rest()).events
        assert (closed.event, json.loads(closed.data)) == ("closed", {"cursor": last, "status": "completed"})
        assert await ndjson(hubs.b, id_, last) == []
        page = await b.ask("GET", url)
        assert page.json() == {"events": [], "cursor": last, "closed": True}
        params = {"stream": id_, "cursor": str(last), "waitMs": 60_000}
        async with HttpClient(hubs.b.url) as client:
            for wire in (hubs.c, client):
                read = (await read_page(wire, params))["result"]
                del read["resultType"]
                assert read == {"events": [], "cursor": str(last), "truncated": False, "closed": True}
        code, out, said = await resume(hubs, id_, "--after", str(last))
        assert (code, out) == (0, "") and said == f"{id_} has ended; event {last} is its last\n"


async def test_two_followers_from_one_place_get_identical_bytes(hubs: Fleet, a: RestClient) -> None:
    job = hubs.job("twins", hold=50)
    id_ = await a.started("job", job.arguments)
    await ndjson(hubs.a, id_, 0, 10)
    found: list[bytes] = []

    async def follow(base: str, accept: str) -> None:
        async with httpx2.AsyncClient(timeout=WAIT, trust_env=False, verify=False) as http:
            url = f"{base.removesuffix('/mcp')}/v1/streams/{id_}/events?after=5"
            found.append((await http.get(url, headers={"accept": accept})).content)

    for accept in ("text/event-stream", "application/x-ndjson"):
        async with anyio.create_task_group() as tasks:
            for hub in (hubs.a, hubs.a, hubs.b, hubs.b):
                tasks.start_soon(follow, hub.url, accept)
            job.go()
        assert len(found) == 4 and len(set(found)) == 1
        found.clear()


@pytest.mark.parametrize("cursor", ["x", "-1", "1.5", "", "+1", "1e3", "0x1", "٣", "9" * 19, "1 2"])
async def test_malformed_cursor_is_refused(hubs: Fleet, b: RestClient, done: tuple[str, int], cursor: str) -> None:
    for url, headers in ((f"/streams/{done[0]}/events", {}), (f"/streams/{done[0]}/events", {"after": "1"})):
        if headers and not cursor.isascii():
            continue  # no header can carry it
        more = {"last_event_id": cursor} if headers else {}
        path = f"{url}?{httpx2.QueryParams({'after': '1' if headers else cursor})}"
        refused = await b.ask("GET", path, **more)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor"), refused.text
    async with HttpClient(hubs.b.url) as client:
        for wire in (hubs.c, client):
            answer = await read_page(wire, {"stream": done[0], "cursor": cursor})
            assert answer["error"]["code"] == INVALID, answer


async def test_cursor_beyond_the_end_is_refused(hubs: Fleet, b: RestClient, done: tuple[str, int]) -> None:
    id_, last = done
    for accept in ("application/json", "text/event-stream", "application/x-ndjson"):
        refused = await b.ask("GET", f"/streams/{id_}/events?after={last + 1}", accept=accept)
        assert (refused.status_code, refused.json()["code"]) == (400, "invalid_cursor")
        assert refused.json()["last"] == last
    async with HttpClient(hubs.b.url) as client:
        for wire in (hubs.c, client):
            answer = await read_page(wire, {"stream": id_, "cursor": str(last + 1)})
            assert answer["error"]["code"] == INVALID
    code, out, said = await resume(hubs, id_, "--after", str(last + 1))
    assert (code, out) == (2, "") and said.endswith(" [invalid_cursor]\n")


async def test_place_in_a_session_s_stream_is_checked(hubs: Fleet) -> None:
    async with HttpClient(hubs.a.url) as client:
        await client.initialize()
        arguments = {"nonce": "session", "steps": 20, "hold": 0}
        params = {"name": "job", "arguments": arguments, "_meta": {"progressToken": "t"}}
        id_, _, last = str((await client.request("tools/call", params)).events[-1].id).partition(":")
        told = set()
        for place in (f"{id_}:{int(last) + 1}", f"{id_}:x", f"{id_}:-1", id_, f"{UNKNOWN}:1", "nonsense"):
            async with client.listen(place) as stream:
                refused = await stream.rest()
            assert refused.status == 400 and "id" not in refused.last and "error" in refused.last, place
            told.add(refused.text)
        assert len(told) == 1
        async with client.listen(f"{id_}:{last}") as stream:
            assert (await stream.rest()).status == 204


async def test_what_was_let_go_is_gone_everywhere(tmp_path: Path) -> None:
    text = config(limits={"stream_events": 100})
    async with fleet(tmp_path, text) as hubs, RestClient(hubs.a) as a, RestClient(hubs.b) as b:
        async with HttpClient(hubs.a.url) as client:
            await client.initialize()
            arguments = hubs.job("trimmed").arguments
            params = {"name": "job", "arguments": arguments, "_meta": {"progressToken": "t"}}
            id_ = str((await client.request("tools/call", params)).events[0].id).partition(":")[0]
            async with client.listen(f"{id_}:1") as stream:
                refused = await stream.rest()
            assert refused.status == 410 and "id" not in refused.last and "error" in refused.last
        for rest in (a, b):
            first = (await rest.ask("GET", f"/streams/{id_}")).json()["first"]
            assert first > 1
            for accept in ("application/json", "text/event-stream", "application/x-ndjson"):
                gone = await rest.ask("GET", f"/streams/{id_}/events?after=1", accept=accept)
                assert (gone.status_code, gone.json()["code"]) == (410, "events_gone")
                assert gone.json()["earliest"] == first
        kept = await ndjson(hubs.b, id_, first - 1)
        assert [json.loads(line)["seq"] for line in kept] == list(range(first, first + len(kept)))
        read = (await read_page(hubs.c, {"stream": id_, "cursor": "1"}))["result"]
        assert read["truncated"] and read["events"] == [json.loads(line) for line in kept] and read["closed"]
        code, _, said = await resume(hubs, id_, "--after", "1")
        assert code == 2 and str(first) in said


# -- whose a stream is


async def test_stream_of_another_principal_is_as_unknown_as_one_that_never_was(tmp_path: Path) -> None:
    text = config(tokens=TOKENS)
    async with fleet(tmp_path, text) as hubs, RestClient(hubs.a, ALICE) as alice, RestClient(hubs.b, BOB) as bob:
        job = hubs.job("foreign", hold=5)
        id_ = await alice.started("job", job.arguments)
        requests: list[tuple[str, str, Any]] = [
            ("GET", "", None),
            ("DELETE", "", None),
            ("GET", "/events?after=1", None),
            ("GET", "/events?after=999", None),
            ("POST", "/input", {"key": "q1", "action": "accept"}),
        ]
        for method, rest, body in requests:
            foreign, never = [await bob.ask(method, f"/streams/{each}{rest}", body) for each in (id_, UNKNOWN)]
            assert (foreign.status_code, foreign.content) == (404, never.content)
        async with HttpClient(hubs.b.url, BOB) as thief:
            for method in ("tasks/get", "tasks/update", "tasks/cancel", f"{STREAMS}.read"):
                told = []
                for each in (id_, UNKNOWN):
                    params = {"taskId": each, "inputResponses": {}, "stream": each, "cursor": "1"}
                    answer = await thief.request(method, modern(params, capabilities=TAKES), id=1)
                    told.append((answer.status, answer.text))
                    on_stdio = await hubs.c.request(method, modern(params, capabilities=TAKES))
                    assert on_stdio["error"] == answer.last["error"]
                assert told[0] == told[1] and answer.last["error"]["code"] == INVALID
            await thief.initialize()
            refusals = []
            for each in (id_, UNKNOWN):
                async with thief.listen(f"{each}:1") as stream:
                    refusals.append(((await stream.rest()).status, stream.text))
            assert refusals[0] == refusals[1] and refusals[0][0] == 400
        code, out, told_ = await resume(hubs, id_, token=BOB)
        assert (code, out) == (2, "") and told_.startswith(f"{id_}: ") and told_.endswith(" [unknown_stream]\n")
        assert (await alice.ask("GET", f"/streams/{id_}")).json()["status"] == "working"
        job.go()
        assert (await alice.until(id_, "completed", "failed", "cancelled"))["status"] == "completed"


# -- another hub than the one that runs the call


@pytest.mark.parametrize("by", ["REST", "task over HTTP", "task over stdio", "command"])
async def test_call_is_cancelled_from_another_hub(hubs: Fleet, a: RestClient, b: RestClient, by: str) -> None:
    id_ = await a.started("job", hubs.job(f"cancel {by}", hold=5).arguments)
    params = modern({"taskId": id_}, capabilities=TAKES)
    match by:
        case "REST":
            assert (await b.ask("DELETE", f"/streams/{id_}")).status_code == 202
        case "task over HTTP":
            async with HttpClient(hubs.b.url) as client:
                assert "result" in (await client.request("tasks/cancel", params)).last
        case "task over stdio":
            assert "result" in await hubs.c.request("tasks/cancel", params)
        case "command":
            with anyio.fail_after(SECONDS):
                await anyio.run_process([*forked_command(), "cancel", id_], env=hubs.env)
    assert ending(await whole(hubs.b, id_))["outcome"] == "cancelled"
    assert (await a.ask("GET", f"/streams/{id_}")).json()["status"] == "cancelled"
    assert (await b.ask("DELETE", f"/streams/{id_}")).status_code == 200


@pytest.mark.parametrize("by", ["REST", "task over HTTP", "task over stdio"])
@pytest.mark.first(1)
async def test_question_is_answered_from_another_hub(hubs: Fleet, a: RestClient, b: RestClient, by: str) -> None:
    id_ = await a.started("ask_form", {"nonce": f"asks {by}"})
    (question,) = (await b.until(id_, "input_required"))["questions"]
    params = modern({"taskId": id_, "inputResponses": {question["key"]: ANSWER}}, capabilities=TAKES)
    match by:
        case "REST":
            told = await b.ask("POST", f"/streams/{id_}/input", {"key": question["key"], **ANSWER})
            assert told.status_code == 202
        case "task over HTTP":
            async with HttpClient(hubs.b.url) as client:
                assert "result" in (await client.request("tasks/update", params)).last
        case "task over stdio":
            assert "result" in await hubs.c.request("tasks/update", params)
    result = (await b.until(id_, "completed", "failed", "cancelled"))["result"]
    assert result["structuredContent"]["answers"]["form"]["result"] == ANSWER
    stored = await whole(hubs.b, id_)
    kinds = [json.loads(line)["type"] for line in stored]
    assert [kind for kind in kinds if kind.startswith("input")] == ["input-required", "input-received"]
    async with every_way(hubs) as ways:
        for way in ways:
            check_rest(await way.read(id_, 1, None), stored, 1, way.shows)


# -- programs that execute tools


class Worker:
    """A worker of hub A that has fetched one call."""

    def __init__(self, client: RestClient, call: str) -> None:
        self.client = client
        self.call = call

    async def post(self, seq: Any, epoch: Any = 1, **body: Any) -> tuple[int, Any]:
        """Status, and the code of the problem or whatever else the answer says."""
        sent = {"tool_call_id": self.call, **body}
        headers = {"producer_epoch": str(epoch), "producer_seq": str(seq)}
        answer = await self.client.ask("POST", "/tool-results/stream", sent, **headers)
        told = answer.json() if answer.content else None
        return answer.status_code, told.get("code", told) if isinstance(told, dict) else told


async def test_bad_posts_are_refused_and_what_was_taken_stays(hubs: Fleet, a: RestClient) -> None:
    tool = {"name": "shout", "inputSchema": {"type": "object"}}
    assert (await a.ask("PUT", "/executors/w", {"tools": [tool], "lease": "60s"})).json() == {"epoch": 1}
    id_ = await a.started("shout", {"text": "x"})
    lost = await a.started("shout", {"text": "y"})
    offers = (await a.ask("GET", "/executors/w/calls?epoch=1")).json()["offers"]
    worker, other = [Worker(a, offer["tool_call_id"]) for offer in offers]
    taken: list[str] = []

    async def take(seq: int, text: str, **more: Any) -> None:
        status, told = await worker.post(seq, content=text, **more)
        assert status == 200 and told["credit"] >= 0
        taken.append(text)

    async def refuse(status: int, code: str | None, seq: Any, epoch: Any = 1, **body: Any) -> None:
        assert await worker.post(seq, epoch, **body) == (status, code)

    await take(1, "one ")
    await refuse(409, "gap", 3, content="three ")
    await refuse(204, None, 1, content="one again ")
    await refuse(403, "stale_epoch", 2, 0, content="stale ")
    await refuse(403, "stale_epoch", 2, 2, content="of the future ")
    await refuse(413, "too_large", 2, content="x" * (256 * 1024 + 1))
    await refuse(413, "body_too_large", 2, content="x" * (1 << 20))
    await refuse(400, "malformed", 2, events=[{"type": "end", "data": {}}])
    await refuse(400, "malformed", 2, events=[{"type": "delta", "data": {"content": []}}, {"type": "what", "data": {}}])
    await refuse(400, "malformed", 0, content="none ")
    await refuse(400, "invalid_header", "x", content="none ")
    await refuse(400, "invalid_header", 2, "-1", content="none ")
    await refuse(400, "invalid_body", 2, content=5)
    assert await Worker(a, UNKNOWN).post(1, content="x") == (404, "unknown_executor_or_call")
    await take(2, "two ")
    await take(3, "three", complete=True)
    await refuse(410, "call_ended", 4, content="after the end")
    await refuse(204, None, 3, content="three", complete=True)
    stored = await whole(hubs.b, id_)
    assert ending(stored)["result"]["content"] == [{"type": "text", "text": "".join(taken)}]
    assert said(stored) == "one two three"
    assert (await other.post(1, content="taken"))[0] == 200
    again = await a.ask("PUT", "/executors/w", {"tools": [tool], "lease": "60s"})
    assert again.json() == {"epoch": 2}
    assert await other.post(2, content="of the worker before ") == (403, "stale_epoch")
    stored = await whole(hubs.b, lost)
    assert (said(stored), ending(stored)["code"]) == ("taken", "executor_lost")
    assert await other.post(2, 2, content="late") == (410, "call_ended")
    assert (await a.ask("DELETE", "/executors/w")).status_code == 204

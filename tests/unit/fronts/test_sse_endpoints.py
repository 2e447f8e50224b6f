"""The old SSE transport without a network: the test decides when its client reads, and when it is gone."""

import json
from collections.abc import AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from mcp_hub.app.build import App
from mcp_hub.clock import SystemClock
from mcp_hub.fronts import legacy_sse
from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.legacy_sse import LegacySse
from mcp_hub.sessions.session import Caller
from tests.e2e.client import SseEvent, SseParser
from tests.unit.fronts.local_hub import Tools, hello
from tests.unit.fronts.rest_peer import Response, exchange, http_scope
from tests.upstreams.child import until
from tests.upstreams.messages import modern, rpc

Message = dict[str, Any]
AsgiEvent = MutableMapping[str, Any]

LIMIT = 10_000
MiB = 1 << 20


class Site:
    """A hub's endpoints as an ASGI application."""

    def __init__(self, app: App, **limits: Any) -> None:
        self.legacy = LegacySse(app.hub, app.binding, **{"max_body": LIMIT, "max_sessions": 10, **limits})
        tokens = {"alice": Caller("alice"), "bob": Caller("bob")}
        admission = Admission(SystemClock(), requests=10_000)
        self.endpoints = Endpoints(HttpAuth(tokens), self.legacy.routes, admission=admission)

    async def request(
        self, method: str, target: str, body: bytes = b"", *, token: str = "alice", **headers: str
    ) -> Response:
        return await exchange(self.endpoints, target, head(token, headers), method, body)

    async def post(self, target: str, message: Any, token: str = "alice") -> tuple[int, Message]:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        response = await self.request("POST", target, body, token=token, content_type="application/json")
        return response.status, json.loads(response.body or b"{}")

    @asynccontextmanager
    async def stream(self, token: str = "alice") -> AsyncIterator["Reader"]:
        """A client that has its endpoint; it is gone when the block ends."""
        async with anyio.create_task_group() as tasks:
            reader = Reader(self, token)
            tasks.start_soon(reader.run)
            await until(lambda: reader.events)
            yield reader
            reader.gone.set()

    @asynccontextmanager
    async def session(self, token: str = "alice") -> AsyncIterator["Reader"]:
        """A client that has shaken hands."""
        async with self.stream(token) as reader:
            await reader.ask(0, "initialize", hello())
            yield reader


def head(token: str, headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    named = {"host": "localhost", "authorization": f"Bearer {token}", **headers}
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]


class Reader:
    """One stream. `takes` says whether what is sent is read; `writes` has each piece as it was sent."""

    def __init__(self, site: Site, token: str) -> None:
        self.site = site
        self.token = token
        self.gone = anyio.Event()
        self.takes = anyio.Event()
        self.takes.set()
        self.has_returned = False
        self.status = 0
        self.writes: list[bytes] = []
        self.events: list[SseEvent] = []
        self.parser = SseParser()

    async def run(self) -> None:
        with anyio.fail_after(240):
            await self.site.endpoints(http_scope("GET", "/sse", head(self.token, {})), self._receive, self._send)
        self.has_returned = True

    async def _receive(self) -> AsgiEvent:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: AsgiEvent) -> None:
        await self.takes.wait()
        if event["type"] == "http.response.start":
            self.status = event["status"]
        else:
            self.writes.append(event["body"])
            self.events += self.parser.feed(event["body"])

    @property
    def endpoint(self) -> str:
        return self.events[0].data

    @property
    def messages(self) -> list[Message]:
        return [event.message for event in self.events[1:]]

    @property
    def answered(self) -> list[Any]:
        return [message["id"] for message in self.messages if "method" not in message]

    def reads(self, is_reading: bool) -> None:
        if is_reading:
            self.takes.set()
        else:
            self.takes = anyio.Event()

    async def post(self, method: str, params: Any = None, id: Any = None) -> None:
        message = rpc(method, params or {}, **({} if id is None else {"id": id}))
        assert await self.site.post(self.endpoint, message, self.token) == (202, {})

    async def call(self, id: Any, name: str, **arguments: Any) -> None:
        await self.post("tools/call", {"name": name, "arguments": arguments, "_meta": {"progressToken": id}}, id)

    async def ask(self, id: Any, method: str, params: Any = None) -> Message:
        await self.post(method, params, id)
        await until(lambda: id in self.answered)
        return next(message for message in self.messages if message.get("id") == id)


@pytest.fixture
def site(hub: tuple[App, Tools]) -> Site:
    return Site(hub[0])


async def test_first_event_is_the_endpoint_and_answers_follow_on_the_stream(site: Site) -> None:
    async with site.stream() as reader:
        assert reader.status == 200
        assert reader.events[0].event == "endpoint"
        assert reader.endpoint.startswith("/messages?sessionId=") and len(reader.endpoint) > 40
        assert (await reader.ask(1, "initialize", hello()))["result"]["protocolVersion"] == "2024-11-05"
        assert reader.events[1].event == "message"
        await reader.call("x", "echo", text="a\r\nb")
        await until(lambda: "x" in reader.answered)
        assert reader.messages[-1]["result"]["content"][0]["text"] == "a\r\nb"


async def test_reader_that_stops_holds_up_nothing_but_itself_and_loses_nothing(site: Site) -> None:
    async with site.session() as slow, site.session("bob") as quick:
        slow.reads(False)
        for i in range(1, 6):
            await slow.call(i, "big", size=MiB)
        await slow.call(6, "hurry", n=300)
        await anyio.wait_all_tasks_blocked()
        assert slow.answered == [0]
        await quick.call(1, "big", size=2 * MiB)
        await until(lambda: 1 in quick.answered)
        slow.reads(True)
        await until(lambda: len(slow.answered) == 7)
        told = [message["params"]["progress"] for message in slow.messages if "method" in message]
        assert told == sorted(told) and told[-1] == 300
        assert max(map(len, slow.writes)) <= MiB // 4


@pytest.mark.slow
async def test_client_that_asks_without_reading_is_kept_waiting(hub: tuple[App, Tools], site: Site) -> None:
    """The answers that pile up are bounded by what a client may leave unread."""
    hub[1].registry.tool(name="long", description="x" * 20_000)(hub[1].echo)
    async with site.session() as reader, anyio.create_task_group() as tasks:
        size = len(json.dumps(await reader.ask("size", "tools/list")))
        asked, accepted = 3 * MiB // size, 0

        async def ask(i: int) -> None:
            nonlocal accepted
            await reader.post("tools/list", id=i)
            accepted += 1

        reader.reads(False)
        for i in range(1, asked + 1):
            tasks.start_soon(ask, i)
        await anyio.wait_all_tasks_blocked()
        assert 0.8 * MiB < accepted * size < 1.2 * MiB
        reader.reads(True)
        await until(lambda: len(reader.answered) == asked + 2)


async def test_reader_that_does_not_come_back_is_cut_off_and_its_calls_end(hub: tuple[App, Tools]) -> None:
    app, tools = hub
    site = Site(app, stalled=0.2)
    async with site.session() as reader:
        await reader.call(1, "hold", nonce="stalled")
        reader.reads(False)
        await reader.post("ping", id=2)
        await until(lambda: reader.has_returned)
        await until(lambda: tools.cancelled == ["stalled"])
        assert await site.post(reader.endpoint, {"jsonrpc": "2.0", "method": "n"}) == (404, unknown())


def unknown() -> Message:
    error = {"code": -32600, "message": "session not found", "data": {"code": "unknown_session"}}
    return {"jsonrpc": "2.0", "id": None, "error": error}


async def test_client_that_goes_takes_its_calls_along_and_nobody_elses(hub: tuple[App, Tools], site: Site) -> None:
    _, tools = hub
    async with site.session("bob") as other:
        await other.call(1, "hold", nonce="bob")
        async with site.session() as reader:
            await reader.call(1, "hold", nonce="alice")
            await until(lambda: len(tools.held) == 2)
        await until(lambda: tools.cancelled == ["alice"])
        tools.go.set()
        await until(lambda: 1 in other.answered)


async def test_post_that_waits_for_a_client_which_goes_is_not_taken(site: Site) -> None:
    answers: list[tuple[int, Message]] = []

    async def late(target: str) -> None:
        answers.append(await site.post(target, {"jsonrpc": "2.0", "id": 9, "method": "ping"}))

    async with anyio.create_task_group() as tasks:
        async with site.session() as reader:
            reader.reads(False)
            await reader.call(1, "big", size=3 * MiB)
            await reader.post("ping", id=2)
            await anyio.wait_all_tasks_blocked()
            tasks.start_soon(late, reader.endpoint)
            await anyio.wait_all_tasks_blocked()
            assert answers == []
    assert answers == [(404, unknown())]


async def test_silence_is_broken_by_comments(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(legacy_sse, "KEEP_ALIVE", 0.02)
    async with site.session() as reader:
        await until(lambda: len(reader.parser.comments) >= 2)
        assert reader.answered == [0]


async def test_stream_ends_after_the_last_answer_when_the_hub_stops(hub: tuple[App, Tools], site: Site) -> None:
    app, tools = hub
    async with site.session() as idle, site.session("bob") as busy:
        await busy.call(1, "hold", nonce="x")
        await until(lambda: tools.held)
        site.legacy.close()
        await until(lambda: idle.has_returned)
        await anyio.wait_all_tasks_blocked()
        assert not busy.has_returned
        await app.stop()
        await until(lambda: busy.has_returned)
        assert "stopping" in busy.messages[-1]["error"]["message"]
        assert busy.writes[-1] == b""
        assert (await site.request("GET", "/sse")).status == 503


@pytest.mark.slow
@pytest.mark.parametrize("pings", [0, 1])
async def test_client_that_does_not_read_does_not_hold_up_the_end_of_the_hub(site: Site, pings: int) -> None:
    async with site.session() as reader:
        reader.reads(False)
        for i in range(pings):
            await reader.post("ping", id=i)
        await anyio.wait_all_tasks_blocked()
        site.legacy.close()
        await until(lambda: reader.has_returned, 1)


async def test_as_many_streams_as_configured_and_no_more(hub: tuple[App, Tools]) -> None:
    site = Site(hub[0], max_sessions=2)
    async with site.stream():
        async with site.stream("bob"):
            refused = await site.request("GET", "/sse")
            assert (refused.status, refused.headers["retry-after"]) == (503, "5")
            assert "max_sessions" in refused.json["error"]["message"]
        await anyio.wait_all_tasks_blocked()
        async with site.stream("bob") as reader:
            assert reader.status == 200


async def test_foreign_session_looks_exactly_like_an_unknown_one(site: Site) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello()}
    async with site.stream() as reader:
        foreign = await site.post(reader.endpoint, message, "bob")
        assert foreign == await site.post("/messages?sessionId=se_x", message, "bob") == (404, unknown())
        assert (await reader.ask(1, "initialize", hello()))["result"]
    assert await site.post(reader.endpoint, message) == (404, unknown())
    status, answer = await site.post("/messages", message)
    assert (status, answer["error"]["code"]) == (400, -32600) and "sessionId" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    ],
)
async def test_post_that_is_no_message_is_refused_and_the_next_is_served(site: Site, body: bytes, code: int) -> None:
    async with site.session() as reader:
        status, answer = await site.post(reader.endpoint, body)
        assert (status, answer["error"]["code"]) == (400, code)
        assert (await reader.ask(1, "ping"))["result"] == {}
        assert reader.answered == [0, 1]


async def test_post_is_checked_as_http_first(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.fronts.http.admission._DISCARD", 0.01)
    async with site.session() as reader:
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        assert (await site.request("POST", reader.endpoint, ping, content_type="text/plain")).status == 415
        assert (await site.post(reader.endpoint, ping + b" " * LIMIT))[0] == 413
        assert reader.answered == [0]


@pytest.mark.parametrize(("path", "allowed"), [("/sse", "GET"), ("/messages", "POST"), ("/sse/", "GET")])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"])
async def test_each_path_has_one_method(site: Site, path: str, allowed: str, method: str) -> None:
    if method == allowed:
        return
    refused = await site.request(method, path)
    assert (refused.status, refused.headers["allow"]) == (405, allowed)


async def test_stream_is_for_who_takes_event_streams(site: Site) -> None:
    assert (await site.request("GET", "/sse", accept="application/json")).status == 406


async def test_modern_envelope_is_refused_with_the_right_path(site: Site) -> None:
    async with site.session() as reader:
        error = (await reader.ask(1, "server/discover", modern()))["error"]
        assert error["code"] == -32022 and "/mcp" in error["message"]
        assert error["data"]["requested"] == "2026-07-28" and "2024-11-05" in error["data"]["supported"]
        assert (await reader.ask(2, "ping"))["result"] == {}

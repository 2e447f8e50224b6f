"""What a client can do wrong below MCP, in HTTP itself: it gets a clear refusal, and nobody else notices."""

import json
from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest

from rigs.hostile_clients.cases import ALICE, BOB, HTTP, LIMIT, Site, http_site
from rigs.hostile_clients.doors import BOTH, HandshakeDoor, HttpDoor, ModernDoor, RestDoor, through
from rigs.hostile_clients.sockets import Raw, Socket, exchanged, head, opened
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import events, received

pytestmark = pytest.mark.anyio

BEARER = f"Bearer {ALICE}"
HEAD = int(HTTP["max_headers"])  # type: ignore[call-overload]  # it is a number
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with http_site(tmp_path_factory.mktemp("http")) as running:
        yield running


@pytest.fixture
async def beside(site: Site) -> AsyncIterator[Site]:
    """The hub, which Bob goes on to use."""
    async with site.bob():
        yield site


async def answered(url: str, *parts: bytes) -> Raw | None:
    """What a new connection is answered to these bytes; None if it is just closed."""
    async with opened(url) as socket:
        for part in parts:
            await socket.send(part)
        return await socket.response()


def problem(raw: Raw | None) -> tuple[int, str]:
    assert raw is not None
    assert raw.header("content-type") == "application/problem+json" and raw.header("connection") == "close"
    assert raw.json["status"] == raw.status
    return raw.status, raw.json["code"]


# -- what does not arrive


async def test_request_that_does_not_arrive_is_given_up(beside: Site) -> None:
    """A connection without a request, half a head, a body that is too short, one that trickles, and one without end."""
    post = head("POST", "/mcp", authorization=BEARER, content_type="application/json", content_length="50")
    chunked = head("POST", "/mcp", authorization=BEARER, content_type="application/json", transfer_encoding="chunked")
    said: dict[str, tuple[int, str]] = {}

    async def wait(name: str, first: bytes, then: bytes = b"") -> None:
        async with opened(beside.url) as socket:
            if first:
                await socket.send(first)
            async with anyio.create_task_group() as tasks:
                if then:
                    tasks.start_soon(trickle, socket, then)
                said[name] = problem(await socket.response())
                tasks.cancel_scope.cancel()

    async def trickle(socket: Socket, part: bytes) -> None:
        while True:
            await anyio.sleep(0.1)
            await socket.send(part)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait, "nothing", b"")
        tasks.start_soon(wait, "blank lines", b"", b"\r\n")
        tasks.start_soon(wait, "half a head", b"POST /mcp HTTP/1.1\r\nhost: local")
        tasks.start_soon(wait, "a slow head", b"GET /mcp HTTP/1.1\r\n", b"x: y\r\n")
        tasks.start_soon(wait, "a short body", post + b"{}")
        tasks.start_soon(wait, "a slow body", post, b"{")
        tasks.start_soon(wait, "chunks without end", chunked, b"1\r\n \r\n")
        tasks.start_soon(wait, "half a chunk", chunked + b"ffff\r\n{")
        tasks.start_soon(wait, "over REST", post.replace(b"/mcp", b"/v1/tools/a_echo/call"), b"{")
    assert set(said.values()) == {(408, "request_timeout")} and len(said) == 9


# -- what is too large


@pytest.mark.parametrize("where", ["query", "header", "headers"])
@pytest.mark.parametrize("path", ["/mcp", "/v1/tools", "/sse"])
async def test_head_has_a_limit(beside: Site, path: str, where: str) -> None:
    def request(size: int) -> bytes:
        """As the hub counts it: the target, and names and values with four bytes for each header."""
        start = [("host", "localhost"), ("authorization", BEARER), ("accept", "text/html")]
        room = size - len(path) - sum(len(name) + len(value) + 4 for name, value in start)
        target = path
        if where == "query":
            target += "?" + "q" * (room - 1)
        elif where == "header":
            start.append(("x", "y" * (room - 5)))
        else:
            start += [("x", "")] * (room // 5 - 1)
            start.append(("x", "y" * (room - room // 5 * 5)))
        lines = [f"GET {target} HTTP/1.1", *(f"{name}: {value}" for name, value in start)]
        return "\r\n".join([*lines, "", ""]).encode()

    fits = await answered(beside.url, request(HEAD))
    assert fits is not None and fits.status in (200, 400, 406), fits
    assert problem(await answered(beside.url, request(HEAD + 1))) == (431, "head_too_large")


@pytest.mark.parametrize(
    "flood",
    [
        b"GET /mcp HTTP/1.1\r\n" + b"x: y\r\n" * 100_000,
        b"GET /mcp HTTP/1.1\r\nx: " + b"y" * 1_000_000,
        b"GET /" + b"y" * 1_000_000,
        b"GET /mcp HTTP/1.1\r\n" + b"n" * 1_000_000,
    ],
    ids=["headers", "value", "target", "name"],
)
async def test_head_without_end_is_cut_off(beside: Site, flood: bytes) -> None:
    async with opened(beside.url) as socket:
        try:
            await socket.send(flood)
        except (anyio.BrokenResourceError, OSError):
            return  # closed while it came
        assert await socket.closed()


async def test_trailers_and_chunk_extensions_are_no_way_around_it(beside: Site) -> None:
    start = head("POST", "/mcp", authorization=BEARER, content_type="application/json", transfer_encoding="chunked")
    for part in (b"0\r\n" + b"x: y\r\n" * 2000, b"1;" + b"x" * HEAD):
        async with opened(beside.url) as socket:
            await socket.send(start)
            await anyio.sleep(0.1)  # what shares a read with the head is not counted
            await socket.send(part)
            assert problem(await socket.response()) == (431, "head_too_large")


async def test_declared_length_over_the_limit_is_refused_at_once(beside: Site) -> None:
    for length, status in ((LIMIT + 1, 413), (10**18, 413)):
        for path in ("/mcp", "/messages?sessionId=x"):
            post = head("POST", path, authorization=BEARER, content_type="application/json", content_length=str(length))
            response = await answered(beside.url, post)
            assert response is not None and response.status == (404 if "messages" in path else status), length
    late = head(
        "POST", "/mcp", authorization=BEARER, content_type="application/json", expect="100-continue",
        content_length=str(LIMIT + 1),
    )  # fmt: skip
    refused = await answered(beside.url, late)  # nothing is waited for: the body never comes
    assert refused is not None and refused.status == 413


async def test_lengths_that_lie_or_contradict_each_other_are_malformed(beside: Site) -> None:
    for lengths in ("content-length: 5\r\ncontent-length: 6", "content-length: -1", "content-length: 0x10",
                    "content-length: 5\r\ntransfer-encoding: chunked", "transfer-encoding: gzip, chunked, identity",
                    "content-length: 99999999999999999999999999"):  # fmt: skip
        raw = f"POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: {BEARER}\r\n{lengths}\r\n\r\n12345".encode()
        response = await answered(beside.url, raw)
        assert response is None or response.status in (400, 415), (lengths, response)
    short = (
        head("POST", "/mcp", authorization=BEARER, content_type="application/json", content_length="2") + b"{}{garbage"
    )
    async with opened(beside.url) as socket:
        await socket.send(short)
        first = await socket.response()
        assert first is not None and first.status == 400
        assert await socket.closed()


# -- what it asks for


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/mcp/../v1/tools", 404), ("/v1/../mcp", 404), ("/v1/%2e%2e/mcp", 404), ("/v1/tools/../tools", 404),
        ("/%6dcp", 406), ("//mcp", 404), ("/mcp//", 404), ("/mcp%00", 404), ("/v1/tools%00", 404), ("/mcp/%2e%2e", 404),
        ("/mcp/p/../../v1/tools", 404), ("/mcp/p/%2e%2e%2f", 404), ("/v1/tools%2f..%2fstreams", 404),
        ("/v1//tools", 404), ("/V1/tools", 404),
        ("/v1/streams/..%2f..%2fetc%2fpasswd", 404), ("/v1/streams/%00", 404), ("/v1/streams/%ff", 404),
        ("/.well-known/../mcp", 404), ("/mcp;x=y", 404), ("/mcp\\..\\v1", 404), ("*", 404), ("mcp", 400),
        ("/\xff", 400),
        ("http://evil.example/mcp", 421), ("/mcp?" + "a=b&" * 1000, 406), ("/v1/tools?%00=%ff&", 200),
        ("/v1/tools?" + "%00=%ff&" * 500, 200), ("/v1/streams?limit=1&limit=2", 400),
    ],
)  # fmt: skip
async def test_path_is_what_it_says_and_nothing_else(beside: Site, target: str, status: int) -> None:
    response = await answered(
        beside.url, head("GET", target, authorization=BEARER, accept="text/html, application/json")
    )
    assert response is not None and response.status == status


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "BREW", "get", "G\0T", "A" * 5000, "QUERY", "PUT"])
async def test_odd_methods_are_refused(beside: Site, method: str) -> None:
    for path in ("/mcp", "/v1/tools", "/sse", "/messages"):
        response = await answered(beside.url, head(method, path, authorization=BEARER, content_length="0"))
        assert response is None or response.status in (400, 404, 405, 431), (method, path, response)


async def test_garbage_is_no_http(beside: Site) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\0" * 200, b"hello\r\n\r\n", b"{}\n" * 20,
                    b"GET /mcp HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                    b"GET /mcp HTTP/1.1\r\nhost localhost\r\n\r\n", b"GET /mcp HTTP/1.1\r\n: x\r\n\r\n"):  # fmt: skip
        async with opened(beside.url) as socket:
            await socket.send(garbage)
            response = await socket.response()
            assert response is None or problem(response) == (400, "malformed_request"), garbage
            assert await socket.closed()


async def test_upgrade_is_answered_as_if_it_were_none(beside: Site) -> None:
    for upgrade in ("websocket", "h2c"):
        raw = head("GET", "/v1/tools", authorization=BEARER, connection="Upgrade", upgrade=upgrade)
        response = await answered(beside.url, raw)
        assert response is not None and response.status == 200


# -- several at once on one connection


async def test_garbage_behind_a_request_costs_its_sender_the_connection_only(beside: Site) -> None:
    async with through("handshake", beside.url, ALICE) as door:
        assert isinstance(door, HttpDoor)
        for garbage in (b"\0garbage\r\n\r\n", b"GET / HTTP/1.1\r\nx" * 50):
            async with opened(beside.url) as socket:
                await socket.send(door.request(door.call("slow", {"seconds": 0.2})) + garbage)
                assert await socket.closed()


async def test_client_that_leaves_is_noticed_with_another_request_waiting_behind(beside: Site) -> None:
    """The server underneath tells only the newest request of a connection that its client is gone."""
    door = ModernDoor(beside.url, ALICE)
    waits = door.request(door.call("wait_cancel", {"nonce": "pipelined"}))
    async with opened(beside.url) as socket:
        await socket.send(waits + door.request(door.call("echo", {"text": "x"})))
        await until(lambda: "pipelined" in str(received(beside.journal, "tools/call")))

    def is_cancelled() -> bool:
        return any(event["nonce"] == "pipelined" for event in events(beside.journal, "cancelled"))

    await until(is_cancelled, 8)  # sooner than by the next comment, which would not get through


async def test_many_requests_behind_a_slow_one_are_all_answered(beside: Site) -> None:
    door = ModernDoor(beside.url, ALICE)
    first = door.request(door.call("slow", {"seconds": 0.3}))
    more = [door.request(door.call("echo", {"text": "x"}, id=number)) for number in range(40)]
    async with opened(beside.url) as socket:
        await socket.send(first + b"".join(more))
        assert await socket.response() is not None
        for number in range(40):
            response = await socket.response()
            assert response is not None and response.json["id"] == number


# -- the end of a client


@pytest.mark.parametrize(
    ("name", "is_cancelled"), [("handshake", False), ("modern", True), ("sse", True), ("rest", False)]
)
async def test_what_becomes_of_a_call_when_its_client_vanishes(beside: Site, name: str, is_cancelled: bool) -> None:
    nonce = f"vanished-{name}"
    async with through(name, beside.url, ALICE) as door:
        assert isinstance(door, HttpDoor)
        tool = {"wait_cancel": {"nonce": nonce}} if is_cancelled else {"slow": {"seconds": 0.5, "nonce": nonce}}
        ((called, arguments),) = tool.items()
        async with opened(beside.url) as socket:
            await socket.send(door.request(door.call(called, arguments)))
            await until(lambda: nonce in str(received(beside.journal, "tools/call")))

    def cancelled() -> bool:
        return any(event["nonce"] == nonce for event in events(beside.journal, "cancelled"))

    if is_cancelled:
        await until(cancelled)
        return
    streams: list[dict[str, str]] = []
    with anyio.fail_after(WAIT):  # the call goes on to its end, which its stream has
        while not (streams and streams[0]["status"] == "completed"):
            raw = await exchanged(beside.url, "GET", "/v1/streams?limit=1", authorization=BEARER)
            streams = raw.json["streams"]
            await anyio.sleep(0.05)
    assert not cancelled()


# -- names of others


async def test_what_is_foreign_is_as_unknown_as_what_never_was(beside: Site) -> None:
    """Whole responses, of every kind of thing that somebody else may have."""
    alice, bob = HandshakeDoor(beside.url, ALICE), HandshakeDoor(beside.url, BOB)
    await alice.initialize()
    await bob.initialize()
    started = await RestDoor(beside.url, BOB).post(b'{"arguments":{"seconds":0,"nonce":"bob"}}', prefer="wait=0")
    stream = json.loads(started.body)["stream"]
    never = "st_" + "0" * 26
    for method, path in (("GET", "/v1/streams/{}"), ("DELETE", "/v1/streams/{}"), ("GET", "/v1/streams/{}/events")):
        told = [await exchanged(beside.url, method, path.format(id_), authorization=BEARER) for id_ in (stream, never)]
        assert told[0].complete == told[1].complete and told[0].status == 404
    answer = b'{"key":"q1","action":"decline"}'
    told = [
        await exchanged(beside.url, "POST", f"/v1/streams/{id_}/input", answer, authorization=BEARER)
        for id_ in (stream, never)
    ]
    assert told[0].complete == told[1].complete and told[0].status == 404
    headers: dict[str, Any]
    for method, body in (("POST", PING), ("DELETE", None), ("GET", None)):
        told = []
        for id_ in (bob.session, "se_" + "0" * 26):
            headers = {**alice.headers, "mcp_session_id": id_, "accept": BOTH}
            told.append(await exchanged(beside.url, method, "/mcp", body, **headers))
        assert told[0].complete == told[1].complete and told[0].status == 404
    told = []
    for event in (f"{stream}:1", f"{never}:1"):
        headers = {**alice.headers, "accept": "text/event-stream", "last_event_id": event}
        told.append(await exchanged(beside.url, "GET", "/mcp", **headers))
    assert told[0].complete == told[1].complete and told[0].status == 400
    told = []
    for task in (stream, never):
        door = ModernDoor(beside.url, ALICE)
        body = json.loads(door.call("echo", {}))
        body |= {"method": "tasks/get", "params": {"taskId": task, "_meta": body["params"]["_meta"]}}
        body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {
            "extensions": {"io.modelcontextprotocol/tasks": {}}
        }
        told.append(await door.post(json.dumps(body).encode(), mcp_method="tasks/get", mcp_name=task))
    assert told[0].complete == told[1].complete and told[0].status == 400
    assert told[0].json["error"]["code"] == -32602
    asking = ModernDoor(beside.url, BOB)
    form: dict[str, Any] = {"elicitation": {}}
    asked = await asking.ask(asking.call("ask_form", {"nonce": "foreign"}, capabilities=form, server="h"))
    state = asked.message["result"]["requestState"]
    told = []
    for stolen in (state, state[:-8] + "AAAAAAAA"):
        door = ModernDoor(beside.url, ALICE)
        body = json.loads(door.call("ask_form", {"nonce": "foreign"}, capabilities=form, server="h"))
        body["params"] |= {"requestState": stolen, "inputResponses": {"form": {"action": "decline"}}}
        told.append(await door.post(json.dumps(body).encode()))
    assert told[0].complete == told[1].complete and told[0].status == 400
    assert told[0].json["error"]["code"] == -32602


# -- idempotency keys


async def test_keys_belong_to_their_principal_and_to_one_request(beside: Site) -> None:
    alice, bob = RestDoor(beside.url, ALICE), RestDoor(beside.url, BOB)
    first = await alice.post(b'{"arguments":{"text":"a"}}', idempotency_key="k")
    assert (await alice.post(b'{"arguments": {"text": "a"}}', idempotency_key="k")).json == first.json
    reused = await alice.post(b'{"arguments":{"text":"b"}}', idempotency_key="k")
    assert (reused.status, reused.json["code"]) == (422, "idempotency_key_reused")
    other = await bob.post(b'{"arguments":{"text":"b"}}', idempotency_key="k")
    assert other.status == 200 and other.json["stream"] != first.json["stream"]
    assert (await alice.post(b'{"arguments":{"text":"a"}}', idempotency_key="k" * 255)).status == 200
    for key in ("k" * 256, "k\tk", "", "\xe9", "k" * 4000):
        refused = await alice.post(b'{"arguments":{"text":"a"}}', idempotency_key=key)
        assert (refused.status, refused.json["code"]) == (400, "invalid_idempotency_key"), key

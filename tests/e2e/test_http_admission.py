"""How much one principal may have of the HTTP fronts, and how fast: at each limit, and one past it."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

import anyio
import pytest

from rigs.hostile_clients.cases import Site, http_site
from rigs.hostile_clients.doors import HandshakeDoor, HttpDoor, ModernDoor, RestDoor, through
from rigs.hostile_clients.sockets import Raw, Socket, exchanged, head, opened
from tests.upstreams.child import WAIT
from tests.upstreams.messages import CLIENT, rpc

pytestmark = pytest.mark.anyio

REQUESTS, SESSIONS, CONNECTIONS, BODIES, RATE, SESSION_RATE = 4, 5, 12, 250_000, 6, 1
BURST = 10
"""Seconds' worth that may come at once."""
T = TypeVar("T")
_tokens = (f"token-{n}" for n in range(100))


@pytest.fixture(scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    tokens = [{"token": f"token-{n}", "principal": f"principal-{n}"} for n in range(100)]
    limits = {
        "requests_per_principal": REQUESTS,
        "sessions_per_principal": SESSIONS,
        "max_connections": CONNECTIONS,
        "bodies_per_principal": BODIES,
        "max_body": 200_000,
        "request_rate": RATE,
        "session_rate": SESSION_RATE,
        "body_timeout": "20s",
        "header_timeout": "20s",
    }
    async with http_site(tmp_path_factory.mktemp("admission"), tokens=tokens, **limits) as running:
        yield running


@pytest.fixture
def token() -> str:
    """Of a principal that has done nothing yet."""
    return next(_tokens)


async def first(ask: Callable[[], Awaitable[T]], is_it: Callable[[T], bool]) -> T:
    """The first answer of this kind; asks ten times a second."""
    with anyio.fail_after(WAIT):
        while True:
            answer = await ask()
            if is_it(answer):
                return answer
            await anyio.sleep(0.1)


def check_busy(said: Any, setting: str, value: int) -> None:
    """The data of a refusal names the limit, its value, its key, and how long to wait."""
    assert said["setting"] == setting and said["limit"] == setting.rpartition(".")[2]
    assert (said["value"], type(said["retryAfter"])) == (value, int)


def check_refused(raw: Raw, status: int, setting: str, value: int) -> None:
    assert raw.status == status and int(raw.header("retry-after") or "") > 0, raw
    if raw.header("content-type") == "application/problem+json":
        assert raw.json["code"] == "busy" and setting in raw.json["detail"]
        check_busy(raw.json, setting, value)
    else:
        error = raw.json["error"]
        assert error["code"] == 1004 and setting in error["message"]
        check_busy(error["data"], setting, value)


@asynccontextmanager
async def held(site: Site, door: HttpDoor, count: int) -> AsyncIterator[list[Socket]]:
    """So many connections with a call on each that does not end by itself."""
    request = door.request(door.call("wait_cancel", {"nonce": "held"}))
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(opened(site.url)) for _ in range(count)]
        for socket in sockets:
            await socket.send(request)
        yield sockets


@pytest.mark.parametrize("door", [ModernDoor, RestDoor])
async def test_requests_of_one_principal_at_a_time(site: Site, token: str, door: type[HttpDoor]) -> None:
    more, other = door(site.url, token), door(site.url, next(_tokens))
    async with held(site, door(site.url, token), REQUESTS) as sockets:
        refused = await first(lambda: more.post(b"5"), lambda raw: raw.status == 503)
        check_refused(refused, 503, "hub.http.requests_per_principal", REQUESTS)
        assert (await other.ask(other.call("echo", {"text": "x"}))).is_result
        await sockets[0].stream.aclose()
        await first(lambda: more.post(b"5"), lambda raw: raw.status != 503)


@pytest.mark.parametrize("path", ["/mcp", "/v1/tools"])
async def test_requests_of_one_principal_per_second(site: Site, token: str, path: str) -> None:
    taken, began = 0, anyio.current_time()
    with anyio.fail_after(WAIT):
        while (raw := await exchanged(site.url, "GET", path, authorization=f"Bearer {token}")).status != 429:
            taken += 1
    check_refused(raw, 429, "hub.http.request_rate", RATE)
    assert RATE * BURST <= taken <= RATE * (BURST + anyio.current_time() - began) + 1, "more may come while these do"
    other = await exchanged(site.url, "GET", path, authorization=f"Bearer {next(_tokens)}")
    assert other.status != 429
    await anyio.sleep(1.2 / RATE)
    assert (await exchanged(site.url, "GET", path, authorization=f"Bearer {token}")).status != 429


async def test_new_sessions_of_one_principal_per_second(site: Site, token: str) -> None:
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    door, hello = HandshakeDoor(site.url, token), json.dumps(rpc("initialize", params, id=0)).encode()
    said: list[Raw] = []
    while (refused := await door.post(hello)).status == 200:  # one more for each second that these take
        said.append(refused)
    assert len(said) >= SESSION_RATE * BURST
    check_refused(refused, 429, "hub.http.session_rate", SESSION_RATE)
    stream = await exchanged(site.url, "GET", "/sse", authorization=f"Bearer {token}", accept="text/event-stream")
    check_refused(stream, 429, "hub.http.session_rate", SESSION_RATE)
    # of those that were let in, the last so many are still there
    sessions = [raw.header("mcp-session-id") or "" for raw in said]
    ping = json.dumps(rpc("ping", None, id=1)).encode()
    statuses = [(await door.post(ping, mcp_session_id=one)).status for one in sessions]
    assert statuses == [404] * (len(sessions) - SESSIONS) + [200] * SESSIONS


async def test_event_streams_of_one_principal(site: Site, token: str) -> None:
    """As many as sessions; here fewer requests may be open at a time."""
    async with AsyncExitStack() as stack:
        for _ in range(REQUESTS):
            await stack.enter_async_context(through("sse", site.url, token))
        refused = await exchanged(site.url, "GET", "/sse", authorization=f"Bearer {token}", accept="text/event-stream")
        check_refused(refused, 503, "hub.http.requests_per_principal", REQUESTS)


async def test_bodies_of_one_principal_at_a_time(site: Site, token: str) -> None:
    """Large bodies that do not end are counted together; when they are given up there is room again."""
    post = head(
        "POST", "/v1/tools/a_slow/call", authorization=f"Bearer {token}", content_type="application/json",
        content_length="150000",
    )  # fmt: skip
    whole = json.dumps({"arguments": {"seconds": 0, "pad": "x" * 120_000}}).encode()
    door = RestDoor(site.url, token)
    door.call("slow", {})
    async with opened(site.url) as socket:
        await socket.send(post + b" " * 149_000)
        raw = await first(lambda: door.post(whole), lambda raw: raw.status != 200)
        check_refused(raw, 503, "hub.http.bodies_per_principal", BODIES)
        assert (await door.post(b'{"arguments":{"seconds":0}}')).status == 200
        other = RestDoor(site.url, next(_tokens))
        other.call("slow", {})
        assert (await other.post(whole)).status == 200
    await first(lambda: door.post(whole), lambda raw: raw.status == 200)


async def test_connections_at_a_time(site: Site, token: str) -> None:
    """Those that are in use count; one more is told so, and served when there is room again."""
    async with AsyncExitStack() as stack:
        for _ in range(CONNECTIONS // REQUESTS):
            holder = held(site, ModernDoor(site.url, next(_tokens)), REQUESTS)
            sockets = await stack.enter_async_context(holder)
        refused = await first(lambda: listed(site, token), lambda raw: raw.status == 503)
        assert refused.header("connection") == "close"
        check_refused(refused, 503, "hub.http.max_connections", CONNECTIONS)
        await sockets[0].stream.aclose()
        await first(lambda: listed(site, token), lambda raw: raw.status == 200)


async def listed(site: Site, token: str) -> Raw:
    return await exchanged(site.url, "GET", "/v1/tools", authorization=f"Bearer {token}")


async def test_connections_that_are_not_used_make_room(site: Site, token: str) -> None:
    request = head("GET", "/v1/tools", authorization=f"Bearer {token}")
    async with AsyncExitStack() as stack:
        idle: list[Socket] = []

        async def one_more() -> int:
            socket = await stack.enter_async_context(opened(site.url))
            await socket.send(request)
            answer = await socket.response()
            assert answer is not None
            if answer.status == 200:
                idle.append(socket)
            return answer.status

        with anyio.fail_after(WAIT):
            while len(idle) < CONNECTIONS:
                assert await one_more() in (200, 503), "of tests before, some may not be gone yet"
        await anyio.sleep(1.1)
        first, last = idle[0], idle[-1]
        for _ in range(3):  # one of a test before would have to make room, too
            assert await one_more() == 200
            if await first.closed(3):
                break
        else:
            raise AssertionError("the one that has been unused for longest is still there")
        await last.send(request)
        assert await last.response()


async def test_storm_of_connections_leaves_room_for_others(site: Site, token: str) -> None:
    """Hundreds that connect and leave, or connect and stay silent: who has one goes on, who comes later is served."""
    async with through("handshake", site.url, token) as door:
        assert isinstance(door, HttpDoor)
        async with opened(site.url) as steady:
            await steady.send(door.request(door.call("slow", {"seconds": 1})))
            async with anyio.create_task_group() as tasks:
                for _ in range(300):
                    tasks.start_soon(_drop, site.url)
            answer = await steady.response()
            assert answer is not None and "result" in answer.json
        assert (await door.ask(door.call("echo", {"text": "x"}))).is_result


async def _drop(url: str) -> None:
    async with opened(url) as socket:
        try:
            await socket.send(b"POST /mcp HTTP/1.1\r\n")
        except (anyio.BrokenResourceError, OSError):
            pass  # the hub was faster

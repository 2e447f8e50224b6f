"""Reaching a remote server: which era and transport it is, and what is said when it cannot be reached."""

from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from mcp_hub.errors import StartFailed, UpstreamLost
from mcp_hub.types import Cause, Era
from mcp_hub.upstreams.peer.era_cache import KnownEras
from mcp_hub.upstreams.peer.server_eras import ANY_ERA, EraWish, ServerEras, wish
from mcp_hub.upstreams.remote.connection import HttpConnection, HttpSpec
from tests.unit.upstreams.remote import Remote, answering, connection, unknown
from tests.unit.upstreams.scripted import INITIALIZED
from tests.unit.wire.http_server import HttpServer, Reply, Request, Script, serving
from tests.unit.wire.http_wires import OldServer
from tests.unit.wire.raw_lines import WAIT, group

pytestmark = pytest.mark.anyio

HANDSHAKE, MODERN = Era.HANDSHAKE, Era.MODERN


def remembering(era: Era) -> ServerEras:
    memory = unknown()
    memory.learn(era, True)
    return memory


async def failing(server: HttpServer, **spec: Any) -> tuple[StartFailed, bool]:
    """Why it cannot be reached, and whether another attempt may help."""
    made = HttpConnection("far", HttpSpec(**{"url": server.url, **spec}), unknown())
    async with group() as tasks:
        with pytest.raises(StartFailed) as caught, anyio.fail_after(WAIT):
            await made.open(tasks)
        await made.close()
    return caught.value, made.can_retry


async def test_a_modern_server_is_found_by_one_request_and_has_no_session() -> None:
    async with serving(Remote(modern=True)) as server, connection(server) as (_, peer):
        assert (peer.info.era, peer.info.version) == (MODERN, "2026-07-28")
        assert peer.info.server_info == {"name": "m", "version": "2"} and peer.mirrors is not None
    assert [request.rpc for request in server.seen] == ["server/discover"]


HANDSHAKE_ONLY = {"code": -32022, "message": "no", "data": {"supported": ["2025-11-25"]}}
REFUSALS = {
    **{f"a status of who asks: {status}": answering(status) for status in (401, 403)},
    "not found": answering(404),
    "a web page": answering(200),
    "server error": answering(500),
    "unknown method": answering(404, {"error": {"code": -32601, "message": "no"}}),
    "no session": answering(400, {"error": {"code": -32600, "message": "Missing session ID"}}),
    "no result": answering(200, {"result": {}}),
    "only handshake versions": answering(400, {"error": HANDSHAKE_ONLY}),
}


@pytest.mark.parametrize("probed", REFUSALS.values(), ids=REFUSALS)
async def test_a_server_that_does_not_know_the_probe_gets_the_handshake(probed: Script) -> None:
    async with serving(Remote(does={"server/discover": probed})) as server, connection(server) as (_, peer):
        assert (peer.info.era, peer.info.version) == (HANDSHAKE, "2025-06-18") and peer.mirrors is None
        await server.until("GET")
    _, hello, initialized, listen, goodbye = server.seen
    assert (hello.rpc, initialized.rpc, listen.rpc) == ("initialize", "notifications/initialized", "GET")
    assert initialized.headers["mcp-protocol-version"] == listen.headers["mcp-protocol-version"] == "2025-06-18"
    assert (goodbye.rpc, goodbye.headers["mcp-session-id"]) == ("DELETE", "s-1")


async def test_a_server_without_sessions_is_fine() -> None:
    async with serving(Remote(session=None)) as server, connection(server) as (_, peer):
        assert await peer.answer(peer.send("tools/list"))
    assert not server.of("DELETE") and not any("mcp-session-id" in request.headers for request in server.seen)


async def test_nothing_reaches_a_server_before_it_has_taken_initialized() -> None:
    async def taken(request: Request, reply: Reply) -> None:
        assert server.seen[-1] is request
        await reply.status(202)
        done.append(len(server.seen))

    done: list[int] = []
    async with serving(Remote(does={"notifications/initialized": taken})) as server, connection(server) as (_, peer):
        assert done
        await peer.answer(peer.send("tools/list"))


async def test_a_refused_version_that_is_on_offer_is_asked_for_again() -> None:
    async def once(request: Request, reply: Reply) -> None:
        if len(server.seen) > 1:
            del remote.does["server/discover"]
            return await remote(request, reply)
        await reply.error(request, -32022, data={"supported": ["2026-07-28"]})

    remote = Remote(modern=True, does={"server/discover": once})
    async with serving(remote) as server, connection(server) as (_, peer):
        assert peer.info.era is MODERN
    assert [request.rpc for request in server.seen] == ["server/discover"] * 2


async def test_an_era_is_forgotten_when_a_start_takes_too_long_and_not_when_the_hub_ends_meanwhile() -> None:
    async def silent(request: Request, reply: Reply) -> None:
        await reply.gone()

    memory = remembering(HANDSHAKE)
    async with serving(Remote(does={"initialize": silent})) as server, group() as tasks:
        made = HttpConnection("far", HttpSpec(server.url), memory)
        tasks.start_soon(made.open, tasks)
        await server.until("initialize")
    assert memory.known_eras.speaks == {HANDSHAKE}
    await made.last_words(Cause("start_timeout", "it was not ready"))
    assert memory.known_eras == KnownEras()
    await made.close()


async def test_a_server_of_both_eras_is_initialised_after_the_probe_for_callers_of_that_era() -> None:
    memory = unknown()
    async with serving(Remote(modern=True)) as server, connection(server, memory, wish(HANDSHAKE)) as (_, peer):
        assert peer.info.era is HANDSHAKE
    assert [request.rpc for request in server.seen][:2] == ["server/discover", "initialize"]
    assert memory.known_eras.are_both


@pytest.mark.parametrize(
    ("known", "wanted", "code", "is_certain"),
    [
        (HANDSHAKE, ANY_ERA, -32020, True),
        *((None, wish(HANDSHAKE), code, code != -32603) for code in (-32601, -32022, -32603)),
    ],
    ids=["it has become modern", "no method", "no version", "passing error"],
)
async def test_server_that_refuses_the_handshake_is_modern(
    known: Era | None, wanted: EraWish, code: int, is_certain: bool
) -> None:
    async def refused(request: Request, reply: Reply) -> None:
        await reply.error(request, code)

    memory = unknown() if known is None else remembering(known)
    async with serving(Remote(modern=True, does={"initialize": refused})) as server:
        async with connection(server, memory, wanted) as (_, peer):
            assert peer.info.era is MODERN and peer.mirrors is not None
            await peer.answer(peer.send("tools/list"))
    assert memory.known_eras == KnownEras(frozenset((MODERN,)), frozenset((HANDSHAKE,) if is_certain else ()))


@pytest.mark.parametrize(
    ("configured", "remembered", "asked"),
    [(None, HANDSHAKE, "initialize"), (None, MODERN, "server/discover"), (HANDSHAKE, MODERN, "initialize")],
)
async def test_a_known_era_is_not_asked_for(configured: Era | None, remembered: Era, asked: str) -> None:
    memory = remembering(remembered)
    async with serving(Remote(modern=True)) as server, connection(server, memory, era=configured):
        assert server.seen[0].rpc == asked
    assert remembered in memory.known_eras.speaks


class OldMcp(OldServer):
    """Speaks MCP, too."""

    async def __call__(self, request: Request, reply: Reply) -> None:
        if request.method == "POST" and request.path == "/mcp":
            return await reply.status(405)
        await super().__call__(request, reply)
        if request.rpc == "initialize":
            await self.say(id=request.message["id"], result=INITIALIZED)


async def test_the_end_of_the_old_stream_is_known_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a process, it has nothing more to say."""
    monkeypatch.setattr("mcp_hub.upstreams.peer.state.LAST_WORDS", 4 * WAIT)
    old = OldMcp()
    async with serving(old) as server, connection(server, transport="sse") as (_, peer):
        pending = peer.send("tools/list")
        await server.until("tools/list")
        assert old.stream is not None
        await old.stream.end()
        with pytest.raises(UpstreamLost, match="the event stream ended"), anyio.fail_after(WAIT):
            await peer.answer(pending)


@pytest.mark.parametrize("transport", [None, "sse"])
async def test_a_server_of_the_old_transport_is_found_or_named(transport: str | None) -> None:
    async with serving(OldMcp()) as server, connection(server, transport=transport) as (_, peer):
        assert (peer.info.era, peer.info.version) == (HANDSHAKE, "2025-06-18")
        sent = [(request.rpc, request.path) for request in server.seen]
        found_out = [] if transport else [("server/discover", "/mcp"), ("initialize", "/mcp")]
        messages = [(method, "/messages?session_id=1") for method in ("initialize", "notifications/initialized")]
        assert sent == [*found_out, ("GET", "/mcp"), *messages]


@pytest.mark.parametrize(
    ("script", "transport", "code", "status", "tried"),
    [
        (OldMcp(), "http", "no_endpoint", 405, ["POST", "POST"]),
        (answering(404), None, "no_endpoint", 404, ["POST", "POST", "GET"]),
        (answering(500), None, "server_error", 500, ["POST", "POST"]),
        (answering(429), None, "rate_limited", 429, ["POST", "POST"]),
        (answering(302), None, "no_endpoint", 302, ["POST", "POST"]),
    ],
    ids=["the other was configured", "no MCP server at all", "error", "busy", "redirect"],
)
async def test_old_transport_is_tried_by_status(
    script: Script, transport: str | None, code: str, status: int, tried: list[str]
) -> None:
    async with serving(script) as server:
        error, can_retry = await failing(server, transport=transport)
        assert (error.code, can_retry) == (code, True) and f"HTTP {status}" in str(error)
    assert [request.method for request in server.seen] == tried


async def test_an_era_that_led_nowhere_is_not_remembered() -> None:
    memory = remembering(HANDSHAKE)
    async with serving(answering(500)) as server:
        with pytest.raises(ExceptionGroup):
            async with connection(server, memory):
                pass
    assert memory.known_eras == KnownEras()


@pytest.mark.parametrize(("status", "transport"), [(401, None), (403, "http"), (401, "sse")])
async def test_server_that_wants_credentials_is_asked_once_a_way_and_named(status: int, transport: str | None) -> None:
    async with serving(answering(status)) as server:
        error, can_retry = await failing(server, transport=transport)
        assert (error.code, can_retry) == ("not_admitted", False)
        assert all(own in str(error) for own in (f"127.0.0.1:{server.port}", '"bearer"', '"headers"', str(status)))
        ways = [None] if transport == "sse" else ["server/discover", "initialize"]
        assert [request.rpc if request.body else None for request in server.seen] == ways


async def test_credentials_go_with_every_request_and_into_no_message() -> None:
    headers = {"Authorization": "Bearer s3cr3t-token", "X-Team": "s3cr3t-team"}
    async with serving(Remote()) as server, connection(server, headers=headers) as (_, peer):
        await peer.answer(peer.send("tools/list"))
        await server.until("GET")
    assert {request.headers.get("authorization") for request in server.seen} == {"Bearer s3cr3t-token"}
    assert {request.headers.get("x-team") for request in server.seen} == {"s3cr3t-team"}
    async with serving(answering(401)) as server:
        error, _ = await failing(server, headers=headers)
        assert error.code == "not_admitted" and "s3cr3t" not in str(error)
        assert "s3cr3t" not in repr(HttpSpec(url="http://x/?key=s3cr3t", headers=headers))


async def test_the_hubs_own_headers_can_be_replaced() -> None:
    async with serving(Remote(modern=True)) as server, connection(server, headers={"User-Agent": "mine"}):
        assert server.seen[0].headers["user-agent"] == "mine"


@pytest.mark.parametrize("transport", [None, "sse"])
async def test_a_server_that_is_not_there_is_said_as_such_and_stays_remembered(transport: str | None) -> None:
    memory = remembering(HANDSHAKE)
    async with serving(Remote()) as gone:
        pass
    with pytest.raises(ExceptionGroup) as caught:
        async with connection(gone, memory, transport=transport):
            pass
    (error,) = caught.value.exceptions
    assert isinstance(error, StartFailed) and error.code == "connection_refused"
    assert f"http://127.0.0.1:{gone.port}" in str(error)
    assert memory.known_eras.speaks == {HANDSHAKE}


async def test_a_redirect_says_where_to() -> None:
    async with serving(answering(308, location="https://other.example/mcp?token=1")) as server:
        error, _ = await failing(server)
        assert error.code == "no_endpoint"
        assert "HTTP 308" in str(error) and "'https://other.example/mcp'" in str(error)


async def test_server_that_goes_before_the_first_byte_got_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = anyio.connect_tcp

    async def gone(*args: Any, **kwargs: Any) -> Any:
        await (await connect(*args, **kwargs)).aclose()
        return SimpleNamespace(_raw_socket=None)

    async with serving(Remote(modern=True)) as server:
        monkeypatch.setattr(anyio, "connect_tcp", gone)
        error, can_retry = await failing(server)
    assert error.code == "unreachable" and f"http://127.0.0.1:{server.port}" in str(error)
    assert can_retry and not server.seen

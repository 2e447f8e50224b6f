"""Sessions that a remote server has lost, each in the way in which servers of the field say so."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from mcp_hub.calls.attempts import class_of
from mcp_hub.errors import RpcError, UpstreamLost
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.peer import state as peer_state
from mcp_hub.upstreams.remote import session_check
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import SupervisorRules
from tests.unit.upstreams.function_calls import Doubting, request
from tests.unit.upstreams.remote import Remote, ready, supervised
from tests.unit.wire.http_server import HttpServer, Reply, Request, Script, serving
from tests.unit.wire.http_wires import says
from tests.unit.wire.raw_lines import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("any_session_counts")]


def error(status: int, code: int, message: str, id_: object = "own") -> Script:
    async def refuse(request: Request, reply: Reply) -> None:
        about = request.message["id"] if id_ == "own" else id_
        await reply.json({"jsonrpc": "2.0", "id": about, "error": {"code": code, "message": message}}, status)

    return refuse


def on_stream(code: int, message: str, id_: object = None, **before: Any) -> Script:
    async def refuse(request: Request, reply: Reply) -> None:
        stream = await reply.stream()
        about = request.message["id"] if id_ == "own" else id_
        await stream.event({"jsonrpc": "2.0", "id": about, "error": {"code": code, "message": message}})
        await stream.end()

    return refuse


async def cut(request: Request, reply: Reply) -> None:
    reply.cut()


async def empty_stream(request: Request, reply: Reply) -> None:
    await (await reply.stream()).end()


NO_SESSION = b"Bad Request: No valid session ID provided"
SENT_AGAIN: dict[str, Script] = {
    "404": says(404, b"", "text/plain"),
    "404 text": says(404, b"Not Found", "text/plain"),
    "404 json": error(404, -32001, "Session not found", None),
    "400 text": says(400, NO_SESSION, "text/plain"),
    "400 nothing": says(400, b"", ""),
    "400 nameless": error(400, -32000, "Bad Request: No valid session ID provided", None),
    "400 not initialized": error(400, -32000, "Bad Request: Server not initialized", None),
    "400 own id": error(400, -32000, "Bad Request: invalid session"),
    "400 other id": error(400, -32600, "Bad Request: Missing session ID", "server-error"),
    "400 html": says(400, b"<html>", "text/html"),
    "400 not json": says(400, b"{", "application/json"),
}
UNSURE: dict[str, Script] = {
    "401": says(401, b"session expired", "text/plain"),
    "403": says(403, b"no such session", "text/plain"),
    "405": says(405, b"", "text/plain"),
    "409": says(409, b"conflict", "text/plain"),
    "410": says(410, b"gone", "text/plain"),
    "412": says(412, b"", "text/plain"),
    "422": error(422, -32602, "session id", None),
    "500": says(500, b"Internal Server Error", "text/plain"),
    "500 json": error(500, -32603, "Internal server error", None),
    "502": says(502, b"Bad Gateway", "text/plain"),
    "503": says(503, b"Service Unavailable", "text/plain"),
    "200 own id": error(200, -32001, "Session not found"),
    "200 params": error(200, -32602, "Invalid request parameters"),
    "200 method": error(200, -32601, "Method not found"),
    "200 nameless": error(200, -32600, "Invalid Request: unknown session", None),
    "200 other id": error(200, -32600, "Invalid Request", "server-error"),
    "200 html": says(200, b"<html>", "text/html"),
    "200 nothing": says(200, b"", ""),
    "200 object": says(200, b"{}", "application/json"),
    "200 null": says(200, b"null", "application/json"),
    "200 array": says(200, b'[{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"x"}}]', "application/json"),
    "202": says(202, b"", ""),
    "204": says(204, b"", ""),
    "stream nameless": on_stream(-32000, "Bad Request: Server not initialized"),
    "stream own id": on_stream(-32000, "Bad Request: Server not initialized", "own"),
    "stream other id": on_stream(-32000, "no session", "server-error"),
    "stream nothing": empty_stream,
    "reset": cut,
}
FORMS = SENT_AGAIN | UNSURE


@dataclass
class Restarting(Remote):
    """A server whose sessions are lost by `restart`; it refuses those it does not know as `refuse` does.

    `answers` are refusals in a session that it knows, by method. Without a `ping` it refuses that, too.
    """

    refuse: Script = SENT_AGAIN["404"]
    answers: dict[str, Script] = field(default_factory=dict)
    pings: bool = True
    ran: list[Any] = field(default_factory=list)

    def restart(self) -> None:
        self.session = f"s-{int(str(self.session)[2:]) + 1}"

    async def __call__(self, request: Request, reply: Reply) -> None:
        method = request.rpc
        if method in ("GET", "DELETE", "initialize", "server/discover") or method.startswith("notifications/"):
            return await super().__call__(request, reply)
        if request.headers.get("mcp-session-id") != self.session:
            return await self.refuse(request, reply)
        if method in self.answers:
            return await self.answers[method](request, reply)
        if method == "ping":
            return await (reply.result(request, {}) if self.pings else reply.error(request, -32601, 200))
        if method == "tools/call":
            self.ran.append(request.message["params"]["arguments"].get("n"))
        await super().__call__(request, reply)


async def run(far: ManagedUpstream, n: int = 0, seconds: float = WAIT) -> None:
    with anyio.fail_after(seconds):
        await far.call(msgspec.structs.replace(request("x", {"n": n}), upstream="far"), Doubting())


@asynccontextmanager
async def up(remote: Restarting) -> AsyncIterator[tuple[HttpServer, ManagedUpstream]]:
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        await run(far)
        remote.ran.clear()
        yield server, far


@pytest.mark.parametrize("form", FORMS)
async def test_lost_session_comes_back_by_itself(form: str) -> None:
    remote = Restarting(refuse=FORMS[form])
    async with up(remote) as (server, far):
        for restarts in (1, 2):
            remote.restart()
            if form in SENT_AGAIN:
                await run(far, restarts)
            else:
                with pytest.raises(UpstreamLost) as lost:
                    await run(far, -restarts)
                assert (lost.value.data or {})["outcome"] == "unknown" and class_of(lost.value) == "lost"
                await run(far, restarts)
            assert len(server.of("initialize")) == 1 + restarts and far.status().restarts == restarts
        assert remote.ran == [1, 2] and far.status().state is UpstreamState.READY
        assert len(server.of("notifications/initialized")) == 3 and not server.of("DELETE")


@pytest.mark.first(2)
@pytest.mark.parametrize("form", ["404", "400 text", "400 own id", "200 own id", "stream nameless", "500"])
async def test_herd_at_a_lost_session_makes_one_initialize_at_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_BASE", "_CAP"):  # the pause after a failure is longer than anybody waits here
        monkeypatch.setattr(lifecycle, limit, 24 * WAIT)
    remote = Restarting(refuse=FORMS[form])
    outcomes: list[str] = []

    async def one(n: int) -> None:
        try:
            await run(far, n, 6 * WAIT)
        except UpstreamLost as lost:
            outcomes.append(str((lost.data or {})["outcome"]))

    async with up(remote) as (server, far):
        remote.restart()
        async with anyio.create_task_group() as tasks:
            for n in range(140):
                tasks.start_soon(one, n)
        assert len(server.of("initialize")) == 2
        assert sorted(remote.ran) == sorted(set(remote.ran)) and len(remote.ran) + len(outcomes) == 140
        if form in SENT_AGAIN:
            assert not outcomes and far.status().restarts == 1
            assert not server.of("DELETE"), "there is nothing to end"
        await run(far)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "reset"])
async def test_session_that_answers_a_ping_lives_whatever_a_call_is_answered(form: str) -> None:
    remote = Restarting(answers={"tools/call": FORMS[form]})
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        for _ in range(6):
            with pytest.raises(RpcError):
                await run(far)
            if form.startswith("404") or form == "400 nameless":
                break  # two in a row are those of a lost session
        assert len(server.of("initialize")) == 1 and far.status().restarts == 0
        assert far.status().state is UpstreamState.READY


@pytest.mark.parametrize("form", ["404", "400 nameless"])
async def test_server_that_denies_the_session_twice_has_lost_it_though_it_answers_pings(form: str) -> None:
    remote = Restarting(refuse=FORMS[form])

    async def answer_any(request: Request, reply: Reply) -> None:
        await reply.result(request, {})

    async def unless_ping(request: Request, reply: Reply) -> None:
        await (answer_any if request.rpc == "ping" else FORMS[form])(request, reply)

    remote.refuse = unless_ping
    async with up(remote) as (server, far):
        remote.restart()
        with pytest.raises(RpcError):
            await run(far)
        await run(far, 1)
        assert remote.ran == [1] and len(server.of("initialize")) == 2


@pytest.mark.parametrize("code", [-32601, -32000])
async def test_session_of_a_server_without_ping_lives_while_a_new_one_refuses_it_alike(code: int) -> None:
    remote = Restarting(pings=False, answers={"tools/call": error(200, code, "no")})
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        for _ in range(3):
            with pytest.raises(RpcError) as refused:
                await run(far)
            assert refused.value.code == code
        assert far.status().restarts == 0
        assert len(server.of("initialize")) == 2, "the checks that follow come ever later"
        assert len(server.of("DELETE")) == 1, "the session that was begun for the check is ended"


async def test_session_of_a_server_without_ping_is_found_lost() -> None:
    async with up(remote := Restarting(pings=False, refuse=FORMS["400 text"])) as (server, far):
        remote.restart()
        await run(far, 1)
        assert remote.ran == [1] and len(server.of("initialize")) == 2


async def test_session_outlives_a_proxy_that_refuses_everything_for_a_while() -> None:
    remote = Restarting()
    async with up(remote) as (server, far):
        bad = {"tools/call": FORMS["502"], "ping": FORMS["502"]}
        remote.answers, remote.does = bad, {"initialize": FORMS["502"]}
        with pytest.raises(RpcError):
            await run(far)
        remote.answers, remote.does = {}, {}
        await run(far, 1)
        assert remote.ran == [1] and far.status().restarts == 0


async def test_refused_stream_of_a_session_shows_the_loss_before_any_call(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Restarting(refuse=FORMS["400 text"])
    cut = anyio.Event()

    async def listen(request: Request, reply: Reply) -> None:
        if request.headers.get("mcp-session-id") != remote.session:
            return await FORMS["400 text"](request, reply)
        stream = await reply.stream()
        await stream.event(id="1", retry=50)
        await cut.wait()
        await stream.end()

    remote.does = {"GET": listen}
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        remote.restart()
        cut.set()
        await ready(far, 1)
        assert len(server.of("initialize")) == 2 and not server.of("tools/call")


async def test_new_session_gets_the_cookies_of_its_own_initialize() -> None:
    remote = Restarting(refuse=FORMS["400 text"])

    async def begin(request: Request, reply: Reply) -> None:
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "x"}}
        session = str(remote.session)
        await reply.result(request, result, Mcp_Session_Id=session, Set_Cookie=f"replica={session}; Path=/")

    remote.does = {"initialize": begin}
    async with up(remote) as (server, far):
        remote.restart()
        await run(far)
        assert [call.headers["cookie"] for call in server.of("tools/call")] == ["replica=s-1"] * 2 + ["replica=s-2"]
        assert "cookie" not in server.of("initialize")[1].headers


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.supervision.server._PINGS", (0.0, 0.01, 0.02))
    monkeypatch.setattr(session_check, "_PAUSE", 0.0)


@pytest.mark.parametrize("session", ["s-1", None])
async def test_server_whose_last_requests_all_failed_is_not_ready(session: str | None, no_pauses: None) -> None:
    remote = Remote(session=session)
    states: list[UpstreamState] = []
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        refuse = FORMS["502"]
        remote.does = {"tools/call": refuse, "ping": refuse, "initialize": refuse, "tools/list": refuse}
        far.state.rules = SupervisorRules(ready_wait=0.1)
        for _ in range(peer_state.MOST_FAILURES):
            with pytest.raises(RpcError):
                await run(far)
            states.append(far.status().state)
        assert states[-1] is not UpstreamState.READY
        status = far.status()
        assert status.code == "server_error" and "HTTP 502" in (status.reason or "")
        remote.does = {}
        await ready(far)
        await run(far)


async def test_server_that_answers_its_pings_stays_ready_though_its_calls_fail(no_pauses: None) -> None:
    remote = Remote(session=None)

    async def pong(request: Request, reply: Reply) -> None:
        await reply.result(request, {})

    remote.does = {"tools/call": FORMS["500"], "ping": pong}
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        for _ in range(3):
            with pytest.raises(RpcError):
                await run(far)
        await server.until("ping")
        with anyio.fail_after(WAIT):
            peer = far.state.peer
            assert peer is not None
            while peer.signs.failures:
                await anyio.lowlevel.checkpoint()
        assert far.status().state is UpstreamState.READY and far.status().restarts == 0


async def test_errors_of_a_server_are_answers_of_its_own() -> None:
    remote = Remote(session=None, does={"tools/call": error(200, -32602, "no")})
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        for _ in range(peer_state.MOST_FAILURES + 1):
            with pytest.raises(RpcError):
                await run(far)
        assert far.status().state is UpstreamState.READY and not server.of("ping")

"""A remote server that is kept up: forgotten sessions, servers that go and come back, headers that have changed."""

import json
from typing import Any

import anyio
import msgspec
import pytest

from mcp_hub.call import Call
from mcp_hub.errors import RpcError, UpstreamLost, UpstreamUnavailable
from mcp_hub.events import Completed
from mcp_hub.types import Cause, Era, Kind, UpstreamState
from mcp_hub.upstreams.supervision import lifecycle
from mcp_hub.upstreams.supervision.lifecycle import Life
from mcp_hub.upstreams.supervision.managed_upstream import ManagedUpstream
from mcp_hub.upstreams.supervision.server import SupervisorRules
from tests.unit.upstreams.function_calls import Recorder, request
from tests.unit.upstreams.remote import Remote, answering, ready, supervised, tool
from tests.unit.wire.http_server import Reply, Request, serving
from tests.unit.wire.raw_lines import WAIT, group, within

pytestmark = pytest.mark.anyio


def call(name: str = "x", **arguments: object) -> Call:
    return msgspec.structs.replace(request(name, arguments), upstream="far")


async def run(far: ManagedUpstream, name: str = "x", **arguments: object) -> Completed:
    return await within(far.call(call(name, **arguments), Recorder()))


NO_SESSION = {"error": {"code": -32000, "message": "Bad Request: No valid session ID provided"}}
NOT_FOUND = {"error": {"code": -32001, "message": "Session not found"}}


@pytest.mark.parametrize("refusal", [(400, NO_SESSION), (404, NOT_FOUND), (405, None)])
async def test_server_that_leaves_its_era_is_found_out(
    refusal: tuple[int, dict[str, Any] | None], any_session_counts: None
) -> None:
    remote = Remote(modern=True)
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        await run(far)

        async def of_the_handshake_era(request: Request, reply: Reply) -> None:
            if request.headers.get("mcp-session-id") == remote.session:
                return await reply.result(request, {"content": []})
            await answering(*refusal)(request, reply)

        remote.modern, remote.does = False, {"tools/call": of_the_handshake_era}
        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(run, far)
        assert far.status().era is Era.HANDSHAKE and far.status().restarts == 1
        assert len(server.of("initialize")) == 1


@pytest.mark.parametrize(
    ("status", "code", "is_doubtful"), [(400, -32000, True), (404, -32601, False), (200, 1, False)]
)
async def test_modern_server_that_refuses_a_call_is_asked_its_era(status: int, code: int, is_doubtful: bool) -> None:
    remote = Remote(modern=True)
    remote.does = {"tools/call": answering(status, {"error": {"code": code, "message": "no"}})}
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        for _ in range(3):
            with pytest.raises(RpcError) as caught:
                await run(far)
            assert caught.value.code == code
        assert len(server.of("server/discover")) == 1 + is_doubtful
        assert far.status().restarts == 0 and len(server.of("tools/call")) == 3


async def test_a_session_that_is_forgotten_again_and_again_fails_the_call(any_session_counts: None) -> None:
    async with serving(Remote(does={"tools/call": answering(404)})) as server, supervised(server) as far:
        await ready(far)
        with pytest.raises(UpstreamUnavailable) as caught:
            await run(far)
        assert len(server.of("tools/call")) == 2
    why = "did not take the request, also over a new connection: the server no longer knows the session"
    assert caught.value.message == f'server "{far.name}" {why}'


@pytest.mark.slow
async def test_a_session_that_is_lost_before_it_is_ready_is_a_failure(any_session_counts: None) -> None:
    async with serving(Remote(does={"tools/list": answering(404)})) as server, supervised(server) as far:
        await server.until("initialize", 2)
        assert far.status().restarts == 1 and len(far.supervisor.life.deaths) == 1
        assert len(server.of("initialize")) == 2


LOST = Cause("session_lost", "lost")


def test_only_what_was_ready_begins_anew_without_a_pause() -> None:
    begun = lifecycle.ready(Life())
    assert lifecycle.renewed(begun, LOST).state is UpstreamState.STARTING
    for life in (Life(), lifecycle.stopped(begun), lifecycle.gave_up(begun, Cause("crashed", "x"))):
        assert lifecycle.renewed(life, LOST) == life


@pytest.mark.slow
async def test_calls_fail_typed_while_the_server_is_away_and_work_when_it_is_back() -> None:
    remote = Remote()
    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        assert await run(far)

        async def slow(request: Request, reply: Reply) -> None:
            await reply.gone()

        async def caught() -> None:
            with pytest.raises(UpstreamLost) as error:
                await run(far)
            assert (error.value.data or {})["outcome"] == "unknown"

        remote.does["tools/call"] = slow
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(caught)
            await server.until("tools/call", 2)
            await server.close()
        with anyio.fail_after(WAIT), pytest.raises(UpstreamUnavailable, match="Connection refused"):
            far.state.rules = SupervisorRules(ready_wait=0.1)
            while True:
                await far.call(call(), Recorder())
        assert far.status().state is not UpstreamState.READY
        async with serving(Remote(session="other"), server.port):
            await ready(far)
            assert await run(far)


REGION = {"type": "string", "x-mcp-header": "Region"}


async def test_headers_that_have_changed_are_learnt_and_the_call_repeated_once() -> None:
    remote = Remote(modern=True)

    async def strict(request: Request, reply: Reply) -> None:
        if request.headers.get("mcp-param-region") != "eu":
            return await reply.error(request, -32020)
        await reply.result(request, {"content": []})

    async with serving(remote) as server, supervised(server) as far:
        await ready(far)
        remote.tools, remote.does = [tool("x", region=REGION)], {"tools/call": strict}
        assert await run(far, region="eu")
        assert [len(server.of(method)) for method in ("tools/list", "tools/call")] == [2, 2]
        with pytest.raises(RpcError) as refused:
            await run(far)
        assert refused.value.code == -32020 and len(server.of("tools/call")) == 4


@pytest.mark.parametrize("modern", [True, False])
async def test_a_tool_with_annotations_against_the_rules_is_left_out_where_they_count(modern: bool) -> None:
    bad = tool("bad", region={"type": "number", "x-mcp-header": "Region"})
    async with serving(Remote(modern=modern, tools=[bad, tool("good")])) as server, supervised(server) as far:
        await ready(far)
        snapshot = far.snapshot()
        assert snapshot is not None
        names = [json.loads(raw)["name"] for raw in snapshot.lists[Kind.TOOL]]
        assert names == (["good"] if modern else ["bad", "good"])
        expected: Any = ("tools: bad is left out: region: x-mcp-header is for strings, integers and booleans only",)
        assert far.status().warnings == (expected if modern else ())


async def test_what_is_cancelled_reaches_the_server_in_the_words_of_its_era() -> None:
    for modern in (True, False):
        gone = anyio.Event()

        async def slow(request: Request, reply: Reply, gone: anyio.Event = gone) -> None:
            await reply.gone()
            gone.set()

        async with serving(Remote(modern=modern, does={"tools/call": slow})) as server, supervised(server) as far:
            await ready(far)
            async with group() as tasks:
                tasks.start_soon(run, far)
                await server.until("tools/call")
            await within(gone.wait())
            if not modern:
                await server.until("notifications/cancelled")
            assert len(server.of("notifications/cancelled")) == (0 if modern else 1)

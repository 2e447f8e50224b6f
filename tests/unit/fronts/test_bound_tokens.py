"""A token that is bound to a profile: the streams of its servers are its own, and it operates nothing."""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.fronts.http.admission import Admission
from tests.unit.fakes import HandClock
from tests.unit.fronts.dashboard_peer import dashboard_hub
from tests.unit.fronts.rest_peer import (
    ALICE,
    BOB,
    ELSEWHERE,
    NARROW,
    OPERATOR,
    RestPeer,
    modern_request,
    problem,
    rest_hub,
)
from tests.upstreams.child import WAIT

UNKNOWN = "st_00000000000000000000000000"


async def mcp(peer: RestPeer, method: str, params: dict[str, Any], token: str) -> Any:
    """The error or the result of a modern request over `/mcp`."""
    extensions: dict[str, object] = {"dev.mcp-hub/streams": {}, "io.modelcontextprotocol/tasks": {}}
    # clients that take tasks are not offered the hub's own tools
    capabilities: dict[str, object] = {} if method == "tools/call" else {"extensions": extensions}
    body, headers = modern_request(method, params, capabilities)
    answer = json.loads((await peer.ask("POST", "/mcp", body, headers=headers, token=token)).body)
    return answer.get("error") or answer["result"]


@pytest.mark.parametrize("token", [BOB, ELSEWHERE], ids=["of another principal", "beyond the profile"])
@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        *(("GET", f"/events?{query}", None) for query in ("", "after=999", "wait=0")),
        ("POST", "/input", {"key": "q1", "action": "accept"}),
        ("POST", "/input", {"key": "k", "action": "decline"}),
    ],
)
async def test_a_stream_of_a_server_beyond_the_profile_is_as_unknown_as_one_that_never_was(
    peer: RestPeer, token: str, method: str, rest: str, body: object
) -> None:
    running = await peer.detached("hold", {"nonce": "a"})
    ended = (await peer.call("echo", {"text": "x"}).ended()).json["stream"]
    answers = []
    for id_ in (running, ended, UNKNOWN, "x", "%2e%2e"):
        response = await peer.ask(method, f"/v1/streams/{id_}{rest}", body, token=token)
        problem(response, 404, "unknown_stream")
        answers.append((response.status, response.headers, response.body))
    assert all(answer == answers[0] for answer in answers)
    assert (await peer.ask("GET", f"/v1/streams/{running}", token=NARROW)).json["status"] == "working"


async def test_the_list_of_streams_has_those_of_the_profiles_servers(peer: RestPeer) -> None:
    stream = (await peer.call("echo", {"text": "x"}).ended()).json["stream"]
    listed = [(await peer.ask("GET", "/v1/streams?limit=1", token=token)).json for token in (NARROW, ELSEWHERE)]
    assert [[own["stream"] for own in page["streams"]] for page in listed] == [[stream], []]


@pytest.mark.parametrize("method", ["dev.mcp-hub/streams.read", "tasks/get", "tasks/cancel"])
async def test_mcp_requests_find_no_stream_beyond_the_profile(mcp_peer: RestPeer, method: str) -> None:
    running = await mcp_peer.detached("hold", {"nonce": "a"})
    key = "taskId" if method.startswith("tasks/") else "stream"
    params = [{key: id_} for id_ in (running, UNKNOWN)]
    foreign, never = [await mcp(mcp_peer, method, given, ELSEWHERE) for given in params]
    assert foreign["code"] == -32602 and foreign == never
    assert "code" not in await mcp(mcp_peer, method, params[0], NARROW)


async def test_the_hubs_own_tools_find_no_stream_beyond_the_profile(mcp_peer: RestPeer) -> None:
    ended = (await mcp_peer.call("echo", {"text": "words of it"}).ended()).json["stream"]
    for arguments in ({"id": ended}, {}):
        params = {"name": "hub_calls", "arguments": arguments}
        answers = [await mcp(mcp_peer, "tools/call", params, token) for token in (NARROW, ELSEWHERE)]
        assert ["words of it" in json.dumps(answer) for answer in answers] == [True, False]


async def test_a_bound_token_can_neither_restart_a_server_nor_reload(peer: RestPeer) -> None:
    running = await peer.detached("hold", {"nonce": "a"})
    await peer.tools.has_come("a")
    for path in ("/v1/servers/local/restart", "/v1/servers/nothing/restart", "/v1/reload"):
        problem(await peer.ask("POST", path, token=NARROW), 403, "profile_bound")
    peer.tools.go.set()
    assert (await peer.until(running, "completed", "failed"))["status"] == "completed"
    problem(await peer.ask("POST", "/v1/servers/nothing/restart", token=OPERATOR), 404, "unknown_server")


async def test_only_an_operator_restarts_and_reloads_and_sees_output_of_servers(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True) as peer:
        for path in ("/v1/servers/local/restart", "/v1/servers/nothing/restart", "/v1/reload"):
            for prefix in ("", "/api"):
                problem(await peer.ask("POST", f"{prefix}{path}", {}, token=ALICE), 403, "operator_required")
                problem(await peer.ask("POST", f"{prefix}{path}", {}, token=NARROW), 403, "profile_bound")
        for token in (OPERATOR, peer.front.operator):
            problem(await peer.ask("POST", "/v1/servers/nothing/restart", {}, token=token), 404, "unknown_server")
            assert (await peer.ask("POST", "/v1/reload", {}, token=token)).status == 200
            problem(await peer.ask("POST", "/v1/reload?profile=narrow", {}, token=token), 403, "profile_bound")
        assert peer.app.reloader.applied == 2


async def test_without_tokens_this_machine_operates_and_a_network_does_not(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path) as peer:
        assert (await peer.ask("POST", "/v1/reload", {}, token=None)).status == 200
    async with dashboard_hub(tmp_path, is_local=False) as peer:
        problem(await peer.ask("POST", "/v1/reload", {}, token=None), 403, "operator_required")
        assert (await peer.ask("POST", "/v1/reload", {}, token=peer.front.operator)).status == 200


async def test_restarts_and_reloads_have_a_rate_each(tmp_path: Path) -> None:
    clock = HandClock()
    async with rest_hub(tmp_path, admission=Admission(clock, admin_rate=1)) as peer:
        for path, status in (("/v1/servers/nothing/restart", 404), ("/v1/reload", 422)):
            assert {(await peer.ask("POST", path, token=OPERATOR)).status for _ in range(10)} == {status}
            refused = problem(await peer.ask("POST", path, token=OPERATOR), 429, "busy")
            assert refused["limit"] == "admin_rate"
        clock.time += 1
        problem(await peer.ask("POST", "/v1/servers/nothing/restart", token=OPERATOR), 404, "unknown_server")


@pytest.mark.processes
async def test_output_of_servers_is_for_operators(tmp_path: Path) -> None:
    said = "import sys; print('stray canary', flush=True); sys.exit('ValueError: canary of alice')"
    noisy = {"command": sys.executable, "args": ["-c", said], "restart": {"intensity": 0}}
    async with dashboard_hub(tmp_path, tokens=True, servers={"noisy": noisy}) as peer:
        with anyio.fail_after(WAIT):
            while b"canary of alice" not in (await peer.ask("GET", "/v1/servers", token=OPERATOR)).body:
                await peer.app.changes.wait(peer.app.changes.version)
        places = ["/v1/servers", "/v1/servers/noisy", "/api/v1/servers", "/api/state", "/readyz?verbose"]
        for place in places:
            for token in (ALICE, OPERATOR):
                shown = await peer.ask("GET", place, token=token)
                assert (b"canary" in shown.body) is (token == OPERATOR), shown.body
                assert b"noisy" in shown.body

"""What a call leaves behind goes at once: garbage that only the collector finds made a busy hub grow by megabytes."""

import gc
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from mcp_hub.calls.runner import CallRecord
from mcp_hub.fronts.http.request import CallWriter
from mcp_hub.fronts.mcp.responder import CallResponder
from tests.unit.fronts.rest_peer import RestPeer, modern_request
from tests.upstreams.messages import rpc

CALLS = 30
ECHO = {"name": "echo", "arguments": {"text": "x"}}


def left() -> int:
    return sum(isinstance(each, CallRecord | CallWriter | CallResponder) for each in gc.get_objects())


async def of_handshake(peer: RestPeer) -> Callable[[], Awaitable[Any]]:
    headers = {**await peer.session(), "mcp-protocol-version": "2025-11-25"}
    call = rpc("tools/call", {**ECHO, "_meta": {"progressToken": 1}}, id=1)
    return lambda: peer.ask("POST", "/mcp", call, headers=headers)


async def of_modern(peer: RestPeer) -> Callable[[], Awaitable[Any]]:
    call, headers = modern_request("tools/call", ECHO, client="c")
    return lambda: peer.ask("POST", "/mcp", call, headers=headers)


async def of_rest(peer: RestPeer) -> Callable[[], Awaitable[Any]]:
    return lambda: peer.ask("POST", "/v1/tools/echo/call", {"arguments": {"text": "x"}})


@pytest.mark.slow
@pytest.mark.parametrize("begin", [of_handshake, of_modern, of_rest])
async def test_calls_leave_nothing_to_the_collector(
    begin: Callable[[RestPeer], Awaitable[Callable[[], Awaitable[Any]]]], mcp_peer: RestPeer, without_collector: None
) -> None:
    call = await begin(mcp_peer)
    assert b'"x"' in (await call()).body
    await anyio.wait_all_tasks_blocked()
    before = left()
    for _ in range(CALLS):
        assert (await call()).status == 200
    await anyio.wait_all_tasks_blocked()
    assert left() - before < CALLS / 3

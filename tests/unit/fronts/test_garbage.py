"""What a call leaves behind goes at once: garbage that only the collector finds made a busy hub grow by megabytes."""

import gc
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import anyio
import pytest

from mcp_hub.calls.runner import CallRecord
from mcp_hub.fronts.http.request import CallWriter
from mcp_hub.fronts.mcp.responder import CallResponder
from tests.unit.fronts.rest_peer import RestPeer
from tests.upstreams.messages import modern

pytestmark = pytest.mark.anyio

CALLS = 30
ACCEPT = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}


@pytest.fixture
def uncollected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def left() -> int:
    return sum(isinstance(each, CallRecord | CallWriter | CallResponder) for each in gc.get_objects())


def message(method: str, params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def of_handshake(peer: RestPeer) -> Callable[[], Awaitable[Any]]:
    info = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    begun = await peer.ask("POST", "/mcp", message("initialize", info), headers=ACCEPT)
    headers = {**ACCEPT, "mcp-session-id": begun.headers["mcp-session-id"]}
    call = message("tools/call", {"name": "echo", "arguments": {"text": "x"}, "_meta": {"progressToken": 1}})
    return lambda: peer.ask("POST", "/mcp", call, headers=headers)


async def of_modern(peer: RestPeer) -> Callable[[], Awaitable[Any]]:
    headers = {**ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "echo"}
    call = message("tools/call", modern({"name": "echo", "arguments": {"text": "x"}}))
    return lambda: peer.ask("POST", "/mcp", call, headers=headers)


async def of_rest(peer: RestPeer) -> Callable[[], Awaitable[Any]]:
    return lambda: peer.ask("POST", "/v1/tools/echo/call", {"arguments": {"text": "x"}})


@pytest.mark.slow
@pytest.mark.parametrize("begin", [of_handshake, of_modern, of_rest])
async def test_calls_leave_nothing_to_the_collector(
    begin: Callable[[RestPeer], Awaitable[Callable[[], Awaitable[Any]]]], mcp_peer: RestPeer, uncollected: None
) -> None:
    call = await begin(mcp_peer)
    assert b'"x"' in (await call()).body
    await anyio.wait_all_tasks_blocked()
    before = left()
    for _ in range(CALLS):
        assert (await call()).status == 200
    await anyio.wait_all_tasks_blocked()
    assert left() - before < CALLS / 3

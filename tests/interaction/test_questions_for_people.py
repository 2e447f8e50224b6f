"""Elicitations of clients that cannot be asked: while an operator's page is open, people answer in their place."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from mcp_hub.types import UpstreamState
from tests.unit.fronts.dashboard_peer import DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import NARROW, Response
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import entry
from tests.upstreams.messages import CLIENT

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

ACCEPT = {"accept": "application/json, text/event-stream"}
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}  # fmt: skip


@asynccontextmanager
async def hub(root: Path, *eras: str, **settings: Any) -> AsyncIterator[DashboardPeer]:
    """A hub with a server of each of these eras, which is ready."""
    servers = {era: entry(name=era, era=era) for era in eras}
    async with dashboard_hub(root, servers=servers, prefix="always", expose="full", **settings) as running:
        await until(lambda: all(own.state is UpstreamState.READY for own in running.app.hub.statuses()))
        yield running


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[DashboardPeer]:
    async with hub(tmp_path, "handshake", "modern") as running:
        yield running


async def session(peer: DashboardPeer) -> dict[str, str]:
    """The headers of a handshake client without capabilities."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
    body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
    made = await peer.ask("POST", "/mcp", body, headers=ACCEPT, token=None)
    return {**ACCEPT, "mcp-session-id": made.headers["mcp-session-id"]}


def asked(peer: DashboardPeer, tool: str, headers: dict[str, str] | None = None, **arguments: str) -> Response:
    """A call of a tool that asks, by a client of the handshake era with these headers, else of the modern one."""
    params: dict[str, Any] = {"name": tool, "arguments": arguments or {"nonce": "n"}}
    if headers is None:
        params["_meta"] = META
        headers = {
            **ACCEPT, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": tool
        }  # fmt: skip
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return peer.start("POST", "/mcp", body, headers=headers, token=None)


async def feed(peer: DashboardPeer, answers: str = "1", **options: Any) -> Response:
    """A page that is open."""
    response = peer.page("GET", f"/feed?after={(await peer.get('/state'))['cursor']}&answers={answers}", **options)
    await response.has(b"event: batch")
    return response


async def question(peer: DashboardPeer) -> tuple[str, str]:
    """The stream and the key of the one question that is open."""
    calls = peer.app.registry.under_way
    await until(lambda: any(one.questions.open for one in calls))
    (call,) = (own for own in (await peer.get("/state"))["live"] if own.get("questions"))
    ((key, _),) = next(own for own in calls if own.call.id == call["id"]).questions.open.items()
    return call["id"], key


@pytest.mark.first(2)
@pytest.mark.parametrize(("client", "server"), [("h", "handshake"), ("h", "modern"), ("m", "handshake")])
async def test_a_question_that_a_client_cannot_be_asked_is_answered_on_the_page(
    peer: DashboardPeer, client: str, server: str
) -> None:
    headers = await session(peer) if client == "h" else None
    await feed(peer)
    call = asked(peer, f"{server}_ask_form", headers)
    stream, key = await question(peer)
    body = {"key": key, "action": "accept", "content": {"text": "by a person"}}
    answered = await peer.post(f"/v1/streams/{stream}/input", body)
    assert answered.status < 300, answered.body
    response = await call.ended()
    assert b"by a person" in response.body and b"elicitation/create" not in response.body


async def test_without_a_page_that_may_answer_such_a_question_is_refused_at_once(peer: DashboardPeer) -> None:
    headers = await session(peer)
    response = await asked(peer, "handshake_ask_form", headers).ended()
    assert b"the client did not declare elicitation" in response.body
    await feed(peer)
    assert b"did not declare sampling" in (await asked(peer, "handshake_ask_sampling", headers).ended()).body


async def test_only_pages_of_operators_that_may_change_things_answer(tmp_path: Path) -> None:
    async with dashboard_hub(tmp_path, tokens=True, mode="read") as peer:
        await feed(peer)
        assert not peer.app.seen.operators.are_there
    async with dashboard_hub(tmp_path, tokens=True) as peer:
        await feed(peer, token=NARROW)
        await feed(peer, answers="")
        assert not peer.app.seen.operators.are_there
        page = await feed(peer)
        assert peer.app.seen.operators.are_there
        page.leave()
        await page.done.wait()
        assert peer.app.seen.operators.are_there, "a reload takes a moment"


async def test_questions_are_declined_when_the_last_page_has_left(
    peer: DashboardPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = peer.app.seen.operators
    headers = await session(peer)
    with people.here():
        call = asked(peer, "handshake_ask_form", headers)
        await question(peer)
    with people.here():  # the page is back
        await question(peer)
        monkeypatch.setattr(people, "_grace", 0.01)
    response = await call.ended()
    assert b"the people at the hub have left" in response.body
    await until(lambda: not people.are_there)


async def test_a_client_with_a_soft_deadline_waits_for_the_people_by_hub_calls(tmp_path: Path) -> None:
    clients = {CLIENT["name"]: {"soft_deadline": 0.3}}
    async with hub(tmp_path, "handshake", clients=clients) as peer:
        headers = await session(peer)
        await feed(peer)
        early = (await asked(peer, "handshake_ask_form", headers).ended()).body
        assert b"The tool waits for people at the hub: elicitation/create" in early and b"it asks again" not in early
        stream, key = await question(peer)
        waiting = asked(peer, "hub_calls", headers, id=stream)
        await until(lambda: len(peer.app.registry.under_way) == 2)
        await peer.get("/clients")
        assert await question(peer) == (stream, key), "it is asked once"
        body = {"key": key, "action": "accept", "content": {"text": "by a person"}}
        assert (await peer.post(f"/v1/streams/{stream}/input", body)).status < 300
        said = (await waiting.ended()).body
        with anyio.fail_after(WAIT):
            while b"by a person" not in said:  # a slow machine: the wait had its own deadline before
                said = (await asked(peer, "hub_calls", headers, id=stream).ended()).body
        assert b"jsonrpc" in said and b'"method":"elicitation/create"' not in said

"""A second principal walks every route of every front, and finds and changes nothing of the first."""

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import anyio
import jwt
import pytest
from cryptography.fernet import Fernet

from mcp_hub.calls.hub_tools import own_tools
from mcp_hub.calls.results.long_results import READ_RESULT
from mcp_hub.catalog import texts
from mcp_hub.fronts.dashboard import api
from mcp_hub.fronts.rest.routes import ROUTES
from mcp_hub.protocol import eras
from mcp_hub.types import Era
from tests.unit.fronts import walked_routes as walked
from tests.unit.fronts.dashboard_peer import TOKENS, DashboardPeer, dashboard_hub
from tests.unit.fronts.rest_peer import ALICE, BOB, BOTH, SSE, Response, modern_request
from tests.unit.fronts.walked_routes import CANARY, MARK, UNKNOWN, Ids, filled
from tests.upstreams.child import WAIT

CAROL: Final = "carol-token"
KEY: Final = "a key of at least thirty-two bytes"
ISSUER: Final = {"issuer": "https://auth.example.com", "shared_key": KEY}
HANDSHAKE: Final = "2025-06-18"
FORM: Final = {"content-type": "application/x-www-form-urlencoded"}
OF_ITS_OWN: Final = re.compile(r"read_result: '\w+' is not found")
"""What the second principal's own calls say about ids that it has asked for."""


def access_token() -> str:
    said = {"iss": ISSUER["issuer"], "aud": "https://hub.example.com/mcp", "sub": "alice", "exp": time.time() + 86_400}
    return jwt.encode(said, KEY, algorithm="HS256", headers={"typ": "at+jwt"})


SNOOPERS: Final = {"a token": BOB, "a bound token": CAROL, "an access token": access_token()}


@asynccontextmanager
async def shared_hub(root: Path) -> AsyncIterator[DashboardPeer]:
    tokens = [*TOKENS, {"token": CAROL, "principal": "carol", "profile": "narrow"}]
    http = {
        "public_url": "https://hub.example.com",
        "oauth": {"resource": "https://hub.example.com/mcp", "issuers": [ISSUER]},
    }
    own = {"url": "http://127.0.0.1:9/mcp", "account": "own", "headers": {"X-Key": "${account:KEY}"}}
    accounts = {"key": Fernet.generate_key().decode()}
    async with dashboard_hub(
        root, tokens=True, http=http, history={"arguments": "full"}, servers={"own": own}, accounts=accounts
    ) as peer:
        path = peer.app.seen.config
        settings = json.loads(path.read_text())
        settings["hub"]["tokens"] = tokens
        path.write_text(json.dumps(settings))
        assert (await peer.app.reloader.reload("request")).is_applied
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(peer.front.run)
            yield peer
            tasks.cancel_scope.cancel()


def of_handshake(session: str, method: str, params: dict[str, Any], id_: int = 1) -> Any:
    headers = {"mcp-session-id": session, **BOTH}
    if method == "initialize":
        params = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "claude-ai", "version": "1"}}
        del headers["mcp-session-id"]
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}, headers


async def opened(peer: DashboardPeer, token: str) -> str:
    """The id of a handshake session."""
    headers = await peer.session(HANDSHAKE, token, name="claude-ai", version="1")
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await peer.ask("POST", "/mcp", note, headers=headers, token=token)).status == 202
    return headers["mcp-session-id"]


class Alice:
    """The first principal: calls that run, ask and have ended, a kept result, a session, an old one, an executor."""

    def __init__(self, peer: DashboardPeer) -> None:
        self.peer = peer
        self.ids = UNKNOWN
        self.request: Response | None = None
        self.sse: Response | None = None

    async def begin(self) -> Ids:
        peer = self.peer
        assert (await peer.ask("PUT", "/v1/accounts/own/values/KEY", {"value": CANARY})).status == 200
        ticket, proof, code = await self.log_in()
        tool = {"name": "build", "inputSchema": {"type": "object"}}
        assert (await peer.ask("PUT", "/v1/executors/worker-1", {"tools": [tool]})).json["epoch"] == 1
        asking = await peer.detached("build", {"text": CANARY})
        (offer,) = (await peer.ask("GET", "/v1/executors/worker-1/calls?epoch=1")).json["offers"]
        question = {"key": "q1", "method": "elicitation/create", "params": {"message": CANARY, "requestedSchema": {}}}
        post = {"tool_call_id": offer["tool_call_id"], "events": [{"type": "input-required", "data": question}]}
        sent = {"producer-epoch": "1", "producer-seq": "1"}
        assert (await peer.ask("POST", "/v1/tool-results/stream", post, headers=sent)).status == 200
        running = await peer.detached("hold", {"nonce": CANARY}, **{"idempotency-key": "k1"})
        ended = (await peer.call("echo", {"text": CANARY}, headers={"idempotency-key": "k2"}).ended()).json["stream"]
        await peer.call("fail", {"text": CANARY}).ended()
        body, headers = modern_request("tools/call", {"name": "echo", "arguments": {"text": f"{CANARY} word " * 9000}})
        cut = await peer.ask("POST", "/mcp", body, headers=headers)
        (result,) = set(re.findall(r"read_result id=(r\w+)", cut.body.decode()))
        session = await opened(peer, ALICE)
        params = {"name": "hold", "arguments": {"nonce": f"{CANARY} 2"}, "_meta": {"progressToken": 1}}
        body, headers = of_handshake(session, "tools/call", params, 7)
        self.request = peer.start("POST", "/mcp", body, headers=headers)
        self.sse = peer.start("GET", "/sse", headers=SSE)
        await self.sse.has(b"sessionId=")
        old = re.findall(rb"sessionId=(\S+)", self.sse.body)[0].decode()
        await peer.tools.has_come(f"{CANARY} 2")
        await peer.app.journal.flush()
        self.ids = Ids(
            running, ended, asking, "q1", result, session, f"{running}:1", old, "worker-1", offer["tool_call_id"],
            code=code, ticket=ticket, proof=proof,
        )  # fmt: skip
        return self.ids

    async def log_in(self) -> tuple[str, str, str]:
        """The used ticket, the proof and the code of a login that awaits its code."""
        peer = self.peer
        ticket = (await peer.ask("POST", "/v1/accounts/own/login", {})).json["url"].partition("?t=")[2]
        page = await peer.ask("POST", "/login/own", f"t={ticket}".encode(), headers=FORM, token=None)
        (proof,) = set(re.findall(r'name="proof" value="([^"]*)"', page.body.decode()))
        body = urlencode({"proof": proof, "v:KEY": f"{CANARY}-2"}).encode()
        headers = {**FORM, "cookie": page.headers["set-cookie"].partition(";")[0]}
        page = await peer.ask("POST", "/login-form/own", body, headers=headers, token=None)
        return ticket, proof, re.findall(r'class="code">(\d{6})<', page.body.decode())[0]

    async def finds_all_as_it_was(self) -> None:
        peer, ids = self.peer, self.ids
        status = {
            id_: (await peer.ask("GET", f"/v1/streams/{id_}")).json for id_ in (ids.running, ids.asking, ids.ended)
        }
        assert [own["status"] for own in status.values()] == ["working", "input_required", "completed"]
        assert peer.tools.cancelled == [] and self.request is not None and not self.request.is_complete
        body, headers = of_handshake(ids.session, "ping", {}, 8)
        assert (await peer.ask("POST", "/mcp", body, headers=headers)).status == 200, "the session is there"
        ping, _ = of_handshake("", "ping", {}, 9)
        answer = await peer.ask("POST", f"/messages?sessionId={ids.sse}", ping)
        assert answer.status == 202 and self.sse is not None
        await self.sse.has(b'"id":9')
        assert b"forged" not in self.sse.body
        done = {"tool_call_id": ids.call, "content": CANARY, "complete": True}
        sent = {"producer-epoch": "1", "producer-seq": "2"}
        assert (await peer.ask("POST", "/v1/tool-results/stream", done, headers=sent)).status == 200
        accounts = peer.app.operations.applier.sources.accounts
        account = None if accounts is None else await accounts.read("own", "alice")
        assert account is not None and account.values == {"KEY": CANARY}
        assert (await peer.ask("POST", "/v1/accounts/own/confirm", {"code": ids.code})).status == 200
        again = await peer.detached("hold", {"nonce": CANARY}, **{"idempotency-key": "k1"})
        assert again == ids.running, "the key is still hers"


class Snooper:
    """A second principal, who knows every id of the first."""

    def __init__(self, peer: DashboardPeer, token: str, ids: Ids) -> None:
        self.peer = peer
        self.token = token
        self.ids = ids
        self.listening: list[Response] = []

    async def listen(self) -> None:
        """Opens everything that tells news."""
        cursor = (await self.peer.get("/state", token=self.token))["cursor"]
        session = await opened(self.peer, self.token)
        body, headers = modern_request(
            "subscriptions/listen",
            {"notifications": {"toolsListChanged": True, "taskIds": [self.ids.running, self.ids.asking]}},
            {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        )
        start = partial(self.peer.start, token=self.token)
        self.listening += [
            start("GET", f"/api/feed?after={cursor}&answers=1"),
            start("GET", "/sse", headers=SSE),
            start("GET", "/mcp", headers={**SSE, "mcp-session-id": session}),
            start("POST", "/mcp", body, headers=headers),
        ]
        for response in self.listening:
            with anyio.fail_after(WAIT):
                while not response.status:
                    await anyio.lowlevel.checkpoint()
            assert response.status == 200, response.body

    async def ask(self, method: str, path: str, body: object = None, headers: Any = None) -> Response:
        """What the request brings with the ids of the first; the answer is that of ids which never were."""
        answers = []
        for ids in (self.ids, UNKNOWN):
            request = target, sent, more = filled([path, body, headers or {}], ids)
            response = self.peer.start(method, target, sent, headers={**MARK, **more}, token=self.token)
            await response.ended()
            self.is_clean(response, json.dumps(request))
            answers.append(response)
        if request != filled([path, body, headers or {}], self.ids):
            foreign, never = answers
            assert foreign.status == never.status, path
            assert blank(foreign.body, self.ids) == blank(never.body, UNKNOWN), path
        return answers[0]

    def is_clean(self, response: Response, request: str) -> None:
        """The response has nothing of the first principal but what the request has."""
        text = OF_ITS_OWN.sub("", response.body.decode("utf-8", "replace"))
        assert CANARY not in text and '"alice"' not in text, request
        assert not [id_ for id_ in self.ids.all if id_ in text and id_ not in request], request


def blank(body: bytes, ids: Ids) -> str:
    """The body without the ids of the request, and without ids and times of the answer itself."""
    text = body.decode()
    for id_ in ids.all:
        text = text.replace(id_, "ID")
    return re.sub(r'st_\w{26}|"(created|updated|expires|at)":[^,}]*|ttl\w*":\d+', "", text)


def all_routes() -> set[str]:
    return {f"{route.method} {route.path}" for route in ROUTES}


async def test_every_route_is_walked(tmp_path: Path) -> None:
    async with shared_hub(tmp_path) as peer:
        paths = peer.front.endpoints.paths
        dashboard = {f"{method} {path}" for path, methods in peer.front.dashboard.routes.items() for method in methods}
        assets = {
            path
            for path in paths
            if path.startswith(
                ("/dashboard/", "/.well-known/", "/favicon", "/ask/ask.", "/ask/style.", "/v1/events/in/")
            )
        }
        methods = {era: {own for own in every_method() if eras.serves(era, own)} for era in Era}
        added = set(peer.app.binding.added)
    assert all_routes() == set(walked.REST), "list each new route of REST in walked_routes"
    assert dashboard == set(walked.DASHBOARD), "list each new route of the dashboard in walked_routes"
    pages = {path.partition("?")[0] for path in walked.PAGES}
    assert paths - assets == {*pages, *walked.FRONTS, *walked.MOUNTS}, "list each new path in walked_routes"
    both = {"dev.mcp-hub/streams.read", *(f"events/{name}" for name in ("poll", "stream", "subscribe", "unsubscribe"))}
    assert methods[Era.HANDSHAKE] | both == set(walked.HANDSHAKE_METHODS)
    assert methods[Era.MODERN] | added == set(walked.MODERN_METHODS)


def every_method() -> set[str]:
    return set().union(*eras.METHODS.values())


def test_every_method_and_tool_of_mcp_is_walked() -> None:
    own = {json.loads(raw)["name"] for raw in (*own_tools.OFFERED, texts.READ_RESULT, texts.READING_TOOL)}
    assert own | {texts.FIND, texts.RUN, READ_RESULT} == walked.OWN_TOOLS
    for methods in (walked.HANDSHAKE_METHODS, walked.MODERN_METHODS):
        assert {params["name"] for params in methods["tools/call"]} == walked.OWN_TOOLS


@pytest.mark.parametrize("kind", SNOOPERS)
async def test_no_route_shows_or_does_anything_of_another_principal(tmp_path: Path, kind: str) -> None:
    async with shared_hub(tmp_path) as peer:
        alice = Alice(peer)
        snooper = Snooper(peer, SNOOPERS[kind], await alice.begin())
        await snooper.listen()
        await walk_rest(snooper)
        await walk_dashboard(snooper)
        await walk_pages(snooper)
        await walk_mcp(snooper)
        await alice.finds_all_as_it_was()
        peer.tools.go.set()
        assert alice.request is not None
        await alice.request.ended()
        await peer.call("echo", {"text": CANARY}).ended()
        await snooper.ask("GET", "/api/state")
        for response in snooper.listening:
            snooper.is_clean(response, "")
            response.leave()
        assert peer.app.reloader.applied == 1
        assert not [path async for path in anyio.Path(tmp_path).glob("*.overrides.yaml")]


async def walk_rest(snooper: Snooper) -> None:
    for route, asks in walked.REST.items():
        method, part = route.split()[0], route.split("/")[2]
        prefixes = ["/v1", "/api/v1"] if part in api.OPEN else ["/v1"]
        for prefix in prefixes:
            for path, body, headers in asks:
                response = await snooper.ask(method, f"{prefix}{path}", body, headers)
                if route in walked.OPERATES:
                    assert response.status == 403, route
                elif path == "/tools/echo/call":
                    assert (response.status, "mine" in response.body.decode()) == (200, True), "a key of its own"
                elif "{" in path:
                    assert response.status in (404, 200, 204, 403) and (response.status != 200 or method == "PUT"), path


async def walk_dashboard(snooper: Snooper) -> None:
    for route, asks in walked.DASHBOARD.items():
        for path, body, headers in asks:
            response = await snooper.ask(route.split()[0], f"/api{path}", body, headers)
            assert response.status == walked.FOR_ALL.get(route, 403), route
    state = (await snooper.ask("GET", "/api/state")).json
    assert {call["principal"] for call in (*state["calls"], *state["live"])} <= {snooper_name(snooper)}


def snooper_name(snooper: Snooper) -> str:
    return {BOB: "bob", CAROL: "carol"}.get(snooper.token, f"{ISSUER['issuer']}#alice")


async def walk_pages(snooper: Snooper) -> None:
    for path in walked.PAGES:
        await snooper.ask("GET", path)
    for path in walked.FORMS:
        body = urlencode({"t": snooper.ids.ticket, "proof": snooper.ids.proof, "v:KEY": "forged"}).encode()
        response = await snooper.peer.ask("POST", path, body, headers=FORM, token=snooper.token)
        snooper.is_clean(response, "")
        assert response.status in (403, 410), path
    for id_ in ("0" * 64, snooper.ids.running):  # no token counts there, but a signature
        response = await snooper.peer.ask("POST", f"/v1/events/in/{id_}", b"{}", token=snooper.token)
        snooper.is_clean(response, "")
        assert response.status == 404


async def walk_mcp(snooper: Snooper) -> None:
    session = await opened(snooper.peer, snooper.token)
    tasks: dict[str, object] = {"io.modelcontextprotocol/tasks": {}, "dev.mcp-hub/streams": {}}
    for method, every in walked.MODERN_METHODS.items():
        for params in every:
            offered: dict[str, object] = {} if method == "tools/call" else {"extensions": tasks}
            await snooper.ask("POST", "/mcp", *modern_request(method, params, offered))
    for method, every in walked.HANDSHAKE_METHODS.items():
        for params in every:
            await snooper.ask("POST", "/mcp", *of_handshake(session, method, params))
            # in the session of the first
            response = await snooper.ask("POST", "/mcp", *of_handshake("{session}", method, params))
            assert response.status == 404 or method == "initialize"
            path = "/messages?sessionId={sse}"
            assert (await snooper.ask("POST", path, of_handshake("", method, params)[0])).status == 404
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
    for own in (session, "{session}"):
        await snooper.ask("POST", "/mcp", cancel, {"mcp-session-id": own, **BOTH})
    away = {"mcp-session-id": "{session}", "accept": "text/event-stream", "last-event-id": "{event}"}
    assert (await snooper.ask("GET", "/mcp", None, away)).status == 404
    assert (await snooper.ask("DELETE", "/mcp", None, away)).status == 404

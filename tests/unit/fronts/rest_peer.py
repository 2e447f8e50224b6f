"""A client of the REST front in memory: a whole hub in this process, without a server; every wait is bounded."""

import json
from collections.abc import AsyncIterator, Iterable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.abc

from mcp_hub.app.build import App
from mcp_hub.fronts.http.admission import Admission
from mcp_hub.fronts.http.auth import HttpAuth
from mcp_hub.fronts.http.endpoints import Endpoints
from mcp_hub.fronts.http.streamable import StreamableHttp
from mcp_hub.fronts.rest.api import RestApi
from mcp_hub.protocol.headers import NAMED_BY
from mcp_hub.sessions.session import Caller
from tests.e2e.client import SseEvent, SseParser
from tests.unit.fronts.local_hub import Tools, hello, local_hub
from tests.upstreams.child import WAIT
from tests.upstreams.messages import MODERN_VERSION, PREFIX, modern, rpc

ALICE, BOB, NARROW, ELSEWHERE = "alice-token", "bob-token", "narrow-token", "elsewhere-token"
OPERATOR = "operator-token"
CALLERS = {
    ALICE: Caller("alice"),
    BOB: Caller("bob"),
    NARROW: Caller("alice", "narrow"),
    ELSEWHERE: Caller("alice", "elsewhere"),
    OPERATOR: Caller("olga", is_operator=True),
}
SSE = {"accept": "text/event-stream"}
BOTH = {"accept": "application/json, text/event-stream"}


def http_scope(method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> dict[str, Any]:
    """What a server says of a request before its body."""
    target, _, query = path.partition("?")
    raw = {"raw_path": target.encode(), "query_string": query.encode(), "headers": list(headers)}
    return {"type": "http", "method": method, "path": target, **raw}


class Response:
    """One exchange, as a server would drive it; the client may look at it while it lasts, stop reading, or leave.

    `body` is that of the request; None if somebody else has read it.
    """

    def __init__(self, body: bytes | None = None) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        self.done = anyio.Event()
        parts = [] if body is None else [body[at : at + 1000] for at in range(0, len(body), 1000)] or [b""]
        self._parts = parts
        self._gone = anyio.Event()
        self._reads = anyio.Event()
        self._reads.set()
        self._news = anyio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        if self._parts:
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        is_head = message["type"] == "http.response.start"
        if not is_head and not self._reads.is_set():
            await self._reads.wait()
        if self._gone.is_set():
            return
        assert not self.is_complete, "nothing may follow the end of a response"
        assert bool(self.status) is not is_head, "a head, and then its body"
        if is_head:
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message["body"]
            self.is_complete = not message.get("more_body")
        self._news.set()
        self._news = anyio.Event()

    def stall(self) -> None:
        """The client takes no more of the body."""
        self._reads = anyio.Event()

    def leave(self) -> None:
        self._gone.set()
        self._reads.set()

    async def run(self, endpoints: Endpoints, method: str, path: str, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """The request with exactly these headers, until it is answered."""
        await endpoints(http_scope(method, path, headers), self.receive, self.send)
        self.done.set()

    async def has(self, text: bytes) -> None:
        """Returns once the body has this text."""
        with anyio.fail_after(WAIT):
            while text not in self.body:
                assert not self.is_complete, self.body
                await self._news.wait()

    async def ended(self) -> "Response":
        """The whole response."""
        with anyio.fail_after(WAIT):
            await self.done.wait()
        return self

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[SseEvent]:
        return SseParser().feed(self.body)

    @property
    def lines(self) -> list[bytes]:
        """The stored lines in an SSE response."""
        return [event.data.encode() for event in self.events if event.id is not None]


class RestPeer:
    """Sends requests to a hub; `token` None: as nobody, which a hub without tokens takes for `local`."""

    def __init__(self, app: App, tools: Tools, rest: RestApi, endpoints: Endpoints, tasks: anyio.abc.TaskGroup) -> None:
        self.app = app
        self.tools = tools
        self.rest = rest
        self._endpoints = endpoints
        self.tasks = tasks
        self.mcp: StreamableHttp | None = None

    def start(
        self,
        method: str,
        path: str,
        body: object = None,
        headers: Mapping[str, str | None] | None = None,
        token: str | None = ALICE,
    ) -> Response:
        """A request that is under way; `body` is sent as JSON unless it is bytes."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent: dict[str, str | None] = {"host": "localhost"}
        if raw:
            sent["content-type"] = "application/json"
        if token is not None:
            sent["authorization"] = f"Bearer {token}"
        sent |= headers or {}
        response = Response(raw)
        pairs = [(name.lower().encode(), value.encode()) for name, value in sent.items() if value is not None]
        self.tasks.start_soon(response.run, self._endpoints, method, path, pairs)
        return response

    async def ask(self, method: str, path: str, body: object = None, **options: Any) -> Response:
        """A request and its whole response."""
        response = self.start(method, path, body, **options)
        await response.ended()
        assert response.is_complete
        return response

    async def session(self, protocol: str = "2025-11-25", token: str | None = ALICE, **client: str) -> dict[str, str]:
        """The headers for requests to `/mcp` in a handshake session that is opened; `client` is its `clientInfo`."""
        params = {**hello(protocol), **({"clientInfo": client} if client else {})}
        begun = await self.ask("POST", "/mcp", rpc("initialize", params, id=1), headers=BOTH, token=token)
        return {**BOTH, "mcp-session-id": begun.headers["mcp-session-id"]}

    def call(self, tool: str, arguments: object = None, **options: Any) -> Response:
        return self.start("POST", f"/v1/tools/{tool}/call", {"arguments": arguments or {}}, **options)

    async def detached(self, tool: str, arguments: object = None, **headers: str) -> str:
        """The id of the stream of a call that is not waited for."""
        response = await self.call(tool, arguments, headers={"prefer": "wait=0", **headers}).ended()
        assert response.status == 202, response.body
        assert response.headers["location"] == f"/v1/streams/{response.json['stream']}"
        return str(response.json["stream"])

    async def until(self, stream: str, *statuses: str) -> Any:
        """What is known of the stream once it has one of these statuses."""
        with anyio.fail_after(WAIT):
            after = 0
            while True:
                known = (await self.ask("GET", f"/v1/streams/{stream}")).json
                if known["status"] in statuses:
                    return known
                page = (await self.ask("GET", f"/v1/streams/{stream}/events?after={after}")).json
                after = page["cursor"]


async def exchange(
    endpoints: Endpoints, target: str, headers: Iterable[tuple[bytes, bytes]], method: str = "GET", body: bytes = b""
) -> Response:
    """A request with exactly these headers, and its whole response."""
    response = Response(body)
    with anyio.fail_after(WAIT):
        await response.run(endpoints, method, target, headers)
    return response


def modern_request(
    method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] | None = None, client: str = "claude-ai"
) -> tuple[dict[str, Any], dict[str, str]]:
    """Body and headers of a request of 2026-07-28; `claude-ai` has a soft deadline, so that it has the hub's tools."""
    info = {f"{PREFIX}clientInfo": {"name": client, "version": "1"}}
    headers = {**BOTH, "mcp-protocol-version": MODERN_VERSION, "mcp-method": method}
    if method in NAMED_BY:
        headers["mcp-name"] = params[NAMED_BY[method]]
    return rpc(method, modern({**params, "_meta": info}, capabilities=capabilities), id=1), headers


@asynccontextmanager
async def rest_hub(
    root: Path,
    *,
    tokens: bool = True,
    is_open: bool = True,
    admission: Admission | None = None,
    max_body: int = 100_000,
    public_url: str | None = None,
    **hub: Any,
) -> AsyncIterator[RestPeer]:
    """A `local_hub` behind its REST front."""
    async with local_hub(root, **hub) as (app, tools), anyio.create_task_group() as tasks:
        operator = app.operations
        rest = RestApi(
            app.hub,
            version="1.2",
            max_body=max_body,
            operator=operator,
            executors=None if app.executors is None else app.executors.workers,
            is_open=lambda: is_open,
            admission=admission,
            public_url=lambda: public_url,
        )
        endpoints = Endpoints(HttpAuth(CALLERS if tokens else {}), {}, rest)
        yield RestPeer(app, tools, rest, endpoints, tasks)
        tools.go.set()
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def mcp_hub(root: Path, **hub: Any) -> AsyncIterator[RestPeer]:
    """A running hub that serves `/mcp` too."""
    async with rest_hub(root, **hub) as peer:
        mcp = StreamableHttp(peer.app.hub, peer.app.binding, max_body=100_000, max_sessions=10)
        peer.mcp = mcp
        peer._endpoints = Endpoints(HttpAuth(CALLERS), mcp.routes, peer.rest)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mcp.run)
            yield peer
            tasks.cancel_scope.cancel()


def problem(response: Response, status: int, code: str) -> Any:
    """The problem that a response is."""
    assert (response.status, response.json["code"]) == (status, code), response.body
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json["status"] == status
    return response.json

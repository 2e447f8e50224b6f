"""The hub in another's program: its HTTP front below other routes, and a client of the official SDK."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from anyio.abc import TaskStatus
from mcp import Client, MCPError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

from mcp_hub import Hub
from mcp_hub.client.in_process import AsgiTransport
from mcp_hub.fronts.prefix import behind_proxy
from tests.unit.library import odd_tools
from tests.unit.library.test_library import CONFIG, WAIT, hub_of

pytestmark = pytest.mark.anyio

HERE = ("127.0.0.1", 4711)
TOKEN = {"token": "library-http-token", "principal": "alice"}
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
FORMS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def own(request: Request) -> PlainTextResponse:
    return PlainTextResponse("the host's own")


@asynccontextmanager
async def mounted(
    folder: Path, prefix: str = "/tools/hub", client: tuple[str, int] | None = HERE, **settings: Any
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of a Starlette application that the hub is mounted in."""
    hub = hub_of(folder, {**CONFIG, "hub": {"store": "memory", **settings}})
    app = Starlette(routes=[Route("/own", own), Mount(prefix, hub.asgi())])
    transport = httpx2.ASGITransport(app, client=client)  # type: ignore[arg-type]  # None: a server that does not say
    with anyio.fail_after(WAIT):
        async with hub, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
            yield http


@pytest.mark.parametrize("prefix", ["/hub", "/tools/hub", "/a b", ""])
async def test_every_endpoint_is_below_the_mount(tmp_path: Path, prefix: str) -> None:
    async with mounted(tmp_path, prefix) as http:
        assert (await http.get("/own")).text == "the host's own"
        tools = (await http.get(f"{prefix}/v1/tools")).json()["tools"]
        assert [tool["name"] for tool in tools] == ["jobs_run_job", "jobs_count_words", "jobs_wait"]
        hello = await http.post(f"{prefix}/mcp", json=HELLO, headers=FORMS)
        assert hello.status_code == 200 and hello.json()["result"]["serverInfo"]["name"] == "mcp-hub"
        assert (await http.get(f"{prefix}/readyz")).status_code in (200, 503)
        assert (await http.get(f"{prefix}/absent")).status_code == 404


async def test_mounted_hub_names_places_and_public_addresses_that_can_be_reached(tmp_path: Path) -> None:
    async with mounted(tmp_path, "/hub", http={"public_url": "https://hub.example.com/hub"}) as http:
        for host, status in (("hub.example.com", 200), ("other.example.com", 421)):
            answer = await http.get("/hub/v1/tools?format=openai-mcp", headers={"host": host})
            assert answer.status_code == status
            if status == 200:
                assert answer.json()["tools"][0]["server_url"] == "https://hub.example.com/hub/mcp"
    async with mounted(tmp_path) as http:
        body = {"arguments": {"seconds": 0.01}}
        call = await http.post("/tools/hub/v1/tools/jobs_wait/call", json=body, headers={"prefer": "respond-async"})
        assert (await http.get("/tools/hub/")).json()["mcp"] == "/tools/hub/mcp"
        assert call.status_code == 202 and call.headers["location"].startswith("/tools/hub/v1/streams/st_")
        assert (await http.get(call.headers["location"])).json()["stream"] == call.json()["stream"]


async def test_the_old_event_stream_names_its_endpoint_below_the_mount(tmp_path: Path) -> None:
    hub = hub_of(tmp_path, {**CONFIG, "hub": {"store": "memory", "http": {"allow_public": True}}})
    app = Starlette(routes=[Mount("/hub", hub.asgi())])
    with anyio.fail_after(WAIT):
        async with hub, AsgiTransport(app) as transport:
            headers = {"host": "localhost", "accept": "text/event-stream"}
            answer = await transport.send("GET", "http://localhost/hub/sse", headers, None)
            assert b"data: /hub/messages?sessionId=" in await anext(answer.chunks())
            await answer.aclose()


@pytest.mark.parametrize(
    ("setting", "forwarded", "prefix"),
    [
        ("/tools/hub", None, "/tools/hub"),
        ("/tools/hub", "/other", "/tools/hub"),
        ("", "/tools/hub", "/tools/hub"),
        ("", "/tools/hub/, /inner", "/tools/hub"),
        ("", "//evil.example.com", ""),
        ("", "https://evil.example.com", ""),
        ("", "/a/../b", ""),
        ("", "/<script>", ""),
        ("", "/" + "a" * 65, ""),
        ("", "", ""),
    ],
)
@pytest.mark.parametrize("is_removed", [True, False])
async def test_hub_behind_a_proxy_names_paths_below_its_prefix(
    tmp_path: Path, setting: str, forwarded: str | None, prefix: str, is_removed: bool
) -> None:
    hub = hub_of(tmp_path, {**CONFIG, "hub": {"store": "memory", "http": {"allow_public": True}}})
    app = behind_proxy(hub.asgi(), lambda: setting)
    asked = "" if is_removed else prefix
    fields = {} if forwarded is None else {"x-forwarded-prefix": forwarded}
    with anyio.fail_after(WAIT):
        async with hub, AsgiTransport(app) as transport:
            stream = await transport.send(
                "GET",
                f"http://localhost{asked}/sse",
                {"host": "localhost", "accept": "text/event-stream", **fields},
                None,
            )
            assert f"data: {prefix}/messages?sessionId=".encode() in await anext(stream.chunks())
            await stream.aclose()
            call = await transport.send(
                "POST",
                f"http://localhost{asked}/v1/tools/jobs_wait/call",
                {"host": "localhost", "content-type": "application/json", "prefer": "respond-async", **fields},
                b'{"arguments":{"seconds":0.01}}',
            )
            assert call.status == 202 and call.headers["location"].startswith(f"{prefix}/v1/streams/st_")
            await call.aclose()


@pytest.mark.parametrize(
    ("client", "settings", "status"),
    [
        (HERE, {}, 200),
        (("::1", 1), {}, 200),
        (("192.0.2.7", 1), {}, 403),
        (("testclient", 1), {}, 403),
        (None, {}, 403),
        (("192.0.2.7", 1), {"http": {"allow_public": True}}, 200),
        (("192.0.2.7", 1), {"tokens": [TOKEN]}, 401),
    ],
)
async def test_without_tokens_only_this_machine_is_answered(
    tmp_path: Path, client: tuple[str, int] | None, settings: dict[str, Any], status: int
) -> None:
    async with mounted(tmp_path, client=client, **settings) as http:
        answer = await http.get("/tools/hub/v1/tools")
        assert answer.status_code == status
        if status == 403:
            assert answer.json()["code"] == "not_public" and "hub.tokens" in answer.json()["detail"]


async def test_the_guard_of_the_hub_stays_in_front(tmp_path: Path) -> None:
    async with mounted(tmp_path, tokens=[TOKEN], http={"allowed_hosts": ["app.example"]}) as http:
        bearer = {"authorization": f"Bearer {TOKEN['token']}"}
        assert (await http.get("/tools/hub/v1/tools", headers=bearer)).status_code == 200
        for host, status in (("app.example", 200), ("evil.example", 421)):
            headers = {**bearer, "host": host}
            assert (await http.get("/tools/hub/v1/tools", headers=headers)).status_code == status
        foreign = {**bearer, "origin": "https://evil.example"}
        assert (await http.get("/tools/hub/v1/tools", headers=foreign)).status_code == 403


async def test_hub_that_is_not_open_is_not_available_and_its_front_sees_its_profile(tmp_path: Path) -> None:
    hub = hub_of(tmp_path)
    transport = httpx2.ASGITransport(Starlette(routes=[Mount("/hub", hub.asgi())]), client=HERE)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        answer = await http.get("/hub/v1/tools")
        assert answer.status_code == 503 and answer.json()["code"] == "hub_not_open"
        async with hub:
            assert (await http.get("/hub/v1/tools")).status_code == 200
        assert (await http.get("/hub/v1/tools")).status_code == 503
    profiles = {"few": {"tools": {"allow": ["jobs_wait"]}}}
    hub = hub_of(tmp_path, {**CONFIG, "profiles": profiles}, profile="few")
    transport = httpx2.ASGITransport(Starlette(routes=[Mount("/", hub.asgi())]), client=HERE)
    async with hub, httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert [tool["name"] for tool in json.loads((await http.get("/v1/tools")).text)["tools"]] == ["jobs_wait"]


async def test_a_server_that_runs_the_application_itself_may_begin_and_end_it(tmp_path: Path) -> None:
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    sent: list[str] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await hub_of(tmp_path).asgi()({"type": "lifespan"}, receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
    await hub_of(tmp_path).asgi()({"type": "websocket"}, receive, send)
    assert sent[2:] == ["websocket.close"]


BOTH = {"jobs": CONFIG["servers"]["jobs"], "odd": {"local": "tests.unit.library.odd_tools"}}  # type: ignore[index]


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    with anyio.fail_after(WAIT):
        async with hub_of(tmp_path, {"servers": BOTH, "hub": {"store": "memory", "expose": "full"}}) as opened:
            yield opened


@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_it_lists_and_calls_in_either_era(hub: Hub, mode: str, version: str) -> None:
    reports: list[float] = []

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        reports.append(progress)

    async with hub.connect(mode=mode) as client:
        assert client.protocol_version == version
        assert "jobs_run_job" in [tool.name for tool in (await client.list_tools()).tools]
        result = await client.call_tool("jobs_run_job", {"steps": 3, "seconds": 0}, progress_callback=progressed)
        assert result.structured_content == {"steps": 3, "seconds": 0, "status": "done"}
        assert reports == [1, 2, 3]
        with pytest.raises(MCPError):
            await client.call_tool("absent", {})


async def test_a_client_that_leaves_has_its_calls_cancelled(hub: Hub) -> None:
    odd_tools.begun, odd_tools.ended = anyio.Event(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        async with hub.connect() as client:
            tasks.start_soon(client.call_tool, "odd_endless")
            await odd_tools.begun.wait()
            tasks.cancel_scope.cancel()
    await odd_tools.ended.wait()


async def test_a_hub_that_closes_first_ends_what_its_clients_wait_for(tmp_path: Path) -> None:
    hub = hub_of(tmp_path, {"servers": BOTH, "hub": {"store": "memory"}})
    stopping, has_closed, has_failed = anyio.Event(), anyio.Event(), anyio.Event()
    codes: list[int] = []
    odd_tools.begun = anyio.Event()

    async def live(*, task_status: TaskStatus[None]) -> None:
        async with hub:
            task_status.started()
            await stopping.wait()
        has_closed.set()

    async def call(client: Client) -> None:
        with pytest.raises(MCPError) as caught:
            await client.call_tool("odd_endless")
        codes.append(caught.value.error.code)
        await has_closed.wait()
        with pytest.raises(MCPError):
            await client.list_tools()
        has_failed.set()

    with anyio.fail_after(WAIT):
        async with anyio.create_task_group() as tasks:
            await tasks.start(live)
            async with hub.connect(mode="legacy") as client:
                tasks.start_soon(call, client)
                await odd_tools.begun.wait()
                stopping.set()
                await has_failed.wait()
    assert codes == [1005]

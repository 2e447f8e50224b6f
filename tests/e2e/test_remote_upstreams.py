"""Remote servers behind the hub: built with the SDK, over Streamable HTTP of both eras and over HTTP+SSE."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient, Hub, modern, running_hub, until
from tests.upstreams.child import Child

pytestmark = pytest.mark.anyio

SERVER = Path(__file__).with_name("sdk_server.py")
SECRET = "s3cr3t-of-the-hub"

# name: what the server is like, and what is configured besides its url
SERVERS: dict[str, tuple[str, dict[str, str]]] = {
    "modern": ("streamable", {"bearer": "${REMOTE_TOKEN}"}),
    "handshake": ("streamable", {"era": "handshake"}),
    "json": ("json", {"era": "handshake", "type": "streamable-http"}),
    "stateless": ("stateless", {"era": "handshake"}),
    "sse": ("sse", {"type": "sse"}),
    "found": ("sse", {}),
}
ERAS = dict.fromkeys(SERVERS, "handshake") | {"modern": "modern"}


@asynccontextmanager
async def remote(kind: str, journal: Path, port: int = 0) -> AsyncIterator[tuple[Child, str]]:
    async with Child([sys.executable, str(SERVER), kind, str(port), str(journal)]) as child:
        yield child, (await child.wait_stderr(r"http://\S+")).group()


def config(servers: dict[str, dict[str, str]]) -> str:
    return json.dumps({"servers": servers})


def noted(journal: Path) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


@dataclass
class Running:
    hub: Hub
    root: Path

    def journal(self, name: str) -> list[str]:
        return noted(self.root / f"{SERVERS[name][0]}.journal")


@pytest.fixture(scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    root = tmp_path_factory.mktemp("remote")
    kinds = ("streamable", "json", "stateless", "sse")
    urls: dict[str, str] = {}
    async with anyio.create_task_group() as tasks:
        stop, up = anyio.Event(), {kind: anyio.Event() for kind in kinds}

        async def keep(kind: str) -> None:
            async with remote(kind, root / f"{kind}.journal") as (_, url):
                urls[kind] = url
                up[kind].set()
                await stop.wait()

        for kind in kinds:
            tasks.start_soon(keep, kind)
        for event in up.values():
            await event.wait()
        servers = {name: {"url": urls[kind], **more} for name, (kind, more) in SERVERS.items()}
        env = {"MCP_HUB_STATE_DIR": str(root / "state"), "REMOTE_TOKEN": SECRET}
        async with running_hub(config(servers), tmp_path=root, env=env) as hub:
            yield Running(hub, root)
        stop.set()


@pytest.fixture
async def client(running: Running) -> AsyncIterator[HttpClient]:
    async with HttpClient(running.hub.url, seconds=30) as client:
        yield client


async def call(client: HttpClient, tool: str, token: str | None = None, **arguments: Any) -> Any:
    meta = {} if token is None else {"progressToken": token}
    return await client.request("tools/call", modern({"name": tool, "arguments": arguments}, **meta))


def text(answer: Any) -> str:
    return str(answer.last["result"]["content"][0]["text"])


@pytest.mark.parametrize("server", SERVERS)
async def test_tools_resources_and_prompts_of_a_remote_server_are_there(client: HttpClient, server: str) -> None:
    answer = await call(client, f"{server}_echo", text="grüß dich")
    assert text(answer) == "grüß dich"
    prompts = await client.request("prompts/get", modern({"name": f"{server}_greet", "arguments": {"name": "you"}}))
    assert prompts.last["result"]["messages"][0]["content"]["text"] == "hello you"
    listed = await client.request("resources/list", modern())
    uris = [entry["uri"] for entry in listed.last["result"]["resources"]]
    assert len(uris) == len(set(uris)) == len(SERVERS)
    for uri in uris:
        read = await client.request("resources/read", modern({"uri": uri}))
        assert read.last["result"]["contents"][0]["text"] == "a note"


@pytest.mark.parametrize("server", [name for name in SERVERS if name != "json"])
async def test_progress_comes_in_order_and_before_the_result(client: HttpClient, server: str) -> None:
    answer = await call(client, f"{server}_steps", "t-1", n=30)
    assert text(answer) == "done"
    progress = [message["params"] for message in answer.messages[:-1] if message["method"] == "notifications/progress"]
    assert [(step["progressToken"], step["progress"]) for step in progress] == [("t-1", n) for n in range(1, 31)]


@pytest.mark.parametrize("server", SERVERS)
async def test_what_a_client_gives_up_is_cancelled_at_the_server(
    running: Running, client: HttpClient, server: str
) -> None:
    if SERVERS[server][0] == "stateless":
        pytest.skip("a stateless server of the handshake era cannot know which request is meant")
    name = f"of {server}"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lambda: call(client, f"{server}_wait", name=name))
        await until(lambda: f"started {name}" in running.journal(server))
        tasks.cancel_scope.cancel()
    await until(lambda: f"cancelled {name}" in running.journal(server))


@pytest.mark.parametrize("server", SERVERS)
async def test_a_hundred_calls_run_side_by_side(client: HttpClient, server: str) -> None:
    texts: list[str] = []

    async def one(number: int) -> None:
        async with HttpClient(client.url, seconds=30) as own:
            texts.append(text(await call(own, f"{server}_echo", text=str(number))))

    async with anyio.create_task_group() as tasks:
        for number in range(100):
            tasks.start_soon(one, number)
    assert sorted(texts, key=int) == [str(number) for number in range(100)]


async def test_a_server_gets_its_own_credentials_and_never_those_of_a_client(running: Running) -> None:
    async with HttpClient(running.hub.url, "of-the-client") as client:
        await call(client, "modern_echo", text="x")
        await call(client, "handshake_echo", text="x")
    sent = {line for line in running.journal("modern") if line.startswith("authorization")}
    assert sent == {f"authorization Bearer {SECRET}"}
    assert SECRET not in running.hub.stderr


@pytest.mark.parametrize(("kind", "more"), [("streamable", {}), ("streamable", {"era": "handshake"}), ("sse", {})])
async def test_a_server_that_dies_and_comes_back_is_used_again(
    tmp_path: Path, kind: str, more: dict[str, str]
) -> None:
    journal = tmp_path / "journal"
    async with remote(kind, journal) as (server, url):
        port = int(url.split(":")[2].partition("/")[0])
        state = {"MCP_HUB_STATE_DIR": str(tmp_path / "state")}
        async with (
            running_hub(config({"far": {"url": url, **more}}), tmp_path=tmp_path, env=state) as hub,
            HttpClient(hub.url, seconds=30) as client,
        ):
            assert text(await call(client, "far_echo", text="a")) == "a"
            answers: list[Any] = []

            async def caught() -> None:
                answers.append(await call(client, "far_wait", name="x"))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(caught)
                await until(lambda: "started x" in noted(journal))
                server.kill()
            (lost,) = answers
            assert lost.last["error"]["code"] == 1002 and lost.last["error"]["data"]["outcome"] == "unknown"
            await server.wait()
            away = (await call(client, "far_echo", text="b")).last["error"]
            assert away["code"] == 1001 and "Connection refused" in away["message"]
            async with remote(kind, journal, port):
                with anyio.fail_after(30):
                    while "result" not in (back := (await call(client, "far_echo", text="c")).last):
                        assert back["error"]["code"] == 1001
                assert back["result"]["content"][0]["text"] == "c"


async def test_a_server_that_has_forgotten_the_session_is_used_at_once(tmp_path: Path) -> None:
    """It was started anew between two calls, and nobody has noticed."""
    journal = tmp_path / "journal"
    state = {"MCP_HUB_STATE_DIR": str(tmp_path / "state")}
    async with remote("json", journal) as (server, url):
        port = int(url.split(":")[2].partition("/")[0])
        async with (
            running_hub(config({"far": {"url": url, "era": "handshake"}}), tmp_path=tmp_path, env=state) as hub,
            HttpClient(hub.url, seconds=30) as client,
        ):
            assert text(await call(client, "far_echo", text="a")) == "a"
            await anyio.sleep(1.1)  # a session that lasts no second is not begun anew at once
            server.kill()
            await server.wait()
            async with remote("json", journal, port):
                assert text(await call(client, "far_echo", text="b")) == "b"

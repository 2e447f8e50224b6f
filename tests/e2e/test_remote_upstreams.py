"""Remote servers behind the hub: built with the SDK, over Streamable HTTP of both eras and over HTTP+SSE."""

import json
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import anyio.to_thread
import pytest

from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import http_hub
from tests.unit.cli.command import hub
from tests.upstreams.child import Child, until
from tests.upstreams.messages import modern

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


@asynccontextmanager
async def remote(kind: str, journal: Path, port: int = 0) -> AsyncIterator[str]:
    """A server, killed in the end; its URL."""
    async with Child([sys.executable, str(SERVER), kind, str(port), str(journal)]) as child:
        try:
            yield (await child.wait_stderr(r"http://\S+")).group()
        finally:
            child.kill()


def config(servers: Mapping[str, Mapping[str, object]]) -> str:
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
            async with remote(kind, root / f"{kind}.journal") as urls[kind]:
                up[kind].set()
                await stop.wait()

        for kind in kinds:
            tasks.start_soon(keep, kind)
        for event in up.values():
            await event.wait()
        servers = {name: {"url": urls[kind], **more} for name, (kind, more) in SERVERS.items()}
        async with http_hub(config(servers), root, REMOTE_TOKEN=SECRET) as started:
            yield Running(started, root)
        stop.set()


@pytest.fixture
async def client(running: Running) -> AsyncIterator[HttpClient]:
    async with HttpClient(running.hub.url) as client:
        yield client


async def call(client: HttpClient, tool: str, token: str | None = None, **arguments: Any) -> Any:
    meta: dict[str, Any] = {} if token is None else {"progressToken": token}
    return await client.request("tools/call", modern({"name": tool, "arguments": arguments}, **meta))


def text(answer: Any) -> str:
    return str(answer.last["result"]["content"][0]["text"])


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.first(2)
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


# a stateless server of the handshake era cannot know which request is meant
async def test_a_server_gets_its_own_credentials_and_never_those_of_a_client(running: Running) -> None:
    async with HttpClient(running.hub.url, "of-the-client") as client:
        await call(client, "modern_echo", text="x")
        await call(client, "handshake_echo", text="x")
    sent = {line for line in running.journal("modern") if line.startswith("authorization")}
    assert sent == {f"authorization Bearer {SECRET}"}
    assert SECRET not in running.hub.stderr


async def test_the_commands_know_remote_servers(running: Running, tmp_path: Path) -> None:
    async with running_elsewhere() as gone:
        pass
    url = json.loads((running.root / "servers.yaml").read_text())["servers"]["modern"]["url"]
    servers: dict[str, dict[str, object]] = {
        "here": {"url": f"{url}?key=s3cr3t", "headers": {"X-Key": SECRET}},
        "gone": {"url": gone},
        "off": {"url": "http://mcp.example/mcp", "enabled": False},
    }
    (tmp_path / "servers.yaml").write_text(config(servers))

    async def ran(*command: str) -> tuple[int, Any]:
        done = await anyio.to_thread.run_sync(partial(hub, tmp_path, *command, "--json"))
        assert SECRET not in done.stdout + done.stderr and "s3cr3t" not in done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)

    code, checked = await ran("check")
    assert code == 0 and checked["warnings"] == []
    assert checked["servers"]["here"] == {"kind": "url", "enabled": True, "runs": url, "overrides": {}, "failure": None}
    code, listed = await ran("list")
    states = {server["server"]: server for server in listed["servers"]}
    assert code == 3 and states["here"]["state"] == "ready"
    assert states["gone"]["reason"] == f"cannot connect to {gone.removesuffix('/mcp')}: Connection refused"
    code, told = await ran("doctor")
    assert code == 3 and [server["ok"] for server in told["servers"]] == [True, False, True]


@asynccontextmanager
async def running_elsewhere() -> AsyncIterator[str]:
    """A URL where something listens, until it does not."""
    listening = await anyio.create_tcp_listener(local_host="127.0.0.1")
    async with listening:
        port = listening.extra(anyio.abc.SocketAttribute.local_port)
        yield f"http://127.0.0.1:{port}/mcp"


# -- servers that go and come back: what is said of one holds for each of these, side by side

MORTALS: dict[str, tuple[str, dict[str, str]]] = {
    "modern": ("streamable", {}),
    "handshake": ("streamable", {"era": "handshake"}),
    "silent": ("json", {"era": "handshake"}),
    "sse": ("sse", {}),
}


class Mortal:
    """A remote server that can be killed, and started again where it was; its task is `live`."""

    def __init__(self, kind: str, journal: Path) -> None:
        self.kind = kind
        self.journal = journal
        self.url = ""
        self.wanted, self.changed = anyio.Event(), anyio.Event()

    async def live(self) -> None:
        while True:
            await self._next()
            port = int(self.url.split(":")[2].partition("/")[0]) if self.url else 0
            async with remote(self.kind, self.journal, port) as self.url:
                self.changed.set()
                await self._next()
            self.changed.set()

    async def _next(self) -> None:
        await self.wanted.wait()
        self.wanted = anyio.Event()

    async def switch(self) -> None:
        """Kills it if it runs, else starts it."""
        self.changed = anyio.Event()
        self.wanted.set()
        await self.changed.wait()


@asynccontextmanager
async def mortals(root: Path, *names: str) -> AsyncIterator[tuple[dict[str, Mortal], HttpClient]]:
    """The servers of these names, by default all, and a client of the hub in front of them."""
    servers = {name: Mortal(MORTALS[name][0], root / f"{name}.journal") for name in names or MORTALS}
    async with anyio.create_task_group() as tasks:
        for server in servers.values():
            tasks.start_soon(server.live)
        await each(servers, Mortal.switch)
        settings = config({name: {"url": server.url, **MORTALS[name][1]} for name, server in servers.items()})
        async with http_hub(settings, root) as started, HttpClient(started.url) as client:
            for name in servers:
                assert text(await call(client, f"{name}_echo", text="a")) == "a"
            yield servers, client
        tasks.cancel_scope.cancel()


def has_started(journal: Path) -> bool:
    return "started x" in noted(journal)


async def each(servers: dict[str, Mortal], do: Callable[[Mortal], Coroutine[Any, Any, None]]) -> None:
    async with anyio.create_task_group() as tasks:
        for server in servers.values():
            tasks.start_soon(do, server)


@pytest.mark.proof
async def test_calls_fail_typed_when_a_server_dies_and_work_again_when_it_is_back(tmp_path: Path) -> None:
    async with mortals(tmp_path) as (servers, client):
        lost: dict[str, Any] = {}

        async def caught(name: str) -> None:
            lost[name] = (await call(client, f"{name}_wait", name="x")).last["error"]

        async with anyio.create_task_group() as tasks:
            for name, server in servers.items():
                tasks.start_soon(caught, name)
                await until(partial(has_started, server.journal))
            await each(servers, Mortal.switch)
        assert {(error["code"], error["data"]["outcome"]) for error in lost.values()} == {(1002, "unknown")}

        away: dict[str, Any] = {}

        async def refused(name: str) -> None:
            away[name] = (await call(client, f"{name}_echo", text="b")).last["error"]

        async with anyio.create_task_group() as tasks:
            for name in servers:
                tasks.start_soon(refused, name)
        for error in away.values():
            assert error["code"] == 1001 and "Connection refused" in error["message"]

        await each(servers, Mortal.switch)
        for name in servers:
            with anyio.fail_after(240):
                while "result" not in (back := (await call(client, f"{name}_echo", text="c")).last):
                    assert back["error"]["code"] == 1001
            assert back["result"]["content"][0]["text"] == "c"


@pytest.mark.first(1)
@pytest.mark.parametrize("names", [("handshake",), ("modern", "silent", "sse")], ids="-".join)
async def test_a_server_that_was_started_anew_between_two_calls_is_used_as_if_nothing_had_been(
    tmp_path: Path, names: tuple[str, ...]
) -> None:
    async with mortals(tmp_path, *names) as (servers, client):
        await anyio.sleep(1.1)  # a session that lasts no second is not begun anew at once
        await each(servers, Mortal.switch)
        await each(servers, Mortal.switch)
        for name in servers:
            answer = await call(client, f"{name}_echo", text="b")
            while "result" not in answer.last:  # a slow hub may have seen the server go, and call it again soon
                assert answer.last["error"]["code"] == 1001
                answer = await call(client, f"{name}_echo", text="b")
            assert text(answer) == "b"

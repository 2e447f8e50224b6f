"""A server is one server: a caller reads, lists and subscribes at the connection that runs its calls.

Every way in, for clients of either era and of both at once, over servers of one era, of both, and of both that ask,
with every scope: what a call changes comes back to its caller.
"""

import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.answers import Answers, form
from tests.e2e.background import background
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, connected, http_hub, stdio_hub
from tests.interaction.hearing import UPDATED, Ear, hearing
from tests.upstreams.child import WAIT
from tests.upstreams.launch import servers_yaml

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

SERVER = str(Path(__file__).with_name("one_server.py"))
KINDS = {"h": ["handshake"], "m": ["modern"], "b": ["both"], "a": ["both", "asks"]}
TOOLS = "notifications/tools/list_changed"
BOTH = (MODERN, HANDSHAKE)
FIRST = [("own", "session", BOTH), ("attached", "session", BOTH), ("http", "default", BOTH)]
ALL = [
    (front, scope, eras)
    for eras in (BOTH, (MODERN,), (HANDSHAKE,))
    for front in ("own", "attached", "http")
    for scope in ("default", "session")
]
CASES = [*FIRST, *(case for case in ALL if case not in FIRST)]


@dataclass
class Client:
    peer: Peer
    era: str
    ear: Ear
    pid: int
    """The process that runs its calls at the server that asks, once it has asked."""
    was_asked: bool
    """Whether that server could ask it."""

    async def facts(self, server: str) -> dict[str, Any]:
        """What the process that runs its calls says of itself."""
        facts: dict[str, Any] = json.loads((await self.peer.call(f"{server}_facts")).text)
        return facts


def config(scope: str) -> str:
    servers = {name: [sys.executable, SERVER, name, *kind] for name, kind in KINDS.items()}
    settings = json.loads(servers_yaml(servers, hub={"expose": "full"}))
    if scope != "default":
        for entry in settings["servers"].values():
            entry["scope"] = scope
    return json.dumps(settings)


@asynccontextmanager
async def peers(front: str, scope: str, eras: tuple[str, ...], root: Path) -> AsyncIterator[list[Peer]]:
    """A client of each era, at one hub if there is one for several."""
    async with AsyncExitStack() as stack:
        hub = await stack.enter_async_context(http_hub(config(scope), root)) if front == "http" else None
        hubs = stack.enter_context(background(root)) if front == "attached" else None
        found = []
        for era in eras:
            answers = Answers({"elicitation/create": form(name="Ann")})
            if hub is not None:
                found.append(await stack.enter_async_context(connected(hub, era, answers=answers)))
                continue
            place = root / era
            place.mkdir()
            own = stdio_hub(config(scope), place) if hubs is None else hubs.client(config(scope))
            wire = await stack.enter_async_context(own)
            wire.answers = answers
            if era == HANDSHAKE:
                await wire.initialize()
            found.append(await stack.enter_async_context(connected(wire, era, answers=answers)))
        yield found


@pytest.mark.parametrize(
    ("front", "scope", "eras"), CASES, ids=lambda value: value if isinstance(value, str) else "-".join(value)
)
@pytest.mark.first(3)
async def test_a_call_changes_what_its_caller_sees(
    front: str, scope: str, eras: tuple[str, ...], tmp_path: Path
) -> None:
    async with peers(front, scope, eras, tmp_path) as found, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(listening(peer)) for peer in found]
        for server in KINDS:
            for client in clients:
                await check_changes(client, server)
            for client in clients:
                await check_lists(client, server, [] if scope == "default" else eras)
        pids = {server: {(await client.facts(server))["pid"] for client in clients} for server in KINDS}
        if (front, scope) == ("http", "default"):
            is_one = any(client.era == MODERN and client.was_asked for client in clients)
            of_asking = 1 if is_one else len(eras)
            assert [len(pids[server]) for server in KINDS] == [1, 1, 1, of_asking], "a second one is for questions only"
        for client in clients:
            await check_roots(client)
            assert await pid_of(client.peer, "a") == client.pid, "its calls stay at one process"
        await stack.aclose()
        for client in clients:
            await check_unwatched(client)


@asynccontextmanager
async def listening(peer: Peer) -> AsyncIterator[Client]:
    """A client that has called the server that asks, and hears of all changes."""
    await peer.names()
    if peer.era == HANDSHAKE:
        await peer.request("logging/setLevel", {"level": "debug"})
    seen = (await peer.call("a_ask")).answer
    was_asked = "error" not in seen
    if was_asked:  # also a modern client: on a busy machine the hub may speak the handshake era with the server
        assert seen["result"]["content"][0]["text"] == "accept", seen
    else:
        assert peer.era == MODERN and "back-channel" in seen["error"]["message"]
    uris = [shown(await peer.names("resources/list", "resources", "uri"), name) for name in KINDS]
    async with hearing(peer, uris, "tools") as ear:
        yield Client(peer, peer.era, ear, await pid_of(peer, "a"), was_asked)


async def pid_of(peer: Peer, server: str) -> int:
    pid: int = json.loads((await peer.call(f"{server}_facts")).text)["pid"]
    return pid


async def check_lists(client: Client, server: str, apart: Sequence[str]) -> None:
    """Clients that are `apart` see nothing of each other."""
    names = await client.peer.names()
    assert f"{server}_grown-{client.era}" in names
    assert not [era for era in apart if era != client.era and f"{server}_grown-{era}" in names]


async def check_roots(client: Client) -> None:
    """A handshake server hears once that the roots of a client have changed, before the client's next call."""
    for server in KINDS:
        before = await client.facts(server)
        if client.era == HANDSHAKE:
            await client.peer.wire.notify("notifications/roots/list_changed")
        is_passed_on = client.era == before["era"] == HANDSHAKE
        news = [(await client.facts(server))["news"] - before["news"] for _ in range(2)]
        assert news == ([1, 1] if is_passed_on else [0, 0])


async def check_unwatched(client: Client) -> None:
    for server in KINDS:
        with anyio.fail_after(WAIT):
            while (await client.facts(server))["watched"]:
                pass


def shown(uris: list[str], server: str) -> str:
    (uri,) = [uri for uri in uris if uri.endswith(f"test://{server}/count")]
    return uri


async def check_changes(client: Client, server: str) -> None:
    """What a call of this client changes comes back to it, and what it does on its way."""
    peer, ear = client.peer, client.ear
    uri = shown(await peer.names("resources/list", "resources", "uri"), server)
    updates = ear.updated().count(uri)
    changed = sum(message["method"] == TOOLS for message in ear.heard)
    count = int((await peer.call(f"{server}_touch")).text)
    content = (await peer.request("resources/read", {"uri": uri})).result["contents"][0]
    assert (content["uri"], int(content["text"])) == (uri, count), "a read is never older than the call before it"
    await ear.next(UPDATED, uri=uri, after=updates)
    level = {} if client.era == HANDSHAKE else {"log_level": "debug"}
    seen = await peer.call(f"{server}_work", {"said": f"of {client.era}"}, token=f"t-{server}", **level)
    assert [params["progress"] for params in seen.progress] == [1, 2]
    assert [params["data"] for params in seen.params("notifications/message")] == [f"of {client.era}"]
    await peer.call(f"{server}_grow", {"name": f"grown-{client.era}"})
    name = f"{server}_grown-{client.era}"
    await ear.next(TOOLS, after=changed)
    while name not in await peer.names():  # that was a change of another client
        changed += 1
        await ear.next(TOOLS, after=changed)
    assert (await peer.call(name)).text == f"grown-{client.era}"

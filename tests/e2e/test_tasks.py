"""Calls of ordinary tools as tasks, over the real wires: from a hub process, in front of a server of either era."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient
from tests.interaction.fronts import ERAS, FRONTS, MODERN, Peer, http_hub, stdio_hub
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, events, servers_yaml
from tests.upstreams.messages import PREFIX, Message, modern, rpc
from tests.upstreams.stdio_client import Conversation, StdioClient

pytestmark = pytest.mark.anyio

CAPABILITIES: Mapping[str, Any] = {"elicitation": {}, "extensions": {PREFIX + "tasks": {}}}
AFTER = 0.3


class Client(Peer):
    """A modern client that takes tasks."""

    def __init__(self, wire: Conversation | HttpClient, root: Path, *, runs_tools: bool = False) -> None:
        super().__init__(wire, MODERN, runs_tools=runs_tools, capabilities=CAPABILITIES)
        self.root = root

    async def result(self, method: str, params: Message) -> Message:
        return (await self.request(method, params)).result

    async def task(self, tool: str, **arguments: Any) -> str:
        """The id of a call that has become a task."""
        created = await self.result("tools/call", {"name": tool, "arguments": arguments})
        assert created["resultType"] == "task", created
        id_: str = created["taskId"]
        return id_

    async def get(self, id_: str) -> Message:
        return await self.result("tasks/get", {"taskId": id_})

    async def polled(self, id_: str, is_so: Callable[[Message], bool]) -> Message:
        """The task when it is so; it is polled meanwhile."""
        with anyio.fail_after(WAIT):
            while True:
                task = await self.get(id_)
                if is_so(task):
                    return task
                await anyio.sleep(0.02)

    async def ended(self, id_: str) -> Message:
        return await self.polled(id_, lambda task: task["status"] in ("completed", "failed", "cancelled"))


def config(root: Path, era: str = "handshake", **hub: Any) -> str:
    server = argv(era=era, journal=root / "journal")
    settings = {"prefix": "never", "task_after": AFTER, "first_list_wait": WAIT, **hub}
    return servers_yaml({"fixture": server}, hub=settings)


@asynccontextmanager
async def client_of(front: str, text: str, root: Path) -> AsyncIterator[Client]:
    if front == "stdio":
        async with stdio_hub(text, root) as wire:
            await wire.request("tools/list", modern())
            yield Client(wire, root)
        return
    async with http_hub(text, root) as hub, HttpClient(hub.url) as http:
        await http.request("tools/list", modern())
        yield Client(http, root)


PLACES = [(front, era) for front in FRONTS for era in ERAS]


@pytest.fixture(scope="module", params=PLACES, ids="-".join)
async def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """On each front, in front of a server of each era, whose journal is in its `root`; one for all tests."""
    front, era = request.param
    root = tmp_path_factory.mktemp("-".join(request.param))
    async with client_of(front, config(root, era), root) as connected:
        yield connected


@pytest.fixture(params=PLACES, ids="-".join)
async def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """The same, for one test: after a question calls take turns, and after a cancellation nobody is asked for 5 s."""
    front, era = request.param
    async with client_of(front, config(tmp_path, era), tmp_path) as connected:
        yield connected


@pytest.mark.first(1)
async def test_slow_call_becomes_a_task_and_is_polled_to_its_end(client: Client, tmp_path: Path) -> None:
    id_ = await client.task("progress", n=1, nonce="x", gate=str(tmp_path / "gate"))
    assert (await client.get(id_))["status"] == "working"
    (tmp_path / "gate").touch()
    task = await client.ended(id_)
    assert task["status"] == "completed"
    assert json.loads(task["result"]["content"][0]["text"]) == {"n": 1, "nonce": "x"}
    quick = await client.result("tools/call", {"name": "slow", "arguments": {"seconds": 0}})
    assert quick["resultType"] == "complete"


@pytest.mark.first(2)
async def test_a_cancelled_task_is_given_up_by_its_server(client: Client) -> None:
    def given_up() -> int:
        return sum(event.get("nonce") == "given up" for event in events(client.root / "journal", "cancelled"))

    id_ = await client.task("wait_cancel", nonce="given up")
    assert given_up() == 0
    assert await client.result("tasks/cancel", {"taskId": id_}) == {"resultType": "complete"}
    assert (await client.ended(id_))["status"] == "cancelled"
    await until(lambda: given_up() == 1)
    assert await client.result("tasks/cancel", {"taskId": id_}) == {"resultType": "complete"}


@pytest.mark.first(1)
async def test_a_task_asks_and_continues_with_the_answer(fresh: Client) -> None:
    id_ = await fresh.task("ask_form", nonce="x", delay=2)
    asking = await fresh.polled(id_, lambda task: task["status"] == "input_required")
    ((key, request),) = asking["inputRequests"].items()
    assert request["method"] == "elicitation/create"
    answer = {"action": "accept", "content": {"name": "Ada"}}
    update = {"taskId": id_, "inputResponses": {key: answer, "another": answer}}
    assert await fresh.result("tasks/update", update) == {"resultType": "complete"}
    task = await fresh.ended(id_)
    told = json.loads(task["result"]["content"][0]["text"])
    assert told == {"nonce": "x", "answers": {"form": {"result": answer}}}


@pytest.mark.first(2)
async def test_the_end_of_a_task_is_sent_to_listeners(client: Client, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    id_ = await client.task("progress", n=1, gate=str(gate))
    params = modern({"notifications": {"taskIds": [id_, "st_unknown"]}}, capabilities=CAPABILITIES)
    wanted = {"taskIds": [id_]}
    if isinstance(client.wire, StdioClient):
        wire = client.wire
        await wire.send(rpc("subscriptions/listen", params, id="listen"))

        def heard(is_so: Callable[[Message], bool]) -> list[Message]:
            return [message for message in wire.transcript if is_so(message)]

        is_begun = "notifications/subscriptions/acknowledged"
        await until(lambda: heard(lambda message: message.get("method") == is_begun))
        gate.touch()
        await until(lambda: heard(lambda message: _is_notice(message, "completed")))
        (acknowledged,) = heard(lambda message: message.get("method") == is_begun)
        assert acknowledged["params"]["notifications"] == wanted
        return
    assert isinstance(client.wire, HttpClient)
    async with client.wire.stream(client.wire.message("subscriptions/listen", params)) as stream:
        acknowledged = (await stream.next_event()).message
        assert acknowledged["params"]["notifications"] == wanted
        gate.touch()
        done = await stream.wait_for(lambda message: _is_notice(message, "completed"))
        assert done["params"]["result"]["content"]


def _is_notice(message: Message, status: str) -> bool:
    return message.get("method") == "notifications/tasks" and message["params"]["status"] == status


async def test_what_becomes_of_a_task_whose_hub_ends_can_be_read_from_the_next(tmp_path: Path) -> None:
    text = config(tmp_path)
    async with client_of("stdio", text, tmp_path) as client:
        assert isinstance(client.wire, StdioClient)
        task = await client.task("wait_cancel", nonce="x")
        assert await client.wire.close() == 0
    async with client_of("stdio", text, tmp_path) as client:
        failed = await client.get(task)
        assert failed["status"] == "failed"
        assert failed["error"]["code"] == 1005 and failed["error"]["data"]["outcome"] == "unknown"

"""The hub's extension as its clients see it: partial content, marks on results, and reading on from a mark."""

from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e.client import HttpClient
from tests.e2e.held_tools import Held, config
from tests.interaction.fronts import http_hub, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.messages import CLIENT, Message, modern
from tests.upstreams.stdio_client import StdioClient

pytestmark = pytest.mark.anyio

STREAMS = "dev.mcp-hub/streams"
READ = f"{STREAMS}.read"
KINDS = ("stdio handshake", "stdio modern", "http handshake", "http modern")
STORES = ("sqlite", "memory")
N = 40


class Client:
    """One client of either era on either front; `declared` is whether it speaks the extension.

    `offered` are the capabilities of the hub.
    """

    def __init__(self, wire: StdioClient | HttpClient, era: str, declared: bool, held: Held) -> None:
        self.wire = wire
        self.era = era
        self.held = held
        self.offered: Message = {}
        self.capabilities: Message = {"extensions": {STREAMS: {}}} if declared else {}

    async def hello(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities, "clientInfo": CLIENT}
        if self.era == "modern":
            _, answer = await self.ask("server/discover", {})
            self.offered = answer["result"]["capabilities"]
            return
        if isinstance(self.wire, StdioClient):
            answer = await self.wire.request("initialize", params)
        else:
            opened = await self.wire.request("initialize", params)
            self.wire.session, self.wire.version = opened.headers["mcp-session-id"], "2025-11-25"
            answer = opened.last
        self.offered = answer["result"]["capabilities"]
        await self.wire.notify("notifications/initialized")

    async def ask(self, method: str, params: Message, token: str | None = None) -> tuple[list[Message], Message]:
        """The notifications before the answer, and that."""
        if self.era == "modern":
            params = modern(params, capabilities=self.capabilities, token=token)
        elif token is not None:
            params = {**params, "_meta": {"progressToken": token}}
        if isinstance(self.wire, HttpClient):
            answered = await self.wire.request(method, params)
            return answered.messages[:-1], answered.last
        position = len(self.wire.transcript)
        answer = await self.wire.request(method, params)
        lines = self.wire.transcript[position:]
        return lines[: lines.index(answer)], answer

    async def call(self, tool: str, arguments: Message, token: str | None = None) -> tuple[list[Message], Message]:
        return await self.ask("tools/call", {"name": tool, "arguments": arguments}, token)

    async def read(self, stream: str, **more: Any) -> Message:
        answer = (await self.ask(READ, {"stream": stream, **more}))[1]
        assert "result" in answer, answer
        result: Message = answer["result"]
        assert result.pop("resultType", None) == ("complete" if self.era == "modern" else None)
        return result

    async def everything(self, stream: str, cursor: str = "0", most: int = 1000) -> list[Message]:
        """All events behind a cursor, page by page."""
        events: list[Message] = []
        while True:
            page = await self.read(stream, cursor=cursor, maxEvents=most, waitMs=5000)
            assert not page["truncated"] and len(page["events"]) <= most
            events += page["events"]
            cursor = page["cursor"]
            if page["closed"]:
                return events


@pytest.fixture(scope="module", params=[(kind, store) for kind in KINDS for store in STORES], ids=" ".join)
async def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """One client, and a hub of its own, for all tests."""
    kind, store = request.param
    async for connected in _clients(tmp_path_factory.mktemp("declared"), kind, store, declared=True):
        yield connected


@pytest.fixture(params=KINDS)
async def plain(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Client]:
    """A client that does not know the extension."""
    async for connected in _clients(tmp_path, request.param, "sqlite", declared=False):
        yield connected


async def _clients(root: Path, kind: str, store: str, *, declared: bool) -> AsyncIterator[Client]:
    held = Held(root)
    front, era = kind.split()
    text = config(store={"type": store})
    if front == "stdio":
        async with stdio_hub(text, root) as wire:
            connected = Client(wire, era, declared, held)
            await connected.hello()
            yield connected
        return
    async with http_hub(text, root) as hub, HttpClient(hub.url) as http:
        connected = Client(http, era, declared, held)
        await connected.hello()
        yield connected


def partials(before: list[Message]) -> list[Message]:
    assert {message["method"] for message in before} == {"notifications/progress"}
    return [message["params"] for message in before]


def mark(answer: Message) -> Message:
    found: Message = answer["result"]["_meta"][STREAMS]
    return found


async def test_every_event_comes_once_and_the_rest_from_the_mark(client: Client) -> None:
    before, answer = await client.call("many", {"n": N}, "t")
    shown = partials(before)
    assert all(one["progress"] < next_["progress"] for one, next_ in pairwise(shown))
    assert {one["progressToken"] for one in shown} == {"t"}
    assert all(len(one.get("message", "")) <= 200 and "\n" not in one.get("message", "") for one in shown)
    told = mark(answer)
    events: list[Message] = []
    for one in shown:
        part = one["_meta"][STREAMS]
        assert part["stream"] == told["stream"] and part["cursor"] == str(part["events"][-1]["seq"])
        events += part["events"]
    assert [event["seq"] for event in events] == list(range(2, len(events) + 2))
    stored = await client.everything(told["stream"])
    assert [{key: line[key] for key in ("seq", "type", "data")} for line in stored[1:-1]] == events
    assert stored[0]["type"] == "start" and stored[-1]["type"] == "end"
    assert told == {"stream": told["stream"], "cursor": str(len(stored)), "status": "completed"}
    text = "".join(event["data"]["content"][0]["text"] for event in events if event["type"] == "delta")
    assert text == "".join(f"line {i} " + "." * 300 + "\n" for i in range(N))


async def test_without_a_token_there_is_only_the_mark_and_it_leads_to_the_rest(client: Client) -> None:
    before, answer = await client.call("many", {"n": N})
    assert before == []
    told = mark(answer)
    everything = await client.everything(told["stream"])
    assert [line["seq"] for line in everything] == list(range(1, len(everything) + 1))
    after = int(told["cursor"])
    if after < len(everything):
        assert await client.everything(told["stream"], told["cursor"]) == everything[after:]
    assert await client.everything(told["stream"], most=7) == everything


async def test_a_running_call_can_be_read_from_any_partial(client: Client) -> None:
    held = client.held
    answers: list[tuple[list[Message], Message]] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            answers.append(await client.call("job", {"nonce": "a"}, "t"))

        tasks.start_soon(call)
        await until(lambda: held.has_begun("a"))
        held.say("a.more")
        held.say("a.done")
    before, answer = answers[0]
    told = mark(answer)
    everything = await client.everything(told["stream"])
    for one in partials(before):
        part = one["_meta"][STREAMS]
        assert await client.everything(told["stream"], part["cursor"]) == everything[int(part["cursor"]) :]


async def test_others_get_nothing_of_it_but_the_mark(plain: Client) -> None:
    before, answer = await plain.call("many", {"n": N}, "t")
    shown = partials(before)
    assert [one["progress"] for one in shown] == list(range(1, N + 1))
    assert all(one.keys() == {"progressToken", "progress", "total", "message"} for one in shown)
    told = mark(answer)
    assert told["status"] == "completed" and answer["result"]["content"] == [{"type": "text", "text": "done"}]
    refused = (await plain.ask(READ, {"stream": told["stream"]}))[1]
    assert (refused["error"]["code"], refused["error"]["data"]["code"]) == (-32601, "method_not_found")

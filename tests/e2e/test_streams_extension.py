"""The hub's extension as its clients see it: partial content, marks on results, and reading on from a mark."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.e2e import skipping_server
from tests.e2e.client import HttpClient
from tests.e2e.held_tools import Held, config
from tests.interaction.fronts import MODERN, Peer, Seen, http_hub, stdio_hub
from tests.upstreams.child import until
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import Conversation

pytestmark = pytest.mark.anyio

STREAMS = "dev.mcp-hub/streams"
READ = f"{STREAMS}.read"
KINDS = ("stdio handshake", "stdio modern", "http handshake", "http modern")
STORES = ("sqlite", "memory")
N = 40


class Client(Peer):
    """A client with files to hold its calls by; `declared`: it speaks the extension. `offered`: what the hub can."""

    def __init__(
        self, wire: Conversation | HttpClient, era: str, declared: bool, held: Held, *, runs_tools: bool = False
    ) -> None:
        capabilities: Message = {"extensions": {STREAMS: {}}} if declared else {}
        super().__init__(wire, era, runs_tools=runs_tools, capabilities=capabilities)
        self.held = held
        self.offered: Message = {}

    async def hello(self) -> None:
        if self.era == MODERN:
            self.offered = (await self.request("server/discover")).result["capabilities"]
        else:
            answer = await self.wire.initialize(capabilities=self.capabilities)
            self.offered = (answer if isinstance(answer, dict) else answer.last)["result"]["capabilities"]

    async def read(self, stream: str, **more: Any) -> Message:
        result = (await self.request(READ, {"stream": stream, **more})).result
        assert result.pop("resultType", None) == ("complete" if self.era == MODERN else None)
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
    async with _connected(root, kind, config(store={"type": store}), held, declared=declared) as connected:
        yield connected


@asynccontextmanager
async def _connected(root: Path, kind: str, text: str, held: Held, *, declared: bool) -> AsyncIterator[Client]:
    front, era = kind.split()
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


def partials(seen: Seen) -> list[Message]:
    assert {message["method"] for message in seen.before} == {"notifications/progress"}
    return seen.progress


def mark(seen: Seen) -> Message:
    found: Message = seen.result["_meta"][STREAMS]
    return found


@pytest.mark.first(4)
async def test_every_event_comes_once_and_the_rest_from_the_mark(client: Client) -> None:
    seen = await client.call("many", {"n": N}, token="t")
    shown = partials(seen)
    assert all(one["progress"] < next_["progress"] for one, next_ in pairwise(shown))
    assert {one["progressToken"] for one in shown} == {"t"}
    assert all(len(one.get("message", "")) <= 200 and "\n" not in one.get("message", "") for one in shown)
    told = mark(seen)
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
    seen = await client.call("many", {"n": N})
    assert seen.before == []
    told = mark(seen)
    everything = await client.everything(told["stream"])
    assert [line["seq"] for line in everything] == list(range(1, len(everything) + 1))
    after = int(told["cursor"])
    if after < len(everything):
        assert await client.everything(told["stream"], told["cursor"]) == everything[after:]
    assert await client.everything(told["stream"], most=7) == everything


async def test_a_running_call_can_be_read_from_any_partial(client: Client) -> None:
    held = client.held
    answers: list[Seen] = []
    async with anyio.create_task_group() as tasks:

        async def call() -> None:
            answers.append(await client.call("job", {"nonce": "a"}, token="t"))

        tasks.start_soon(call)
        await until(lambda: held.has_begun("a"))
        held.say("a.more")
        held.say("a.done")
    (seen,) = answers
    told = mark(seen)
    everything = await client.everything(told["stream"])
    for one in partials(seen):
        part = one["_meta"][STREAMS]
        assert await client.everything(told["stream"], part["cursor"]) == everything[int(part["cursor"]) :]


@pytest.mark.first(2)
async def test_others_get_nothing_of_it_but_the_mark(plain: Client) -> None:
    seen = await plain.call("many", {"n": N}, token="t")
    shown = partials(seen)
    assert [one["progress"] for one in shown] == list(range(1, N + 1))
    assert all(one.keys() == {"progressToken", "progress", "total", "message"} for one in shown)
    told = mark(seen)
    assert told["status"] == "completed" and seen.result["content"] == [{"type": "text", "text": "done"}]
    refused = (await plain.request(READ, {"stream": told["stream"]})).error
    assert (refused["code"], refused["data"]["code"]) == (-32601, "method_not_found")


ALL = "one two three four five six "


@pytest.mark.parametrize("kind", ["stdio handshake", "http modern"])
@pytest.mark.parametrize(
    ("sent", "reads", "text", "missing"),
    [
        ([2, 2, 3, 4, 3, 5, 6, 7, 7], "nothing", ALL, []),
        ([2, 5, 4, 7], "log", ALL, []),
        ([], "log", ALL, []),
        ([2, 5], "nothing", "one four ", ["events 3 to 4", "2 more events"]),
        ([2, 5], "dies", "one four ", ["events 3 to 4", "2 more events"]),
        ([2], "hole", "one ", []),
    ],
)
async def test_a_server_behind_the_hub_repeats_events_and_leaves_some_out(
    kind: str, sent: list[int], reads: str, text: str, missing: list[str], tmp_path: Path
) -> None:
    server = {"command": sys.executable, "args": [skipping_server.__file__]}
    settings = json.dumps({"hub": {"prefix": "never"}, "servers": {"skipping": server}})
    async with _connected(tmp_path, kind, settings, Held(tmp_path), declared=True) as client:
        seen = await client.call("words", {"sent": sent, "reads": reads}, token="t")
        if reads == "hole":
            assert seen.error["data"]["upstream"]["code"] == "unreadable_answer"
            assert "lacks event 3" in seen.error["message"]
            return
        assert seen.result["content"] == skipping_server.RESULT["content"]
        events = await client.everything(mark(seen)["stream"])
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1)) and events[-1]["type"] == "end"
        assert "".join(event["data"]["content"][0]["text"] for event in events if event["type"] == "delta") == text
        notes = [event["data"]["data"] for event in events if event["type"] == "log"]
        assert len(notes) == len(missing) and all(map(str.__contains__, notes, missing)), notes

"""A job started on each front by a client that is gone before it ends, and what that client had seen of it."""

import json
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.client import HttpClient
from tests.e2e.rest_client import RestClient
from tests.e2e.three_hubs import STREAMS, TASKS, Fleet, Job, ndjson
from tests.e2e.ways_to_read import ALL, SPEAKS, Shown, Way
from tests.upstreams.child import PeerClosed
from tests.upstreams.messages import Message, modern
from tests.upstreams.stdio_client import StdioClient

TAKES: Message = {"elicitation": {}, "extensions": {STREAMS: {}, TASKS: {}}}
"""The capabilities of a client that takes tasks, and speaks the hub's extension."""
MESSAGES = frozenset({"progress", "end", "error"})
"""What a client that does not speak the extension is told of a job."""
TOKEN = "t"


@dataclass
class Begun:
    """A job whose client is gone; it had seen `shown`, up to the `cursor`. `own` is its way back, if it has one."""

    stream: str
    shown: list[Shown]
    shows: frozenset[str] = ALL
    own: list[Way] = field(default_factory=list)
    client: HttpClient | None = None

    @property
    def cursor(self) -> int:
        if not self.shown:
            return 0
        last = self.shown[-1]
        return int((json.loads(last) if isinstance(last, bytes) else last)["seq"])


Start = Callable[[Fleet, Job, int], AbstractAsyncContextManager[Begun]]
"""Starts the job, and is gone once it has seen it at that step or behind it."""


def step_of(shown: Shown) -> int:
    """How far the job is by this event; 0 if it does not say."""
    event = json.loads(shown) if isinstance(shown, bytes) else shown
    match event["type"]:
        case "progress":
            return int(event["data"]["progress"])
        case "delta":
            return int(event["data"]["content"][-1]["text"].split()[-1])
    return 0


def call(job: Job, tool: str = "job") -> Message:
    return {"name": tool, "arguments": job.arguments}


# -- REST


@asynccontextmanager
async def rest_sse(fleet: Fleet, job: Job, step: int) -> AsyncIterator[Begun]:
    shown: list[bytes] = []
    async with RestClient(fleet.a) as rest:
        async with rest.events("/tools/job/call", body={"arguments": job.arguments}) as stream:
            while not shown or step_of(shown[-1]) < step:
                shown.append((await stream.next_event()).data.encode())
    yield Begun(json.loads(shown[0])["stream"], [*shown])


@asynccontextmanager
async def rest_detached(fleet: Fleet, job: Job, step: int) -> AsyncIterator[Begun]:
    """Followed by other connections, each of which brings a few lines."""
    async with RestClient(fleet.a) as rest:
        id_ = await rest.started("job", job.arguments)
    shown: list[Shown] = []
    while not shown or step_of(shown[-1]) < step:
        shown += await ndjson(fleet.a, id_, len(shown), 5)
    yield Begun(id_, shown)


# -- HTTP, handshake


@asynccontextmanager
async def handshake_http(fleet: Fleet, job: Job, step: int) -> AsyncIterator[Begun]:
    async with HttpClient(fleet.a.url) as client:
        await client.initialize()
        await client.request("tools/list")
        message = client.message("tools/call", {**call(job), "_meta": {"progressToken": TOKEN}})
        shown: list[Shown] = []
        async with client.stream(message) as stream:
            id_ = str((await stream.next_event()).id).partition(":")[0]
            while not shown or step_of(shown[-1]) < step:
                event = await stream.next_event()
                shown += _seen(str(event.id), event.data)
        yield Begun(id_, shown, MESSAGES, [listening(client)], client)


def listening(client: HttpClient) -> Way:
    """GET with `Last-Event-ID` in the session of the client."""

    async def read(stream: str, after: int, most: int | None) -> list[Shown]:
        shown: list[Shown] = []
        async with client.listen(f"{stream}:{after}") as response:
            assert (response.status, response.is_sse) == (200, True)
            with suppress(PeerClosed):  # the end of the response, which has to be that of the call: or it never ends
                while len(shown) != most:
                    event = await response.next_event()
                    shown += _seen(str(event.id), event.data) if event.data else []
        return shown

    return Way("the session", read, MESSAGES)


def _seen(id_: str, text: str) -> list[Shown]:
    """A message in the form of the event that it is."""
    message = json.loads(text)
    seq = int(id_.rpartition(":")[2])
    if "method" in message:
        assert message["method"] == "notifications/progress" and message["params"].pop("progressToken") == TOKEN
        message["params"].pop("_meta", None)
        return [{"seq": seq, "type": "progress", "data": message["params"]}]
    if "error" in message:
        return [{"seq": seq, "type": "error", "data": {"jsonrpc": {"code": message["error"]["code"]}}}]
    message["result"].pop("_meta", None)
    return [{"seq": seq, "type": "end", "data": {"outcome": "ok", "result": message["result"]}}]


# -- HTTP, modern


def task(tool: str) -> Start:
    """A task from the start, or once it has taken its time; its client speaks the hub's extension, too."""

    @asynccontextmanager
    async def start(fleet: Fleet, job: Job, step: int) -> AsyncIterator[Begun]:
        async with HttpClient(fleet.a.url) as client:
            answer = await client.request("tools/call", modern(call(job, tool), capabilities=TAKES, token=TOKEN))
        created = answer.last["result"]
        assert created["resultType"] == "task", created
        shown: list[Shown] = [*partials(answer.messages[:-1])]
        while (step_of(shown[-1]) if shown else 0) < step:
            begun = Begun(created["taskId"], shown)
            shown += await ndjson(fleet.b, begun.stream, begun.cursor, 5)
        yield Begun(created["taskId"], shown)

    return start


@asynccontextmanager
async def modern_http(fleet: Fleet, job: Job, step: int) -> AsyncIterator[Begun]:
    """Without tasks: the call ends with its connection."""
    async with HttpClient(fleet.a.url) as client:
        message = client.message("tools/call", modern(call(job), capabilities=SPEAKS, token=TOKEN))
        shown: list[Shown] = []
        async with client.stream(message) as stream:
            while not shown or step_of(shown[-1]) < step:
                notice = (await stream.next_event()).message
                shown += partials([notice])
                id_ = notice["params"]["_meta"][STREAMS]["stream"]
    yield Begun(id_, shown)


def partials(notices: list[Message]) -> list[Message]:
    """The events in progress notifications; the first event of a stream is never among them."""
    return [event for notice in notices for event in notice["params"]["_meta"][STREAMS]["events"]]


# -- stdio


def over_stdio(end: str, *, is_modern: bool) -> Start:
    """The client has a hub of its own, which ends with it: `end` is how."""

    @asynccontextmanager
    async def start(fleet: Fleet, job: Job, step: int) -> AsyncIterator[Begun]:
        async with fleet.stdio() as client:
            if is_modern:
                params = modern(call(job), capabilities=SPEAKS, token=TOKEN)
            else:
                await client.initialize(capabilities={"experimental": {STREAMS: {}}})
                params = {**call(job), "_meta": {"progressToken": TOKEN}}
            await client.send_request("tools/call", params)

            def is_there(message: Message) -> bool:
                return "_meta" in message.get("params", {}) and step_of(partials([message])[-1]) >= step

            last = await client.wait_for(is_there)
            yield await _left(client, end, last)

    return start


@asynccontextmanager
async def asked_over_stdio(fleet: Fleet, end: str) -> AsyncIterator[Begun]:
    """The same with a task of a remote server (`task_asks`) whose question the client has seen and not answered."""
    async with fleet.stdio() as client:
        await client.initialize(capabilities={"elicitation": {}, "experimental": {STREAMS: {}}})
        await client.request("tools/list")
        params = {"name": "task_asks", "arguments": {"nonce": end}, "_meta": {"progressToken": TOKEN}}
        await client.send_request("tools/call", params)

        def is_asked(message: Message) -> bool:
            return "_meta" in message.get("params", {}) and partials([message])[-1]["type"] == "input-required"

        last = await client.wait_for(is_asked)
        yield await _left(client, end, last)


async def _left(client: StdioClient, end: str, last: Message) -> Begun:
    """The job once its client is gone in that way, which has seen it up to this notification."""
    await ENDS[end](client)
    seen = [message for message in client.transcript if message.get("method") == "notifications/progress"]
    shown: list[Shown] = [*partials(seen[: seen.index(last) + 1])]
    return Begun(last["params"]["_meta"][STREAMS]["stream"], shown)


async def _is_gone(client: StdioClient) -> None:
    """As the system leaves a hub whose client was killed: all pipes are closed, that of its logs, too."""
    process: Any = client.process
    transport = process._process._transport  # closing the streams leaves the pipes open
    for number in (2, 1, 0):
        transport.get_pipe_transport(number).close()
    code = await client.wait()
    assert code == 0, code


async def _closes(client: StdioClient) -> None:
    """As the clients of the SDKs end a server: its input is closed, and it is asked to end if it still works."""
    assert client.process.stdin is not None
    await client.process.stdin.aclose()
    client.send_signal(signal.SIGTERM)
    assert await client.wait() == 0


async def _kills_the_hub(client: StdioClient) -> None:
    client.kill()
    await client.wait()


ENDS: dict[str, Any] = {"killed": _is_gone, "closed": _closes, "hub killed": _kills_the_hub}

GOES_ON: dict[str, Start] = {
    "handshake HTTP": handshake_http,
    "task": task("long_job"),
    "task in time": task("job"),
    "REST SSE": rest_sse,
    "REST detached": rest_detached,
}

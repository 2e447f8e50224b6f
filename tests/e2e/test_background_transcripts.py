"""Claude Code's background tasks, as they were recorded in a terminal, replayed against a hub and without Claude Code.

`python -m rigs.clients.background --write` records them. The lines of the rig are done again: the client is quit and
comes back, the hub is killed, the call ends.
"""

import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urljoin

import anyio
import httpx2
import pytest

from rigs.clients.claude import SERVER
from rigs.clients.transcripts import FOLDER, TASK, Sent, Transcript, errors, messages, read, shapes, steps
from tests.e2e.background import Background, background
from tests.interaction.fronts import http_hub
from tests.upstreams.child import WAIT
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

TRANSCRIPTS = {path.stem: read(path) for path in sorted((FOLDER / "background").glob("*.jsonl"))}
FIRST = ("quit", "question-http", "killed-away")
ENDED = ("completed", "failed", "cancelled")


class Way(Protocol):
    """A way to a hub that outlives its clients."""

    async def opened(self) -> None:
        """A client comes."""

    async def closed(self) -> None:
        """It is quit."""

    async def ended(self, by: signal.Signals) -> None:
        """The hub is ended, and another one can be reached."""

    async def sent(self, line: Sent) -> Message | None:
        """The answer to a line of the client; None if it has none."""


class OverStdio:
    """Clients of a background hub, one after the other."""

    def __init__(self, hubs: Background, config: str) -> None:
        self._hubs, self._config = hubs, config
        self._stack = AsyncExitStack()
        self._client: StdioClient | None = None

    async def opened(self) -> None:
        client = self._hubs.client(self._config, "--client", "claude-code")
        self._client = await self._stack.enter_async_context(client)

    async def closed(self) -> None:
        self._client = None
        await self._stack.aclose()

    async def ended(self, by: signal.Signals) -> None:
        self._hubs.signal(by)
        if self._client is None:
            await self._hubs.gone()

    async def sent(self, line: Sent) -> Message | None:
        assert self._client is not None
        (message,) = messages(line.line)
        after = len(self._client.transcript)
        await self._client.send_raw(line.line.encode() + b"\n")
        if "id" not in message or message["method"] == "subscriptions/listen":
            return None
        return await self._client.response(message["id"], after=after)


class OverHttp:
    """Clients of a hub over HTTP, which is started once more when it was killed."""

    def __init__(self, config: str, root: Path) -> None:
        self._config, self._root = config, root
        self._stack = AsyncExitStack()
        self._http = httpx2.AsyncClient(timeout=WAIT)

    async def started(self) -> None:
        self._hub = await self._stack.enter_async_context(http_hub(self._config, self._root, relays_all=False))

    async def opened(self) -> None:
        pass

    async def closed(self) -> None:
        pass

    async def ended(self, by: signal.Signals) -> None:
        self._hub.send_signal(by)
        await self._stack.aclose()
        await self.started()

    async def sent(self, line: Sent) -> Message | None:
        method, path = line.request.split()
        headers = dict(line.headers)
        found: list[Message] = []
        async with self._http.stream(
            method, urljoin(self._hub.url, path), content=line.line, headers=headers
        ) as answer:
            if messages(line.line) and messages(line.line)[0]["method"] == "subscriptions/listen":
                return None
            async for text in answer.aiter_lines():
                found += messages(text.removeprefix("data: "))
        return next((message for message in found if "method" not in message), None)

    async def stopped(self) -> None:
        await self._http.aclose()
        await self._stack.aclose()


@asynccontextmanager
async def way_of(transcript: Transcript, root: Path) -> AsyncIterator[Way]:
    server = [str(SERVER), str(root), "0.05"]
    slow = {"command": sys.executable, "args": server, "era": "handshake"}
    config = json.dumps({"hub": {"task_after": "300ms"}, "servers": {"slow": slow}})
    if transcript.is_http:
        http = OverHttp(config, root)
        await http.started()
        try:
            yield http
        finally:
            await http.stopped()
        return
    with background(root) as hubs:
        stdio = OverStdio(hubs, config)
        try:
            yield stdio
        finally:
            await stdio.closed()


async def replayed(transcript: Transcript, root: Path) -> list[Sent]:
    """The same with what the hub says now."""
    now: list[Sent] = []
    task = ""
    async with way_of(transcript, root) as way:
        for at, line in enumerate(transcript.sent):
            if line.side == "rig":
                now.append(line)
                if line.line == "end the hub":
                    await finished(transcript, task, way)
                await done(line.line, way, root)
            if line.side != "client":
                continue
            recorded = answer_to(line, transcript.sent[at:])
            if recorded is None:
                continue
            answer = await asked_until(recorded.get("result", {}).get("status"), way, with_task(line, task))
            now += [line, *([Sent("hub", line=json.dumps(answer))] if answer is not None else [])]
            task = task or str(((answer or {}).get("result") or {}).get("taskId", ""))
    return now


async def asked_until(status: str | None, way: Way, line: Sent) -> Message | None:
    """The answer to a line of the client, which is sent until the task has this status, or has ended."""
    with anyio.fail_after(WAIT):
        while True:
            answer = await way.sent(line)
            if answer is None or "result" not in answer or status in (None, "working"):
                return answer
            if answer["result"].get("status") in (status, *ENDED):
                return answer
            await anyio.sleep(0.02)


async def finished(transcript: Transcript, task: str, way: Way) -> None:
    """Waits as another client until the hub has the result of the call."""
    poll = next(line for line in transcript.sent if line.side == "client" and '"tasks/get"' in line.line)
    await way.opened()
    await asked_until("completed", way, with_task(poll, task))
    await way.closed()


async def done(line: str, way: Way, root: Path) -> None:
    """Does what the rig did."""
    match line.split():
        case ["claude", *_]:
            await way.opened()
        case ["quit"] | ["close", "the", "terminal"]:
            await way.closed()
        case ["kill", "the", "hub"]:
            await way.ended(signal.SIGKILL)
        case ["end", "the", "hub"]:
            await way.ended(signal.SIGTERM)
        case ["release", target]:
            (root / target).touch()
        case _:
            raise AssertionError(line)


def answer_to(line: Sent, later: Sequence[Sent]) -> Message | None:
    """What the hub answered then; None if the client was quit before. What has no answer has an empty one."""
    (message,) = messages(line.line)
    if "id" not in message or message["method"] == "subscriptions/listen":
        return {}
    for one in later:
        if one.side == "rig" and one.line.startswith(("claude", "quit", "close")):
            return None
        for said in messages(one.line) if one.side == "hub" else []:
            if said.get("id") == message["id"]:
                return said
    return None


def with_task(line: Sent, task: str) -> Sent:
    """The line with the id that the task has now."""
    headers = {name: value.replace(TASK, task) for name, value in line.headers.items()}
    return Sent(line.side, line.request, headers, line.status, line.line.replace(TASK, task))


def statuses(sent: Sequence[Sent]) -> list[str]:
    """Those of the task, each once in a row."""
    found = [str(status) for _, _, seen in steps(sent) for status in seen]
    return [status for at, status in enumerate(found) if found[:at][-1:] != [status]]


def ending(sent: Sequence[Sent]) -> Message:
    """What the ended task came to, without its ids."""
    results = [message.get("result", {}) for one in sent if one.side == "hub" for message in messages(one.line)]
    (*_, last) = [result for result in results if result.get("status") in ENDED]
    result, error = last.get("result", {}), last.get("error", {})
    return {"content": result.get("content"), "isError": result.get("isError"), "code": error.get("code")}


def questions(sent: Sequence[Sent]) -> list[Message]:
    """What the task asked, each once."""
    results = [message.get("result", {}) for one in sent if one.side == "hub" for message in messages(one.line)]
    asked = [result["inputRequests"] for result in results if "inputRequests" in result]
    return [one for at, one in enumerate(asked) if one not in asked[:at]]


def forms(sent: Sequence[Sent]) -> set[str]:
    """The shapes of answers; a task may have a message or not."""
    return {shape.replace(" 'statusMessage',", "") for shape in shapes(sent) if "notifications/" not in shape}


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(TRANSCRIPTS, key=lambda name: name not in FIRST))
async def test_a_task_comes_to_the_same_end_as_when_it_was_recorded(name: str, tmp_path: Path) -> None:
    transcript = TRANSCRIPTS[name]
    now = await replayed(transcript, tmp_path)
    assert errors(now) == []
    assert statuses(now) == statuses(transcript.sent)
    assert questions(now) == questions(transcript.sent)
    assert ending(now) == ending(transcript.sent)
    assert forms(now) == forms(transcript.sent)

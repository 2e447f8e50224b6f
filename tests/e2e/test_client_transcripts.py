"""Recorded conversations of real clients, replayed: the hub answers as it did then, in the era of each client.

`python -m rigs.clients.record --write` records them. Those whose names begin with `by-hand` were not recorded:
Claude Code 2.1.280 sent `initialize` after `server/discover` was answered (anthropics/claude-code#96183).
"""

import json
from itertools import groupby
from pathlib import Path
from urllib.parse import urljoin

import anyio
import httpx2
import pytest

from rigs.clients.transcripts import FOLDER, Sent, Transcript, errors, messages, read, shapes
from tests.interaction.fronts import http_hub, stdio_hub
from tests.upstreams.child import WAIT

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow]

CONFIG = """
hub: {capabilities: all}  # as it was when they were recorded
servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}
"""
TRANSCRIPTS = {path.stem: read(path) for path in sorted(FOLDER.glob("*.jsonl"))}
FIRST = ("by-hand-probe-then-handshake", "claude-session", "codex-modern-http")
ERAS = {
    **dict.fromkeys(TRANSCRIPTS, ["modern"]),
    **dict.fromkeys(("codex-status", "gemini-list"), ["handshake"]),
    "by-hand-probe-then-handshake": ["modern", "handshake"],
}


async def over_stdio(transcript: Transcript, root: Path) -> list[Sent]:
    """The same with what the hub says now. A line is sent when everything is answered that was answered before it."""
    sent: list[Sent] = []
    async with stdio_hub(CONFIG, root, client=None) as hub:
        for line in transcript.sent:
            if line.side == "client":
                sent.append(line)
                await hub.send_raw(line.line.encode() + b"\n")
                continue
            (message,) = messages(line.line)
            if "id" in message:
                await hub.response(message["id"])
            else:
                method = message["method"]
                await hub.wait_for(lambda one, method=method: one.get("method") == method)  # type: ignore[misc]
        assert hub.noise == []
        said = [Sent("hub", line=json.dumps(message)) for message in hub.transcript]
        assert await hub.close() == 0
    return [*sent, *said]


async def over_http(transcript: Transcript, root: Path) -> list[Sent]:
    """The same over HTTP, one request after the other; a stream that does not end is left after its first event."""
    sent: list[Sent] = []
    async with http_hub(CONFIG, root, relays_all=False) as hub, httpx2.AsyncClient(timeout=WAIT) as http:
        for line in transcript.sent:
            if line.side == "client":
                sent += [line, await answer(http, hub.url, line)]
    return sent


async def answer(http: httpx2.AsyncClient, url: str, asked: Sent) -> Sent:
    method, path = asked.request.split()
    is_endless = any(message.get("method") == "subscriptions/listen" for message in messages(asked.line))
    async with http.stream(method, urljoin(url, path), content=asked.line, headers=dict(asked.headers)) as response:
        with anyio.fail_after(WAIT):
            async for line in response.aiter_lines():
                if not is_endless or line.startswith("data: {"):
                    return Sent("hub", status=response.status_code, line=line.removeprefix("data: "))
    return Sent("hub", status=response.status_code)


def eras(sent: list[Sent]) -> list[str]:
    """The eras of the results, in order: those of the modern era have a `resultType`."""
    answers = [message for one in sent if one.side == "hub" for message in messages(one.line) if "result" in message]
    return [era for era, _ in groupby("modern" if "resultType" in one["result"] else "handshake" for one in answers)]


@pytest.mark.first(3)
@pytest.mark.parametrize("name", sorted(TRANSCRIPTS, key=lambda name: name not in FIRST))
async def test_the_hub_answers_a_client_as_when_it_was_recorded(name: str, tmp_path: Path) -> None:
    transcript = TRANSCRIPTS[name]
    now = await (over_http if transcript.is_http else over_stdio)(transcript, tmp_path)
    assert errors(now) == [] and shapes(now) == shapes(transcript.sent)
    assert eras(now) == ERAS[name]

"""Fifty clients at once on every HTTP front, all with the same request ids and progress tokens, at shared servers.

Whatever one of them gets (progress, log messages, questions, results) carries the secret of whom it belongs to.
"""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest

from tests.e2e.answers import Answers, form
from tests.e2e.client import Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.sse_client import SseClient
from tests.interaction.fronts import HANDSHAKE, MODERN, Peer, connected, http_hub
from tests.upstreams.launch import argv, servers_yaml, starts
from tests.upstreams.messages import Message

pytestmark = pytest.mark.anyio

CLIENTS, STEPS, TOKEN = 50, 3, "t"
KINDS = (HANDSHAKE, MODERN, "sse", "rest")
SERVERS = {"h": HANDSHAKE, "m": MODERN}
WAITS = [*(f'waits until another session has finished at "{name}"' for name in SERVERS), "its turn has come"]
"""Messages of the hub itself about a call that has to wait for long."""
SECRET = re.compile(r"secret-\d+-of-client")


@pytest.fixture
async def hub(tmp_path: Any) -> AsyncIterator[Hub]:
    servers = {name: argv(name=name, era=era, journal=tmp_path / f"{name}.journal") for name, era in SERVERS.items()}
    async with http_hub(servers_yaml(servers), tmp_path) as running:
        async with connected(running, HANDSHAKE, answers=Answers({"elicitation/create": form(answer="")})) as first:
            await first.names()
            await first.call("h_ask_form", {"nonce": "first"})  # from now on the hub knows that this server asks
        yield running
        for name in SERVERS:  # a modern one is started once more to find that out
            assert starts(tmp_path / f"{name}.journal") == 1 + (name == "m"), "one process for all of them"


class Told:
    """What one client was sent, and what it made of it."""

    def __init__(self, number: int) -> None:
        self.secret = f"secret-{number}-of-client"
        self.answers = Answers({"elicitation/create": form(answer=self.secret)})
        self.messages: list[Any] = []
        self.counts: Counter[str] = Counter()

    def check_own(self) -> None:
        foreign = {found for found in SECRET.findall(json.dumps(self.messages)) if found != self.secret}
        assert not foreign, (self.secret, foreign)

    def check(self, tool: str, before: list[Message], result: Message) -> None:
        """What one call brought: all of its progress, its own log message or none, its own question and answer."""
        self.messages += [before, result]
        progress = [
            m["params"] for m in before if m.get("method") == "notifications/progress" and "message" in m["params"]
        ]
        logs = [m["params"]["data"] for m in before if m.get("method") == "notifications/message"]
        assert {params["progressToken"] for params in progress} <= {TOKEN}
        self.counts["logs"] += len(logs)
        if tool.endswith("progress"):
            said = [params["message"] for params in progress if params["message"] not in WAITS]
            assert said == [f"{self.secret} {n + 1}" for n in range(STEPS)]
            self.counts["progress"] += STEPS
        elif tool.endswith("echo"):
            assert result["structuredContent"]["text"] == self.secret
        elif tool.endswith("ask_form"):
            told = result["structuredContent"]
            assert told["nonce"] == self.secret
            assert told["answers"]["form"]["result"]["content"] == {"answer": self.secret}
            self.counts["questions"] += 1


def calls(secret: str, number: int) -> list[tuple[str, Message]]:
    """The same for everybody, but for where they begin."""
    made = [
        (f"{server}_{tool}", {key: secret if value == "$" else value for key, value in arguments.items()})
        for tool, arguments in (
            ("progress", {"n": STEPS, "nonce": "$"}),
            ("echo", {"text": "$"}),
            ("ask_form", {"nonce": "$"}),
            ("log", {"level": "error", "data": "$"}),
        )
        for server in SERVERS
    ]
    start = number % len(made)
    return made[start:] + made[:start]


async def by_mcp(peer: Peer, told: Told, number: int) -> None:
    for tool, arguments in calls(told.secret, number):
        level = {"log_level": "debug"} if peer.era == MODERN else {}
        seen = await peer.call(tool, arguments, token=TOKEN, id=1, seconds=60, **level)
        told.check(tool, seen.before, seen.result)


async def by_rest(client: RestClient, told: Told, number: int) -> None:
    for tool, arguments in calls(told.secret, number):
        stream = (await client.call(tool, arguments, prefer="wait=0")).json()["stream"]
        known = await client.until(stream, "completed", "input_required")
        if known["status"] == "input_required":
            told.messages.append(known)
            content = {"action": "accept", "content": {"answer": told.secret}}
            for question in known["questions"]:
                await client.ask("POST", f"/streams/{stream}/input", {"key": question["key"], **content})
            known = await client.until(stream, "completed", "failed")
        page = (await client.ask("GET", f"/streams/{stream}/events?limit=1000")).json()
        told.messages.append(page)
        result = known["result"]
        told.check("log" if tool.endswith("progress") else tool, [], result)


@asynccontextmanager
async def one(hub: Hub, kind: str, told: Told) -> AsyncIterator[Any]:
    if kind == "rest":
        async with RestClient(hub) as rest:
            yield rest
    elif kind == "sse":
        async with SseClient.connect(hub.url) as sse:
            sse.answers = told.answers
            await sse.initialize("2025-11-25")
            yield Peer(sse, HANDSHAKE)
            told.messages += sse.transcript
    else:
        async with connected(hub, kind, answers=told.answers) as peer:
            yield peer


async def test_fifty_clients_with_equal_ids_and_tokens_get_only_what_is_theirs(hub: Hub) -> None:
    everybody = [Told(number) for number in range(CLIENTS)]
    are_ready = anyio.Event()
    waiting = 0

    async def live(number: int) -> None:
        nonlocal waiting
        told, kind = everybody[number], KINDS[number % len(KINDS)]
        async with one(hub, kind, told) as client:
            waiting += 1
            if waiting == CLIENTS:
                are_ready.set()
            await are_ready.wait()
            play: Any = by_rest if kind == "rest" else by_mcp
            await play(client, told, number)

    with anyio.fail_after(600):
        async with anyio.create_task_group() as tasks:
            for number in range(CLIENTS):
                tasks.start_soon(live, number)
    counts: Counter[str] = Counter()
    for told in everybody:
        told.check_own()
        counts += told.counts
    print(dict(counts))
    assert counts["questions"] == CLIENTS * len(SERVERS) and counts["progress"] and counts["logs"]

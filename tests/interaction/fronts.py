"""One raw client for every front and era, and hubs to point it at: only the wire differs, not what a test says."""

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.e2e.answers import Answers, follow_input
from tests.e2e.client import HttpClient, Hub
from tests.fork_server import forked_command
from tests.interaction.hub_process import hub_process, read, written
from tests.interaction.replicas import replicas
from tests.upstreams.child import WAIT, HttpUpstream
from tests.upstreams.messages import Id, Message, Params, modern
from tests.upstreams.stdio_client import Conversation, StdioClient

HANDSHAKE = "handshake"
MODERN = "modern"
ERAS = (HANDSHAKE, MODERN)
FRONTS = ("stdio", "http")


@dataclass(frozen=True)
class Seen:
    """What one request brought: its answer, and the notifications and questions before it in wire order.

    `rounds` has the `input_required` results that a modern peer with answers followed.
    """

    answer: Message
    before: list[Message] = field(default_factory=list)
    status: int | None = None
    rounds: list[Message] = field(default_factory=list)

    @property
    def result(self) -> Message:
        assert "result" in self.answer, self.answer
        result: Message = self.answer["result"]
        return result

    @property
    def error(self) -> Message:
        assert "error" in self.answer, self.answer
        error: Message = self.answer["error"]
        return error

    @property
    def text(self) -> str:
        (content,) = self.result["content"]
        return str(content["text"])

    def params(self, method: str) -> list[Message]:
        """The params of these notifications or questions."""
        return [message.get("params", {}) for message in self.before if message.get("method") == method]

    @property
    def progress(self) -> list[Message]:
        return self.params("notifications/progress")


class Peer:
    """A client of one era; the handshake must have happened where the era has one. One request at a time.

    With `answers` it answers the server's questions in the way of its era, and declares that it can (a handshake must
    have declared it, too). One that `runs_tools` calls no tool but `run_tool`, which runs those that it means.
    """

    def __init__(
        self,
        wire: Conversation | HttpClient,
        era: str,
        answers: Answers | None = None,
        *,
        runs_tools: bool = False,
        capabilities: Params = None,
    ) -> None:
        """Its capabilities, if they are of the modern era, are those of `answers` unless given."""
        self.wire = wire
        self.era = era
        self.answers = answers
        self.runs_tools = runs_tools
        self.capabilities = answers.capabilities if capabilities is None and answers is not None else capabilities
        if era == HANDSHAKE and answers is not None:
            wire.answers = answers

    def params(self, params: Params = None, *, log_level: str | None = None, **meta: Any) -> Message:
        """Request params of this era; `meta` goes into `_meta`."""
        if self.era == MODERN:
            return modern(params, capabilities=self.capabilities, log_level=log_level, **meta)
        assert log_level is None, "a handshake session sets its level"
        return {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **meta}} if meta else dict(params or {})

    async def request(
        self, method: str, params: Params = None, *, id: Id | None = None, seconds: float = WAIT, **meta: Any
    ) -> Seen:
        """Send and wait; `log_level=` and members of `_meta` as for `params`.

        A modern peer with answers goes on until no more input is required; `id` is then that of the first leg.
        """
        body = self.params(params, **meta)
        if self.runs_tools and method == "tools/call":
            body = through_run_tool(body)
        if self.era == HANDSHAKE or self.answers is None:
            return await self._exchange(method, body, id, seconds)
        legs: list[Seen] = []

        async def send(params: Message) -> Message:
            legs.append(await self._exchange(method, params, None if legs else id, seconds))
            return legs[-1].answer

        _, rounds = await follow_input(send, body, self.answers)
        before = [message for leg in legs for message in leg.before]
        return replace(legs[-1], before=before, rounds=rounds)

    async def _exchange(self, method: str, body: Message, id: Id | None, seconds: float) -> Seen:
        if isinstance(self.wire, HttpClient):
            answer = await self.wire.request(method, body, id=id)
            assert answer.messages, (answer.status, answer.text)
            return Seen(answer.last, answer.messages[:-1], answer.status)
        position = len(self.wire.transcript)
        answer_message = await self.wire.request(method, body, id=id, seconds=seconds)
        lines = self.wire.transcript[position:]
        return Seen(answer_message, lines[: next(i for i, line in enumerate(lines) if line is answer_message)])

    async def call(self, tool: str, arguments: Params = None, *, token: Id | None = None, **rest: Any) -> Seen:
        """`tools/call`; `token` is the progress token."""
        meta: dict[str, Any] = {} if token is None else {"progressToken": token}
        return await self.request("tools/call", {"name": tool, "arguments": dict(arguments or {})}, **meta, **rest)

    async def names(self, method: str = "tools/list", key: str = "tools", field: str = "name") -> list[str]:
        """What a list shows, all pages."""
        found: list[str] = []
        params: dict[str, Any] = {}
        while True:
            page = (await self.request(method, params)).result
            found += [item[field] for item in page[key]]
            if "nextCursor" not in page:
                return found
            params = {"cursor": page["nextCursor"]}


def through_run_tool(params: Message) -> Message:
    """The params of the call of `run_tool` that stands for this one."""
    meant = {key: params[key] for key in ("name", "arguments") if key in params}
    return {**params, "name": "run_tool", "arguments": meant}


@asynccontextmanager
async def stdio_hub(
    config_text: str, root: Path, *args: str, client: str | None = "mcp-hub", **env: str
) -> AsyncIterator[StdioClient]:
    """A hub over stdio with this `servers.yaml`; its state stays under `root`.

    It takes its client for one that waits for long calls, unless told of another kind (None: as it calls itself).
    """
    own = {"MCP_HUB_STATE_DIR": str(root / "state")}
    chosen = [] if client is None else ["--client", client]
    argv = [*forked_command(), "serve", "--config", str(written(root, config_text)), *chosen, *args]
    async with StdioClient(argv, {**own, **env}) as running:
        yield running


@asynccontextmanager
async def stdio_session(config_text: str, root: Path, *args: str, **more: Any) -> AsyncIterator[StdioClient]:
    """A hub over stdio as `stdio_hub`, past the handshake of its client."""
    async with stdio_hub(config_text, root, *args, **more) as running:
        await running.initialize()
        yield running


def relaying_all(config_text: str) -> str:
    """The same configuration with what makes the hub a mere relay for clients that it does not know."""
    config = read(config_text)
    if not isinstance(config, dict):
        return config_text
    hub = config.get("hub") or {}
    clients = hub.get("clients") or {}
    unknown = {"expose": "full", "max_result_tokens": 0, **clients.get("unknown", {})}
    return json.dumps({**config, "hub": {**hub, "clients": {**clients, "unknown": unknown}}}, indent=2)


def replica_count() -> int:
    """How many hubs `http_hub` puts behind a balancer."""
    return int(os.environ.get("REPLICAS", "1"))


@asynccontextmanager
async def http_hub(config_text: str, root: Path, *args: str, relays_all: bool = True, **env: str) -> AsyncIterator[Hub]:
    """A hub over HTTP on a free port of 127.0.0.1 with this `servers.yaml`; its cache and state stay under `root`.

    Clients that it does not know are listed all tools and given whole results, unless it is not to (`relays_all`). With
    `$REPLICAS` it is one of so many behind a balancer, whose URL it has. At the end it gets SIGTERM. Raises:
    `AssertionError`, with its stderr, if it does not start, or stop in `ENDS` s.
    """
    text = relaying_all(config_text) if relays_all else config_text
    count = replica_count()
    if count == 1 or args:
        async with hub_process(text, root, *args, **env) as hub:
            yield hub
        return
    async with replicas(text, root, count, env=env) as running:
        running.hubs[0].url = running.url
        yield running.hubs[0]


@asynccontextmanager
async def connected(
    wire: StdioClient | Hub | HttpUpstream,
    era: str,
    token: str | None = None,
    *,
    answers: Answers | None = None,
    runs_tools: bool = False,
) -> AsyncIterator[Peer]:
    """A client of that era; over stdio it shares the one pipe (whose handshake is the caller's)."""
    if isinstance(wire, StdioClient):
        yield Peer(wire, era, answers, runs_tools=runs_tools)
        return
    async with HttpClient(wire.url, token) as client:
        peer = Peer(client, era, answers, runs_tools=runs_tools)
        if era == HANDSHAKE:
            answer = await client.initialize()
            assert answer.status == 200, answer.text
        yield peer


def children(pid: int) -> set[int]:
    """The processes that `pid` started and that still run, theirs included."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found = {pid}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {pid}


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie that nobody has reaped yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False

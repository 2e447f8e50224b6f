"""What a bad client sends at any of the five doors, and what it is told: one row for each, one column for each door."""

import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio

from mcp_hub.fronts.limits import DEPTH
from rigs.hostile_clients.doors import DOORS, Door, HandshakeDoor, Said, SseDoor, StdioDoor, through
from tests.e2e.client import HttpClient, Hub
from tests.interaction.fronts import HANDSHAKE, http_hub, stdio_hub
from tests.upstreams.child import WAIT, until
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

ALICE, BOB = "alice-secret-token", "bob-secret-token"
LIMIT = 250_000
RUNNING, WAITING = 3, 4
LIMITS = {"line": LIMIT, "running_calls": RUNNING, "waiting_calls": WAITING}
HTTP = {
    "max_body": LIMIT,
    "max_headers": 8192,
    "header_timeout": "1s",
    "body_timeout": "1s",
    "sessions_per_principal": 20,
    "session_rate": 0,
    "requests_per_principal": 60,
}
TOKENS = [{"token": ALICE, "principal": "alice"}, {"token": BOB, "principal": "bob"}]


class Site:
    """A hub over HTTP that two principals share, of whom Bob is good."""

    def __init__(self, hub: Hub, root: Path, stdio: StdioClient | None = None) -> None:
        self.hub = hub
        self.root = root
        self.stdio = stdio
        self.answered = 0

    @property
    def url(self) -> str:
        return self.hub.url

    @property
    def journal(self) -> Path:
        """What has reached the server behind the hub."""
        return self.root / "journal"

    def where(self, door: str) -> str | StdioClient:
        if door == "stdio":
            assert self.stdio is not None
            return self.stdio
        return self.hub.url

    @asynccontextmanager
    async def bob(self) -> AsyncIterator[None]:
        """All the while Bob calls, and is answered what he asked for; at least once."""
        before = self.answered
        async with HttpClient(self.hub.url, BOB) as client, anyio.create_task_group() as tasks:
            assert (await client.initialize()).status == 200
            tasks.start_soon(self._calls, client)
            yield
            await until(lambda: self.answered > before)
            tasks.cancel_scope.cancel()

    async def _calls(self, client: HttpClient) -> None:
        while True:
            text = f"bob {self.answered}"
            answer = await client.request("tools/call", {"name": "a_echo", "arguments": {"text": text}})
            assert answer.last["result"]["structuredContent"] == {"text": text}, answer.last
            self.answered += 1
            await anyio.sleep(0.01)


def _config(root: Path, http: dict[str, Any], tokens: Sequence[Any] = ()) -> str:
    settings = {"limits": LIMITS, "http": {**HTTP, **http}, "tokens": [*TOKENS, *tokens]}
    servers = {"a": argv(name="a", journal=root / "journal"), "h": argv(name="h", era=HANDSHAKE)}
    return servers_yaml(servers, hub=settings)


@asynccontextmanager
async def http_site(root: Path, *, tokens: Sequence[Any] = (), **http: Any) -> AsyncIterator[Site]:
    """The hub over HTTP, up and running, with these changes to its limits."""
    async with http_hub(_config(root, http, tokens), root) as hub:
        async with HttpClient(hub.url, BOB) as bob:
            await bob.initialize()
            await bob.request("tools/list")
        yield Site(hub, root)


@asynccontextmanager
async def site(root: Path) -> AsyncIterator[Site]:
    """The same, and beside it a hub over stdio with the same limits."""
    folders = root / "http", root / "stdio"
    for folder in folders:
        folder.mkdir()
    async with http_site(folders[0]) as running, stdio_hub(_config(folders[1], {}), folders[1]) as stdio:
        await stdio.initialize()
        await stdio.request("tools/list")
        running.stdio = stdio
        yield running


# -- the rows

Case = Callable[[Door], Awaitable[str]]


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


async def malformed(door: Door) -> str:
    return str(await door.ask(b'{"jsonrpc":"2.0","id":1,"method":'))


async def no_message(door: Door) -> str:
    return str(await door.ask(b'{"jsonrpc":"1.0","id":1,"method":"ping"}'))


async def no_json_number(door: Door) -> str:
    return str(await door.ask(door.call("echo", {"text": "x", "n": 77777}).replace(b"77777", b"NaN")))


async def array(door: Door) -> str:
    return str(await door.ask(b"[" + door.call("echo", {"text": "x"}) + b"]"))


def padded(door: Door, size: int) -> bytes:
    body = door.call("slow", {"seconds": 0, "pad": "$"})  # which is not repeated in the answer
    return body.replace(b"$", b"x" * (size - len(body) + 1))


async def at_the_size(door: Door) -> str:
    return str(await door.ask(padded(door, LIMIT)))


async def past_the_size(door: Door) -> str:
    return str(await door.ask(padded(door, LIMIT + 1)))


def deep(door: Door, levels: int) -> bytes:
    """A message of so many levels: those of its form, and of an argument."""
    body = door.call("echo", {"text": "x", "deep": "$"})
    around = 2 if door.name == "rest" else 3
    return body.replace(b'"$"', nested(levels - around))


async def at_the_depth(door: Door) -> str:
    return str(await door.ask(deep(door, DEPTH)))


async def past_the_depth(door: Door) -> str:
    return str(await door.ask(deep(door, DEPTH + 1)))


async def as_deep_as_it_gets(door: Door) -> str:
    return str(await door.ask(deep(door, 100_000)))


NOT_TOKENS: list[Any] = [1.5, {}, [1], True]


async def odd_tokens(door: Door) -> str:
    """Progress tokens that are none; all of them are told the same."""
    said = {str(await door.ask(door.call("echo", {"text": "x"}, progressToken=token))) for token in NOT_TOKENS}
    return ", ".join(said)


async def crowd(door: Door) -> str:
    """Twice as many calls as may run and wait, at once: each is answered."""
    count = 2 * (RUNNING + WAITING)
    said: Counter[str] = Counter()
    gate = door.call("slow", {"seconds": 0.4}, id="$")

    async def one(id_: int) -> None:
        said[str(await door.ask(gate.replace(b'"$"', b"%d" % id_), id_))] += 1

    async with anyio.create_task_group() as tasks:
        for id_ in range(100, 100 + count):
            tasks.start_soon(one, id_)
    assert said.total() == count
    return ", ".join(
        f"{number} x {what}" for what, number in sorted(said.items(), key=lambda item: "result" not in item[0])
    )


async def same_id(door: Door) -> str:
    """Two calls of one id at once; what the second is told, if it is answered at all."""
    slow, quick = door.call("slow", {"seconds": 0.4}, id="same"), b""
    if isinstance(door, StdioDoor):
        quick = door.call("echo", {"text": "second"}, id="same")
        position = len(door.client.transcript)
        await door.client.send_raw(slow + b"\n" + quick + b"\n")
        await door.client.response("same", after=position)
        await door.client.request("ping", id="after")
        return _told(sum(message.get("id") == "same" for message in door.client.transcript[position:]))
    if isinstance(door, SseDoor):
        position = len(door.heard)
        await door.post(slow)
        await door.post(door.call("echo", {"text": "second"}, id="same"))
        await door.answer("same", position)
        await door.ask(b'{"jsonrpc":"2.0","id":"after","method":"ping"}', "after")
        return _told(sum(message.get("id") == "same" for message in door.heard[position:]))
    said: list[Said] = []

    async def ask(body: bytes) -> None:
        said.append(await door.ask(body, "same"))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, slow)
        await anyio.sleep(0.15)
        if door.name == "modern":
            door.headers = {**door.headers}  # type: ignore[attr-defined]  # the first request has its own
        await ask(door.call("echo", {"text": "second"}, id="same"))
    return str(said[0])


def _told(answers: int) -> str:
    return "no answer" if answers == 1 else f"{answers} answers"


async def foreign_cancellation(door: Door) -> str:
    """What becomes of a call of Bob's that somebody else cancels, by its id or stream."""
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}).encode()
    if isinstance(door, StdioDoor):
        await door.client.send_raw(note + b"\n")
        return str(await door.ask(door.call("echo", {"text": "x"})))
    bob = HandshakeDoor(door.url, BOB)  # type: ignore[attr-defined]  # all others have one
    await bob.initialize()
    said: list[Said] = []

    async def ask() -> None:
        said.append(await bob.ask(bob.call("slow", {"seconds": 0.3})))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.sleep(0.1)
        await door.post(note)  # type: ignore[attr-defined]
    return str(said[0])


CASES: dict[str, Case] = {
    "malformed JSON": malformed,
    "no JSON-RPC 2.0": no_message,
    "a number that JSON lacks": no_json_number,
    "an array": array,
    "as large as may be": at_the_size,
    "one byte more": past_the_size,
    "as deep as may be": at_the_depth,
    "one level more": past_the_depth,
    "100,000 levels": as_deep_as_it_gets,
    "odd progress tokens": odd_tokens,
    "an id that is in flight": same_id,
    "twice the calls that may be": crowd,
    "cancelling somebody else's id": foreign_cancellation,
}

_MOST = RUNNING + WAITING


def _row(stdio: str, handshake: str, modern: str, sse: str, rest: str) -> dict[str, str]:
    return dict(zip(DOORS, (stdio, handshake, modern, sse, rest), strict=True))


_PARSE = _row("-32700", "400 -32700", "400 -32700", "400 -32700", "400 invalid_json")
_FORM = _row("-32600", "400 -32600", "400 -32600", "400 -32600", "400 invalid_body")
_GOOD = _row("result", "200 result", "200 result", "202 result", "200 result")

EXPECTED: dict[str, dict[str, str]] = {
    "malformed JSON": _PARSE,
    "no JSON-RPC 2.0": _FORM,
    "a number that JSON lacks": _PARSE,
    "an array": _FORM,
    "as large as may be": _GOOD,
    "one byte more": _row("-32700", "413 -32600", "413 -32600", "413 -32600", "413 body_too_large"),
    "as deep as may be": _GOOD,
    "one level more": _PARSE | {"sse": "202 -32700"},
    "100,000 levels": _PARSE,
    "odd progress tokens": _row("-32602", "200 -32602", "400 -32602", "202 -32602", "400 invalid_body"),
    "an id that is in flight": _row("no answer", "400 -32600", "200 result", "no answer", "200 result"),
    "twice the calls that may be": _row(
        f"{_MOST} x result, {_MOST} x 1004",
        f"{_MOST} x 200 result, {_MOST} x 200 1004",
        f"{_MOST} x 200 result, {_MOST} x 200 1004",
        f"{_MOST} x 202 result, {_MOST} x 202 1004",
        f"{_MOST} x 200 result, {_MOST} x 503 busy",
    ),
    "cancelling somebody else's id": _row("result", *["200 result"] * 4),
}


async def told(where: Site, case: str, door: str) -> str:
    """What happens, while Bob goes on."""
    async with where.bob(), through(door, where.where(door), ALICE) as client:
        return await CASES[case](client)


async def flooded(client: StdioClient, count: int) -> Counter[str]:
    """So many calls in one write: what they are answered, each of them."""
    door, position = StdioDoor(client), len(client.transcript)
    lines = [door.call("slow", {"seconds": 0}, id=f"flood{number}") for number in range(count)]
    await client.send_raw(b"\n".join([*lines, b""]))

    answers: list[Message] = []

    def is_last(message: Message) -> bool:
        answers.extend([message] if "method" not in message else [])
        return len(answers) == count

    await client.wait_for(is_last, after=position, seconds=10 * WAIT)
    assert len({message["id"] for message in answers}) == len(answers) == count
    return Counter("result" if "result" in message else str(message["error"]["code"]) for message in answers)

"""Every way to read a stream from a cursor on, of any hub on its store, each of which can be left at any event."""

import json
import random
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import msgspec

from tests.e2e.client import HttpClient, Hub
from tests.e2e.rest_client import RestClient
from tests.e2e.three_hubs import STREAMS, Fleet, ndjson
from tests.fork_server import forked_command
from tests.unit.cli.command import SECONDS
from tests.upstreams.messages import Message, Params, modern
from tests.upstreams.stdio_client import StdioClient

Shown = bytes | Message
"""A stored line where the way shows that, else the members of the event that it shows."""
READ = f"{STREAMS}.read"
SPEAKS: Message = {"extensions": {STREAMS: {}}}
"""The capabilities of a client of the hub's extension."""
ALL = frozenset({"start", "progress", "delta", "input-required", "input-received", "end", "error"})


@dataclass(frozen=True)
class Way:
    """`read(stream, after, most)`: what comes behind the cursor, at most that many events, then the client is gone.

    Events of other types than `renderers` are not to be seen on it. What `is_whole` cannot be left before the end.
    """

    name: str
    read: Callable[[str, int, int | None], Coroutine[Any, Any, list[Shown]]]
    shows: frozenset[str] = ALL
    is_whole: bool = False


class Page(msgspec.Struct):
    """A page of stored lines, of REST or of `streams.read`."""

    events: list[msgspec.Raw]
    cursor: int | str
    closed: bool
    truncated: bool = False


class _Answer(msgspec.Struct):
    result: Page


async def read_page(wire: HttpClient | StdioClient, params: Params) -> Message:
    """The answer to `streams.read` of a client that has shaken hands, or else of a modern one."""
    is_modern = isinstance(wire, StdioClient) or wire.session is None
    body = modern(params, capabilities=SPEAKS) if is_modern else params
    answer = await wire.request(READ, body)
    return answer if isinstance(answer, dict) else answer.last


async def wander(way: Way | list[Way], stream: str, after: int, chance: random.Random) -> list[Shown]:
    """All that comes behind the cursor, to a client that loses its connection again and again."""
    found: list[Shown] = []
    ways = way if isinstance(way, list) else [way]
    with anyio.fail_after(SECONDS):
        while not (found and has_ended(found[-1])):
            way = chance.choice(ways)
            most = None if way.is_whole else chance.choice([1, 2, 10, 60, 300])
            found += await way.read(stream, _seq(found[-1]) if found else after, most)
    return found


def has_ended(shown: Shown) -> bool:
    return _members(shown)["type"] in ("end", "error")


def check_rest(shown: list[Shown], lines: list[bytes], after: int, shows: frozenset[str] = ALL) -> None:
    """It is exactly what the stream has behind the cursor, as far as such a way shows it."""
    stored = [(line, json.loads(line)) for line in lines[after:]]
    expected = [(line, event) for line, event in stored if event["type"] in shows]
    assert [_seq(each) for each in shown] == [event["seq"] for _, event in expected]
    for each, (line, event) in zip(shown, expected, strict=True):
        assert each == line if isinstance(each, bytes) else _is_within(each, event), (each, line)


def _is_within(shown: Any, stored: Any) -> bool:
    if isinstance(shown, dict) and isinstance(stored, dict):
        return all(key in stored and _is_within(value, stored[key]) for key, value in shown.items())
    return bool(shown == stored)


def _members(shown: Shown) -> Message:
    members: Message = json.loads(shown) if isinstance(shown, bytes) else shown
    return members


def _seq(shown: Shown) -> int:
    return int(_members(shown)["seq"])


@asynccontextmanager
async def every_way(fleet: Fleet) -> AsyncIterator[list[Way]]:
    """Those that need nothing but the id of the stream; the first is the only one that needs hub A."""
    async with (
        RestClient(fleet.a) as a,
        RestClient(fleet.b) as b,
        HttpClient(fleet.b.url) as handshake,
        HttpClient(fleet.b.url) as later,
    ):
        await handshake.initialize(capabilities={"experimental": {STREAMS: {}}})
        yield [
            Way("SSE of A by Last-Event-ID", _sse(a, by_header=True)),
            Way("SSE of B", _sse(b, by_header=False)),
            Way("NDJSON of B", _ndjson(fleet.b)),
            Way("pages of B", _pages(b)),
            Way("streams.read over stdio", _reads(fleet.c)),
            Way("streams.read of B, handshake", _reads(handshake)),
            Way("streams.read of B, modern", _reads(later)),
            Way("mcp-hub resume", _command(fleet.env), ALL - {"start"}, is_whole=True),
        ]


Read = Callable[[str, int, int | None], Coroutine[Any, Any, list[Shown]]]


def _sse(client: RestClient, *, by_header: bool) -> Read:
    async def read(stream: str, after: int, most: int | None) -> list[Shown]:
        found: list[Shown] = []
        path, header = f"/streams/{stream}/events", None
        if by_header:
            path, header = f"{path}?after=0", str(after)
        else:
            path = f"{path}?after={after}"
        async with client.events(path, header) as response:
            assert response.status == 200
            while len(found) != most and (event := await response.next_event()).event != "closed":
                line = json.loads(event.data)
                assert (event.id, event.event) == (str(line["seq"]), line["type"])
                found.append(event.data.encode())
        return found

    return read


def _ndjson(hub: Hub) -> Read:
    async def read(stream: str, after: int, most: int | None) -> list[Shown]:
        return [*await ndjson(hub, stream, after, most)]

    return read


def _pages(client: RestClient) -> Read:
    async def read(stream: str, after: int, most: int | None) -> list[Shown]:
        path = f"/streams/{stream}/events?after={after}&limit={most or 1000}"
        answer = await client.ask("GET", path)
        return _taken(msgspec.json.decode(answer.content, type=Page), after, most)

    return read


def _reads(wire: HttpClient | StdioClient) -> Read:
    async def read(stream: str, after: int, most: int | None) -> list[Shown]:
        params = {"stream": stream, "cursor": str(after), "maxEvents": most or 1000, "waitMs": 10_000}
        if isinstance(wire, StdioClient):
            page = (await read_page(wire, params))["result"]
            assert page["cursor"] == str(page["events"][-1]["seq"]) and len(page["events"]) <= (most or 1000)
            return list(page["events"])
        body = params if wire.session else modern(params, capabilities=SPEAKS)
        answer = await wire.request(READ, body)
        text = answer.events[-1].data if answer.events else answer.text
        return _taken(msgspec.json.decode(text, type=_Answer).result, after, most)

    return read


def _taken(page: Page, after: int, most: int | None) -> list[Shown]:
    lines: list[Shown] = [bytes(line) for line in page.events]
    assert int(page.cursor) == after + len(lines) and len(lines) <= (most or 1000) and not page.truncated
    assert page.closed == bool(lines and has_ended(lines[-1]))
    return lines


def _command(env: Mapping[str, str]) -> Read:
    async def read(stream: str, after: int, most: int | None) -> list[Shown]:
        command = [*forked_command(), "resume", stream, "--json", "--after", str(after)]
        with anyio.fail_after(SECONDS):
            done = await anyio.run_process(command, check=False, env=env)
        return [_as_stored(json.loads(line)) for line in done.stdout.splitlines()]

    return read


def _as_stored(line: Message) -> Message:
    """What a line of the command says, in the form of the event."""
    head = {"seq": line.pop("seq"), "type": line.pop("type")}
    line.pop("skipped", None)
    return {**head, "data": {"jsonrpc": line} if head["type"] == "error" else line}

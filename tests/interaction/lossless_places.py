"""Clients that see JSON as text, at hubs of both fronts, each with servers of both eras over both transports."""

import itertools
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.answers import EVERYTHING
from tests.e2e.client import HttpClient
from tests.fork_server import forked_command
from tests.interaction.fronts import ERAS, HANDSHAKE, MODERN, http_hub
from tests.interaction.json_text import items, member, members
from tests.interaction.verbatim_server import ANSWER, LISTS, REFUSE
from tests.upstreams.child import HttpUpstream
from tests.upstreams.launch import argv, servers_yaml
from tests.upstreams.messages import modern
from tests.upstreams.stdio_client import StdioClient

SERVERS = {"h": (HANDSHAKE, "stdio"), "m": (MODERN, "stdio"), "hr": (HANDSHAKE, "HTTP"), "mr": (MODERN, "HTTP")}
FIRST = "first"
"""The server in front of all: where a URI is listed by several, it is the one that keeps it."""
CLASHING = "test://shared/info"
INSTRUCTIONS = "I am for tests. There is more to say."
WHOLE = {"expose": "full", "max_result_tokens": 0}
"""All tools are listed, and results of any length come whole."""
VERBATIM = Path(__file__).with_name("verbatim_server.py")
RESERVED = "io.modelcontextprotocol/"
MARK = "example.org/mark"
MARKED = '"dev.mcp-hub/streams":{"stream"'
"""The mark of a call that was logged: it sent something before its answer, or took long."""
TRIES = 20

# texts that are easily spoilt on the way
BIG = "123456789012345678901234567890"
NUMBERS = '{"a":1.10,"b":1E+2,"c":-0.0,"d":1e400,"e":0.1e1,"f":12345678901234567890.5}'
INTEGERS = f'{{"a":18446744073709551616,"b":-{BIG},"c":9007199254740993,"d":[{"9" * 400}]}}'
ESCAPES = (
    r'{"a":"\u0000\u001f\u007f","b":"\/\u0041\u00e9","c":"é✓😀\ud83d\ude00","d":"\u2028\b\f\n\r\t\"\\","\u006bey":1}'
)
LONE = r'{"a":"x\ud83dy","b":"\ude00\ud83d","c":"\ud83d\ude00"}'
DOUBLED = '{"a":1,"b":{"c":1,"c":2},"a":3}'
DEEP = '{"a":' * 50 + "[" * 50 + "]" * 50 + "}" * 50
SPACED = '{ "a" : [ 1 , 2 ] ,\t"b" : { } }'
BROKEN = '{\n  "a": [\n    1\n  ]\r\n}'
META = '{"example.org/x":{"deep":[1,null,1.50]},"traceparent":"00-ab-cd-01","plain":[]}'
_ids = itertools.count(1000)  # above those of the handshake


def text_of(value: Any) -> str:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":"))


class RawPipe(StdioClient):
    """A `StdioClient` that keeps the messages as they came."""

    def __init__(self, argv: list[str], env: Mapping[str, str]) -> None:
        super().__init__(argv, env)
        self.lines: list[str] = []

    def _line(self, line: bytes) -> None:
        self.lines.append(line.decode())
        super()._line(line)


@dataclass(frozen=True)
class Place:
    """One client at one hub, and the server that is measured from there; one request at a time.

    `front` and `transport` (of the server) are `stdio` or `HTTP`. Where it `runs_tools`, `run_tool` runs every tool.
    """

    wire: RawPipe | HttpClient = field(repr=False)
    front: str
    era: str
    server: str
    journal: Path = field(repr=False)
    lists: dict[str, list[str]] = field(default_factory=dict, hash=False, repr=False)
    runs_tools: bool = False

    @property
    def server_era(self) -> str:
        return SERVERS[self.server][0]

    @property
    def transport(self) -> str:
        return SERVERS[self.server][1]

    async def request(self, method: str, params: str = "", meta: str = "") -> list[str]:
        """Send members of the params, and of their `_meta`: the messages that come, the answer last.

        What took so long that the hub marked its result is sent again: a busy machine is not what is measured.
        """
        for _ in range(TRIES):
            found = await self._exchange(method, params, meta)
            if len(found) > 1 or MARKED not in found[0]:
                break
        return found

    async def _exchange(self, method: str, params: str, meta: str) -> list[str]:
        if self.runs_tools and method == "tools/call":
            params = _through_run_tool(params)
        own = dict(modern(capabilities=EVERYTHING)["_meta"]) if self.era == MODERN else {}
        envelope = ",".join(part for part in (text_of(own)[1:-1], meta) if part)
        inner = ",".join(part for part in (params, f'"_meta":{{{envelope}}}' if envelope else "") if part)
        id_ = next(_ids)
        body = f'{{"jsonrpc":"2.0","id":{id_},"method":"{method}","params":{{{inner}}}}}'
        if isinstance(self.wire, HttpClient):
            return await _posted(self.wire, body)
        start = len(self.wire.lines)
        await self.wire.send_raw(" ".join(body.split("\n")).encode() + b"\n")
        await self.wire.response(id_)
        lines = self.wire.lines[start:]
        (end,) = [i for i, line in enumerate(lines, 1) if f'"id":{id_},' in line and '"method"' not in line[:80]]
        return lines[:end]

    async def asked(self, method: str, answer: str, *, key: str = ANSWER) -> str:
        """The answer to a request that the server answers by this text, or by this error with the key `REFUSE`."""
        meta = f"{text_of(key)}:{text_of(answer)}"
        return (await self.request(method, self.ordinary(method), meta))[-1]

    async def refused(self, method: str, error: str) -> str:
        return await self.asked(method, error, key=REFUSE)

    async def told(self, tool: str, text: str, meta: str, method: str) -> list[str]:
        """Have a tool of the fixture send this text as params; the params of what came of this method."""
        call = f'"name":"{self.server}_{tool}","arguments":{{"json":{text_of(text)}}}'
        found = await self.request("tools/call", call, meta)
        return [member(message, "params") for message in found if f'"method":"{method}"' in message]

    def ordinary(self, method: str) -> str:
        """Params of a request that the server serves."""
        server = self.server
        return {
            "tools/call": f'"name":"{server}_echo","arguments":{{"text":"x"}}',
            "prompts/get": f'"name":"{server}_fixed"',
            "resources/read": f'"uri":"test://{server}/readme"',
            "completion/complete": f'"ref":{{"type":"ref/prompt","name":"{server}_greet"}},'
            '"argument":{"name":"who","value":"a"}',
        }[method]

    async def traced(self, method: str, params: str, answer: str, meta: str = "") -> tuple[str, str]:
        """The params as the server got them (`""` if it did not), and the answer; the server answers by this text."""
        nonce = f"nonce-{next(_ids)}"
        marks = text_of({ANSWER: answer, MARK: nonce})[1:-1]
        before = self.journal.stat().st_size
        got = (await self.request(method, params, ",".join(part for part in (meta, marks) if part)))[-1]
        with self.journal.open("rb") as journal:
            journal.seek(before)
            records = [line for line in journal.read().split(b"\n") if nonce.encode() in line]
        return member(records[0].decode(), "received", "params") if records else "", got

    async def arrived(self, method: str, params: str, meta: str = "") -> str:
        """The params of a request as the server got them."""
        return (await self.traced(method, params, '{"content":[],"contents":[],"messages":[]}', meta))[0]

    def unnamed(self, found: list[str]) -> list[str]:
        """These changes with the server's name left open."""
        return [re.sub(rf"\b{self.server}(?=[_/])", "{server}", change) for change in found]

    async def listed(self, method: str) -> list[str]:
        """The definitions of a list, of all pages; asked for once."""
        if method not in self.lists:
            found, cursor = [], ""
            while True:
                page = member((await self.request(method, cursor))[-1], "result")
                found += items(member(page, LISTS[method]))
                following = member(page, "nextCursor")
                if not following:
                    break
                cursor = f'"cursor":{following}'
            self.lists[method] = found
        return self.lists[method]

    async def ready(self) -> None:
        """Wait until the servers are up, and have log messages sent."""
        names = await self.listed("tools/list")
        assert all(any(member(tool, "name") == f'"{name}_echo"' for tool in names) for name in SERVERS), self
        if self.era == HANDSHAKE:
            await self.request("logging/setLevel", '"level":"debug"')


def _through_run_tool(params: str) -> str:
    """The members of the params of the call of `run_tool` that stands for this one."""
    meant: dict[bool, list[str]] = {True: [], False: ['"name":"run_tool"']}
    for key, value in members(f"{{{params}}}"):
        meant[key in ("name", "arguments")].append(f'"{key}":{value}')
    return ",".join([*meant[False], f'"arguments":{{{",".join(meant[True])}}}'])


def vendor_meta(params: str) -> str:
    """The `_meta` of a request without what is made anew for each hop, and without our own marks."""
    kept = [
        f"{text_of(key)}:{value}"
        for key, value in members(member(params, "_meta") or "{}")
        if key not in ("progressToken", ANSWER, MARK) and not key.startswith(RESERVED)
    ]
    return f"{{{','.join(kept)}}}"


async def _posted(client: HttpClient, body: str) -> list[str]:
    answer = await client.post(body.encode(), client._headers(json.loads(body)))
    return [event.data for event in answer.events if event.data] or [answer.text]


def _verbatim(command: list[str], lists: Path) -> list[str]:
    """The command line of a fixture server, for the one that says what a test spells out."""
    return [command[0], str(VERBATIM), str(lists), *command[2:]]


@asynccontextmanager
async def places(root: Path, definitions: Mapping[str, list[str]]) -> AsyncIterator[list[list[Place]]]:
    """Every place, in groups that may be measured side by side. `definitions` are listed by every server."""
    lists = root / "lists.json"
    lists.write_text(json.dumps(definitions), "utf-8")
    journals = {name: root / f"{name}.journal" for name in SERVERS}
    async with AsyncExitStack() as stack:
        servers: dict[str, list[str] | str] = {FIRST: argv(name=FIRST)}
        for name, (era, transport) in SERVERS.items():
            options = {"name": name, "era": era, "journal": journals[name], "instructions": INSTRUCTIONS}
            if transport == "stdio":
                servers[name] = _verbatim(argv(**options), lists)
            else:
                remote = HttpUpstream(**options)
                remote.argv = _verbatim(remote.argv, lists)
                servers[name] = (await stack.enter_async_context(remote)).url
        wires = await _wires(stack, root, servers_yaml(servers, hub=WHOLE))
        groups: dict[tuple[str, str], list[Place]] = {}
        for (front, era), wire in wires.items():
            for name in SERVERS:
                # an upstream process of the HTTP hub is shared by the clients of both eras
                group = groups.setdefault((front, name if front == "HTTP" else era), [])
                group.append(Place(wire, front, era, name, journals[name]))
        for group in groups.values():
            for place in group:
                await place.ready()
        yield list(groups.values())


async def _wires(stack: AsyncExitStack, root: Path, config: str) -> dict[tuple[str, str], RawPipe | HttpClient]:
    """A client of each era at each front, past its handshake. A stdio hub has one client only."""
    found: dict[tuple[str, str], RawPipe | HttpClient] = {}
    hub = await stack.enter_async_context(http_hub(config, root))
    for era in ERAS:
        serve = ["serve", "--client", "mcp-hub", "--config", str(root / "servers.yaml")]
        command = [*forked_command(), *serve]
        pipe = await stack.enter_async_context(RawPipe(command, {"MCP_HUB_STATE_DIR": str(root / f"state-{era}")}))
        client = await stack.enter_async_context(HttpClient(hub.url))
        found["stdio", era], found["HTTP", era] = pipe, client
        if era == HANDSHAKE:
            await pipe.initialize(capabilities=EVERYTHING)
            await client.initialize(capabilities=EVERYTHING)
    return found


Row = Callable[[Place], Awaitable[list[str] | None]]
"""What changed at one place, nothing if it is the same; None where there is no such thing."""


def over_http(row: Row) -> Row:
    """The row of what only a server over HTTP can send: JSON of several lines."""

    async def measured(place: Place) -> list[str] | None:
        return await row(place) if place.transport == "HTTP" else None

    return measured

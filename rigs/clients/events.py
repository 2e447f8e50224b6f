"""`make clients`: real implementations of MCP Events on both sides of the hub.

The client is `@ai-sdk/mcp`, which lists types and takes webhooks; it refuses what its own schemas do not allow. The
server is `mcp-webhook-events`, which was tried with ChatGPT and has the error codes of the draft. Exit code 1 for a
fault, or for one that is not installed. `@tanstack/ai-mcp` has events in no release up to 0.2.5, FastMCP's server in
none up to 4.2.3.
"""

import json
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import anyio

from mcp_hub.protocol.shape.occurrences import NOT_FOUND
from rigs import report
from rigs.clients.apps import Fault, expect
from rigs.clients.clients import DRIVERS, ai_sdk
from rigs.clients.install import ROOT, NotInstalled, python_version, python_with
from rigs.clients.rig import piped_hub
from tests.interaction.fronts import HANDSHAKE, MODERN, connected
from tests.interaction.hub_process import hub_process
from tests.interaction.occurring import Poller, Service, config, streaming
from tests.upstreams.child import PeerClosed
from tests.upstreams.messages import Message
from tests.upstreams.stdio_client import StdioClient

NAME = "ci_build_done"
PUBLIC = "https://hub.example.com"
WAIT = 60.0
"""Seconds for one command or message, on a busy machine."""
LOCAL = {"events": {"webhook_hosts": ["127.0.0.1"]}}
RUNS = (
    ("http", True, MODERN, "push"),
    ("http", True, HANDSHAKE, "poll"),
    ("http", False, MODERN, "poll,push"),
    ("stdio", True, MODERN, "poll"),
    ("stdio", False, HANDSHAKE, "push"),
)
"""Front, whether the client asks for the newest era, era and modes of the server."""


ODD: Sequence[Mapping[str, Any]] = (
    {"timestamp": "2026-11-30T10:00:00"},
    {"timestamp": "2026-11-30 10:00"},
    {"timestamp": "2026-11-30t10:00:00.123456789+0530"},
    {"timestamp": "20261130T100000,5Z"},
    {"timestamp": "2026-11-30"},
    {"eventId": "build 12 of main"},
    {"eventId": "x" * 512},
    {"_meta": {"trace": 1}, "unknown": [1]},
)
"""Members of events, as servers have them whose authors have read ISO 8601."""


class Driver:
    """The driver of the client."""

    def __init__(self, process: StdioClient) -> None:
        self._process = process
        self._heard = 0

    @property
    def said(self) -> list[Message]:
        return self._process.transcript

    async def ask(self, do: str, **more: Any) -> Message:
        """What came of a command: a message with `done` or `failed`."""
        position = len(self.said)
        await self._process.send({"do": do, **more})
        return await self._process.wait_for(
            lambda said: "done" in said or "failed" in said, after=position, seconds=WAIT
        )

    async def done(self, do: str, **more: Any) -> Any:
        """Raises `Fault` if the client refuses it."""
        answer = await self.ask(do, **more)
        expect("done" in answer, f"{do} failed", answer.get("failed"))
        return answer["done"]

    @property
    def numbers(self) -> list[int]:
        return [said["event"]["data"]["n"] for said in self.said if "event" in said]

    def of(self, kind: str) -> list[Any]:
        return [said[kind] for said in self.said if kind in said]

    async def until(self, *numbers: int) -> None:
        """Raises `Fault` if the events are others."""
        with anyio.move_on_after(WAIT):
            while len(self.numbers) < len(numbers):  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.02)
        expect(self.numbers == list(numbers), "other events", [self.numbers, self.said[-5:], self._process.stderr])

    async def until_ended(self, count: int) -> None:
        """Raises `Fault` unless so many subscriptions end, because the type does."""
        with anyio.move_on_after(WAIT):
            while len(self.of("terminated")) < count:  # noqa: ASYNC110 - of another process
                await anyio.sleep(0.02)
        codes = [error["code"] for error in self.of("terminated")]
        expect(codes == [NOT_FOUND] * count, "other subscriptions have ended", codes)


@asynccontextmanager
async def hub_before(text: str, front: str, root: Path) -> AsyncIterator[dict[str, Any]]:
    """Where a client finds the hub."""
    if front == "stdio":
        (root / "servers.yaml").write_text(text)
        yield piped_hub(root)
        return
    async with hub_process(text, root) as hub:
        async with connected(hub, MODERN) as first:
            await first.names()  # what the servers have is declared once they have been listed
        yield {"url": hub.url}


async def subscribes(run: Sequence[Any], root: Path) -> None:
    """The client of the AI SDK with one server behind the hub. Raises `Fault`."""
    front, discovers, era, modes = run
    service = Service(root, "ci")
    async with (
        hub_before(config({"ci": service.argv(era, modes)}, **LOCAL), front, root) as target,
        StdioClient(ai_sdk_command(), cwd=ROOT) as process,
    ):
        driver = Driver(process)
        await driver.done("connect", target=target, discovers=discovers)
        types = {event["name"]: event["delivery"] for event in await driver.done("list")}
        expect(sorted(types) == [NAME, "ci_build_other"] and "webhook" in types[NAME], "other types", types)
        await delivered_once(driver, service)
        await ended(driver, service)
        if "push" in modes:  # its streams say that a type has ended
            service.file.with_suffix(".terminate").touch()
            await driver.until_ended(2)
        await driver.done("close")


def ai_sdk_command() -> list[str]:
    node, _, package = ai_sdk.argv()
    return [node, str(DRIVERS / "ai_sdk_events.mjs"), package]


async def delivered_once(driver: Driver, service: Service) -> None:
    """Each event arrives once and in order, also when the application fails, and after a refresh."""
    created = await driver.done("subscribe", name=NAME, args={}, cursor=None)
    service.happens(1, 2, 3)
    await driver.until(1, 2, 3)
    await driver.done("fail", times=1)
    service.happens(4)
    await driver.until(1, 2, 3, 4)
    refused = [said["id"] for said in driver.said if said.get("status") == 503]
    expect(refused.count("e4") == 1, "not exactly one answer 503 to the fourth event", refused)
    refreshed = await driver.done("refresh", id=created["id"])
    expect(refreshed["id"] == created["id"] and not refreshed["truncated"], "another subscription", refreshed)
    service.happens(5)
    await driver.until(1, 2, 3, 4, 5)
    statuses = {said["status"] for said in driver.said if "status" in said}
    expect(statuses <= {200, 204, 503}, "its webhook refuses messages of the hub", statuses)
    taken = [said["id"] for said in driver.said if said.get("status") == 204]
    events = [event["eventId"] for event in driver.of("event")]
    expect(len(taken) >= 4 and taken == events[: len(taken)], "webhook-id is not the eventId", [taken, events])


async def ended(driver: Driver, service: Service) -> None:
    """The end of a subscription, a replay from a stored cursor, a cursor of nobody, and an error."""
    (kept,) = await driver.done("kept")
    left = await driver.done("unsubscribe", id=kept["id"])
    expect(left == 0, "a subscription is left", left)
    service.happens(6)
    again = await driver.done("subscribe", name=NAME, cursor=kept["cursor"], path="/again")
    await driver.until(1, 2, 3, 4, 5, 6)
    lost = await driver.done("subscribe", name=NAME, cursor="st_00000000000000000000000000.5", path="/lost")
    expect(not again["truncated"] and lost["truncated"], "truncated", [again, lost])
    failed = (await driver.ask("subscribe", name="ci_build_other", cursor=None, path="/other")).get("failed") or {}
    expect(failed.get("code") == -32602, "a missing argument is not refused", failed)


async def strict(root: Path) -> None:
    """Each event of a server that spells times and ids in its own way passes the client's schemas. Raises `Fault`."""
    service = Service(root, "ci")
    text = config({"ci": service.argv(MODERN, "push")}, **LOCAL)
    async with hub_before(text, "http", root) as target, StdioClient(ai_sdk_command(), cwd=ROOT) as process:
        driver = Driver(process)
        await driver.done("connect", target=target, discovers=True)
        await driver.done("subscribe", name=NAME, args={}, cursor=None)
        for number, members in enumerate(ODD, 1):
            service.happens(number, **members)
        service.happens(0, timestamp="2026-02-30T10:00:00Z")  # no such day: left out
        service.happens(len(ODD) + 1)
        await driver.until(*range(1, len(ODD) + 2))
        refused = [said for said in driver.said if said.get("status", 204) not in (200, 204)]
        expect(not refused, "its webhook refuses messages of the hub", refused)
        expect(bool(driver.of("gap")), "what was left out is no gap", driver.said[-5:])


async def hears(root: Path) -> None:
    """A hub before the server of `mcp-webhook-events`; a client polls, streams, and gets webhooks. Raises `Fault`."""
    python = python_with(WEBHOOK_EVENTS, "webhook-events")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = [str(python), str(DRIVERS / "webhook_events_server.py"), str(root), str(port)]
    url = f"http://127.0.0.1:{port}/mcp"
    text = json.dumps({"hub": {"http": {"public_url": PUBLIC}, **LOCAL}, "servers": {"desk": {"url": url}}})
    async with StdioClient(server) as desk:
        await desk.wait_stderr("Uvicorn running")
        async with hub_process(text, root) as hub, connected(hub, MODERN) as peer:
            parts = urlsplit(hub.url)
            (root / "hub").write_text(f"{parts.scheme}://{parts.netloc}")
            names = await peer.names("events/list", "events")
            expect(names == ["desk_ticket_updated"], "other types", names)
            await heard(peer, desk, hub.url)


async def heard(peer: Any, desk: StdioClient, url: str) -> None:
    """What the server publishes reaches a poll, a stream and the AI SDK's webhook, each once."""
    name = "desk_ticket_updated"
    poller = Poller(peer, name)
    await poller.poll()
    async with streaming(peer, name) as stream, StdioClient(ai_sdk_command(), cwd=ROOT) as process:
        driver = Driver(process)
        await driver.done("connect", target={"url": url}, discovers=True)
        await driver.done("subscribe", name=name, cursor=None)
        for number in (1, 2, 3):
            await desk.send({"n": number})
        await stream.until(lambda: len(stream.numbers) >= 3)
        await driver.until(1, 2, 3)
        await poller.until(lambda: len(poller.numbers) >= 3)
        expect(stream.numbers == poller.numbers == [1, 2, 3], "other events", [stream.numbers, poller.numbers])
    queued = [said for said in desk.transcript if "queued" in said]
    expect([said["queued"] for said in queued] == [1, 1, 1], "not one subscription at the server", queued)
    expect(all(said["delivered"] == 1 for said in queued), "the hub refuses messages of the server", queued)


WEBHOOK_EVENTS = "mcp-webhook-events>=0.2,<1 uvicorn"


def outcome(what: str, run: Callable[[Path], Awaitable[None]]) -> str:
    """What is wrong with it; an empty text if nothing is."""
    report.say(f"{what} …")
    wrong = ""
    with TemporaryDirectory() as folder:
        try:
            anyio.run(run, Path(folder))
        except* (Fault, AssertionError, PeerClosed, TimeoutError) as broken:
            wrong = f"{what}: {broken.exceptions!r}"[:4000]
    return wrong


def main() -> int:
    report.arguments("clients.events", __doc__).parse_args()
    faults: list[str] = []
    libraries: list[str] = []
    try:
        libraries.append(ai_sdk.version())
        libraries.append(python_version(python_with(WEBHOOK_EVENTS, "webhook-events"), "mcp-webhook-events"))
    except NotInstalled as problem:
        return report.reported(libraries, [f"not installed: {problem}"])
    runs: list[tuple[str, Callable[[Path], Awaitable[None]]]] = [
        ("server mcp-webhook-events", hears), ("client @ai-sdk/mcp, times and ids of many kinds", strict)
    ]  # fmt: skip
    for run in RUNS:
        front, discovers, era, modes = run
        what = f"client @ai-sdk/mcp, {front}, {'newest' if discovers else 'handshake'}; server {era}, {modes}"
        runs.append((what, lambda root, run=run: subscribes(run, root)))  # type: ignore[misc]
    for what, each in runs:
        if fault := outcome(what, each):
            faults.append(fault)
        else:
            libraries.append(f"{what}: each event once and in order")
    return report.reported(libraries, faults)


if __name__ == "__main__":
    sys.exit(main())

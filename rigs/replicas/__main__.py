"""`make scale`: two replicas on one server behind a balancer, and a call that moves between them, in plain words."""

import json
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
import httpx2

from rigs.chaos.hubs import Fleet, Hub
from rigs.clients.install import NotInstalled
from rigs.replicas.balancer import Balancer, balancer
from rigs.report import arguments
from tests.redis_server import RedisServer, binary

_STEPS, _SECONDS = 12, 6.0
_MOST = 240.0
"""Seconds for any part of it."""


class Show:
    """Two replicas and who they are."""

    def __init__(self, server: RedisServer, fleet: Fleet, proxy: Balancer, http: httpx2.AsyncClient) -> None:
        self._server = server
        self._fleet = fleet
        self._proxy = proxy
        self._http = http
        self._names = {hub.url: f"replica {name}" for hub, name in zip(fleet.hubs, "AB", strict=True)}

    async def begun(self) -> tuple[str, Hub]:
        """A call that was started through the balancer, and the replica that runs it."""
        body = {"arguments": {"steps": _STEPS, "seconds": _SECONDS}}
        answer = await self._http.post(
            f"{self._proxy.url}/v1/tools/run_job/call", json=body, headers={"prefer": "wait=0"}
        )
        answer.raise_for_status()
        owner = self._by()
        print(
            f"\nA call starts through the balancer. {self._names[owner.url]} runs it. Stream: {answer.json()['stream']}"
        )
        return str(answer.json()["stream"]), owner

    async def follow(self, stream: str, after: int, most: int | None = None) -> tuple[int, dict[str, Any]]:
        """Prints the events of one connection through the balancer; the last one's number, and that event."""
        event: dict[str, Any] = {"seq": after}
        url = f"{self._proxy.url}/v1/streams/{stream}/events?after={after}"
        async with self._http.stream("GET", url, headers={"accept": "application/x-ndjson"}) as answer:
            answer.raise_for_status()
            print(f"  The client follows it behind event {after}, from {self._names[self._by().url]}:")
            count = 0
            async for line in answer.aiter_lines():
                event = json.loads(line)
                if "seq" not in event:
                    break
                print(f"    {event['seq']:3}  {_told(event)}")
                count += 1
                if count == most:
                    break
        return int(event.get("seq", after)), event

    async def moves(self) -> None:
        """A client's connection is cut again and again: it continues on the other replica."""
        stream, _ = await self.begun()
        last, event = 0, {"type": ""}
        while event["type"] not in ("end", "error"):
            if last:
                print("  The connection is cut. The client sends the number of its last event again.")
            last, event = await self.follow(stream, last, 7)
        print("  Every event came once, in order.")

    async def cancelled(self) -> None:
        """A call is cancelled through the replica that does not run it."""
        stream, owner = await self.begun()
        (other,) = [hub for hub in self._fleet.hubs if hub is not owner]
        began = time.monotonic()
        (await self._http.delete(f"{other.url}/v1/streams/{stream}")).raise_for_status()
        print(f"  The client cancels it at {self._names[other.url]}.")
        await self.follow(stream, 0)
        print(f"  It ended {(time.monotonic() - began) * 1000:.0f} ms after that.")

    async def lost(self) -> None:
        """The replica that runs a call is killed."""
        stream, owner = await self.begun()
        last, _ = await self.follow(stream, 0, 5)
        owner.life.kill()
        owner.life.process.wait()
        print(f"  {self._names[owner.url]} is killed (SIGKILL).")
        while True:
            try:
                last, event = await self.follow(stream, last)
            except httpx2.HTTPError:
                continue
            if event.get("type") in ("end", "error"):
                break
        print(f"  The other replica ended the call {time.monotonic() - (owner.life.died or 0):.1f} s after that.")

    def _by(self) -> Hub:
        """The replica that took the latest request."""
        _, url = self._proxy.taken[-1]
        return next(hub for hub in self._fleet.hubs if hub.url == url)


def _told(event: dict[str, Any]) -> str:
    data = event["data"]
    match event["type"]:
        case "start":
            return "the call has started"
        case "progress":
            return str(data["message"])
        case "delta":
            return "output: " + "".join(block["text"] for block in data["content"]).replace("\n", " ")
        case "end":
            return "it is cancelled" if data["outcome"] == "cancelled" else f"the result: {data['result']['content']}"
        case "error":
            return f"it ended with {data['code']}, outcome {data.get('outcome', 'known')}"
    return str(event["type"])


async def show(folder: Path, keep: bool) -> None:
    """Raises: `NotInstalled`."""
    began = time.monotonic()
    with RedisServer(folder / "server") as server:
        print(f"Store:     {server.url}  ({binary()})")
        fleet = Fleet(folder, 2, random.Random(1), {"url": server.url})
        try:
            for hub, name in zip(fleet.hubs, "AB", strict=True):
                await fleet.serving(hub, began)
                print(f"Replica {name}: {hub.url}")
            async with (
                balancer([hub.url for hub in fleet.hubs]) as proxy,
                httpx2.AsyncClient(trust_env=False, timeout=20, verify=False) as http,
            ):
                print(f"Balancer:  {proxy.url}  (each request to the next replica)")
                told = Show(server, fleet, proxy, http)
                if keep:
                    print("Press Ctrl-C to stop all of them.")
                    await anyio.sleep_forever()
                for part in (told.moves, told.cancelled, told.lost):
                    with anyio.fail_after(_MOST):
                        await part()
        finally:
            fleet.stop()


def main() -> int:
    parser = arguments("replicas", __doc__)
    parser.add_argument("--keep", action="store_true", help="show nothing, and leave them running until Ctrl-C")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        try:
            anyio.run(show, Path(name), given.keep)
        except NotInstalled as problem:
            print(f"skipped: {problem}")
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    sys.exit(main())

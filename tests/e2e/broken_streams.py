"""The example server with one fault: `broken_streams.py FAULT`."""

import sys
from typing import Any

import anyio
from mcp.server.lowlevel import NotificationOptions
from mcp.server.stdio import stdio_server

from examples.streaming.server import EXTENSION, EventLog, StreamingServer, Streams

MUTANT = sys.argv[1]


class Broken(EventLog):
    def add(self, kind: str, data: dict[str, Any]) -> dict[str, Any]:
        event = super().add(kind, data)
        if MUTANT == "repeat" and len(self.events) == 3:
            self.events.append(event)
        if kind == "end" and MUTANT in ("two-endings", "after-the-ending"):
            kind = "end" if MUTANT == "two-endings" else "progress"
            self.events.append({**event, "seq": event["seq"] + 1, "type": kind})
        return event

    @property
    def cursor(self) -> str:
        return str(len(self.events) + (MUTANT == "cursor"))

    async def read(self, after: int, most: int, seconds: float) -> dict[str, Any]:
        page = await super().read(after + (MUTANT == "other-suffix" and after > 2), most, seconds)
        if MUTANT == "gap":
            page["events"] = [event for event in page["events"] if event["seq"] != 3]
        return page


class BrokenStreams(Streams):
    def open(self, name: str, arguments: str) -> EventLog:
        stream = self._streams["broken"] = Broken(name, arguments)
        self._streams[stream.id] = stream
        return stream


async def main() -> None:
    server = StreamingServer(BrokenStreams()).make()
    options = server.create_initialization_options(NotificationOptions(), {EXTENSION: {}})
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, options)


if __name__ == "__main__":
    anyio.run(main)

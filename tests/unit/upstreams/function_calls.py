"""Calls to local tools, and a channel that keeps what they send."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import anyio.to_thread
import msgspec

from mcp_hub import events
from mcp_hub.call import Call
from mcp_hub.types import CallId, Era, JsonObject
from mcp_hub.upstreams.functions.registry import Registry
from mcp_hub.upstreams.functions.upstream import function_upstream
from tests.unit.fakes import Channel, NotedTimes
from tests.unit.wire.raw_lines import within


@dataclass
class Recorder(Channel):
    """A channel whose readers take all of it at once; it counts how often it was waited for."""

    drains: int = 0

    async def drained(self) -> None:
        self.drains += 1

    @property
    def deltas(self) -> list[tuple[int, JsonObject]]:
        return [
            (event.index, json.loads(bytes(event.content))) for event in self.sent if isinstance(event, events.Delta)
        ]


class DoubtedTimes(NotedTimes):
    """Counts how often a call may have been answered by a message that nobody understands."""

    def __init__(self) -> None:
        super().__init__()
        self.doubts = 0

    def suspect(self) -> None:
        self.doubts += 1


@dataclass
class Doubting(Recorder):
    """A channel whose call may have been answered by a message that nobody understands."""

    times: DoubtedTimes = field(default_factory=DoubtedTimes)


@dataclass
class Behind(Recorder):
    """Its readers never catch up; `waiting` is set when the tool waits for them."""

    waiting: anyio.Event = field(default_factory=anyio.Event)

    async def drained(self) -> None:
        self.waiting.set()
        await anyio.sleep_forever()


def request(name: object, arguments: object = None, method: str = "tools/call") -> Call:
    params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}
    return Call(
        id=CallId("st_1"),
        upstream="local",
        method=method,
        params={key: msgspec.Raw(json.dumps(value).encode()) for key, value in params.items()},
        meta={},
        session="s",
        principal="p",
        era=Era.MODERN,
        capabilities={},
    )


async def run(
    function: Callable[..., object],
    arguments: JsonObject | None = None,
    channel: Recorder | None = None,
    output_schema: object = None,
) -> JsonObject:
    """The result of a call to the one tool of an upstream, at most 5 s later."""
    registry = Registry()
    registry.tool(name="tool", output_schema=output_schema)(function)
    upstream = function_upstream("local", registry)
    completed = await within(upstream.call(request("tool", arguments or {}), channel or Recorder()))
    assert completed.era is Era.HANDSHAKE
    result: JsonObject = json.loads(bytes(completed.result))
    return result


def text(*texts: str, is_error: bool = False) -> JsonObject:
    return {"content": [{"type": "text", "text": item} for item in texts], "isError": is_error}

"""Clients of the fixture server that have an answer to everything."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.e2e.answers import Answers, form, result
from tests.e2e.client import HttpClient, StdioClient
from tests.interaction.fronts import HANDSHAKE, Peer, Seen
from tests.upstreams.http_child import HttpUpstream
from tests.upstreams.launch import argv

__all__ = ["ALL", "ROOTS", "SAMPLED", "WIRES", "asked", "told"]

ROOTS = {"roots": [{"uri": "file:///work", "name": "work", "x": 12345678901234567890123}], "y": [None]}
SAMPLED = {"role": "assistant", "content": {"type": "text", "text": "Paris"}, "model": "m", "stopReason": "endTurn"}
ALL = {
    "elicitation/create": form(answer="yes"),
    "sampling/createMessage": result(SAMPLED),
    "roots/list": result(ROOTS),
}


WIRES = ("stdio", "http")


@asynccontextmanager
async def asked(
    era: str, answers: Answers | None, *options: str, over: str = "stdio", **named: Any
) -> AsyncIterator[Peer]:
    """A client with these answers of a server of that era, over one of the `WIRES`."""
    if over == "http":
        async with HttpUpstream(*options, era=era, **named) as server, HttpClient(server.url) as http:
            peer = Peer(http, era, answers)
            if era == HANDSHAKE:
                assert (await http.initialize()).status == 200
            yield peer
        return
    async with StdioClient(argv(*options, era=era, **named)) as wire:
        peer = Peer(wire, era, answers)
        if era == HANDSHAKE:
            await wire.initialize()
        yield peer
        assert await wire.close() == 0


def told(seen: Seen) -> Any:
    """What the tool says it was told."""
    assert json.loads(seen.text) == seen.result["structuredContent"]
    return seen.result["structuredContent"]

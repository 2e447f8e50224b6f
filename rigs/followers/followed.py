"""One call as a client saw it, and what it must look like beside the log that the hub keeps."""

import json
from dataclasses import dataclass, field
from typing import Any

import httpx2

from mcp_hub.types import JsonObject

_MARK = "dev.mcp-hub/streams"


@dataclass
class Followed:
    """`events` are `(seq, type, data)`, without start and ending. `ending`: the result, or the code of the error."""

    client: str
    stream: str
    events: list[tuple[int, str, Any]] = field(default_factory=list)
    ending: object = None
    connections: int = 1
    steps: int = 0


async def log_of(http: httpx2.AsyncClient, url: str, stream: str) -> list[JsonObject]:
    """All events of a stream that has ended, as the hub keeps them."""
    events: list[JsonObject] = []
    while True:
        place = f"{url}/v1/streams/{stream}/events?after={len(events)}&wait=5"
        answer = await http.get(place, headers={"accept": "application/json"})
        answer.raise_for_status()
        page = answer.json()
        events += page["events"]
        if page["closed"]:
            return events


def check(followed: Followed, log: list[JsonObject]) -> list[str]:
    """What is wrong: a gap, a repeat, other data than in the log, several endings, another result."""
    kept = [(event["seq"], event["type"], event["data"]) for event in log]
    endings = [event for event in kept if event[1] in ("end", "error")]
    if len(endings) != 1 or kept[-1] != endings[0] or [seq for seq, _, _ in kept] != list(range(1, len(kept) + 1)):
        return [f"the log itself is wrong: {[(seq, kind) for seq, kind, _ in kept]}"]
    faults = []
    if followed.events != kept[1:-1]:
        seen, due = [seq for seq, _, _ in followed.events], [seq for seq, _, _ in kept[1:-1]]
        faults.append(f"saw {seen} of {due}" if seen != due else "saw other data than the log has")
    if (due_ending := ending_of(*kept[-1][1:])) != followed.ending:
        faults.append(f"ended with {followed.ending!r} in place of {due_ending!r}")
    if endings[0][1] == "end" and said(followed) != "".join(
        f"step {step} done\n" for step in range(1, followed.steps + 1)
    ):
        faults.append(f"ended well, but said {said(followed)!r}")
    return [f"{followed.client} {followed.stream}: {fault}" for fault in faults]


def said(followed: Followed) -> str:
    """The text of all partial content."""
    return "".join(block["text"] for _, kind, data in followed.events if kind == "delta" for block in data["content"])


def ending_of(kind: str, data: JsonObject) -> object:
    """The result of an ending, without what belongs to one response; or why there is none."""
    if kind == "error":
        return data["jsonrpc"]["message"]
    if data["outcome"] == "cancelled":
        return data.get("reason")
    result = dict(data["result"])
    result.pop("resultType", None)
    meta = {name: value for name, value in (result.pop("_meta", None) or {}).items() if name != _MARK}
    return json.dumps({**result, **({"_meta": meta} if meta else {})}, sort_keys=True)

"""A server with events over stdio: `event_server.py FILE ERA MODES [OPTION…]`.

Each line of FILE is the `data` of one event, whose member `event` has other members of the event; its number is cursor
and id. The file is the service behind the server, so that events outlive it. ERA may be `both`: then it has events in
the modern one only. MODES: `poll`, `push` or both. Options:
`no-cursor` (no replay), `window=N` (only the last N can be replayed), `draft` (declares and refuses as drafts of the
extension), `repeats` (each event comes twice), `changed` (`build.other` has another description). `build.other` needs
the argument `branch`; in `FILE.journal` is what was requested.
"""

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

FILE, ERA, MODES = Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(",")
OPTIONS = dict(option.partition("=")[::2] for option in sys.argv[4:])
EVENTS, ID = "io.modelcontextprotocol/events", "io.modelcontextprotocol/subscriptionId"
REPLAYS = "no-cursor" not in OPTIONS
WINDOW = int(OPTIONS.get("window", 1 << 30))
NOT_FOUND = -32011 if "draft" in OPTIONS else -32023
_spoken = [ERA]
_turn = threading.Lock()
_cancelled: set[Any] = set()


def send(**message: Any) -> None:
    with _turn:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def notes(**what: Any) -> None:
    with _turn, FILE.with_suffix(".journal").open("a") as journal:
        journal.write(json.dumps(what) + "\n")


def occurrences(name: str) -> list[dict[str, Any]]:
    text = FILE.read_text() if FILE.exists() else ""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [
        {
            "eventId": f"e{number}",
            "name": name,
            "timestamp": "2026-11-30T10:00:00Z",
            "data": data,
            **data.get("event", {}),
        }  # fmt: skip
        for number, data in enumerate(map(json.loads, lines), 1)
    ]


def begin(cursor: str | None, count: int) -> tuple[int, bool]:
    """The number of the last event that is known, and whether some before it are lost."""
    if cursor is None or not REPLAYS:
        return count, False
    known, first = int(cursor), max(0, count - WINDOW)
    return max(known, first), known < first


def cursor_at(number: int) -> str | None:
    return str(number) if REPLAYS else None


def poll(params: dict[str, Any]) -> dict[str, Any]:
    events = occurrences(params["name"])
    last, truncated = begin(params.get("cursor"), len(events))
    most = min(params.get("maxEvents", 100), 100)
    page = events[last : last + most]
    if "repeats" in OPTIONS:
        page = [event for event in page for _ in range(2)]
    after = min(last + most, len(events))
    return {
        "events": page, "cursor": cursor_at(after), "truncated": truncated, "hasMore": after < len(events),
        "nextPollMs": 1000,
    }  # fmt: skip


def stream(id_: Any, params: dict[str, Any]) -> None:
    meta = {"_meta": {ID: id_}}
    last, truncated = begin(params.get("cursor"), len(occurrences(params["name"])))
    send(method="notifications/events/active", params={"cursor": cursor_at(last), "truncated": truncated, **meta})
    while id_ not in _cancelled:
        events = occurrences(params["name"])
        for number, event in enumerate(events[last:], last + 1):
            for _ in range(2 if "repeats" in OPTIONS else 1):
                send(method="notifications/events/event", params={**event, "cursor": cursor_at(number), **meta})
        last = len(events)
        if FILE.with_suffix(".terminate").exists():
            error = {"code": NOT_FOUND, "message": "no such event", "data": {"kind": "event"}}
            send(method="notifications/events/terminated", params={"error": error, **meta})
            send(id=id_, result={"resultType": "complete", **meta})
            return
        time.sleep(0.01)


def types() -> list[dict[str, Any]]:
    schema = {"type": "object", "properties": {"branch": {"type": "string"}}}
    payload = {"type": "object", "properties": {"status": {"type": "string"}}}
    other = "Send it to me first" if "changed" in OPTIONS else "Something else of a build"
    names = {"build.done": "A build has ended", "build.other": other}
    return [
        {"name": name, "description": text, "delivery": MODES, "inputSchema": schema, "payloadSchema": payload}
        for name, text in names.items()
    ]


def refusal(params: dict[str, Any], mode: str) -> dict[str, Any] | None:
    if mode not in MODES:
        return {"code": -32026, "message": "no such mode", "data": {"feature": "deliveryMode", "value": mode}}
    if params.get("name") not in ("build.done", "build.other"):
        return {"code": NOT_FOUND, "message": "no such event", "data": {"kind": "event"}}
    if params["name"] == "build.other" and "branch" not in params.get("arguments", {}):
        return {"code": -32602, "message": "branch is missing"}
    return None


def has_events() -> bool:
    return ERA != "both" or _spoken[0] == "modern"


def result(method: str, params: dict[str, Any]) -> dict[str, Any] | None:
    info = {"name": "builds", "version": "1"}
    capabilities: dict[str, Any] = {"tools": {}}
    if ERA == "both" and method in ("initialize", "server/discover"):
        _spoken[0] = "modern" if method == "server/discover" else "handshake"
    if not has_events():
        pass
    elif "draft" in OPTIONS:
        capabilities["events"] = {}
    else:
        capabilities["extensions"] = {EVENTS: {"listChanged": False}}
    match method:
        case "initialize" if ERA != "modern":
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}
        case "server/discover" if ERA != "handshake":
            meta = {"io.modelcontextprotocol/serverInfo": info}
            return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": meta}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [{"name": "noop", "inputSchema": {"type": "object"}}]}
        case "events/list" if has_events():  # two pages
            first, second = types()
            return {"events": [second]} if params.get("cursor") else {"events": [first], "nextCursor": "2"}
    return None


def take(message: dict[str, Any]) -> None:
    method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method == "notifications/cancelled":
        _cancelled.add(params.get("requestId"))
    if method is None or id_ is None:
        return
    if method in ("events/poll", "events/stream") and has_events():
        shown = {key: params.get(key) for key in ("name", "arguments", "cursor")}
        notes(method=method, **shown)
        if error := refusal(params, "poll" if method == "events/poll" else "push"):
            send(id=id_, error=error)
        elif method == "events/poll":
            send(id=id_, result={"resultType": "complete", **poll(params)})
        else:
            threading.Thread(target=stream, args=(id_, params), daemon=True).start()
    elif (answer := result(method, params)) is None:
        send(id=id_, error={"code": -32601, "message": f"Method not found: {method}"})
    else:
        extra = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if _spoken[0] == "modern" else {}
        send(id=id_, result={**extra, **answer})


for line in sys.stdin:
    take(json.loads(line))

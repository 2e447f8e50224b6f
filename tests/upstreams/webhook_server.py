"""A server over stdio whose events come by webhook alone: `webhook_server.py FILE [OPTION…]`.

Each line of FILE is the `data` of one event; its number is cursor and id. `FILE.hub` has the origin at which the hub is
reached, in place of that of the URLs. Options: `ttl=MILLISECONDS` (granted at most), `forged` (each event comes with a
wrong signature first), `repeats` (each message comes twice), `handshake` (of that era). `FILE.journal` has
requests, and answers to messages.
"""

import base64
import hmac
import json
import secrets
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FILE = Path(sys.argv[1])
OPTIONS = dict(option.partition("=")[::2] for option in sys.argv[2:])
TTL = int(OPTIONS.get("ttl", 10**9))
_turn = threading.Lock()
_subscriptions: dict[str, dict[str, Any]] = {}


def send(**message: Any) -> None:
    with _turn:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def notes(**what: Any) -> None:
    with _turn, FILE.with_suffix(".journal").open("a") as journal:
        journal.write(json.dumps(what) + "\n")


def lines() -> list[str]:
    text = FILE.read_text() if FILE.exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


def post(subscription: dict[str, Any], id_: str, message: dict[str, Any], *, forged: bool = False) -> tuple[int, bytes]:
    body, at = json.dumps(message).encode(), str(int(time.time()))
    key = b"x" * 32 if forged else base64.b64decode(subscription["secret"].removeprefix("whsec_"))
    signature = base64.b64encode(hmac.new(key, f"{id_}.{at}.".encode() + body, sha256).digest()).decode()
    url = urlsplit(subscription["url"])
    headers = {
        "host": url.netloc, "content-type": "application/json", "webhook-id": id_, "webhook-timestamp": at,
        "webhook-signature": f"v1,{signature}", "x-mcp-subscription-id": subscription["id"],
    }  # fmt: skip
    origin = FILE.with_suffix(".hub").read_text() if FILE.with_suffix(".hub").exists() else ""
    request = urllib.request.Request(origin + url.path, body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as problem:
        return problem.code, b""
    except (OSError, ValueError):
        return 0, b""


def deliver(subscription: dict[str, Any]) -> None:
    while not subscription.get("over"):
        events = lines()
        if subscription["last"] >= len(events):
            time.sleep(0.02)
            continue
        number = subscription["last"] + 1
        message = {
            "eventId": f"e{number}", "name": subscription["name"], "timestamp": "2026-11-30T10:00:00Z",
            "data": json.loads(events[number - 1]), "cursor": str(number),
        }  # fmt: skip
        if "forged" in OPTIONS:
            notes(forged=post(subscription, f"e{number}", {**message, "data": {"n": -1}}, forged=True)[0])
        status = 0
        for _ in range(2 if "repeats" in OPTIONS else 1):
            status = post(subscription, f"e{number}", message)[0]
        notes(posted=number, status=status)
        if status // 100 == 2:
            subscription["last"] = number
        else:
            time.sleep(0.1)


def subscribe(id_: Any, params: dict[str, Any]) -> None:
    target = params["delivery"]
    key = json.dumps([target["url"], params["name"], params.get("arguments")])
    subscription = _subscriptions.get(key)
    is_new = subscription is None
    if subscription is None:
        number = len(lines()) if params.get("cursor") is None else int(params["cursor"])
        subscription = {"id": f"sub_{len(_subscriptions)}", "last": number, "name": params["name"]}
    subscription.update(url=target["url"], secret=target["secret"])
    challenge = secrets.token_hex(8)
    if is_new:
        message = {"type": "verification", "challenge": challenge}
        status, answer = post(subscription, f"msg_verification_{challenge}", message)
        if status != 200 or json.loads(answer).get("challenge") != challenge:
            send(id=id_, error={"code": -32027, "message": f"no: {status}", "data": {"reason": "challenge_failed"}})
            return
        _subscriptions[key] = subscription
        threading.Thread(target=deliver, args=(subscription,), daemon=True).start()
    ttl = min(TTL, params.get("ttlMs") or 10**9)
    before = datetime.fromtimestamp(time.time() + ttl / 1000, UTC).isoformat()
    send(id=id_, result={
        "resultType": "complete", "id": subscription["id"], "refreshBefore": before,
        "cursor": str(subscription["last"]), "truncated": False,
    })  # fmt: skip


def take(message: dict[str, Any]) -> None:
    method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
    if method is None or id_ is None:
        return
    events: dict[str, Any] = {"io.modelcontextprotocol/events": {}}
    info = {"io.modelcontextprotocol/serverInfo": {"name": "hooks", "version": "1"}}
    match method:
        case "initialize" if "handshake" in OPTIONS:
            offered = {"tools": {}, "extensions": events}
            about = {"name": "hooks", "version": "1"}
            result: dict[str, Any] = {"protocolVersion": "2025-11-25", "capabilities": offered, "serverInfo": about}
        case "server/discover" if "handshake" not in OPTIONS:
            capabilities = {"tools": {}, "extensions": events}
            result = {
                "supportedVersions": ["2026-07-28"], "capabilities": capabilities, "_meta": info,
            }  # fmt: skip
        case "tools/list":
            result = {"tools": [{"name": "noop", "inputSchema": {"type": "object"}}]}
        case "events/list":
            schema = {"type": "object"}
            result = {"events": [
                {"name": "push", "delivery": ["webhook"], "inputSchema": schema, "payloadSchema": schema}
            ]}  # fmt: skip
        case "events/subscribe":
            notes(method=method, cursor=params.get("cursor"), url=params["delivery"]["url"])
            threading.Thread(target=subscribe, args=(id_, params), daemon=True).start()
            return
        case "events/unsubscribe":
            notes(method=method)
            for key in [key for key in _subscriptions if json.loads(key)[0] == params["delivery"]["url"]]:
                _subscriptions.pop(key)["over"] = True
            result = {}
        case "ping":
            result = {}
        case _:
            send(id=id_, error={"code": -32601, "message": f"no {method}"})
            return
    send(id=id_, result={"resultType": "complete", **result})


if __name__ == "__main__":
    for line in sys.stdin:
        take(json.loads(line))

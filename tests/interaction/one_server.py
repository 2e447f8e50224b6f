"""A server of either era, or of both, whose calls change what it lists, and what its resource says.

`one_server.py NAME ERAS [asks]`, over stdio; `ERAS` is `handshake`, `modern` or `both`. As servers of the official SDK,
a process stays in the era of its first request, and asks over handshake connections only.
"""

import json
import os
import sys
from typing import Any

NAME, ERAS = sys.argv[1:3]
ASKS = sys.argv[3:] == ["asks"]
URI = f"test://{NAME}/count"
PREFIX = "io.modelcontextprotocol/"
NO_CHANNEL = "this transport context has no back-channel for server-initiated requests."


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def notify(method: str, **params: Any) -> None:
    send(method=f"notifications/{method}", params=params)


class Process:
    """One process, and what it keeps in memory."""

    def __init__(self) -> None:
        self.era = ""
        self.count = 0
        self.grown: list[str] = []
        self.watched: list[str] = []
        self.listens: dict[Any, dict[str, Any]] = {}
        self.asking: dict[str, Any] = {}
        self.news = 0

    def take(self, message: dict[str, Any]) -> None:
        method, id_, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None:
            self.answered(id_, message.get("result"))
        elif id_ is None:
            self.noticed(method, params)
        elif not self.speaks(method):
            send(id=id_, error={"code": -32601, "message": f"not in the {self.era} era"})
        elif (result := self.result(method, params, id_)) is not None:
            kind = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self.era == "modern" else {}
            send(id=id_, result={**kind, **result})

    def speaks(self, method: str) -> bool:
        era = "handshake" if method == "initialize" else "modern" if method == "server/discover" else self.era
        self.era = self.era or (era if ERAS in (era, "both") else "")
        return self.era == era

    def noticed(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/cancelled":
            self.listens.pop(params.get("requestId"), None)
        elif method == "notifications/roots/list_changed":
            self.news += 1

    def result(self, method: str, params: dict[str, Any], id_: Any) -> dict[str, Any] | None:
        offers = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
        info = {"name": NAME, "version": "1"}
        match method:
            case "initialize":
                return {"protocolVersion": "2025-11-25", "capabilities": offers, "serverInfo": info}
            case "server/discover":
                meta = {PREFIX + "serverInfo": info}
                return {"supportedVersions": ["2026-07-28"], "capabilities": offers, "_meta": meta}
            case "tools/list":
                names = ["touch", "grow", "work", "facts", *(["ask"] if ASKS else []), *self.grown]
                return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
            case "resources/list":
                return {"resources": [{"uri": URI, "name": NAME}]}
            case "resources/templates/list":
                return {"resourceTemplates": []}
            case "resources/read":
                return {"contents": [{"uri": params["uri"], "text": str(self.count)}]}
            case "tools/call":
                return self.call(params["name"], params, id_)
        return self.subscription(method, params, id_)

    def subscription(self, method: str, params: dict[str, Any], id_: Any) -> dict[str, Any] | None:
        if method == "subscriptions/listen":
            self.listens[id_] = params["notifications"]
            meta = {PREFIX + "subscriptionId": id_}
            notify("subscriptions/acknowledged", notifications=params["notifications"], _meta=meta)
            return None
        if method == "resources/subscribe":
            self.watched.append(params["uri"])
        elif method == "resources/unsubscribe":
            self.watched.remove(params["uri"])
        return {}

    def call(self, name: str, params: dict[str, Any], id_: Any) -> dict[str, Any] | None:
        text = name
        match name:
            case "touch":
                self.count += 1
                self.updated()
                text = str(self.count)
            case "grow":
                self.grown.append(params["arguments"]["name"])
                self.changed()
            case "work":
                token = (params.get("_meta") or {}).get("progressToken")
                for number in (1, 2):
                    notify("progress", progressToken=token, progress=number, total=2)
                notify("message", level="info", data=params["arguments"]["said"])
            case "facts":
                watched = [*self.watched, *(uri for own in self.listens.values() for uri in self.uris(own))]
                text = json.dumps({"pid": os.getpid(), "era": self.era, "watched": watched, "news": self.news})
            case "ask" if self.era == "modern":
                said = f"Cannot send 'elicitation/create': {NO_CHANNEL}"
                send(id=id_, error={"code": -32600, "message": said})
                return None
            case "ask":
                self.asking[key := f"q{id_}"] = id_
                schema = {"type": "object", "properties": {"name": {"type": "string"}}}
                send(id=key, method="elicitation/create", params={"message": "?", "requestedSchema": schema})
                return None
        return {"content": [{"type": "text", "text": text}]}

    @staticmethod
    def uris(listen: dict[str, Any]) -> list[str]:
        uris: list[str] = listen.get("resourceSubscriptions", [])
        return uris

    def updated(self) -> None:
        if URI in self.watched:
            notify("resources/updated", uri=URI)
        for id_, listen in self.listens.items():
            if URI in self.uris(listen):
                notify("resources/updated", uri=URI, _meta={PREFIX + "subscriptionId": id_})

    def changed(self) -> None:
        if self.era == "handshake":
            notify("tools/list_changed")
        for id_ in self.listens:
            notify("tools/list_changed", _meta={PREFIX + "subscriptionId": id_})

    def answered(self, key: Any, result: Any) -> None:
        id_ = self.asking.pop(key, None)
        if id_ is not None:
            send(id=id_, result={"content": [{"type": "text", "text": (result or {}).get("action", "refused")}]})


def main() -> None:
    process = Process()
    for line in sys.stdin:
        process.take(json.loads(line))


if __name__ == "__main__":
    main()

"""A remote server whose every answer says whose account it is, with the lists of that account; and logins to it.

Handshake era, JSON answers. It revokes tokens (RFC 7009), and renews those of a refresh token `again-NAME`.
"""

import json
import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from cryptography.fernet import Fernet

from mcp_hub.upstreams.accounts.accounts import Accounts
from mcp_hub.upstreams.accounts.rows import RowFiles, Seal
from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, grant_key
from tests.e2e.client import Silent, threaded

KEY = Fernet.generate_key().decode()
LOOSE: dict[str, Any] = {"type": "object"}


@dataclass
class People:
    """The accounts of the server by access token, and what reached it."""

    tokens: dict[str, str] = field(default_factory=dict)
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Account and method of each request."""
    revoked: list[str] = field(default_factory=list)
    sessions: dict[str, str] = field(default_factory=dict)
    renewed: list[str] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)
    pushed: dict[str, queue.Queue[dict[str, Any] | None]] | None = None
    """What is sent on the streams of an account; without a mapping they are refused."""
    happened: dict[str, list[int]] | None = None
    """The events of each account; without a mapping it has none."""

    def push(self, account: str, method: str, params: dict[str, Any]) -> None:
        assert self.pushed is not None
        self.pushed[account].put({"jsonrpc": "2.0", "method": method, "params": params})

    def answer(self, account: str, method: str, params: dict[str, Any]) -> Any:
        self.requests.append((account, method))
        match method:
            case "initialize":
                info = {"name": f"people for {account}", "version": "1"}
                return {"protocolVersion": "2025-11-25", "capabilities": self._offers(), "serverInfo": info}
            case "tools/list":
                named = [("whoami", "Says whose account it is."), (f"only_{account}", f"A secret tool of {account}.")]
                reads = {"readOnlyHint": True}
                tools: list[dict[str, Any]] = [
                    {"name": name, "description": text, "inputSchema": LOOSE, "annotations": reads}
                    for name, text in named
                ]
                return {
                    "tools": [*tools, {"name": "slow", "inputSchema": LOOSE}, {"name": "long", "inputSchema": LOOSE}]
                }
            case "tools/call":
                if params["name"] == "slow":
                    self.held.wait(60)
                size = 200_000 if params["name"] == "long" else 1
                text = f"account of {account}. " * (size // 20 or 1)
                return {"content": [{"type": "text", "text": text}]}
            case "resources/list":
                uris = ["people://me", f"people://private/{account}"]
                return {"resources": [{"uri": uri, "name": uri.rpartition("/")[2]} for uri in uris]}
            case "resources/read":
                return {"contents": [{"uri": params["uri"], "text": f"resource of {account}"}]}
            case "prompts/list":
                return {"prompts": [{"name": f"prompt_{account}"}]}
            case "prompts/get":
                text = f"prompt of {account}"
                return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}]}
            case _:
                return self._others(account, method, params)

    def _offers(self) -> dict[str, Any]:
        offers: dict[str, Any] = {"tools": {}, "resources": {}, "prompts": {}}
        if self.pushed is not None:
            offers["resources"]["subscribe"] = True
        if self.happened is not None:
            offers["events"] = {}
        return offers

    def _others(self, account: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if method == "events/list":
            types = [{"name": name, "delivery": ["poll"]} for name in ("mail", f"mail_{account}")]
            return {"events": [{**one, "inputSchema": LOOSE, "payloadSchema": LOOSE} for one in types]}
        if method == "events/poll":
            return self._poll(account, params)
        return {"account": account, "params": params} if method.startswith("acme/") else {}

    def _poll(self, account: str, params: dict[str, Any]) -> dict[str, Any]:
        numbers = (self.happened or {}).get(account, [])
        after = len(numbers) if params.get("cursor") is None else int(params["cursor"])
        events = [
            {"eventId": f"{account}-{number}", "name": params["name"], "timestamp": "2026-11-30T10:00:00Z",
             "data": {"n": number, "of": account}}
            for number in numbers[after:]
        ]  # fmt: skip
        return {"events": events, "cursor": str(len(numbers)), "truncated": False, "hasMore": False, "nextPollMs": 1000}


class _Handler(Silent):
    people: People
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        if self.path == "/revoke":
            token = parse_qs(body.decode())["token"][0]
            self.people.revoked.append(token)
            self.people.tokens.pop(token, None)
            return self.answer(200)
        if self.path == "/token":
            return self._renew(parse_qs(body.decode())["refresh_token"][0])
        account = self.people.tokens.get(self.headers.get("authorization", "").removeprefix("Bearer "))
        if account is None:
            return self.answer(401, www_authenticate="Bearer")
        message = json.loads(body)
        if "id" not in message:
            return self.answer(202)
        result = self.people.answer(account, message["method"], message.get("params") or {})
        sent = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        session = {"mcp_session_id": f"session-of-{account}"} if message["method"] == "initialize" else {}
        self.answer(200, sent, content_type="application/json", **session)

    def _renew(self, refresh: str) -> None:
        account = refresh.removeprefix("again-")
        token = f"renewed-{account}-{len(self.people.renewed)}"
        self.people.renewed.append(account)
        self.people.tokens[token] = account
        answer = {"access_token": token, "token_type": "bearer", "expires_in": 3600, "refresh_token": refresh}
        self.answer(200, json.dumps(answer).encode(), content_type="application/json")

    def do_GET(self) -> None:
        if self.path.startswith("/.well-known/oauth-authorization-server"):
            base = self.people.url.removesuffix("/mcp")
            metadata = {"issuer": base, "revocation_endpoint": f"{base}/revoke", "token_endpoint": f"{base}/token"}
            return self.answer(200, json.dumps(metadata).encode(), content_type="application/json")
        account = self.people.tokens.get(self.headers.get("authorization", "").removeprefix("Bearer "))
        if self.people.pushed is None or account is None:
            return self.answer(405)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.close_connection = True
        while (message := self.people.pushed[account].get()) is not None:
            self.wfile.write(b"data: " + json.dumps(message).encode() + b"\n\n")
            self.wfile.flush()

    def do_DELETE(self) -> None:
        self.answer(200)


@contextmanager
def people_server(*names: str, pushes: bool = False) -> Iterator[People]:
    """Serves these accounts; the token of NAME is `token-of-NAME-0123456789`. With `pushes` it has streams."""
    people = People({token_of(name): name for name in names})
    people.pushed = {name: queue.Queue() for name in names} if pushes else None
    with threaded(type("Handler", (_Handler,), {"people": people})) as base:
        people.url = f"{base}/mcp"
        try:
            yield people
        finally:
            people.held.set()
            for each in (people.pushed or {}).values():
                each.put(None)


def token_of(name: str) -> str:
    return f"token-of-{name}-0123456789"


def accounts_at(state: Path, *keys: str) -> Accounts:
    """The accounts of the hub with this state folder."""
    return Accounts(RowFiles(state / "oauth" / "accounts"), Seal(keys or (KEY,)))


async def log_in(people: People, state: Path, principal: str, name: str | None = None, **fields: Any) -> None:
    """Stores a login of `principal` at server `people`, as if made in a browser, as account `name`."""
    accounts, base = accounts_at(state), people.url.removesuffix("/mcp")
    grant = Grant(
        access_token=token_of(name or principal),
        token_endpoint=f"{base}/token",
        client_id="hub",
        issuer=base,
        refresh_token=f"again-{name or principal}",
        **{"obtained_at": time.time(), "expires_at": time.time() + 3600, **fields},
    )
    generation = await accounts.generation("people", principal)
    target = grant_key(people.url, ClientRegistration())
    assert await accounts.keep("people", principal, grant, target=target, generation=generation)


def settings(people: People, *principals: str, **hub: Any) -> str:
    tokens: list[dict[str, Any]] = [{"token": hub_token(name), "principal": name} for name in principals]
    tokens.append({"token": hub_token("boss"), "principal": "boss", "operator": True})
    whole = {"tokens": tokens, "accounts": {"key": KEY}, "prefix": "never", "expose": "full", **hub}
    return json.dumps({"hub": whole, "servers": {"people": {"url": people.url, "account": "own"}}})


def hub_token(name: str) -> str:
    return f"hub-token-of-{name}-0123456789"

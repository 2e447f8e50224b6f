"""An authorization server and the MCP server that it guards, in one script; and the browser of a person who agrees.

Tokens are counted: `a-1`, `r-1`, `a-2`, … A refresh token is good once, as OAuth 2.1 wants it of public clients.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx2

from mcp_hub.upstreams.auth.grants import ClientRegistration, Grant, grant_key
from tests.unit.upstreams.remote import Remote
from tests.unit.wire.http_server import Reply, Request


@dataclass
class Authorization:
    """Guards `remote`. What it does wrong is in its fields; what it was asked is in `asked` (place → forms)."""

    remote: Remote = field(default_factory=lambda: Remote(modern=True))
    base: str = ""
    relative: str | None = None
    scope: str | None = None
    expires_in: Any = 3600
    metadata: dict[str, Any] = field(default_factory=dict)
    resource: dict[str, Any] = field(default_factory=dict)
    redirect: dict[str, str | None] = field(default_factory=dict)
    token_answer: tuple[int, Any] | None = None
    refresh_answer: tuple[int, Any] | None = None
    client_answer: tuple[int, Any] | None = None
    rotates: bool = True
    refreshable: bool = True
    asked: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    valid: dict[str, str] = field(default_factory=dict)
    refreshing: set[str] = field(default_factory=set)
    needs: str | None = None
    count: int = 0

    async def __call__(self, request: Request, reply: Reply) -> None:
        self.base = f"http://{request.headers['host']}"
        path, _, query = request.path.partition("?")
        if path == "/mcp":
            return await self._guard(request, reply)
        asked = {key: values[0] for key, values in parse_qs(query or request.body.decode()).items()}
        if path == "/register":
            asked = json.loads(request.body)
        if "authorization" in request.headers:
            asked["authorization"] = request.headers["authorization"]
        self.asked.setdefault(path, []).append(asked)
        if path == "/authorize":
            back = {"code": "c-1", "state": asked.get("state"), "iss": self.base, **self.redirect}
            sent = urlencode({key: value for key, value in back.items() if value is not None})
            return await reply.status(302, location=f"{asked['redirect_uri']}?{sent}")
        answers: dict[str, Callable[[], tuple[int, Any]]] = {
            "/.well-known/oauth-protected-resource/mcp": self._resource,
            "/.well-known/oauth-authorization-server": self._metadata,
            "/register": lambda: self._client(asked),
            "/token": lambda: self._tokens(asked),
        }
        if path not in answers:
            return await reply.status(404)
        status, body = answers[path]()
        await reply.json(body, status)

    async def _guard(self, request: Request, reply: Reply) -> None:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        scope = self.valid.get(token)
        place = self.base if self.relative is None else self.relative
        about = f'resource_metadata="{place}/.well-known/oauth-protected-resource/mcp"'
        if scope is None:
            wanted = f', scope="{self.scope}"' if self.scope else ""
            return await reply.status(401, www_authenticate=f"Bearer {about}{wanted}")
        if self.needs is not None and request.rpc == "tools/call" and self.needs not in scope.split():
            said = f'Bearer error="insufficient_scope", scope="{self.needs}", {about}'
            return await reply.status(403, www_authenticate=said)
        await self.remote(request, reply)

    def _resource(self) -> tuple[int, Any]:
        return 200, {"resource": f"{self.base}/mcp", "authorization_servers": [self.base], **self.resource}

    def _metadata(self) -> tuple[int, Any]:
        places = {f"{name}_endpoint": f"{self.base}/{path}" for name, path in PLACES.items()}
        features = {"code_challenge_methods_supported": ["S256"], "response_types_supported": ["code"]}
        return 200, {"issuer": self.base, **places, **features, **self.metadata}

    def _client(self, asked: dict[str, Any]) -> tuple[int, Any]:
        return self.client_answer or (201, {"client_id": "registered", "redirect_uris": asked["redirect_uris"]})

    def _tokens(self, asked: dict[str, str]) -> tuple[int, Any]:
        if asked["grant_type"] == "refresh_token":
            if self.refresh_answer is not None:
                return self.refresh_answer
            if asked["refresh_token"] not in self.refreshing:
                return 400, {"error": "invalid_grant", "error_description": "used before"}
            if self.rotates:
                self.refreshing.discard(asked["refresh_token"])
        elif self.token_answer is not None:
            return self.token_answer
        scope = asked.get("scope") or (self.asked.get("/authorize") or [{}])[-1].get("scope", "")
        return 200, self.issue(scope)

    def issue(self, scope: str = "") -> dict[str, Any]:
        self.count += 1
        self.valid[f"a-{self.count}"] = scope
        answer: dict[str, Any] = {"access_token": f"a-{self.count}", "token_type": "bearer"}
        if self.expires_in is not None:
            answer["expires_in"] = self.expires_in
        if scope:
            answer["scope"] = scope
        if self.refreshable:
            self.refreshing.add(f"r-{self.count}")
            answer["refresh_token"] = f"r-{self.count}"
        return answer

    @property
    def refreshes(self) -> list[str]:
        """The refresh tokens that were shown, in their order."""
        forms = self.asked.get("/token", [])
        return [form["refresh_token"] for form in forms if form["grant_type"] == "refresh_token"]


PLACES = {"authorization": "authorize", "token": "token", "registration": "register"}


def a_grant(base: str, access: str = "a-1", refresh: str | None = "r-1", **fields: Any) -> Grant:
    """A login that was made before."""
    return Grant(
        access_token=access,
        token_endpoint=f"{base}/token",
        client_id="registered",
        refresh_token=refresh,
        **{"redirect_uris": (), "is_registered": True, "issuer": base, "resource": f"{base}/mcp", **fields},
    )


def machine(base: str, **fields: Any) -> ClientRegistration:
    """Logs in without a person."""
    return ClientRegistration(
        **{"client_id": "robot", "client_secret": "s3cr3t-of-robot", "issuer": base, "is_machine": True, **fields}
    )


def key_of(url: str) -> str:
    return grant_key(url, ClientRegistration())


async def redirected(page: str) -> str:
    """Where the authorization server sends a browser back to."""
    async with httpx2.AsyncClient(verify=False) as http:
        location: str = (await http.get(page)).headers["location"]
    return location


async def visit(place: str, **headers: str) -> httpx2.Response:
    async with httpx2.AsyncClient(headers=headers, verify=False) as http:
        return await http.get(place)


async def browse(page: str, issuer: str) -> None:
    """Agrees to everything."""
    await visit(await redirected(page))


def state_of(page: str) -> str:
    return parse_qs(urlsplit(page).query)["state"][0]

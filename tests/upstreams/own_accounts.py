"""An authorization server where several people have accounts, and an MCP server that says whose token it got.

Both check what the specifications want of them: PKCE (S256), exact redirect addresses, codes good once, rotated refresh
tokens whose second use ends the login, audiences. `faults` makes one of them wrong.
"""

import base64
import hashlib
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt

from tests.e2e.client import Silent, threaded

KEY = "k" * 48
EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
ACCESS = "urn:ietf:params:oauth:token-type:access_token"


@dataclass
class OwnAccounts:
    """Both servers, at one URL. `asked`: every request to a place of the authorization server, its form included."""

    url: str = ""
    expires_in: int = 3600
    faults: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    clients: dict[str, list[str]] = field(default_factory=dict)
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    refreshing: dict[str, str] = field(default_factory=dict)
    spent: dict[str, str] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    revoked: list[str] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    """The tokens that reached the MCP server."""

    @property
    def resource(self) -> str:
        return f"{self.url}/mcp"

    def places(self, path: str) -> list[dict[str, str]]:
        return [form for place, form in self.asked if place == path]

    def metadata(self) -> dict[str, Any]:
        names = ("authorization", "token", "registration", "revocation")
        places = {"authorization": "authorize", "registration": "register", "revocation": "revoke"}
        return {
            "issuer": self.url,
            **{f"{name}_endpoint": f"{self.url}/{places.get(name, name)}" for name in names},
            "code_challenge_methods_supported": ["S256"],
            "response_types_supported": ["code"],
            "authorization_response_iss_parameter_supported": True,
            **self.faults.get("metadata", {}),
        }

    def authorize(self, asked: dict[str, str], person: str) -> str | None:
        """Where the browser goes next; None: the request is refused on a page."""
        if asked.get("redirect_uri") not in self.clients.get(asked.get("client_id", ""), []):
            return None
        back: dict[str, str | None] = {"state": asked.get("state"), "iss": self.url}
        if person == "nobody":
            back |= {"error": "access_denied", "error_description": self.faults.get("text", "no")}
        elif asked.get("code_challenge_method") != "S256" or len(asked.get("code_challenge", "")) != 43:
            back |= {"error": "invalid_request"}
        else:
            code = secrets.token_urlsafe(16)
            self.codes[code] = {**asked, "person": person}
            back["code"] = code
        back |= self.faults.get("back", {})
        sent = urlencode({name: value for name, value in back.items() if value is not None})
        return f"{asked['redirect_uri']}?{sent}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if "token" in self.faults:
            status, body = self.faults["token"]
            return int(status), body
        match form.get("grant_type"):
            case "authorization_code":
                return self._by_code(form)
            case "refresh_token":
                return self._by_refresh(form)
            case grant if grant == EXCHANGE:
                return self._by_exchange(form)
        return 400, {"error": "unsupported_grant_type"}

    def _by_code(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None:
            return 400, {"error": "invalid_grant", "error_description": "the code was used, or is none"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        fits = base64.urlsafe_b64encode(digest).decode().rstrip("=") == asked["code_challenge"]
        same = all(form.get(name) == asked.get(name) for name in ("client_id", "redirect_uri", "resource"))
        if not fits or not same:
            return 400, {"error": "invalid_grant", "error_description": "it fits no request"}
        return 200, self.issue(asked["person"], asked.get("resource", ""))

    def _by_refresh(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        token = form.get("refresh_token", "")
        if token in self.spent:  # somebody has stolen it: the whole login ends (RFC 9700 §4.14.2)
            self.ended.add(self.spent[token])
            return 400, {"error": "invalid_grant", "error_description": "used before"}
        person = self.refreshing.pop(token, None)
        if person is None or person in self.ended:
            return 400, {"error": "invalid_grant"}
        self.spent[token] = person
        return 200, self.issue(person, form.get("resource", self.resource))

    def _by_exchange(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        try:
            claims = jwt.decode(form.get("subject_token", ""), KEY, algorithms=["HS256"], audience="hub")
        except jwt.PyJWTError:
            return 400, {"error": "invalid_request", "error_description": "the subject token is none of ours"}
        if form.get("subject_token_type") != ACCESS:
            return 400, {"error": "invalid_request"}
        issued = self.issue(claims["sub"], form.get("resource") or form.get("audience", ""))
        issued.pop("refresh_token")
        return 200, {**issued, "issued_token_type": ACCESS}

    def issue(self, person: str, audience: str) -> dict[str, Any]:
        said = {"sub": person, "aud": self.faults.get("audience", audience), "exp": time.time() + self.expires_in}
        refresh = secrets.token_urlsafe(16)
        self.refreshing[refresh] = person
        name = self.faults.get("name", f"{person}@example.com")
        return {
            "access_token": jwt.encode({**said, "jti": secrets.token_hex(4)}, KEY), "token_type": "Bearer",
            "expires_in": self.expires_in, "refresh_token": refresh,
            "id_token": jwt.encode({"sub": person, "preferred_username": name}, KEY),
        }  # fmt: skip

    def person(self, token: str) -> str | None:
        """Whose token this is, if it is for the MCP server."""
        try:
            claims = jwt.decode(token, KEY, algorithms=["HS256"], audience=self.resource)
        except jwt.PyJWTError:
            return None
        return None if claims["sub"] in self.ended or token in self.revoked else str(claims["sub"])

    def rpc(self, message: dict[str, Any], person: str) -> dict[str, Any] | None:
        """A handshake server with one tool, which is named for the person."""
        method, id_ = message.get("method"), message.get("id")
        if id_ is None:
            return None
        if method == "initialize":
            result: dict[str, Any] = {
                "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
                "serverInfo": {"name": "own", "version": "1"},
            }  # fmt: skip
        elif method == "tools/list":
            names = ("whoami", f"only_{person}")
            result = {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in names]}
        elif method == "tools/call":
            self.calls.append(person)
            result = {"content": [{"type": "text", "text": f"you are {person}"}]}
        elif method == "ping":
            result = {}
        else:
            return {"jsonrpc": "2.0", "id": id_, "error": {"code": -32601, "message": "no such method"}}
        return {"jsonrpc": "2.0", "id": id_, "result": result}


class _Handler(Silent):
    accounts: OwnAccounts

    def do_GET(self) -> None:
        accounts, url = self.accounts, urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        accounts.asked.append((url.path, asked))
        if "slow" in accounts.faults and url.path.startswith("/.well-known"):
            time.sleep(accounts.faults["slow"])
        if url.path.startswith("/.well-known/oauth-protected-resource"):
            issuer = accounts.faults.get("issuer", accounts.url)
            return self._json(200, {"resource": accounts.resource, "authorization_servers": [issuer]})
        if url.path == "/.well-known/oauth-authorization-server":
            return self._json(200, accounts.metadata())
        if url.path == "/authorize":
            cookies = SimpleCookie(self.headers.get("cookie", ""))
            person = cookies["person"].value if "person" in cookies else ""
            place = accounts.authorize(asked, person) if person else None
            if place is None:
                return self.answer(400, b"who are you?")
            return self.answer(302, location=place)
        return self.answer(405 if url.path == "/mcp" else 404)

    def do_POST(self) -> None:
        accounts, body = self.accounts, self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/mcp":
            return self._mcp(body)
        if self.path == "/register":
            asked = json.loads(body)
            accounts.asked.append((self.path, asked))
            client = secrets.token_hex(4)
            accounts.clients[client] = asked["redirect_uris"]
            return self._json(201, {"client_id": client, **asked, "token_endpoint_auth_method": "none"})
        form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
        accounts.asked.append((self.path, form | ({"auth": a} if (a := self.headers.get("authorization")) else {})))
        if self.path == "/revoke":
            accounts.revoked.append(form.get("token", ""))
            accounts.refreshing.pop(form.get("token", ""), None)
            return self._json(200, {})
        if self.path == "/token":
            time.sleep(accounts.faults.get("slow_token", 0))
            if "huge" in accounts.faults:
                return self._json(200, {"access_token": "a" * accounts.faults["huge"]})
            return self._json(*accounts.token(form))
        return self.answer(404)

    def _mcp(self, body: bytes) -> None:
        accounts = self.accounts
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        accounts.shown.add(token)
        person = accounts.person(token)
        if person is None:
            about = f"{accounts.url}/.well-known/oauth-protected-resource/mcp"
            return self.answer(401, www_authenticate=f'Bearer error="invalid_token", resource_metadata="{about}"')
        answer = accounts.rpc(json.loads(body), person)
        return self.answer(202) if answer is None else self._json(200, answer)

    def do_DELETE(self) -> None:
        self.answer(405)

    def _json(self, status: int, body: Any) -> None:
        self.answer(status, json.dumps(body).encode(), content_type="application/json")


@contextmanager
def own_accounts(kind: type[OwnAccounts] = OwnAccounts, **settings: Any) -> Iterator[OwnAccounts]:
    """Both on a free port of 127.0.0.1."""
    accounts = kind(**settings)
    handler = type("Handler", (_Handler,), {"accounts": accounts})
    with threaded(handler) as url:
        accounts.url = url
        yield accounts

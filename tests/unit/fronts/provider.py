"""An OpenID provider in this process, which does what it is told, also wrongly."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

import jwt

from mcp_hub.clock import wall_time
from tests.unit.fronts.oauth_tokens import jwk, key_set, rsa_key

ISSUER = "https://login.example.com"
CLIENT = "mcp-hub"


@dataclass
class Provider:
    """`claims` replace those of the next ID token (None: left out), `header` its header; `key` signs it."""

    claims: dict[str, Any] = field(default_factory=dict)
    header: dict[str, Any] = field(default_factory=lambda: {"kid": "one"})
    metadata: dict[str, Any] = field(default_factory=dict)
    key: Any = field(default_factory=rsa_key)
    algorithm: str = "RS256"
    nonce: str = ""
    forms: list[Mapping[str, str]] = field(default_factory=list)

    async def send(
        self, method: str, url: str, form: Mapping[str, str] | None, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        if url.endswith("/.well-known/openid-configuration"):
            places = {"authorization_endpoint": "auth?tenant=1", "token_endpoint": "token", "jwks_uri": "jwks"}
            endpoints = {name: f"{ISSUER}/{path}" for name, path in places.items()}
            return 200, json.dumps({"issuer": ISSUER, **endpoints, **self.metadata}).encode()
        assert (method, url) == ("POST", f"{ISSUER}/token") and form is not None
        self.forms.append(form)
        return 200, json.dumps({"id_token": self.token(), "access_token": "x"}).encode()

    def token(self) -> str:
        time = wall_time()
        claims = {
            "iss": ISSUER, "sub": "u1", "aud": CLIENT, "exp": time + 60, "iat": time, "nonce": self.nonce,
            "groups": ["ops", "staff"], **self.claims,
        }  # fmt: skip
        proven = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(proven, self.key, algorithm=self.algorithm, headers=self.header)

    def keys(self) -> bytes:
        return key_set(jwk(rsa_key()))

    def asked(self, location: str) -> dict[str, str]:
        """The parameters of a page of it that a browser is sent to."""
        page, _, query = location.partition("?")
        assert page == f"{ISSUER}/auth"
        parameters = dict(parse_qsl(query))
        self.nonce = parameters["nonce"]
        return parameters

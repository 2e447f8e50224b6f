"""An MCP server of the SDK that checks tokens (RFC 9068) by authlib: `checking_server.py PORT ISSUER JOURNAL`.

It takes those that the issuer has signed for this very server, and says whose one is. The journal has each token.
"""

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import uvicorn
from authlib.oauth2.rfc6749.errors import OAuth2Error  # type: ignore[import-untyped] # it has no types
from authlib.oauth2.rfc9068 import JWTBearerTokenValidator  # type: ignore[import-untyped] # it has no types
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

PORT, ISSUER, JOURNAL = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
RESOURCE = f"http://127.0.0.1:{PORT}/mcp"


class Checks(JWTBearerTokenValidator):  # type: ignore[misc]
    """Keys are those that the issuer's metadata leads to."""

    def get_jwks(self) -> Any:
        with httpx2.Client(trust_env=False) as http:
            metadata = http.get(f"{ISSUER}/.well-known/openid-configuration").json()
            return http.get(metadata["jwks_uri"]).json()


class Verifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        checks = Checks(ISSUER, RESOURCE)
        try:
            claims = await anyio.to_thread.run_sync(checks.authenticate_token, token)
            checks.validate_token(claims, ["whoami"], None)
        except OAuth2Error as problem:
            note(token=token, refused=str(problem))
            return None
        note(token=token, person=claims["sub"])
        return AccessToken(
            token=token, client_id=claims["client_id"], scopes=claims["scope"].split(), expires_at=claims["exp"],
            resource=claims["aud"], subject=claims["sub"], claims=dict(claims),
        )  # fmt: skip


def note(**members: str) -> None:
    with JOURNAL.open("a") as file:
        file.write(json.dumps(members) + "\n")


settings = AuthSettings(
    issuer_url=AnyHttpUrl(ISSUER), resource_server_url=AnyHttpUrl(RESOURCE), required_scopes=["whoami"],
    validate_token_resource=True,
)  # fmt: skip
server = MCPServer("checking", log_level="WARNING", token_verifier=Verifier(), auth=settings)


@server.tool()
def whoami() -> str:
    token = get_access_token()
    assert token is not None
    return f"you are {token.subject}"


app = server.streamable_http_app()
uvicorn.run(app, host="127.0.0.1", port=PORT, timeout_graceful_shutdown=1)

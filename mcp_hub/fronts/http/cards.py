"""Server cards and the AI catalog, which anybody may read.

    /.well-known/ai-catalog.json    an entry for each public profile
    /mcp/server-card                the card of `/mcp`
    /mcp/p/NAME/server-card         the card of a public profile

`/.well-known/mcp-webhook-receiver.json` (SEP-3415) says where servers may send webhooks.

Sources: SEP-2127, its extension's discovery page and `schema.json` (v1), AI Catalog specification 1.0. Servers, tools,
tokens and versions are not named.
"""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mcp_hub.masking import hide_head
from mcp_hub.protocol.eras import HANDSHAKE_VERSIONS, MODERN_VERSIONS
from mcp_hub.protocol.shape.webhooks import INCOMING, RECEIVERS
from mcp_hub.types import JsonObject

_CATALOG: Final = "/.well-known/ai-catalog.json"
_MCP: Final = "/mcp"
_CARD: Final = "/server-card"
"""Behind the URL of a Streamable HTTP endpoint, where SEP-2127 reserves it."""
_CARD_TYPE: Final = "application/mcp-server-card+json"
_CATALOG_TYPE: Final = "application/ai-catalog+json"
_SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/v1/server-card.schema.json"
_VERSION: Final = "1.0.0"
"""The version that a card has to name: that of the hub is for callers with a token."""
_DESCRIPTION: Final = "Tools of several MCP servers at one address"
_LONGEST: Final = 100
"""Characters of a title, and half of those of a name (`schema.json`)."""
_SLUG: Final = re.compile(r"[^A-Za-z0-9._-]+")
_HEADERS: Final = {
    "cache-control": "public, max-age=3600",
    "access-control-allow-origin": "*",
    "access-control-allow-methods": "GET",
    "access-control-allow-headers": "Content-Type, If-None-Match",
    "access-control-expose-headers": "ETag",
    "x-content-type-options": "nosniff",
}
"""For every response (extension of SEP-2127, "CORS Requirements" and "Caching")."""


def is_card(path: str) -> bool:
    """Whether pages of every origin may read this path."""
    return path == _CATALOG or path.startswith(_MCP) and path.endswith(_CARD)


def card_routes(public_url: str | None, name: str, profiles: Sequence[str], *, asks_token: bool) -> dict[str, Route]:
    """The routes by path; none without `public_url`.

    `name` is the hub's; names of `profiles` are plain. `asks_token`: clients need a token from the hub's owner, and
    cannot log in.
    """
    if public_url is None:
        return {}
    base, host = public_url.rstrip("/"), _host_of(public_url)
    card = _card_of(host, name, asks_token=asks_token)
    documents = {f"{_MCP}{_CARD}": (_CARD_TYPE, card(f"{base}{_MCP}", None))}
    entries = list[JsonObject]()
    for profile in profiles:
        path = f"{_MCP}/p/{profile}"
        documents[f"{path}{_CARD}"] = (_CARD_TYPE, card(f"{base}{path}", profile))
        identifier = f"urn:air:{host.replace(':', '-')}:mcp:{profile}"
        entries.append({"identifier": identifier, "type": _CARD_TYPE, "url": f"{base}{path}{_CARD}"})
    documents[_CATALOG] = (_CATALOG_TYPE, {"specVersion": "1.0", "entries": entries})
    return {path: _route(path, kind, document) for path, (kind, document) in documents.items()}


def receiver_routes(public_url: str | None) -> dict[str, Route]:
    """The document that says where servers may send webhooks without a challenge; none without `public_url`."""
    if public_url is None:
        return {}
    document = {"receivers": [urlsplit(public_url).path.rstrip("/") + INCOMING]}
    return {RECEIVERS: _route(RECEIVERS, "application/json", document)}


def _host_of(url: str) -> str:
    return (urlsplit(url).hostname or "").rstrip(".").lower()


def _card_of(host: str, name: str, *, asks_token: bool) -> Callable[[str, str | None], JsonObject]:
    """Makes the card of an endpoint and its profile."""
    is_name = ":" not in host and not host.replace(".", "").isdecimal()
    namespace = ".".join(reversed(host.split("."))) if is_name else host.replace(":", "-")
    header = {
        "name": "Authorization", "description": "A token from the owner of the hub.", "isRequired": True,
        "isSecret": True, "value": "Bearer {token}", "variables": {"token": {"isRequired": True, "isSecret": True}},
    }  # fmt: skip

    def card(url: str, profile: str | None) -> JsonObject:
        words = [name] if profile is None else [name, profile]
        slug = _SLUG.sub("-", ".".join(words)).strip("-.") or "mcp-hub"
        return {
            "$schema": _SCHEMA,
            "name": "/".join(_SLUG.sub("-", hide_head(part, _LONGEST - 1)) for part in (namespace, slug)),
            "version": _VERSION,
            "description": _DESCRIPTION,
            "title": hide_head(" · ".join(words), _LONGEST, "…"),
            "remotes": [
                {
                    "type": "streamable-http",
                    "url": url,
                    "supportedProtocolVersions": [*HANDSHAKE_VERSIONS, *MODERN_VERSIONS],
                    **({"headers": [header]} if asks_token else {}),
                }
            ],
        }

    return card


def _route(path: str, kind: str, document: Mapping[str, object]) -> Route:
    body = msgspec.json.encode(document)
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    headers = {**_HEADERS, "etag": tag}

    async def answer(request: Request) -> Response:
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_HEADERS)
        if _is_known(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=kind)

    return Route(path, answer, methods=["GET", "OPTIONS"])


def _is_known(condition: str, tag: str) -> bool:
    """Weak comparison (RFC 9110 §13.1.2)."""
    tags = [each.strip().removeprefix("W/") for each in condition.split(",")]
    return tag in tags or tags == ["*"]

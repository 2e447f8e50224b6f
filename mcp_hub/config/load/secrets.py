"""Finds values of the settings that are secret by their place or their name, though the file itself holds them."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from mcp_hub.config.schema.settings import Settings

_NAMED_SO: Final = re.compile(r"token|passw|passphrase|secret|auth|key|credential|signature|\bsig\b|\bpat\b|dsn", re.I)
_SHORTEST: Final = 6
"""Characters: shorter values are rarely secret, and masking them would ruin every log."""


def hidden_texts(settings: Settings) -> set[str]:
    """Shared keys of issuers, variables and query parameters whose names say so."""
    found: set[str] = set()
    oauth = settings.hub.http.oauth
    if oauth is not None:
        found.update(issuer.shared_key.get_secret_value() for issuer in oauth.issuers if issuer.shared_key is not None)
    for server in settings.servers.values():
        found.update(value for name, value in server.env.items() if _is_secret(name, value))
        found.update(value for name, value in _query(server.url) if _is_secret(name, value))
    for issuer in oauth.issuers if oauth is not None else ():
        found.update(value for name, value in _query(issuer.jwks_url) if _is_secret(name, value))
    return found


def _query(url: str | None) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(url).query) if url is not None else []
    except ValueError:
        return []


def _is_secret(name: str, value: str) -> bool:
    return len(value) >= _SHORTEST and _NAMED_SO.search(name) is not None

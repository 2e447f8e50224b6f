"""Finds values of the settings that are secret by their place or their name, though the file itself holds them."""

import re
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from mcp_hub.config.schema.settings import Settings

_NAMED_SO: Final = re.compile(r"token|passw|passphrase|secret|auth|key|credential|signature|\bsig\b|\bpat\b|dsn", re.I)
_SHORTEST: Final = 6  # characters: shorter values are rarely secret, and masking them would ruin every log


def secret_texts(settings: Settings) -> set[str]:
    """Tokens, keys and credentials; headers, and variables and query parameters whose names say so, unless short."""
    hub, servers = settings.hub, settings.servers.values()
    issuers = [] if hub.http.oauth is None else hub.http.oauth.issuers
    keys = [*(server.bearer for server in servers), *(issuer.shared_key for issuer in issuers)]
    given = [*(token.token for token in hub.tokens), *(key for key in keys if key is not None)]
    sent = [hub.telemetry.headers, *(server.headers for server in servers)]
    named = [*(pair for server in servers for pair in (*server.env.items(), *_query(server.url)))]
    named += (pair for issuer in issuers for pair in _query(issuer.jwks_url))
    maybe = [value.get_secret_value() for headers in sent for value in headers.values()]
    maybe += (value for name, value in named if _NAMED_SO.search(name))
    logins = {text for server in servers if server.oauth for text in server.oauth.secrets()}
    return {key.get_secret_value() for key in given} | {text for text in maybe if len(text) >= _SHORTEST} | logins


def _query(url: str | None) -> list[tuple[str, str]]:
    try:
        return parse_qsl(urlsplit(url).query) if url is not None else []
    except ValueError:
        return []

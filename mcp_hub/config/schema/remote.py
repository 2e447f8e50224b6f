"""Checks URLs and headers of remote servers. No message repeats a value."""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.config.findings import Flaw

TRANSPORTS: Final = {
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
}
"""Values of `type`, other clients' included."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_OWN: Final = re.compile(
    r"accept|accept-encoding|connection|content-(length|type|encoding)|host|keep-alive|last-event-id|te|trailer"
    r"|transfer-encoding|upgrade|mcp-.*"
)
"""Headers that the transport sets."""


def problems_of(url: str, headers: Mapping[str, str], bearer: str | None) -> list[Flaw]:
    """Invalid settings of a remote server, with reasons."""
    flaws = [Flaw("url", "invalid_url", problem)] if (problem := _of_url(url)) is not None else []
    flaws += (flaw for _, flaw in problems_of_headers(headers))
    if bearer is not None and not _TOKEN.fullmatch(bearer):
        message = 'expected the token alone, without "Bearer" before it, of printable ASCII characters'
        flaws.append(Flaw("bearer", "invalid_value", message))
    if bearer is not None and any(name.lower() == "authorization" for name in headers):
        flaws.append(Flaw("bearer", "conflicting_keys", "headers already has an Authorization. Keep one of them."))
    return flaws


def problems_of_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, Flaw]]:
    """Headers that cannot be sent, with reasons."""
    seen: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            yield name, Flaw("headers", "invalid_value", "holds a name that a header cannot have")
            continue
        if is_transport_header(name) or name.lower() in seen:
            message = f"{name} is {'given twice' if name.lower() in seen else 'set by the hub itself'}"
            yield name, Flaw("headers", "conflicting_keys", message)
        if not _VALUE.fullmatch(value):
            yield name, Flaw("headers", "invalid_value", f"{name} may hold printable ASCII characters only")
        seen.add(name.lower())


def is_transport_header(name: str) -> bool:
    return _OWN.fullmatch(name.lower()) is not None


def _of_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not a URL"
    if parts.scheme not in ("http", "https") or not has_place or not url.isprintable() or " " in url:
        return "expected http:// or https:// with a host, for example https://example.com/mcp"
    if "@" in parts.netloc:
        return "must not hold a user or a password. Use bearer or headers."
    return None

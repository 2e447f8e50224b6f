"""Checks the URL and headers of a remote server, and the URLs that a server names. No message repeats a value."""

import re
from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.addresses import THIS_MACHINE, address_of, is_this_machine, refused_address
from mcp_hub.config.findings import Flaw

TRANSPORTS: Final = {
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
}
"""The values of `type`, those of other clients included, with their meaning."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_OWN: Final = re.compile(
    r"accept|accept-encoding|connection|content-(length|type|encoding)|host|keep-alive|last-event-id|te|trailer"
    r"|transfer-encoding|upgrade|mcp-.*"
)
"""Headers of the transport: another value would break it."""


def problems_of(url: str, headers: Mapping[str, str], bearer: str | None) -> list[Flaw]:
    """The invalid settings, with the reasons."""
    found = [Flaw("url", "invalid_url", problem)] if (problem := _of_url(url)) is not None else []
    found += (flaw for _, flaw in problems_of_headers(headers))
    if bearer is not None and not _TOKEN.fullmatch(bearer):
        said = 'expected the token alone, without "Bearer" before it, of printable ASCII characters'
        found.append(Flaw("bearer", "invalid_value", said))
    if bearer is not None and any(name.lower() == "authorization" for name in headers):
        found.append(Flaw("bearer", "conflicting_keys", "headers already has an Authorization. Keep one of them."))
    return found


def problems_of_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, Flaw]]:
    """The names of headers that cannot be sent, with the reasons."""
    seen: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            yield name, Flaw("headers", "invalid_value", "holds a name that a header cannot have")
            continue
        if is_transport_header(name) or name.lower() in seen:
            said = f"{name} is {'given twice' if name.lower() in seen else 'set by the hub itself'}"
            yield name, Flaw("headers", "conflicting_keys", said)
        if not _VALUE.fullmatch(value):
            yield name, Flaw("headers", "invalid_value", f"{name} may hold printable ASCII characters only")
        seen.add(name.lower())


def is_transport_header(name: str) -> bool:
    """Whether the transport sets this header itself."""
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


def is_cleartext(url: str) -> bool:
    """Whether others on the network can read what is sent there."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname or "")


def origin_parts(url: str) -> tuple[str, str, str]:
    """Scheme, host and path, all empty for a text that is not a URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.path
    except ValueError:
        return "", "", ""


def refused_place(url: str, *, is_near: bool) -> str | None:
    """The reason why neither the hub nor a browser may go to a URL that a server has named; None if they may.

    Allowed are https, and http on this machine. This machine is allowed only if the server itself is here (`is_near`),
    so that a server elsewhere cannot reach local services. Names are not resolved here: see `refused_address`.
    """
    if not url.isascii() or not url.isprintable() or any(char in url for char in ' "<>\\^`{|}'):
        return "it holds characters that a URL cannot have"
    try:
        parts = urlsplit(url)
        host, has_place = (parts.hostname or "").removesuffix("."), parts.port != 0
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in ("http", "https") or not host or not has_place:
        return "it is not https://"
    if "@" in parts.netloc:
        return "it holds a user or a password"
    if "%" in host:  # browsers decode it; in an address it is a zone, which only this machine knows
        return "it holds characters that a host cannot have"
    if (address := address_of(host)) is not None:
        problem = refused_address(address, is_near=is_near)
    else:
        is_here = f".{host}".endswith(".localhost")
        problem = THIS_MACHINE if is_here and not is_near else None
    if problem is not None or parts.scheme == "https" or is_this_machine(host):
        return problem
    return "it is http://, which others on the network can read and change"

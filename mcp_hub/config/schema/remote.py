"""What the settings of a remote server may say: its URL and the headers that it is sent. No message repeats a value.

And which of the URLs that such a server names may be followed at all.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from mcp_hub.config.findings import Flaw

__all__ = [
    "TRANSPORTS",
    "is_cleartext",
    "is_this_machine",
    "is_web_page",
    "origin_parts",
    "problems_of",
    "refused_place",
]

TRANSPORTS: Final = {
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
}
"""What `type` may say, the words of other clients included, and what it means."""

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?")
_TOKEN: Final = re.compile(r"[\x21-\x7e]+")
_OWN: Final = re.compile(
    r"accept|accept-encoding|connection|content-(length|type|encoding)|host|keep-alive|last-event-id|te|trailer"
    r"|transfer-encoding|upgrade|mcp-.*"
)
"""Headers of the transport: another value would break it."""


def problems_of(url: str, headers: Mapping[str, str], bearer: str | None) -> list[Flaw]:
    """The settings that cannot be used, and why not."""
    found = [Flaw("url", "invalid_url", problem)] if (problem := _of_url(url)) is not None else []
    seen: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            found.append(Flaw("headers", "invalid_value", "holds something that is no name of a header"))
            continue
        if _OWN.fullmatch(name.lower()) or name.lower() in seen:
            said = f"{name} is {'given twice' if name.lower() in seen else 'set by the hub itself'}"
            found.append(Flaw("headers", "conflicting_keys", said))
        if not _VALUE.fullmatch(value):
            said = f"{name} may hold printable ASCII characters only, and no space at its ends"
            found.append(Flaw("headers", "invalid_value", said))
        seen.add(name.lower())
    if bearer is not None and not _TOKEN.fullmatch(bearer):
        said = 'expected the token alone, without "Bearer" before it, of printable ASCII characters'
        found.append(Flaw("bearer", "invalid_value", said))
    if bearer is not None and "authorization" in seen:
        found.append(Flaw("bearer", "conflicting_keys", "headers has an Authorization already: keep one of them"))
    return found


def _of_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is no URL"
    if parts.scheme not in ("http", "https") or not has_place or not url.isprintable() or " " in url:
        return "expected http:// or https:// with a host, for example https://example.com/mcp"
    if "@" in parts.netloc:
        return "must not hold a user or a password; use bearer or headers"
    return None


def is_cleartext(url: str) -> bool:
    """Whether what is sent there can be read on the way."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not is_this_machine(parts.hostname or "")


def is_this_machine(host: str) -> bool:
    """Whether this names the loopback interface; `host` as `urlsplit` gives it."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def origin_parts(url: str) -> tuple[str, str, str]:
    """Scheme, host and path, all empty if it is no URL."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname or "", parts.path
    except ValueError:
        return "", "", ""


def is_web_page(url: str) -> bool:
    """Whether this is a whole https URL without a user in it; http will do for this machine."""
    return refused_place(url, is_near=True) is None


def refused_place(url: str, *, is_near: bool) -> str | None:
    """Why nothing may be sent to a URL that a server has named, nor a browser; None if it may.

    Only https, http on this machine; and this machine only if the server itself is here (`is_near`), so that one
    elsewhere cannot reach what listens to nobody but us. Link-local addresses (those of clouds' metadata among them)
    are no place for it either. Names are not resolved here: what answers https has to have a certificate for its name.
    """
    if not url.isascii() or not url.isprintable() or any(char in url for char in ' "<>\\^`{|}'):
        return "it holds characters that no URL has"
    try:
        parts = urlsplit(url)
        host, has_place = parts.hostname or "", parts.port != 0
    except ValueError:
        return "it is no URL"
    if parts.scheme not in ("http", "https") or not host or not has_place:
        return "it is not https://"
    if "@" in parts.netloc:
        return "it holds a user or a password"
    if is_this_machine(host):
        return None if is_near else "it is an address of this machine, which a server elsewhere has no business with"
    if _is_odd_address(host):
        return "it is an address of no server on the network"
    return None if parts.scheme == "https" else "it is http://, which everybody on the way can read and change"


def _is_odd_address(host: str) -> bool:
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_link_local or address.is_unspecified or address.is_multicast

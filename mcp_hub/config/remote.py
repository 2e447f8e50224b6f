"""What the settings of a remote server may say: its URL and the headers that it is sent. No message repeats a value."""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

__all__ = ["TRANSPORTS", "is_cleartext", "is_this_machine", "problem_of"]

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


def problem_of(url: str, headers: Mapping[str, str], bearer: str | None) -> tuple[str, str] | None:
    """The first setting that cannot be used, and why not."""
    if (problem := _of_url(url)) is not None:
        return "url", problem
    seen: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            return "headers", "holds something that is no name of a header"
        if _OWN.fullmatch(name.lower()) or name.lower() in seen:
            return "headers", f"{name} is {'given twice' if name.lower() in seen else 'set by the hub itself'}"
        if not _VALUE.fullmatch(value):
            return "headers", f"{name} may hold printable ASCII characters only, and no space at its ends"
        seen.add(name.lower())
    if bearer is not None and not _TOKEN.fullmatch(bearer):
        return "bearer", 'expected the token alone, without "Bearer" before it, of printable ASCII characters'
    if bearer is not None and "authorization" in seen:
        return "bearer", "headers has an Authorization already: keep one of them"
    return None


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

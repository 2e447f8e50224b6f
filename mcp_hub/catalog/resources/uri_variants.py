"""The ways in which a server may read a URI: a filter looks at text, a server at what the text means.

Before they look a URI up, servers lower the case of scheme and host, resolve dot segments and decode what need not be
encoded, as pydantic's and JavaScript's URL types do. Pure. Source: RFC 3986 §6.2.2; WHATWG URL, "URL parsing".
"""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote

import msgspec

from mcp_hub.catalog.resources.uris import MAX_MATCHED

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_PARTS = re.compile(r"([^?#]*)(.*)", re.DOTALL)
_MORE = re.compile("[?#;]")
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:@]*)(?::([0-9]*))?")
_DRIVE = re.compile(r"\A([A-Za-z])[:|](?=/|\Z)")  # of Windows. A host before it is dropped by some and not by others
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_HOST: Final = 255  # characters (RFC 1035): the time that Punycode takes grows with the square of them
_PORTS: Final = {"file": "", "ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}
"""The schemes whose URIs are all read in the same way, and what port need not be said."""


class UriVariants(msgspec.Struct, frozen=True):
    """`allowed`: those that have to be let through, each; `denied`: those of which none may be turned down."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]


def uri_variants(uri: str) -> UriVariants | None:
    """`uri` itself and what may be made of it; None where it means something else to its reader.

    That is: dot segments, control characters, outer white space, no valid host, more than `MAX_MATCHED` characters.
    """
    if len(uri) > MAX_MATCHED or _CONTROL.search(uri) or uri != uri.strip():
        return None
    scheme, rest = parts.groups() if (parts := _SCHEME.fullmatch(uri)) else ("", uri)
    path, tail = _parts(rest)
    if scheme.lower() in _PORTS:
        path = path.replace("\\", "/")
    try:
        authority, folded, path = _split(scheme.lower(), path)
    except ValueError:
        return None
    if {".", ".."} & set(unquote(path).replace("\\", "/").split("/")):
        return None
    before, behind = f"{scheme}:" if scheme else "", _ESCAPE.sub(_plain, path) + tail
    variants = before + authority + behind
    places = [before.lower() + host for host in (authority, re.sub("//.*@", "//", authority), folded)]
    texts = {behind, unquote(path + tail)}
    texts |= {_MORE.split(text, maxsplit=1)[0] for text in texts}  # what names a part or a form of the same
    texts |= {text.rstrip("/") for text in texts}
    return UriVariants((uri, variants), (uri, variants, *(place + text for place in places for text in sorted(texts))))


def _parts(rest: str) -> tuple[str, str]:
    """Authority and path; query and fragment."""
    parts = _PARTS.fullmatch(rest)
    assert parts is not None
    return parts[1], parts[2]


def _split(scheme: str, path: str) -> tuple[str, str, str]:
    """The authority, the same as it is looked up, and the path. Raises: ValueError for a host that is none."""
    bare = path.lstrip("/")
    slashes = len(path) - len(bare)
    if scheme not in _PORTS:
        if slashes != 2:
            return "", "", path
        authority, slash, behind = bare.partition("/")
        if "\\" in authority:
            raise ValueError(authority)
        authority = authority.removesuffix(":")
        return f"//{authority}", f"//{authority.rpartition('@')[2].lower()}", slash + behind
    authority, behind = "", bare
    if scheme != "file" or (slashes == 2 and not _DRIVE.match(bare)):
        authority, _, behind = bare.partition("/")
        authority = authority.rpartition("@")[2]
    if scheme == "file":
        behind = re.sub("/+", "/", behind.lstrip("/"))
        if _DRIVE.match(behind) and authority:
            raise ValueError(authority)
        behind = _DRIVE.sub(r"\1:", behind)
    return f"//{authority}", f"//{_folded(scheme, authority)}", f"/{behind}"


def _folded(scheme: str, authority: str) -> str:
    """A host as it is looked up, and its port unless that is the usual one. Raises: ValueError for what is none."""
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise ValueError(authority)
    host, port = unquote(parts[1], errors="strict").lower(), parts[2] or ""
    if host.startswith("["):
        host = f"[{IPv6Address(host[1:-1])}]"
    else:
        if len(host) > _LONGEST_HOST:
            raise ValueError(host)
        if not host and scheme != "file":
            raise ValueError("no host")
        host = host.encode("idna").decode()
        if scheme == "file" and host == "localhost":
            return ""
        host = host.removesuffix(".")
        if _NUMBER.fullmatch(host.rpartition(".")[2]):
            host = str(IPv4Address(host))
    return f"{host}:{port}" if port not in ("", _PORTS[scheme]) else host


def _plain(escape: re.Match[str]) -> str:
    """A character that need not be escaped, as itself; else the escape in capitals."""
    char = chr(int(escape[0][1:], 16))
    return char if char.isascii() and (char.isalnum() or char in "-._~") else escape[0].upper()

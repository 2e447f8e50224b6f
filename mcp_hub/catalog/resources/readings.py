"""The ways in which a server may read a URI. Pure.

`uri_variants`: scheme and host in lower case, unneeded escapes decoded (RFC 3986 §6.2.2; WHATWG URL, "URL parsing").
`readings`, for `deny`: fully decoded, nested URIs too, without case, compatibility forms (UAX #15, NFKC) and invisible
characters.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from unicodedata import combining, normalize
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from mcp_hub.catalog.offers.filters import UNTOLD, Filter, Selector, Traits
from mcp_hub.catalog.resources.uris import MAX_MATCHED
from mcp_hub.globs import late

_SCHEME = late(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_PARTS = late(r"([^?#]*)(.*)", re.DOTALL)
_MORE = late("[?#;]")
_AUTHORITY = late(r"(\[[^\]]*\]|[^:@]*)(?::([0-9]*))?")
_DRIVE = late(r"\A([A-Za-z])[:|](?=/|\Z)")  # of Windows. A host before it is dropped by some and not by others
_ESCAPE = late(r"%[0-9A-Fa-f]{2}")
_CONTROL = late(r"[\x00-\x1f\x7f]")
_NUMBER = late(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_HOST: Final = 255  # characters (RFC 1035): the time that Punycode takes grows with the square of them
_PORTS: Final = {"file": "", "ftp": "21", "http": "80", "https": "443", "ws": "80", "wss": "443"}
"""Schemes whose URIs are read alike, with their default ports."""
_MOST: Final = 1 << 17
"""The most characters of all readings of one URI."""
_MARKS: Final = "1" * 31
"""More than 30 combining characters in a row (UAX #15, Stream-Safe Text Format), which are slow to normalize."""
_OF_HUB: Final = late("hub://[^/]*/")
_OF_APP: Final = late("ui://(?:[^/!]*![0-9]*/)+")
"""Names of servers in an app's address, after its scheme; a hub removes the first."""
_WRAPPER: Final = late(rf"{_OF_HUB.pattern}|(?<=[^a-z0-9+.-])(?=[a-z][a-z0-9+.-]*:)")
"""The start of a nested URI: after a server's name, or with its own scheme."""
_PUNYCODE: Final = late(r"(?<=[/.@])xn--[a-z0-9-]{1,59}")
_PARAMETERS: Final = late(r";[^/?#]*")
_LOOSE: Final = late(r"(?<=[^:/. ])[. ]*/+")  # dots and spaces at the end of a segment; empty segments
_ESCAPED_GLOB: Final = late(r"%(2a|3f|5b|5d)")


class _UriVariants(msgspec.Struct, frozen=True):
    """Each of `allowed` must be admitted; none of `denied` may be denied."""

    allowed: tuple[str, ...]
    denied: tuple[str, ...]


def uri_variants(uri: str) -> _UriVariants | None:
    """`uri` and its equivalents; None for dot segments, control characters, outer white space, an invalid host, or more
    than `MAX_MATCHED` characters.
    """
    if len(uri) > MAX_MATCHED or _CONTROL.search(uri) or uri != uri.strip():
        return None
    scheme, opaque = parts.groups() if (parts := _SCHEME.fullmatch(uri)) else ("", uri)
    path, tail = _parts(opaque)
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
    return _UriVariants(
        (uri, variants), (uri, variants, *(prefix + text for prefix in places for text in sorted(texts)))
    )


def _parts(opaque: str) -> tuple[str, str]:
    parts = _PARTS.fullmatch(opaque)
    assert parts is not None
    return parts[1], parts[2]


def _split(scheme: str, path: str) -> tuple[str, str, str]:
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
    return f"//{authority}", f"//{_looked_up(scheme, authority)}", f"/{behind}"


def _looked_up(scheme: str, authority: str) -> str:
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
    char = chr(int(escape[0][1:], 16))
    return char if char.isascii() and (char.isalnum() or char in "-._~") else escape[0].upper()


def is_denied(
    filters: Iterable[Filter],
    uris: Iterable[str],
    *,
    traits: Traits = UNTOLD,
    hidden: Collection[str] = (),
    in_doubt: bool = True,
) -> bool:
    """Whether a `deny` matches a reading of the URIs, or one is `hidden`; `in_doubt` if undecidable. Without any
    `deny`: False.
    """
    denying = [_folded(filter_) for filter_ in filters if filter_.deny]
    for read in map(readings, dict.fromkeys(uris) if denying else ()):
        if read is None:
            if in_doubt:
                return True
        elif any(filter_.denies(*read, traits=traits) for filter_ in denying) or not read.isdisjoint(hidden):
            return True
    return False


def readings(uri: str, *, with_nested: bool = True) -> frozenset[str] | None:
    """None if undecidable: not UTF-8, unreadable, or too many."""
    texts: set[str] = set()
    room = _MOST
    try:
        for text in _levels(uri):
            for at in _starts(text) if with_nested else (0,):
                new = _read(text[at:].strip()) - texts
                room -= sum(map(len, new))
                if room < 0:
                    return None
                texts |= new
    except ValueError:
        return None
    return frozenset(texts)


def _read(uri: str) -> set[str]:
    if _OF_HUB.match(uri):  # a hub looks at what is behind, which begins elsewhere
        return {uri}
    if (wrapped := _OF_APP.match(uri)) is not None:
        if wrapped[0].count("!") > 1:
            raise ValueError(uri)
        return {uri, *_read(f"ui://{uri[wrapped.end() :]}")}
    variants = uri_variants(uri)
    if variants is None:
        raise ValueError(uri)
    return set[str]().union(*map(_loosened, variants.denied))


@lru_cache(maxsize=1024)
def _folded(filter_: Filter) -> Filter:
    entries: list[str | Selector] = []
    for entry in filter_.deny:
        if isinstance(entry, str):
            entries += _globs(entry)
        elif entry.name is None:
            entries.append(entry)
        else:
            entries += (replace(entry, name=glob) for glob in _globs(entry.name))
    return Filter(deny=tuple(entries))


def _fold(text: str) -> str:
    if not text.isascii():
        text = normalize("NFKC", normalize("NFKC", text).casefold())
    return "".join(filter(str.isprintable, text.casefold())).replace("\\", "/").strip()


def _levels(uri: str) -> Iterator[str]:
    plain, prior = uri, None
    while (text := _fold(_plain_text(plain))) != prior:
        yield text
        prior, plain = text, _PUNYCODE.sub(_unicode, unquote(text, errors="strict"))


def _plain_text(text: str) -> str:
    if "\0" in text or (not text.isascii() and _MARKS in "".join("01"[combining(char) > 0] for char in text)):
        raise ValueError("it ends at NUL for some readers, or has more marks on a character than a writing needs")
    return text


def _starts(text: str) -> Iterator[int]:
    yield 0
    yield from (match.end() for match in _WRAPPER.finditer(text))


def _loosened(text: str) -> set[str]:
    whole = {text, _PARAMETERS.sub("", text)}
    return whole | {_LOOSE.sub("/", variant).rstrip(". ") for variant in whole}


def _unicode(label: re.Match[str]) -> str:
    try:
        return label[0].encode().decode("idna")
    except UnicodeError:
        return label[0]


def _globs(glob: str) -> set[str]:
    """The glob folded and decoded; an escaped wildcard stands for itself."""
    globs: set[str] = set()
    text = _fold(glob)
    while text not in globs:
        globs.add(text)
        text = _fold(unquote(_ESCAPED_GLOB.sub(lambda escape: f"[{unquote(escape[0])}]", text)))
    return globs

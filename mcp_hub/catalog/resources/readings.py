"""Everything that a URI may be read as, for entries of `deny`: decoded as often as that changes it, and what it wraps.

Each reading is folded: letter case, compatibility forms and invisible characters make no difference, as on many file
systems. Globs are folded in the same way. Pure. Source: UAX #15 (NFKC); RFC 3986 §2.1; RFC 3492.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from functools import lru_cache
from typing import Final
from unicodedata import combining, normalize
from urllib.parse import unquote

from msgspec.structs import replace

from mcp_hub.catalog.filters import UNTOLD, Filter, Selector, Traits
from mcp_hub.catalog.resources.uri_variants import uri_variants

_MOST: Final = 1 << 17
"""Characters of all readings of one URI; one with more is not decided."""
_MARKS: Final = "1" * 31
"""More than 30 combining characters in a row are not text (UAX #15, Stream-Safe Text Format), and slow to normalize."""
_OF_HUB: Final = re.compile("hub://[^/]*/")
_OF_APP: Final = re.compile("ui://(?:[^/!]*![0-9]*/)+")
"""The names of servers in the address of an app, whose scheme stays in front; a hub takes off the first."""
_WRAPPER: Final = re.compile(rf"{_OF_HUB.pattern}|(?<=[^a-z0-9+.-])(?=[a-z][a-z0-9+.-]*:)")
"""Where a URI begins in another one: behind the name of a server of a hub, or with a scheme of its own."""
_PUNYCODE: Final = re.compile(r"(?<=[/.@])xn--[a-z0-9-]{1,59}")
_PARAMETERS: Final = re.compile(r";[^/?#]*")
_LOOSE: Final = re.compile(r"(?<=[^:/. ])[. ]*/+")  # dots and spaces at the end of a segment; empty segments
_ESCAPED_GLOB: Final = re.compile(r"%(2a|3f|5b|5d)")


def is_denied(
    filters: Iterable[Filter],
    uris: Iterable[str],
    *,
    traits: Traits = UNTOLD,
    hidden: Collection[str] = (),
    in_doubt: bool = True,
) -> bool:
    """Whether a `deny` of the filters means something that a URI may be read as, or this is `hidden`; else `in_doubt`.

    Without any `deny` nothing is, and nothing is decoded.
    """
    denying = [_folded(own) for own in filters if own.deny]
    for read in map(readings, dict.fromkeys(uris) if denying else ()):
        if read is None:
            if in_doubt:
                return True
        elif any(own.denies(*read, traits=traits) for own in denying) or not read.isdisjoint(hidden):
            return True
    return False


def readings(uri: str, *, with_nested: bool = True) -> frozenset[str] | None:
    """All of them; None if they cannot be decided: bytes that are not UTF-8, something unreadable, or too many."""
    found: set[str] = set()
    left = _MOST
    try:
        for text in _levels(uri):
            for at in _starts(text) if with_nested else (0,):
                new = _read(text[at:].strip()) - found
                left -= sum(map(len, new))
                if left < 0:
                    return None
                found |= new
    except ValueError:
        return None
    return frozenset(found)


def _read(uri: str) -> set[str]:
    """One that is not decoded any further. Raises: ValueError for what cannot be decided."""
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
def _folded(own: Filter) -> Filter:
    """The `deny` of a filter for readings: its globs as they are written, and decoded."""
    entries: list[str | Selector] = []
    for entry in own.deny:
        if isinstance(entry, str):
            entries += _globs(entry)
        elif entry.name is None:
            entries.append(entry)
        else:
            entries += (replace(entry, name=glob) for glob in _globs(entry.name))
    return Filter(deny=tuple(entries))


def _fold(text: str) -> str:
    """The text as it is compared."""
    if not text.isascii():
        text = normalize("NFKC", normalize("NFKC", text).casefold())
    return "".join(filter(str.isprintable, text.casefold())).replace("\\", "/").strip()


def _levels(uri: str) -> Iterator[str]:
    """The folded text, decoded once more each time. Raises: ValueError for what is not text to every reader."""
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
    yield from (found.end() for found in _WRAPPER.finditer(text))


def _loosened(text: str) -> set[str]:
    """The text, and what it means to readers that ignore parts of it."""
    whole = {text, _PARAMETERS.sub("", text)}
    return whole | {_LOOSE.sub("/", one).rstrip(". ") for one in whole}


def _unicode(label: re.Match[str]) -> str:
    try:
        return label[0].encode().decode("idna")
    except UnicodeError:
        return label[0]


def _globs(glob: str) -> set[str]:
    """The glob as it is folded, and decoded; an escaped `*`, `?`, `[` or `]` stands for itself."""
    found: set[str] = set()
    text = _fold(glob)
    while text not in found:
        found.add(text)
        text = _fold(unquote(_ESCAPED_GLOB.sub(lambda escape: f"[{unquote(escape[0])}]", text)))
    return found

"""A tool as search sees it: which words it has, and how much each of them says about it.

Nothing here depends on the other tools, so a document is made once and shared by all indexes that hold the tool.
"""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from mcp_hub.catalog.search.words import MAX_NAME, compounds, is_bare, key, telling, words


class Searchable(msgspec.Struct, frozen=True):
    """The searched text of a tool: exported name, server, the server's own words; `schema` may be any JSON."""

    id: str
    server: str
    name: str
    description: str
    schema: Mapping[str, Any]


class ToolDocument(msgspec.Struct, frozen=True, weakref=True):
    """A tool's words; of bounded size (`_FIELDS`), however large the tool's texts are."""

    id: str
    keys: tuple[str, str]
    """`words.key` of the exported name and of the server's own name."""
    weights: Mapping[str, float]
    """The weight of each of the tool's words: over 0, under `PEAK`."""
    name: tuple[str, ...]
    """The distinct telling words of the server's own name."""
    pairs: tuple[str, ...]
    """Words that follow each other in the name or the first sentence."""


class _Field(NamedTuple):
    weight: float
    limit: int
    usual: int
    """Words in a field of usual length; fixed, so that a document does not depend on the others."""
    damping: float
    """The degree to which length counts against a word: 0 not at all, 1 in proportion."""


# measured weights (docs/search.md)
_FIELDS = {
    "name": _Field(4, 32, 3, 0),
    "server": _Field(2.5, 16, 2, 0),
    "first": _Field(1.2, 60, 12, 0.5),
    "rest": _Field(0.4, 200, 30, 0.5),
    "parameters": _Field(0.6, 200, 6, 0),
    "notes": _Field(0.25, 200, 40, 0.5),
    "choices": _Field(0.6, 100, 6, 0.5),
}
_MAX_REPEATS = 2  # a word repeated more often says no more: descriptions that are stuffed with it gain nothing
_K1 = 1.0  # saturation (k1 of BM25): the name alone comes close to the peak
PEAK = _K1 + 1
_MAX_TEXT, _MAX_NOTE, _MAX_CHOICE = 8_192, 1_024, 64
_MAX_PROPERTIES, _MAX_CHOICES, _MAX_DEPTH = 256, 20, 3

_made: WeakValueDictionary[bytes, ToolDocument] = WeakValueDictionary()


def prepare(tool: Searchable) -> ToolDocument:
    """The document of a tool; the same object again while some index holds an equal one."""
    texts = _texts(tool)
    digest = blake2b(digest_size=16)
    for text in (tool.id, tool.server, *texts.values()):
        encoded = text.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    document = _made.get(digest.digest())
    if document is None:
        document = _made[digest.digest()] = _document(tool, texts)
    return document


def pairs(row: Sequence[str]) -> Iterator[str]:
    """Neighbours among the words that say something."""
    telling = [word for word in row if not is_bare(word)]
    return (f"{one} {other}" for one, other in zip(telling, telling[1:], strict=False))


def _texts(tool: Searchable) -> dict[str, str]:
    description = tool.description.lstrip()[:_MAX_TEXT]
    end = _first_end(description)
    names, notes, choices = _parameters(tool.schema)
    return {
        "name": tool.name[:MAX_NAME],
        "server": tool.server[:MAX_NAME],
        "first": description[:end],
        "rest": description[end:],
        "parameters": " ".join(names)[:_MAX_TEXT],
        "notes": " ".join(notes)[:_MAX_TEXT],
        "choices": " ".join(choices)[:_MAX_TEXT],
    }


def _first_end(description: str) -> int:
    """Where the first sentence ends: at a line end or after a full stop and a space."""
    ends = (description.find(mark) for mark in ("\n", ". ", "! ", "? ", "。"))
    return min((end + 1 for end in ends if end >= 0), default=len(description))


def _parameters(schema: object) -> tuple[list[str], list[str], list[str]]:
    """Names, descriptions and enum values of properties, the outer ones first, `_MAX_PROPERTIES` at most."""
    names: list[str] = []
    notes: list[str] = []
    choices: list[str] = []
    level = [schema]
    for _ in range(_MAX_DEPTH):
        inner: list[object] = []
        for name, one in islice(_properties(level), _MAX_PROPERTIES - len(names)):
            names.append(name[:MAX_NAME])
            if isinstance(one, dict):
                inner += [one, one.get("items")]
                if isinstance(note := one.get("description"), str):
                    notes.append(note[:_MAX_NOTE])
                if isinstance(values := one.get("enum"), list):
                    choices += [value[:_MAX_CHOICE] for value in values[:_MAX_CHOICES] if isinstance(value, str)]
        level = inner
    return names, notes, choices


def _properties(schemas: Sequence[object]) -> Iterator[tuple[str, object]]:
    for schema in schemas:
        properties = schema.get("properties") if isinstance(schema, dict) else None
        if isinstance(properties, dict):
            yield from properties.items()


def _document(tool: Searchable, texts: Mapping[str, str]) -> ToolDocument:
    rows = {field: words(texts[field], kind.limit) for field, kind in _FIELDS.items()}
    return ToolDocument(
        id=tool.id,
        keys=(key(tool.id), key(tool.name)),
        weights=_weights(texts, rows),
        name=telling(texts["name"]),
        pairs=tuple(dict.fromkeys((*pairs(rows["name"]), *pairs(rows["first"])))),
    )


def _weights(texts: Mapping[str, str], rows: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """BM25F: the fields' weighted counts together, saturated once."""
    sums: dict[str, float] = {}
    for field, kind in _FIELDS.items():
        each = kind.weight / (1 - kind.damping + kind.damping * len(rows[field]) / kind.usual)
        counts: dict[str, int] = {}
        for word in rows[field]:
            if (count := counts.get(word, 0)) < _MAX_REPEATS:
                counts[word] = count + 1
                sums[word] = sums.get(word, 0.0) + each
        if field in ("name", "server", "first"):
            # beside the row: neither the length nor who follows whom changes
            for word in dict.fromkeys(compounds(texts[field], kind.limit)):
                sums[word] = sums.get(word, 0.0) + each
    return {word: total * PEAK / (_K1 + total) for word, total in sums.items() if not is_bare(word)}

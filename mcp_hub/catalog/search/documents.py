"""A tool as search sees it: its words and their weights. All indexes share a document."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, islice
from string import ascii_lowercase
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec

from mcp_hub.catalog.search.words import MAX_NAME, compounds, is_bare, key, telling, words
from mcp_hub.schema import properties

_MAX_REPEATS = 2  # a word repeated more often says no more: descriptions that are stuffed with it gain nothing
_K1 = 1.0  # saturation (k1 of BM25): the name alone comes close to the peak
PEAK = _K1 + 1
_MAX_TEXT, _MAX_NOTE, _MAX_CHOICE = 8_192, 1_024, 64
_MAX_PROPERTIES, _MAX_CHOICES, _MAX_DEPTH = 256, 20, 3
_T = TypeVar("_T")
# two spellings are near when they share their first letters and this much of their trigrams (Dice)
_NEAR, _INITIALS, _MIN_SPELLED, _MIN_TWO_EDITS = 0.6, 2, 4, 8
_SLIPPED = 0.75  # of a short word: fewer other words are as near
_MAX_SPELLINGS = 4_000  # with more words of the same first letters, nothing is guessed


class Searchable(msgspec.Struct, frozen=True):
    """The searched text of a tool; `schema` may be any JSON."""

    id: str
    server: str
    name: str
    description: str
    schema: Mapping[str, object]


class ToolDocument(msgspec.Struct, frozen=True, weakref=True):
    """A tool's words, of bounded size."""

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
    """Words in a field of usual length; fixed, so that documents are independent."""
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

_documents: WeakValueDictionary[bytes, ToolDocument] = WeakValueDictionary()


def prepare(tool: Searchable) -> ToolDocument:
    """The document of a tool; equal ones are shared."""
    texts = _texts(tool)
    digest = blake2b(digest_size=16)
    for text in (tool.id, tool.server, *texts.values()):
        encoded = text.encode(errors="surrogatepass")
        digest.update(b"%d:%b" % (len(encoded), encoded))
    document = _documents.get(digest.digest())
    if document is None:
        document = _documents[digest.digest()] = _document(tool, texts)
    return document


def pairs(row: Sequence[str]) -> Iterator[str]:
    """Neighbouring telling words."""
    telling = [word for word in row if not is_bare(word)]
    return (f"{first} {second}" for first, second in zip(telling, telling[1:], strict=False))


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
    ends = (description.find(mark) for mark in ("\n", ". ", "! ", "? ", "。"))
    return min((end + 1 for end in ends if end >= 0), default=len(description))


def _parameters(schema: object) -> tuple[list[str], list[str], list[str]]:
    names: list[str] = []
    notes: list[str] = []
    choices: list[str] = []
    level = [schema]
    for _ in range(_MAX_DEPTH):
        inner: list[object] = []
        for name, subschema in islice(_properties(level), _MAX_PROPERTIES - len(names)):
            names.append(name[:MAX_NAME])
            if isinstance(subschema, dict):
                inner += [subschema, subschema.get("items")]
                if isinstance(note := subschema.get("description"), str):
                    notes.append(note[:_MAX_NOTE])
                if isinstance(values := subschema.get("enum"), list):
                    choices += [value[:_MAX_CHOICE] for value in values[:_MAX_CHOICES] if isinstance(value, str)]
        level = inner
    return names, notes, choices


def _properties(schemas: Sequence[object]) -> Iterator[tuple[str, object]]:
    for schema in schemas:
        yield from properties(schema).items()


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
    """BM25F."""
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


class Postings:
    """The inverted index: documents by number, numbers by word and by exact name."""

    def __init__(self) -> None:
        self.documents: dict[int, ToolDocument] = {}
        self.weights: dict[str, dict[int, float]] = {}
        self.exact: dict[str, dict[int, None]] = {}
        self._spellings: dict[str, dict[str, None]] = {}
        self._rarity: dict[str, float] = {}

    def add(self, number: int, document: ToolDocument) -> None:
        self._rarity.clear()
        self.documents[number] = document
        for word, weight in document.weights.items():
            numbers = self.weights.get(word)
            if numbers is None:
                numbers = self.weights[word] = {}
                if _is_spelled(word):
                    self._spellings.setdefault(word[:_INITIALS], {})[word] = None
            numbers[number] = weight
        for name in document.keys:
            self.exact.setdefault(name, {})[number] = None

    def remove(self, number: int) -> None:
        self._rarity.clear()
        document = self.documents.pop(number)
        for word in document.weights:
            _discard(self.weights, word, number)
            if word not in self.weights and _is_spelled(word):
                _discard(self._spellings, word[:_INITIALS], word)
        for name in dict.fromkeys(document.keys):
            _discard(self.exact, name, number)

    def having(self, word: str) -> int:
        return len(self.weights.get(word, ()))

    def rarity(self, word: str) -> float:
        """Inverse document frequency (BM25's)."""
        cached = self._rarity.get(word)
        if cached is None:
            having = self.having(word)
            if not having:  # what only queries have is not collected
                return self.highest_rarity
            cached = self._rarity[word] = math.log(1 + (len(self.documents) - having + 0.5) / (having + 0.5))
        return cached

    @property
    def highest_rarity(self) -> float:
        return math.log(1 + (len(self.documents) + 0.5) / 0.5)

    def near(self, word: str, limit: int = 2, *, is_mistyped: bool = True) -> list[tuple[str, float]]:
        """Words spelled most like an unknown one, with likeness under 1; `is_mistyped`: also by few edits."""
        if not _is_spelled(word):
            return []
        if len(word) == _MIN_SPELLED:
            return [(candidate, _SLIPPED) for candidate in self._slipped(word)[:limit]] if is_mistyped else []
        spellings = self._spellings.get(word[:_INITIALS], {})
        likeness = {} if len(spellings) > _MAX_SPELLINGS else _like_trigrams(word, spellings)
        if is_mistyped:
            rows = (row for initials, row in self._spellings.items() if word[0] in initials)
            likeness |= _mistyped(word, islice(chain.from_iterable(rows), _MAX_SPELLINGS))
        near = sorted((-like, candidate) for candidate, like in likeness.items())
        return [(candidate, -like) for like, candidate in near[:limit]]

    def _slipped(self, word: str) -> list[str]:
        """Words of which a short one has two letters in the other order, or lacks one within."""
        swapped = (word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1))
        longer = (word[:at] + letter + word[at:] for at in range(1, len(word)) for letter in ascii_lowercase)
        return [candidate for candidate in dict.fromkeys((*swapped, *longer)) if candidate in self.weights]


def _like_trigrams(word: str, spellings: Iterable[str]) -> dict[str, float]:
    trigrams = _trigrams(word)
    slack = len(word) // 2
    candidates = (candidate for candidate in spellings if abs(len(candidate) - len(word)) <= slack)
    likeness = ((candidate, _dice(trigrams, _trigrams(candidate))) for candidate in candidates)
    return {candidate: like for candidate, like in likeness if like >= _NEAR}


def _mistyped(word: str, spellings: Iterable[str]) -> dict[str, float]:
    limit = 1 if len(word) < _MIN_TWO_EDITS else 2
    letters = frozenset(word)
    likeness: dict[str, float] = {}
    for candidate in spellings:
        if abs(len(candidate) - len(word)) <= limit and len(letters ^ frozenset(candidate)) <= 2 * limit:
            edits = _edits(word, candidate)
            if edits <= limit:
                likeness[candidate] = 1 - edits / len(word)
    return likeness


def _edits(first: str, second: str) -> int:
    """Optimal string alignment."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for number, letter in enumerate(first, 1):
        above, row = row, [number]
        for column, opposite in enumerate(second, 1):
            cost = min(above[column] + 1, row[column - 1] + 1, above[column - 1] + (letter != opposite))
            if number > 1 and column > 1 and letter == second[column - 2] and first[number - 2] == opposite:
                cost = min(cost, before[column - 2] + 1)
            row.append(cost)
        before = above
    return row[-1]


def _discard(table: dict[str, dict[_T, None]] | dict[str, dict[_T, float]], entry: str, item: _T) -> None:
    items = table[entry]
    del items[item]
    if not items:
        del table[entry]


def _is_spelled(word: str) -> bool:
    return len(word) >= _MIN_SPELLED and word.isalpha() and word.isascii()


def _trigrams(word: str) -> frozenset[str]:
    padded = f"^{word}$"
    return frozenset(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))


def _dice(first: frozenset[str], second: frozenset[str]) -> float:
    return 2 * len(first & second) / (len(first) + len(second))

"""Which documents have which words: the inverted index, kept up document by document.

What depends on all documents (rarity of words) is computed when first asked for after a change.
"""

import math
from typing import TypeVar

from mcp_hub.catalog.search.documents import ToolDocument

_T = TypeVar("_T")

# two spellings are near when they share their first letters and this much of their trigrams (Dice)
_NEAR, _INITIALS, _MIN_SPELLED = 0.6, 2, 5
_MAX_SPELLINGS = 4_000  # with more words of the same first letters, nothing is guessed


class Postings:
    """Documents by number, and the numbers by word and by exact name."""

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
            held = self.weights.get(word)
            if held is None:
                held = self.weights[word] = {}
                if _is_spelled(word):
                    self._spellings.setdefault(word[:_INITIALS], {})[word] = None
            held[number] = weight
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
        """The number of documents that have a word."""
        return len(self.weights.get(word, ()))

    def rarity(self, word: str) -> float:
        """Inverse document frequency (BM25's)."""
        found = self._rarity.get(word)
        if found is None:
            having = self.having(word)
            if not having:  # what only queries have is not collected
                return self.highest_rarity
            found = self._rarity[word] = math.log(1 + (len(self.documents) - having + 0.5) / (having + 0.5))
        return found

    @property
    def highest_rarity(self) -> float:
        """That of a word that no document has."""
        return math.log(1 + (len(self.documents) + 0.5) / 0.5)

    def near(self, word: str, limit: int = 2) -> list[tuple[str, float]]:
        """The words spelled most like one that no document has, with their likeness under 1."""
        held = self._spellings.get(word[:_INITIALS], {})
        if not _is_spelled(word) or len(held) > _MAX_SPELLINGS:
            return []
        trigrams = _trigrams(word)
        others = (other for other in held if abs(len(other) - len(word)) <= len(word) // 2)
        likeness = ((_dice(trigrams, _trigrams(other)), other) for other in others)
        near = sorted((-like, other) for like, other in likeness if like >= _NEAR)
        return [(other, -like) for like, other in near[:limit]]


def _discard(table: dict[str, dict[_T, None]] | dict[str, dict[_T, float]], entry: str, item: _T) -> None:
    held = table[entry]
    del held[item]
    if not held:
        del table[entry]


def _is_spelled(word: str) -> bool:
    return len(word) >= _MIN_SPELLED and word.isalpha() and word.isascii()


def _trigrams(word: str) -> frozenset[str]:
    padded = f"^{word}$"
    return frozenset(map("".join, zip(padded, padded[1:], padded[2:], strict=False)))


def _dice(one: frozenset[str], other: frozenset[str]) -> float:
    return 2 * len(one & other) / (len(one) + len(other))

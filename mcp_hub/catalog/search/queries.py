"""A query, and the worth of its words to an index."""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from mcp_hub.catalog.search.documents import Postings, pairs
from mcp_hub.catalog.search.languages import in_english
from mcp_hub.catalog.search.phrases import added, kinds, plain, respelled, reworded, without_statements, without_values
from mcp_hub.catalog.search.words import clauses, is_bare, is_word, like, words

Aliases = Mapping[str, Sequence[tuple[tuple[str, ...], tuple[str, ...]]]]
"""By the first word of an alias: all its words, and the words that it may also mean."""
# a long task description has 500 words; what comes later is no longer what it is about
MAX_CHARACTERS, MAX_WORDS, MAX_CLAUSES = 8_192, 600, 60
MAX_TYPED = 20  # words of a query as people type them, about
# guesses count less than words: one word from two, another spelling, another word, the kind of a value, a phrase
_JOINED, _MISSPELLED, _ALIAS, _KIND, _BESIDES = 0.5, 0.7, 0.6, 0.7, 0.5
# words that no document has for which other spellings are looked up: the last of them by trigrams alone
_MAX_MISSPELLED, _MAX_MISTYPED = 8, 4
_MAX_LIKENED = 100  # distinct words for which words of like use are looked up


class SearchQuery(msgspec.Struct, frozen=True):
    """The steps of a query: 0 is the whole, the others its clauses."""

    words: dict[str, list[tuple[int, float]]]
    """Indexed words, with the steps that seek them, step 0 first, and their worth there."""
    pairs: dict[str, list[tuple[int, float]]]
    """Pairs of words that stand side by side, with the same figures."""
    sought: list[float]
    """By step, the rarity of all its words, also of unknown ones."""
    like: dict[str, float]
    """Other indexed words, with their likeness to one of the query: over 0, under 1."""


def read_aliases(aliases: Mapping[str, Sequence[str]]) -> Aliases:
    """Aliases in comparable words."""
    read: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for name, meanings in aliases.items():
        of = tuple(words(name.lower(), 8))
        expansion = tuple(word for meaning in meanings for word in words(meaning, 8) if not is_bare(word))
        if of and expansion:
            read.setdefault(of[0], []).append((of, expansion))
    return read


def _telling(row: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in row:
        if not is_bare(word):
            counts[word] = counts.get(word, 0) + 1
    return counts


def request(text: str, postings: Postings, aliases: Aliases) -> SearchQuery:
    """The query of `text`; empty if no document has any of its words."""
    text = without_statements(text[:MAX_CHARACTERS])
    rows: list[_Row] = []
    whole_kinds = list(kinds(text))
    room = MAX_WORDS
    spoken = clauses(text)
    is_short = text.count(" ") < MAX_TYPED
    plain_clauses = [without_values(clause) for clause in spoken]
    for original, (clause, besides) in zip(spoken, in_english(plain_clauses, postings.weights), strict=True):
        clause_words = plain(words(clause, room))
        if is_short:
            clause_words = respelled(clause_words, lambda word: word not in postings.weights and not is_word(word))
        clause_words, meanings = reworded(clause_words, postings.weights, is_short=is_short)
        room -= len(clause_words)
        if clause_words or besides:
            rows.append(
                _Row(
                    clause_words,
                    list(kinds(original)) if whole_kinds and len(spoken) > 1 else [],
                    [*words(" ".join(besides), room), *meanings, *added(clause_words, is_short=is_short)],
                )
            )
    whole = _Row(
        [word for row in rows for word in row.words],
        # what begins a clause may be no value within the text, and one that the whole does not seek has no worth
        [*whole_kinds, *(kind for row in rows for kind in row.kinds)],
        [word for row in rows for word in row.besides],
    )
    return _Reader(postings, aliases).request(whole, rows)


class _Row(NamedTuple):
    words: list[str]
    kinds: list[str]
    """Words for the kinds of its values."""
    besides: list[str]
    """Words that it may mean, too."""


class _Reader:
    def __init__(self, postings: Postings, aliases: Aliases) -> None:
        self._postings = postings
        self._aliases = aliases
        self._near: dict[str, list[tuple[str, float]]] = {}

    def request(self, whole: _Row, rows: Sequence[_Row]) -> SearchQuery:
        counts = _telling(whole.words)
        steps = [(whole, counts, self._weights(whole, counts))]
        if len(rows) > 1:
            counted = ((row, _telling(row.words)) for row in rows[:MAX_CLAUSES])
            parts = ((row, counts, self._weights(row, counts)) for row, counts in counted)
            # one word is not a step of its own
            steps += [part for part in parts if len(part[2]) >= 2]
        request = SearchQuery({}, {}, [], self._like(counts))
        for step, (row, counts, weights) in enumerate(steps if len(steps) > 2 else steps[:1]):
            self._add(request, step, row.words, weights)
            # of words that say nothing, only an alias can make something
            request.sought.append(math.fsum(map(self._postings.rarity, counts or weights)))
        return request

    def _add(self, request: SearchQuery, step: int, row: Sequence[str], weights: Mapping[str, float]) -> None:
        rarity = self._postings.rarity
        for word, weight in weights.items():
            request.words.setdefault(word, []).append((step, weight * rarity(word)))
        for pair in dict.fromkeys(pairs(row)):
            request.pairs.setdefault(pair, []).append((step, sum(map(rarity, pair.split(" "))) / 2))

    def _weights(self, row: _Row, counts: Mapping[str, int]) -> dict[str, float]:
        indexed = self._postings.weights
        weights = {word: _BESIDES for word in row.besides if word in indexed and not is_bare(word)}
        weights.update((kind, _KIND) for kind in row.kinds if kind in indexed)
        weights.update((word, weight) for word, weight in self._guesses(row.words, counts) if word in indexed)
        weights.update((word, 1 + math.log(count)) for word, count in counts.items() if word in indexed)
        return weights

    def _guesses(self, row: Sequence[str], telling: Mapping[str, int]) -> Iterator[tuple[str, float]]:
        for first, second in zip(row, row[1:], strict=False):
            # a single letter is as likely the rest of something else
            if len(first) > 1 and len(second) > 1 and not (is_bare(first) and is_bare(second)):
                yield first + second, _JOINED
        for word in telling:
            if word not in self._postings.weights:
                yield from ((near, like * _MISSPELLED) for near, like in self._spelled_like(word))
        present = frozenset(row)
        for word in self._aliases.keys() & present:
            for of, expansion in self._aliases[word]:
                if present.issuperset(of):
                    yield from ((also, _ALIAS) for also in expansion)

    def _like(self, telling: Mapping[str, int]) -> dict[str, float]:
        """A common word counts less for a rare one."""
        rarity = self._postings.rarity
        likenesses: dict[str, float] = {}
        indexed = self._postings.weights
        for word in islice(telling, _MAX_LIKENED):
            worth = rarity(word)
            for neighbour, likeness in like(word):
                if neighbour in indexed and neighbour not in telling:
                    likeness *= min(1.0, worth / rarity(neighbour))
                    if likeness > likenesses.get(neighbour, 0.0):
                        likenesses[neighbour] = likeness
        return likenesses

    def _spelled_like(self, word: str) -> list[tuple[str, float]]:
        if word not in self._near:
            room = _MAX_MISSPELLED - len(self._near)
            is_mistyped = room > _MAX_MISSPELLED - _MAX_MISTYPED and not is_word(word)
            self._near[word] = self._postings.near(word, is_mistyped=is_mistyped) if room > 0 else []
        return self._near[word]

"""A query, and the worth of its words to an index.

A value shows the kind of parameter sought: "2026-05-01" a date.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from mcp_hub.catalog.search.documents import Postings, pairs
from mcp_hub.catalog.search.languages import in_english
from mcp_hub.catalog.search.likeness import like
from mcp_hub.catalog.search.words import clauses, is_bare, words
from mcp_hub.globs import late

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_FILES = "txt|md|csv|tsv|json|xml|ya?ml|html?|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|wav|mp3|mp4|zip|log|py"
# every value has one of these; most texts have none
_ANY_VALUE = late(r"[\d@]|://|\w\.\w", re.ASCII)
_DATE = (
    r"\b\d{4}-\d\d?-\d\d?\b",
    r"\b\d\d?/\d\d?/(?:\d\d)?\d\d\b",
    r"\b\d\d?\.\d\d?\.\d{4}\b",
    rf"\b{_MONTH}\.? \d",
    rf"\d(?:st|nd|rd|th)?(?: of)? {_MONTH}\b",
)
# from any place, each pattern looks at few characters: the time is linear in the text
_KINDS = [
    (late(pattern, re.IGNORECASE | re.ASCII), tuple(words(noun, 2)))
    for noun, pattern in {
        "date": "|".join(_DATE),
        "time": r"\b\d\d?(?::\d\d)? ?[ap]\.?m\b|\b\d\d?:\d\d\b",
        "URL": r"\bhttps?://|\bwww\.",
        "email": r"\w@\w[\w-]{0,62}\.\w",
        "IP": r"\b(?:\d{1,3}\.){3}\d{1,3}\b",
        "latitude longitude": r"\d\.\d{1,9}, ?-?\d{1,3}\.\d",
        "calculate": r"\d ?[*×÷+^] ?\d",
        "file": rf"\w\.(?:{_FILES})\b",
    }.items()
]
Aliases = Mapping[str, Sequence[tuple[tuple[str, ...], tuple[str, ...]]]]
"""By the first word of an alias: all its words, and the words that it may also mean."""
_SAID = """
current: time is it, day is it, date is it, year is it, month is it, week is it, hour is it, late is it
current: what s the time, what s the date, what s the day, what is the time, what is the date, what is the day
current: tell me the time, have the time, time in, today, right now, at the moment, currently, now
list: what are the, which are, what do i have, show all, show me all, show my
create add: set up, make a, make an, make me, start a new, open a new
write create: write down, note down, jot down
distance: how far
convert: how much is
delete remove = get rid of, throw away, throw out, take away, clear out
write create = put down, take a note
convert = turn into
enable = turn on, switch on
disable = turn off, switch off, shut off
stop = shut down, call off
send = drop a line
"""
"""Words in names of tools, and phrases of people for them; with `=` they replace the words of the phrase.

Words for "get", "search", "update" and "count" make hits worse.
"""
# a long task description has 500 words; what comes later is no longer what it is about
MAX_CHARACTERS, MAX_WORDS, MAX_CLAUSES = 8_192, 600, 60
# guesses count less than words: one word from two, another spelling, another word, the kind of a value, a phrase
_JOINED, _MISSPELLED, _ALIAS, _KIND, _PHRASE, _BESIDES = 0.5, 0.7, 0.6, 0.7, 0.5, 0.5
_MAX_MISSPELLED = 8  # words that no document has for which other spellings are looked up
_MAX_LIKENED = 100  # distinct words for which words of like use are looked up
_INSTEAD: Final[set[tuple[str, ...]]] = set()
"""The phrases whose own words are not meant."""


def kinds(text: str) -> Iterator[str]:
    """Words for the kinds of values."""
    if _ANY_VALUE.search(text):
        for pattern, kind_words in _KINDS:
            if pattern.search(text):
                yield from kind_words


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


def _read_phrases() -> Aliases:
    read: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    for line in _SAID.strip().splitlines():
        targets, _, phrases = line.replace(" = ", ": ").partition(": ")
        for phrase in phrases.split(", "):
            first, *following = words(phrase, 8)
            read.setdefault(first, []).append(((first, *following), tuple(words(targets, 8))))
            if " = " in line:
                _INSTEAD.add((first, *following))
    return read


_PHRASES: Final = _read_phrases()


def _telling(row: Sequence[str]) -> Counter[str]:
    counts = Counter(word for word in row if not is_bare(word))
    counts -= Counter(word for phrase, _ in _phrases(row) if phrase in _INSTEAD for word in phrase)
    return counts


def _phrases(row: Sequence[str]) -> Iterator[tuple[tuple[str, ...], tuple[str, ...]]]:
    for position, word in enumerate(row):
        for phrase, expansion in _PHRASES.get(word, ()):
            if tuple(row[position : position + len(phrase)]) == phrase:
                yield phrase, expansion


def request(text: str, postings: Postings, aliases: Aliases) -> SearchQuery:
    """The query of `text`; empty if no document has any of its words."""
    text = text[:MAX_CHARACTERS]
    rows: list[_Row] = []
    room = MAX_WORDS
    spoken = clauses(text)
    for original, (clause, besides) in zip(spoken, in_english(spoken, postings.weights), strict=True):
        clause_words = words(clause, room)
        room -= len(clause_words)
        if clause_words or besides:
            rows.append(_Row(clause_words, list(kinds(original)), words(" ".join(besides), room)))
    whole = _Row(
        [word for row in rows for word in row.words], list(kinds(text)), [word for row in rows for word in row.besides]
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
        steps = [(whole, self._weights(whole))]
        if len(rows) > 1:
            parts = ((row, self._weights(row)) for row in rows[:MAX_CLAUSES])
            # one word is not a step of its own
            steps += [(row, weights) for row, weights in parts if len(weights) >= 2]
        request = SearchQuery({}, {}, [], self._like(whole.words))
        for step, (row, weights) in enumerate(steps if len(steps) > 2 else steps[:1]):
            self._add(request, step, row.words, weights)
        return request

    def _add(self, request: SearchQuery, step: int, row: Sequence[str], weights: Mapping[str, float]) -> None:
        rarity = self._postings.rarity
        for word, weight in weights.items():
            request.words.setdefault(word, []).append((step, weight * rarity(word)))
        for pair in dict.fromkeys(pairs(row)):
            request.pairs.setdefault(pair, []).append((step, sum(map(rarity, pair.split(" "))) / 2))
        # of words that say nothing, only an alias can make something
        sought = _telling(row) or weights
        request.sought.append(math.fsum(map(rarity, sought)))

    def _weights(self, row: _Row) -> dict[str, float]:
        indexed = self._postings.weights
        phrases = list(_phrases(row.words))
        counts = _telling(row.words)
        weights = {word: _BESIDES for word in row.besides if word in indexed and not is_bare(word)}
        weights.update((kind, _KIND) for kind in row.kinds if kind in indexed)
        weights.update((word, _PHRASE) for _, expansion in phrases for word in expansion if word in indexed)
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

    def _like(self, row: Sequence[str]) -> dict[str, float]:
        """A common word counts less for a rare one."""
        rarity = self._postings.rarity
        telling = dict.fromkeys(word for word in row if not is_bare(word))
        likenesses: dict[str, float] = {}
        for word in islice(telling, _MAX_LIKENED):
            for neighbour, likeness in like(word):
                if neighbour in self._postings.weights and neighbour not in telling:
                    likeness *= min(1.0, rarity(word) / rarity(neighbour))
                    likenesses[neighbour] = max(likeness, likenesses.get(neighbour, 0.0))
        return likenesses

    def _spelled_like(self, word: str) -> list[tuple[str, float]]:
        if word not in self._near:
            self._near[word] = self._postings.near(word) if len(self._near) < _MAX_MISSPELLED else []
        return self._near[word]

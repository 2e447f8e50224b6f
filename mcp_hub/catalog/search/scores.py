"""Scores of documents: BM25F, more for covered names and neighbouring words."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mcp_hub.catalog.search.documents import PEAK, Postings, ToolDocument
from mcp_hub.catalog.search.queries import SearchQuery

# entries of postings that a rough weighing visits, or half as many as there are documents if that is more: the words
# that most documents have tell them apart least, and come last
MAX_VISITS = 1_000
# shares of the whole query and of the clause that fits best, if there are several
_WHOLE, _CLAUSE = 0.4, 0.6
_NAME = 0.3  # what a name adds, in proportion, that the query covers fully
_PAIR = 0.6  # times the mean rarity of two words that stand side by side in both

# measured (docs/search.md): of right first hits about 1 % are below both, of hits for foreign queries nearly all
_WEAK_SHARE, _WEAK_EVIDENCE = 0.25, 0.6


class Score(NamedTuple):
    """Points for words, a covered name and pairs of words.

    `share` (0 to 1): its part of the best clause, `step` (0: the only one). `evidence`: its part of the query, in words
    that no other tool has.
    """

    words: float = 0.0
    name: float = 0.0
    pairs: float = 0.0
    share: float = 0.0
    evidence: float = 0.0
    step: int = 0

    @property
    def is_weak(self) -> bool:
        return self.share < _WEAK_SHARE and self.evidence < _WEAK_EVIDENCE


def rough(query: SearchQuery, postings: Postings) -> dict[int, float]:
    """Rough scores of all documents with a word of the query."""
    totals: defaultdict[int, float] = defaultdict(float)
    room = max(MAX_VISITS, len(postings.documents) // 2)
    for word in sorted(query.words, key=lambda word: (postings.having(word), word)):
        if totals and postings.having(word) > room:
            break
        room -= postings.having(word)
        _, worth = query.words[word][0]
        for number, weight in postings.weights[word].items():
            totals[number] += worth * weight
    return totals


def rough_among(query: SearchQuery, postings: Postings, numbers: Iterable[int]) -> dict[int, float]:
    """Rough scores of these documents."""
    totals: dict[int, float] = {}
    for number in numbers:
        weights = postings.documents[number].weights
        shared = sorted(query.words.keys() & weights.keys())
        if shared:
            totals[number] = sum(query.words[word][0][1] * weights[word] for word in shared)
    return totals


def score(query: SearchQuery, postings: Postings, number: int) -> Score:
    """The full score of one document."""
    document = postings.documents[number]
    shared = query.words.keys() & document.weights.keys()
    if not shared:
        return Score()
    words: dict[int, float] = {}
    # in a fixed order: sums of floats depend on it
    for word in sorted(shared):
        weight = document.weights[word]
        for step, worth in query.words[word]:
            words[step] = words.get(step, 0.0) + worth * weight
    names = _names(query, postings, document, words)
    pairs = _pairs(query, document)
    totals = {step: words[step] + names.get(step, 0.0) + pairs.get(step, 0.0) for step in words}
    best = max((step for step in totals if step), key=totals.__getitem__, default=0)
    # a query of several clauses, of which only the whole has these words
    clause = _CLAUSE if best or len(query.sought) == 1 else 0.0
    return Score(
        _WHOLE * words[0] + clause * words[best],
        _WHOLE * names.get(0, 0.0) + clause * names.get(best, 0.0),
        _WHOLE * pairs.get(0, 0.0) + clause * pairs.get(best, 0.0),
        share=min(1.0, words[best] / (PEAK * query.sought[best])),
        evidence=words[0] / (PEAK * postings.highest_rarity),
        step=best,
    )


def likeness(query: SearchQuery, postings: Postings, number: int) -> float:
    """The share (0 to 1) of a document's name that like words cover."""
    if not query.like:
        return 0.0
    name = postings.documents[number].name
    covered = sum(postings.rarity(word) * query.like[word] for word in name if word in query.like)
    return covered / sum(map(postings.rarity, name)) if covered else 0.0


def _names(
    query: SearchQuery, postings: Postings, document: ToolDocument, words: Mapping[int, float]
) -> dict[int, float]:
    covered: dict[int, float] = {}
    for word in document.name:
        for step, _ in query.words.get(word, ()):
            covered[step] = covered.get(step, 0.0) + postings.rarity(word)
    if not covered:
        return covered
    share = _NAME / sum(map(postings.rarity, document.name))
    return {step: words[step] * share * rarity for step, rarity in covered.items()}


def _pairs(query: SearchQuery, document: ToolDocument) -> dict[int, float]:
    points: dict[int, float] = {}
    for pair in document.pairs:
        for step, worth in query.pairs.get(pair, ()):
            points[step] = points.get(step, 0.0) + _PAIR * worth
    return points

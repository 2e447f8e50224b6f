"""Ranks tools by names, descriptions and parameters."""

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import msgspec

from mcp_hub.catalog.search.documents import PEAK, Postings, Searchable, ToolDocument, prepare
from mcp_hub.catalog.search.queries import SearchQuery, read_aliases, request
from mcp_hub.catalog.search.words import key, telling

# entries of postings that a rough weighing visits, or half as many as there are documents if that is more: the words
# that most documents have tell them apart least, and come last
MAX_VISITS = 1_000
# shares of the whole query and of the clause that fits best, if there are several
_WHOLE, _CLAUSE = 0.4, 0.6
_NAME = 0.3  # what a name adds, in proportion, that the query covers fully
_PAIR = 0.6  # times the mean rarity of two words that stand side by side in both

# measured (docs/search.md): of right first hits about 1 % are below both, of hits for foreign queries nearly all
_WEAK_SHARE, _WEAK_EVIDENCE = 0.25, 0.6


class _Score(NamedTuple):
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


def score(query: SearchQuery, postings: Postings, number: int) -> _Score:
    """The full score of one document."""
    document = postings.documents[number]
    shared = query.words.keys() & document.weights.keys()
    if not shared:
        return _Score()
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
    return _Score(
        _WHOLE * words[0] + clause * words[best],
        _WHOLE * names.get(0, 0.0) + clause * names.get(best, 0.0),
        _WHOLE * pairs.get(0, 0.0) + clause * pairs.get(best, 0.0),
        share=min(1.0, words[best] / (PEAK * query.sought[best])),
        evidence=words[0] / (PEAK * postings.highest_rarity),
        step=best,
    )


def likeness(query: SearchQuery, postings: Postings, number: int) -> float:
    """The share (0 to 1) of a document's name that like words cover."""
    name = postings.documents[number].name
    if query.like.keys().isdisjoint(name):
        return 0.0
    covered = sum(postings.rarity(word) * query.like[word] for word in name if word in query.like)
    return covered / sum(map(postings.rarity, name)) if covered else 0.0


def _names(
    query: SearchQuery, postings: Postings, document: ToolDocument, words: Mapping[int, float]
) -> dict[int, float]:
    covered: dict[int, float] = {}
    if query.words.keys().isdisjoint(document.name):
        return covered
    for word in document.name:
        for step, _ in query.words.get(word, ()):
            covered[step] = covered.get(step, 0.0) + postings.rarity(word)
    share = _NAME / sum(map(postings.rarity, document.name))
    return {step: words[step] * share * rarity for step, rarity in covered.items()}


def _pairs(query: SearchQuery, document: ToolDocument) -> dict[int, float]:
    points: dict[int, float] = {}
    if query.pairs.keys().isdisjoint(document.pairs):
        return points
    for pair in document.pairs:
        for step, worth in query.pairs.get(pair, ()):
            points[step] = points.get(step, 0.0) + _PAIR * worth
    return points


# of the mean score of the server's tools; and times the rarity of a server's name that the query gives fully
_SERVER, _NAMED = 0.5, 0.5
# added to the score by how exactly the query is a name: not, the server's own name, the exported name
_EXACT = (0.0, 1_000.0, 2_000.0)
# tools of one name are shown once when they share this much of their words (Jaccard), their servers' names aside;
# so many of one name are compared at most
_ALIKE, _MAX_COMPARED = 0.8, 256
# of the best score, for a name that words of like use cover fully
_LIKE = 0.35
# of the best score at most, by which a hit falls behind when better ones fit the same clause of several
_TURN = 0.1
_WEIGHED = 24  # documents that are weighed in full, at least: four times as many made no difference to the first ten


class Hit(msgspec.Struct, frozen=True):
    """A fitting tool; `also`: the ids of its near-duplicates.

    `parts` add up to `score`: `words`, `name`, `pairs`, `server` (other tools fit, or the query names it), `like`
    (words used alike), `turn` (0 or less: better hits fit the same clause), `exact` (the tool's name).
    """

    id: str
    score: float
    also: tuple[str, ...]
    parts: Mapping[str, float]
    weak: bool = False


class _Server(msgspec.Struct, eq=False):
    name: tuple[str, ...]
    """The distinct telling words of its name."""
    position: int
    numbers: range
    """Numbers of its documents."""


class _Found(NamedTuple):
    """The least is the best."""

    inexactness: int
    less: float
    position: int
    number: int
    bonus: float
    like: float
    score: _Score


class SearchIndex:
    """The searchable tools of several servers; a change re-indexes one server.

    Ids must be unique. Ties are broken by the order of servers, then of tools. `aliases`: words with other meanings.
    """

    def __init__(self, aliases: Mapping[str, Sequence[str]] = {}) -> None:
        self._aliases = read_aliases(aliases)
        self._postings = Postings()
        self._servers: dict[str, _Server] = {}
        self._server_of: dict[int, _Server] = {}
        self._places = count()
        self._next = 0

    def put(self, server: str, tools: Sequence[Searchable]) -> None:
        documents = [prepare(tool) for tool in tools]
        indexed = self._servers.get(server)
        if indexed is None:
            indexed = self._servers[server] = _Server(telling(server), next(self._places), range(0))
        self._clear(indexed)
        indexed.numbers = range(self._next, self._next + len(documents))
        self._next += len(documents)
        for number, document in zip(indexed.numbers, documents, strict=True):
            self._server_of[number] = indexed
            self._postings.add(number, document)

    def drop(self, server: str) -> None:
        indexed = self._servers.pop(server, None)
        if indexed is not None:
            self._clear(indexed)

    def search(self, query: str, limit: int = 8, server: str | None = None) -> tuple[Hit, ...]:
        """At most `limit` tools, best first, of one server if given."""
        parsed = request(query, self._postings, self._aliases)
        exact = self._exact(query)
        if server is None:
            totals = rough(parsed, self._postings)
        else:
            numbers = self._servers[server].numbers if server in self._servers else range(0)
            totals = rough_among(parsed, self._postings, numbers)
            exact = {number: exactness for number, exactness in exact.items() if number in numbers}
        bonuses = self._bonuses(parsed, totals)
        few = max(_WEIGHED, 3 * limit)
        while True:
            best = dict.fromkeys(self._best(totals, bonuses, few), 0) | exact
            hits = tuple(self._hits(self._ranked(best, parsed, bonuses), limit))
            if len(hits) >= limit or few >= len(totals):
                return hits
            few *= 4  # most of them were near-duplicates

    def _clear(self, server: _Server) -> None:
        for number in server.numbers:
            self._postings.remove(number)
            del self._server_of[number]

    def _exact(self, query: str) -> dict[int, int]:
        name = key(query)
        documents = self._postings.documents
        named = self._postings.exact.get(name, {}) if name else {}
        return {number: 1 + (documents[number].keys[0] == name) for number in named}

    def _bonuses(self, query: SearchQuery, totals: Mapping[int, float]) -> dict[_Server, float]:
        sums: defaultdict[_Server, float] = defaultdict(float)
        for number, total in totals.items():
            sums[self._server_of[number]] += total
        return {
            server: _SERVER * total / len(server.numbers) + self._named(server, query) for server, total in sums.items()
        }

    def _named(self, server: _Server, query: SearchQuery) -> float:
        if query.words.keys().isdisjoint(server.name):
            return 0.0
        rarity = self._postings.rarity
        covered = sum(rarity(word) for word in server.name if word in query.words)
        return _NAMED * covered * (covered / sum(map(rarity, server.name))) ** 2

    def _best(self, scores: Mapping[int, float], bonuses: Mapping[_Server, float], few: int) -> list[int]:
        if len(scores) <= few:
            return list(scores)
        total = {number: score + bonuses[self._server_of[number]] for number, score in scores.items()}
        least = sorted(total.values())[-few]
        reach = [number for number, score in total.items() if score >= least]
        return sorted(reach, key=lambda number: (-total[number], self._server_of[number].position, number))[:few]

    def _ranked(self, best: Mapping[int, int], query: SearchQuery, bonuses: Mapping[_Server, float]) -> list[_Found]:
        scores = {number: score(query, self._postings, number) for number in best}
        totals = {
            number: sum(points[:3]) + bonuses.get(self._server_of[number], 0.0) for number, points in scores.items()
        }
        like_limit = _LIKE * max(totals.values(), default=0.0)
        ranked = []
        for number, exactness in best.items():
            server = self._server_of[number]
            like = like_limit * likeness(query, self._postings, number)
            less = -(totals[number] + like + _EXACT[exactness])
            bonus = bonuses.get(server, 0.0)
            ranked.append(
                _Found(
                    inexactness=-exactness,
                    less=less,
                    position=server.position,
                    number=number,
                    bonus=bonus,
                    like=like,
                    score=scores[number],
                )
            )
        return sorted(ranked)

    def _hits(self, ranked: Sequence[_Found], limit: int) -> Iterator[Hit]:
        documents = self._postings.documents
        alike: dict[str, list[_Found]] = {}
        for candidate in ranked:
            alike.setdefault(documents[candidate.number].keys[1], []).append(candidate)
        covered: set[int] = set()
        for candidate, behind in _in_turns(ranked, covered):
            if limit <= 0:
                break
            limit -= 1
            namesakes = alike[documents[candidate.number].keys[1]][:_MAX_COMPARED]
            also = [
                namesake
                for namesake in namesakes
                if namesake.number not in covered and self._is_alike(candidate, namesake)
            ]
            covered.update(namesake.number for namesake in also)
            ids = (documents[namesake.number].id for namesake in also if namesake is not candidate)
            score = candidate.score
            parts = {"words": score.words, "name": score.name, "pairs": score.pairs, "server": candidate.bonus}
            parts |= {"like": candidate.like, "turn": 0.0 - behind, "exact": _EXACT[-candidate.inexactness]}
            is_weak = not candidate.inexactness and score.is_weak
            yield Hit(
                id=documents[candidate.number].id,
                score=-candidate.less - behind,
                also=tuple(ids),
                parts=parts,
                weak=is_weak,
            )

    def _is_alike(self, first: _Found, second: _Found) -> bool:
        servers = {word for candidate in (first, second) for word in self._server_of[candidate.number].name}
        mine, its = (
            self._postings.documents[candidate.number].weights.keys() - servers for candidate in (first, second)
        )
        return len(mine & its) >= _ALIKE * len(mine | its)


def _in_turns(ranked: Sequence[_Found], covered: Container[int]) -> Iterator[tuple[_Found, float]]:
    delay = _TURN * max((-candidate.less for candidate in ranked if not candidate.inexactness), default=0.0)
    queues: defaultdict[int, deque[_Found]] = defaultdict(deque)
    for candidate in ranked:
        queues[candidate.score.step].append(candidate)
    behind = dict.fromkeys(queues, 0.0)
    while queues:
        heads = ((queue[0], step) for step, queue in queues.items())
        *_, step = min(
            (candidate.inexactness, candidate.less + behind[step], candidate.position, candidate.number, step)
            for candidate, step in heads
        )
        candidate = queues[step].popleft()
        if not queues[step]:
            del queues[step]
        if candidate.number not in covered:
            yield candidate, behind[step]
            if step:
                behind[step] = (behind[step] + delay) / 2


class _Ranker:
    def __init__(self, index: SearchIndex) -> None:
        self._index = index

    def rank(self, query: str, k: int) -> list[str]:
        return [hit.id for hit in self._index.search(query, k)]


def build(tools: Iterable[Mapping[str, Any]]) -> _Ranker:
    """A ranker over tools with `id`, `server`, `name`, `description`, `inputSchema`."""
    servers: dict[str, list[Searchable]] = {}
    for tool in tools:
        texts = (tool["id"], tool["server"], tool["name"], tool.get("description") or "")
        servers.setdefault(tool["server"], []).append(Searchable(*texts, tool.get("inputSchema") or {}))
    index = SearchIndex()
    for server, its in servers.items():
        index.put(server, its)
    return _Ranker(index)

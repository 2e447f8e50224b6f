"""Queries in other languages, word for word in English.

The table `languages.txt` is read with the first query that may need it, which takes some ten milliseconds. It has the
verbs and nouns of tools alone: what it lacks stays as it is. A query is in one language, the one that most of its words
are of. Chinese, Japanese and Korean are split at the longest words of the table.
"""

import re
from collections.abc import Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from mcp_hub.catalog.search.likeness import is_word
from mcp_hub.catalog.search.words import dense_runs, folded, is_bare, words
from mcp_hub.globs import late

_TABLE: Final = Path(__file__).with_name("languages.txt")
_MAX_TOKENS: Final = 200  # of a query; no one types more
_MAX_WORDS: Final = 5  # of an entry
_LONGEST_ENDING: Final = 5  # letters after a stem, such as `aciones`
_SHORTEST_STEM: Final = 4
_COMPOUNDING: Final = frozenset({"de", "nl"})
_LINKS: Final = ("", "s", "n", "en", "es", "-")
"""Letters between the parts of a compound."""
_OF_A_WORD: Final = 1.5  # of a language's score, for a word of the table; for one that says nothing 1
_TOKEN = late(r"[^\W\d_]+")
_LETTERS: Final = {ord("ß"): "ss", ord("ł"): "l", ord("ı"): "i", ord("œ"): "oe"}  # which are no letters with accents
_KANA, _HANGUL = late("[\u3041-\u30ff]"), late("[\uac00-\ud7af]")
_VALUE = r"[!-~]+"  # also Latin words
_UNREAD = late("[^\\s\u3041-\u309f]{2}")  # not in hiragana, which are endings
# which no other language of the table has: a query with one of them is in English, and the table is not read
_ENGLISH: Final = frozenset(
    "about and are between could does for from get give how into it my need of please show that the there these this "
    "want what when which who with would you your".split()
)


Clause = tuple[str, tuple[str, ...]]
"""A clause in English, and words that it may mean besides, which count less."""


class _Entry(NamedTuple):
    """One or more words of a language, and what they mean."""

    words: tuple[str, ...]
    meaning: tuple[str, ...]
    besides: tuple[str, ...]


class _Language(msgspec.Struct):
    entries: dict[str, list[_Entry]]
    """By the first two characters, longest first."""
    idle: set[str]
    """Words that say nothing."""

    def starting(self, tokens: Sequence[str]) -> tuple[int, _Entry] | None:
        """The longest entry that these tokens begin with, and how many it takes."""
        for entry in self.entries.get(tokens[0][:2], ()):
            size = len(entry.words)
            if size <= len(tokens) and all(map(_is_form, entry.words, tokens)):
                return size, entry
        return None


def in_english(clauses: Sequence[str], indexed: Container[str]) -> list[Clause]:
    """`indexed`: words of the index. Clauses in English come back as they are."""
    text = "\n".join(clauses)
    tokens = [_plain(token) for token in _TOKEN.findall(text)[:_MAX_TOKENS]]
    if not _ENGLISH.isdisjoint(tokens):
        return [(clause, ()) for clause in clauses]
    if dense_runs(text):
        return [_of_dense(clause, indexed) for clause in clauses]
    name = _language(tokens, indexed, is_ascii=text.isascii())
    return [(clause, ()) if name is None else _of_spaced(clause, name, indexed) for clause in clauses]


def _language(tokens: Sequence[str], indexed: Container[str], *, is_ascii: bool) -> str | None:
    if is_ascii and all(_is_indexed(token, indexed) for token in tokens):
        return None
    # languages that share most words with English come behind those that share none
    least = sum(1.0 if is_bare(token) else 0.5 for token in tokens if _is_indexed(token, indexed) or is_bare(token))
    best, name = least, None
    for language, table in _tables().items():
        score, is_foreign, position = 0.0, False, 0
        while position < len(tokens):
            token, size = tokens[position], 1
            if entry := table.starting(tokens[position : position + _MAX_WORDS]):
                size = entry[0]
                score += size * _OF_A_WORD
                # a word that is the same in English shows no language
                is_foreign = is_foreign or token not in (*entry[1].meaning, *entry[1].besides)
            elif token in table.idle:
                score += 1
            elif _parts(token, language, indexed):
                score += _OF_A_WORD
                is_foreign = is_foreign or not is_word(token)
            position += size
        if is_foreign and score > best:
            best, name = score, language
    return name


def _of_spaced(clause: str, name: str, indexed: Container[str]) -> Clause:
    table = _tables()[name]
    tokens = [_plain(match) for match in _TOKEN.findall(clause)[:_MAX_TOKENS]]
    translated = _Translation(indexed)
    position = 0
    while position < len(tokens):
        token, size = tokens[position], 1
        if entry := table.starting(tokens[position : position + _MAX_WORDS]):
            size = entry[0]
            translated.add(entry[1])
            translated.besides += [] if size > 1 or token in table.idle else [token]
        elif parts := _parts(token, name, indexed):
            for part in parts:
                translated.add(part)
        elif token not in table.idle:
            translated.text.append(token)
        position += size
    return translated.clause(clause)


def _of_dense(clause: str, indexed: Container[str]) -> Clause:
    clause = folded(clause)
    translated = _Translation(indexed)
    for run in dense_runs(clause):
        name = "ko" if _HANGUL.search(run) else "ja" if _KANA.search(clause) else "zh"
        for piece in _split(run, (name, "zh" if name == "ja" else "ja")):
            if isinstance(piece, _Entry):
                translated.add(piece)
                translated.besides += piece.words
            elif name_part := _UNREAD.search(piece):
                translated.text.append(name_part[0])  # of what the table lacks, one unknown word
    return translated.clause(clause)


def _split(run: str, names: Sequence[str]) -> Iterator[_Entry | str]:
    """Entries of the first of these languages that has one, and what stands between them."""
    tables = [_tables()[name] for name in names]
    unread = ""
    position = 0
    while position < len(run):
        entry = next(filter(None, (_dense_entry(table, run, position) for table in tables)), None)
        idle = next((size for size in (4, 3, 2, 1) if run[position : position + size] in tables[0].idle), 0)
        if entry is None and not idle:
            unread += run[position]
            position += 1
            continue
        if unread:
            yield unread
        unread = ""
        if entry is not None and len(entry.words[0]) >= idle:
            yield entry
            idle = len(entry.words[0])
        position += idle
    if unread:
        yield unread


def _dense_entry(table: _Language, run: str, position: int) -> _Entry | None:
    for start in (run[position : position + 2], run[position]):
        for entry in table.entries.get(start, ()):
            if run.startswith(entry.words[0], position):
                return entry
    return None


class _Translation:
    def __init__(self, indexed: Container[str]) -> None:
        self._indexed = indexed
        self.text: list[str] = []
        self.besides: list[str] = []

    def add(self, entry: _Entry) -> None:
        fitting = [word for word in entry.meaning if words(word, 1)[0] in self._indexed] or entry.meaning[:1]
        self.text += [word for word in fitting if word not in self.text]
        self.besides += entry.besides

    def clause(self, original: str) -> Clause:
        """With the digits and Latin words of a text without spaces."""
        values = re.findall(_VALUE if dense_runs(original) else r"\d+", original)
        return " ".join([*self.text, *values]), tuple(dict.fromkeys(self.besides))


def _parts(token: str, name: str, indexed: Container[str]) -> list[_Entry]:
    """The parts of a compound: `kalendereintrag`."""
    if name not in _COMPOUNDING or len(token) < 2 * _SHORTEST_STEM:
        return []
    table = _tables()[name]
    for end in range(len(token) - 3, 2, -1):
        tail = table.starting([token[end:]])
        if tail is None:
            continue
        for link in _LINKS:
            head = token[:end].removesuffix(link) if link else token[:end]
            if entry := table.starting([head]):
                return [entry[1], tail[1]]
            if len(head) >= 3 and _is_indexed(head, indexed):
                return [_Entry((head,), (head,), ()), tail[1]]
    return []


def _plain(text: str) -> str:
    return folded(text).lower().translate(_LETTERS)


def _is_indexed(token: str, indexed: Container[str]) -> bool:
    return all(word in indexed or is_bare(word) for word in words(token, 2))


def _is_form(stem: str, token: str) -> bool:
    if token == stem:
        return True
    is_stem = len(stem) >= _SHORTEST_STEM and len(token) - len(stem) <= _LONGEST_ENDING
    return is_stem and token.startswith(stem)


@cache
def _tables() -> dict[str, _Language]:
    """The languages of the table."""
    head, *lines = (line for line in _TABLE.read_text("utf-8").splitlines() if line and not line.startswith("#"))
    _, *names = head.split("|")
    tables = {name: _Language({}, set()) for name in names}
    for line in lines:
        if line.startswith("= "):
            name, _, idle = line[2:].partition(": ")
            tables[name].idle.update(_plain(idle).split())
            continue
        english, *columns = line.split("|")
        meaning, _, besides = english.partition("/")
        for name, column in zip(names, columns, strict=True):
            for text in filter(None, map(str.strip, _plain(column).split(","))):
                _enter(tables[name].entries, text, meaning, besides)
    for table in tables.values():
        for entries in table.entries.values():
            entries.sort(key=lambda entry: (-len(entry.words), -len("".join(entry.words))))
    return tables


def _enter(entries: dict[str, list[_Entry]], text: str, meaning: str, besides: str) -> None:
    row = (text,) if dense_runs(text) else tuple(text.split())
    same = entries.setdefault(row[0][:2], [])
    for number, entry in enumerate(same):
        if entry.words == row:  # a second meaning
            same[number] = _Entry(row, entry.meaning, (*entry.besides, *meaning.split()))
            return
    same.append(_Entry(row, tuple(meaning.split()), tuple(besides.split())))

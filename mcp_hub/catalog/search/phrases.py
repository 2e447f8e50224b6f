"""The words of tools for what people say: `complete task` for "tick off".

Most are for short queries, as people type them: in long descriptions of tasks they mean something else.
"""

from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Final, NamedTuple

from mcp_hub.catalog.search.words import words

_TABLE: Final = Path(__file__).with_name("phrases.txt")
_SHORT: Final = "[short]\n"
_GAP: Final = "*"
_LONGEST_GAP: Final = 6  # words
_LEAST_LETTERS: Final = 5
_MAX_UNKNOWN: Final = 4  # unknown words that are looked at


class _Phrase(NamedTuple):
    words: tuple[str, ...]
    meaning: tuple[str, ...]


def plain(row: Sequence[str]) -> list[str]:
    """Without the ends of contractions."""
    joined: list[str] = []
    for word in row:
        if word == "t" and joined and joined[-1].endswith("n"):
            joined[-1] += word
        elif word != "s":
            joined.append(word)
    return joined


def respelled(row: Sequence[str], is_unknown: Callable[[str], bool]) -> list[str]:
    """Unknown words as a phrase has them, by one slip."""
    room = _MAX_UNKNOWN
    written = list(row)
    for position, word in enumerate(row):
        if len(word) >= _LEAST_LETTERS and word.isalpha() and word.isascii() and room and is_unknown(word):
            room -= 1
            written[position] = next(filter(_spoken().__contains__, _slips(word)), word)
    return written


def _slips(word: str) -> Iterator[str]:
    """Two letters in the other order, one too many, or one missing; with another letter it often is another word."""
    for at in range(1, len(word)):
        head, tail = word[:at], word[at:]
        yield head + tail[1:2] + tail[:1] + tail[2:]
        yield head + tail[1:]
        yield from (head + letter + tail for letter in ascii_lowercase)


@cache
def _spoken() -> frozenset[str]:
    """The words of phrases."""
    tables = (_table(mark, True) for mark in (" = ", ": "))
    rows = (phrase.words for table in tables for same in table.values() for phrase in same)
    return frozenset(word for row in rows for word in row if len(word) >= _LEAST_LETTERS)


def reworded(row: Sequence[str], indexed: Container[str], *, is_short: bool) -> tuple[list[str], list[str]]:
    """Plain words with those of tools in place of phrases, and those that count less: for words that a tool has."""
    table = _table(" = ", is_short)
    written: list[str] = []
    besides: list[str] = []
    position = 0
    while position < len(row):
        for phrase in table.get(row[position], ()):
            if (match := _matched(phrase.words, row, position)) is None:
                continue
            if len(phrase.words) == 1 and row[position] in indexed:
                written.append(row[position])
                besides += phrase.meaning
            else:
                written += [*phrase.meaning, *match[1]]
            position = match[0]
            break
        else:
            written.append(row[position])
            position += 1
    return written, besides


def added(row: Sequence[str], *, is_short: bool) -> list[str]:
    """Words that count less."""
    table = _table(": ", is_short)
    phrases = ((phrase, position) for position, word in enumerate(row) for phrase in table.get(word, ()))
    matches = (phrase.meaning for phrase, position in phrases if _matched(phrase.words, row, position) is not None)
    return [word for meaning in matches for word in meaning]


def _matched(phrase: Sequence[str], row: Sequence[str], position: int) -> tuple[int, list[str]] | None:
    """The end of a phrase, and the words in its gaps."""
    for number, word in enumerate(phrase):
        if word == _GAP:
            for end in range(position + 1, min(position + _LONGEST_GAP, len(row) - 1) + 1):
                if row[end] == phrase[number + 1] and (match := _matched(phrase[number + 1 :], row, end)) is not None:
                    return match[0], [*row[position:end], *match[1]]
            return None
        if position >= len(row) or row[position] != word:
            return None
        position += 1
    return position, []


@cache
def _table(mark: str, is_short: bool) -> dict[str, list[_Phrase]]:
    always, _, short = _TABLE.read_text("utf-8").partition(_SHORT)
    table: dict[str, list[_Phrase]] = {}
    lines = (always + short if is_short else always).splitlines()
    for line in (line for line in lines if not line.startswith("#")):
        meaning, _, phrases = line.partition(mark)
        for phrase in filter(None, phrases.split(", ")):
            row = plain([part for word in phrase.split() for part in ([_GAP] if word == _GAP else words(word, 4))])
            table.setdefault(row[0], []).append(_Phrase(tuple(row), tuple(words(meaning, 8))))
    for same in table.values():
        same.sort(key=lambda phrase: -len(phrase.words))
    return table

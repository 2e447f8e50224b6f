"""The words of tools for what people say, `complete task` for "tick off", and for values: "2026-05-01" is a date.

Most phrases are for short queries: in long ones they mean something else.
"""

import re
from collections.abc import Callable, Container, Iterator, Sequence
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Final, NamedTuple

from mcp_hub.catalog.search.words import words
from mcp_hub.globs import late

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
    """Two letters swapped, one too many, or one missing; with another letter it often is another word."""
    for at in range(1, len(word)):
        head, tail = word[:at], word[at:]
        yield head + tail[1:2] + tail[:1] + tail[2:]
        yield head + tail[1:]
        yield from (head + letter + tail for letter in ascii_lowercase)


@cache
def _spoken() -> frozenset[str]:
    tables = (_table(mark, True) for mark in (" = ", ": "))
    rows = (phrase.words for table in tables for same in table.values() for phrase in same)
    return frozenset(word for row in rows for word in row if len(word) >= _LEAST_LETTERS)


def reworded(row: Sequence[str], indexed: Container[str], *, is_short: bool) -> tuple[list[str], list[str]]:
    """Plain words with those of tools for phrases, and those that count less: for words that a tool has."""
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


_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_FILES = (
    "txt|md|csv|tsv|json|xml|ya?ml|html?|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|wav|mp3|mp4|zip|log|py"
    "|ini|cfg|conf|toml|css|sh|sql|rst|tex"
)
_FILE = rf"(?=[\w./~-]{{1,60}}\.(?:{_FILES})\b)"
# every value has one of these; most texts have none
_ANY_VALUE = late(r"[\d@=*/#]|\w\.\w|\w\(|[A-Z]-[A-Z]{4}|SELECT|INSERT|DELETE|CREATE", re.ASCII)
_DATE = (
    r"\b\d{4}-\d\d?-\d\d?\b",
    r"\b\d\d?/\d\d?/(?:\d\d)?\d\d\b",
    r"\b\d\d?\.\d\d?\.\d{4}\b",
    rf"\b{_MONTH}\.? \d",
    rf"\d(?:st|nd|rd|th)?(?: of)? {_MONTH}\b",
)
_COUNTED = "UTF|ISO|SHA|GPT|RFC|MD|AES|EN|DIN|PEP|COVID|CVE|CWE|IPV|HTTP|BASE|TOP|USB"
_ISSUE_KEY = rf"\b(?!(?:{_COUNTED})-)(?-i:[A-Z][A-Z\d]{{1,9}})-\d{{1,6}}\b(?!-)"
_ISSUE_NUMBER = r"(?<![\w&#])#\d{1,6}\b(?![\da-fA-F])"
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
        "calculate": r"\d ?[*×÷+^] ?\d|\d ?% ?of\b|\d (?:[-/x]|plus|minus|times) \d|\b(?:add|sum|multiply) \d",
        "file": rf"\w\.(?:{_FILES})\b",
        "directory": r"(?:^|\s)(?:~|\.{1,2})?/(?:[\w.-]{1,40}/){0,9}[\w-]{1,40}/?(?=\s|$)|\b[a-z]:\\",
        "pattern": r"(?:^|[\s/])\*\.\w|\*\*/|\w/\*",
        "channel": r"(?:^|\s)#(?-i:[a-z][a-z\d_-]{2,40})\b",
        "phone": r"\+\d{1,3}[ (]?\d[\d ()-]{5,15}\d",
        "account": r"\b[a-z]{2}\d\d(?: ?[a-z\d]{4}){3,7}\b",
        "arxiv paper": r"\b[012]\d(?:0[1-9]|1[0-2])\.\d{4,5}(?:v\d)?\b",
        "jira": _ISSUE_KEY,
        "github": _ISSUE_NUMBER,
        "code": r"\b[a-z_]\w{2,40}\(",
    }.items()
]
# in capitals, or as no one writes it in prose
_SQL = r"\b(?:SELECT\b.{1,200}?\bFROM|select (?:\*|count\(.{0,40}?\)) from)\b"
_WRITES = r"\b(?:INSERT INTO|UPDATE \w+ SET|DELETE FROM|insert into \w+ ?\(|update \w+ set \w+ ?=)"
_FORMULA = r"(?<![\w=])=[A-Z][A-Z.]{1,20}\b(?:\([^()\n]{0,200}\)?)?|#(?:REF!|VALUE!|DIV/0!|NAME\?|NUM!|N/A\b)"
_STATEMENTS: Final = [
    (late(pattern, re.ASCII), f" {noun} ")
    for pattern, noun in {
        _SQL + r"[^\n]{0,400}": "SQL read query database",
        _WRITES + r"[^\n]{0,400}": "SQL write query database",
        r"\bCREATE TABLE\b[^\n]{0,400}": "SQL create table database",
        _FORMULA: "formula cell",
        r"\b(?i:project|status|assignee|sprint|labels?) ?= ?\S[^\n]{0,100}": "search issues JQL",
    }.items()
]
_INSTEAD: Final = [
    (late(pattern, re.ASCII), f" {noun} ")
    for pattern, noun in {
        f"{_ISSUE_KEY}|{_ISSUE_NUMBER}": "issue",
        r"(?<!\w)#(?=[\da-fA-F]*[a-fA-F]|\d{6})(?:[\da-fA-F]{3}){1,2}\b": "color",
        r"^\s*(?:cat|less|head|tail) (?=[\w.~-]{0,40}[/.])": "read text file",
        rf"\b(?i:contents?|text) of (?:the )?{_FILE}": "read text file",
        rf"\b(?i:replace|change)\b.{{1,60}}\b(?:with|to|by)\b.{{1,60}}\bin {_FILE}": "edit file",
        r"\b(?:[A-Z]{2}|\d[A-Z])\d{3,4}\b": "flight number",
        r"\b(?:B-\d{4}|N\d{3,5}[A-Z]{0,2}|[A-Z]-[A-Z]{4})\b": "aircraft",
        r"\b(?=[a-f]{0,39}\d)(?=\d{0,39}[a-f])[\da-f]{7,40}\b": "commit",
        r"\b(?:feature|feat|bugfix|hotfix|fix|release|chore|origin)/[\w./-]+": "branch",
        r"\b[A-Z]{1,2}\d{1,4}:[A-Z]{1,2}\d{1,4}\b": "sheet range",
    }.items()
]


def kinds(text: str) -> Iterator[str]:
    """Words for the kinds of values."""
    if _ANY_VALUE.search(text):
        for pattern, kind_words in _KINDS:
            if pattern.search(text):
                yield from kind_words


def without_statements(text: str) -> str:
    """A text with words in place of SQL, JQL and formulas."""
    return _replaced(text, _STATEMENTS)


def without_values(text: str) -> str:
    """A text with words in place of keys, hashes and the like."""
    return _replaced(text, _INSTEAD)


def _replaced(text: str, nouns: Sequence[tuple[re.Pattern[str], str]]) -> str:
    if _ANY_VALUE.search(text):
        for pattern, noun in nouns:
            text = pattern.sub(noun, text)
    return text

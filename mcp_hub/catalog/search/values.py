"""Values in a query show the kind of parameter sought: "2026-05-01" a date."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from mcp_hub.catalog.search.words import words
from mcp_hub.globs import late

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_FILES = "txt|md|csv|tsv|json|xml|ya?ml|html?|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|wav|mp3|mp4|zip|log|py"
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

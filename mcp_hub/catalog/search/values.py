"""Which kinds of values a query has: it says "2026-05-01" or "https://…" where a tool says "date" or "URL".

Words for days ("tomorrow") are not among them, because they made results worse.
"""

import re
from collections.abc import Iterator

from mcp_hub.catalog.search.words import words
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
    (late(pattern, re.IGNORECASE | re.ASCII), tuple(words(said, 2)))
    for said, pattern in {
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


def kinds(text: str) -> Iterator[str]:
    """The words for the kinds of values that a text has, as `words.words` gives them."""
    if _ANY_VALUE.search(text):
        for pattern, said in _KINDS:
            if pattern.search(text):
                yield from said

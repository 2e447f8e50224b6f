"""Which kinds of values a query has: tools seldom say "2026-05-01" or "https://…", but "date" and "URL".

Words for days ("tomorrow") are not among them: they made results worse.
"""

import re
from collections.abc import Iterator

from mcp_hub.catalog.search.words import words

_MONTH = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    "|nov(?:ember)?|dec(?:ember)?)"
)
_FILES = "txt|md|csv|tsv|json|xml|ya?ml|html?|pdf|docx?|xlsx?|pptx?|png|jpe?g|gif|svg|wav|mp3|mp4|zip|log|py|bib"
# each pattern looks at a bounded number of characters from any place
_KINDS = [
    (re.compile(pattern, re.IGNORECASE | re.ASCII), tuple(words(said, 2)))
    for pattern, said in (
        (rf"\b\d{{4}}-\d\d?-\d\d?\b|\b\d\d?[/.]\d\d?[/.](?:\d\d)?\d\d\b|\b{_MONTH}\.? \d|\d(?:st|nd|rd|th)?(?: of)? {_MONTH}\b", "date"),
        (r"\b\d\d?(?::\d\d)? ?[ap]\.?m\b|\b\d\d?:\d\d\b", "time"),
        (r"\bhttps?://|\bwww\.", "URL"),
        (r"\w@\w[\w-]{0,62}\.\w", "email"),
        (r"\b(?:\d{1,3}\.){3}\d{1,3}\b", "IP"),
        (r"\d\.\d{1,9}, ?-?\d{1,3}\.\d", "latitude longitude"),
        (r"\d ?[*×÷+^] ?\d", "calculate"),
        (rf"\w\.(?:{_FILES})\b", "file"),
    )
]


def kinds(text: str) -> Iterator[str]:
    """The words for the kinds of values that a text has, as `words.words` gives them."""
    for pattern, said in _KINDS:
        if pattern.search(text):
            yield from said

"""Text of servers made fit to be shown: one harmless line."""

import json
from collections.abc import Iterable
from typing import Final

from mcp_hub.globs import late

OPENING: Final = "One MCP server in front of several; a tool's name begins with its server."
"""The first sentence of the hub's own instructions."""
MAX_PURPOSE: Final = 120
"""Characters of a server's first sentence in the hub's own instructions."""
MAX_READ: Final = 8192  # characters of a text that are looked at: the longest of 611 descriptions has 7,000
_MAX_FIRST: Final = 2048  # characters in which the first sentence is looked for

_SEQUENCES: Final = late("\x1b\\[[0-?]{0,64}[ -/]{0,16}[@-~]|\x1b\\][^\x07\x1b]{0,256}(?:\x07|\x1b\\\\)")
"""Terminal control sequences (ECMA-48 §5.4) and operating system commands."""
_BREAKING: Final = late("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# format characters (bidirectional controls, joiners, tags), fillers, variation selectors, surrogates, private use
_FORMAT: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U0010ffff"
)
_UNSEEN: Final = late(f"[{_FORMAT}]+")
_UNSEEN_IN_JSON: Final = late(f"[\x7f-\x9f\u2028\u2029{_FORMAT}]")
_MARKUP: Final = late(r"^(?:[#>*=~_`-]+\s+)+|^[#*`]+|\*\*|``+")
# a line that continues in lower case was only wrapped; Chinese and Japanese put no space after a full stop
_END: Final = late(r"\r?\n(?!\s{0,16}[a-z(`])|(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\bvs\.)(?<!etc\.)\s+|(?<=[。！？])")


def one_line(text: str, limit: int = MAX_READ) -> str:
    """At most `limit` characters without line breaks, control, format and other unseen characters."""
    text = _SEQUENCES.sub("", text[:MAX_READ])
    return cut(_BREAKING.sub(" ", _UNSEEN.sub("", text)).strip(), limit)


def escaped(text: str) -> str:
    """JSON with unseen characters escaped; `text` has no white space between tokens."""
    return _UNSEEN_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text)


def sentences(text: str) -> list[str]:
    """Sentences of `text`, each one line without Markdown; headings only if there is nothing else."""
    parts = _END.split(text[:MAX_READ])
    return _plain(part for part in parts if not part.lstrip().startswith("#")) or _plain(parts)


def _plain(parts: Iterable[str]) -> list[str]:
    lines = (_MARKUP.sub("", one_line(part)) for part in parts)
    return [line for line in lines if line.strip(".!?:;,- ")]


def first_sentence(text: str, limit: int) -> str:
    """Without its full stop, at most `limit` characters."""
    for part in sentences(text[:_MAX_FIRST]):
        return cut(part.rstrip(".。:;, "), limit)
    return ""


def cut(text: str, limit: int) -> str:
    """`text`, or as many whole words as fit with an ellipsis into `limit` characters."""
    if len(text) <= limit:
        return text
    if limit <= 1:
        return "…"[: max(limit, 0)]
    head = text[: limit - 1]
    words = head if text[limit - 1] == " " else head.rpartition(" ")[0]
    # one endless word, or a script without spaces
    return (words if 2 * len(words) > limit else head).rstrip(" ,;:.") + "…"

"""The hub's own instructions: which servers there are and what they say of themselves, at most 2,000 bytes.

The most important first: what the configuration says, how to reach tools that are not listed, the names of all
servers, the first sentence of each, then more of what each says, shared fairly.
"""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from mcp_hub.catalog.discovery.plain_text import cut, one_line, sentences

LIMIT: Final = 2000  # bytes of UTF-8: clients put instructions into the model's context on every turn
_LEAST: Final = 400  # bytes that text of the configuration leaves to the names of the servers, if they need them
_MAX_FIRST: Final = 160  # characters of what a server says first; a longer sentence is cut
_MAX_NAME: Final = 64
_MOST_SENTENCES: Final = 64  # sentences of one server that are looked at

_OPENING: Final = "One MCP server in front of several; a tool's name begins with the server it belongs to."
_SEARCH: Final = (
    "Tools that are not listed: search with find_tools for one step of the task at a time, then call what it found with"
    " run_tool."
)


def compose(own: str | None, servers: Mapping[str, str | None], *, is_search: bool = False) -> str | None:
    """`own` text as it is, then a line a server with as much of what it says of itself as its share of the room allows.

    With `is_search` it says how to find and run tools that are not listed. None if there is nothing to say.
    """
    if not servers:
        return _cut(own, LIMIT) if own else None
    names = [one_line(name, _MAX_NAME) for name in servers]
    opening = " ".join([_OPENING, *([_SEARCH] if is_search else []), "Servers:"])
    if own:
        room = LIMIT - _size(opening) - min(_size("\n".join(names)), _LEAST) - len("\n\n\n")
        opening = f"{_cut(own, room)}\n\n{opening}"
    said = [_said(about or "") for about in servers.values()]
    shares = _shared(said, LIMIT - _size("\n".join([opening, *names])))
    lines = [" ".join([f"{name}:" if share else name, *share]) for name, share in zip(names, shares, strict=True)]
    return _cut("\n".join([opening, *lines]), LIMIT)


def _said(about: str) -> list[str]:
    """The sentences, each with a full stop."""
    first, *others = sentences(about[:LIMIT])[:_MOST_SENTENCES] or [""]
    whole = [cut(first, _MAX_FIRST), *others] if first else []
    return [text if text[-1] in ".!?…。！？:;" else f"{text}." for text in whole]


def _shared(said: list[list[str]], room: int) -> list[list[str]]:
    """The sentences that fit into `room` bytes: first ones first, then always of the server that has the least."""
    shares: list[list[str]] = [[] for _ in said]
    waiting = [(False, _size(texts[0]), place) for place, texts in enumerate(said) if texts]
    heapify(waiting)
    while waiting:
        _, used, place = heappop(waiting)
        given = len(shares[place])
        text = said[place][given]
        cost = _size(text) + (1 if given else len(": "))
        if cost > room:
            continue
        room -= cost
        shares[place].append(text)
        if given + 1 < len(said[place]):
            heappush(waiting, (True, used + _size(said[place][given + 1]), place))
    return shares


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _cut(text: str, limit: int) -> str:
    raw = text.encode(errors="replace")
    return raw.decode() if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"

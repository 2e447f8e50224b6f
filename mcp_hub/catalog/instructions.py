"""The hub's own instructions: which servers there are and what each is for, at most 2,000 bytes (protocol.md §3)."""

from collections.abc import Mapping
from typing import Final

__all__ = ["LIMIT", "compose"]

LIMIT: Final = 2000
"""Bytes of UTF-8: clients put instructions into the model's context on every turn."""
_OPENING: Final = "One MCP server in front of several; a tool's name begins with the server it belongs to. Servers: "


def compose(own: str | None, servers: Mapping[str, str | None]) -> str | None:
    """`own` text first, then a line a server with its description or the first sentence that it says of itself."""
    if not servers:
        return _cut(own, LIMIT) if own else None
    text = f"{own}\n\n{_OPENING}" if own else _OPENING
    abouts = {name: _first_sentence(about or "") for name, about in servers.items()}
    named = "; ".join(f"{name} ({about})" if about else name for name, about in abouts.items())
    if len((text + named).encode()) > LIMIT:
        named = ", ".join(servers)
    return _cut(text + named, LIMIT)


def _first_sentence(text: str) -> str:
    line = text.strip().partition("\n")[0]
    sentence = line.partition(". ")[0].rstrip(".")
    return _cut(sentence, 160)


def _cut(text: str, limit: int) -> str:
    raw = text.encode()
    return text if len(raw) <= limit else raw[: limit - 3].decode("utf-8", "ignore") + "…"

"""Searches texts for flags, and for names of other servers' tools. Pure.

Names count if they cannot be words (`send_mail`, `createIssue`), or the text says when to use them ("before calling
fetch").
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec.structs import replace

from mcp_hub.call import Upstream
from mcp_hub.catalog.flags import MOST_FLAGS, Flag, decoded, flags_of, folded, hidden_in, orders_in, texts_of
from mcp_hub.catalog.pins import INSTRUCTIONS, pin_name
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.globs import late
from mcp_hub.masking import hide_part
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import Kind

_WORD = late(r"[A-Za-z_][A-Za-z0-9_-]*")
_DISTINCT = late(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)+|[a-z0-9]+(?:[A-Z][a-z0-9]+)+")
_SHORTEST: Final = 6
_MOST_INSTRUCTIONS: Final = 65_536  # characters that are looked through: models get the first 120 at most
_ABOUT_USE = late(
    r"\b(?:before|after|instead\s+of|prior\s+to|when(?:ever)?|while)\s+(?:you\s+)?(?:us(?:e|ing)|call(?:ing)?|"
    r"invok(?:e|ing)|run(?:ning)?)\s+(?:the\s+|any\s+)?[`'\"]?(?P<name>[A-Za-z_][A-Za-z0-9_-]*)",
    re.IGNORECASE,
)
_INSPECTED: Final = (Kind.TOOL, Kind.PROMPT, Kind.RESOURCE, Kind.TEMPLATE, Kind.EVENT)
_PROSE: Final = ("description", "title")


class _Names(msgspec.Struct, frozen=True):
    distinct: Mapping[str, Set[str]]
    every: Mapping[str, Set[str]]
    lookalikes: Mapping[str, Set[tuple[str, str]]]


class Inspector(msgspec.Struct):
    """Searches lists, and again only what is new."""

    _inspected: dict[bytes, tuple[tuple[Flag, ...], tuple[tuple[str, str], ...]]] = msgspec.field(default_factory=dict)

    def inspect(self, entries: Sequence[Entry], instructions: Mapping[str, str] = MappingProxyType({})) -> list[Flag]:
        """The flags of these definitions, at most `MOST_FLAGS` each, then of the instructions by server. 0.3 ms per
        tool.
        """
        tools = _names(entry for entry in entries if entry.kind is Kind.TOOL)
        prompts = _names(entry for entry in entries if entry.kind is Kind.PROMPT)
        fresh = {}
        findings = []
        for entry in entries:
            fresh[entry.raw] = alone, prose = self._inspected.get(entry.raw) or _looked_through(entry.raw)
            flags = [*_of_name(entry), *alone, *_foreign_names(entry.server, prose, tools)]
            if entry.kind in (Kind.TOOL, Kind.PROMPT):
                flags += _lookalikes(entry, tools if entry.kind is Kind.TOOL else prompts)
            name = pin_name(entry.kind, entry.key)
            findings += _placed(flags, entry.server, name, entry.exported)
        self._inspected = fresh
        for server, text in instructions.items():
            flags = [*_of_text("instructions", text), *_foreign_names(server, [("instructions", text)], tools)]
            findings += _placed(flags, server, INSTRUCTIONS, "instructions")
        return findings


def _placed(flags: Sequence[Flag], server: str, tool: str, exported: str) -> list[Flag]:
    return [replace(flag, server=server, tool=tool, exported=exported) for flag in flags[:MOST_FLAGS]]


def inspected(view: CatalogView, upstreams: Mapping[str, Upstream]) -> tuple[list[Entry], dict[str, str]]:
    """Definitions of a view, and instructions that are not held back."""
    entries = [entry for kind in _INSPECTED for entry in view.entries(kind)]
    snapshots = {name: upstream.snapshot() for name, upstream in upstreams.items() if (None, name) not in view.withheld}
    texts = {
        name: snapshot.instructions
        for name, snapshot in snapshots.items()
        if snapshot is not None and snapshot.instructions
    }
    return entries, {name: text[:_MOST_INSTRUCTIONS] for name, text in texts.items()}


def _of_text(where: str, text: str) -> Iterator[Flag]:
    yield from hidden_in(where, text)
    yield from orders_in(where, text)


def _of_name(entry: Entry) -> Iterator[Flag]:
    if entry.key != entry.exported:
        yield from hidden_in("name", entry.key)


def _looked_through(raw: bytes) -> tuple[tuple[Flag, ...], tuple[tuple[str, str], ...]]:
    fields = raw_object(msgspec.Raw(raw)) or {}
    prose = tuple((where, text) for where, text in texts_of(fields) if where.rpartition(".")[2] in _PROSE)
    return tuple(flags_of(fields)), prose


def _names(tools: Iterable[Entry]) -> _Names:
    distinct: dict[str, set[str]] = {}
    every: dict[str, set[str]] = {}
    lookalikes: dict[str, set[tuple[str, str]]] = {}
    for entry in tools:
        for name in {entry.exported, entry.key}:
            every.setdefault(name.lower(), set()).add(entry.server)
            if len(name) >= _SHORTEST and _DISTINCT.fullmatch(name):
                distinct.setdefault(name, set()).add(entry.server)
        lookalikes.setdefault(folded(entry.exported), set()).add((entry.server, entry.exported))
        lookalikes.setdefault(folded(entry.key), set()).add((entry.server, "" if entry.key.isascii() else entry.key))
    return _Names(distinct, every, lookalikes)


def _foreign_names(server: str, prose: Iterable[tuple[str, str]], names: _Names) -> Iterator[Flag]:
    flagged: set[str] = set()
    for where, text in prose:
        foreign = {word for word in _WORD.findall(text) if _is_foreign(names.distinct.get(word), server)}
        used = {match["name"] for match in _ABOUT_USE.finditer(text)}
        foreign |= {word for word in used if _is_foreign(names.every.get(word.lower()), server)}
        for word in sorted(foreign - flagged):
            servers = names.distinct.get(word) or names.every[word.lower()]
            of = ", ".join(sorted(servers)[:3])
            at = text.find(word)
            excerpt = decoded(hide_part(text, at - 40, at + len(word) + 40))
            yield Flag("other_tool", where, excerpt, f"names {word}, a tool of another server ({decoded(of)})")
        flagged |= foreign


def _is_foreign(servers: Set[str] | None, server: str) -> bool:
    return servers is not None and server not in servers


def _lookalikes(entry: Entry, names: _Names) -> Iterator[Flag]:
    alike = names.lookalikes[folded(entry.exported)]
    rivals_by_look = sorted(
        name for server, name in alike if server != entry.server and name not in ("", entry.exported)
    )
    if rivals_by_look:
        yield Flag(
            "lookalike", "name", decoded(entry.exported), f"looks like {decoded(rivals_by_look[0])} of another server"
        )
    elif not entry.key.isascii():
        rivals = sorted(server for server, _ in names.lookalikes[folded(entry.key)] if server != entry.server)
        if rivals:
            yield Flag("lookalike", "name", decoded(entry.key), f"looks like a {entry.kind} of {decoded(rivals[0])}")

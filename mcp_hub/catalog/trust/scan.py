"""Flags in definitions, other servers' tools in texts, and the difference of two definitions. Pure.

Names count if they cannot be words (`send_mail`, `createIssue`), or the text says when to use them ("before calling
fetch").
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import unified_diff
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from mcp_hub.call import Upstream
from mcp_hub.catalog.flags import (
    MOST_FLAGS,
    Flag,
    decoded,
    ends_of,
    flag_texts,
    flags_of,
    folded,
    hidden_in,
    orders_in,
    squeezed,
    texts_of,
)
from mcp_hub.catalog.pins import ALL_MEMBERS, INSTRUCTIONS, Fingerprint, Pin, pin_name
from mcp_hub.catalog.views.entries import Entry
from mcp_hub.catalog.views.view import CatalogView
from mcp_hub.globs import late
from mcp_hub.masking import hide_part
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import Kind, RawObject, plural

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
    """Searches only what is new."""

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


_LONGEST: Final = 2000
"""Characters of a line that are shown, half of them from its end."""
_MOST_LINES: Final = 200
"""Lines of one member that are compared and shown, half of them from its end; the time is quadratic."""

_SHORT: Final = (
    "{} bytes: too long to be kept. The beginning and the end of each member follow; flags are of the whole text. To "
    "read all of it, put the server alone into another configuration and run: mcp-hub tools --json"
)


def diff_lines(pin: Pin) -> Iterator[tuple[str, str]]:
    """Lines and styles: each member that differs."""
    approved, offered = pin.approved, pin.offered
    if offered is None:
        return
    members = [
        name for name in ALL_MEMBERS if approved is None or approved.members.get(name) != offered.members.get(name)
    ]
    old, new = _fields(approved), _fields(offered)
    if offered.length:
        yield f"  {_SHORT.format(offered.length)}", "dim"
    for name in members:
        yield f"{name}:", "bold"
        if new is None:
            yield "  not kept: the texts of this server are too long together; only hashes were compared", "dim"
            continue
        if approved is not None and old is None:
            yield "  the approved text was not kept; this is the whole text of now:", "dim"
        lines = [*_member(_lines(name, old or {}), _lines(name, new))]
        yield from lines or [("  differs only in the part that is not kept", "dim")]


def flag_lines(pin: Pin) -> list[str]:
    """Flags of the current definition, of a long one those of the whole."""
    if pin.offered is None:
        return []
    flags = (*pin.offered.flags, *flag_texts(_fields(pin.offered) or {}))
    return list(dict.fromkeys(flags))[:MOST_FLAGS]


def _fields(side: Fingerprint | None) -> RawObject | None:
    return raw_object(side.definition) if side is not None and isinstance(side.definition, Raw) else None


def _lines(name: str, fields: RawObject) -> list[str]:
    if name not in fields:
        return []
    try:
        value = msgspec.json.decode(fields[name])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return squeezed(bytes(fields[name]).decode("utf-8", "replace")).split("\n")
    if isinstance(value, str):
        return squeezed(value).split("\n")
    return msgspec.json.format(fields[name], indent=2).decode("utf-8", "replace").split("\n")


def _member(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    limit = _MOST_LINES
    lines = islice(unified_diff(_few(old), _few(new), lineterm="", n=2), 2, None)
    for line in islice(lines, 2 * limit):
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        yield f"  {decoded(ends_of(squeezed(line), _LONGEST), 2 * _LONGEST)}", style
    if max(len(old), len(new)) > limit:
        yield f"  … {len(old)} lines before, {len(new)} now: only the first and last {limit // 2} are compared", "dim"


def _few(lines: list[str]) -> list[str]:
    half = _MOST_LINES // 2
    if len(lines) <= 2 * half:
        return lines
    return [*lines[:half], f"⟨{plural(len(lines) - 2 * half, 'more line')}⟩", *lines[-half:]]

"""The difference of two definitions as lines for people, hidden characters spelled out. Pure."""

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw

from mcp_hub.catalog.flags import MOST_FLAGS, decoded, ends_of, flag_texts, squeezed
from mcp_hub.catalog.pins import ALL_MEMBERS, Fingerprint, Pin
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import RawObject, plural

_LONGEST: Final = 2000
"""Characters of a line that are shown, half of them from its end."""
_MOST_LINES: Final = 200
"""Lines of one member that are compared and shown, half of them from its end; the time is quadratic."""

_SHORT: Final = (
    "{} bytes: too long to be kept. The beginning and the end of each member follow; flags are of the whole text. To "
    "read all of it, put the server alone into another configuration and run: mcp-hub tools --json"
)


def diff_lines(pin: Pin) -> Iterator[tuple[str, str]]:
    """Lines and their styles: each member that differs."""
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

"""The difference of two definitions of a tool as lines for people, with hidden characters spelled out. Pure."""

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import Final

import msgspec
from msgspec import Raw

from mcp_hub.catalog.flags import decoded
from mcp_hub.catalog.pins import ALL_MEMBERS, Fingerprint, Pin
from mcp_hub.catalog.trust.scan import flags_of
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import RawObject

_LONGEST: Final = 2000
"""Characters of a line that are shown."""
_MOST_LINES: Final = 200
"""Lines of one member that are shown, and that are compared on either side: time grows with their product."""


def diff_lines(pin: Pin) -> Iterator[tuple[str, str]]:
    """Lines and their styles: each member that differs, before and now."""
    before, now = pin.approved, pin.offered
    if now is None:
        return
    members = [name for name in ALL_MEMBERS if before is None or before.members.get(name) != now.members.get(name)]
    old, new = _fields(before), _fields(now)
    for name in members:
        yield f"{name}:", "bold"
        if new is None or (before is not None and old is None):
            yield "  too long to be kept: only its hash was compared", "dim"
            continue
        yield from _member(_lines(name, old or {}), _lines(name, new))


def flag_lines(pin: Pin) -> list[str]:
    """The suspicious parts of the definition that the server offers now."""
    fields = _fields(pin.offered) or {}
    return [f"{decoded(flag.where, 200)}: {flag.why}: {flag.text}" for flag in flags_of(fields)]


def _fields(own: Fingerprint | None) -> RawObject | None:
    """The members that were kept; None for a definition that was not."""
    return raw_object(own.definition) if own is not None and isinstance(own.definition, Raw) else None


def _lines(name: str, fields: RawObject) -> list[str]:
    if name not in fields:
        return []
    try:
        value = msgspec.json.decode(fields[name])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return [bytes(fields[name]).decode("utf-8", "replace")]
    if isinstance(value, str):
        return value.split("\n")
    return msgspec.json.format(fields[name], indent=2).decode("utf-8", "replace").split("\n")


def _member(old: list[str], new: list[str]) -> Iterator[tuple[str, str]]:
    most = _MOST_LINES
    lines = islice(unified_diff(old[:most], new[:most], lineterm="", n=2), 2, None)
    for line in islice(lines, most):
        style = {"+": "green", "-": "red"}.get(line[:1], "dim")
        yield f"  {decoded(line, _LONGEST)}", style
    if max(len(old), len(new)) > most:
        yield f"  … {len(old)} lines before, {len(new)} now: only the first {most} are compared", "dim"

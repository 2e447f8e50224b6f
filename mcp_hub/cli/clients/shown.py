"""The entry of the hub for people: as a snippet to paste, and as a difference. Other parts of a file are never shown."""

import difflib
from collections.abc import Iterator, Mapping

from mcp_hub.cli.clients.edit.entry import with_hub
from mcp_hub.cli.clients.model import Layout, Place
from mcp_hub.masking import MASK, hide
from mcp_hub.types import JsonObject

_SECRET = ("env", "envs", "environment", "headers", "http_headers", "bearer_token")


def snippet(file: str, place: Place, entry: JsonObject, layout: Layout | None = None) -> str:
    """A whole file of the client with nothing but the entry."""
    only = Place(place.paths, (layout,), is_own=place.is_own) if layout else place
    return with_hub(None, file, only, lambda _: entry)


def difference(file: str, place: Place, before: object, after: JsonObject | None) -> Iterator[str]:
    """The lines of the entry before and after, each behind `+`, `-` or a blank; values that may be secret masked."""
    old = _lines(file, place, before)
    new = _lines(file, place, after)
    for line in difflib.ndiff(old, new):
        if not line.startswith("?"):
            yield hide(line)


def _lines(file: str, place: Place, entry: object) -> list[str]:
    return snippet(file, place, _masked(entry)).splitlines() if isinstance(entry, dict) else []


def _masked(entry: Mapping[str, object]) -> JsonObject:
    done: JsonObject = {}
    for key, value in entry.items():
        if key in _SECRET and isinstance(value, dict):
            done[key] = dict.fromkeys(value, MASK)
        else:
            done[key] = MASK if key in _SECRET else _masked(value) if isinstance(value, dict) else value
    return done

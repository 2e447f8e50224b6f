"""The hub's entry for people: a snippet to paste, and a difference. Other parts of a file are never shown."""

import difflib
from collections.abc import Iterator, Mapping

from mcp_hub.cli.clients.edit import json_text, toml_text, yaml_text
from mcp_hub.cli.clients.edit.entry import form_of, with_hub
from mcp_hub.cli.clients.entries import HUB
from mcp_hub.cli.clients.model import Layout, Place
from mcp_hub.masking import MASK, hide
from mcp_hub.types import JsonObject

_SECRET = ("env", "envs", "environment", "headers", "http_headers", "bearer_token")


def snippet(file: str, place: Place, layout: Layout, entry: JsonObject) -> str:
    """A whole file of the client with nothing but the entry."""
    only = Place(place.paths, (layout,), is_own=place.is_own)
    return with_hub(None, file, only, lambda _: entry)


def difference(file: str, layout: Layout, before: object, after: JsonObject | None) -> Iterator[str]:
    """The lines of the entry before and after, each behind `+`, `-` or a blank; values that may be secret masked."""
    for line in difflib.ndiff(_lines(file, layout, before), _lines(file, layout, after)):
        if not line.startswith("?"):
            yield hide(line)


def _lines(file: str, layout: Layout, entry: object) -> list[str]:
    if not isinstance(entry, dict):
        return []
    masked = _masked(entry)
    if layout.is_list:
        return yaml_text.document({layout.key[-1]: [masked]}).splitlines()
    form = form_of(file)
    if form == "toml":
        return toml_text.rendered([*layout.key, HUB], masked, "\n").splitlines()
    if form == "yaml":
        return yaml_text.block([*layout.key, HUB], masked, "", "\n").splitlines()
    return [line[2:] for line in json_text.rendered({HUB: masked}, "  ")[1:-1]]


def _masked(entry: Mapping[str, object]) -> JsonObject:
    done: JsonObject = {}
    for key, value in entry.items():
        if key in _SECRET and isinstance(value, dict):
            done[key] = dict.fromkeys(value, MASK)
        else:
            done[key] = MASK if key in _SECRET else _masked(value) if isinstance(value, dict) else value
    return done

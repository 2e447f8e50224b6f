"""Sets, removes and shows the hub's entry in a client's file; shows nothing else of it."""

import difflib
from collections.abc import Callable, Iterator, Mapping

from mcp_hub.edit import json_text, toml_text, writing, yaml_text
from mcp_hub.edit.entries import form_of, held_at, plain_data, put, remove
from mcp_hub.edit.splices import CannotEdit, newline_of
from mcp_hub.edit.writing import STEP, Manner, nested
from mcp_hub.masking import MASK, hide
from mcp_hub.onboarding.clients.entries import HUB
from mcp_hub.onboarding.clients.model import Layout, Place
from mcp_hub.onboarding.clients.reading import layout_of
from mcp_hub.types import JsonObject

_SECRET = ("env", "envs", "environment", "headers", "http_headers", "bearer_token")


def with_hub(text: str | None, file: str, location: Place, entry: Callable[[Layout], JsonObject]) -> str:
    """The text with the hub's entry, made by `entry` for a layout; `text` None: no file. Raises `CannotEdit`."""
    data = plain_data(text or "", file)
    layout = layout_of(data, location)
    if location.is_own:
        return _own_file(text, data, layout, entry(layout))
    return put(text or "", file, (*layout.key, HUB), entry(layout))


def without_hub(text: str, file: str, location: Place) -> str | None:
    """The text without the hub's entry; None if the file is to go. Raises `CannotEdit`."""
    data = plain_data(text, file)
    if location.is_own:
        content = held_at(data, location.layouts[-1].key)
        _check_is_own(content)
        return None
    key = (*layout_of(data, location).key, HUB)
    return text if held_at(data, key) is None else remove(text, file, key)


def snippet(file: str, location: Place, layout: Layout, entry: JsonObject) -> str:
    """A whole file with only the entry."""
    only = Place(location.paths, (layout,), is_own=location.is_own)
    return with_hub(None, file, only, lambda _: entry)


def difference(file: str, layout: Layout, before: object, after: JsonObject | None) -> Iterator[str]:
    """The diff of the entry's lines, with secrets masked."""
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
        return writing.entry(layout.key[0], nested([*layout.key[1:], HUB], masked), 0, STEP, Manner.CLIENT)
    return [line[2:] for line in json_text.rendered({HUB: masked}, "  ")[1:-1]]


def _masked(entry: Mapping[str, object]) -> JsonObject:
    masked: JsonObject = {}
    for key, value in entry.items():
        if key in _SECRET and isinstance(value, dict):
            masked[key] = dict.fromkeys(value, MASK)
        else:
            masked[key] = MASK if key in _SECRET else _masked(value) if isinstance(value, dict) else value
    return masked


def _own_file(text: str | None, data: object, layout: Layout, entry: JsonObject) -> str:
    if text is not None and data is not None:
        _check_is_own(held_at(data, layout.key))
    content = {**layout.around, **(data if isinstance(data, dict) else {}), layout.key[0]: [entry]}
    return text if text is not None and data == content else yaml_text.document(content, newline_of(text or ""))


def _check_is_own(content: object) -> None:
    foreign = (
        [entry for entry in content if not isinstance(entry, dict) or entry.get("name") != HUB]
        if isinstance(content, list)
        else 1
    )
    if foreign:
        raise CannotEdit("it should contain only the hub, and contains something else")

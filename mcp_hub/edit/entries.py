"""Edits of one entry in a text, proven to change nothing else. Pure.

The suffix of `file` is the format.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import yaml

from mcp_hub.config.findings import Findings
from mcp_hub.config.load.locate import json_mapping, long_number, plain_json, read_document, unseen
from mcp_hub.edit import json_text, toml_text, yaml_text
from mcp_hub.edit.writing import CannotEdit, Manner, Splice, Word, joined, spliced
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.types import JsonObject

_MARK = "\ufeff"


def put(text: str, file: str, path: Sequence[str], value: object, manner: Manner = "client") -> str:
    """The text with this value at the path of keys; missing mappings are made. Raises `CannotEdit`."""
    present = held_at(plain_data(text, file), tuple(path))
    if present is not None and same_data(present, value, ""):
        return text
    return put_all(text, file, path[:-1], {path[-1]: value}, manner)


def put_all(text: str, file: str, above: Sequence[str], members: Mapping[str, object], manner: Manner) -> str:
    """The text with these members in the mapping at the path; several must all be new. Raises `CannotEdit`."""
    form = form_of(file)
    expected, holder = _opened(plain_data(text, file), above)
    if not isinstance(holder, dict):
        raise CannotEdit(f"{above[-1]!r} is not a mapping")
    holder.update({name: _as_read(value) if form == "yaml" else value for name, value in members.items()})
    change = {"json": json_text.put, "toml": toml_text.put, "yaml": yaml_text.put}[form]
    return _proven(text, file, lambda plain: change(plain, above, members, manner), expected)


def remove(text: str, file: str, path: Sequence[str | int], manner: Manner = "client") -> str:
    """The text without the value at the path; list indexes work in YAML only. Raises `CannotEdit`, `KeyError`."""
    expected, holder = _opened(plain_data(text, file), path[:-1])
    del holder[path[-1]]
    names = [key for key in path if isinstance(key, str)]
    form = form_of(file)
    if form != "yaml" and len(names) < len(path):
        raise CannotEdit("the servers are a list")

    def change(plain: str) -> list[Splice]:
        if form == "yaml":
            return yaml_text.remove(plain, path, manner)
        return (json_text.remove if form == "json" else toml_text.remove)(plain, names)

    return _proven(text, file, change, expected)


def copy_entry(text: str, file: str, path: Sequence[str], source: str) -> str:
    """The text with the entry as the older text `source` writes it, or with its value alone.

    Finds entries of lists by `name`. Raises `CannotEdit`.
    """
    try:
        return copy_all(text, file, [path], source)
    except CannotEdit:
        old = plain_data(source, file)
        if isinstance(held_at(old, tuple(path[:-1])), list):
            raise
        return put(text, file, path, entry_at(old, path))


def copy_all(text: str, file: str, paths: Sequence[Sequence[str]], source: str) -> str:
    """`copy_entry` for several missing entries of one holder. Raises `CannotEdit`."""
    before, old, above = plain_data(text, file), plain_data(source, file), tuple(paths[0][:-1])
    holder, siblings = held_at(before, above), held_at(old, above)
    names, listed = names_in(siblings), names_in(holder)
    chosen, present = {path[-1] for path in paths}, {name: index for index, name in enumerate(listed)}
    plain, plain_source, form = text.removeprefix(_MARK), source.removeprefix(_MARK), form_of(file)
    is_list = isinstance(siblings, list)
    edits: list[list[Splice]] = []
    behind: list[tuple[int, object]] = []
    last: str | None = None
    for index, name in enumerate(names):
        if name not in chosen:
            last = name if name in present else last
            continue
        path = (*above, name)
        if form == "toml":
            edits.append(toml_text.copy(plain, path, plain_source))
        elif form == "json":
            edits.append(json_text.copy(plain, path, plain_source, last))
        else:
            after = last if last is None or not is_list else present[last]
            edits.append(yaml_text.copy(plain, path, plain_source, (*above, index) if is_list else path, after))
        behind.append((-1 if last is None else present[last], entry_at(old, path)))
    expected, at = _opened(before, above[:-1])
    if is_list:
        items = list(holder) if isinstance(holder, list) else []
        ranked = [*((index, 0, item) for index, item in enumerate(items)), *((at, 1, item) for at, item in behind)]
        at[above[-1]] = [item for _, _, item in sorted(ranked, key=lambda item: item[:2])]
    else:
        fresh = {name: entry_at(old, (*above, name)) for name in names if name in chosen}
        at[above[-1]] = {**(holder if isinstance(holder, dict) else {}), **fresh}
    return _proven(text, file, lambda _: joined(edits), expected)


def remove_all(text: str, file: str, paths: Sequence[Sequence[str]]) -> str:
    """`remove` for several entries of one holder, but not all. Raises `CannotEdit`."""
    above = tuple(paths[0][:-1])
    chosen, plain, form = {path[-1] for path in paths}, text.removeprefix(_MARK), form_of(file)
    expected, at = _opened(plain_data(text, file), above[:-1])
    holder, names = at[above[-1]], names_in(at[above[-1]])
    if isinstance(holder, list):
        at[above[-1]] = [item for name, item in zip(names, holder, strict=True) if name not in chosen]
        places: list[tuple[str | int, ...]] = [(*above, index) for index, name in enumerate(names) if name in chosen]
    else:
        at[above[-1]] = {name: item for name, item in holder.items() if name not in chosen}
        places = [(*above, name) for name in names if name in chosen]
    if not at[above[-1]] or form != "yaml" and isinstance(holder, list):
        raise CannotEdit("nothing would be left")
    edits: list[list[Splice]] = []
    for entry_path in places:
        keys = [key for key in entry_path if isinstance(key, str)]
        if form == "yaml":
            edits.append(yaml_text.remove(plain, entry_path, "client"))
        elif form == "toml":
            edits.append(toml_text.remove(plain, keys))
        else:
            edits.append(json_text.remove(plain, keys, chosen))
    return _proven(text, file, lambda _: joined(edits), expected)


def entry_at(data: object, path: Sequence[str]) -> Any:
    """The entry at a path of keys, in a list the one with this `name`, or None."""
    holder = held_at(data, tuple(path[:-1]))
    if isinstance(holder, list):
        return next((item for item in holder if isinstance(item, dict) and item.get("name") == path[-1]), None)
    return holder.get(path[-1]) if isinstance(holder, dict) else None


def place_of(data: object, path: Sequence[str]) -> tuple[str | int, ...]:
    """The path, with an index for an entry of a list."""
    holder = held_at(data, tuple(path[:-1]))
    return (*path[:-1], names_in(holder).index(path[-1])) if isinstance(holder, list) else tuple(path)


def names_in(holder: object) -> list[str]:
    """The names of the entries."""
    if isinstance(holder, list):
        return [str(item.get("name")) if isinstance(item, dict) else "" for item in holder]
    return [*holder] if isinstance(holder, dict) else []


def line_of(text: str, file: str, path: Sequence[str]) -> int | None:
    """The line, from 1, on which the entry begins; None if it is not found."""
    plain = text.removeprefix(_MARK)
    try:
        form = form_of(file)
        if form == "yaml":
            return yaml_text.line_of(plain, place_of(plain_data(text, file), path))
        return (toml_text.line_of if form == "toml" else json_text.line_of)(plain, path)
    except (CannotEdit, ValueError):
        return None


def same_data(data: object, expected: object, file: str) -> bool:
    """Whether two values are equal: 1, 1.0 and true differ. In YAML an empty mapping equals null."""
    return _shape(data, file) == _shape(expected, file)


def _opened(data: object, path: Sequence[str | int]) -> tuple[JsonObject, Any]:
    tree = copy(data) if isinstance(data, dict) else {}
    holder: Any = tree
    for key in path:
        if isinstance(holder, list) and isinstance(key, str):
            raise CannotEdit(f"{key!r} cannot be in a list")
        inner = holder.get(key) if isinstance(holder, dict) else holder[key]
        if not (inner is None or isinstance(inner, dict | list)):
            raise CannotEdit(f"{key!r} is not a mapping")
        holder[key] = copy(inner) or {}
        holder = holder[key]
    return tree, holder


def _as_read(data: object) -> object:
    if isinstance(data, dict):
        return {key: _as_read(value) for key, value in data.items()}
    if isinstance(data, list):
        return [*map(_as_read, data)]
    return yaml.safe_load(data) if isinstance(data, Word) else data


def _proven(text: str, file: str, change: Callable[[str], list[Splice]], expected: object) -> str:
    mark = _MARK if text.startswith(_MARK) else ""
    plain = text.removeprefix(_MARK)
    edited = spliced(plain, change(plain))
    try:
        is_right = same_data(read_data(edited, file), expected, file)
        edited.encode()
    except (ConfigError, UnicodeEncodeError):
        is_right = False
    if not is_right:
        raise CannotEdit("the entry is written in a way that cannot be edited safely")
    return mark + edited


def _shape(data: object, file: str) -> str:
    plain = data if (form := form_of(file)) == "json" else _pruned(data, is_toml=form == "toml")
    try:
        return json.dumps(plain, sort_keys=True, default=repr)
    except TypeError:  # keys of several types, whose order counts then
        return repr(plain)


def _pruned(data: object, *, is_toml: bool) -> object:
    if isinstance(data, list):
        return [_pruned(item, is_toml=is_toml) for item in data]
    if not isinstance(data, dict):
        return data
    members = {key: _pruned(value, is_toml=is_toml) for key, value in data.items()}
    return {key: value for key, value in members.items() if not is_toml or value is not None} or None


def plain_data(text: str, file: str) -> object:
    """The mapping in a text, or None. Raises `CannotEdit`."""
    try:
        data = read_data(text, file)
    except ConfigError as error:
        first = error.findings[0]
        where = f"line {first.line}: " if first.line else ""
        raise CannotEdit(f"{where}{first.message}") from None
    if data is not None and not isinstance(data, dict):
        raise CannotEdit("it does not hold keys and values")
    return data


def form_of(name: str) -> str:
    return {"toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(name.rpartition(".")[2].lower(), "json")


def read_data(text: str, name: str) -> object:
    """The data of a text, None if it is empty. Raises `ConfigError`."""
    text = text.removeprefix("\ufeff")
    if (form := form_of(name)) != "json":
        document = read_document(text, name)
        if document.findings and form == "toml":  # the client itself does not read it
            raise ConfigError(*Findings(name, document.lines, errors=list(document.findings)).failure().findings)
        return document.data
    try:  # not `read_document`: files of a client may have megabytes
        return json.loads(text, object_pairs_hook=json_mapping)
    except (ValueError, RecursionError):
        blank = plain_json(text)
    if not blank.strip():
        return None
    try:
        return json.loads(blank, object_pairs_hook=json_mapping)
    except RecursionError:
        raise ConfigError(ConfigFinding("too_deep", "nested too deep. Make it flatter.", name)) from None
    except json.JSONDecodeError as error:
        message = f"not valid JSON: {error.msg}.{unseen(text, error.pos) or ' Correct the line.'}"
        raise ConfigError(
            ConfigFinding(code="invalid_json", message=message, file=name, line=error.lineno, column=error.colno)
        ) from None
    except ValueError as error:
        message = "not valid JSON. Correct it."
        raise ConfigError(
            long_number(error, blank, "invalid_json", name) or ConfigFinding("invalid_json", message, name)
        ) from None


def held_at(data: object, key: tuple[str, ...]) -> object:
    """The value at a path of keys, or None."""
    for step in key:
        data = data.get(step) if isinstance(data, dict) else None
    return data

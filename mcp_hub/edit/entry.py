"""One entry in the text of a file of any format: set or removed, and proven to be the only difference."""

import json
from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from mcp_hub.edit import json_text, toml_text, yaml_text
from mcp_hub.edit.reading import held_at, read_data
from mcp_hub.edit.splices import CannotEdit, Splice, joined, spliced
from mcp_hub.errors import ConfigError
from mcp_hub.types import JsonObject

_MARK = "\ufeff"


def with_entry(text: str, file: str, path: Sequence[str], value: JsonObject) -> str:
    """The text with this value at the path of keys. Raises `CannotEdit`."""
    before = plain_data(text, file)
    if held_at(before, tuple(path)) == value:
        return text
    wanted = dict(before) if isinstance(before, dict) else {}
    at = wanted
    for key in path[:-1]:
        inner = at.get(key)
        if not (inner is None or isinstance(inner, dict)):
            raise CannotEdit(f"{key!r} is not a mapping")
        at[key] = {**(inner or {})}
        at = at[key]
    at[path[-1]] = value
    change = {"json": json_text.set_member, "toml": toml_text.set_table, "yaml": yaml_text.set_entry}[form_of(file)]
    return _proven(text, file, lambda plain: change(plain, path, value), wanted)


def without_entry(text: str, file: str, path: Sequence[str | int]) -> str:
    """The text without the value at the path, which exists; an index is that of a list, in YAML only.

    Raises `CannotEdit`.
    """
    wanted: Any = copy(plain_data(text, file))
    at = wanted
    for key in path[:-1]:
        at[key] = copy(at[key])
        at = at[key]
    del at[path[-1]]
    names = [key for key in path if isinstance(key, str)]
    form = form_of(file)
    if form != "yaml" and len(names) < len(path):
        raise CannotEdit("the servers are a list")

    def change(plain: str) -> list[Splice]:
        if form == "yaml":
            return yaml_text.remove_entry(plain, path)
        return (json_text.remove_member if form == "json" else toml_text.remove_table)(plain, names)

    return _proven(text, file, change, wanted)


def with_entry_of(text: str, file: str, path: Sequence[str], source: str) -> str:
    """The text with the entry at the path as `source`, an older text of the file, writes it: comments, order and form.

    It comes behind the neighbour that it followed there. Where only the text does not fit, its value is written anew.
    An entry of a list is that of its `name`. Raises `CannotEdit`.
    """
    before, old = plain_data(text, file), plain_data(source, file)
    holder, siblings = held_at(before, tuple(path[:-1])), held_at(old, tuple(path[:-1]))
    value = entry_at(old, path)
    names, listed = names_in(siblings), names_in(holder)
    after = next((name for name in reversed(names[: names.index(path[-1])]) if name in listed), None)
    wanted: Any = copy(before) if isinstance(before, dict) else {}
    at = wanted
    for key in path[:-2]:
        at[key] = copy(at.get(key) or {})
        at = at[key]
    form, plain_source = form_of(file), source.removeprefix(_MARK)
    if isinstance(siblings, list):
        index = 0 if after is None else listed.index(after) + 1
        items = list(holder) if isinstance(holder, list) else []
        at[path[-2]] = [*items[:index], value, *items[index:]]
        new: list[str | int] = [*path[:-1], index]
        here: list[str | int] = [*path[:-1], names.index(path[-1])]
        last = None if after is None else index - 1
        return _proven(text, file, lambda plain: yaml_text.copy_entry(plain, new, plain_source, here, last), wanted)
    at[path[-2]] = {**(holder if isinstance(holder, dict) else {}), path[-1]: value}

    def change(plain: str) -> list[Splice]:
        if form == "yaml":
            return yaml_text.copy_entry(plain, path, plain_source, path, after)
        if form == "toml":
            return toml_text.copy_table(plain, path, plain_source)
        return json_text.copy_member(plain, path, plain_source, after)

    try:
        return _proven(text, file, change, wanted)
    except CannotEdit:
        return with_entry(text, file, path, value)


def with_entries_of(text: str, file: str, paths: Sequence[Sequence[str]], source: str) -> str:
    """The text with these entries of one mapping or list, as `with_entry_of` puts one after another, but read once.

    None of them is there. Raises `CannotEdit` where they cannot be put there at once.
    """
    before, old, above = plain_data(text, file), plain_data(source, file), tuple(paths[0][:-1])
    holder, siblings = held_at(before, above), held_at(old, above)
    names, listed = names_in(siblings), names_in(holder)
    chosen, present = {path[-1] for path in paths}, {name: index for index, name in enumerate(listed)}
    plain, plain_source, form = text.removeprefix(_MARK), source.removeprefix(_MARK), form_of(file)
    is_list = isinstance(siblings, list)
    edits: list[list[Splice]] = []
    behind: list[tuple[int, Any]] = []
    last: str | None = None
    for index, name in enumerate(names):
        if name not in chosen:
            last = name if name in present else last
            continue
        path = (*above, name)
        if form == "toml":
            edits.append(toml_text.copy_table(plain, path, plain_source))
        elif form == "json":
            edits.append(json_text.copy_member(plain, path, plain_source, last))
        else:
            after = last if last is None or not is_list else present[last]
            edits.append(yaml_text.copy_entry(plain, path, plain_source, (*above, index) if is_list else path, after))
        behind.append((-1 if last is None else present[last], entry_at(old, path)))
    wanted: Any = copy(before) if isinstance(before, dict) else {}
    at = wanted
    for key in above[:-1]:
        at[key] = copy(at.get(key) or {})
        at = at[key]
    if is_list:
        items = list(holder) if isinstance(holder, list) else []
        ranked = [*((index, 0, item) for index, item in enumerate(items)), *((at, 1, item) for at, item in behind)]
        at[above[-1]] = [item for _, _, item in sorted(ranked, key=lambda one: one[:2])]
    else:
        fresh = {name: entry_at(old, (*above, name)) for name in names if name in chosen}
        at[above[-1]] = {**(holder if isinstance(holder, dict) else {}), **fresh}
    return _proven(text, file, lambda _: joined(edits), wanted)


def without_entries(text: str, file: str, paths: Sequence[Sequence[str]]) -> str:
    """The text without these entries of one mapping or list, which are there, as `without_entry`, but read once.

    At least one more entry stays. Raises `CannotEdit` where they cannot be taken out at once.
    """
    before, above = plain_data(text, file), tuple(paths[0][:-1])
    chosen, plain, form = {path[-1] for path in paths}, text.removeprefix(_MARK), form_of(file)
    wanted: Any = copy(before)
    at = wanted
    for key in above[:-1]:
        at[key] = copy(at[key])
        at = at[key]
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
    for place in places:
        keys = [key for key in place if isinstance(key, str)]
        if form == "yaml":
            edits.append(yaml_text.remove_entry(plain, place))
        elif form == "toml":
            edits.append(toml_text.remove_table(plain, keys))
        else:
            edits.append(json_text.remove_member(plain, keys, chosen))
    return _proven(text, file, lambda _: joined(edits), wanted)


def entry_at(data: object, path: Sequence[str]) -> Any:
    """The entry at a path of keys, in a list that of its `name`; None if there is nothing."""
    holder = held_at(data, tuple(path[:-1]))
    if isinstance(holder, list):
        return next((item for item in holder if isinstance(item, dict) and item.get("name") == path[-1]), None)
    return holder.get(path[-1]) if isinstance(holder, dict) else None


def place_of(data: object, path: Sequence[str]) -> tuple[str | int, ...]:
    """The path with the index of an entry that is in a list."""
    holder = held_at(data, tuple(path[:-1]))
    return (*path[:-1], names_in(holder).index(path[-1])) if isinstance(holder, list) else tuple(path)


def names_in(holder: object) -> list[str]:
    """The names of the entries in a mapping or a list, in their order."""
    if isinstance(holder, list):
        return [str(item.get("name")) if isinstance(item, dict) else "" for item in holder]
    return [*holder] if isinstance(holder, dict) else []


def line_of(text: str, file: str, path: Sequence[str]) -> int | None:
    """The line, from 1, on which the entry at the path begins; None if the text does not say."""
    plain = text.removeprefix(_MARK)
    try:
        form = form_of(file)
        if form == "yaml":
            return yaml_text.line_of(plain, place_of(plain_data(text, file), path))
        return (toml_text.line_of if form == "toml" else json_text.line_of)(plain, path)
    except (CannotEdit, ValueError):
        return None


def same_data(data: object, expected: object, file: str) -> bool:
    """Whether two values of a file's data are equal: 1, 1.0 and true differ."""
    return _shape(data, file) == _shape(expected, file)


def _proven(text: str, file: str, change: Callable[[str], list[Splice]], wanted: object) -> str:
    """The changed text, whose data is what was wanted and nothing else."""
    mark = _MARK if text.startswith(_MARK) else ""
    plain = text.removeprefix(_MARK)
    done = spliced(plain, change(plain))
    try:
        same = _shape(read_data(done, file), file) == _shape(wanted, file)
        done.encode()
    except (ConfigError, UnicodeEncodeError):
        same = False
    if not same:
        raise CannotEdit("the entry is written in a way that cannot be edited safely")
    return mark + done


def _shape(data: object, file: str) -> str:
    """A text that is equal for equal data only: 1, 1.0, true and "1" differ. In TOML an empty table may be missing."""
    return json.dumps(_pruned(data) if form_of(file) == "toml" else data, sort_keys=True, default=repr)


def _pruned(data: object) -> object:
    if not isinstance(data, dict):
        return data
    kept = {key: _pruned(value) for key, value in data.items()}
    return {key: value for key, value in kept.items() if value != {}}


def plain_data(text: str, file: str) -> object:
    """The mapping that a file of this name has as its text; None for a text without any. Raises `CannotEdit`."""
    try:
        data = read_data(text, file)
    except ConfigError as error:
        first = error.findings[0]
        where = f"line {first.line}: " if first.line else ""
        raise CannotEdit(f"{where}{first.message}") from None
    if data is not None and not isinstance(data, dict):
        raise CannotEdit("it does not hold keys and values")
    return data


def form_of(file: str) -> str:
    """The format of a file of this name: json, toml or yaml."""
    suffix = file.rpartition(".")[2].lower()
    return {"toml": "toml", "yaml": "yaml", "yml": "yaml"}.get(suffix, "json")

"""Edits of a configuration as text: the value changes as asked, and every other byte stays."""

import json
from functools import partial
from typing import Any

import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from mcp_hub.config.load.locate import read_document
from mcp_hub.edit import entries as edit
from mcp_hub.edit.writing import CannotEdit
from mcp_hub.errors import ConfigError

put, remove = partial(edit.put, manner="hub"), partial(edit.remove, manner="hub")
put_all = partial(edit.put_all, manner="hub")

NAME = "servers.yaml"
names = st.text(st.sampled_from("abc-_. :#'\"&;€"), min_size=1, max_size=6)
SPECIAL = "abZ09 -:?#,[]{}&*!|>'\"%@`=~$/\\\t\n\r\x85\u2028\ufeffäß€😀\x7f"
texts = st.text(st.sampled_from(SPECIAL), max_size=12) | st.sampled_from(
    ["", "on", "1", "1e3", "null", "2020-01-01", "<<", "-"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3), max_leaves=8
)
entries = st.dictionaries(
    st.sampled_from(["command", "args", "env", "enabled"]) | names, values, min_size=1, max_size=4
)
trees = st.fixed_dictionaries({"servers": st.dictionaries(names, entries, max_size=4)}, optional={"hub": values})


class Dumper(yaml.SafeDumper):
    """Without aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


@st.composite
def files(draw: st.DrawFn) -> tuple[str, Any]:
    """A file in a random style, with comments, blank lines, CRLF and a byte order mark; and its data."""
    style, step = draw(st.sampled_from([False, False, None, True])), draw(st.sampled_from([2, 4, 8]))
    text = yaml.dump(
        draw(trees), Dumper=Dumper, default_flow_style=style, indent=step, allow_unicode=True, sort_keys=False,
        width=draw(st.sampled_from([20, 80, 1000])),
    )  # fmt: skip
    data, plain = read_document(text, NAME).data, text
    lines = text.split("\n")
    for number in draw(st.lists(st.integers(0, len(lines) - 1), max_size=4)):
        lines.insert(number, draw(st.sampled_from(["", "# one: {", "  # two", "        # three", "   "])))
    for number in draw(st.lists(st.integers(0, len(lines) - 1), max_size=3)):
        lines[number] += "  # four }"
    for tried in (lines, plain.split("\n")):
        text = draw(st.sampled_from(["", "\ufeff"])) + draw(st.sampled_from(["\n", "\r\n"])).join(tried)
        if is_the_same(text, data):
            return text, data
    return plain, data


@st.composite
def json_files(draw: st.DrawFn) -> tuple[str, Any]:
    """A JSON file with comments, in a random indentation; and its data."""
    data = draw(trees)
    lines = json.dumps(data, indent=draw(st.sampled_from([None, 2, "\t"])), ensure_ascii=False).split("\n")
    for number in draw(st.lists(st.integers(0, len(lines) - 1), max_size=4)):
        lines[number] += draw(st.sampled_from(["  // } one,", " /* two */"]))
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines), data


def is_the_same(text: str, data: Any) -> bool:
    """Whether nothing that was put between the lines came to stand inside of a text."""
    try:
        return repr(read_document(text, NAME).data) == repr(data)
    except ConfigError:
        return False


def is_within(small: str, large: str) -> bool:
    """Whether every character of the one is in the other, in its order."""
    rest = iter(large)
    return all(char in rest for char in small)


@given(files(), names, entries)
def test_entry_is_put_and_taken_out_and_every_other_byte_stays(file: tuple[str, Any], name: str, entry: Any) -> None:
    text, data = file
    assume(name not in data["servers"])
    done = put(text, NAME, ("servers", name), entry)
    after = read_document(done, NAME).data
    assert isinstance(after, dict) and repr(after["servers"].pop(name)) == repr(entry)
    assert repr(after) == repr(data)
    if data["servers"]:
        assert is_within(text, done)
        back = remove(done, NAME, ("servers", name))
        assert back in (text, text + "\n", text + "\r\n")


@given(files() | json_files(), st.dictionaries(names, entries, min_size=2, max_size=4), st.booleans())
def test_new_entries_at_once_are_those_one_after_another(file: tuple[str, Any], fresh: Any, is_json: bool) -> None:
    text, data = file
    assume(not fresh.keys() & data["servers"].keys())
    name = "servers.json" if is_json else NAME
    try:
        together = put_all(text, name, ("servers",), fresh)
    except CannotEdit:
        return
    single = text
    for key, entry in fresh.items():
        single = put(single, name, ("servers", key), entry)
    if data["servers"]:
        assert together == single
    else:  # a comment below an empty mapping is of nobody: it stays below all of them, or goes with the first one
        assert sorted(together.splitlines()) == sorted(single.splitlines())
        assert repr(read_document(together, name).data) == repr(read_document(single, name).data)


@given(files(), st.data())
def test_entry_is_replaced_changed_and_removed_alone(file: tuple[str, Any], chosen: st.DataObject) -> None:
    text, data = file
    assume(data["servers"])
    name, entry = chosen.draw(st.sampled_from(list(data["servers"]))), chosen.draw(entries)
    others = [own for own in data["servers"] if own != name]
    changed = put(text, NAME, ("servers", name, "enabled"), False)
    if "enabled" not in data["servers"][name]:
        assert is_within(text, changed)
    replaced = put(text, NAME, ("servers", name), entry)
    for done, wanted in ((changed, {**data["servers"][name], "enabled": False}), (replaced, entry)):
        after = read_document(done, NAME).data
        assert isinstance(after, dict) and repr(after["servers"][name]) == repr(wanted)
        assert [own for own in after["servers"] if own != name] == others
    try:
        removed = remove(text, NAME, ("servers", name))
    except CannotEdit:
        assert "#" in text  # a comment between two entries in brackets
        return
    assert is_within(removed, text)


@given(json_files(), names, entries)
def test_entry_of_json_comes_and_goes_alone(file: tuple[str, Any], name: str, entry: Any) -> None:
    text, data = file
    assume(name not in data["servers"])
    try:
        done = put(text, "servers.json", ("servers", name), entry)
    except CannotEdit:
        assert set(text) & set("\\\x7f\x85\u2028\ufeff")  # what YAML does not take, or takes for something else
        return
    assert repr(read_document(done, "servers.json").data["servers"][name]) == repr(entry)  # type: ignore[index]
    assert is_within(text, done)
    try:
        assert remove(done, "servers.json", ("servers", name)) == text or not data["servers"]
    except CannotEdit:
        assert "//" in text or "/*" in text

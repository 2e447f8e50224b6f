"""Every client's file in every form: the hub is put in and taken out, and no other character changes."""

import json
from pathlib import Path

import pytest

from mcp_hub.edit.entries import held_at, put, read_data, remove
from mcp_hub.edit.writing import CannotEdit
from mcp_hub.onboarding.changes.written import with_hub, without_hub
from mcp_hub.onboarding.clients.entries import HUB, Command, filled
from mcp_hub.onboarding.clients.model import SYSTEMS, Client, Layout, System, Where
from mcp_hub.onboarding.clients.reading import hub_files, layout_of
from mcp_hub.onboarding.clients.table import CLIENTS
from mcp_hub.types import JsonObject

WRITTEN = [client for client in CLIENTS.values() if client.is_written]
EDITED = [client for client in WRITTEN if not client.places[-1].is_own]
NASTY = Command('/opt/a "b" & c;\n$(x) é\U0001f600\x7f/mcp-hub', ("serve", "--config", "C:\\my 'files'\\s.yaml", "\t"))


def entry(layout: Layout) -> JsonObject:
    return filled(layout.stdio, NASTY)


def text_of(file: str, key: tuple[str, ...], form: str) -> str:
    """A file with other things and one server at the key."""
    if file.endswith(".toml"):
        comment = "# mine\n" if form != "plain" else ""
        return (
            f'{comment}model = "o"\n\n[{".".join(key)}.one]\ncommand = "x" {comment.strip()}\n\n{comment}[z]\na = 1\n'
        )
    if file.endswith(".yaml"):
        comment = "  # mine\n" if form != "plain" else ""
        return f"a: 1\n{key[0]}:\n{comment}  one:\n    type: builtin\n{comment}z: [1,\n  2]\n"
    comma, comment = ("," if form == "comma" else ""), (" // mine, }" if form != "plain" else "")
    inner = f'"one": {{"command": "x"}}{comma}{comment}\n  '
    for name in reversed(key):
        inner = f'"{name}": {{\n    {inner}}}{comma} {comment}\n'
    return f'{{\n  "a": [1, 2], {"/* b */" if comment else ""}\n  {inner}}}\n'


@pytest.mark.parametrize("form", ["plain", "comments", "comma", "bom", "crlf", "no end"])
@pytest.mark.parametrize("client", EDITED, ids=lambda client: client.name)
def test_only_the_entry_changes_and_it_goes_without_a_trace(client: Client, form: str) -> None:
    for system in SYSTEMS:
        check(client, system, form)


def check(client: Client, system: System, form: str) -> None:
    (file,) = hub_files(client, Where(system, Path("/home/a"), {}))
    name, layout = file.path.name, file.place.layouts[-1]
    before = text_of(name, layout.key, form)
    if form == "bom":
        before = "\ufeff" + before
    if form == "crlf":
        before = before.replace("\n", "\r\n")
    if form == "no end":
        before = before.rstrip("\n")
    after = with_hub(before, name, file.place, entry)
    data = read_data(after, name)
    assert held_at(data, (*layout.key, HUB)) == entry(layout)
    assert held_at(data, (*layout.key, "one")) is not None
    assert with_hub(after, name, file.place, entry) == after
    other = with_hub(after, name, file.place, lambda own: {"command": "other"})
    assert held_at(read_data(other, name), (*layout.key, HUB)) == {"command": "other"}
    for text in (after, other):
        assert without_hub(text, name, file.place) == before
    if form == "crlf":
        assert "\n" not in after.replace("\r\n", "")


@pytest.mark.parametrize("text", [None, "", " \n", "\ufeff"])
@pytest.mark.parametrize("client", WRITTEN, ids=lambda client: client.name)
def test_file_without_content_gets_nothing_but_the_entry(client: Client, text: str | None) -> None:
    place = client.places[-1]
    name = place.paths.at(Where("linux", Path("/h"), {}))[0].name
    after = with_hub(text, name, place, entry)
    held = held_at(read_data(after, name), place.layouts[-1].key)
    assert held in ({HUB: entry(place.layouts[-1])}, [entry(place.layouts[-1])])
    assert with_hub(after, name, place, entry) == after
    gone = without_hub(after, name, place)
    assert (gone is None) is place.is_own


@pytest.mark.parametrize(
    ("is_put", "file", "text"),
    [
        (True, "a.json", '{"a": '),
        (True, "a.json", '{"mcpServers": [1]}'),
        (True, "a.json", '{"mcpServers": {"a": 1, "a": 2}}'),
        (True, "a.json", "[]"),
        (True, "a.json", "{'a': 1}"),
        (True, "a.json", '{"a": 1} x'),
        (True, "a.json", '{"a": 1 "b": 2}'),
        (True, "a.json", '{,}'),
        (True, "a.json", '{"a": [,]}'),
        (True, "a.json", "[" * 100_000),
        (True, "a.toml", "mcpServers = {}"),
        (True, "a.toml", "mcpServers = 1"),
        (True, "a.toml", "mcpServers = {mcp-hub = {command = 'x'}}"),
        (True, "a.toml", "a = "),
        (True, "a.yaml", "mcpServers: 1"),
        (True, "a.yaml", "mcpServers: &a\n  x: 1\nb: *a\n"),
        (True, "a.yaml", "b: &a\n  x: 1\nmcpServers: *a\n"),
        (True, "a.yaml", "a: 1\n---\nb: 1\n"),
        (True, "a.yaml", "a: |+\n  text"),
        (True, "a.yaml", "a: !x 1\n"),
        (False, "a.toml", "mcpServers = {mcp-hub = {command = 'x'}}"),
        (False, "a.toml", "[mcpServers]\nmcp-hub.command = 'x'\n"),
        (False, "a.yaml", "mcpServers:\n  mcp-hub: &a\n    x: 1\nb: *a\n"),
        (False, "a.yaml", "mcpServers:\n  ? mcp-hub\n  : {x: 1}\n"),
    ],
)  # fmt: skip
def test_text_that_cannot_be_edited_surely_is_refused(is_put: bool, file: str, text: str) -> None:
    with pytest.raises(CannotEdit):
        put(text, file, ("mcpServers", HUB), {"command": "y"}) if is_put else remove(text, file, ("mcpServers", HUB))


def test_table_in_braces_is_named_since_a_table_behind_it_would_break_the_file() -> None:
    with pytest.raises(CannotEdit, match=r'"mcp_servers" is written in braces.*\[mcp_servers\.NAME\]'):
        put("model = 'x'\nmcp_servers = {} # none\n[tui]\n", "a.toml", ("mcp_servers", HUB), {"command": "y"})


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("a.json", '{"mcp-hub": 1}', "{}"),
        ("a.json", '{"mcp-hub": 1, "b": 2}', '{"b": 2}'),
        ("a.json", '{"b": 2, "mcp-hub": 1}', '{"b": 2}'),
        ("a.json", '{"b": 2, "mcp-hub": 1,}', '{"b": 2,}'),
        ("a.json", '{\n  // b\n  "mcp-hub": 1 /* x */, // y\n  "b": 2\n}', '{\n  // b\n  /* x */ // y\n  "b": 2\n}'),
        ("a.json", '{\n  "b": 2, // z\n  "mcp-hub": 1\n  // end\n}', '{\n  "b": 2 // z\n  // end\n}'),
        ("a.toml", "[mcp-hub]\na = 1\n[mcp-hub.env]\nb = 1\n\n# of c\n[c]\n", "\n# of c\n[c]\n"),
        ("a.toml", '[c]\nx = """\n[mcp-hub]\n"""\n\n[mcp-hub]\na = [1,\n # c\n]\n', '[c]\nx = """\n[mcp-hub]\n"""\n'),
        ("a.yaml", "mcp-hub:\n  a: 1 # x\n# of b\nb: 1\n", "# of b\nb: 1\n"),
        ("a.yaml", "{b: 1, mcp-hub: {a: 1}, c: 2}", "{b: 1, c: 2}"),
        ("a.yaml", "{b: 1, mcp-hub: {a: 1}}", "{b: 1}"),
        ("a.yaml", "b: 1\nmcp-hub:\n", "b: 1\n"),
        ("a.yaml", "mcp-hub:\n  a: |\n    # x\n\nb: 1\n...\n", "\nb: 1\n...\n"),
    ],
)  # fmt: skip
def test_comments_around_a_removed_entry_stay(file: str, before: str, after: str) -> None:
    assert remove(before, file, (HUB,)) == after


def test_entry_of_a_list_is_removed_by_its_index() -> None:
    text = "servers:\n  # one\n  - name: a\n    x: 1\n  # two\n  - name: b\n    y: [1,\n      2] # c\nz: 1\n"
    first = remove(text, "a.yaml", ("servers", 0))
    assert first == "servers:\n  # one\n  # two\n  - name: b\n    y: [1,\n      2] # c\nz: 1\n"
    assert remove(first, "a.yaml", ("servers", 0)) == "servers: []\n  # one\n  # two\nz: 1\n"
    with pytest.raises(CannotEdit):
        remove('{"servers": [{"name": "a"}]}', "a.json", ("servers", 0))


@pytest.mark.parametrize(
    "name", ['a "b"', "x & y; $(z)", "a.b", "é\U0001f600", "line\nend", "'", "#", "-", "]", "{}: x"]
)
@pytest.mark.parametrize("file", ["a.json", "a.toml", "a.yaml"])
def test_any_name_is_data(file: str, name: str) -> None:
    text = put("", file, ("servers", "other"), {"command": "x"})
    after = put(text, file, ("servers", name), {"command": "y"})
    assert read_data(after, file) == {"servers": {"other": {"command": "x"}, name: {"command": "y"}}}
    assert remove(after, file, ("servers", name)) == text


def test_newer_layout_is_kept_and_a_foreign_file_left_alone() -> None:
    place = CLIENTS["opencode"].places[-1]
    text = json.dumps({"mcp": {"servers": {"one": {"type": "local"}}}})
    after = json.loads(with_hub(text, "opencode.json", place, entry))
    assert set(after["mcp"]["servers"]) == {"one", HUB} and "enabled" not in after["mcp"]["servers"][HUB]
    assert layout_of({"mcp": {"servers": {"type": "local", "command": ["x"]}}}, place).key == ("mcp",)
    place = CLIENTS["continue"].places[-1]
    text = "mcpServers:\n  - {name: other, command: x}\n"
    with pytest.raises(CannotEdit):
        with_hub(text, "mcp-hub.yaml", place, entry)
    with pytest.raises(CannotEdit):
        without_hub(text, "mcp-hub.yaml", place)

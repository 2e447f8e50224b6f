"""Edits of the text of a configuration, case by case: styles of YAML, JSON, and texts that are refused."""

from functools import partial

import pytest

from mcp_hub.edit import entries
from mcp_hub.edit.splices import CannotEdit
from mcp_hub.edit.writing import Manner
from mcp_hub.onboarding.servers_file.servers_file import pasted

put, remove = partial(entries.put, manner=Manner.HUB), partial(entries.remove, manner=Manner.HUB)
ON: dict[str, object] = {"command": "x"}
OFF = ("servers", "a", "enabled")


B = "  b:\n    command: x\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"servers:\n{B}"),
        ("# none\n", f"# none\nservers:\n{B}"),
        ("hub: {}", f"hub: {{}}\nservers:\n{B}"),
        ("servers: # mine\nhub: {}\n", f"servers: # mine\n{B}hub: {{}}\n"),
        ("servers: {} # mine\n", f"servers: # mine\n{B}"),
        ("servers:\n  a: {} # 1\n  # 2\n\n# end\n", f"servers:\n  a: {{}} # 1\n  # 2\n{B}\n# end\n"),
        ("servers:\r\n a: {}\r\n", "servers:\r\n a: {}\r\n b:\r\n  command: x\r\n"),
        ("servers:\n    a: {}\n", "servers:\n    a: {}\n    b:\n        command: x\n"),
        ("servers: {a: {}, } # c\n", "servers: {a: {}, b: {command: x}, } # c\n"),
        ("servers:\n  a:\n    args: [\n      y]\nhub: {}\n", f"servers:\n  a:\n    args: [\n      y]\n{B}hub: {{}}\n"),
        ("\ufeffservers:\n  a: {}\n...\n", f"\ufeffservers:\n  a: {{}}\n{B}...\n"),
        ("servers:\n  a:\n    k: |+\n      t\n\nhub: {}\n", f"servers:\n  a:\n    k: |+\n      t\n\n{B}hub: {{}}\n"),
    ],
)
def test_new_server_stands_behind_the_others_in_their_style(before: str, after: str) -> None:
    assert put(before, "servers.yaml", ("servers", "b"), ON) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"servers": {"a": {}}}', '{"servers": {"a": {}, "b": {"command": "x"}}}'),
        (
            '{\n\t"servers": {\n\t\t"a": {} // why\n\t}\n}\n',
            '{\n\t"servers": {\n\t\t"a": {}, // why\n\t\t"b": {"command": "x"}\n\t}\n}\n',
        ),
        ('{"servers": {\n  "a": {}, // c\n}}', '{"servers": {\n  "a": {}, // c\n  "b": {"command": "x"},\n}}'),
        ("{}", '{"servers": {"b": {"command": "x"}}}'),
        (
            r'{"servers": {"a": {"url": "https:\/\/a"}}}',
            r'{"servers": {"a": {"url": "https:\/\/a"}, "b": {"command": "x"}}}',
        ),
    ],
)
def test_json_with_comments_is_edited_as_json(before: str, after: str) -> None:
    assert put(before, "servers.json", ("servers", "b"), ON) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("servers:\n  a: {url: u} # c\n", "servers:\n  a: {url: u, enabled: false} # c\n"),
        (
            "servers:\n  a:\n    url: u # c\n    # d\n  # e\n",
            "servers:\n  a:\n    url: u # c\n    # d\n    enabled: false\n  # e\n",
        ),
        ("servers:\n  a:\n    enabled: yes # c\n    url: u\n", "servers:\n  a:\n    enabled: false # c\n    url: u\n"),
        (
            "x: &b {y: u}\nservers:\n  a:\n    <<: *b\n",
            "x: &b {y: u}\nservers:\n  a:\n    <<: *b\n    enabled: false\n",
        ),
    ],
)
def test_one_member_is_set_and_comments_stay(before: str, after: str) -> None:
    assert put(before, "servers.yaml", OFF, False) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("servers:\n  # one\n  a: {} # gone\n  # two\n  b: {}\n", "servers:\n  # one\n  # two\n  b: {}\n"),
        ("servers: {a: {x: 1}, b: {}}\n", "servers: {b: {}}\n"),
        ("servers: {b: {}, a: {x: 1}}\n", "servers: {b: {}}\n"),
        ("servers: {a: {x: 1},}\n", "servers: {}\n"),
        ("servers: {\n  b: {}, # b\n  a: {x: 1} # a\n  # end\n}\n", "servers: {\n  b: {} # b\n  # end\n}\n"),
        ("servers: {\n  a: {x: 1}, # a\n  # b\n  b: {}}\n", "servers: {\n  # b\n  b: {}}\n"),
        ("servers:\n  a:\n    t: |\n      x\n\nhub: {}\n", "servers:\n\nhub: {}\n"),
        ("x: &x {url: u}\nservers:\n  a: *x\n  b: *x\n", "x: &x {url: u}\nservers:\n  b: *x\n"),
    ],
)
def test_removed_server_takes_its_own_lines_only(before: str, after: str) -> None:
    assert remove(before, "servers.yaml", ("servers", "a")) == after


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("x: &x {url: u}\nservers:\n  a: *x\n", OFF),  # would change x, too
        ("servers:\n  a: &a {url: u}\n  b: *a\n", OFF),
        ("servers:\n  a: {url: u}\n  a: {url: v}\n", OFF),
        ("servers: [1]\n", OFF),
        ("servers:\n  ? a\n  : {}\n", ("servers", "b")),
    ],
)
def test_text_that_cannot_be_edited_surely_is_refused_with_lines_to_paste(text: str, path: tuple[str, ...]) -> None:
    with pytest.raises(CannotEdit):
        put(text, "servers.yaml", path, False)
    snippet = pasted("servers.yaml", path, False)
    assert snippet.startswith("servers:\n  ") and snippet.endswith(": false")


@pytest.mark.parametrize(
    "text",
    [
        "servers:\n  a: &a {}\n  b: *a\n",
        "servers: {a: {}, # of a, or of b\n  b: {}}\n",
        "x: &x {a: {}}\nservers:\n  <<: *x\n",
    ],
)
def test_removal_that_would_take_more_is_refused(text: str) -> None:
    with pytest.raises(CannotEdit):
        remove(text, "servers.yaml", ("servers", "a"))


def test_value_that_is_there_changes_no_byte_and_an_empty_one_is_not_taken_for_it() -> None:
    text = "servers:\n  a: {n: 1}\n"
    assert put(text, "servers.yaml", ("servers", "a", "n"), 1) == text
    assert put(text, "servers.yaml", ("servers", "a", "n"), True) == "servers:\n  a: {n: true}\n"
    assert put(text, "servers.yaml", ("servers", "b"), {}) == f"{text}  b: {{}}\n"


def test_server_that_is_not_there_is_not_removed() -> None:
    with pytest.raises(KeyError):
        remove("servers: {}\n", "servers.yaml", ("servers", "a"))


@pytest.mark.parametrize("text", ["...", "---", "~", "null", "1e3", "0x1F", "2020-01-01", "--", ".", ":"])
def test_text_that_yaml_takes_for_something_else_is_quoted(text: str) -> None:
    done = put(
        "servers: {}\n", "servers.yaml", ("servers", "b"), {"command": text, "args": [text], "env": {text: text}}
    )
    data = entries.read_data(done, "servers.yaml")
    assert data == {"servers": {"b": {"command": text, "args": [text], "env": {text: text}}}}

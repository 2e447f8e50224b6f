"""Text to data with lines; what is refused before any checking starts."""

import pytest

from mcp_hub.config.load.locate import read_document
from mcp_hub.edit.entries import read_data
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown_all


def refusal(text: str, name: str = "s.yaml") -> str:
    with pytest.raises(ConfigError) as caught:
        read_document(text, name)
    assert "s3cr3t" not in str(caught.value)
    (found,) = shown_all(caught)
    return found


def test_every_value_knows_its_line() -> None:
    document = read_document("servers:\n  git:\n    args:\n      - a\n      - b\n", "s.yaml")
    assert document.data == {"servers": {"git": {"args": ["a", "b"]}}}
    assert document.lines[("servers", "git")] == 2
    assert document.lines[("servers", "git", "args", 1)] == 5


def test_keys_and_dates_are_text_and_other_scalars_have_their_type() -> None:
    text = "on: yes\n1: 2\n~: null\nday: 2024-01-01\nratio: 1.5\nhex: 0x10\n"
    data = read_document(text, "s.yaml").data
    assert data == {"on": True, "1": 2, "~": None, "day": "2024-01-01", "ratio": 1.5, "hex": 16}


def test_merge_keys_and_aliases_work_as_in_pyyaml() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc:\n  <<: [*a, *b]\n  x: 3\nd: *a\n"
    document = read_document(text, "s.yaml")
    assert isinstance(document.data, dict)
    assert document.data["c"] == {"x": 3, "y": 1, "z": 2}
    assert document.data["d"] == {"x": 1, "y": 1}
    assert document.lines[("c", "z")] == 2
    assert document.findings == ()


def test_duplicate_key_names_both_lines() -> None:
    (finding,) = read_document("servers:\n  git: {}\n  time: {}\n  git: {}\n", "s.yaml").findings
    assert (finding.path, finding.line) == (("servers", "git"), 4)
    assert finding.message == "duplicate key (first on line 2). Remove one of them."


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "s.yaml:2:2 [invalid_yaml]"),
        ("a: b: c", "s.yaml:1:5 [invalid_yaml]"),
        ("a: 1\n---\nb: 2", "s.yaml:2:1 [invalid_yaml]"),
        ("a: \0", "s.yaml [invalid_yaml]"),
        ("a:\n  b: !secret x", "s.yaml:2 [invalid_yaml]"),
        ("a: !!int x", "s.yaml:1 [invalid_yaml]"),
        ("a: !!int ''", "s.yaml:1 [invalid_yaml]"),
        ("a:\n  [1, 2]: 3", "s.yaml:2 [invalid_yaml]"),
        ("a:\n  <<: 3", "s.yaml:2 [invalid_yaml]"),
    ],
)
def test_broken_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    assert refusal(text) == message


def test_words_of_the_file_are_not_repeated_in_syntax_errors() -> None:
    assert refusal("token: *s3cr3t") == "s.yaml:1:8 [invalid_yaml]"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "a: &a [*a]",
        "a: &a\n  <<: *a\n",
        "a0: &a0 [x, x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
        "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i}\n  <<: [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
    ],
    ids=["depth", "alias of itself", "merge of itself", "alias bomb", "merge bomb"],
)
def test_yaml_that_grows_without_bound_is_refused(text: str) -> None:
    assert refusal(text).startswith("s.yaml:")


def test_json_knows_its_lines() -> None:
    document = read_document('{\n\t"mcpServers": {\n\t\t"git": {"command": "x"}\n\t}\n}', "c.json")
    assert document.data == {"mcpServers": {"git": {"command": "x"}}}
    assert document.lines[("mcpServers", "git")] == 3


def test_json_with_comments_and_trailing_commas_keeps_its_lines() -> None:
    text = '{\n  // "not": "this"\n  "a": "http://x/*y*/", /* two\n  lines */ "b": [1,],\n}'
    document = read_document(text, "c.jsonc")
    assert document.data == {"a": "http://x/*y*/", "b": [1]}
    assert document.lines[("b",)] == 4


def test_duplicate_key_in_json_names_both_lines() -> None:
    (finding,) = read_document('{"a": 1,\n"a": 2}', "c.json").findings
    assert (finding.path, finding.line, finding.code) == (("a",), 2, "duplicate_key")
    assert "line 1" in finding.message


def test_broken_json_is_refused_with_its_place() -> None:
    assert refusal('{"a": 1,\n,}', "c.json") == "c.json:2:2 [invalid_json]"


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 60 + "]" * 60, '{"a":' * 400 + "1" + "}" * 400])
def test_deep_json_is_refused(text: str) -> None:
    assert "[too_deep]" in refusal(text, "c.json")


@pytest.mark.parametrize(
    ("name", "text", "code"),
    [
        ("a.json", '{\n"x": %s}', "invalid_json"),
        ("a.json", '{\n"x": %s, // comment\n}', "invalid_json"),
        ("a.toml", "y = 1\nx = %s", "invalid_toml"),
        ("a.yaml", "y: 1\nx: %s", "invalid_yaml"),
    ],
)
def test_numbers_that_are_too_long_are_named_by_their_line(name: str, text: str, code: str) -> None:
    for read in (read_document, read_data):
        with pytest.raises(ConfigError) as problem:
            read(text % ("9" * 5000), name)
        (finding,) = problem.value.findings
        assert (finding.code, finding.line) == (code, 2) and "number is too long" in str(finding)
        assert "sys" not in str(problem.value)


def test_large_toml_is_not_read_again_for_each_double_key() -> None:
    doubles = "x = 1\nx = 2\nx = 3\n"
    assert len(read_document(doubles, "a.toml").findings) == 2
    large = f"# {'-' * (900 << 10)}\n{doubles}{doubles}"
    assert refusal(large, "a.toml") == "a.toml:3:6 [invalid_toml]"

"""Text to data with lines, and `${…}`: what it fills in, what it refuses, and a server whose value is not there."""

from pathlib import Path

import pytest

from mcp_hub.app.upstream_factory import UpstreamFactory
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.interpolate import Unresolved, resolve
from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.load.locate import read_document
from mcp_hub.config.plan import plan
from mcp_hub.edit.entries import read_data
from mcp_hub.errors import ConfigError
from mcp_hub.notices import Notices
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.peer.era_cache import EraCache
from mcp_hub.upstreams.process.watchdog import Watchdog
from tests.unit.config.faults import refused

ENV = {"TOKEN": "s3cr3t-token", "EMPTY": "", "HOME": "/home/alice", "PORT": "8080", "NESTED": "${TOKEN}"}


def filled(text: str, base: Path = Path("/nowhere")) -> str:
    return resolve(text, ENV, base)[0]


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain $HOME {x}", "plain $HOME {x}"),
        ("Bearer ${TOKEN}", "Bearer s3cr3t-token"),
        ("${env:TOKEN}", "s3cr3t-token"),
        ("${UNSET:-a:-b}", "a:-b"),
        ("${EMPTY:-used}", "used"),
        ("[${EMPTY}]", "[]"),
        ("${TOKEN:-unused}", "s3cr3t-token"),
        ("${env:UNSET:-x}", "x"),
        ("$${TOKEN}", "${TOKEN}"),
        ("${PORT}$${PORT}${PORT}", "8080${PORT}8080"),
        ("${NESTED}", "${TOKEN}"),
    ],
)
def test_reference_is_filled_in_once(text: str, result: str) -> None:
    assert filled(text) == result


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${UNSET_TOKEN}", r"Set it, or keep its value in a file of yours: \$\{file:secrets/UNSET_TOKEN\}"),
        ("${UNSET}", r"environment variable UNSET is not set. Set it, or write \$\{UNSET:-default\}"),
        ("${env:UNSET}", "environment variable UNSET is not set"),
        ("${TOKEN", "never closed"),
        ("${A:-${B}}", "is not supported"),
        *((text, "expected ") for text in ("${}", "${keyring:x}", "${two words}")),
    ],
)
def test_reference_that_cannot_be_filled_in_says_why(text: str, message: str) -> None:
    with pytest.raises(Unresolved, match=message):
        filled(text)


@pytest.mark.parametrize(("content", "result"), [("key\n", "key"), ("key\r\n", "key"), ("a\n\n", "a\n"), ("", "")])
def test_file_comes_without_one_trailing_newline(tmp_path: Path, content: str, result: str) -> None:
    (tmp_path / "key").write_bytes(content.encode())
    assert filled("${file:key}", tmp_path) == result


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none", b"", "cannot read file {}/none: No such file"),
        ("key", b"x" * 65537, "larger than 65536 bytes"),
        ("key", b"\xff\xfe", "not UTF-8 text"),
        *((name, b"", "not a regular file") for name in ("/dev/zero", ".")),
    ],
)
def test_file_that_is_no_short_text_is_refused(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(Unresolved, match=message.format(tmp_path)):
        filled(f"${{file:{name}}}", tmp_path)


def test_values_from_outside_are_secret_but_for_home_and_short_words(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("file-secret\n")
    secrets = resolve("${TOKEN} ${file:key} ${UNSET:-a default}", ENV, tmp_path)[1]
    assert secrets == {"s3cr3t-token", "file-secret"}
    for value in ("4711", "some-team", "true", "/home/jane"):
        (tmp_path / "key").write_text(f"{value}\n")
        assert resolve("${file:key}", ENV, tmp_path)[1] == {value}
    assert resolve("${HOME}/work:${PORT}:${HOME:-x}", ENV, Path("/nowhere"))[1] == frozenset()


TEXT = """
servers:
  good: {command: x}
  keyed: {command: x, env: {KEY: "${KEY}", OTHER: "${OTHER:-o}"}}
  far: {url: "https://${HOST}/mcp", bearer: "${TOKEN}", disabled: false}
  filed: {command: x, args: ["${file:none}"], timeout: "${TIME}"}
"""


def lenient(text: str = TEXT, **env: str) -> Loaded:
    return parse(text, "servers.yaml", env, Path("/base"), lenient=True)


@pytest.mark.parametrize(
    ("name", "code", "named"),
    [("keyed", "variable_not_set", "KEY"), ("far", "variable_not_set", "HOST"), ("filed", "file_unreadable", "none")],
)
def test_server_has_failed_with_the_code_and_the_others_stay(name: str, code: str, named: str) -> None:
    loaded = lenient()
    cause = loaded.settings.failure(name)
    assert cause is not None and cause.code == code and named in cause.reason
    assert loaded.settings.failure("good") is None and loaded.settings.servers["good"].enabled
    assert {warning.code for warning in loaded.warnings} == {"variable_not_set", "file_unreadable"}


def test_upstream_of_such_a_server_says_why_and_is_not_started() -> None:
    memory = EraCache(None)
    factory = UpstreamFactory({}, "/base", memory, SystemClock(), Notices(), Watchdog(SystemClock()))
    status = factory.make(lenient().settings, "keyed").status()
    assert (status.state, status.code) == (UpstreamState.FAILED, "variable_not_set") and "KEY" in (status.reason or "")


def test_value_that_comes_later_starts_the_server() -> None:
    change = plan(lenient().settings, lenient(KEY="k").settings)
    assert change.restarted == ("keyed",) and set(change.unchanged) == {"good", "far", "filed"}
    text = 'servers: {a: {url: "https://a.example/mcp", bearer: "${ONE}"}}'
    other = plan(lenient(text).settings, lenient(text.replace("ONE", "TWO")).settings)
    assert other.restarted == ("a",)  # so that it names the variable of now


def test_other_mistakes_and_the_strict_check_are_errors_as_before() -> None:
    with pytest.raises(ConfigError):
        lenient(TEXT + "  bad: {command: x, argz: []}\n")
    with pytest.raises(ConfigError) as refused:
        parse(TEXT, "servers.yaml", {}, Path("/base"))
    assert {finding.code for finding in refused.value.findings} == {"variable_not_set", "file_unreadable"}
    with pytest.raises(ConfigError):
        lenient('hub: {tokens: [{token: "${NO}", principal: p}]}\nservers: {}\n')


def refusal(text: str, name: str = "s.yaml") -> str:
    return refused(read_document, text, name)


def test_every_value_knows_its_line_in_yaml_and_json() -> None:
    document = read_document("servers:\n  git:\n    args:\n      - a\n      - b\n", "s.yaml")
    assert document.data == {"servers": {"git": {"args": ["a", "b"]}}}
    assert document.lines[("servers", "git")] == 2
    assert document.lines[("servers", "git", "args", 1)] == 5
    document = read_document('{\n\t"mcpServers": {\n\t\t"git": {"command": "x"}\n\t}\n}', "c.json")
    assert document.data == {"mcpServers": {"git": {"command": "x"}}}
    assert document.lines[("mcpServers", "git")] == 3
    text = '{\n  // "not": "this"\n  "a": "http://x/*y*/", /* two\n  lines */ "b": [1,],\n}'
    document = read_document(text, "c.jsonc")
    assert document.data == {"a": "http://x/*y*/", "b": [1]}
    assert document.lines[("b",)] == 4


def test_scalars_merge_keys_and_aliases_are_those_of_yaml() -> None:
    text = "on: yes\n1: 2\n~: null\nday: 2024-01-01\nratio: 1.5\nhex: 0x10\n"
    data = read_document(text, "s.yaml").data
    assert data == {"on": True, "1": 2, "~": None, "day": "2024-01-01", "ratio": 1.5, "hex": 16}
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
    (finding,) = read_document('{"a": 1,\n"a": 2}', "c.json").findings
    assert (finding.path, finding.line, finding.code) == (("a",), 2, "duplicate_key")
    assert "line 1" in finding.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1\nb: 2\n", "s.yaml:2:2 [invalid_yaml]"),
        ("a: b: c", "s.yaml:1:5 [invalid_yaml]"),
        ("a: 1\n---\nb: 2", "s.yaml:2:1 [invalid_yaml]"),
        ("a: \0", "s.yaml:1 [invalid_yaml]"),
        *((text, "s.yaml:2 [invalid_yaml]") for text in ("a:\n  b: !secret x", "a:\n  [1, 2]: 3", "a:\n  <<: 3")),
        ("a: !!int x", "s.yaml:1 [invalid_yaml]"),
        ("a: !!int ''", "s.yaml:1 [invalid_yaml]"),
    ],
)
def test_broken_yaml_is_refused_with_its_place(text: str, message: str) -> None:
    assert refusal(text) == message


def test_broken_text_is_refused_without_its_words() -> None:
    assert refusal("token: *s3cr3t") == "s.yaml:1:8 [invalid_yaml]"
    assert refusal('{"a": 1,\n,}', "c.json") == "c.json:2:2 [invalid_json]"
    doubles = "x = 1\nx = 2\nx = 3\n"
    assert len(read_document(doubles, "a.toml").findings) == 2
    large = f"# {'-' * (900 << 10)}\n{doubles}{doubles}"
    assert refusal(large, "a.toml") == "a.toml:3:6 [invalid_toml]"


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


@pytest.mark.parametrize("number", ["0x" + "f" * 3600, "0X" + "F_" * 3600 + "0", "0o" + "7" * 4800, "0b" + "1" * 14300])
@pytest.mark.parametrize(("name", "text"), [("a.json", '{"y": 1,\n"x": [%s]}'), ("a.toml", "y = 1\nx = [%s]")])
def test_numbers_of_other_bases_have_a_limit_too(name: str, text: str, number: str) -> None:
    """Python reads them, and does not write them."""
    with pytest.raises(ConfigError) as problem:
        read_document(text % number, name)
    (finding,) = problem.value.findings
    assert (finding.code, finding.line) == (f"invalid_{name[2:]}", 2)

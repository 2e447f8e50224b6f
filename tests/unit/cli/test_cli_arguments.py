"""Command lines: which text becomes which argument, what is refused with the right form, what every command runs on."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.cli import main, setup
from mcp_hub.cli.access import hub as access
from mcp_hub.cli.arguments import check_names, compose, read_object, spelled_out, split_pairs
from mcp_hub.errors import ConfigError, ConfigFinding, EventsGone, HubError, InvalidParams, StoreError, UpstreamLost

SCHEMA = {
    "type": "object",
    "$defs": {"Color": {"enum": ["red", "7"], "type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}},
    "properties": {
        "text": {"type": "string"},
        "count": {"type": "integer"},
        "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "either": {"type": ["string", "integer"]},
        "color": {"$ref": "#/$defs/Color"},
        "word": {"enum": ["1", "2"]},
        "loop": {"$ref": "#/$defs/Loop"},
        "odd": True,
    },
}
DEFINITION = json.dumps({"name": "t", "inputSchema": SCHEMA}).encode()


@pytest.mark.parametrize(
    ("pair", "value"),
    [
        ("text=5", "5"),
        ("text=null", "null"),
        ('text="quoted"', '"quoted"'),
        ("text=a=b", "a=b"),
        ("text=", ""),
        ("count=5", 5),
        ("count=five", "five"),
        ("maybe=5", "5"),
        ("maybe=null", None),
        ("either=5", 5),
        ("either=true", "true"),
        ("color=7", "7"),
        ("word=1", "1"),
        ("loop=1", 1),
        ("odd=[1, 2]", [1, 2]),
        ('unknown={"a": 1}', {"a": 1}),
        ('unknown="text"', "text"),
        ("unknown=NaN", "NaN"),
    ],
)
def test_value_is_json_unless_the_schema_wants_text(pair: str, value: object) -> None:
    name = pair.partition("=")[0]
    assert json.loads(bytes(compose({}, split_pairs([pair]), DEFINITION))) == {name: value}


@pytest.mark.parametrize(
    "definition", [b"{}", b'{"inputSchema": true}', b"nonsense", b'{"inputSchema":{"properties":1}}']
)
def test_schema_that_says_nothing_leaves_json_as_it_is(definition: bytes) -> None:
    assert json.loads(bytes(compose({}, {"a": "1", "b": "x"}, definition))) == {"a": 1, "b": "x"}


def test_arguments_are_composed_as_written_and_a_pair_wins() -> None:
    base = read_object('{"huge": 123456789012345678901234567890}', "--args-json", io.BytesIO())
    assert bytes(compose(base, {"fine": "1.10"}, b"{}")) == b'{"huge":123456789012345678901234567890,"fine":1.10}'
    assert json.loads(bytes(compose({"a": msgspec.Raw(b"1")}, {"a": "2"}, b"{}"))) == {"a": 2}


@pytest.mark.parametrize(
    ("pairs", "message"),
    [(["a"], "as name=value"), (["=1"], "name=value"), (["a=1", "a=2"], "given twice"), (["a=\udc80"], "UTF-8")],
)
def test_bad_pair_is_refused(pairs: list[str], message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        split_pairs(pairs)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("[1]", "as a JSON object"),
        ('{"a":}', "--args-json: the text is not JSON"),
        ("", "--args-json: there is no JSON there"),
        (" \n", "--args-json: there is no JSON there"),
        ("-", "--args-json: there is no JSON on standard input"),
        ('{"a": "x', "--args-json: the JSON is not complete"),
        ('{"text": "a\\ud83d"}', "--args-json: the text holds half of a character"),
        ('{"text": "\\udc00b"}', "--args-json: the text holds half of a character"),
        ('{"\\ud83d": 1}', "--args-json: the text holds half of a character"),
        ("@/no/such/file", "cannot read the file /no/such/file: No such file"),
        ('{"a": "\udc80"}', "UTF-8"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_bad_json_is_refused(source: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        read_object(source, "--args-json", io.BytesIO())


def test_object_comes_from_a_file_or_from_stdin(tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_bytes(b"\xef\xbb\xbf\n")
    with pytest.raises(click.UsageError, match=f"--json: there is no JSON in {path}"):
        read_object(f"@{path}", "--json", io.BytesIO())
    path = tmp_path / "arguments.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n')
    for source in (f"@{path}", "-"):
        found = read_object(source, "--json", io.BytesIO(b'{"a": 1}'))
        assert {name: bytes(value) for name, value in found.items()} == {"a": b"1"}


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["--json", "name"], ["--json=", "name"]),
        (["name", "--json"], ["name", "--json="]),
        (["name", "--json", '{"a":1}'], ["name", "--json", '{"a":1}']),
        (["name", "--json", ' {"a":1}'], ["name", "--json", ' {"a":1}']),
        (["name", "--json", "@file"], ["name", "--json", "@file"]),
        (["--json", "--arg", "a=1"], ["--json=", "--arg", "a=1"]),
        (["--json={}", "name"], ["--json={}", "name"]),
        (["--", "--json", "name"], ["--", "--json", "name"]),
    ],
)
def test_json_flag_takes_only_what_looks_like_arguments(args: list[str], meant: list[str]) -> None:
    assert spelled_out(args) == meant


@pytest.mark.parametrize(
    ("loose", "how"), [('{"zone": 1}', "--args-json"), ("UTC", "as name=value"), ("", "as name=value")]
)
def test_argument_without_a_name_is_refused_with_the_right_form(loose: str, how: str) -> None:
    result = CliRunner().invoke(main, ["call", "time_now", loose, "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 2
    assert f"{loose!r}: write an argument as name=value." in result.output and how in result.output


STRICT = json.dumps(
    {"inputSchema": {"properties": {"steps": {}, "seconds": {}}, "required": ["steps"], "additionalProperties": False}}
).encode()


def test_names_of_arguments_are_compared_with_the_schema() -> None:
    with pytest.raises(ConfigError) as refused:
        check_names("run", ["stps"], ["steps"], STRICT)
    [found] = refused.value.findings
    assert found.code == "unknown_parameter"
    assert 'run does not have a parameter "stps". Did you mean "steps"?' in found.message
    assert "steps, seconds" in found.message
    with pytest.raises(ConfigError) as refused:
        check_names("run", ["seconds"], [], STRICT)
    [found] = refused.value.findings
    assert found.code == "missing_parameter" and "run needs steps=…" in found.message
    check_names("run", ["seconds"], ["steps", "whatever"], STRICT)


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"properties": {"a": {}}, "additionalProperties": {"type": "string"}},
        {"properties": {"a": {}}, "anyOf": [{"properties": {"b": {}}}]},
        {"properties": {"a": {}}, "patternProperties": {"^x": {}}},
    ],
)
def test_schema_that_may_mean_other_names_lets_them_pass(schema: object) -> None:
    check_names("run", ["b"], [], json.dumps({"inputSchema": schema}).encode())


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=3))


@given(JSON)
def test_any_json_value_arrives_where_the_schema_does_not_say_text(value: Any) -> None:
    text = json.dumps(value)
    assert json.loads(bytes(compose({}, {"unknown": text}, DEFINITION))) == {"unknown": value}


@given(st.text())
def test_any_text_arrives_where_the_schema_wants_text(text: str) -> None:
    assert json.loads(bytes(compose({}, {"text": text}, DEFINITION))) == {"text": text}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call"], "Missing argument 'NAME'. mcp-hub tools lists the names."),
        (["restart"], "Missing argument 'SERVER'. mcp-hub list names the servers."),
        (["enable"], "Missing argument 'SERVER...'. mcp-hub list names the servers."),
        (["resume"], "Missing argument 'STREAM'. mcp-hub streams lists them."),
        (["search"], "Missing argument 'QUERY...'. For example: mcp-hub search create an issue"),
        (["add"], "For example: mcp-hub add time -- uvx mcp-server-time"),
        (["-c", "x.yaml", "list"], "Options stand behind the command: mcp-hub COMMAND -c …"),
        (["add", "time", "--command", "uvx"], "No such option '--command'. The command stands behind --"),
        (["leave", "--wat"], "No such option '--wat'. Did you mean '--wait'?"),
        (["call", "nope"], "Unknown tool: nope. List them with: mcp-hub tools [unknown_entry]"),
        (["secrets"], 'There is no command "secrets". mcp-hub edit opens the configuration, which names them'),
        (["start"], "Clients start the hub themselves. mcp-hub open starts it in the background"),
        (["Validate"], "mcp-hub check reads the configuration, mcp-hub doctor tries servers."),
        (["lst"], 'There is no command "lst". Did you mean "list"?'),
        (["resume", "st_nope"], "or never existed. List them with: mcp-hub streams [unknown_stream]"),
    ],
)
def test_wrong_command_line_is_answered_with_the_right_one(words: list[str], said: str, person: Path) -> None:
    (person / "servers.yaml").write_text("servers: {}")
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 2 and said in " ".join(done.output.split()), done.output


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


def test_a_busy_loop_gives_way_to_the_stores_thread_soon() -> None:
    async def interval() -> float:
        return sys.getswitchinterval()

    assert setup.run(interval) <= 0.001


@pytest.mark.processes
def test_hub_starts_without_what_few_of_its_users_need() -> None:
    # plugins of pydantic read all metadata
    names = ("rich", "importlib.metadata", "json5", "mcp_hub.codes", "uvicorn", "tomllib")
    look = (
        "import sys, mcp_hub.cli, mcp_hub.app.build, mcp_hub.cli.commands.serve; "
        f"print([name for name in sys.modules if name.startswith({names!r})])"
    )
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, timeout=240)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.parametrize("seconds", ["nan", "-nan", "inf", "-1", "soon"])
@pytest.mark.parametrize("command", [["list", "--wait"], ["doctor", "--wait"], ["login", "far", "--timeout"]])
def test_seconds_that_cannot_be_waited_are_a_usage_error(command: list[str], seconds: str) -> None:
    result = CliRunner().invoke(main, [*command, seconds])
    assert result.exit_code == 2
    assert f"Invalid value for '{command[-1]}'" in result.output


@pytest.mark.parametrize("command", ["resume", "cancel"])
@pytest.mark.parametrize("more", [[], ["--url", "http://127.0.0.1:1"]])
def test_a_stream_without_an_id_is_a_usage_error(command: str, more: list[str]) -> None:
    for stream in ("", " "):
        result = CliRunner().invoke(main, [command, stream, *more])
        assert result.exit_code == 2
        assert "Invalid value for 'STREAM': The id of a stream is missing" in result.output


@pytest.mark.parametrize(
    ("error", "stream", "code", "said"),
    [
        (InvalidParams("no"), None, 2, "no [invalid_params]"),
        (InvalidParams("no"), "st_1", 2, "st_1: no [invalid_params]"),
        (
            EventsGone(3),
            "st_1",
            2,
            "st_1: Events after this cursor are gone. The earliest that is kept is 3. [events_gone]",
        ),
        (UpstreamLost("gone"), "st_1", 3, "gone [upstream_crashed]"),
        (StoreError("full"), "st_1", 3, "full [store_unavailable]"),
        (ConfigError(ConfigFinding("not_a_hub", "no hub")), "st_1", 2, "no hub [not_a_hub]"),
    ],
)
def test_errors_of_a_hub_have_their_exit_codes(
    error: HubError, stream: str | None, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fails(_: object) -> int:
        raise error

    with pytest.raises(SystemExit) as left:
        access.run_opened(nullcontext, fails, stream)
    assert (left.value.code, capsys.readouterr().err) == (code, f"{said}\n")

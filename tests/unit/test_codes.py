"""The table of codes: equal to the codes that the package uses, and the source of `docs/errors.md`.

`python -m tests.unit.test_codes` writes the page anew.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final, get_args

import pytest
import yaml
from pydantic import BaseModel

from mcp_hub import errors
from mcp_hub.cli import _COMMANDS as COMMANDS
from mcp_hub.codes.tables import CODES, GROUPS, SERVERS
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import RpcError
from mcp_hub.extras import keyring_command, lasting_install, with_extra

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "errors.md"
PLACE: Final = {
    **dict.fromkeys(("StartFailed", "Incompatible", "_InitializeRefused", "_NotModern", "_IsModern"), 0),
    **dict.fromkeys(("Cause", "Denial", "ConfigFinding", "finding", "Unresolved", "_Unreadable", "fail", "Reason"), 0),
    **dict.fromkeys(("Rejected", "AnotherProcess", "CallFault", "OutputError", "FileRefused", "Repair"), 0),
    **dict.fromkeys(("Problem", "Refusal", "Finding", "Flaw", "_Diagnosis", "_about", "warn", "retire", "refuse"), 1),
    "HttpError": 1,
    "_refusal": 2,
}
"""Which argument of a call is a code."""
FAILURES: Final = ("StartFailed", "Incompatible", "_InitializeRefused", "AnotherProcess", "Cause", "Denial")
"""The calls whose code becomes that of a server."""
OAUTH: Final = Path("mcp_hub/fronts/http/authorization")
"""The authorization server: its `Rejected` have the error codes of OAuth (RFC 6749, 7009, 7591, 8707)."""
KEYWORDS: Final = {"symbol"}
INTRO: Final = """# Error codes

Every failure that you can meet has a stable code. Programs should test for the code: the sentence beside it may change.
`mcp-hub doctor` shows the fix for each server that is not ready.

This page is generated from `mcp_hub/codes`: `python -m tests.unit.test_codes`.
"""
ABOUT: Final = {
    "Servers": """Why a server is not ready. The code is `code` in `GET /v1/servers` and `mcp-hub list --json`, stands
in brackets behind the reason in `mcp-hub list`, is a label of the metric `mcp_hub_server_failure`,
and is `data.upstream.code` of the error that a call gets. A server that the hub gave up (`failed`)
keeps the code of its last failure.""",
    "Configuration": """Findings about the configuration. The code stands in brackets at the end of each line, and
is `code` in `findings` of `mcp-hub check --json`.""",
    "Calls": """`data.code` of JSON-RPC errors that the hub makes itself, and `code` of `error` events and of
problems of the REST API. Errors whose `data` the specification of MCP defines (-32020 to -32099) have no `data.code`:
their number says all. An error of a server is relayed as it is: the hub adds nothing to it.""",
    "HTTP": """`code` of `application/problem+json` and of `reasons` in `/readyz?verbose`, and `data.code` of the
JSON-RPC error with which the MCP endpoints refuse a request.""",
    "Model output": """`code` of the `error` events of a model's output ([prompted.md](prompted.md)), whose message is
written for the model. A tool that does not exist has the code `unknown_tool`.""",
    "Commands": """The code stands in brackets at the end of the message of a command. Names that do not exist have the
same codes in the configuration and the REST API.""",
}


def page() -> str:
    parts = [INTRO]
    for title, group in GROUPS.items():
        rows = [f"| `{code}` | {advice.meaning} | {advice.fix} |" for code, advice in group.items()]
        parts.append(
            "\n".join(
                [f"\n## {title}\n", ABOUT[title], "", "| code | meaning | fix |", "| --- | --- | --- |", *rows, ""]
            )
        )
    return "".join(parts)


@cache
def modules() -> list[tuple[Path, list[ast.Call], set[str]]]:
    """The calls in each module, and its texts."""
    paths = [path for path in sorted((ROOT / "mcp_hub").rglob("*.py")) if path.parent.name != "codes"]
    return [(path.relative_to(ROOT), *_calls_and_texts(ast.parse(path.read_text()))) for path in paths]


def _calls_and_texts(tree: ast.Module) -> tuple[list[ast.Call], set[str]]:
    nodes = list(ast.walk(tree))
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    return [node for node in nodes if isinstance(node, ast.Call)], words


def texts(node: ast.expr) -> Iterator[str]:
    """The text of a literal, and of both branches of a choice."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def codes_of(call: ast.Call) -> Iterator[str]:
    function = call.func
    name = (
        function.id if isinstance(function, ast.Name) else function.attr if isinstance(function, ast.Attribute) else ""
    )
    place = PLACE.get(name)
    is_finding = name == "error" and isinstance(function, ast.Attribute) and ast.unparse(function.value) == "report"
    if is_finding:
        place = 1
    if place is not None and len(call.args) > place:
        yield from texts(call.args[place])
    for keyword in call.keywords:
        if keyword.arg in KEYWORDS:
            yield from texts(keyword.value)


@pytest.mark.slow
def test_every_code_that_is_raised_is_in_the_table_and_every_code_of_it_is_used() -> None:
    unknown = [
        f"{path}:{node.lineno}: {code}"
        for path, calls, _ in modules()
        for node in calls
        if not (path.is_relative_to(OAUTH) and getattr(node.func, "id", "") == "Rejected")
        for code in codes_of(node)
        if code not in CODES
    ]
    assert not unknown, "\n".join(unknown)
    found = {
        code: f"{path}:{node.lineno}"
        for path, calls, _ in modules()
        if path.parts[1] == "upstreams"
        for node in calls
        if getattr(node.func, "id", "") in FAILURES
        for code in codes_of(node)
    }
    assert len(found) > 20
    assert {code: place for code, place in found.items() if code not in SERVERS} == {}
    words = {word for _, _, words in modules() for word in words}
    assert sorted(CODES.keys() - words) == []


@pytest.mark.parametrize("number", [-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022])
def test_a_number_of_the_protocol_has_a_code_of_the_table(number: int) -> None:
    assert RpcError("x", code=number).symbol in CODES


def test_code_is_in_one_group_says_what_to_do_and_every_error_of_a_call_has_one() -> None:
    assert sum(map(len, GROUPS.values())) == len(CODES)
    for code, advice in CODES.items():
        assert code.replace("_", "").isalpha() and code.islower(), code
        assert advice.meaning.endswith(".") and advice.fix.endswith("."), code
        assert "|" not in advice.meaning + advice.fix, code
    found = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, RpcError)]
    assert len(found) > 10
    assert [own.__name__ for own in found if own.symbol not in CODES] == []


def _fields(kind: object) -> dict[str, object]:
    """The settings of a model, or of one that is among several types, with their types."""
    models = [kind, *get_args(kind)]
    model = next(one for one in models if isinstance(one, type) and issubclass(one, BaseModel))
    return {name: field.annotation for name, field in model.model_fields.items()}


def _plain_words(kind: object) -> str:
    """The words that stand for a whole section, such as `dashboard: full`."""
    if not (isinstance(kind, type) and issubclass(kind, BaseModel) and "mode" in kind.model_fields):
        return ""
    return str(kind.model_fields["mode"].annotation)


def test_advice_names_commands_settings_and_values_that_exist() -> None:
    quoted = {text for advice in CODES.values() for text in re.findall("`([^`]+)`", advice.fix)}
    assert {"era: follow", "mcp-hub doctor", "hub.http.cors"} <= quoted
    for text in quoted:
        name, _, value = text.partition(": ")
        if text.startswith("mcp-hub "):
            assert text.split()[1] in COMMANDS, text
        elif name.startswith("hub."):
            kind: object = Settings
            for part in name.split("."):
                kind = _fields(kind)[part]
            assert not value or f"'{value}'" in str(kind) + _plain_words(kind), text
        elif name in ServerSettings.model_fields and value.isidentifier():
            entry = ServerSettings.model_validate({"command": "x", name: yaml.safe_load(value)})
            assert getattr(entry, name) == yaml.safe_load(value), text


def test_page_of_codes_is_up_to_date_and_no_advice_names_one_way_of_installing() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m tests.unit.test_codes"
    sources = {path: path.read_text() for path in (ROOT / "mcp_hub").rglob("*.py")}
    advice = re.compile(r"(pip|pipx|uv|tool) install|install .{0,3}mcp-hub\[")
    assert [path.name for path, text in sources.items() if advice.search(text)] == ["extras.py"]
    pages = {path: path.read_text() for path in (ROOT / "docs").glob("*.md")}
    assert not [path.name for path, text in pages.items() if re.search(r"pip install .?mcp-hub\[", text)]


if __name__ == "__main__":
    PAGE.write_text(page())


@pytest.mark.parametrize(
    ("files", "is_local", "command"),
    [
        (["pipx_metadata.json"], False, r"pipx install --force 'mcp-hub\[.*otel.*\]'"),
        (["uv-receipt.toml"], False, r"uv tool install --force 'mcp-hub\[.*otel.*\]'"),
        (["uv-receipt.toml"], True, r"uv tool install --force '/a b/hub\[.*otel.*\]'"),
        ([], False, r"(PREFIX/bin/python -m|uv) pip install .*'mcp-hub\[otel\]'"),
        (["lib/pyproject.toml"], False, r"(PREFIX/bin/python -m|uv) pip install .*--editable 'PREFIX/lib\[otel\]'"),
    ],
)
def test_an_extra_is_added_in_the_way_in_which_the_hub_was_installed(
    tmp_path: Path, files: list[str], is_local: bool, command: str
) -> None:
    package = tmp_path / "lib" / "mcp_hub"
    record = tmp_path / "lib" / "mcp_hub-1.dist-info" / "direct_url.json"
    for file in (package / "x", record, *(tmp_path / name for name in files)):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"url": "file:///a%20b/hub"}' if is_local else "{}")
    done = with_extra("otel", str(tmp_path), package)
    assert re.fullmatch(command.replace("PREFIX", re.escape(str(tmp_path))), done), done


@pytest.mark.parametrize(
    ("prefix", "command"),
    [
        ("/home/a/.cache/uv/archive-v0/x", "uv tool install mcp-hub"),
        ("/x/uv/archive-v0/x", "uv tool install mcp-hub"),
        ("/home/a/.local/share/pipx/.cache/0123", "pipx install mcp-hub"),
        ("/home/a/.local/share/pipx/venvs/mcp-hub", None),
    ],
)
def test_hub_in_a_cache_is_installed_to_stay_by_the_tool_of_the_cache(prefix: str, command: str | None) -> None:
    assert lasting_install(prefix) == command
    if command is not None:
        assert re.match(rf"{command.removesuffix(' mcp-hub')} (--editable )?\S*\[.*top", with_extra("top", prefix))


def test_keyring_is_named_by_its_path_where_no_shell_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert keyring_command("mcp-hub", "a") == "keyring set mcp-hub a"
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/keyring").touch()
    assert keyring_command("mcp-hub", "a") == f"{tmp_path}/bin/keyring set mcp-hub a"

"""The verdicts of `mcp-hub doctor`, as a table over states, reasons and lists."""

import re

import pytest
from msgspec.structs import replace

from mcp_hub.catalog.filters import Filter
from mcp_hub.catalog.view import ServerRules, ViewRules, build
from mcp_hub.cli.diagnosis import CODES, Diagnosis, diagnose
from mcp_hub.types import Era, Kind, Snapshot, UpstreamState, UpstreamStatus

TOOL = b'{"name":"t","inputSchema":{"type":"object"}}'
UNFIT = b'{"name":"u","inputSchema":{"type":"array"}}'
PROMPT = b'{"name":"p"}'
FULL = Snapshot("s", Era.HANDSHAKE, {Kind.TOOL: (TOOL,)})


def verdict(status: UpstreamStatus, offered: Snapshot | None = None, tools: Filter | None = None) -> Diagnosis:
    rules = ServerRules() if tools is None else ServerRules(tools=tools)
    view = build([] if offered is None else [offered], ViewRules({"s": rules}))
    return diagnose(status, offered, view)


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("command not found: uvx (searched: /bin)", "command_not_found"),
        ("cannot start /bin/x: no such file", "command_not_found"),
        ("cannot start /bin/x: the interpreter that its first line (#!) names does not exist", "command_not_found"),
        ("cannot start /bin/x: no permission to execute it", "cannot_start"),
        ("cannot start /bin/x: working directory /y does not exist", "cannot_start"),
        ("command is a folder: /bin", "cannot_start"),
        ("command is not executable: /etc/hosts", "cannot_start"),
        ('local "a:b": no module a (searched: /x)', "import_failed"),
        ("exited with code 3; last output: boom", "start_crashed"),
        ("exited with code 0", "not_mcp"),
        ("killed by SIGSEGV (gave up after 6 failures in 60 s)", "start_crashed"),
        ("ended when asked server/discover: exited with code 1", "start_crashed"),
        ("exited with code 0; last output: stdout: usage: server [mcp]", "not_mcp"),
        ("not ready within 60 s; last output: stdout: listening on port 8000", "not_mcp"),
        ('initialize failed: upstream "s" answered with something that cannot be read: x', "not_mcp"),
        ("initialize failed: this client has no method initialize", "not_mcp"),
        ("not ready within 60 s; last output: waiting for a database", "start_timeout"),
        ("server/discover failed: Method not found", "era_mismatch"),
        ("initialize failed: Unsupported protocol version", "era_mismatch"),
        ("initialize settled on no handshake version: None", "era_mismatch"),
        ("initialize failed: license expired", "handshake_failed"),
        ('initialize failed: upstream "s" answered with HTTP 500 Internal Server Error', "server_error"),
        ('server/discover failed: upstream "s" answered with HTTP 503', "server_error"),
        ('upstream "s" answered with HTTP 502 Bad Gateway', "server_error"),
        ('initialize failed: upstream "s" answered with HTTP 404 Not Found', "no_endpoint"),
        (
            'initialize failed: upstream "s" answered with HTTP 405; '
            'as a server of the HTTP+SSE transport: upstream "s" answered with HTTP 500',
            "no_endpoint",
        ),
        ('initialize failed: upstream "s" answered with HTTP 429 Too Many Requests', "handshake_failed"),
        ("tools/list failed: no database", "list_failed"),
        ("internal error: oops", "start_failed"),
    ],
)
@pytest.mark.parametrize("state", [UpstreamState.FAILED, UpstreamState.BACKING_OFF, UpstreamState.STARTING])
def test_reason_of_a_server_that_is_not_ready_has_a_code(state: UpstreamState, reason: str, code: str) -> None:
    assert verdict(UpstreamStatus("s", state, reason)).code == code


def test_server_that_only_just_started_is_slow() -> None:
    assert verdict(UpstreamStatus("s", UpstreamState.STARTING)).code == "start_timeout"


def test_incompatible_server_is_of_another_era() -> None:
    assert verdict(UpstreamStatus("s", UpstreamState.INCOMPATIBLE)).code == "era_mismatch"


@pytest.mark.parametrize(
    ("offered", "hides", "code"),
    [
        (FULL, None, "ok"),
        (replace(FULL, lists={Kind.PROMPT: (PROMPT,)}), None, "ok"),
        (replace(FULL, lists={}), None, "no_tools"),
        (FULL, Filter(deny=("*",)), "all_filtered"),
        (replace(FULL, lists={Kind.TOOL: (TOOL, UNFIT)}), None, "definitions_quarantined"),
    ],
)
def test_ready_server_is_judged_by_what_clients_get(offered: Snapshot, hides: Filter | None, code: str) -> None:
    found = verdict(UpstreamStatus("s", UpstreamState.READY), offered, hides)
    assert found.code == code
    assert found.is_ok == (code == "ok")


def test_quarantined_definition_is_named_with_its_reason() -> None:
    offered = replace(FULL, lists={Kind.TOOL: (TOOL, UNFIT)})
    assert re.match(r"tool u: .*type", verdict(UpstreamStatus("s", UpstreamState.READY), offered).problem)


def test_disabled_server_is_no_problem() -> None:
    assert verdict(UpstreamStatus("s", UpstreamState.DISABLED)).is_ok


def test_last_lines_go_with_the_verdict() -> None:
    status = UpstreamStatus("s", UpstreamState.FAILED, "exited with code 3; last output: boom", stderr=("a", "boom"))
    assert verdict(status) == Diagnosis("s", "start_crashed", "exited with code 3", ("a", "boom"))


def test_every_problem_says_how_to_mend_it() -> None:
    assert [code for code, mend in CODES.items() if not mend] == ["ok"]

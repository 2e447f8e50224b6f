"""States of servers for people: reasons without doubled output, protocols, no secrets."""

import pytest

from mcp_hub.catalog.flags import Flag
from mcp_hub.catalog.trust.scan import Flagged
from mcp_hub.catalog.view import ServerRules, ViewRules, build
from mcp_hub.cli.access.embedded import unknown_tool
from mcp_hub.cli.access.following import exit_code
from mcp_hub.cli.access.waiting import has_settled, not_ready, starting_text
from mcp_hub.cli.commands.list import exit_code as list_exit_code
from mcp_hub.cli.render.notices import notices_of
from mcp_hub.cli.render.tables import last_lines, masked, protocol, quarantine_table, reason, reasons, server_data
from mcp_hub.errors import DeadlineExceeded, InvalidParams, RpcError, UnknownEntry, UpstreamLost, UpstreamUnavailable
from mcp_hub.types import Era, Kind, Snapshot, UpstreamState, UpstreamStatus

READY = UpstreamStatus("git", UpstreamState.READY)
DOWN = UpstreamStatus("fs", UpstreamState.FAILED, "command not found: npx")
YOUNG = UpstreamStatus("db", UpstreamState.STARTING)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, ""),
        ("exited with code 3", "exited with code 3"),
        ("exited with code 3; last output: a | b", "exited with code 3"),
        ("exited; last output: a (gave up after 6 failures in 60 s)", "exited (gave up after 6 failures in 60 s)"),
    ],
)
def test_reason_comes_without_the_output(text: str | None, said: str) -> None:
    assert reason(UpstreamStatus("s", UpstreamState.FAILED, text)) == said


def test_last_lines_are_stray_stdout_and_the_end_of_stderr() -> None:
    status = UpstreamStatus("s", UpstreamState.FAILED, "x; last output: stdout: hi | z", stderr=tuple("uvwxyz"))
    assert last_lines(status) == ["v", "w", "x", "y", "z"]
    assert last_lines(UpstreamStatus("s", UpstreamState.FAILED, "x; last output: stdout: hi")) == ["stdout: hi"]


def test_protocol_names_version_and_era() -> None:
    assert (
        protocol(UpstreamStatus("s", UpstreamState.READY, era=Era.MODERN, version="2026-07-28"))
        == "2026-07-28 (modern)"
    )
    assert protocol(UpstreamStatus("s", UpstreamState.READY, era=Era.HANDSHAKE)) == "handshake"
    assert protocol(DOWN) == ""


def test_secrets_are_blacked_out_longest_first() -> None:
    assert masked("token abcdef-long, abcdef", {"abcdef", "abcdef-long"}) == "token ***, ***"


def test_reasons_hold_neither_secrets_nor_control_characters() -> None:
    status = UpstreamStatus("s", UpstreamState.FAILED, "bad key hunter22", stderr=("\x1b[31mhunter22",))
    assert reasons([status], {"hunter22"}) == [("s is failed: bad key ***", ""), ("  | \\x1b[31m***", "dim")]


def test_data_of_a_server_counts_what_clients_get_and_names_what_they_do_not() -> None:
    tools = (b'{"name":"t","inputSchema":{"type":"object"}}', b'{"name":"u"}')
    view = build([Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: tools})], ViewRules({"git": ServerRules()}))
    found = server_data(READY, view, ())
    assert (found["tools"], found["prompts"]) == (1, 0)
    assert [bad["key"] for bad in found["quarantined"]] == ["u"]


def test_server_has_settled_once_its_first_start_is_over() -> None:
    again = UpstreamStatus("s", UpstreamState.STARTING, restarts=1)
    assert [has_settled(status) for status in (READY, DOWN, YOUNG, again)] == [True, True, False, True]
    assert starting_text([READY, YOUNG]) == "starting db …"
    assert starting_text([READY]) == ""


def test_list_fails_when_an_enabled_server_is_not_ready() -> None:
    disabled = UpstreamStatus("s", UpstreamState.DISABLED)
    assert list_exit_code([READY, disabled]) == 0
    assert [list_exit_code([READY, bad]) for bad in (DOWN, YOUNG)] == [3, 3]
    assert not_ready([READY, disabled, DOWN]) == [DOWN]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnknownEntry("x"), 2),
        (UpstreamUnavailable("x"), 3),
        (UpstreamLost("x"), 3),
        (DeadlineExceeded("x"), 3),
        (RpcError("x", code=-5), 1),
        (InvalidParams("x"), 1),
    ],
)
def test_error_has_an_exit_code(error: RpcError, code: int) -> None:
    assert exit_code(error) == code


def test_unknown_tool_names_the_nearest_and_what_may_have_had_it() -> None:
    error = unknown_tool("lgo", ["git_log"], [READY, DOWN], {"git": "git", "fs": "fs"})
    assert exit_code(error) == 2
    assert "did you mean git_log?" in error.message
    assert "not ready: fs" in error.message


def test_tool_with_the_prefix_of_a_server_that_is_down_is_unavailable() -> None:
    error = unknown_tool("files_read", [], [READY, DOWN], {"git": "git", "fs": "files"})
    assert exit_code(error) == 3
    assert error.message == 'upstream "fs" is failed: command not found: npx'


def test_what_a_server_calls_itself_and_its_unfit_definitions_holds_no_secret() -> None:
    view = build(
        [Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: (b'{"name":"u-hunter22"}',)})], ViewRules({"git": ServerRules()})
    )
    about = {"name": "x", "more": ["hunter22", 1]}
    found = server_data(UpstreamStatus("git", UpstreamState.READY, server_info=about), view, {"hunter22"})
    assert found["quarantined"][0]["key"] == "u-***"
    assert found["serverInfo"] == {"name": "x", "more": ["***", 1]}
    assert [str(cell) for cell in quarantine_table(view, {"hunter22"}).columns[2].cells] == ["u-***"]


def test_flags_as_data_hold_no_secret() -> None:
    flagged = [Flagged("s", "t", "s_t", Flag("hidden", "name", "a<U+200B> hunter22", "why"))]
    (flag,) = notices_of("s", [], flagged, {"hunter22"})["flags"]
    assert flag["text"] == "a<U+200B> ***"

"""The verdicts of `mcp-hub doctor`, as a table over states, codes and lists."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec import UNSET

from mcp_hub.cli import main
from mcp_hub.cli.commands.doctor import Diagnosis, diagnose, told_apart
from mcp_hub.cli.render.notices import notices
from mcp_hub.cli.render.servers import status_of
from mcp_hub.codes.tables import CODES, COMMANDS, SERVERS
from mcp_hub.errors import StartFailed
from mcp_hub.protocol.rest.servers import FlagInfo, ServerInfo
from mcp_hub.types import UpstreamState
from mcp_hub.upstreams.process.commands import resolve

BAD = "tool u is left out: its inputSchema is not of type object"
UNSTEADY = "tools: the list is another one at each reading"


def server(state: UpstreamState, reason: str | None = None, code: str | None = None, **more: object) -> ServerInfo:
    said = {"reason": UNSET if reason is None else reason, "code": UNSET if code is None else code}
    return ServerInfo("s", state.value, 0, **said, **more)  # type: ignore[arg-type]  # by name


def verdict(*about: object, **more: object) -> Diagnosis:
    return diagnose(server(*about, **more))  # type: ignore[arg-type]  # as `server` takes it


NOT_READY = (UpstreamState.FAILED, UpstreamState.BACKING_OFF, UpstreamState.STARTING, UpstreamState.INCOMPATIBLE)


@pytest.mark.parametrize("state", NOT_READY)
@pytest.mark.parametrize("code", SERVERS)
def test_server_that_is_not_ready_keeps_its_code_and_gets_its_advice(state: UpstreamState, code: str) -> None:
    found = verdict(state, "any sentence", code)
    assert (found.code, found.problem, found.fix) == (code, "any sentence", CODES[code].fix_of("s"))


def test_server_that_only_just_started_is_slow() -> None:
    assert verdict(UpstreamState.STARTING).code == "start_timeout"


@pytest.mark.parametrize(
    ("lists", "code"),
    [
        ({"entries": {"tool": 1}, "offered": {"tool": 1}}, "ok"),
        ({"entries": {"prompt": 1}, "offered": {"prompt": 1}}, "ok"),
        ({"entries": {"tool": 1}}, "ok"),
        ({"entries": {}, "offered": {}}, "no_tools"),
        ({"entries": {"tool": 1}, "offered": {}}, "all_filtered"),
        ({"entries": {"tool": 1}, "offered": {"tool": 1}, "unsteady": [UNSTEADY]}, "lists_unsteady"),
        (
            {"entries": {"tool": 2}, "offered": {"tool": 1}, "warnings": ["late", BAD], "quarantined": 1},
            "definitions_quarantined",
        ),
    ],
)
def test_ready_server_is_judged_by_what_clients_get(lists: dict[str, object], code: str) -> None:
    found = verdict(UpstreamState.READY, **lists)
    assert found.code == code and found.fix == CODES[code].fix
    assert found.is_ok == (code == "ok")
    assert found.problem == BAD or code != "definitions_quarantined"
    assert found.problem == UNSTEADY or code != "lists_unsteady"


def test_disabled_server_and_one_that_rests_are_no_problem() -> None:
    assert verdict(UpstreamState.DISABLED).is_ok
    assert verdict(UpstreamState.STOPPED, "it starts when it is needed", "not_started", rests=True).is_ok
    assert not verdict(UpstreamState.STOPPED, "stopped", "stopped").is_ok


def test_last_lines_go_with_the_verdict() -> None:
    own = server(UpstreamState.FAILED, "exited with code 3. Last output: boom", "start_crashed", stderr=["a", "boom"])
    assert diagnose(own) == Diagnosis(status_of(own), "start_crashed", "exited with code 3", ("a", "boom"))


def messages() -> list[tuple[str, str]]:
    """Each code of a server with a message that the hub has for it."""
    found = [(code, advice.meaning + " " + advice.fix) for code, advice in {**SERVERS, **COMMANDS}.items()]
    for command in ("bunx", "denoo", "npx -y x", "./gone", "/tmp", "gone"):
        with pytest.raises(StartFailed) as failure:
            resolve(command, "/nowhere", "/nowhere", "/nowhere")
        found += [(failure.value.code, str(failure.value)), (failure.value.code, failure.value.brief)]
    for said in (
        'https://a requires a login: run "mcp-hub login team" (HTTP 401)',
        'https://a wants credentials: run "mcp-hub login team", or set "bearer" or "headers" (HTTP 403)',
        'https://a wants credentials: set "bearer" or "headers" (HTTP 401)',
    ):
        found.append(("login_needed", said))
    return [*found, ("login_missing", 'server "a" has no login on this machine. Run mcp-hub login a')]


def test_problem_says_what_is_and_fix_what_to_do() -> None:
    verbs = {advice.fix.split()[0].lower() for advice in CODES.values()}
    for code, message in messages():
        found = verdict(UpstreamState.FAILED, message, code)
        sentences = re.split(r"[.:] ", found.problem)[1:]  # the first says what is
        assert not [one for one in sentences if one.split()[0].lower() in verbs], (message, found.problem)
        fix = found.advice or found.fix
        assert fix and found.problem, message
        assert fix not in found.problem and not {*sentences} & {*re.split(r"[.:] ", fix)}, message
        assert len(found.problem + fix) > len(message) / 2, message
    found = verdict(
        UpstreamState.FAILED, 'https://a requires a login: run "mcp-hub login team" (HTTP 401)', "login_needed"
    )
    assert (found.problem, found.advice) == ("https://a requires a login (HTTP 401)", 'Run "mcp-hub login team".')
    assert told_apart("Error: x. Read timed out.") == ("Error: x. Read timed out.", "")


BROKEN = """\
servers:
  jobs: {local: "mcp_hub.examples.jobs:registry"}
  shop: {command: echo, args: ["${NOT_SET}"], env: {A: "${ALSO_NOT_SET}", B: "${file:/nope/secret}"}}
  away: {command: /nope/program}
  gone: {command: no-such-program}
"""


@pytest.mark.parametrize("words", ["list", "tools", "tokens", "search job", "doctor"])
def test_command_that_lists_servers_names_each_failure_once(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "servers.yaml"
    file.write_text(BROKEN)
    for name in ("HOME", "MCP_HUB_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "state"))
    done = CliRunner().invoke(main, [*words.split(), "--config", str(file)])
    assert done.exit_code == (0 if words.startswith("search") else 3), done.output
    for failure in (" NOT_SET is not set", "command not found: /nope/program", "command not found: no-such-program"):
        assert done.output.count(failure) == 1, done.output
    assert "Failed:" not in done.output and "path_missing" not in done.output
    if words == "doctor":
        assert f"{file}:3: servers.shop.args[0]\n" in done.output
        assert f"{file}:3: servers.shop.env.A: environment variable ALSO_NOT_SET is not set" in done.output
        assert "that do not exist" in done.output and max(map(len, done.output.splitlines())) < 250
    elif words == "list":
        monkeypatch.setenv("MCP_HUB_CONFIG", str(file))
        assert CliRunner().invoke(main, ["call", "jobs_wait", "seconds=0"]).output.count(" NOT_SET is not set") == 1


def test_advice_has_the_name_of_the_server() -> None:
    own = ServerInfo("two words", "failed", 0, code="lookup_failed", reason="gave no value")
    assert "`mcp-hub restart 'two words'`" in diagnose(own).fix and "SERVER" not in diagnose(own).fix


@pytest.mark.parametrize(
    ("overlay", "where", "reason"),
    [
        ("disable: [a]\ndisabel: [b]\n", ":2", "disabel: "),
        ("disable: [\n", ":2", "[invalid_yaml]"),
        ("command: [" + "x" * 5000 + "]\n", ":1", "[unknown_key]"),
        ("enable: [jobs, nope]\n", "", 'there is no server "nope" [overlay_in_vain]'),
    ],
)
def test_refused_file_of_a_project_is_named_by_the_commands_that_a_person_looks_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlay: str, where: str, reason: str
) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / ".mcp-hub.yaml").write_text(overlay)
    monkeypatch.chdir(project / "src")
    (tmp_path / "servers.yaml").write_text('servers: {jobs: {local: "mcp_hub.examples.jobs:registry"}}')
    for name in ("HOME", "MCP_HUB_STATE_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "state"))
    for words in (["list"], ["doctor"], ["check", "--no-start"], ["status"]):
        said = CliRunner().invoke(main, [*words, "--config", str(tmp_path / "servers.yaml")]).stderr
        lines = [line for line in said.splitlines() if ".mcp-hub.yaml" in line]
        if where:
            assert len(lines) == 1 and f"warning: {project}/.mcp-hub.yaml{where}" in lines[0] and reason in lines[0], (
                said
            )
            assert "start in this project get no tools" in lines[0] and len(lines[0]) < 2500
        else:
            assert any(reason in line for line in lines) is (words != ["status"]), said


def test_servers_whose_names_look_alike_have_one_warning() -> None:
    def flags(server: str, other: str) -> list[FlagInfo]:
        why = "looks like {}_{} of another server"
        found = [FlagInfo(tool, "lookalike", "name", why.format(other, tool), f"{server}_{tool}") for tool in "ab"]
        return [*found, FlagInfo("a", "order", "description", "orders the model", "ignore all")]

    servers = [
        ServerInfo(name, "ready", 2, flags=flags(name, other)) for name, other in (("time", "Time"), ("Time", "time"))
    ]
    texts = [str(one) for one in notices([ServerInfo("x", "ready", 0), *servers])]
    assert len(texts) == 3 and sum("orders the model" in text for text in texts) == 2
    assert "servers.time: its name looks like Time, and so do the names of 2 tools" in texts[0]
    stranger = [ServerInfo("git", "ready", 1, flags=flags("git", "jit_x"))]
    assert len(notices(stranger)) == 3, "the names of the servers do not look alike"

"""Completion in shells: names from the configuration and from what hubs remember, and never a server that starts."""

import shlex
import subprocess
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from mcp_hub.app.upstream_factory import last_lists, list_file
from mcp_hub.cli import main
from mcp_hub.cli.completion import VARIABLE
from mcp_hub.config.load.load import load
from mcp_hub.types import Era, Kind, Snapshot
from mcp_hub.upstreams.lists.list_reader import CachedList
from tests.unit.cli.command import COMMAND, SECONDS, command_env, hub

CONFIG = """
servers:
  git: {command: /no/such/program, args: ["${MISSING:-x}"], rename: {log: history}}
  github: {url: "https://example.com/mcp"}
  jobs: {local: "no_such_module:registry"}
profiles: {review: {servers: [git]}}
hub: {clients: {my-agent: {matches: [x]}}}
"""


@pytest.fixture
def folder(person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, "bash_complete")
    (person / "servers.yaml").write_text(CONFIG)
    return person


def offered(*line: str) -> list[str]:
    return [
        item.value for item in BashComplete(main, {}, "mcp-hub", VARIABLE).get_completions(list(line[:-1]), line[-1])
    ]


def remember(folder: Path) -> None:
    """The last lists of the server `git`, as a hub would write them."""
    settings = load(folder / "servers.yaml", {}).settings
    file = list_file(folder / "state" / "lists", "git", settings.servers["git"])
    raws = tuple(b'{"name":"%s","inputSchema":{"type":"object"}}' % name for name in (b"diff", b"log"))
    snapshot = Snapshot("git", Era.HANDSHAKE, {Kind.TOOL: raws}, {})
    file.write(CachedList(snapshot, "2025-11-25", {}, 0.0))
    assert [own.server for own in last_lists(settings, folder / "state" / "lists")] == ["git"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (("st",), ["status", "stop", "streams"]),
        (("remove", "git", "j"), ["jobs"]),
        (("enable", "gith"), ["github"]),
        (("disable", "j"), ["jobs"]),
        (("install", "cur"), ["cursor"]),
        (("uninstall", "codex", "claude-d"), ["claude-desktop"]),
        (("import", "cur"), ["cursor", "cur"]),
        (("logs", "g"), ["git", "github"]),
        (("logs", "git", "--f"), ["--follow"]),
        (("doctor", "jobs", "g"), ["git", "github"]),
        (("restart", ""), ["git", "github", "jobs"]),
        (("tools", "--server", "j"), ["jobs"]),
        (("search", "--profile", ""), ["review"]),
        (("serve", "--client", "my"), ["my-agent"]),
        (("export", "cur"), ["cursor"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("resume", ""), []),
        (("call", ""), []),
    ],
)
def test_names_are_offered_where_they_belong(folder: Path, line: tuple[str, ...], expected: list[str]) -> None:
    assert offered(*line) == expected


def test_tools_are_those_of_the_last_lists_and_another_configuration_on_the_line_is_used(folder: Path) -> None:
    remember(folder)
    assert offered("call", "") == ["git_diff", "history"]
    (folder / "other.yaml").write_text("servers: {other: {command: x}}")
    assert offered("logs", "--config", str(folder / "other.yaml"), "") == ["other"]


@pytest.mark.parametrize(
    "text", ["servers: {a: {command: x, env: {T: '${keyring:a/b}'}}}", "servers: {", "servers: {a: {}}", None]
)
def test_a_mistake_or_a_keyring_offers_nothing_and_says_nothing(
    folder: Path, text: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "servers.yaml").unlink()
    if text is not None:
        (folder / "servers.yaml").write_text(text)
    assert offered("logs", "") == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.processes
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_command_and_its_variable(tmp_path: Path, shell: str) -> None:
    script = hub(tmp_path, "completion", shell).stdout
    assert f"{VARIABLE}={shell}_complete" in script and "mcp-hub" in script
    if shell == "bash":
        program = tmp_path / "mcp-hub"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(COMMAND)} "$@"\n')
        program.chmod(0o755)
        line = "COMP_WORDS=(mcp-hub log); COMP_CWORD=1; _mcp_hub_completion ./mcp-hub; echo ${COMPREPLY[*]}"
        run = ["bash", "--norc", "-c", f"{script}\n{line}"]
        env = {name: value for name, value in command_env(tmp_path).items() if name != VARIABLE}
        done = subprocess.run(run, capture_output=True, text=True, env=env, cwd=tmp_path, timeout=SECONDS)
        assert done.stdout == "login logout logs\n", done.stderr

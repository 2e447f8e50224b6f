"""`mcp-hub import` from the clients of a home folder: what is taken, under which names, and where secrets go."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from mcp_hub import masking
from mcp_hub.cli.commands.clients import install
from mcp_hub.cli.commands.clients.install import Options, install_into, moved_servers
from mcp_hub.config.load.load import load
from mcp_hub.edit import entries as edit
from mcp_hub.onboarding.clients.model import Where
from mcp_hub.onboarding.clients.reading import client_files
from mcp_hub.onboarding.clients.table import CLIENTS
from mcp_hub.onboarding.imports import plan
from mcp_hub.onboarding.imports.found import FoundServer
from mcp_hub.onboarding.imports.plan import merged
from mcp_hub.onboarding.servers_file import kept_secrets, servers_file
from tests.unit.cli.homes import CANARIES, FILES, make_home, run

ODD = "we\"ird' & ;   $(x) é"
NAMES = ["time", "github", ODD, "github-cursor", "team", "db", "broken", "everything", "remote", "jobs"]


@pytest.fixture
def home(person: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    make_home(person)
    for name in ("GH2", "GEM_KEY", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MCP_HUB_CONFIG", str(person / "hub" / "servers.yaml"))
    return person


def import_all(*more: str, code: int = 0) -> Result:
    return run("import", "--all", "--yes", "--no-count", *more, code=code)


def servers(home: Path) -> Any:
    return yaml.safe_load((home / "hub" / "servers.yaml").read_text())["servers"]


def snapshot(home: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and path.suffix != ".lock"}


def test_four_clients_with_twelve_servers_give_ten_with_their_secrets_in_files(home: Path) -> None:
    done = import_all()
    assert "10 servers from 4 clients, 2 doubles merged, 2 not taken" in done.stderr
    found = servers(home)
    assert list(found) == NAMES
    assert found["github-cursor"] == {"command": "npx", "args": ["-y", "@x/github"], "env": {"GITHUB_TOKEN": "${GH2}"}}
    assert found["everything"] == {"command": "npx", "args": ["-y", "everything"], "env": {"K": "${GEM_KEY}"}}
    assert found["remote"] == {"url": "https://r.example.com/mcp"}
    assert found["jobs"] == {"command": "jobs-server", "timeout": "60s"}
    assert found[ODD]["args"] == ["-c", "echo 'a \"b\"'; x & é"]
    left_out = ("not taken: off (Cursor)", "not taken: left-out (Gemini CLI)", "everything: the hub", "GH2", "GEM_KEY")
    assert [line for line in left_out if line not in done.stderr] == []
    assert "clock" in done.stdout and "mcp-hub" not in found
    text = (home / "hub" / "servers.yaml").read_text()
    assert not any(canary in text for canary in CANARIES)
    kept = list((home / "hub" / "secrets").iterdir())
    assert {path.stat().st_mode & 0o777 for path in (*kept, home / "hub" / "servers.yaml")} == {0o600}
    holding = [path for path, content in snapshot(home).items() if any(one.encode() in content for one in CANARIES)]
    assert sorted(holding) == sorted([*map(str, kept), *(str(home / name) for name in list(FILES)[:3])])
    loaded = load(home / "hub" / "servers.yaml", {"GH2": "g", "GEM_KEY": "k"}).settings.servers
    assert loaded["github"].env == {"GITHUB_TOKEN": CANARIES[0]}
    assert loaded["team"].sent_headers() == {"Authorization": f"Bearer {CANARIES[1]}"}
    assert loaded["db"].args == ["db-mcp", "--password", CANARIES[2]]
    before = snapshot(home)
    done = import_all()
    assert "0 servers" in done.stderr and "the hub has it already, as github-cursor" in done.stderr
    assert snapshot(home) == before


def test_dry_run_and_json_show_the_plan_and_write_nothing_unasked(home: Path) -> None:
    before = snapshot(home)
    done = run("import", "--all", "--dry-run")
    assert "uvx db-mcp --password '${file:secrets/db.arg2}'" in done.stdout
    assert "10 servers from 4 clients" in done.stderr
    assert f"Would write 10 servers to {home}/hub/servers.yaml" in done.stderr
    assert snapshot(home) == before and not (home / "hub").exists()
    found = json.loads(run("import", "codex", "--dry-run", "--json").stdout)
    assert (found["written"], found["doubles"], found["tokens"]) == (False, 0, None)
    assert [one["name"] for one in found["servers"]] == ["team", "db", "broken"]
    assert found["servers"][1]["entry"]["args"] == ["db-mcp", "--password", "${file:secrets/db.arg2}"]
    assert json.loads(run("import", "codex", "--yes", "--no-count", "--json").stdout)["written"] is True
    again = json.loads(run("import", "codex", "--yes", "--json").stdout)
    assert again["written"] is False and len(again["not_taken"]) == 3


def test_import_keeps_the_comments_and_servers_of_the_configuration(home: Path) -> None:
    (home / "hub").mkdir()
    text = "# top\nservers: # all\n  time: {command: other} # mine\n# end\n"
    (home / "hub" / "servers.yaml").write_text(text)
    import_all()
    after = (home / "hub" / "servers.yaml").read_text()
    head, tail = text.split("# end")
    assert after.startswith(head) and after.endswith(f"# end{tail}")
    assert servers(home)["time"] == {"command": "other"}
    assert servers(home)["time-claude-desktop"] == {"command": "uvx", "args": ["mcp-server-time"]}


def test_one_client_is_imported_alone_and_a_broken_file_stops_no_other(home: Path) -> None:
    run("import", "gemini", "--yes", "--no-count")
    assert list(servers(home)) == ["everything", "remote", "jobs"]
    assert "[unknown_client]" in run("import", "gemeni", code=2).stderr
    assert "[no_terminal]" in run("import", "cursor", code=2).stderr
    run("import", code=2)
    (home / ".cursor" / "mcp.json").write_text("{")
    done = import_all()
    assert "[invalid_json]" in done.stderr and "github" in servers(home)
    assert "[invalid_json]" in run("import", ".cursor/mcp.json", "--yes", code=2).stderr


@pytest.mark.parametrize(
    ("rules", "taken"),
    [
        (None, ["a", "b"]),
        ({}, []),
        ({"enabledMcpjsonServers": ["a"]}, ["a"]),
        ({"enableAllProjectMcpServers": True, "disabledMcpjsonServers": ["b"]}, ["a"]),
    ],
)
def test_project_file_gives_what_its_client_has_approved(home: Path, rules: Any, taken: list[str]) -> None:
    project = home / "work"
    project.mkdir()
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}))
    if rules is not None:
        own = {"projects": {str(project): {**rules, "mcpServers": {"inner": {"command": "z"}}}}}
        (home / ".claude.json").write_text(json.dumps(own))
    done = run("import", "work/.mcp.json", "--yes", "--no-count")
    assert (list(servers(home)) if taken else []) == taken
    assert "Claude Code" in done.stderr or rules is None
    everything = run("import", "--all", "--dry-run")
    assert "work/.mcp.json" not in everything.output  # files of projects are only read if they are named
    assert ("inner" in everything.stderr) == (rules is not None)


def test_entry_of_this_hub_over_http_is_not_imported(home: Path) -> None:
    (home / "hub").mkdir()
    (home / "hub" / "servers.yaml").write_text("hub: {http: {port: 9999}}\nservers: {}\n")
    own = {"mcpServers": {"mine": {"url": "http://localhost:9999/mcp"}, "other": {"url": "http://localhost:9998/mcp"}}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps(own))
    assert "it is this hub" in run("import", "cursor", "--yes", "--no-count").stderr
    assert list(servers(home)) == ["other"]


def test_files_and_keyring_of_this_machine_are_not_looked_up_for_a_server_of_a_file(home: Path) -> None:
    headers = {"A": "${file:~/.ssh/id}", "B": "${keyring:mail/me}", "C": "${SHOWN}"}
    own = {"mcpServers": {"far": {"url": "https://far.example/mcp", "headers": headers}}}
    (home / ".mcp.json").write_text(json.dumps(own))
    done = run("import", ".mcp.json", "--yes", "--no-count")
    expected = {"A": "$${file:~/.ssh/id}", "B": "$${keyring:mail/me}", "C": "${SHOWN}"}
    assert servers(home)["far"]["headers"] == expected
    assert "C='${SHOWN}'" in done.stdout


def test_goose_continue_and_cline_are_read_as_they_write(home: Path) -> None:
    texts = {
        ".config/goose/config.yaml": "extensions:\n  g: {name: g, type: stdio, cmd: goose-x, args: [a], envs: {A: '1'},"
        " env_keys: [TOKEN], enabled: true, timeout: 300}\n  off: {type: stdio, cmd: x, enabled: false}\n",
        ".continue/config.yaml": "mcpServers:\n  - name: c\n    command: cont-x\n    env: {K: '${{ secrets.CK }}'}\n",
        ".cline/data/settings/cline_mcp_settings.json": '{"mcpServers": {"l": {"url": "https://l.example.com/sse"}}}',
    }
    for name, text in texts.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(text)
    run("import", "goose", "continue", "cline", "--yes", "--no-count")
    assert servers(home) == {
        "g": {"command": "goose-x", "args": ["a"], "env": {"TOKEN": "${TOKEN}", "A": "1"}, "timeout": "300s"},
        "c": {"command": "cont-x", "env": {"K": "${CK}"}},
        "l": {"url": "https://l.example.com/sse", "type": "sse"},
    }


def test_keyring_takes_the_secrets_where_it_is_asked_to(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "[keyring_unavailable]" in import_all("--keyring", code=2).stderr
    entries: dict[tuple[str, str], str] = {}

    class Keyring:
        def get_password(self, service: str, name: str) -> str | None:
            return entries.get((service, name))

        def set_password(self, service: str, name: str, value: str) -> None:
            entries[service, name] = value

    monkeypatch.setitem(__import__("sys").modules, "keyring", Keyring())
    import_all("--keyring")
    assert servers(home)["github"]["env"] == {"GITHUB_TOKEN": "${keyring:mcp-hub/github.GITHUB_TOKEN}"}
    assert entries["mcp-hub", "github.GITHUB_TOKEN"] == CANARIES[0] and not (home / "hub" / "secrets").exists()
    assert "0 servers" in import_all("--keyring").stderr


def test_init_imports_what_is_there_or_begins_with_a_clock(home: Path) -> None:
    assert "[no_terminal]" in run("init", code=2).stderr
    assert "mcp-hub install --all --import\n" in run("init", "--yes").stderr
    assert list(servers(home)) == NAMES
    assert "[output_exists]" in run("init", "--yes", code=2).stderr
    (home / "hub" / "servers.yaml").unlink()
    for name in FILES:
        (home / name).unlink()
    assert "No servers of other clients" in run("import", "--all", "--dry-run").stderr
    assert "mcp-hub install --all\n" in run("init", "--yes").stderr
    assert list(servers(home)) == ["time"]


def test_servers_move_with_the_install_and_one_undo_brings_every_byte_back(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")  # no client's own command
    (home / "hub").mkdir()
    (home / "hub" / "servers.yaml").write_text(
        "# mine\nservers:\n  time: {command: uvx, args: [mcp-server-time]} # c\n"
    )
    before = snapshot(home)
    loaded = load(home / "hub" / "servers.yaml", os.environ)
    chosen = [CLIENTS[name] for name in ("claude-desktop", "cursor", "codex", "gemini")]
    options = Options(moves=moved_servers)
    assert install_into(chosen, loaded, Where.here(os.environ), options) == (0, True)
    assert list(servers(home)) == NAMES
    for name in FILES:
        text = (home / name).read_text()
        assert "mcp-hub" in text and not any(canary in text for canary in CANARIES)
    assert '"off"' in (home / ".cursor" / "mcp.json").read_text()
    assert "// mine" in (home / ".cursor" / "mcp.json").read_text()
    run("install", "--undo")
    after = snapshot(home)
    assert {path: after.get(path) for path in before} == before
    assert not (home / "hub" / "secrets").exists()


def test_an_undo_names_the_import_before_it_which_stays(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(install, "_start_once", lambda *args: None)
    config = home / "hub" / "servers.yaml"
    run("init", "--yes")
    run("install", "cursor", "codex")
    stays = f"What was done before stays: import into {config}. To take that back, too: mcp-hub install --undo\n"
    assert stays in run("install", "--undo").stderr and config.exists()
    done = run("install", "--undo")
    assert "Undone: import into" in done.stdout and "stays" not in done.stderr and not config.exists()


@pytest.mark.parametrize("text", [None, "# mine\nservers:\n  time: {command: uvx, args: [mcp-server-time]} # c\n"])
def test_an_import_is_taken_back_with_its_secrets_and_what_was_added_since_stays(home: Path, text: str | None) -> None:
    path = home / "hub" / "servers.yaml"
    if text is not None:
        path.parent.mkdir()
        path.write_text(text)
    before = snapshot(home)
    assert "mcp-hub install --undo" in import_all().stderr
    assert (home / "hub" / "secrets").stat().st_mode & 0o077 == 0
    imported = path.read_text()
    path.write_text(f"{imported}\n# mine too\nhub: {{log: {{level: info}}}}\n")
    assert "Undone: import into" in run("install", "--undo").stdout and "mine too" in path.read_text()
    assert "github" not in path.read_text()
    path.unlink() if text is None else path.write_text(text)
    assert {name: content for name, content in snapshot(home).items() if "/state/" not in name} == before


@pytest.mark.parametrize("is_first", [True, False])
def test_server_of_the_user_gets_nothing_that_only_the_file_of_somebody_else_asks_for(is_first: bool) -> None:
    theirs = FoundServer("a", {"command": "x", "pass_env": ["SECRET"]}, "project", "codex")
    users = FoundServer("a", {"command": "x"}, "Codex", "codex", is_users=True)
    (one,) = merged([users, theirs] if is_first else [theirs, users], ())
    assert one.entry == {"command": "x"} and len(one.origins) == 2


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        ({}, "Nothing to move: these clients start no servers of their own."),
        ({"a": {"command": "x", "disabled": True}}, "Nothing can be moved."),
        ({"a": {"command": "x"}}, "No server is new to the hub: those that move are in "),
    ],
)
def test_move_of_no_server_says_why(person: Path, servers: Any, said: str) -> None:
    (person / ".cursor").mkdir()
    (person / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (person / "servers.yaml").write_text("servers: {a: {command: x}}")
    files = [*client_files(CLIENTS["cursor"], Where.here(os.environ))]
    assert moved_servers(files, person / "servers.yaml").lines[0].startswith(said)


def test_many_servers_are_imported_with_a_few_reads(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    command = ("import", "mcp.json", "--yes", "--no-count")

    def counted(name: str, function: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            done.append(name)
            return function(*args, **options)

        return call

    for module, name in ((servers_file, "parse"), (edit, "read_data"), (masking, "Mask")):
        monkeypatch.setattr(module, name, counted(name, getattr(module, name)))
    tokens = {f"s{number}": f"ghp_{number:036d}" for number in range(60)}
    entered = {name: {"command": "x", "args": [name], "env": {"TOKEN": token}} for name, token in tokens.items()}
    (home / "mcp.json").write_text(json.dumps({"servers": {**entered, "bad": {"command": "x", "args": 1}}}))
    assert "60 servers" in run(*command).stderr and len(done) < 30, done
    done.clear()
    assert len(servers(home)) == 60
    without = kept_secrets.without_secrets
    monkeypatch.setattr(plan, "without_secrets", counted("without_secrets", without))
    assert "the hub has it already, as s59" in run(*command).output and len(done) < 4 * 60, (
        "once more: all of them are there"
    )


ONE = {"command": "npx", "args": ["-y", "x"]}
CURSOR, ZED = ".cursor/mcp.json", ".config/zed/settings.json"


@pytest.mark.parametrize(
    ("file", "text", "taken", "said"),
    [
        (CURSOR, r'{"mcpServers": {"a": {"command": "npx", "env": {"A": "\ud83d"}}, "b": {"command": "u"}}}',
         ["b"], "not taken: a (Cursor): it has failed: it holds half of a character (a lone surrogate)"),
        (CURSOR, r'{"mcpServers": {"x\ud83d": {"command": "npx"}, "b": {"command": "u"}}}',
         ["b"], "not taken: x? (Cursor): it has failed: it holds half of a character"),
        (CURSOR, {"mcpservers": {"a": ONE}}, [], '"mcpservers" holds servers, but Cursor reads "mcpServers"'),
        (CURSOR, {"servers": {"a": ONE}}, [], '"servers" holds servers, but Cursor reads "mcpServers"'),
        (CURSOR, {"mcp": {"servers": {"a": ONE}}}, [], '"mcp.servers" holds servers, but Cursor reads'),
        (".config/Code/User/mcp.json", {"servers": {"a": ONE}, "mcpServers": {"b": ONE}},
         ["a"], '"mcpServers" holds servers, but VS Code reads "servers"'),
        (".codex/config.toml", '[mcpServers.a]\ncommand = "npx"\n', [], 'but Codex reads "mcp_servers"'),
        (CURSOR, {"mcpServers": {"a": ONE}, "b": ONE}, ["a"], '"b" is a server beside "mcpServers"'),
        (CURSOR, {"mcpServers": {"mcpServers": {"a": ONE}}}, [], "it holds servers itself"),
        (ZED, {"context_servers": {"a": {"source": "extension", "settings": {}}}},
         [], "an extension of the client brings its command"),
        (CURSOR, {"mcpServers": {"a": {"url": "wss://h.example/x"}}}, [], "the hub does not speak wss://"),
        (".continue/mcpServers/mine.yaml", "mcpServers:\n- {name: a, command: npx}\n", ["a"], "Imported 1 server"),
        (".continue/mcpServers/mcp.json", {"mcpServers": {"a": ONE}}, ["a"], "Imported 1 server"),
        (".gemini/config/mcp_config.json", {"mcpServers": {"a": ONE}}, ["a"], "Imported 1 server"),
        (CURSOR, "\0" * 40, [], "The file is damaged, or UTF-16 without a byte order mark"),
        (CURSOR, "\u200b{}", [], "Remove the character U+200B"),
        (ZED, {"agent_servers": {"a": ONE}, "lsp": {"b": ONE}}, [], "No servers of other clients"),
    ],
)  # fmt: skip
def test_server_that_is_not_taken_is_named_and_takes_no_other_with_it(
    person: Path, file: str, text: Any, taken: list[str], said: str
) -> None:
    (person / file).parent.mkdir(parents=True)
    (person / file).write_text(text if isinstance(text, str) else json.dumps(text))
    config = person / "hub.yaml"
    done = run("import", "--all", "--yes", "--no-count", "--config", str(config))
    assert said in done.stderr + done.stdout
    assert [*(yaml.safe_load(config.read_text())["servers"] if config.exists() else ())] == taken

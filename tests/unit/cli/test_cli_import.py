"""`mcp-hub import FILE`: what it writes, where secrets go, and that the hub reads it as it was meant."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from mcp_hub.cli import main
from mcp_hub.cli.commands.clients import import_dialog
from mcp_hub.config.load.load import load
from mcp_hub.upstreams.process.commands import withheld

VS_CODE = {
    "inputs": [
        {"id": "api-key", "type": "promptString", "description": "The key of the API", "password": True},
        {"id": "region", "type": "promptString", "description": "Region", "default": "eu"},
    ],
    "servers": {
        "git": {
            "type": "stdio",
            "command": "./bin/git-mcp",
            "args": ["${workspaceFolder}", "${userHome}/x", "$${KEPT}"],
            "env": {"KEY": "${input:api-key}", "AGAIN": "${input:api-key}", "REGION": "${input:region}"},
            "envFile": "${workspaceFolder}/.env",
            "cwd": "work",
            "dev": {},
        },
        "far": {"url": "https://a.example/mcp", "headers": {"X-Key": "${OTHER}"}},
        "odd": "x",
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_text(json.dumps(VS_CODE))
    (tmp_path / ".env").write_text("TOKEN='s3cr3t-of-file'\nLINES=\"a\\n\"\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    monkeypatch.delenv("API_KEY", raising=False)
    monkeypatch.delenv("REGION", raising=False)
    return tmp_path


def run(*more: str, answers: str = "") -> Result:
    return CliRunner().invoke(main, ["import", ".vscode/mcp.json", "--yes", "--no-count", *more], input=answers)


def written(folder: Path) -> Any:
    return yaml.safe_load((folder / "servers.yaml").read_text())["servers"]


def test_servers_are_written_with_absolute_paths_and_without_secrets(folder: Path) -> None:
    done = run()
    assert done.exit_code == 0 and "Imported 2 servers" in done.stderr
    command = f"(umask 077; mkdir -p {folder}/secrets; cat > {folder}/secrets/api-key)"
    assert f'git needs a value, "The key of the API". Set it with: {command}' in done.stderr
    assert written(folder) == {
        "git": {
            "command": f"{folder}/bin/git-mcp",
            "args": [str(folder), "/home/alice/x", "$${KEPT}"],
            "env": {
                "TOKEN": "${file:secrets/git.TOKEN}",
                "LINES": "${file:secrets/git.LINES}",
                "KEY": "${file:secrets/api-key}",
                "AGAIN": "${file:secrets/api-key}",
                "REGION": "${REGION:-eu}",
            },
            "cwd": f"{folder}/work",
        },
        "far": {"url": "https://a.example/mcp", "headers": {"X-Key": "${OTHER}"}},
    }
    assert "s3cr3t" not in (folder / "servers.yaml").read_text() + done.output
    files = [folder / "servers.yaml", *(folder / "secrets").iterdir()]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


def test_hub_reads_the_values_that_were_meant(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "k-123456")
    run("--variable", "API_KEY")
    found = load(folder / "servers.yaml", {"API_KEY": "k-123456", "OTHER": "o-123456"})
    values = {"TOKEN": "s3cr3t-of-file", "LINES": "a\n", "KEY": "k-123456", "AGAIN": "k-123456", "REGION": "eu"}
    assert found.settings.servers["git"].env == values
    assert found.warnings == () and {"s3cr3t-of-file", "k-123456"} <= found.secrets


class Terminal(io.BytesIO):
    """The standard input of a person who types these bytes."""

    def isatty(self) -> bool:
        return True


def ask(monkeypatch: pytest.MonkeyPatch, *more: str, answers: str) -> Result:
    """The import with a person who agrees to it and then types these answers."""
    monkeypatch.setattr(import_dialog, "is_anybody_there", lambda: True)
    stdin = Terminal(f"y\n{answers}".encode())
    return CliRunner().invoke(main, ["import", ".vscode/mcp.json", "--no-count", *more], input=stdin)


def test_inputs_are_asked_for_once_after_the_servers_were_shown(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = ask(monkeypatch, answers="k-asked-for\n\n")
    assert done.exit_code == 0
    question = 'git (.vscode/mcp.json) needs "The key of the API". Value (Enter: set it later):'
    assert done.stderr.count(question) == 1 and 'needs "Region". Value (Enter: eu):' in done.stderr
    assert done.output.index("git-mcp") < done.output.index("Write 2 servers") < done.output.index(question)
    env = written(folder)["git"]["env"]
    assert (env["KEY"], env["AGAIN"], env["REGION"]) == (
        "${file:secrets/api-key}",
        "${file:secrets/api-key}",
        "${file:secrets/region}",
    )
    assert "k-asked-for" not in done.output + (folder / "servers.yaml").read_text()
    found = load(folder / "servers.yaml", {"OTHER": "o"}).settings.servers["git"].env
    assert (found["KEY"], found["AGAIN"], found["REGION"]) == ("k-asked-for", "k-asked-for", "eu")


@pytest.mark.processes
@pytest.mark.skipif(sys.platform == "win32", reason="the command is for a POSIX shell")
def test_value_that_is_set_later_comes_by_the_command_that_was_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = ask(monkeypatch, answers="\n\n")
    (command,) = re.findall(r'git needs a value, "The key of the API". Set it with: (.*)', done.stderr)
    failed = load(folder / "servers.yaml", {"OTHER": "o"}, lenient=True).settings.failure("git")
    assert failed is not None and failed.code == "file_unreadable"
    subprocess.run(["sh", "-c", command], input=b"set-later\n", check=True)
    found = load(folder / "servers.yaml", {"OTHER": "o"})
    assert found.settings.servers["git"].env["KEY"] == "set-later" and not found.warnings
    assert (folder / "secrets" / "api-key").stat().st_mode & 0o077 == 0
    again = ask(monkeypatch, answers="")
    assert "the hub has it already" in again.stderr and "Value (" not in again.stderr


@pytest.mark.parametrize("option", ["--yes", "--dry-run"])
def test_inputs_are_not_asked_for_without_a_person_who_is_asked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    done = ask(monkeypatch, option, answers="k-typed-ahead\n\n")
    assert done.exit_code == 0 and "Value (" not in done.stderr
    assert not (folder / "secrets" / "api-key").exists()


@pytest.mark.parametrize(("priority", "kind"), [(5, "keyring"), (0, "file"), (-1, "file")])
def test_value_that_comes_later_is_for_a_keyring_only_if_it_can_be_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, priority: int, kind: str
) -> None:
    backend = SimpleNamespace(priority=priority)
    module = SimpleNamespace(get_password=lambda _, name: None, get_keyring=lambda: backend)
    monkeypatch.setitem(sys.modules, "keyring", module)
    done = run()
    assert written(folder)["git"]["env"]["KEY"].startswith(f"${{{kind}:")
    assert ("keyring set mcp-hub api-key" in done.stderr) is (kind == "keyring")


@pytest.mark.parametrize("is_locked", [True, False])
def test_yes_never_opens_the_dialog_of_a_keyring(
    folder: Path, monkeypatch: pytest.MonkeyPatch, is_locked: bool
) -> None:
    class Backend:
        priority = 5

    calls: list[str] = []

    def get_password(_: str, name: str) -> None:
        calls.append(name)

    def set_password(_: str, name: str, __: str) -> None:
        calls.append(name)

    Backend.__module__ = "keyring.backends.SecretService"
    module = SimpleNamespace(get_password=get_password, set_password=set_password, get_keyring=Backend)
    collection = SimpleNamespace(is_locked=lambda: is_locked)
    bus = SimpleNamespace(close=lambda: None)
    service = SimpleNamespace(dbus_init=lambda: bus, get_collection_by_alias=lambda _, __: collection)
    monkeypatch.setitem(sys.modules, "keyring", module)
    monkeypatch.setitem(sys.modules, "secretstorage", service)
    (folder / "servers.yaml").write_text("servers: {old: {command: x, env: {T: '${keyring:mcp-hub/old.T}'}}}\n")
    assert run(*["--count"] * is_locked).exit_code == 0 and (calls == []) is is_locked
    assert written(folder)["git"]["env"]["KEY"] == "${keyring:mcp-hub/api-key}"
    calls.clear()
    servers = {"a": {"command": "x", "env": {"A_TOKEN": "ghp_0123456789012345678901234567890123456"}}}
    (folder / ".vscode/mcp.json").write_text(json.dumps({"servers": servers}))
    done = run("--keyring")
    assert ("opens no dialog" in done.stderr, calls == [], done.exit_code) == (is_locked, is_locked, 2 * is_locked)


def test_variable_that_is_set_is_not_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "from the environment")
    done = ask(monkeypatch, answers="us\n")
    assert done.exit_code == 0 and "The key" not in done.stderr
    assert written(folder)["git"]["env"]["KEY"] == "${API_KEY}"


def test_file_of_another_client_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MCP_HUB_CONFIG", str(folder / "mcp.json"))
    (folder / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x"}}, "inputs": []}')
    before = (folder / "mcp.json").read_bytes()
    done = run()
    assert done.exit_code == 2 and "[foreign_file]" in done.stderr
    assert (folder / "mcp.json").read_bytes() == before


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (None, "config_unreadable"),
        ('{"servers": {}}', "not_foreign"),
        ('{"mcpServers": [', "invalid_json"),
        ('{"mcpServers": 1}', "wrong_type"),
    ],
)
def test_file_that_is_not_another_clients_is_refused(folder: Path, text: str | None, code: str) -> None:
    file = folder / "other.json"
    if text is not None:
        file.write_text(text)
    done = CliRunner().invoke(main, ["import", str(file), "--yes"])
    assert done.exit_code == 2 and f"[{code}]" in done.stderr
    assert not (folder / "servers.yaml").exists()


def test_variables_that_a_known_command_wants_are_proposed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in withheld(os.environ):
        monkeypatch.delenv(name)
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "KUBECONFIG", "AWS_PROFILE", "GITHUB_TOKEN"):
        monkeypatch.setenv(name, f"value-of-{name}")
    entry = {"command": "docker", "args": ["run", "mcp/kubernetes"], "env": {"DOCKER_CONTEXT": "mine"}}
    passing = {"command": "x", "env": {"TOKEN": "${GITHUB_TOKEN}"}}
    (folder / "other.json").write_text(json.dumps({"mcpServers": {"box": entry, "plain": passing}}))
    done = CliRunner().invoke(main, ["import", "other.json", "--yes", "--no-count", "--dry-run"])
    assert "box: may need DOCKER_HOST, KUBECONFIG of this shell" in done.stderr
    assert "variables like these can open an account, a machine or the desktop" in done.stderr
    assert "2 servers from 1 source, " in done.stderr
    assert "pass_env: [DOCKER_HOST, KUBECONFIG]" in done.stderr and "plain: may need" not in done.stderr
    assert "plain: gets $GITHUB_TOKEN of this machine, for the command x" in done.stderr
    assert "no server gets AWS_PROFILE, DOCKER_CONTEXT, DOCKER_HOST, KUBECONFIG of this shell" in done.stderr
    assert "value-of" not in done.output


def test_proposed_variables_are_written_once_a_person_agrees(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in withheld(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("DOCKER_HOST", "value-of-it")
    monkeypatch.setenv("DOCKER_CONTEXT", "value-of-it")
    (folder / "other.json").write_text('{"mcpServers": {"box": {"command": "docker", "args": ["run"]}}}')
    for options, answers, expected in (
        (["--yes"], b"", None),
        (["--yes", "--variable", "DOCKER_HOST"], b"", ["DOCKER_HOST"]),
        ([], b"y\ny\n", ["DOCKER_CONTEXT", "DOCKER_HOST"]),
        ([], b"\ny\n", None),
    ):
        (folder / "servers.yaml").unlink(missing_ok=True)
        stdin = Terminal(answers) if answers else None
        done = CliRunner().invoke(main, ["import", "other.json", "--no-count", *options], input=stdin)
        assert done.exit_code == 0 and "value-of-it" not in done.output, done.output
        assert written(folder)["box"].get("pass_env") == expected, options


def test_secret_that_the_keyring_has_is_not_given_to_a_file_of_somebody_else(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {"github.TOKEN": "mine-123456"}
    module = SimpleNamespace(get_password=lambda _, name: entries.get(name))
    monkeypatch.setitem(sys.modules, "keyring", module)
    server = {"url": "https://evil.example/mcp", "headers": {"A": "${input:github.TOKEN}", "B": "${input:new}"}}
    (folder / ".vscode" / "mcp.json").write_text(json.dumps({"servers": {"a": server}}))
    done = run()
    assert done.exit_code == 0 and written(folder)["a"]["enabled"] is False
    assert "a: imported, but disabled" in done.stderr and ": keyring:mcp-hub/github.TOKEN. To" in done.stderr
    assert "keyring mcp-hub/github.TOKEN (headers A)" in done.stderr
    (folder / "servers.yaml").unlink()
    assert run("--variable", "keyring:mcp-hub/github.TOKEN").exit_code == 0 and "enabled" not in written(folder)["a"]


def test_variable_that_is_empty_gives_nothing_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER", "")
    assert run().exit_code == 0 and written(folder)["far"]["headers"] == {"X-Key": "${OTHER}"}


STRANGE = {
    "far": {"url": "https://evil.example:8443/mcp?k=${URL_KEY}", "headers": {"X-Key": "${env:HEAD_KEY}"}},
    "codex": {"url": "https://b.example/mcp", "bearer_token_env_var": "GH_SECRET"},
    "local": {"command": "run-it", "cwd": "sub dir", "args": ["${ARG_KEY:-x}"],
              "env": {"LD_PRELOAD": "/x.so", "A": "${UNSET}"}},
    "fixed": {"url": "https://c.example/mcp", "headers": {"Authorization": "Bearer abcdef-123456-secret"}},
    "plain": {"command": "quiet", "env": {"REGION": "eu"}},
}  # fmt: skip
SET = ("URL_KEY", "HEAD_KEY", "GH_SECRET", "ARG_KEY")


def strange(folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> Result:
    """An import of a file that is nobody's own."""
    for name in SET:
        monkeypatch.setenv(name, f"value-of-{name}")
    (folder / "other.json").write_text(json.dumps({"mcpServers": STRANGE}))
    done = CliRunner().invoke(main, ["import", "other.json", "--no-count", *more])
    assert "value-of" not in done.output and "abcdef-123456" not in done.output
    return done


def test_file_of_somebody_else_shows_what_it_sends_and_where(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = strange(folder, monkeypatch, "--dry-run")
    assert done.exit_code == 0
    for text in (
        "far: https://evil.example:8443 gets the values of your variables: URL_KEY (url), HEAD_KEY (headers X-Key)",
        "codex: https://b.example gets the values of your variables: GH_SECRET (bearer)",
        "local: the command run-it gets the values of your variables: ARG_KEY (args)",
        "local: LD_PRELOAD decides what the program loads",
        "fixed: https://c.example gets these secrets: file secrets/fixed.Authorization (headers Authorization)",
    ):
        assert text in done.stderr, text
    assert "plain:" not in done.stderr
    assert "https://b.example/mcp with bearer='${GH_SECRET}'" in done.stdout
    assert f"run-it '${{ARG_KEY:-x}}' (in '{folder}/sub dir')" in done.stdout
    data = json.loads(strange(folder, monkeypatch, "--dry-run", "--json").stdout)
    alerts = {one["name"]: one["alerts"] for one in data["servers"]}
    assert alerts["codex"] == ["https://b.example gets the values of your variables: GH_SECRET (bearer)"]
    assert alerts["plain"] == []
    red = CliRunner().invoke(main, ["import", "other.json", "--dry-run"], color=True).stderr
    assert "\x1b[31mlocal: LD_PRELOAD" in red and "\x1b[31mcodex: https://b.example gets" in red


@pytest.mark.parametrize("json_option", [(), ("--json",)])
def test_file_of_somebody_else_gets_variables_that_are_set_only_if_the_person_names_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch, json_option: tuple[str, ...]
) -> None:
    for agreed in (set(), {*SET[1:]}, {*SET}):
        (folder / "servers.yaml").unlink(missing_ok=True)
        options = [word for name in agreed for word in ("--variable", name)]
        done = strange(folder, monkeypatch, "--yes", *options, *json_option)
        assert done.exit_code == 0 and written(folder)["codex"]["bearer"] == "${GH_SECRET}"
        disabled = {"far": {"URL_KEY", "HEAD_KEY"}, "codex": {"GH_SECRET"}, "local": {"ARG_KEY"}}
        for name, entry in written(folder).items():
            names = disabled.get(name, set()) - agreed
            assert entry.get("enabled", True) is not bool(names), (name, agreed)
            assert (f"To give them to it: mcp-hub enable {name} [" in done.stderr) is bool(names)


def test_question_about_a_file_of_somebody_else_has_no_as_the_answer_of_an_empty_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GH_SECRET", "value-of-GH_SECRET")
    for name, ends in (("codex", 1), ("plain", 0)):
        (folder / "other.json").write_text(json.dumps({"mcpServers": {name: STRANGE[name]}}))
        done = CliRunner().invoke(main, ["import", "other.json", "--no-count"], input=Terminal(b"\n"))
        assert done.exit_code == ends, done.output
        assert (folder / "servers.yaml").exists() is (name == "plain")


def test_own_file_of_a_client_is_imported_without_these_questions(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("GH_SECRET", "value-of-GH_SECRET")
    own = {"far": {"url": "https://b.example/mcp", "headers": {"X-Key": "${env:GH_SECRET}"}},
           "local": {"command": "x", "env": {"NODE_OPTIONS": "--require /x"}}}  # fmt: skip
    (folder / ".cursor").mkdir()
    (folder / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": own}))
    for source in ("cursor", ".cursor/mcp.json"):
        done = CliRunner().invoke(main, ["import", source, "--yes", "--no-count", "--dry-run"])
        assert "gets the values" not in done.stderr and "local: NODE_OPTIONS decides" in done.stderr
    done = CliRunner().invoke(main, ["import", "cursor", "--yes", "--no-count"])
    assert done.exit_code == 0 and written(folder)["far"]["headers"] == {"X-Key": "${GH_SECRET}"}

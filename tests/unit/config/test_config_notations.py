"""Placeholders in files of other clients, each in the notation of its client, and the folders that they stand for."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_hub.config.load.load import Loaded, parse, read

X: Final = {"command": "x"}
HOME: Final = "/home/ann"


def loaded(file: str, server: object, holder: str = "mcpServers", *, is_named: bool = True, **env: str) -> Loaded:
    text = json.dumps({holder: {"a": server, "good": X}})
    folder = Path(file).parent
    return parse(text, file, {"HOME": HOME, **env}, folder, lenient=True, is_named=is_named)


def args(file: str, *texts: str, own: dict[str, str] | None = None, **env: Any) -> list[str]:
    found = loaded(file, {**X, "args": list(texts), "env": own or {}}, **env)
    assert found.settings.failure("a") is None, found.settings.failure("a")
    return found.settings.servers["a"].args


GEMINI, DESKTOP, CODE = "/p/.gemini/settings.json", "/p/claude_desktop_config.json", "/p/.mcp.json"
CURSOR, OPENCODE = "/p/.cursor/mcp.json", "/p/opencode.json"


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (GEMINI, "a-$KEY", "a-v"),
        (GEMINI, "%KEY%/b", "v/b"),
        (GEMINI, "${KEY:-d}", "v"),
        (CODE, "${KEY}", "v"),
        (CURSOR, "${env:KEY}", "v"),
        (GEMINI, "pa$word 50%OFF%", "pa$word 50%OFF%"),
        (CODE, "${NOT_SET:-d}", "d"),
        (CODE, "$KEY", "$KEY"),
        (CODE, "${CLAUDE_PROJECT_DIR:-.}/x", "/p/x"),
        (CURSOR, "${workspaceFolder}${/}x", "/p/x"),
        (CURSOR, "${userHome}/x", f"{HOME}/x"),
        (DESKTOP, "Authorization:${NOT_SET}", "Authorization:${NOT_SET}"),
        (DESKTOP, "${a%/} ${#b} ${file:/etc/passwd} ${keyring:a/b}", "${a%/} ${#b} ${file:/etc/passwd} ${keyring:a/b}"),
        ("/p/any.json", "--k=${env:NOT_SET}", "--k=${env:NOT_SET}"),
    ],
)
def test_a_text_means_what_the_client_of_the_file_means(file: str, text: str, expected: str) -> None:
    assert args(file, text, KEY="v") == [expected]


VSCODE, DEVCONTAINER, EXTENSION = (
    "/p/.vscode/mcp.json",
    "/p/.devcontainer/devcontainer.json",
    "/e/gemini-extension.json",
)
INPUTS: Final = [{"id": "n", "default": 80, "description": None, "password": None}, {"type": "x"}, 5]


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        (DEVCONTAINER, "${localEnv:KEY}", "v"),
        (DEVCONTAINER, "${localEnv:NOPE:d}", "d"),
        (DEVCONTAINER, "${localWorkspaceFolder}/x", "/p/x"),
        (VSCODE, "${cwd}/x", "/p/x"),
        (EXTENSION, "${extensionPath}${/}x", "/e/x"),
        *((VSCODE, f"${{{name}}}", None) for name in ("file", "fileDirname", "execPath", "containerWorkspaceFolder")),
        (f"{HOME}/.config/Code/User/mcp.json", "${cwd}", None),
        (f"{HOME}/.claude.json", "${CLAUDE_PROJECT_DIR}", None),
        (f"{HOME}/.claude.json", "${CLAUDE_PROJECT_DIR:-.}", "."),
        (VSCODE, "${input:n}", "80"),
    ],
)
def test_names_of_editors_and_extensions_stand_for_their_folders(file: str, text: str, expected: str | None) -> None:
    data = json.dumps({"inputs": INPUTS, "mcpServers": {"a": {**X, "args": [text]}, "good": X}})
    found = parse(data, file, {"HOME": HOME, "KEY": "v"}, Path(file).parent, lenient=True).settings
    cause = found.failure("a")
    assert (None if cause else found.servers["a"].args) == (None if expected is None else [expected])
    assert cause is None or cause.code == "workspace_unknown"


def test_notations_of_goose_windsurf_and_opencode_read_their_files(tmp_path: Path) -> None:
    text = (
        "extensions:\n  a: {uri: 'https://h.example/mcp', headers: {A: Bearer $TOK}, env_keys: [TOK]}\n"
        "  b: {cmd: x, args: [$TOK]}\n"
    )
    goose = parse(text, "config.yaml", {"TOK": "t-1"}, Path("/h/.config/goose")).settings.servers
    assert (goose["a"].sent_headers(), goose["b"].args) == ({"A": "Bearer t-1"}, ["$TOK"])
    (tmp_path / "key").write_text("from-a-file\n")
    file = tmp_path / ".codeium" / "windsurf" / "mcp_config.json"
    server = {"serverUrl": "https://h.example/mcp", "headers": {"A": "${file:~/key}", "B": f"${{file:{tmp_path}/key}}"}}
    text = json.dumps({"mcpServers": {"a": server}})
    found = parse(text, str(file), {"HOME": str(tmp_path)}, file.parent).settings.servers["a"]
    assert found.sent_headers() == {"A": "from-a-file", "B": "from-a-file"}
    server = {"type": "local", "command": ["x", "{env:KEY}"], "environment": {"F": "{file:./key}"}}
    found = loaded(str(tmp_path / "opencode.json"), server, "mcp", KEY="v").settings.servers["a"]
    assert (found.args, found.env) == (["v"], {"F": "from-a-file"})


@pytest.mark.parametrize("file", [DESKTOP, CODE, CURSOR, GEMINI])
@pytest.mark.parametrize("text", ["Authorization:${AUTH}", "Authorization:${env:AUTH}", "Authorization:${AUTH:-none}"])
def test_the_entry_s_own_variables_go_before_those_of_the_environment(file: str, text: str) -> None:
    assert args(file, text, own={"AUTH": "Bearer abc-123"}, AUTH="other") == ["Authorization:Bearer abc-123"]
    assert args(file, text, AUTH="other") == ["Authorization:other"]


def test_variables_of_an_entry_may_refer_to_each_other_and_never_in_a_circle() -> None:
    found = loaded(CODE, {**X, "env": {"A": "${B}/a", "B": "${A}/b", "PATH": "/x:${PATH}"}}, A="1", B="2", PATH="/p")
    assert found.settings.servers["a"].env == {"A": "1/b/a", "B": "2/a/b", "PATH": "/x:/p"}


@pytest.mark.parametrize(("count", "text"), [(600, "${A%d}"), (64, "${A%d}${A%d}"), (20, "${A%d}" * 8)])
def test_variables_of_an_entry_in_one_another_have_a_bound(count: int, text: str) -> None:
    own = {f"A{at}": text.replace("%d", str(at + 1)) for at in range(count)} | {f"A{count}": "x" * 999}
    found = loaded(CODE, {**X, "env": own})
    assert sum(map(len, found.settings.servers["a"].env.values())) <= 2 << 20
    assert any("too many" in str(warning) for warning in found.warnings)


@pytest.mark.parametrize(
    ("command", "before"), [("sh", []), ("/bin/bash", ["-l"]), ("env", ["zsh", "-e"]), ("pwsh", []), ("docker", ["sh"])]
)
def test_text_for_a_shell_is_never_touched(command: str, before: list[str]) -> None:
    script = 'd="${HOME%/}"; exec x ${NOPE:-none} $KEY %KEY% ${env:KEY}'
    server = {"command": command, "args": [*before, "-c", script, "${env:KEY}"], "env": {"OWN": "1"}}
    for file in (CURSOR, GEMINI):
        found = loaded(file, server, KEY="v-123456", OWN="2").settings.servers["a"]
        assert found.args == [*before, "-c", script, "v-123456"]
        assert found.pass_env == ["KEY"], "the shell fills it in, so it gets the variable"


def test_an_unset_variable_that_the_client_would_fill_in_fails_the_server() -> None:
    for file, text in ((CURSOR, "${env:NOPE}"), (CODE, "${NOPE}")):
        cause = loaded(file, {**X, "args": [text]}).settings.failure("a")
        assert cause is not None and cause.code == "variable_not_set" and "NOPE" in cause.reason
    cause = loaded(DESKTOP, {**X, "env": {"K": "${NOPE}"}}).settings.failure("a")
    assert cause is not None and cause.code == "variable_not_set"


@pytest.mark.parametrize(
    "file",
    [
        *(f"{HOME}/{name}" for name in (".cursor/mcp.json", ".config/Code/User/mcp.json", "mcp.json", ".mcp.json")),
        *(f"{HOME}/{name}" for name in (".codeium/windsurf/mcp_config.json", "Library/Application Support/x/mcp.json")),
        *(f"{HOME}/{name}" for name in ("AppData/Roaming/Code/User/mcp.json", ".claude.json")),
        *("/home/.mcp.json", f"{HOME}/.config/Claude/claude_desktop_config.json", "/xdg/Code/User/mcp.json"),
    ],
)
def test_a_file_of_the_user_has_no_workspace_and_no_working_directory(file: str) -> None:
    found = loaded(file, {**X, "args": ["${workspaceFolder}"]}, XDG_CONFIG_HOME="/xdg").settings
    cause = found.failure("a")
    assert cause is not None and cause.code == "workspace_unknown" and "${workspaceFolder}" in cause.reason
    assert found.servers["good"].cwd is None


@pytest.mark.parametrize(
    ("file", "folder"),
    [
        (f"{HOME}/work/.cursor/mcp.json", f"{HOME}/work"),
        (f"{HOME}/work/.kiro/settings/mcp.json", f"{HOME}/work"),
        *((file, "/p") for file in ("/p/.vscode/mcp.json", "/p/.mcp.json", "/p/mcp.json")),
        ("/p/claude_desktop_config.json", "/p"),
        (f"{HOME}/.cache/p/.vscode/mcp.json", f"{HOME}/.cache/p"),
        (f"{HOME}/.cache/p/.mcp.json", f"{HOME}/.cache/p"),
    ],
)
def test_servers_of_a_project_run_in_its_folder(file: str, folder: str) -> None:
    server = {**X, "args": ["${workspaceFolder}"]}
    found = loaded(file, server).settings.servers["a"]
    assert (found.cwd, found.args) == (folder, [folder])
    assert loaded(file, {**X, "cwd": "sub"}).settings.servers["a"].cwd == f"{folder}/sub"
    assert loaded(file, {"command": "./bin/x"}).settings.servers["a"].command == f"{folder}/bin/x"


def test_a_file_that_nobody_has_named_gets_nothing_from_outside() -> None:
    takes: tuple[Any, ...] = (
        {"env": {"K": "${KEY}"}}, {"args": ["${KEY}"]}, {"envFile": ".env"},
        {"command": "sh", "args": ["-c", "x $KEY"]},
    )  # fmt: skip
    for taken in takes:
        found = loaded("/p/servers.json", {**X, **taken}, is_named=False, KEY="v-123456")
        cause = found.settings.failure("a")
        assert cause is not None and found.settings.failure("good") is None and not found.is_named
        assert cause.code == "file_not_named" and "--config" in cause.reason
        assert "v-123456" not in str(found.settings.servers["a"].model_dump())


def test_what_each_server_gets_is_known_without_values() -> None:
    server = {**X, "args": ["${env:KEY}"], "env": {"A": "${OTHER:-d}", "B": "own"}, "pass_env": ["P"]}
    found = loaded(CURSOR, server, KEY="v-123456")
    assert found.sources == {"a": ("$P", "$KEY", "$OTHER"), "good": ()}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be"])
def test_files_of_windows_are_read(tmp_path: Path, encoding: str) -> None:
    text = json.dumps({"servers": {"a": {**X, "envFile": "${workspaceFolder}/.env"}}}).replace(", ", ",\r\n")
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (tmp_path / ".vscode").mkdir()
    (tmp_path / ".vscode" / "mcp.json").write_bytes((mark + text).encode(encoding))
    (tmp_path / ".env").write_bytes((mark + "FIRST=one\r\nSECOND='two'\r\n").encode(encoding))
    found = read(tmp_path / ".vscode" / "mcp.json", {"HOME": HOME})
    assert found.settings.servers["a"].env == {"FIRST": "one", "SECOND": "two"}


def test_env_file_may_have_lines_in_quotes_latin_1_and_lines_that_set_nothing(tmp_path: Path) -> None:
    lines = [
        'KEY="-----BEGIN\n a\\n=b # c\n-----END" # k',
        "nonsense s3cr3t",
        "N='x\ny'",
        "",
        "# c",
        "U=Z\xfcrich",
        'Q="open',
    ]
    (tmp_path / ".env").write_bytes("\r\n".join(lines).encode("latin-1"))
    (tmp_path / ".env").chmod(0o600)
    found = loaded(str(tmp_path / "c.json"), {**X, "envFile": ".env"})
    values = {"KEY": "-----BEGIN\n a\n=b # c\n-----END", "N": "x\ny", "U": "Z\xfcrich", "Q": '"open'}
    assert found.settings.servers["a"].env == values
    (warning,) = found.warnings
    assert warning.code == "line_skipped" and ":4:" in warning.message and "s3cr3t" not in warning.message


def test_the_name_of_an_input_or_variable_is_not_a_secret() -> None:
    server = {
        **X,
        "env": {"API_KEY": "${input:my-secret-name}", "LITERAL_KEY": "s3cr3t-value-1"},
        "args": ["--token", "${env:MY_TOKEN_NAME}", "Authorization: Bearer ${env:OTHER_NAME}"],
    }
    found = loaded(CURSOR, server)
    assert found.settings.failure("a") is not None and "s3cr3t-value-1" in found.secrets
    assert not any("NAME" in secret.upper() for secret in found.secrets), found.secrets

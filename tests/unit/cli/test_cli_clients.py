"""The table of clients: where their files are on each system, the entry that each gets, and the servers it has."""

import json
import re
from pathlib import Path, PurePath
from typing import Any

import pytest

from mcp_hub.config.load.foreign import CONVENTIONS, client_of, place_of_servers
from mcp_hub.config.load.imported import ValuePlaces
from mcp_hub.config.schema.clients import BUILT_IN_CLIENTS
from mcp_hub.edit.entries import read_data
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.clients.entries import Command, filled, filled_with_url
from mcp_hub.onboarding.clients.model import SYSTEMS, Client, System, Where
from mcp_hub.onboarding.clients.reading import (
    client_files,
    hub_files,
    is_present,
    layout_of,
    project_files,
    read_servers,
)
from mcp_hub.onboarding.clients.table import CLIENTS, find_client
from mcp_hub.onboarding.imports.found import of_clients

WRITTEN = [client for client in CLIENTS.values() if client.is_written]
BIN, FILE, URL = "/opt/mcp-hub", "/home/a/servers.yaml", "http://127.0.0.1:8765/mcp"
HUB = Command(BIN, ("serve",))
ENTRY = {"command": BIN, "args": ["serve"]}
ENTRIES: dict[str, tuple[Any, Any]] = {
    "claude-desktop": (ENTRY, None),
    "claude-code": ({"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
    "cursor": (ENTRY, {"url": URL}),
    "vscode": ({"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
    "vscode-insiders": ({"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
    "vscodium": ({"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
    "vscode-server": ({"type": "stdio", **ENTRY}, {"type": "http", "url": URL}),
    "copilot": ({"type": "local", **ENTRY, "tools": ["*"]}, {"type": "http", "url": URL, "tools": ["*"]}),
    "devin": (ENTRY, {"url": URL, "transport": "http"}),
    "zed": ({**ENTRY, "env": {}}, {"url": URL}),
    "codex": ({**ENTRY, "startup_timeout_sec": 30, "tool_timeout_sec": 3600}, {"url": URL}),
    "gemini": (ENTRY, {"url": URL, "type": "http"}),
    "cline": ({"transport": {"type": "stdio", **ENTRY}}, {"transport": {"type": "streamableHttp", "url": URL}}),
    "continue": (
        {"name": "mcp-hub", "type": "stdio", **ENTRY},
        {"name": "mcp-hub", "type": "streamable-http", "url": URL},
    ),
    "goose": (
        {
            **{"name": "mcp-hub", "type": "stdio", "cmd": BIN, "args": ["serve"], "envs": {}},
            **{"enabled": True, "timeout": 3600},
        },
        {
            **{"name": "mcp-hub", "type": "streamable_http", "uri": URL, "headers": {}},
            **{"enabled": True, "timeout": 3600},
        },
    ),
    "opencode": (
        {"type": "local", "command": [BIN, "serve"], "enabled": True, "timeout": 30000},
        {"type": "remote", "url": URL},
    ),
    "lm-studio": (ENTRY, {"url": URL}),
    "junie": (ENTRY, None),
    "kiro": (ENTRY, {"url": URL}),
    "warp": (ENTRY, {"url": URL}),
}
HOME = Path("/home/a")
FILES: dict[str, tuple[str, str, str]] = {
    "claude-desktop": (
        ".config/Claude/claude_desktop_config.json",
        "Library/Application Support/Claude/claude_desktop_config.json",
        "AppData/Roaming/Claude/claude_desktop_config.json",
    ),
    "claude-code": (".claude.json",) * 3,
    "cursor": (".cursor/mcp.json",) * 3,
    "vscode": (
        ".config/Code/User/mcp.json",
        "Library/Application Support/Code/User/mcp.json",
        "AppData/Roaming/Code/User/mcp.json",
    ),
    "vscode-insiders": (
        ".config/Code - Insiders/User/mcp.json",
        "Library/Application Support/Code - Insiders/User/mcp.json",
        "AppData/Roaming/Code - Insiders/User/mcp.json",
    ),
    "vscodium": (
        ".config/VSCodium/User/mcp.json",
        "Library/Application Support/VSCodium/User/mcp.json",
        "AppData/Roaming/VSCodium/User/mcp.json",
    ),
    "vscode-server": (".vscode-server/data/User/mcp.json",) * 3,
    "copilot": (".copilot/mcp-config.json",) * 3,
    "devin": (
        ".config/devin/mcp_config.json",
        ".config/devin/mcp_config.json",
        "AppData/Roaming/devin/mcp_config.json",
    ),
    "zed": (".config/zed/settings.json", ".config/zed/settings.json", "AppData/Roaming/Zed/settings.json"),
    "codex": (".codex/config.toml",) * 3,
    "gemini": (".gemini/settings.json",) * 3,
    "cline": (".cline/data/settings/cline_mcp_settings.json",) * 3,
    "continue": (".continue/mcpServers/mcp-hub.yaml",) * 3,
    "goose": (
        ".config/goose/config.yaml",
        ".config/goose/config.yaml",
        "AppData/Roaming/Block/goose/config/config.yaml",
    ),
    "opencode": (".config/opencode/opencode.json",) * 3,
    "lm-studio": (".lmstudio/mcp.json",) * 3,
    "junie": (".junie/mcp/mcp.json",) * 3,
    "kiro": (".kiro/settings/mcp.json",) * 3,
    "warp": (".warp/.mcp.json",) * 3,
}


@pytest.mark.parametrize("client", WRITTEN, ids=lambda client: client.name)
def test_each_client_gets_the_entry_that_it_documents_in_its_file_on_each_system(client: Client) -> None:
    layout = layout_of(None, client.places[-1])
    stdio, http = ENTRIES[client.name]
    assert filled(layout.stdio, HUB) == stdio
    assert (layout.http and filled_with_url(layout.http, URL)) == http
    for system, path in zip(SYSTEMS, FILES[client.name], strict=True):
        assert [file.path for file in hub_files(client, Where(system, HOME, {}))] == [HOME / path], system


@pytest.mark.parametrize(
    ("name", "entry"),
    [
        ("claude-code", {"type": "http", "url": URL, "headers": {"Authorization": "Bearer ${HUB_TOKEN}"}}),
        ("codex", {"url": URL, "bearer_token_env_var": "HUB_TOKEN"}),
        ("cursor", {"url": URL, "headers": {"Authorization": "Bearer ${env:HUB_TOKEN}"}}),
    ],
)
def test_token_of_the_hub_is_a_variable_in_the_way_of_the_client(name: str, entry: Any) -> None:
    client = CLIENTS[name]
    template = client.places[-1].layouts[-1].http
    assert template is not None and filled_with_url(template, URL, client.token) == entry


@pytest.mark.parametrize(
    ("name", "system", "variable", "path"),
    [
        ("claude-code", "linux", "CLAUDE_CONFIG_DIR", "/x/.claude.json"),
        ("codex", "windows", "CODEX_HOME", "/x/config.toml"),
        ("copilot", "macos", "COPILOT_HOME", "/x/mcp-config.json"),
        ("cline", "linux", "CLINE_DIR", "/x/data/settings/cline_mcp_settings.json"),
        ("zed", "linux", "FLATPAK_XDG_CONFIG_HOME", "/x/zed/settings.json"),
        ("opencode", "linux", "OPENCODE_CONFIG", "/x"),
        ("vscode-server", "linux", "VSCODE_AGENT_FOLDER", "/x/data/User/mcp.json"),
        ("cursor", "linux", "XDG_CONFIG_HOME", "/home/a/.cursor/mcp.json"),
        ("claude-desktop", "windows", "APPDATA", "/x/Claude/claude_desktop_config.json"),
    ],
)
def test_environment_moves_the_file(name: str, system: System, variable: str, path: str) -> None:
    assert [file.path for file in hub_files(CLIENTS[name], Where(system, HOME, {variable: "/x"}))] == [Path(path)]


def made(home: Path, *names: str) -> None:
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("{}")


def paths(client: str, system: System, home: Path) -> list[str]:
    return [str(file.path.relative_to(home)) for file in hub_files(CLIENTS[client], Where(system, home, {}))]


def test_file_that_the_client_has_is_preferred(tmp_path: Path) -> None:
    store = "AppData/Local/Packages/Claude_pzs8sxrjxfjjc/LocalCache/Roaming/Claude/claude_desktop_config.json"
    made(tmp_path, store)
    assert paths("claude-desktop", "windows", tmp_path) == [store]
    made(tmp_path, "AppData/Roaming/Claude/claude_desktop_config.json")
    assert len(paths("claude-desktop", "windows", tmp_path)) == 2
    made(tmp_path, ".config/opencode/opencode.json")
    assert paths("opencode", "linux", tmp_path) == [".config/opencode/opencode.json"]
    made(tmp_path, ".config/opencode/opencode.jsonc", ".codeium/windsurf/mcp_config.json")
    assert paths("opencode", "linux", tmp_path) == [".config/opencode/opencode.jsonc"]
    assert paths("devin", "linux", tmp_path) == [".codeium/windsurf/mcp_config.json"]


CLINE = "User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json"
ROO = "User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json"
KILO = "User/globalStorage/kilocode.kilo-code/settings/mcp_settings.json"
PLACES: list[tuple[System, str, str]] = [
    ("linux", "vscode", ".config/Code/User/mcp.json"),
    ("linux", "vscode", "snap/code/current/.config/Code/User/mcp.json"),
    ("linux", "vscode-insiders", "snap/code-insiders/current/.config/Code - Insiders/User/mcp.json"),
    ("linux", "vscodium", ".config/VSCodium/User/mcp.json"),
    ("macos", "vscodium", "Library/Application Support/VSCodium/User/profiles/1a/mcp.json"),
    ("windows", "vscodium", "AppData/Roaming/VSCodium/User/mcp.json"),
    ("linux", "vscodium", "snap/codium/current/.config/VSCodium/User/mcp.json"),
    ("linux", "vscode-flatpak", ".var/app/com.visualstudio.code/config/Code/User/mcp.json"),
    ("linux", "vscodium-flatpak", ".var/app/com.vscodium.codium/config/VSCodium/User/mcp.json"),
    ("linux", "vscode-server", ".vscode-server/data/User/mcp.json"),
    ("macos", "vscode-server", ".vscode-server-insiders/data/User/mcp.json"),
    ("windows", "vscode-server", ".vscodium-server/data/User/mcp.json"),
    ("linux", "cline", f".config/Code/{CLINE}"),
    ("linux", "cline", f".config/Cursor/{CLINE}"),
    ("macos", "cline", f"Library/Application Support/Windsurf/{CLINE}"),
    ("windows", "cline", f"AppData/Roaming/VSCodium/{CLINE}"),
    ("linux", "cline", f".vscode-server/data/{CLINE}"),
    ("linux", "cline", f".cursor-server/data/{CLINE}"),
    ("linux", "cline", f".var/app/com.vscodium.codium/config/VSCodium/{CLINE}"),
    ("linux", "roo", f".config/Code - Insiders/{ROO}"),
    ("windows", "roo", f"AppData/Roaming/Cursor/{ROO}"),
    ("linux", "roo", f".windsurf-server/data/{ROO}"),
    ("linux", "kilo", f"snap/code/current/.config/Code/{KILO}"),
    ("macos", "kilo", f"Library/Application Support/Cursor/{KILO}"),
]


@pytest.mark.parametrize(("system", "name", "path"), PLACES)
def test_servers_are_read_from_each_place_of_an_editor(system: System, name: str, path: str, tmp_path: Path) -> None:
    where = Where(system, tmp_path, {})
    made(tmp_path, path)
    (tmp_path / path).write_text(json.dumps({"servers" if "mcp.json" in path else "mcpServers": ONE}))
    present = [client for client in CLIENTS.values() if is_present(client, where)]
    servers = of_clients(present, where, ValuePlaces(str, lambda *_: "")).servers
    assert [(server.client, server.name, server.file) for server in servers] == [(name, "one", tmp_path / path)]
    written = [file.path for client in present if client.is_written for file in hub_files(client, where)]
    is_hubs = CLIENTS[name].kind == "vscode" and CLIENTS[name].is_written and "profiles" not in path
    assert [file for file in written if file.exists()] == ([tmp_path / path] if is_hubs else [])


def test_a_flatpak_starts_the_hub_outside_of_its_sandbox() -> None:
    for name in ("vscode-flatpak", "vscodium-flatpak"):
        entry = filled(CLIENTS[name].places[-1].layouts[-1].stdio, HUB)
        assert entry == {"type": "stdio", "command": "flatpak-spawn", "args": ["--host", "--watch-bus", BIN, "serve"]}


def test_client_is_there_when_its_folder_is(tmp_path: Path) -> None:
    where = Where("linux", tmp_path, {})
    assert not [client.name for client in CLIENTS.values() if is_present(client, where)]
    (tmp_path / ".cursor").mkdir()
    (tmp_path / ".claude.json").write_text("")
    assert [client.name for client in CLIENTS.values() if is_present(client, where)] == ["claude-code", "cursor"]


def test_tables_and_the_page_name_every_client_with_its_aliases_and_kinds() -> None:
    where = Where("linux", HOME, {})
    assert HOME / ".aws/amazonq/mcp.json" in [file.path for file in client_files(CLIENTS["kiro"], where)]
    assert [file.path for file in project_files(CLIENTS["codex"], Path("/p"))] == [Path("/p/.codex/config.toml")]
    assert find_client("Windsurf") is CLIENTS["devin"] and find_client("nothing") is None
    names = [name for client in CLIENTS.values() for name in (client.name, *client.aliases)]
    assert len(names) == len(set(names))
    assert [client.name for client in WRITTEN if client.client_kind not in BUILT_IN_CLIENTS] == []
    assert [name for name in CLIENTS if name not in CONVENTIONS] == []
    assert [name for name in CLIENTS if not CONVENTIONS[name].files] == [
        name for name in CLIENTS if name in KNOWN_BY_FORM
    ]
    page = (Path(__file__).parents[3] / "docs" / "install.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall("`([^`]*)`", row.split("|")[1])}
    assert named == {name for client in WRITTEN for name in (client.name, *client.aliases)}
    assert all(f"`{name}`" in page for name in CLIENTS)


KNOWN_BY_FORM = (
    *("vscode-insiders", "vscodium", "vscode-server", "lm-studio", "warp", "jetbrains-ai", "kimi"),
    *("vscode-flatpak", "vscodium-flatpak", "pi"),
)
"""Clients whose files have the paths of others, or forms that say enough."""


@pytest.mark.parametrize("name", CLIENTS)
def test_files_and_layouts_of_a_client_are_recognized(name: str) -> None:
    client = CLIENTS[name]
    paths = [path for place in client.places for path in (*place.paths.linux, *place.paths.macos)]
    paths = [*(path for path in paths if path.startswith("~")), *(f"/p/{path}" for path in client.project)]
    shared = {("copilot", "/p/.mcp.json")}  # it is that of Claude Code
    for path in paths if CONVENTIONS[name].files else ():
        assert (name, path) in shared or client_of(PurePath(path.replace("*", "x")), None) == name, path
    for place in client.places:
        for layout in place.layouts:
            data: object = {"a": {"command": "x"}}
            for key in reversed(layout.key):
                data = {key: data}
            is_yaml = any(path.endswith("yaml") for path in place.paths.linux)
            assert isinstance(data, dict) and place_of_servers(data, is_yaml=is_yaml) == layout.key


ONE = {"one": {"command": "x"}}


@pytest.mark.parametrize(
    ("name", "file", "text"),
    [
        ("cursor", "mcp.json", '\ufeff// mine\r\n{"mcpServers": {"one": {"command": "x",}, }} /* end */'),
        ("vscode", "mcp.json", '{"servers": {"one": {"command": "x"}}, "inputs": []}'),
        ("zed", "settings.json", '{"context_servers": {"one": {"command": "x"}, "odd": 1}}'),
        ("codex", "config.toml", '[mcp_servers.one]\ncommand = "x"\n[mcp_servers.mcp-hub]\ncommand = "y"\n'),
        ("opencode", "opencode.json", '{"mcp": {"one": {"command": "x"}}}'),
        ("opencode", "opencode.json", '{"mcp": {"servers": {"one": {"command": "x"}}}}'),
        ("goose", "config.yaml", "extensions:\n  one: {command: x}\n  developer: {type: builtin}\n"),
        ("cursor", "a", '{"mcpServers": {"one": {"command": "x"}, "h": {"command": "mcp-hub", "args": ["serve"]}}}'),
    ],
)  # fmt: skip
def test_servers_are_read_without_the_hub(name: str, file: str, text: str) -> None:
    assert read_servers(text, file, CLIENTS[name].places[-1]) == ONE


def test_texts_of_clients_are_read_as_data_or_refused() -> None:
    text = "mcpServers:\n- name: one\n  command: x\n"
    assert read_servers(text, "config.yaml", CLIENTS["continue"].places[0]) == {"one": {"name": "one", "command": "x"}}
    for text in ("", " \n", "// nothing\n", "\ufeff"):
        assert read_servers(text, "mcp.json", CLIENTS["cursor"].places[0]) == {}
    with pytest.raises(ConfigError) as caught:
        read_data('{\n  "a": }', "mcp.json")
    assert (caught.value.findings[0].code, caught.value.findings[0].line) == ("invalid_json", 2)
    with pytest.raises(ConfigError):
        read_data("[" * 100_000, "mcp.json")
    text = json.dumps({"a": "// x /* y */ ,}", "b": 'q"//'})
    assert read_data(text, "x.json") == json.loads(text)

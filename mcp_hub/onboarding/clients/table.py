"""The client table, from clients' documentation and source."""

from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from mcp_hub.onboarding.clients.entries import Slot, cursor_link, goose_link, lm_studio_link, vscode_link
from mcp_hub.onboarding.clients.model import (
    PLAIN,
    URL,
    Client,
    Layout,
    OwnCli,
    Paths,
    Place,
    ServerKeys,
    Template,
    config,
    dot_config,
    everywhere,
    in_storage,
    linux,
)
from mcp_hub.onboarding.files import LARGEST

TYPED: Final[Template] = {"type": "stdio", **PLAIN}
TYPED_URL: Final[Template] = {"type": "http", **URL}
_CODEX: Final[Template] = {**PLAIN, "startup_timeout_sec": 30, "tool_timeout_sec": 3600}
_GOOSE: Final[Template] = {"enabled": True, "timeout": 3600}
_GOOSE_COMMAND: Final[Template] = {"envs": {}, **_GOOSE}
_OPENCODE: Final[Template] = {"type": "local", "command": Slot.ARGV}
_OPENCODE_KEYS: Final = ServerKeys("timeout", 1000, off=("enabled", False), env="environment")
_DEVIN: Final = ServerKeys(deny="disabledTools", off=("disabled", True))
_PLAIN_KEYS: Final = ServerKeys()


def _mcp_servers(
    stdio: Template = PLAIN, http: Template | None = URL, keys: ServerKeys = _PLAIN_KEYS
) -> tuple[Layout, ...]:
    return (Layout(("mcpServers",), stdio, http, keys=keys),)


def _only_read(*paths: Paths, layouts: tuple[Layout, ...] = ()) -> tuple[Place, ...]:
    return tuple(Place(path, layouts or _mcp_servers(), is_written=False) for path in paths)


_VSCODE: Final = Layout(("servers",), TYPED, TYPED_URL, keys=ServerKeys(sandbox="sandboxEnabled"))


def _vscode(name: str, title: str, folder: str, program: str) -> Client:
    legacy = (replace(_VSCODE, key=("mcp.servers",)), replace(_VSCODE, key=("mcp", "servers")))
    return Client(
        name,
        title,
        (
            *_only_read(config(f"{folder}/User/settings.json"), layouts=legacy),
            *_only_read(config(f"{folder}/User/profiles/*/mcp.json"), layouts=(_VSCODE,)),
            Place(linux(f"~/snap/{program}/current/.config/{folder}/User/mcp.json"), (_VSCODE,)),
            Place(config(f"{folder}/User/mcp.json"), (_VSCODE,)),
        ),
        project=(".vscode/mcp.json",),
        kind="vscode",
        cli=OwnCli(program, ("--add-mcp", "{named}"), writes_anew=True),
        link=vscode_link(name),
        has_generations=True,
    )


def _flatpak(name: str, title: str, app: str, folder: str) -> Client:
    """Its sandbox starts programs of the machine by `flatpak-spawn` only."""
    layout = replace(_VSCODE, stdio={"type": "stdio", "command": "flatpak-spawn", "args": Slot.HOST_ARGS})
    path = linux(f"~/.var/app/{app}/config/{folder}/User/mcp.json")
    return Client(f"{name}-flatpak", f"{title} (Flatpak)", _only_read(path, layouts=(layout,)), kind="vscode")


_RESTART: Final = "restart the client"
_DESKTOP: Final = "Claude/claude_desktop_config.json"

_ALL: Final = (
    Client(
        "claude-desktop", "Claude Desktop",
        (
            Place(
                Paths((), (), (f"$LOCALAPPDATA/Packages/Claude_*/LocalCache/Roaming/{_DESKTOP}",)),
                _mcp_servers(http=None),
            ),
            Place(config(_DESKTOP), _mcp_servers(http=None)),
        ),
        has_generations=True,
        rewrites=("Claude", "claude-desktop"),
        restart="quit the client, from its tray icon too, and start it again",
    ),
    Client(
        "claude-code", "Claude Code",
        (
            Place(
                everywhere("$CLAUDE_CONFIG_DIR/.claude.json", "~/.claude.json"),
                _mcp_servers(TYPED, TYPED_URL, ServerKeys("timeout", 1000)),
                largest=LARGEST,  # it holds the history of every project, too
            ),
        ),
        project=(".mcp.json",),
        token="${HUB_TOKEN}",
        fills_defaults=True,
        cli=OwnCli(
            "claude", ("mcp", "add-json", "--scope", "user", "{name}", "{json}"),
            ("mcp", "remove", "--scope", "user", "{name}"),
        ),
        marks=("$CLAUDE_CONFIG_DIR", "~/.claude"),
        restart="start a new session",
    ),
    Client(
        "cursor", "Cursor",
        (Place(everywhere("~/.cursor/mcp.json"), _mcp_servers()),),
        project=(".cursor/mcp.json",), token="${env:HUB_TOKEN}",
        link=cursor_link,
    ),
    _vscode("vscode", "VS Code", "Code", "code"),
    _vscode("vscode-insiders", "VS Code Insiders", "Code - Insiders", "code-insiders"),
    _vscode("vscodium", "VSCodium", "VSCodium", "codium"),
    Client(
        "vscode-server", "VS Code Server",
        tuple(
            Place(everywhere(*paths), (_VSCODE,)) for paths in (
                ("~/.vscodium-server/data/User/mcp.json",),
                ("~/.vscode-server-insiders/data/User/mcp.json",),
                ("$VSCODE_AGENT_FOLDER/data/User/mcp.json", "~/.vscode-server/data/User/mcp.json"),
            )
        ),
        kind="vscode", has_generations=True, remote_of="vscode",
    ),
    Client(
        "copilot", "Copilot CLI",
        (
            Place(
                everywhere("$COPILOT_HOME/mcp-config.json", "~/.copilot/mcp-config.json"),
                _mcp_servers(
                    {"type": "local", **PLAIN, "tools": ["*"]},
                    {**TYPED_URL, "tools": ["*"]},
                    ServerKeys("timeout", 1000, allow="tools", headers="headers"),
                ),
            ),
        ),
        project=(".mcp.json", ".github/mcp.json"),
        restart=_RESTART,
    ),
    Client(
        "devin", "Devin Desktop (Windsurf)",
        (
            Place(
                everywhere("~/.codeium/windsurf/mcp_config.json"),
                _mcp_servers(http={"serverUrl": Slot.URL, "headers": Slot.HEADERS}, keys=_DEVIN),
            ),
            Place(
                dot_config("devin/mcp_config.json"),
                _mcp_servers(http={"url": Slot.URL, "transport": "http", "headers": Slot.HEADERS}, keys=_DEVIN),
            ),
        ),
        project=(".devin/mcp_config.json", ".devin/mcp_config.local.json"),
        aliases=("windsurf",), has_generations=True,
        restart="refresh the client's list of MCP servers",
    ),
    Client(
        "zed", "Zed",
        (
            Place(
                Paths(
                    ("$FLATPAK_XDG_CONFIG_HOME/zed/settings.json", "$XDG_CONFIG_HOME/zed/settings.json"),
                    ("~/.config/zed/settings.json",),
                    ("$APPDATA/Zed/settings.json",),
                ),
                (
                    Layout(
                        ("context_servers",), {**PLAIN, "env": {}}, keys=ServerKeys("timeout", off=("enabled", False))
                    ),
                ),
            ),
        ),
        project=(".zed/settings.json",),
    ),
    Client(
        "codex", "Codex",
        (
            Place(
                everywhere("$CODEX_HOME/config.toml", "~/.codex/config.toml"),
                (
                    Layout(
                        ("mcp_servers",), _CODEX, {"url": Slot.URL, "bearer_token_env_var": Slot.TOKEN_VARIABLE},
                        keys=ServerKeys(
                            "tool_timeout_sec", start_timeout="startup_timeout_sec", has_fractions=True,
                            allow="enabled_tools", deny="disabled_tools", off=("enabled", False),
                            passed="env_vars", headers="http_headers",
                        ),
                    ),
                ),
            ),
        ),
        project=(".codex/config.toml",),
        token="${HUB_TOKEN}",
        restart="start a new session",
    ),
    Client(
        "gemini", "Gemini CLI",
        (
            Place(
                everywhere("~/.gemini/settings.json"),
                _mcp_servers(
                    http={"url": Slot.URL, "type": "http", "headers": Slot.HEADERS},
                    keys=ServerKeys("timeout", 1000, allow="includeTools", deny="excludeTools"),
                ),
            ),
        ),
        project=(".gemini/settings.json",),
        token="${HUB_TOKEN}",
        cli=OwnCli("gemini", ("mcp", "add", "--scope", "user", "{name}", "{command}", "{args}"), writes_anew=True),
        restart=_RESTART,
    ),
    Client(
        "cline", "Cline",
        (
            *_only_read(*in_storage("saoudrizwan.claude-dev/settings/cline_mcp_settings.json")),
            Place(
                everywhere(
                    "$CLINE_MCP_SETTINGS_PATH",
                    "$CLINE_DATA_DIR/settings/cline_mcp_settings.json",
                    "$CLINE_DIR/data/settings/cline_mcp_settings.json",
                    "~/.cline/data/settings/cline_mcp_settings.json",
                ),
                _mcp_servers(
                    {"transport": TYPED},
                    {"transport": {"type": "streamableHttp", "url": Slot.URL, "headers": Slot.HEADERS}},
                    ServerKeys("timeout", off=("disabled", True)),
                ),
            ),
        ),
        marks=("$CLINE_DIR", "~/.cline"),
    ),
    Client(
        "continue", "Continue",
        (
            *_only_read(
                everywhere("~/.continue/config.yaml"), everywhere("~/.continue/mcpServers/*.yaml"),
                layouts=(Layout(("mcpServers",), is_list=True),),
            ),
            *_only_read(everywhere("~/.continue/mcpServers/*.json")),  # copied from other clients
            Place(
                everywhere("~/.continue/mcpServers/mcp-hub.yaml"),
                (
                    Layout(
                        ("mcpServers",),
                        {"name": Slot.NAME, **TYPED},
                        {"name": Slot.NAME, "type": "streamable-http", "url": Slot.URL},
                        is_list=True,
                        around={"name": "mcp-hub", "version": "0.0.1", "schema": "v1"},
                    ),
                ),
                is_own=True,
            ),
        ),
        marks=("~/.continue",),
    ),
    Client(
        "goose", "Goose",
        (
            Place(
                dot_config("goose/config.yaml", "Block/goose/config/config.yaml"),
                (
                    Layout(
                        ("extensions",),
                        {"name": Slot.NAME, "type": "stdio", "cmd": Slot.COMMAND, "args": Slot.ARGS, **_GOOSE_COMMAND},
                        {"name": Slot.NAME, "type": "streamable_http", "uri": Slot.URL, "headers": {}, **_GOOSE},
                        keys=ServerKeys(
                            "timeout", allow="available_tools", off=("enabled", False), env="envs", headers="headers"
                        ),
                    ),
                ),
            ),
        ),
        restart="start a new session",
        link=goose_link,
    ),
    Client(
        "opencode", "OpenCode",
        tuple(
            Place(
                paths,
                (
                    Layout(
                        ("mcp", "servers"), {**_OPENCODE, "timeout": 30000}, {"type": "remote", **URL},
                        keys=replace(_OPENCODE_KEYS, off=("disabled", True)),
                    ),
                    Layout(
                        ("mcp",), {**_OPENCODE, "enabled": True, "timeout": 30000}, {"type": "remote", **URL},
                        keys=_OPENCODE_KEYS,
                    ),
                ),
            )
            for paths in (
                everywhere("$OPENCODE_CONFIG", "$XDG_CONFIG_HOME/opencode/opencode.jsonc"),
                everywhere("$OPENCODE_CONFIG", "$XDG_CONFIG_HOME/opencode/opencode.json"),
            )
        ),
        project=("opencode.jsonc", "opencode.json"),
        token="{env:HUB_TOKEN}",
        restart=_RESTART,
    ),
    Client(
        "lm-studio", "LM Studio",
        tuple(
            Place(everywhere(path), _mcp_servers()) for path in ("~/.cache/lm-studio/mcp.json", "~/.lmstudio/mcp.json")
        ),
        link=lm_studio_link,
    ),
    Client(
        "junie", "JetBrains Junie",
        (Place(everywhere("~/.junie/mcp/mcp.json"), _mcp_servers(http=None)),),
        project=(".junie/mcp/mcp.json",),
        marks=("~/.junie",),
    ),
    Client(
        "kiro", "Kiro",
        (
            *_only_read(everywhere("~/.aws/amazonq/mcp.json"), everywhere("~/.aws/amazonq/agents/default.json")),
            Place(
                everywhere("~/.kiro/settings/mcp.json"),
                _mcp_servers(keys=ServerKeys("timeout", 1000, deny="disabledTools", off=("disabled", True))),
            ),
        ),
        project=(".kiro/settings/mcp.json",),
        aliases=("amazon-q",),
        marks=("~/.kiro",),
    ),
    Client(
        "warp", "Warp",
        (Place(everywhere("~/.warp/.mcp.json"), _mcp_servers(keys=ServerKeys(folder="working_directory"))),),
        project=(".warp/.mcp.json",),
    ),
    Client(
        "jetbrains-ai", "JetBrains AI Assistant", _only_read(everywhere("~/.ai/mcp/mcp.json")),
        project=(".ai/mcp/mcp.json",),
    ),
    Client(
        "roo", "Roo Code", _only_read(*in_storage("rooveterinaryinc.roo-cline/settings/mcp_settings.json")),
        project=(".roo/mcp.json",),
    ),
    Client(
        "kilo", "Kilo Code", _only_read(*in_storage("kilocode.kilo-code/settings/mcp_settings.json")),
        project=(".kilocode/mcp.json",),
    ),
    Client(
        "amp", "Amp", _only_read(dot_config("amp/settings.json"), layouts=(Layout(("amp.mcpServers",)),)),
        project=(".amp/settings.json",),
    ),
    Client(
        "antigravity", "Antigravity",
        _only_read(everywhere("~/.gemini/antigravity/mcp_config.json"), everywhere("~/.gemini/config/mcp_config.json")),
    ),
    Client("factory", "Factory", _only_read(everywhere("~/.factory/mcp.json")), project=(".factory/mcp.json",)),
    Client("kimi", "Kimi", _only_read(everywhere("~/.kimi/mcp.json"))),
    Client("qwen", "Qwen Code", _only_read(everywhere("~/.qwen/settings.json")), project=(".qwen/settings.json",)),
    Client(
        "vibe", "Mistral Vibe",
        _only_read(everywhere("~/.vibe/config.toml"), layouts=(Layout(("mcp_servers",), is_list=True),)),
    ),
    _flatpak("vscode", "VS Code", "com.visualstudio.code", "Code"),
    _flatpak("vscodium", "VSCodium", "com.vscodium.codium", "VSCodium"),
    Client("pi", "pi", _only_read(everywhere("~/.config/mcp/mcp.json"))),
)  # fmt: skip

CLIENTS: Final[Mapping[str, Client]] = {client.name: client for client in _ALL}
"""All clients by name; import-only ones last."""


def _on_windows(client: Client) -> Client:
    """From WSL the hub does not run its command."""
    return replace(
        client,
        name=f"{client.name}-windows",
        title=f"{client.title} (Windows)",
        kind=client.client_kind,
        aliases=tuple(f"{alias}-windows" for alias in client.aliases),
        cli=None,
        windows_of=client.name,
    )


WINDOWS_CLIENTS: Final[Mapping[str, Client]] = {
    client.name: client
    for client in map(_on_windows, _ALL)
    if any(location.paths.windows for location in client.places)
}
"""Clients on the Windows around WSL, by name."""
_EVERY: Final = (*_ALL, *WINDOWS_CLIENTS.values())
_NAMES: Final = {name: client for client in _EVERY for name in (client.name, *client.aliases)}


def find_client(name: str) -> Client | None:
    return _NAMES.get(name.casefold())

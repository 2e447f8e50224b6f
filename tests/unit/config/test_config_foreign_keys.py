"""Keys of other clients, one at a time: what can be spared removes no server, and what limits it never widens it."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from mcp_hub.config.load.load import Loaded, parse

X: Final = {"command": "x"}
U: Final = {"url": "https://h.example/mcp"}


def loaded(server: object, name: str = "c.json", base: str = "/base", **env: str) -> Loaded:
    return parse(json.dumps({"mcpServers": {"a": server, "good": X}}), name, {"HOME": "/home/ann", **env}, Path(base))


def read(server: object, name: str = "c.json", base: str = "/base", **env: str) -> Any:
    """The server, which has not failed."""
    found = loaded(server, name, base, **env)
    assert found.settings.failure("a") is None, found.warnings
    return found.settings.servers["a"]


KINDS: Final[tuple[object, ...]] = ("STDIO", "local", "command", "stdio", 7)
REMOTE_KINDS: Final[tuple[object, ...]] = ("ws", "streaming-http", "SSE", "http-stream", "stdio", [])
TIMES: Final[tuple[object, ...]] = ({"connect": 5}, -1, 0, "soon", True, 1e30)
SPARED: Final[list[dict[str, Any]]] = [
    *({**X, "type": kind} for kind in KINDS),
    *({**U, "type": kind} for kind in REMOTE_KINDS),
    *({**X, "timeout": time} for time in TIMES),
    *({**X, key: True} for key in ("restart", "logs", "local", "expose", "task", "retry", "idle_stop", "per_tool")),
    *({**X, key: []} for key in ("skills", "rename", "cwd", "description", "headers", "env", "oauth", "hints")),
    *({**X, key: "auto"} for key in ("start", "scope", "approval", "orphan", "rename", "restart", "era")),
    *({**X, key: ""} for key in ("url", "cwd", "description", "prefix", "bearer")),
    *({**U, key: ""} for key in ("command", "bearer", "type")),
    {**U, "args": ["x"], "env": {"A": "1"}, "cwd": "/x"},
    {**X, "oauth": {"clientId": "a"}, "headers": {"A": "b"}, "bearer": "t"},
    {**U, "headers": {"Content-Type": "a", "Accept": "b", "Host": "c", "Connection": "d", "MCP-Protocol-Version": "e"}},
    {**U, "headers": {"X-Name": "Zürich", "bad name": "x", "A": {"b": 1}}},
    {**U, "headers": {"Authorization": "Basic eA=="}, "bearer": "t-1", "oauth": {}},
    {**U, "oauth": "yes"},
    {**U, "authProviderType": "google_credentials"},
    {**X, "env": {"A": {"b": 1}, "": "c", "D=E": "f"}},
    {**X, "toolCallTimeout": 5, "parallelToolCalls": True, "hideToolOutput": True, "toolPermissions": {}, "enabled": 1},
    {**X, "enableTools": True, "blockedTools": [], "disablePrompts": False, "isActive": True, "state": "on"},
    {**X, "sandbox": "none", "status": "connected", "autoApproveTools": "x", "trustedTools": 5},
    {**U, "apiKey": {"source": "user"}, "auth": "chatgpt", "experimental_environment": "local"},
]


@pytest.mark.parametrize("server", SPARED, ids=lambda server: json.dumps(server)[:60])
def test_a_key_that_can_be_spared_never_removes_a_server(server: dict[str, Any]) -> None:
    found = read(server)
    assert found.enabled and (found.command, found.url) == (server.get("command") or None, server.get("url") or None)


@pytest.mark.parametrize(
    ("server", "key", "value"),
    [
        ({**X, "args": "-y pkg 'a b'"}, "args", ["-y", "pkg", "a b"]),
        ({**X, "args": ["-p", 3000, True, None]}, "args", ["-p", "3000", "true"]),
        ({**X, "env": ["A=b=c"]}, "env", {"A": "b=c"}),
        ({**X, **U}, "command", "x"),
        ({**X, **U, "type": "http"}, "url", U["url"]),
        ({"url": " https://h.example/mcp "}, "url", U["url"]),
        ({"url": "https://u:p%40@h.example/mcp"}, "url", U["url"]),
        ({**U, "bearer": "Bearer abc-123"}, "bearer", "abc-123"),
        ({**X, "enabled": "true", "disabled": "false"}, "enabled", True),
        ({**X, "timeout": "60 s"}, "timeout", 60.0),
        ({"command": "npx -y 'a b'"}, "args", ["-y", "a b"]),
        ({"command": "/opt/My App/run"}, "command", "/opt/My App/run"),
        ({"command": "sh", "args": ["-c", "a\nb"]}, "args", ["-c", "a\nb"]),
        ({"baseUrl": U["url"]}, "url", U["url"]),
        ({"url": "https://h.example/sse", "httpUrl": U["url"]}, "url", U["url"]),
        ({**X, "timeout": "60000"}, "timeout", 60.0),
        ({**X, "timeoutMs": 500}, "timeout", 0.5),
        ({**X, "timeout_seconds": 2000}, "timeout", 2000.0),
        ({**X, "toolTimeout": 90}, "timeout", 90.0),
        ({**X, "startupTimeout": 20000}, "start_timeout", 20.0),
        ({**X, "startup_timeout_ms": 1500}, "start_timeout", 1.5),
        ({**X, "timeout": {"startup": 5000, "execution": 7}}, "start_timeout", 5.0),
        ({"server_url": U["url"]}, "url", U["url"]),
        ({"sse-url": U["url"]}, "type", "sse"),
        ({"COMMAND": "x", "Args": ["y"]}, "args", ["y"]),
        ({**X, "env": "A=b=c\nD=e, f"}, "env", {"A": "b=c", "D": "e, f"}),
        ({"command": "cmd", "args": ["/c", "npx", "-y", "p"]}, "command", "npx"),
        ({"command": r"C:\Windows\System32\cmd.exe", "args": ["/C", "npx.cmd -y p"]}, "args", ["-y", "p"]),
        ({**X, "disabled_tools": ""}, "enabled", True),
        ({**X, "allowedTools": "*"}, "enabled", True),
    ],
)
def test_other_forms_of_the_keys_that_decide_are_read(server: object, key: str, value: object) -> None:
    found = getattr(read(server), key)
    assert (found.get_secret_value() if key == "bearer" else found) == value


@pytest.mark.parametrize(
    ("kind", "header"),
    [
        ("bearer", {"Authorization": "Bearer k-1"}),
        ("basic", {"Authorization": "Basic k-1"}),
        ("custom", {"X-K": "k-1"}),
    ],
)
def test_a_key_of_librechat_becomes_a_header(kind: str, header: dict[str, str]) -> None:
    key = {"source": "admin", "key": "k-1", "authorization_type": kind, "custom_header": "X-K"}
    assert read({**U, "apiKey": key}).sent_headers() == header


def test_scopes_users_and_headers_belong_to_the_login_as_written() -> None:
    assert read({**U, "oauth": {"client_id": "c"}, "scopes": ["a"]}).oauth.scopes == ["a"]
    assert read({"url": "https://u:p%40@h.example/mcp"}).sent_headers() == {"Authorization": "Basic dTpwQA=="}
    headers = {"A": 5, "B": " ${TOK}", "Content-Type": "x"}
    found = read({**U, "headers": headers}, TOK="tok-1234567 ")
    assert found.sent_headers() == {"A": "5", "B": "tok-1234567"}
    assert read({**U, "headers": [{"name": "A", "value": "b"}]}).sent_headers() == {"A": "b"}
    assert read({**U, "headers": "A: b\nC: d"}).sent_headers() == {"A": "b", "C": "d"}


def test_tables_of_codex_pass_no_variable_of_another_machine_and_deny_tools() -> None:
    text = '[mcp_servers.a]\ncommand="x"\nenv_vars=["A", {name="B", source="remote"}, {name="C", source="local"}]\n'
    assert parse(text, "c.toml", {}, Path("/b")).settings.servers["a"].pass_env == ["A", "C"]
    text = '[mcp_servers.a]\ncommand="x"\n[mcp_servers.a.tools.rm]\nenabled=false\n[mcp_servers.a.tools.ls]\n'
    assert [one.name for one in parse(text, "c.toml", {}, Path("/b")).settings.servers["a"].tools.deny] == ["rm"]


LIMITS: Final[list[dict[str, Any]]] = [
    {"disabled": "maybe"},
    {"enabled": {}},
    {"enabled": True, "disabled": True},
    {"sandboxEnabled": "perhaps"},
    {"sandbox": True},
    {"sandboxEnabled": True, "sandbox": {"network": {"allowedDomains": "a.example"}}},
    {"sandboxEnabled": True, "sandbox": {"network": {"proxyOnly": True}}},
    {"sandboxEnabled": True, "sandbox": {"filesystem": []}},
    {"sandboxEnabled": True, "sandbox": {"filesystem": {"denyRead": ["/etc/passwd"]}}},
    {"sandboxEnabled": True, "sandbox": {"filesystem": {"denyRead": ["~"]}}},
    {"sandboxEnabled": True, "sandbox": {"filesystem": {"denyRead": ["${env:GONE}/x"]}}},
    {"sandboxEnabled": True, "sandbox": {"filesystem": {"denyRead": ["~/.nvm/versions"]}}},
    {"sandboxEnabled": True, "args": ["/data/a"], "sandbox": {"filesystem": {"denyRead": ["/data/a/b"]}}},
    {"sandboxEnabled": True, "args": ["/data/ab"], "sandbox": {"filesystem": {"denyRead": ["/data/a*"]}}},
    {"sandboxEnabled": True, "args": ["/data/a"], "sandbox": {"filesystem": {"denyRead": ["/data/{a,b}/**"]}}},
    {"sandboxEnabled": True, "args": ["--dir=/data/a/b"], "sandbox": {"filesystem": {"denyRead": ["/data/a"]}}},
    {"sandboxEnabled": True, "args": ["~/p/src/x.js"], "sandbox": {"filesystem": {"denyRead": ["~/p/.env"]}}},
    {"sandboxEnabled": True, "cwd": "/data/a", "sandbox": {"filesystem": {"denyRead": ["/data/a/.env"]}}},
    {"sandboxEnabled": True, "sandbox": {"filesystem": {"denyRead": ["/data/a/b"], "allowWrite": ["/data/a"]}}},
    {"sandboxEnabled": True, "sandbox": {"network": {"deniedDomains": ["a.*.example"]}}},
    {"sandboxEnabled": True, "command": "uvx", "sandbox": {"network": {"deniedDomains": ["pypi.org"]}}},
    {"enabledTools": "a"},
    {"allowedTools": {"a": 1}},
    {"disabledTools": [1]},
    {"tools": {"only": ["a"]}},
    {"tools": "read-only"},
    {"tools": {"allow": 5}},
    {"tools": {"include": ["a"], "allow": ["b"]}},
    {"enabledTools": ["a"], "tools": {"allow": ["b"]}},
    {"resources": 5},
    {"prompts": "none"},
    *({key: False} for key in ("isActive", "active", "is_enabled", "enable", "IsEnabled")),
    *({key: True} for key in ("disable", "isDisabled", "DISABLED")),
    {"isActive": "perhaps"},
    {"status": "Disabled"},
    {"blockedTools": "x"},
    {"deny-tools": {}},
    {"tool_filter": ["a"]},
    {"allowTools": 3},
    {"disableTools": True},
    {"disabledPrompts": 3},
    {"tools": {"x": {"enabled": "perhaps"}}},
    {"tools": {"x": {"mode": "read"}}},
    {"sandboxed": {"image": "x"}},
    {"experimental_environment": "remote"},
]


@pytest.mark.parametrize("limit", LIMITS, ids=json.dumps)
def test_a_limit_that_cannot_be_read_leaves_the_server_disabled(limit: dict[str, object]) -> None:
    found = loaded({**X, **limit})
    assert not found.settings.servers["a"].enabled and found.settings.failure("a") is None
    assert any(flag is False or flag is True or flag == "Disabled" for flag in limit.values()) or any(
        warning.path.startswith("mcpServers.a") and "disabled" in warning.message for warning in found.warnings
    )


@pytest.mark.parametrize(
    ("limit", "allowed", "denied"),
    [
        ({"tools": {"echo": True, "env": False}}, None, ["env"]),
        ({"tools": {"include": ["a"], "exclude": ["b"]}}, ["a"], ["b"]),
        ({"tools": False}, None, ["*"]),
        ({"tools": True}, None, []),
        ({"tools": "*"}, None, []),
        ({"disallowedTools": ["x"]}, None, ["x"]),
        ({"blocked_tools": ["x"], "excludeTools": ["y"]}, None, ["x", "y"]),
        ({"includedTools": ["x"]}, ["x"], []),
        ({"toolsAllowlist": ["x"]}, ["x"], []),
        ({"enabledTools": []}, [], []),
        ({"tools": {"a": {"enabled": "no"}, "b": {"disabled": True}, "c": {"enabled": 1}}}, None, ["a", "b"]),
        ({"sandbox": {"a": 1}, "sandboxEnabled": False}, None, []),
    ],
)
def test_limits_of_other_clients_are_limits_here(limit: dict[str, object], allowed: object, denied: object) -> None:
    found = read({**X, **limit})
    tools = found.tools
    assert found.enabled and (tools.allow and [one.name for one in tools.allow], [o.name for o in tools.deny]) == (
        allowed,
        denied,
    )
    assert [one.name for one in read({**X, "prompts": False}).prompts.deny] == ["*"]


@pytest.mark.parametrize(
    ("name", "written", "seconds"),
    [
        ("/p/.gemini/settings.json", 2000, 2.0),
        ("/p/.mcp.json", 500, 0.5),
        ("/p/opencode.json", 5000, 5.0),
        ("/p/cline_mcp_settings.json", 3600, 3600.0),
        ("/p/.roo/mcp.json", 60, 60.0),
        ("/p/.cursor/mcp.json", 30000, 30.0),
        ("/p/.cursor/mcp.json", 60, 60.0),
        ("/p/.cursor/mcp.json", "45", 45.0),
    ],
)
def test_a_timeout_is_in_the_unit_of_its_client(name: str, written: object, seconds: float) -> None:
    assert read({**X, "timeout": written}, name, str(Path(name).parent)).timeout == seconds


@pytest.mark.parametrize(
    ("login", "expected"),
    [
        ({"oauth": False}, None),
        ({"oauth": {"enabled": False, "clientId": "a"}}, None),
        ({"oauth": True}, {}),
        ({"auth": "oauth"}, {}),
        ({"oauth": {"clientId": "a", "callbackPort": 8123, "scope": "x y", "tokenUrl": "https://t.example"}},
         {"client_id": "a", "redirect_port": 8123, "scopes": ["x", "y"]}),
        ({"auth": {"CLIENT_ID": "a", "CLIENT_SECRET": "s", "scopes": ["x"]}}, {"client_id": "a", "scopes": ["x"]}),
    ],
)  # fmt: skip
def test_logins_of_other_clients_are_read(login: dict[str, object], expected: dict[str, object] | None) -> None:
    found = read({**U, **login})
    assert (found.oauth is None) == (expected is None)
    if expected is not None:
        shown = found.oauth.model_dump(exclude_defaults=True)
        assert {key: value for key, value in shown.items() if key != "client_secret"} == expected


def test_a_double_key_fails_its_server_and_no_other() -> None:
    for middle in ('"a": {"command": "x", "command": "y"}', '"a": {"command": "x"}, "a": {"command": "y"}'):
        text = f'{{"theme": 1, "theme": 2, // two\n"mcpServers": {{{middle}, "good": {{"command": "x"}},}}}}'
        found = parse(text, "c.json", {}, Path("/base"))
        cause = found.settings.failure("a")
        assert cause is not None and cause.code == "duplicate_key" and found.settings.failure("good") is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"mcp.servers": {"a": {"command": "x"}}, "editor.fontSize": 1}', "settings.json"),
        ('{"mcp": {"servers": {"a": {"command": "x"}}}}', "settings.json"),
        ('{"amp.mcpServers": {"a": {"command": "x"}}}', "settings.json"),
        ('{"settings": {"mcp": {"servers": {"a": {"command": "x"}}}, "folders": []}}', "p.code-workspace"),
        ('{"augment.advanced": {"mcpServers": [{"name": "a", "command": "x"}]}}', "settings.json"),
        ('{"mcp": {"servers": {"command": "y"}, "a": {"type": "local", "command": ["x"]}}}', "opencode.json"),
        ('{"mcpServers": {"a": {"command": "x"}}, "servers": {}, "mcp": null}', "c.json"),
        ('{"mcpServers": null, "servers": {"a": {"command": "x"}}, "inputs": []}', "mcp.json"),
        ('{"customizations": {"vscode": {"mcp": {"servers": {"a": {"command": "x"}}}}}}', "devcontainer.json"),
        ("version: 1\ncache: true\nmcpServers:\n  a: {command: x, timeout: 60000, iconPath: /x}\n", "librechat.yaml"),
        ("name: me\nschema: v1\nmcpServers:\n  - {name: a, command: x, connectionTimeout: 5000}\n", "config.yaml"),
        ("extensions:\n  a: {type: stdio, cmd: x, envs: {A: b}, timeout: 300}\nGOOSE_MODEL: m\n", "config.yaml"),
        ('[profiles.o3]\nm = "x"\n[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.tools.t]\napproval_mode = "auto"\n',
         "config.toml"),
        ('{"defaults": {"model": "x"}, "profiles": [], "mcpServers": {"a": {"command": "x"}}}', "c.json"),
    ],
)  # fmt: skip
def test_files_of_every_client_give_their_servers(text: str, name: str) -> None:
    found = parse(text, name, {}, Path("/base"))
    assert found.settings.servers["a"].command == "x" and found.settings.failure("a") is None


OFF: Final = "off"


@pytest.mark.parametrize(
    ("name", "holder", "rules", "expected"),
    [
        ("c.json", "mcpServers", {"mcp": {"allowed": ["b"]}}, OFF),
        ("c.json", "mcpServers", {"mcp": {"excluded": ["a"]}}, OFF),
        ("c.json", "mcpServers", {"mcp": {"allowed": "b"}}, OFF),
        ("c.json", "mcpServers", {"excludeMCPServers": ["a"]}, OFF),
        ("c.json", "mcpServers", {"allowMCPServers": ["b"]}, OFF),
        ("c.json", "mcpServers", {"allowMCPServers": ["a"], "mcp": {"excluded": []}}, []),
        ("settings.json", "mcp.servers", {"chat.mcp.access": "none"}, OFF),
        ("opencode.json", "mcp", {"tools": {"a*": False}}, OFF),
        ("opencode.json", "mcp", {"tools": {"a_*": False, "a_ok": True}}, OFF),
        ("opencode.json", "mcp", {"tools": {"*": False, "a_*": True}}, []),
        ("opencode.json", "mcp", {"tools": {"a_rm": False, "b_x": False, "*_drop": False}}, ["rm", "*_drop", "drop"]),
        ("opencode.json", "mcp", {"permission": {"a_*": "deny", "edit": "ask"}}, OFF),
        ("opencode.json", "mcp", {"permission": {"a_*": "ask", "bash": {"*": "deny"}}}, []),
        ("/h/.aws/amazonq/agents/default.json", "mcpServers", {"tools": ["@b", "fs_read"]}, OFF),
        ("/h/.aws/amazonq/agents/default.json", "mcpServers", {"tools": ["@a"], "allowedTools": ["fs_read"]}, []),
        ("/h/.aws/amazonq/agents/default.json", "mcpServers", {"tools": "fs_read"}, OFF),
        ("amp/settings.json", "amp.mcpServers", {"amp.tools.disable": ["mcp__a__rm", "builtin:x"]}, ["rm"]),
    ],
)
def test_rules_beside_the_servers_limit_them(name: str, holder: str, rules: dict[str, Any], expected: object) -> None:
    text = json.dumps({**rules, holder: {"a": {**X, "type": "local"}, "b": X}})
    server = parse(text, name, {}, Path(name).parent).settings.servers["a"]
    assert (OFF if not server.enabled else [one.name for one in server.tools.deny]) == expected


def test_one_tool_of_a_server_may_be_all_that_an_agent_has() -> None:
    text = json.dumps({"tools": ["@a/read"], "mcpServers": {"a": X, "b": X}})
    found = parse(text, "/h/.aws/amazonq/agents/default.json", {}, Path("/h/.aws/amazonq/agents")).settings.servers
    assert [one.name for one in found["a"].tools.allow or ()] == ["read"] and not found["b"].enabled


TOML: Final = "[mcp_servers.good]\ncommand='x'\n"
LIST: Final = "name: n\nversion: 1\nschema: v1\nmcpServers:\n  - {name: good, command: x}\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.toml", f"model='x'\nmodel='y'\n[mcp_servers.a]\ncommand='x'\ncommand='y'\n{TOML}"),
        ("config.toml", f"[mcp_servers.a]\ncommand='x'\n{TOML}[mcp_servers.a]\ncommand='y'\nargs=['z']\n"),
        ("config.toml", f'[mcp_servers.a]\ncommand=\'x\'\n[mcp_servers.a.env]\nA=\'1\'\nA="""2\n3"""\n{TOML}'),
        ("config.toml", f"[mcp_servers.a]\ncommand='x'\nenv={{A='1',A='2'}}\n{TOML}"),
        ("config.toml", f"[mcp_servers.a]\ncommand='x'\nenv={{A='1'}}\n[mcp_servers.a.env]\nB='2'\n{TOML}"),
        ("config.toml", "mcp_servers.a.command='x'\nmcp_servers.a.command='y'\nmcp_servers.good.command='x'\n"),
        (".continue/config.yaml", f"{LIST}  - {{name: a, command: x}}\n  - {{name: a, command: y}}\n"),
        ("config.yaml", "A: 1\nA: 2\nextensions:\n  a: {cmd: x, cmd: y}\n  good: {cmd: x}\n"),
    ],
)
def test_a_double_key_of_any_format_fails_its_server_and_no_other(name: str, text: str) -> None:
    found = parse(text, name, {}, Path("/base")).settings
    cause = found.failure("a")
    assert cause is not None and cause.code == "duplicate_key" and found.failure("good") is None
    assert found.servers["good"].command == "x"


def test_the_entry_of_the_hub_is_not_started_and_parts_of_a_client_are_no_servers() -> None:
    found = loaded({"command": "/opt/bin/mcp-hub", "args": ["serve", "--config", "c.json"]})
    assert not found.settings.servers["a"].enabled and any("it is this hub" in one.message for one in found.warnings)
    text = "extensions:\n  dev: {type: builtin, bundled: true}\n  py: {type: inline_python, code: x}\n  a: {cmd: x}\n"
    assert [*parse(text, "config.yaml", {}, Path("/base")).settings.servers] == ["a"]

"""Any data in a file of another client gives servers, or findings; nothing else, however odd a key is."""

import json
import re
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.config.load.imported import ValuePlaces, sources_of
from mcp_hub.config.load.load import parse
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.clients.model import Where
from mcp_hub.onboarding.clients.wsl import WindowsSide
from mcp_hub.onboarding.imports.found import of_file

KEYS: Final = (
    "command url serverUrl httpUrl args env headers type transport transportType timeout initTimeout oauth auth enabled"
    " disabled tools enabledTools disabledTools prompts sandbox sandboxEnabled cwd envFile env_vars env_keys bearer"
    " env_http_headers requestOptions pass_env local skills per_tool rename name scope description"
).split()
TEXTS: Final = (
    *("", "\xe9\n", "60 s", *"x /x ~ \x00 \\ ' true https://[ https://u:p@[::1]/ https://h.example".split()),
    *("${A}", "$A", "%A%", "${env:A}", "${A:-${B}}", "${", "${:-}", "$${A}", "${input:a b}", "${{ secrets.A }}"),
    *("{env:A}", "{file:x}", "${file:x}", "${workspaceFolder}", "-c", "sh"),
)
WINDOWS_TEXTS: Final = (
    *("cmd", "CMD.exe", "/c", "/d", "npx -y x", "npx.cmd", "py", "-3.12", "wsl.exe", "-d", "Ubuntu", "-e", "a & b"),
    *(r"C:\x\..\..\y", "d:/x", r"--o=C:\x", "file:///C:/x", r"\\h\s", r"\\wsl$\Ubuntu\x", r"\\?\C:\x", r"a C:\x"),
    *("%APPDATA%", "%A", "${userHome}", "${APPDATA}"),
)
NAMES: Final = ("c.json", "mcp.json", ".mcp.json", "opencode.json", "claude_desktop_config.json", "librechat.yaml")
HOLDERS: Final = ("mcpServers", "context_servers", "mcp", "mcp_servers", "mcp.servers", "servers", "extensions")
ENV: Final = {"HOME": "/nowhere/home", "A": "a-value-1"}
KEPT_PLACES: Final = ValuePlaces(lambda _: "${file:secrets/x}", lambda *_: "${file:secrets/x}")
PLACES: Final = ValuePlaces(lambda _: "${X}", lambda *_: "${file:secrets/x}")

leaves = st.sampled_from(TEXTS) | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "A", "="]), inner, max_size=3),
    max_leaves=8,
)
servers = st.dictionaries(st.sampled_from(KEYS), values, max_size=6)
holders = st.dictionaries(st.sampled_from(("a", "b")), servers | values, max_size=2) | values


@given(
    st.sampled_from(NAMES), st.dictionaries(st.sampled_from(HOLDERS), holders, min_size=1, max_size=2), st.booleans()
)
def test_any_data_gives_servers_or_findings(tmp_path_factory: Any, name: str, data: object, is_named: bool) -> None:
    folder = tmp_path_factory.getbasetemp()
    text = json.dumps(data)
    try:
        loaded = parse(text, str(folder / name), ENV, folder, lenient=True, is_named=is_named)
    except ConfigError as error:
        assert error.findings
    else:
        assert is_named or loaded.is_named or not any("a-value-1" in str(server.env) for server in _on(loaded))
    (folder / name).write_text(text)
    try:
        of_file(folder / name, Where("linux", Path("/nowhere/home"), ENV), PLACES)
    except ConfigError as error:
        assert error.findings


windows_texts = st.sampled_from(WINDOWS_TEXTS + TEXTS)
windows_servers = st.fixed_dictionaries(
    {"command": windows_texts},
    optional={
        **{"args": st.lists(windows_texts, max_size=5), "env": st.dictionaries(st.sampled_from("AB"), windows_texts)},
        **{"cwd": windows_texts, "envFile": windows_texts, "env_vars": st.lists(windows_texts, max_size=2)},
    },
)


@given(st.dictionaries(st.sampled_from(("a", "b")), windows_servers, min_size=1))
def test_any_server_of_windows_is_one_of_linux_or_stays(tmp_path_factory: Any, data: object) -> None:
    root = tmp_path_factory.getbasetemp() / "win"
    path = root / "c/Users/a/.cursor/mcp.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": data}))
    side = WindowsSide(root, root / "c/Users/a", "Ubuntu", "me")
    found = of_file(path, Where("linux", Path("/nowhere/home"), ENV, side), KEPT_PLACES)
    assert len(found.servers) + len(found.skipped) == len(json.loads(path.read_text())["mcpServers"])
    for one in found.servers:
        assert one.is_users and not [source for source in sources_of(one.entry) if source != "file secrets/x"], (
            one.entry
        )
        assert "a-value-1" not in str(one.entry) and ENV["HOME"] not in str(one.entry)
        texts = [
            one.entry["command"],
            one.entry.get("cwd", ""),
            *one.entry.get("args", ()),
            *one.entry.get("env", {}).values(),
        ]
        is_linux = "wsl" in str(json.loads(path.read_text())["mcpServers"][one.name]["command"])
        assert is_linux or not any(re.search(r"(?<![A-Za-z\\])[A-Za-z]:[\\/](?!/)", text) for text in texts), one.entry
        assert not any(f"{root}/c/../" in text for text in texts)


def _on(loaded: Any) -> list[Any]:
    return [server for server in loaded.settings.servers.values() if server.enabled]

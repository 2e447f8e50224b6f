"""Any data in a file of another client gives servers, or findings; nothing else, however odd a key is."""

import json
from pathlib import Path
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.cli.clients.places import Where
from mcp_hub.cli.imports.found import of_file
from mcp_hub.config.load.imported import ValuePlaces
from mcp_hub.config.load.load import parse
from mcp_hub.errors import ConfigError

KEYS: Final = (
    "command url serverUrl httpUrl args env headers type transport transportType timeout initTimeout oauth auth enabled"
    " disabled tools enabledTools disabledTools prompts sandbox sandboxEnabled cwd envFile env_vars env_keys bearer"
    " env_http_headers requestOptions pass_env local skills per_tool rename name scope description"
).split()
TEXTS: Final = (
    *(
        "",
        "x",
        "/x",
        "~",
        "é\n",
        "\0",
        "\\",
        "'",
        "true",
        "60 s",
        "https://[",
        "https://u:p@[::1]/",
        "https://h.example",
    ),
    *("${A}", "$A", "%A%", "${env:A}", "${A:-${B}}", "${", "${:-}", "$${A}", "${input:a b}", "${{ secrets.A }}"),
    *("{env:A}", "{file:x}", "${file:x}", "${workspaceFolder}", "-c", "sh"),
)
NAMES: Final = ("c.json", "mcp.json", ".mcp.json", "opencode.json", "claude_desktop_config.json", "librechat.yaml")
HOLDERS: Final = ("mcpServers", "context_servers", "mcp", "mcp_servers", "mcp.servers", "servers", "extensions")
ENV: Final = {"HOME": "/nowhere/home", "A": "a-value-1"}
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


def _on(loaded: Any) -> list[Any]:
    return [server for server in loaded.settings.servers.values() if server.enabled]

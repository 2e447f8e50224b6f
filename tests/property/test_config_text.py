"""Whatever text is parsed: settings or a ConfigError, one finding a line, and no secret in it."""

import json
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from mcp_hub.config.load.load import Loaded, parse
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError

SECRET = "s3cr3t-from-outside"
ENV = {"A": SECRET, "HOME": "/home/alice", "OFF": "false"}
NAMES = ["s.yaml", "s.json", "s"]


def parsed(text: str, name: str) -> Loaded | None:
    """The settings, or None after checking that the refusal is fit to print."""
    try:
        return parse(text, name, ENV, Path("/base"))
    except ConfigError as error:
        lines = str(error).split("\n")
        assert all(line.startswith(f"{name}:") for line in lines)
        assert SECRET not in str(error)
        str(error).encode()
        return None


SECTIONS = Settings.model_json_schema()["$defs"].values()
keys = st.sampled_from(sorted({key for own in SECTIONS for key in own.get("properties", ())})) | st.text(max_size=5)
texts = st.sampled_from(
    ["${A}", "${B}", "${A:-x}", "${file:x}", "$${", "${", "30m", "1MB", "auto", "a:b", "~/x", "stdio"]
)
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts | st.text(max_size=8)
trees = st.recursive(scalars, lambda deeper: st.lists(deeper, max_size=3) | st.dictionaries(keys, deeper, max_size=4))
names = st.sampled_from(["a", "b"]) | st.text(max_size=3)
server_keys = st.sampled_from(sorted(ServerSettings.model_fields))
servers = st.dictionaries(server_keys, texts | trees, max_size=5).map(lambda keys: {"command": "x", **keys})
files = st.fixed_dictionaries(
    {},
    optional={
        "servers": st.dictionaries(names, servers, max_size=3),
        "hub": trees,
        "defaults": trees,
        "profiles": trees,
    },
)
YAMLISH = "abc \n\t:-?[]{},&*!|>'\"%@#<=0123456789.${}~\\/\0\ufeff\x85\ud800"


@given(st.text(), st.sampled_from(NAMES))
def test_any_text_is_settings_or_a_config_error(text: str, name: str) -> None:
    parsed(text, name)


@given(st.text(alphabet=YAMLISH), st.sampled_from(NAMES))
def test_any_punctuation_is_settings_or_a_config_error(text: str, name: str) -> None:
    parsed(text, name)


@given(files | trees, st.sampled_from(NAMES))
def test_any_tree_is_settings_or_a_config_error(tree: object, name: str) -> None:
    parsed(json.dumps(tree), name)


@given(files | trees)
def test_any_yaml_tree_is_settings_or_a_config_error(tree: object) -> None:
    parsed(yaml.safe_dump(tree), "s.yaml")


@given(st.dictionaries(st.sampled_from("abc"), st.just({"command": "x", "args": ["${A}"]}), min_size=1))
def test_yaml_and_json_of_one_tree_load_alike(servers: object) -> None:
    tree = {"servers": servers}
    as_yaml, as_json = parsed(yaml.safe_dump(tree), "s.yaml"), parsed(json.dumps(tree), "s.json")
    assert as_yaml is not None
    assert as_json is not None
    assert (as_yaml.settings, as_yaml.secrets) == (as_json.settings, as_json.secrets)


THEIRS = """command args env envFile url serverUrl transport transportType type http_headers env_http_headers tools
bearer_token_env_var env_vars startup_timeout_ms startup_timeout_sec disabledTools environment cwd name""".split()
foreign_values = trees | st.dictionaries(st.sampled_from(["type", "command", "path", "name"]), texts, max_size=2)
foreign_servers = st.dictionaries(st.sampled_from(THEIRS), foreign_values, max_size=5)
holders = st.sampled_from(["mcpServers", "context_servers", "mcp_servers", "mcp", "servers", "inputs"])


@given(
    st.dictionaries(holders, st.dictionaries(names, foreign_servers, max_size=2) | st.lists(foreign_servers) | trees)
    | st.dictionaries(names, foreign_servers, min_size=1, max_size=2),
    st.sampled_from(["s.json", "mcp.json"]),
)
def test_any_file_of_another_client_is_settings_or_a_config_error(tree: object, name: str) -> None:
    parsed(json.dumps(tree), name)

"""`servers.overrides.yaml` beside the configuration: which keys it may have, and how they are laid over `per_tool`."""

from pathlib import Path

import pytest

from mcp_hub.config.load.load import Loaded, load
from mcp_hub.errors import ConfigError

SERVERS = """
servers:
  git:
    command: git
    rename: {pull: fetch_all}
    per_tool:
      "write_*": {fixed: {force: false}, hide: true}
"""


def loaded(root: Path, overrides: str) -> Loaded:
    (root / "servers.yaml").write_text(SERVERS)
    (root / "servers.overrides.yaml").write_text(overrides)
    return load(root / "servers.yaml", {})


def test_an_override_changes_its_keys_and_keeps_what_the_glob_says_of_others(tmp_path: Path) -> None:
    found = loaded(tmp_path, "servers: {git: {per_tool: {write_file: {hide: false, pin: true}, pull: {name: pull}}}}")
    git = found.settings.servers["git"]
    own = git.per_tool["write_file"]
    assert (own.hide, own.pin, own.fixed) == (False, True, {"force": False})
    assert git.per_tool["write_*"].hide and git.per_tool["pull"].name == "pull" and git.rename == {}
    assert next(iter(git.per_tool)) == "write_file", "what names a tool decides before a glob"
    assert found.overrides is not None


def test_without_the_file_nothing_is_laid_over(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(SERVERS)
    assert load(tmp_path / "servers.yaml", {}).overrides is None


@pytest.mark.parametrize(("text", "code", "named"), [
    ("servers: {git: {command: evil}}", "unknown_key", "servers.git.command"),
    ("servers: {git: {per_tool: {x: {fixed: {a: 1}}}}}", "unknown_key", "servers.git.per_tool.x.fixed"),
    ("servers: {git: {per_tool: {x: {name: 'a b'}}}}", "invalid_value", "servers.git.per_tool.x.name"),
    ("servers: {git: {per_tool: {x: {name: n}, y: {name: n}}}}", "duplicate_name", '"n"'),
    ("servers: [", "invalid_yaml", "servers.overrides.yaml"),
])  # fmt: skip
def test_any_other_key_is_an_error_that_names_the_file(tmp_path: Path, text: str, code: str, named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.code == code and named in str(caught.value) and "servers.overrides.yaml" in str(caught.value)


def test_a_server_that_is_gone_is_a_warning(tmp_path: Path) -> None:
    (warning,) = loaded(tmp_path, "servers: {old: {per_tool: {x: {hide: true}}}}").warnings
    assert (warning.code, warning.path) == ("unknown_server", "servers.old")


def test_a_file_that_others_can_write_is_not_trusted(tmp_path: Path) -> None:
    loaded(tmp_path, "servers: {}")
    (tmp_path / "servers.overrides.yaml").chmod(0o666)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "servers.yaml", {})
    assert caught.value.code == "config_untrusted"

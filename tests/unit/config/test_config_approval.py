"""`approval`: what becomes of changed tools, of all servers and of one."""

from pathlib import Path

import pytest

from mcp_hub.app.catalog_rules import policies
from mcp_hub.config.load.load import load
from mcp_hub.config.schema.settings import Settings
from mcp_hub.errors import ConfigError


def settings(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "servers.yaml").write_text(text)
    return load(tmp_path / "servers.yaml", {}).settings


@pytest.mark.parametrize("off", ["off", '"off"', "false", "no"])
def test_servers_say_it_else_the_defaults_else_it_is_warn(tmp_path: Path, off: str) -> None:
    servers = (
        f"servers: {{a: {{command: x}}, b: {{command: x, approval: block}}, c: {{command: x, approval: {off}}}}}\n"
    )
    assert policies(settings(tmp_path, servers)) == {"a": "warn", "b": "block", "c": "off"}
    assert policies(settings(tmp_path, servers + "defaults: {approval: block}")) == {
        "a": "block",
        "b": "block",
        "c": "off",
    }


@pytest.mark.parametrize("bad", ["on", "true", "blok", "1", "[]"])
def test_anything_else_is_a_mistake(tmp_path: Path, bad: str) -> None:
    with pytest.raises(ConfigError, match=r"servers\.yaml:1: servers\.a\.approval: "):
        settings(tmp_path, f"servers: {{a: {{command: x, approval: {bad}}}}}")

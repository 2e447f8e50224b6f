"""The models' own promises, and the JSON Schema for editors."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from mcp_hub.config.schema.settings import RestartSettings, Settings, json_schema
from tests.unit.config.editors import accepts

SHIPPED = Path(__file__).parents[3] / "servers.yaml"
SERVER = {"command": "x"}


def test_effective_value_is_the_servers_own_else_the_default() -> None:
    settings = Settings.model_validate(
        {
            "servers": {"a": {**SERVER, "timeout": "5s", "restart": {"intensity": 1}}, "b": SERVER},
            "defaults": {"timeout": "10m", "max_duration": 60},
        }
    )
    assert settings.effective("a").timeout == 5.0
    assert settings.effective("a").max_duration == 60.0
    assert settings.effective("a").restart == RestartSettings(intensity=1, period=60.0)
    assert settings.effective("b").timeout == 600.0
    assert settings.effective("b").restart == RestartSettings(intensity=5, period=60.0)


def test_defaults_are_the_documented_ones() -> None:
    settings = Settings()
    assert settings.defaults.model_dump(mode="json") == {
        "timeout": "30m",
        "max_duration": "6h",
        "request_timeout": "1m",
        "start_timeout": "1m",
        "restart": {"intensity": 5, "period": "1m"},
        "start": "eager",
        "idle_stop": None,
        "task": "auto",
        "orphan": None,
        "idempotent": False,
        "approval": "warn",
    }
    assert (settings.hub.first_list_wait, settings.hub.limits.line, settings.hub.http.port) == (2.0, 32 << 20, 8765)


def test_json_schema_is_one_and_is_plain_json() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())
    assert json.loads(json.dumps(json_schema())) == json_schema()


@pytest.mark.parametrize(
    "instance",
    [
        {},
        {"$schema": "x", "mcpServers": {"a": {"type": "stdio", "disabled": True, **SERVER}}},
        {"servers": {"a": {**SERVER, "timeout": "1h30m", "enabled": "${ON:-true}", "rename": {"a": "${NAME}"}}}},
        {"servers": {"a": {**SERVER, "era": "${ERA}", "restart": {"intensity": "${N}"}, "tools": {"deny": ["x*"]}}}},
        {"hub": {"http": {"port": "${PORT}", "max_body": "1 MiB"}, "limits": {"line": 4096}}},
        {"defaults": {"timeout": 5}, "profiles": {"a": {"servers": ["b"]}}},
    ],
)
def test_json_schema_takes_the_file_as_people_write_it(instance: object) -> None:
    assert accepts(instance)


@pytest.mark.parametrize(
    "instance",
    [
        {"servers": {}, "mcpServers": {}},
        {"servers": {"a": {"comand": "x"}}},
        {"servers": {"a": {}}},
        {"servers": {"a": {**SERVER, "local": "a:b"}}},
        {"servers": {"a": {**SERVER, "timeout": "soon"}}},
        {"servers": {"a": {**SERVER, "enabled": "perhaps"}}},
        {"hub": {"http": {"port": 70000}}},
        {"hub": {"page_size": "${SIZE}"}},
    ],
)
def test_json_schema_refuses_what_would_not_load(instance: object) -> None:
    assert not accepts(instance)


def test_json_schema_takes_the_shipped_file() -> None:
    assert accepts(yaml.safe_load(SHIPPED.read_text()))

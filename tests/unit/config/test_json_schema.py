"""The JSON Schema of `servers.yaml` admits all that the hub takes, and refuses mistakes that an editor should mark."""

import json
import re
from copy import deepcopy
from pathlib import Path

import jsonschema_rs
import pytest
import yaml

from mcp_hub.config.schema.fields import parse_duration, parse_size
from mcp_hub.config.schema.json_schema import json_schema
from mcp_hub.config.schema.settings import Settings
from tests.unit.cli.command import hub
from tests.unit.test_pages import ROOT, blocks

SCHEMA = json_schema()
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
SHIPPED = ROOT / "docs" / "servers.schema.json"


def mistakes(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))]


def test_the_shipped_files_agree() -> None:
    assert json.loads(SHIPPED.read_text("utf-8")) == SCHEMA, "mcp-hub schema --write docs/servers.schema.json"
    shipped = (ROOT / "servers.yaml").read_text("utf-8")
    assert shipped.startswith("# yaml-language-server: $schema=docs/servers.schema.json\n")
    assert mistakes(shipped) == []


def test_every_example_of_the_pages_is_admitted() -> None:
    found = 0
    for page, block in blocks("yaml"):
        data = yaml.safe_load(block)
        if isinstance(data, dict) and set(data) <= set(Settings.model_fields):
            assert mistakes(block) == [], page
            found += 1
    assert found > 15


def test_the_commented_lines_of_the_shipped_file_are_admitted() -> None:
    """All that it shows, switched on."""
    lines = (ROOT / "servers.yaml").read_text("utf-8").splitlines()
    prose = ("# The ", "# Values", "# Durations", "# yaml", "# Clock", "# Files", "# Python", "# A ")
    keys = [re.sub(r"^(\s*)# ", r"\1", line) for line in lines if not line.strip().startswith(prose)]
    data = yaml.safe_load("\n".join(keys))
    assert {"tokens", "store", "clients"} <= data["hub"].keys() and {"team", "github"} <= data["servers"].keys()
    assert mistakes("\n".join(keys)) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "servers:",
        "mcpServers: {a: {command: x, disabled: false, transport: stdio}}",
        "servers: {a: {command: x, timeout: 1h30m, enabled: '${ON:-true}', idle_stop: never, approval: off, tools:}}",
        "servers: {a: {url: 'https://x', type: streamable-http, era: auto, auth: oauth, headers: {X: '${T}'}}}",
        "hub: {store: 'sqlite:/x', http: {port: '${PORT}', max_body: 32 MiB}, limits: {stream_size: 1024}}",
        "servers: {a: {command: x, tools: {allow: ['a_*', {tag: read, readOnlyHint: true}]}, orphan: 30m}}",
    ],
)
def test_what_the_hub_takes_is_admitted(text: str) -> None:
    assert mistakes(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "servrs: {}",
        "hub: {expoze: full}",
        "hub: {expose: some}",
        "hub: {expose: '${X}'}",
        "hub: {http: {port: '80'}}",
        "servers: {a: {comand: x}}",
        "servers: {a: {command: [x]}}",
        "servers: {a: {command: x, args: -y}}",
        "servers: {a: {command: x, timeout: soon}}",
        "servers: {a: {command: x, timeout: -1}}",
        "servers: {a: {command: x, env: {N: 1}}}",
        "servers: {a: {command: x, tools: {deny: [{tga: x}]}}}",
        "servers: {a: {command: x, per_tool: {t: {hidden: true}}}}",
        "hub: {limits: {stream_size: 1 mile}}",
        "profiles: {p: {server: [a]}}",
        "[]",
    ],
)
def test_a_mistake_is_marked(text: str) -> None:
    assert mistakes(text)


@pytest.mark.parametrize("text", ["5m", "1h30m", "250ms", " 2.5 ", "10", "1m5", "m", "", "5 m", "1MB", "32 MiB", "7b"])
def test_quantities_are_those_that_the_hub_reads(text: str) -> None:
    for pattern, parse in (("timeout", parse_duration), ("max_body", parse_size)):
        section = {"defaults": {"timeout": text}} if pattern == "timeout" else {"hub": {"http": {"max_body": text}}}
        try:
            parse(text)
            is_read = True
        except ValueError:
            is_read = False
        assert VALIDATOR.is_valid(section) is is_read, pattern


def test_unknown_keys_are_refused_in_every_section() -> None:
    sections = [own for own in SCHEMA["$defs"].values() if "properties" in own]
    assert len(sections) > 15
    assert all(own["additionalProperties"] is False for own in (SCHEMA, *sections))


def test_the_models_are_not_changed() -> None:
    before = deepcopy(json_schema())
    assert json_schema() == before


@pytest.mark.processes
def test_the_command_prints_and_writes_it(tmp_path: Path) -> None:
    assert json.loads(hub(tmp_path, "schema").stdout) == SCHEMA
    written = hub(tmp_path, "schema", "--write", "own.json")
    assert written.stdout == f"# yaml-language-server: $schema={tmp_path}/own.json\n"
    assert json.loads((tmp_path / "own.json").read_text()) == SCHEMA
    refused = hub(tmp_path, "schema", "--write", "no/folder.json")
    assert refused.returncode == 2 and "output_unwritable" in refused.stderr

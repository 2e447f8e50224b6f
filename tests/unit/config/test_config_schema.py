"""The schema: its defaults and limits as documented, quantities and numbers, and the JSON Schema that editors get."""

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import jsonschema_rs
import pytest
import yaml

from mcp_hub.config.findings import DataPath
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema.defaults import RestartSettings
from mcp_hub.config.schema.fields import LONGEST, Section, as_flag, parse_duration, parse_size
from mcp_hub.config.schema.hub import HttpSettings, HubSettings
from mcp_hub.config.schema.json_schema import json_schema
from mcp_hub.config.schema.settings import ProfileSettings, Settings
from mcp_hub.errors import ConfigError
from tests.unit.cli.command import hub
from tests.unit.test_pages import ROOT, blocks

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
    assert settings.defaults.model_dump() == {
        "timeout": 1800.0,
        "max_duration": 21600.0,
        "request_timeout": 60.0,
        "start_timeout": 60.0,
        "restart": {"intensity": 5, "period": 60.0},
        "start": "eager",
        "idle_stop": None,
        "task": "auto",
        "orphan": None,
        "idempotent": False,
        "retry": {"attempts": 3, "first": 0.25, "factor": 2, "most": 60.0, "on": None},
        "approval": "warn",
        "hints": "trust",
        "sandbox": {"mode": "off", "read": None, "write": None, "net": "any", "sockets": []},
    }
    hub = settings.hub
    assert (hub.first_list_wait, hub.http.port, hub.task_after, hub.clients) == (None, 8765, 5.0, {})
    assert (hub.expose, hub.budget, hub.compact, hub.pinned) == ("auto", 8000, False, [])
    assert (hub.max_result_tokens, hub.aliases) == (8000, {})
    assert hub.store.model_dump(exclude={"prefix", "lease", "acknowledge"}) == {
        **{"type": "sqlite", "path": None, "url": None, "retention": 86400.0}
    }
    assert (hub.store.prefix, hub.store.lease, hub.store.acknowledge) == ("mcp-hub:", 1.2, "local")
    assert set(
        ProfileSettings().model_dump(exclude={"tools", "resources", "prompts", "events", "public"}).values()
    ) == {None}


@pytest.mark.parametrize(
    ("parse", "text", "number"),
    [
        (parse_duration, "30m", 1800.0),
        (parse_duration, "2s", 2.0),
        (parse_duration, "250ms", 0.25),
        (parse_duration, "6h", 21600.0),
        (parse_duration, "1h30m", 5400.0),
        (parse_duration, "1.5s", 1.5),
        (parse_duration, " 7 ", 7.0),
        (parse_duration, 3, 3.0),
        (parse_duration, 0.5, 0.5),
        (parse_duration, 0, 0.0),
        (parse_size, "32MiB", 32 << 20),
        (parse_size, "1MB", 10**6),
        (parse_size, "4 kb", 4000),
        (parse_size, "1.5KiB", 1536),
        (parse_size, "2GiB", 2 << 30),
        (parse_size, "12B", 12),
        (parse_size, "7", 7),
        (parse_size, 9, 9),
    ],
)
def test_duration_is_read_as_seconds_and_a_size_as_bytes(
    parse: Callable[[object], object], text: object, number: float
) -> None:
    assert parse(text) == number


NOT_READ: list[tuple[Callable[[object], object], str, tuple[object, ...]]] = [
    (parse_duration, "expected a duration", ("", "m", "30 minutes", "1h 30m", "-1s", "9" * 65, "٣s", True, None, [])),
    (parse_duration, "expected a duration", (-1, -(10**400), float("nan"), float("inf"))),
    (parse_duration, "longer than the limit of 366 days", (LONGEST + 1, "367d", 10**400, "9" * 60 + "h")),
    (parse_size, "expected a size", ("", "MiB", "1 MiBs", "-1", 0, -5, "0.1B", True, 1.5, None)),
    (parse_size, "larger than the limit of 1 TiB", ("1025GiB",)),
]


@pytest.mark.parametrize(
    ("parse", "said", "text"), [(parse, said, text) for parse, said, texts in NOT_READ for text in texts]
)
def test_what_is_no_quantity_or_beyond_its_limit_is_refused(
    parse: Callable[[object], object], said: str, text: object
) -> None:
    with pytest.raises(ValueError, match=said):
        parse(text)


@pytest.mark.parametrize(
    ("value", "flag"),
    [(True, True), ("Yes", True), ("off", False), ("0", False), ("maybe", None), (3, None), (None, None)],
)
def test_flag_is_read_in_any_usual_spelling(value: object, flag: bool | None) -> None:
    assert as_flag(value) is flag


def numbers(kind: Any, path: DataPath = ()) -> Iterator[DataPath]:
    """Where a number may stand below `path`; entries of mappings are called `a` there."""
    origin, arguments = get_origin(kind), get_args(kind)
    if isinstance(kind, type) and issubclass(kind, Section):
        for key, described in kind.model_fields.items():
            yield from numbers(described.annotation, (*path, key))
    elif kind in (int, float):
        yield path
    elif origin is Annotated:
        yield from numbers(arguments[0], path)
    elif origin in (Union, UnionType):
        for one in arguments:
            yield from numbers(one, path)
    elif origin is dict:
        yield from numbers(arguments[1], (*path, "a"))
    elif origin is list:
        yield from numbers(arguments[0], (*path, 0))


PATHS = sorted(set(numbers(Settings)), key=str)


def with_flag(path: DataPath) -> Any:
    tree: Any = True
    for part in reversed(path):
        tree = [tree] if part == 0 else {part: tree}
    if path[0] == "servers":
        tree["servers"]["a"] |= {"url": "https://example.com/mcp"} if "oauth" in path else {"command": "x"}
    return tree


def test_numbers_are_found_where_they_stand() -> None:
    keys = {".".join(map(str, path)) for path in PATHS}
    assert {"hub.http.port", "hub.limits.line", "defaults.timeout", "servers.a.restart.intensity"} <= keys
    assert {"hub.clients.a.soft_deadline", "servers.a.oauth.redirect_port", "profiles.a.budget"} <= keys
    assert len(keys) > 60


@pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(map(str, path)))
def test_flag_is_no_number(path: DataPath) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(json.dumps(with_flag(path)), "c.json", {}, Path("/base"))
    (said,) = (line for line in str(caught.value).split("\n") if f"{path[-1]}: expected " in line)
    assert said.split(": expected ")[1].startswith(("a whole number", "a duration such as", "a size such as"))


TEXT = (Path(__file__).parents[3] / "docs" / "limits.md").read_text("utf-8")
NO_LIMITS = {
    *("host", "port", "allowed_hosts", "allowed_origins", "cors", "allow_public", "public_url", "root_path"),
    *("close_streams_after", "oauth", "authorization", "dashboard"),
}
"""Keys of `hub.http` that bound nothing."""
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "s": 1, "min": 60, "d": 86400}


def table(title: str) -> dict[str, float]:
    """The defaults in the table of that section, by key."""
    section = TEXT.partition(f"## `{title}`\n")[2].partition("\n## ")[0]
    found = {}
    for key, number, unit in re.findall(r"^\| `(\w+)` \| (\d+)(?: (\w+))? \|", section, re.MULTILINE):
        found[key] = float(number) * (UNITS[unit] if unit else 1)
    return found


@pytest.mark.parametrize(("title", "settings", "others"), [
    ("hub.limits", HubSettings().limits, set()),
    ("hub.http", HttpSettings(), NO_LIMITS),
])  # fmt: skip
def test_every_limit_is_documented_with_its_default(title: str, settings: Section, others: set[str]) -> None:
    fields = type(settings).model_fields.keys()
    assert others <= fields
    assert table(title) == {key: getattr(settings, key) for key in fields - others}


@pytest.mark.parametrize("section", Section.__subclasses__())
def test_default_section_is_what_validating_an_empty_one_makes(section: type[Section]) -> None:
    for key, field in section.model_fields.items():
        if isinstance(field.default, Section):
            given = field.default.model_dump(exclude_unset=True)
            validated = type(field.default).model_validate(given)
            assert (field.default, field.default.model_fields_set) == (validated, set(given)), key


SCHEMA = json_schema()
VALIDATOR = jsonschema_rs.validator_for(SCHEMA)
SHIPPED = ROOT / "docs" / "servers.schema.json"


def mistakes(text: str) -> list[str]:
    return [error.message for error in VALIDATOR.iter_errors(yaml.safe_load(text))]


def test_shipped_files_and_examples_of_the_pages_are_admitted() -> None:
    assert json.loads(SHIPPED.read_text("utf-8")) == SCHEMA, "mcp-hub schema --write docs/servers.schema.json"
    shipped = (ROOT / "servers.yaml").read_text("utf-8")
    assert shipped.startswith("# yaml-language-server: $schema=docs/servers.schema.json\n")
    assert mistakes(shipped) == []
    found = 0
    for page, block in blocks("yaml"):
        data = yaml.safe_load(block)
        if isinstance(data, dict) and set(data) <= set(Settings.model_fields):
            assert mistakes(block) == [], page
            found += 1
    assert found > 15
    # All that it shows, switched on.
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
    for pattern, read in (("timeout", parse_duration), ("max_body", parse_size)):
        section = {"defaults": {"timeout": text}} if pattern == "timeout" else {"hub": {"http": {"max_body": text}}}
        try:
            read(text)
            is_read = True
        except ValueError:
            is_read = False
        assert VALIDATOR.is_valid(section) is is_read, pattern


def test_unknown_keys_are_refused_in_every_section_and_no_model_is_changed() -> None:
    sections = [own for own in SCHEMA["$defs"].values() if "properties" in own]
    assert len(sections) > 15
    assert all(own["additionalProperties"] is False for own in (SCHEMA, *sections))
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

"""The pages for people agree with the code: links, commands, options, keys of the configuration, examples."""

import html
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from bench.picture import PICTURES
from mcp_hub.cli import main
from mcp_hub.config.schema.clients import ClientSettings
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.hub import HttpSettings, HubSettings, LogSettings, StoreSettings, TokenSettings
from mcp_hub.config.schema.issuers import IssuerSettings, ResourceServerSettings
from mcp_hub.config.schema.overrides import OverrideSettings
from mcp_hub.config.schema.section import Section
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import ProfileSettings, Settings
from mcp_hub.config.schema.telemetry import TelemetrySettings
from mcp_hub.config.schema.tools import ToolSettings
from mcp_hub.upstreams.functions.registry import Registry
from tests.unit.formats.sdk_types import RESPONSES, fits

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md")), *DOCS]
PROVIDERS = {path.name for path in (ROOT / "docs/providers").iterdir()}
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def blocks(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL):
            yield page.name, block


def anchors(page: str) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", FENCE.sub("", page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def section(page: str, title: str) -> str:
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        path, _, anchor = target.partition("#")
        if "://" in path:
            continue
        place = (page.parent / path) if path else page
        assert place.exists(), target
        assert not anchor or anchor in anchors(place.read_text("utf-8")), target


def test_the_index_names_every_page() -> None:
    linked = set(LINK.findall(text("docs/README.md")))
    assert {page.relative_to(ROOT / "docs").as_posix() for page in DOCS} - {"README.md"} <= linked


def test_the_readme_is_short() -> None:
    assert len(text("README.md").splitlines()) < 200


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command by its name; one of a group is `group name`."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        yield name, command
        if isinstance(command, click.Group):
            yield from ((f"{name} {inner}", own) for inner, own in command.commands.items())


@pytest.mark.parametrize("name", PICTURES)
def test_commands_of_the_pictures_exist_and_are_in_them(name: str) -> None:
    shown = html.unescape(re.sub(r"<[^>]+>", "", text(f"docs/{name}.svg"))).replace("\xa0", " ")
    for typed in PICTURES[name]:
        assert f"$ {typed.partition('{')[0]}".rstrip() in shown
        _, called, *args = typed.split()
        command = dict(commands())[called]
        command.make_parser(click.Context(command)).parse_args(args)


def test_the_readme_shows_the_pictures() -> None:
    assert {f"docs/{name}.svg" for name in PICTURES} <= set(LINK.findall(text("README.md")))


def test_every_command_and_option_is_described() -> None:
    page = text("docs/cli.md")
    common = section(page, "Common options")
    for name, command in commands():
        own = section(page, name.partition(" ")[0])
        assert f"mcp-hub {name}" in own if " " in name else own, name
        for option in (param for param in command.params if isinstance(param, click.Option)):
            for spelled in option.opts:
                rows = [line for line in common.splitlines() if f"`{spelled}" in line and f"`{name}`" in line]
                assert rows or f"`{spelled}" in own, (name, spelled)


def test_no_option_is_described_that_does_not_exist() -> None:
    options = {opt for _, command in commands() for param in command.params for opt in param.opts}
    described = set(re.findall(r"`(--[a-z-]+)", text("docs/cli.md")))
    assert described - options <= {"--help", "--version"}


@pytest.mark.parametrize(
    ("page", "title", "settings"),
    [
        ("configuration", "`servers.NAME`", ServerSettings),
        ("configuration", "`defaults`", Defaults),
        ("configuration", "`servers.NAME.per_tool.TOOL`", ToolSettings),
        ("configuration", "`profiles.NAME`", ProfileSettings),
        ("configuration-hub", "`hub`", HubSettings),
        ("configuration-hub", "`hub.http`", HttpSettings),
        ("configuration-hub", "`hub.http.oauth`", ResourceServerSettings),
        ("configuration-hub", "`hub.http.oauth`", IssuerSettings),
        ("configuration-hub", "`hub.tokens`", TokenSettings),
        ("configuration-hub", "`hub.log`", LogSettings),
        ("configuration-hub", "`hub.store`", StoreSettings),
        ("configuration-hub", "`hub.clients.NAME`", ClientSettings),
        ("configuration-hub", "`hub.telemetry`", TelemetrySettings),
    ],
)
def test_every_key_is_described(page: str, title: str, settings: type[Section]) -> None:
    found = section(text(f"docs/{page}.md"), title)
    keys = set(
        re.findall(r"`(\w+)(?:\.\w+)?`", "\n".join(line.split("|")[1] for line in found.splitlines() if "|" in line))
    )
    inherited = set(Defaults.model_fields) if settings is ServerSettings else set[str]()
    assert set(settings.model_fields) - inherited - keys == set()


def test_the_yaml_of_the_pages_is_a_configuration() -> None:
    found = 0
    for page, block in blocks("yaml"):
        data = yaml.safe_load(block)
        if page == "dashboard.md":
            OverrideSettings.model_validate(data)
        elif isinstance(data, dict) and set(data) <= set(Settings.model_fields):
            Settings.model_validate(json.loads(json.dumps(data).replace("${file:ci-key}", "x" * 32)))
            found += 1
    assert found > 15


def test_the_python_of_the_pages_makes_tools() -> None:
    for _, block in blocks("python"):
        if "registry = Registry()" in block:
            names: dict[str, object] = {}
            exec(compile(block, "example", "exec"), names)
            registry = names["registry"]
            assert isinstance(registry, Registry) and registry.tools


def test_the_python_of_the_pages_about_providers_is_that_of_the_examples() -> None:
    examples = [path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")]
    shown = [block for page, block in blocks("python") if page in PROVIDERS]
    assert len(shown) > 5
    for block in shown:
        assert any(block in example for example in examples), block


def test_entry_for_a_tunnel_is_a_tool_of_the_responses_api() -> None:
    (entry,) = [json.loads(block) for page, block in blocks("json") if page == "chatgpt-tunnel.md"]
    assert fits(RESPONSES, "ToolParam", entry, exclude_unset=True)


def test_each_example_is_listed_and_of_less_than_a_hundred_lines() -> None:
    files = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()} - {"README.md"}
    assert files <= set(LINK.findall(text("examples/README.md")))
    assert [name for name in files if len(text(f"examples/{name}").splitlines()) >= 100] == []

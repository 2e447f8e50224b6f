"""The pages for people agree with the code: links, commands, options, keys of the configuration, examples."""

import html
import json
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from bench.__main__ import arguments
from bench.background_picture import MOST
from bench.picture import PICTURES
from mcp_hub.cli import main
from mcp_hub.codes.tables import CODES
from mcp_hub.config.load.load import parse
from mcp_hub.config.schema import hub
from mcp_hub.config.schema.clients import ClientSettings
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.fields import Section
from mcp_hub.config.schema.issuers import IssuerSettings, ResourceServerSettings
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import ProfileSettings, Settings
from mcp_hub.config.schema.tools import OverrideSettings, ToolSettings
from mcp_hub.config.trust import STATE_FOLDERS
from mcp_hub.stores.long_results import DOCUMENTS
from mcp_hub.stores.sqlite.store import FILE as SQLITE_FILE
from mcp_hub.upstreams.functions.registry import Registry
from tests.unit.formats.sdk_types import RESPONSES, fits

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
OTHERS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md", "clients/typescript/README.md")
PAGES = [*(ROOT / name for name in OTHERS), *sorted((ROOT / ".github").glob("*.md")), *DOCS]
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


def test_index_and_readme_name_pages_pictures_solutions_and_first_commands() -> None:
    linked = set(LINK.findall(text("docs/README.md")))
    assert {page.relative_to(ROOT / "docs").as_posix() for page in DOCS} - {"README.md"} <= linked
    assert len(text("README.md").splitlines()) < 200
    assert {f"docs/{name}.svg" for name in PICTURES} <= set(LINK.findall(text("README.md")))
    rows = re.findall(r"\[(yes|partly|no)[^\]]*\]\(docs/solves\.md#([\w-]+)\)", text("README.md"))
    verdicts = {next(iter(anchors(f"# {title}"))): entry for title, entry in solutions().items()}
    assert len(rows) == 6
    assert [anchor for verdict, anchor in rows if f"**{verdict.title()}" not in verdicts[anchor]] == []
    typed = [line for block in re.findall(r"^```console\n(.*?)^```", text("README.md"), re.M | re.S)
             for line in re.findall(r"^\$ (\S+ \S+)", block, re.M)]  # fmt: skip
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    assert typed[:2] == ["make run", "make test"] and {"run", "test"} <= targets
    before = text("README.md").partition("Once it is published")[0]
    assert not re.search(r"(pipx|uv tool|pip) install '?mcp-hub|uvx mcp-hub", before)


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


def test_the_moving_picture_is_small_and_shows_what_became_of_the_task() -> None:
    picture = text("docs/background.svg")
    shown = html.unescape(re.sub(r"<[^>]+>", " ", picture))
    assert "docs/background.svg" in LINK.findall(text("README.md")) and len(picture.encode()) <= MOST
    assert re.search(r"1 MCP task.*\$ claude --continue.*st_\w{26} .*completed.*214 objects", shown, re.DOTALL)
    assert "<script" not in picture and re.findall(r"https?://[^\"]+", picture) == ["http://www.w3.org/2000/svg"]


def test_pages_about_macos_or_windows_link_what_was_shown_there() -> None:
    """Or the page about Windows, which does. The changes of a release and the table of codes claim nothing."""
    named = [
        page for page in PAGES if re.search(r"\b(macOS|Windows|launchd)\b", FENCE.sub("", page.read_text("utf-8")))
    ]
    unlinked = {
        page.name for page in named if not re.search(r"\(([./\w-]*/)?(platforms|windows)\.md", page.read_text("utf-8"))
    }
    assert unlinked <= {"platforms.md", "CHANGELOG.md", "errors.md"} and len(named) > 8


def test_systems_of_the_platform_page_have_evidence_with_a_date_and_what_is_not_shown() -> None:
    table = text("docs/platforms.md").partition("| system | evidence |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()[2:]]
    assert len(rows) >= 6
    for system, evidence, when, gap in rows:
        kinds = re.findall(r"\b(run|checked|made trees): ", evidence)
        assert kinds or evidence == "–" or evidence.startswith("wheels"), system
        assert gap and (re.search(r"20\d\d.*, by the ", when) if kinds else not evidence.startswith("run")), system
        if re.match(r"macOS|Windows", system) and "run" not in kinds:
            assert re.search("never run|everything on a real", gap), system


def console_lines() -> Iterator[tuple[str, str]]:
    """Lines that are typed in the pages, with the page's name; a backslash joins the next one."""
    for page, block in blocks("console"):
        for line in re.findall(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)", block, re.MULTILINE):
            yield page, line.replace("\\\n", " ")


def hub_commands(line: str) -> Iterator[list[str]]:
    """The arguments of each `mcp-hub` that a line of a shell runs: at its start, behind `uvx` or a pipe."""
    words = shlex.split(line, comments=True)
    breaks = [place for place, word in enumerate(words) if word in ("|", "&&", ";", ">")]
    for first, last in zip([0, *(place + 1 for place in breaks)], [*breaks, len(words)], strict=True):
        part = words[first + 1 if words[first] == "uvx" else first : last]
        if part and part[0].rpartition("/")[2] == "mcp-hub":
            yield part[1:]


def test_command_lines_of_the_pages_are_accepted_by_the_commands() -> None:
    lines = [(page, line, args) for page, line in console_lines() for args in hub_commands(line)]
    assert len(lines) > 60
    for page, line, args in lines:
        try:
            _, command, left = main.resolve_command(click.Context(main), args)
            if isinstance(command, click.Group) and not left[0].startswith("-"):
                _, command, left = command.resolve_command(click.Context(command), left)
            assert command is not None
            command.make_context(command.name, left)
        except click.ClickException as error:
            pytest.fail(f"{page}: {line}: {error.format_message()}")


def test_benchmarks_of_the_pages_name_cases_and_relays_that_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    for page in PAGES:
        for options in re.findall(
            r"(?:-m bench|make bench BENCH='?)((?: ?--[a-z]+(?: [\w,=-]+)?)+)", page.read_text("utf-8")
        ):
            monkeypatch.setattr(sys, "argv", ["bench", *options.replace("--replicas", "").split()])
            arguments()


def test_commands_and_options_are_described_and_no_others() -> None:
    table = text("docs/cli.md").partition("\n## ")[0]
    listed = set(re.findall(r"\[`([a-z]+)`\]\(#", table))
    assert listed == {name for name, _ in commands() if " " not in name}
    page = text("docs/cli.md")
    common = section(page, "Common options")
    for name, command in commands():
        own = section(page, name.partition(" ")[0])
        assert f"mcp-hub {name}" in own if " " in name else own, name
        for option in (param for param in command.params if isinstance(param, click.Option)):
            for spelled in option.opts:
                rows = [line for line in common.splitlines() if f"`{spelled}" in line and f"`{name}`" in line]
                assert rows or f"`{spelled}" in own, (name, spelled)
    options = {opt for _, command in commands() for param in command.params for opt in param.opts}
    described = set(re.findall(r"`(--[a-z-]+)", text("docs/cli.md")))
    assert described - options <= {"--help", "--version"}


def solutions() -> dict[str, str]:
    """The entries of docs/solves.md by their titles."""
    titles, *entries = re.split(r"^### ", text("docs/solves.md"), flags=re.MULTILINE)
    assert "**Yes**" in titles
    return {title: entry for title, _, entry in (entry.partition("\n") for entry in entries)}


def test_each_solution_has_a_verdict_at_most_four_lines_and_a_page() -> None:
    entries = solutions()
    assert len(entries) >= 25
    for title, entry in entries.items():
        verdicts = re.findall(r"\*\*(Yes|Partly|No)\b", entry)
        typed = [line for block in re.findall(r"^```\w+\n(.*?)^```", entry, re.M | re.S) for line in block.splitlines()]
        assert len(verdicts) == 1 and len(typed) <= 4, title
        assert re.search(r"^→ \[[\w-]+\.md\]\(", entry, re.MULTILINE), title


def test_yaml_of_the_solutions_is_accepted_by_the_loader(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    for name in ("team-token", "secrets/search.API_KEY"):
        (tmp_path / name).write_text("t" * 20)
        (tmp_path / name).chmod(0o600)
    servers = "servers: {browser: {command: b}, git: {command: g}, database: {command: d}}\n"
    blocks_of_page = [block for page, block in blocks("yaml") if page == "solves.md"]
    assert len(blocks_of_page) >= 12
    for block in blocks_of_page:
        whole = block if block.startswith("servers:") else block + servers
        loaded = parse(whole, "servers.yaml", {"HUB_TOKEN": "x" * 20}, tmp_path)
        assert [str(finding) for finding in loaded.warnings] == [], block


def test_messages_and_codes_of_the_symptoms_exist() -> None:
    page = text("docs/troubleshooting.md")
    sources = "\n".join(path.read_text("utf-8") for path in (ROOT / "mcp_hub").rglob("*.py"))
    literals = re.sub(r'"\s*\n\s*f?"', "", sources)
    quoted = [part.strip() for words in re.findall(r'"([^"\n]+)"', page) for part in words.split("…")]
    codes = {word for word in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", page) if "tool" not in word}
    settings = {"start_timeout", "pass_env", "max_result_tokens", "hub_calls", "read_result"}
    assert len(quoted) > 10 and len(codes) > 20
    assert [words for words in quoted if words not in literals] == []
    assert codes - settings <= set(CODES)


def test_every_folder_of_the_state_is_on_the_page_of_files() -> None:
    named = set(re.findall(r"`([\w./-]+)`", section(text("docs/files.md"), "The state folder")))
    assert set(STATE_FOLDERS) | {SQLITE_FILE, DOCUMENTS, "eras.json", "attach", "folders"} <= named


def test_contributing_names_what_exists() -> None:
    page = FENCE.sub("", text("CONTRIBUTING.md"))
    folders = [ROOT / name for name in ("mcp_hub", "tests", "rigs", "docs", ".github")]
    paths = [f"/{path.relative_to(ROOT).as_posix()}" for folder in folders for path in folder.rglob("*")]
    named = set(re.findall(r"`([\w.]+/(?:[\w./]+)?|\w+\.py|tests/[\w/]+|mcp_hub/[\w/]+)`", page))
    made = {"dist/", "build/docs", "tool-lists/", "toolsearch/"}
    gone = [name for name in named - made if "NAME" not in name and not _is_end_of_one(f"/{name.rstrip('/')}", paths)]
    assert gone == [] and len(named) > 60
    for name, file in re.findall(r"`(\w+)`(?:[^`.]|`[\w, ]+`)*?\s(?:of|in)\s+`((?:\w+/)+\w+\.py)`", page):
        (path,) = [path for path in paths if path.endswith(f"/{file}")][:1]
        assert re.search(rf"\b{name}\b", text(path[1:])), (name, file)
    top = {
        path.stem for path in (ROOT / "mcp_hub").iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    the_map = set(re.findall(r"`(\w+)(?:\.py|/)?`", section(page, "The map")))
    assert top - {"__init__", "__main__"} - the_map == set()


def _is_end_of_one(name: str, paths: list[str]) -> bool:
    return any(path.endswith(name) for path in paths)


@pytest.mark.parametrize(
    ("page", "title", "settings"),
    [
        ("configuration", "`servers.NAME`", ServerSettings),
        ("configuration", "`defaults`", Defaults),
        ("configuration", "`servers.NAME.per_tool.TOOL`", ToolSettings),
        ("configuration", "`profiles.NAME`", ProfileSettings),
        ("configuration-hub", "`hub`", hub.HubSettings),
        ("configuration-hub", "`hub.http`", hub.HttpSettings),
        ("configuration-hub", "`hub.http.oauth`", ResourceServerSettings),
        ("configuration-hub", "`hub.http.oauth`", IssuerSettings),
        ("configuration-hub", "`hub.tokens`", hub.TokenSettings),
        ("configuration-hub", "`hub.log`", type(hub.HubSettings().log)),
        ("configuration-hub", "`hub.store`", hub.StoreSettings),
        ("configuration-hub", "`hub.clients.NAME`", ClientSettings),
        ("configuration-hub", "`hub.telemetry`", hub.TelemetrySettings),
    ],
)
def test_every_key_is_described(page: str, title: str, settings: type[Section]) -> None:
    found = section(text(f"docs/{page}.md"), title)
    keys = set(
        re.findall(r"`(\w+)(?:\.\w+)?`", "\n".join(line.split("|")[1] for line in found.splitlines() if "|" in line))
    )
    inherited = set(Defaults.model_fields) if settings is ServerSettings else set[str]()
    assert set(settings.model_fields) - inherited - keys == set()


@pytest.mark.parametrize(
    ("page", "title", "settings"),
    [
        ("configuration", "`defaults`", Defaults),
        ("configuration", "`servers.NAME.per_tool.TOOL`", ToolSettings),
        ("configuration-hub", "`hub`", hub.HubSettings),
        ("configuration-hub", "`hub.http`", hub.HttpSettings),
        ("configuration-hub", "`hub.log`", type(hub.HubSettings().log)),
        ("configuration-hub", "`hub.store`", hub.StoreSettings),
    ],
)
def test_defaults_of_the_pages_are_those_of_the_schema(page: str, title: str, settings: type[Section]) -> None:
    rows = re.findall(r"^\| `(\w+)` \| `([^`|]+)` \|", section(text(f"docs/{page}.md"), title), re.MULTILINE)
    usual = settings()
    for key, shown in rows:
        value = yaml.safe_load(shown)
        written = settings.model_validate({key: value if shown[0] == "{" or not isinstance(value, dict) else shown})
        assert getattr(usual, key) in (getattr(written, key), None), key
    assert rows


def test_yaml_and_python_of_the_pages_work_and_are_those_of_the_examples() -> None:
    found = 0
    for page, block in blocks("yaml"):
        data = yaml.safe_load(block)
        if page == "dashboard.md":
            OverrideSettings.model_validate(data)
        elif isinstance(data, dict) and set(data) <= set(Settings.model_fields):
            text = re.sub(r"\$\{(?:file:ci-key|cmd:[^}]*)\}", "x" * 32, json.dumps(data))
            text = re.sub(r"\$\{file:[^}]*\.key\}", "A" * 43 + "=", text)
            Settings.model_validate(json.loads(text))
            found += 1
    assert found > 15
    for _, block in blocks("python"):
        if "registry = Registry()" in block:
            names: dict[str, object] = {}
            exec(compile(block, "example", "exec"), names)
            registry = names["registry"]
            assert isinstance(registry, Registry) and (registry.tools or registry.events)
    examples = [path.read_text("utf-8") for path in (ROOT / "examples").glob("*.py")]
    shown = [block for page, block in blocks("python") if page in PROVIDERS]
    assert len(shown) > 5
    for block in shown:
        assert any(block in example for example in examples), block


def test_examples_are_listed_short_and_tools_of_their_api() -> None:
    (entry,) = [json.loads(block) for page, block in blocks("json") if page == "chatgpt-tunnel.md"]
    assert fits(RESPONSES, "ToolParam", entry, exclude_unset=True)
    files = {path.name for path in (ROOT / "examples").iterdir() if path.is_file()} - {"README.md"}
    assert files <= set(LINK.findall(text("examples/README.md")))
    assert [name for name in files if len(text(f"examples/{name}").splitlines()) >= 100] == []

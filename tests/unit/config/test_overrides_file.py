"""`servers.overrides.yaml` beside the configuration: which keys it may have, and how they are laid over `per_tool`.

And `.mcp-hub.yaml` in a project: that it holds names only, and what a client gets then.
"""

import os
from pathlib import Path

import pytest

from mcp_hub.app.catalog_rules import ProjectView, overlay_problems, project_rules, view_rules
from mcp_hub.config.load.load import Loaded, load
from mcp_hub.config.load.overrides import LARGEST_OVERLAY, OVERLAY, read_overlay
from mcp_hub.config.schema.tools import OverlaySettings
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


HOLDS_NOTHING_ELSE = [
    "servers: {x: {command: evil}}",
    "hub: {log: {level: debug}}",
    "command: evil",
    "url: https://evil.example",
    "env: {A: b}",
    "args: [a]",
    "cwd: /",
    "enable: {x: {command: evil}}",
    "enable: [{command: evil}]",
    "profiles: {x: {}}",
    "profile: {servers: [x]}",
    "enable: git",
    "[enable]",
    "enable: [git]\nenable: [x]",
    "enable: [" + "x, " * 1001 + "]",
    "a: &a [x]\nenable: [*a, *a]",
    "disable: [" + "x" * LARGEST_OVERLAY + "]",
]


@pytest.mark.parametrize("text", HOLDS_NOTHING_ELSE)
def test_overlay_of_a_project_holds_names_only(tmp_path: Path, text: str) -> None:
    (tmp_path / OVERLAY).write_text(text)
    with pytest.raises(ConfigError) as refused:
        read_overlay(tmp_path)
    assert OVERLAY in str(refused.value)


def test_overlay_is_a_regular_file_and_nothing_in_it_is_looked_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_overlay(tmp_path) is None
    monkeypatch.setenv("SECRET", "canary")
    (tmp_path / OVERLAY).write_text('{disable: ["${SECRET}"], enable: [db], profile: small}')
    assert read_overlay(tmp_path) == OverlaySettings(disable=["${SECRET}"], enable=["db"], profile="small")
    (tmp_path / OVERLAY).unlink()
    os.mkfifo(tmp_path / OVERLAY)
    with pytest.raises(ConfigError, match="not a regular file"):
        read_overlay(tmp_path)


OVERLAID = """
servers:
  git: {command: x, tools: {deny: [own]}}
  web: {command: x}
  db: {command: x, enabled: project}
  off: {command: x, enabled: false}
profiles:
  work: {servers: [git, db], tools: {allow: ["git_*", "db_*"], deny: [git_x]}}
  small: {servers: [git, web], tools: {allow: ["*_read", "*_x", "web_*"]}, resources: {deny: ["file:*"]}}
"""


@pytest.mark.parametrize(
    ("profile", "overlay", "servers"),
    [
        (None, {}, {"git", "web", "off"}),
        (None, {"disable": ["web"]}, {"git", "off"}),
        (None, {"enable": ["db"]}, {"git", "web", "db", "off"}),
        (None, {"enable": ["off", "none"]}, {"git", "web", "off"}),
        (None, {"enable": ["db"], "disable": ["db"]}, {"git", "web", "off"}),
        (None, {"profile": "small"}, {"git", "web"}),
        ("work", {}, {"git"}),
        ("work", {"enable": ["db"]}, {"git", "db"}),
        ("small", {"enable": ["db"]}, {"git", "web"}),
        ("work", {"profile": "small", "enable": ["db"]}, {"git"}),
    ],
)
def test_overlay_narrows_what_a_client_gets(
    tmp_path: Path, profile: str | None, overlay: dict[str, object], servers: set[str]
) -> None:
    (tmp_path / "servers.yaml").write_text(OVERLAID)
    settings = load(tmp_path / "servers.yaml", {}).settings
    rules = project_rules(settings, profile, OverlaySettings.model_validate(overlay))
    assert rules is not None and set(rules.servers) - {"virtual"} == servers
    assert "db" not in view_rules(settings)[profile].servers, "without an overlay nobody has it"


def test_view_of_a_project_has_a_name_of_its_own() -> None:
    overlays = (OverlaySettings(enable=["db"]), OverlaySettings(disable=["db"]))
    views = [ProjectView(profile, overlay) for profile in (None, "everything", "work") for overlay in overlays]
    assert len({view.name for view in views}) == len(views)


def test_filters_of_both_profiles_hold_in_a_project(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(OVERLAID)
    settings = load(tmp_path / "servers.yaml", {}).settings
    rules = project_rules(settings, "work", OverlaySettings(profile="small"))
    assert rules is not None
    admitted = {name for name in ("git_read", "git_x", "git_y", "web_read") if rules.tools.admits(name)}
    assert admitted == {"git_read"} and rules.resources.deny == ("file:*",)
    assert project_rules(settings, "gone", OverlaySettings()) is None
    in_vain = OverlaySettings(enable=["web", "none"], profile="gone")
    assert project_rules(settings, None, in_vain) is None, "a narrower view that is not there offers nothing"
    assert len(overlay_problems(settings, in_vain)) == 3

"""`servers.overrides.yaml` beside the configuration: which keys it may have, and how they are laid over `per_tool`.

And `.mcp-hub.yaml` in a project: that it holds names only, and what a client gets then.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_hub.app.catalog_rules import ProjectView, overlay_problems, project_rules, view_rules
from mcp_hub.config.load.load import Loaded, load, parse
from mcp_hub.config.load.overrides import LARGEST_OVERLAY, read_overlay
from mcp_hub.config.schema.tools import OverlaySettings
from mcp_hub.config.trust import OVERLAY, OVERRIDE, problem_of_config, problem_of_secret, project_of
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown

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


def test_override_of_another_server_or_of_no_file_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "servers.yaml").write_text(SERVERS)
    assert load(tmp_path / "servers.yaml", {}).overrides is None
    (warning,) = loaded(tmp_path, "servers: {old: {per_tool: {x: {hide: true}}}}").warnings
    assert (warning.code, warning.path) == ("unknown_server", "servers.old")
    loaded(tmp_path, "servers: {}")
    (tmp_path / "servers.overrides.yaml").chmod(0o666)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "servers.yaml", {})
    assert caught.value.code == "config_untrusted"


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


ME, OTHER = 4242, 4343


def file_of(owner: int, mode: int, group: int = 5656) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, group, 1, 0, 0, 0))


@pytest.mark.parametrize(("owner", "mode"), [(ME, 0o600), (ME, 0o644), (ME, 0o755), (0, 0o644), (0, 0o444)])
def test_a_file_of_the_user_or_of_the_system_is_believed(owner: int, mode: int) -> None:
    assert problem_of_config(file_of(owner, mode), {}, ME) is None


def test_a_file_of_somebody_else_is_not_and_the_error_says_how_to_fix_it() -> None:
    problem = problem_of_config(file_of(OTHER, 0o600), {}, ME)
    assert problem is not None and "belongs to user 4343" in problem and "chown" in problem and OVERRIDE in problem


def test_root_and_those_who_trust_others_say_whose_file_is_believed() -> None:
    assert problem_of_config(file_of(OTHER, 0o600), {}, 0) is not None
    assert problem_of_config(file_of(0, 0o600), {}, 0) is None
    for value, is_trusted in (("1", True), ("0", False), ("", False)):
        assert (problem_of_config(file_of(OTHER, 0o666), {OVERRIDE: value}, ME) is None) is is_trusted


@pytest.mark.parametrize(("mode", "who"), [(0o664, "its group"), (0o646, "everybody"), (0o666, "everybody")])
def test_a_file_that_others_can_write_is_not_believed(mode: int, who: str) -> None:
    for owner in (ME, 0):
        problem = problem_of_config(file_of(owner, mode), {}, ME)
        assert problem is not None and who in problem and "chmod go-w" in problem


def test_a_group_of_the_owner_alone_is_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import grp
    import pwd

    root = pwd.getpwuid(0)
    own = file_of(0, 0o664, root.pw_gid)
    assert grp.getgrgid(root.pw_gid).gr_name == root.pw_name
    assert problem_of_config(own, {}, 0) is None
    crowded = grp.struct_group((root.pw_name, "x", root.pw_gid, ["root", "alice"]))
    monkeypatch.setattr(grp, "getgrgid", lambda gid: crowded)
    assert problem_of_config(own, {}, 0) is not None


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_secret_that_others_can_read_is_a_warning(mode: int) -> None:
    problem = problem_of_secret(file_of(ME, mode))
    assert problem is not None and "chmod go-rwx" in problem
    assert problem_of_secret(file_of(ME, 0o600)) is None


def test_a_configuration_that_others_can_write_is_not_read_and_a_link_is_what_it_leads_to(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x}}")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=r"servers\.yaml: can be written by everybody on this machine.*chmod go-w"):
        load(path, {})
    assert load(path, {OVERRIDE: "1"}).settings.servers
    path.chmod(0o644)
    assert load(path, {}).settings.servers
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x}}")
    if os.geteuid() == 0:  # who alone can give a file away
        os.chown(path, OTHER, OTHER)
        with pytest.raises(ConfigError, match="belongs to user 4343"):
            load(path, {})


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "real.yaml", tmp_path / "servers.yaml"
    target.write_text("servers: {a: {command: x}}")
    target.chmod(0o666)
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="can be written by"):
        load(link, {})


def test_a_secret_file_with_wide_permissions_is_a_warning_with_its_place(tmp_path: Path) -> None:
    secret = tmp_path / "key"
    secret.write_text("from-a-file\n")
    text = "servers:\n  a:\n    command: x\n    env:\n      KEY: ${file:key}\n"
    secret.chmod(0o644)
    (warning,) = parse(text, "s", {}, tmp_path).warnings
    assert shown(warning) == "s:5: servers.a.env.KEY [secret_readable]" and "/key can be read" in warning.message
    secret.chmod(0o600)
    assert parse(text, "s", {}, tmp_path).warnings == ()


def test_file_of_authorities_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    text = "servers: {a: {url: 'https://a.example/mcp', tls: {ca: ca.pem}}}"
    authority = tmp_path / "ca.pem"
    assert parse(text, "s", {}, tmp_path).settings.servers["a"].tls.ca == str(authority), "it may come to be"
    authority.write_text("x")
    authority.chmod(0o666)
    with pytest.raises(ConfigError, match=rf"s:1: .*a\.tls\.ca: {authority} can be .* stand in for the server"):
        parse(text, "s", {}, tmp_path)
    authority.chmod(0o644)
    assert parse(text, "s", {}, tmp_path).settings.servers


def test_a_file_of_keys_that_others_can_write_is_not_read(tmp_path: Path) -> None:
    text = (
        "servers: {a: {command: x}}\nhub: {http: {oauth: {resource: 'https://hub.example.com/mcp', issuers:\n"
        "  [{issuer: 'https://a.example', jwks_file: keys.json}]}}}\n"
    )
    keys = tmp_path / "keys.json"
    assert parse(text, "s", {}, tmp_path).settings.servers, "it may come to be"
    keys.write_text("{}")
    keys.chmod(0o666)
    with pytest.raises(ConfigError, match=rf"s:3: .*issuers\[0\]\.jwks_file: {keys} can be .* let anybody in"):
        parse(text, "s", {}, tmp_path)
    assert parse(text, "s", {OVERRIDE: "1"}, tmp_path).settings.servers
    keys.chmod(0o644)
    assert parse(text, "s", {}, tmp_path).settings.servers


@pytest.mark.parametrize(("owner", "folder", "counts"), [(OTHER, 0, False), (OTHER, OTHER, True), (0, OTHER, True)])
def test_file_of_another_user_is_the_projects_only_in_a_folder_of_that_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: int, folder: int, counts: bool
) -> None:
    (tmp_path / OVERLAY).write_text("enable: [db]")
    fstat, lstat = os.fstat, os.lstat

    def of_above(path: str) -> os.stat_result:
        if path != "/srv/a/.git":
            raise FileNotFoundError(path)
        return file_of(owner, 0o600)

    overlay: object = None
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path: file_of(folder, 0o600) if path != tmp_path / OVERLAY else lstat(path))
        patch.setattr(os, "fstat", lambda file: file_of(owner, stat.S_IMODE(fstat(file).st_mode)))
        patch.setattr(os, "lstat", of_above)
        root = project_of("/srv/a/b")
        with suppress(ConfigError):
            overlay = read_overlay(tmp_path)
    assert root == ("/srv/a" if counts else "/srv/a/b")
    assert overlay == (OverlaySettings(enable=["db"]) if counts else None)

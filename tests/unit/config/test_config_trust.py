"""Whose files are believed: a configuration names commands that run as its user."""

import os
import stat
from contextlib import suppress
from pathlib import Path

import pytest

from mcp_hub.app.start_folders import project_of
from mcp_hub.config.load.load import load, parse
from mcp_hub.config.load.overrides import OVERLAY, read_overlay
from mcp_hub.config.schema.tools import OverlaySettings
from mcp_hub.config.trust import OVERRIDE, problem_of_config, problem_of_secret
from mcp_hub.errors import ConfigError
from tests.unit.config.faults import shown

ME, OTHER = 4242, 4343


def file_of(owner: int, mode: int, group: int = 5656) -> os.stat_result:
    return os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, group, 1, 0, 0, 0))


@pytest.mark.parametrize(("owner", "mode"), [(ME, 0o600), (ME, 0o644), (ME, 0o755), (0, 0o644), (0, 0o444)])
def test_a_file_of_the_user_or_of_the_system_is_believed(owner: int, mode: int) -> None:
    assert problem_of_config(file_of(owner, mode), {}, ME) is None


def test_a_file_of_somebody_else_is_not_and_the_error_says_how_to_fix_it() -> None:
    problem = problem_of_config(file_of(OTHER, 0o600), {}, ME)
    assert problem is not None and "belongs to user 4343" in problem and "chown" in problem and OVERRIDE in problem


def test_root_runs_nobody_elses_commands_either() -> None:
    assert problem_of_config(file_of(OTHER, 0o600), {}, 0) is not None
    assert problem_of_config(file_of(0, 0o600), {}, 0) is None


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


def test_who_trusts_others_can_say_so_but_not_in_the_file() -> None:
    for value, is_trusted in (("1", True), ("0", False), ("", False)):
        assert (problem_of_config(file_of(OTHER, 0o666), {OVERRIDE: value}, ME) is None) is is_trusted


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_secret_that_others_can_read_is_a_warning(mode: int) -> None:
    problem = problem_of_secret(file_of(ME, mode))
    assert problem is not None and "chmod go-rwx" in problem
    assert problem_of_secret(file_of(ME, 0o600)) is None


def test_a_configuration_that_everybody_can_write_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x}}")
    path.chmod(0o666)
    with pytest.raises(ConfigError, match=r"servers\.yaml: can be written by everybody on this machine.*chmod go-w"):
        load(path, {})
    assert load(path, {OVERRIDE: "1"}).settings.servers
    path.chmod(0o644)
    assert load(path, {}).settings.servers


def test_a_link_is_judged_by_what_it_leads_to(tmp_path: Path) -> None:
    target, link = tmp_path / "real.yaml", tmp_path / "servers.yaml"
    target.write_text("servers: {a: {command: x}}")
    target.chmod(0o666)
    link.symlink_to(target)
    with pytest.raises(ConfigError, match="can be written by"):
        load(link, {})


def test_a_file_of_somebody_else_is_not_read_through_a_real_owner(tmp_path: Path) -> None:
    path = tmp_path / "servers.yaml"
    path.write_text("servers: {a: {command: x}}")
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, OTHER, OTHER)
    with pytest.raises(ConfigError, match="belongs to user 4343"):
        load(path, {})


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

"""Finding a server's program, and the environment that it gets."""

import os
import re
import sys
from pathlib import Path

import pytest

from mcp_hub.attach.environment import ACCESS, HOME_PLACES, REACH, REACH_PREFIX, SESSION, SESSION_PREFIX
from mcp_hub.errors import StartFailed
from mcp_hub.upstreams.process.commands import child_env, resolve


def program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def find(command: str, root: Path, env_path: str | None = None) -> str:
    return resolve(command, env_path or str(root / "bin"), str(root / "home"), str(root / "work"))


@pytest.mark.parametrize("place", HOME_PLACES)
def test_places_that_desktop_applications_miss_are_searched(tmp_path: Path, place: str) -> None:
    expected = program(tmp_path / "home" / place / "frob")
    assert find("frob", tmp_path) == expected


MOVED = {
    "NVM_DIR": "versions/node/v20.9.0/bin", "FNM_DIR": "aliases/default/bin", "VOLTA_HOME": "bin", "N_PREFIX": "bin",
    "ASDF_DATA_DIR": "shims", "MISE_DATA_DIR": "shims", "NODENV_ROOT": "shims", "PYENV_ROOT": "shims",
    "RBENV_ROOT": "shims", "PNPM_HOME": "", "BUN_INSTALL": "bin", "DENO_INSTALL": "bin", "GOBIN": "", "GOPATH": "bin",
    "CARGO_HOME": "bin", "XDG_DATA_HOME": "mise/shims", "XDG_BIN_HOME": "", "NPM_CONFIG_PREFIX": "bin",
}  # fmt: skip


@pytest.mark.parametrize("variable", MOVED)
def test_folders_that_a_variable_has_moved_are_searched(tmp_path: Path, variable: str) -> None:
    root = str(tmp_path / "moved")
    expected = program(tmp_path / "moved" / MOVED[variable] / "frob")
    for value in (root, f"{root}/", f"relative{os.pathsep}{root}" if variable == "GOPATH" else root):
        assert resolve("frob", "/nowhere", str(tmp_path / "home"), str(tmp_path), {variable: value}) == expected
    for value in ("", "moved", "~"):
        with pytest.raises(StartFailed):
            resolve("frob", "/nowhere", str(tmp_path / "home"), str(tmp_path), {variable: value})


def test_moved_folders_come_after_path_and_before_those_of_the_home(tmp_path: Path) -> None:
    env = {"CARGO_HOME": str(tmp_path / "moved")}
    for place in ("home/.cargo/bin", "moved/bin", "bin"):
        expected = program(tmp_path / place / "frob")
        assert resolve("frob", str(tmp_path / "bin"), str(tmp_path / "home"), str(tmp_path), env) == expected


INSTALLED = ("v9.11.2", "v18.19.0", "v18.9.1", "v20.11.1", "v22.1.0")


@pytest.mark.parametrize(
    ("aliases", "version"),
    [
        ({"default": "18\n"}, "v18.19.0"),
        ({"default": "v18.9.1"}, "v18.9.1"),
        ({"default": "20.11"}, "v20.11.1"),
        ({"default": "lts/*", "lts/*": "lts/iron", "lts/iron": "v20.11.1"}, "v20.11.1"),
        ({"default": "work", "work": "9"}, "v9.11.2"),
        ({"default": "node"}, "v22.1.0"),
        ({"default": "stable"}, "v22.1.0"),
        ({"default": "17"}, "v22.1.0"),
        ({"default": "default"}, "v22.1.0"),
        ({"default": "a", "a": "default"}, "v22.1.0"),
        ({"default": "1"}, "v22.1.0"),
        ({}, "v22.1.0"),
    ],
)
def test_default_version_of_nvm_wins(tmp_path: Path, aliases: dict[str, str], version: str) -> None:
    for installed in INSTALLED:
        program(tmp_path / "home/.nvm/versions/node" / installed / "bin/frob")
    for name, text in aliases.items():
        place = tmp_path / "home/.nvm/alias" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    assert find("frob", tmp_path) == str(tmp_path / "home/.nvm/versions/node" / version / "bin/frob")
    (tmp_path / "home/.nvm/alias").mkdir(exist_ok=True)
    (tmp_path / "home/.nvm/alias/default").write_text("system\n")
    with pytest.raises(StartFailed):
        find("frob", tmp_path)


@pytest.mark.parametrize(
    "manager", "asdf mise fnm nodenv pyenv rbenv pnpm nix go volta n bun deno cargo proto rye".split()
)
def test_every_version_manager_has_a_folder(manager: str) -> None:
    assert [place for place in HOME_PLACES if manager in place.replace("/", ".").replace("-", ".").split(".")]


def test_programs_beside_the_hubs_interpreter_are_found(tmp_path: Path) -> None:
    assert find(os.path.basename(sys.executable), tmp_path) == sys.executable


def test_relative_path_entries_count_from_the_working_directory(tmp_path: Path) -> None:
    expected = program(tmp_path / "work/tools/frob")
    assert find("frob", tmp_path, env_path="tools") == expected


@pytest.mark.parametrize(
    ("command", "where"), [("./run", "work/run"), ("~/run", "home/run"), ("sub/run", "work/sub/run")]
)
def test_command_with_a_folder_is_a_path(tmp_path: Path, command: str, where: str) -> None:
    expected = program(tmp_path / where)
    assert find(command, tmp_path) == expected


def test_not_found_names_what_was_searched(tmp_path: Path) -> None:
    with pytest.raises(StartFailed) as caught:
        find("frobnicate", tmp_path)
    message = str(caught.value)
    assert caught.value.code == "command_not_found"
    assert "frobnicate" in message and f"{len(caught.value.searched)} folders" in message
    assert {f"{tmp_path}/bin", f"{tmp_path}/home/.cargo/bin"} <= {*caught.value.searched}


def test_not_found_names_a_program_that_is_nearly_called_so(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"not found: uvxx\. Did you mean uvx\?"):
        find("uvxx", tmp_path)


@pytest.mark.parametrize(
    ("command", "hint"), [("npx", "nodejs.org"), ("uvx", "docs.astral.sh"), ("docker", "docs.docker.com")]
)
def test_not_found_tells_how_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, hint: str
) -> None:
    monkeypatch.setattr("mcp_hub.upstreams.process.commands.SYSTEM_PLACES", ())
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(StartFailed, match=hint):
        find(command, tmp_path)


def test_missing_path_file_without_x_bit_and_folder_are_distinguished(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work/notes").write_text("text")
    for command, code, named in [
        ("./nothing", "command_not_found", "/work/nothing"),
        ("./notes", "not_executable", "/work/notes"),
        ("../work", "not_executable", "/work"),
    ]:
        with pytest.raises(StartFailed) as caught:
            find(command, tmp_path)
        assert caught.value.code == code and f"{named}. " in str(caught.value)


@pytest.mark.parametrize("command", ["npx -y foo", "./run --fast"])
def test_a_shell_line_in_place_of_a_command_gets_the_advice_to_use_args(tmp_path: Path, command: str) -> None:
    with pytest.raises(StartFailed, match=r"\bargs\b") as caught:
        find(command, tmp_path)
    assert caught.value.code == "command_not_found"


def test_child_gets_harmless_variables_and_no_secrets() -> None:
    harmless = {"HOME": "/h", "LC_ALL": "C", "https_proxy": "p", "UV_INDEX": "i", "npm_config_registry": "r"}
    secrets = {"GITHUB_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "k", "HOMEPAGE": "x", "BASH_FUNC_x%%": "() { :; }"}
    secrets["TERM"] = "() { :; }; evil"  # a function of a shell in a variable that is allowed
    env = child_env({**harmless, **secrets}, {}, ())
    assert env.items() >= harmless.items()
    assert not env.keys() & secrets.keys()


OPENING = {
    **{"DOCKER_HOST": "d", "DOCKER_CONTEXT": "d", "DOCKER_CONFIG": "d", "SSH_AUTH_SOCK": "s", "KUBECONFIG": "k"},
    **{"AWS_PROFILE": "a", "AWS_REGION": "r", "GOOGLE_APPLICATION_CREDENTIALS": "g", "DBUS_SESSION_BUS_ADDRESS": "b"},
    **{"XDG_RUNTIME_DIR": "/run/user/1", "DISPLAY": ":0", "WAYLAND_DISPLAY": "w", "XAUTHORITY": "/x"},
}


def test_child_gets_nothing_that_opens_an_account_unless_its_entry_names_it() -> None:
    assert not OPENING.keys() & child_env(OPENING, {}, ()).keys()
    env = child_env(OPENING, {"AWS_PROFILE": "mine"}, (), ["AWS_PROFILE", "KUBECONFIG", "MISSING"])
    assert {name: env[name] for name in env if name in OPENING} == {"AWS_PROFILE": "mine", "KUBECONFIG": "k"}
    assert "MISSING" not in env


@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "VIRTUAL_ENV", "PIP_CACHE_DIR", "UV_CACHE_DIR", "npm_config_cache", "XDG_DATA_DIRS"]
)
def test_settings_of_one_shell_are_not_inherited(name: str) -> None:
    assert name not in child_env({name: "x", "PATH": "/bin"}, {}, ())


def test_page_and_module_have_the_same_table_of_variables() -> None:
    page = (Path(__file__).parents[3] / "docs/secrets.md").read_text("utf-8")
    table = page.partition("<!-- environment -->")[2].partition("<!-- /environment -->")[0]
    rows = [(set(re.findall("`([^`]+)`", line.split("|")[1])), line.split("|")[2]) for line in table.splitlines()[3:]]
    assert set().union(*(names for names, to in rows if to == " yes ")) == {*REACH, f"{REACH_PREFIX}*"}
    assert [names for names, to in rows if "hub" in to] == [{*SESSION, f"{SESSION_PREFIX}*"}]
    assert [names for names, to in rows if "pass_env" in to][0] == {*ACCESS}


def test_configuration_adds_and_overrides() -> None:
    env = child_env({"TZ": "UTC", "GITHUB_TOKEN": "mine"}, {"TZ": "CET", "GITHUB_TOKEN": "theirs"}, ())
    assert (env["TZ"], env["GITHUB_TOKEN"]) == ("CET", "theirs")


def test_folders_are_appended_to_path_once() -> None:
    own = os.path.dirname(sys.executable)
    env = child_env({"PATH": f"/usr/bin:/bin:{own}"}, {}, ["/nvm/bin", "/bin"])
    assert env["PATH"] == f"/usr/bin:/bin:{own}:/nvm/bin"

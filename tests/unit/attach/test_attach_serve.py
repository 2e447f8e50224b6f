"""Attach is never worse than no attach: the client gets a hub of its own and one line that says why."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from mcp_hub.attach import environment, serve
from mcp_hub.attach.arguments import HubWanted
from mcp_hub.attach.environment import hub_environment, reaching, runtime_folder, shared_folders, why_not
from mcp_hub.attach.serve import mode_in, serve_attached


@pytest.fixture
def unclear(tmp_path: Path) -> HubWanted:
    """A configuration that may hide a variable, for which no hub can be shared."""
    place = tmp_path / "servers.yaml"
    place.write_text(r'servers: {a: {command: x, args: ["\u0024{TOKEN}"]}}')
    return HubWanted(["serve"], str(place), None, None, None)


def test_client_that_cannot_join_gets_a_hub_of_its_own_and_one_line_where_auto_attaches(
    unclear: HubWanted, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serve, "why_not", lambda env: None)
    assert serve_attached(unclear, "auto") is False
    said = capfd.readouterr().err
    assert said.count("\n") == 1 and unclear.config in said
    monkeypatch.setattr(serve, "why_not", lambda env: "this is CI")
    assert serve_attached(unclear, "auto") is False
    assert serve_attached(unclear, "never") is False
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("mode", "arguments", "env", "why"),
    [
        ("auto", ["serve"], {"container": "podman"}, "this is a container"),
        ("never", ["serve"], {"MCP_HUB_ATTACH": "never"}, "$MCP_HUB_ATTACH is never"),
        ("never", ["serve", "--attach", "never"], {}, "--attach is never"),
        ("never", ["serve"], {}, "hub.attach is never"),
        ("auto", ["serve"], {}, "are not certain"),
    ],
)
def test_reason_for_a_hub_of_its_own_is_known_afterwards(
    unclear: HubWanted,
    mode: str,
    arguments: list[str],
    env: Mapping[str, str],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CI", "container", "KUBERNETES_SERVICE_HOST", "MCP_HUB_ATTACH"):
        monkeypatch.delenv(name, raising=False)
    if not env:
        monkeypatch.setattr(serve, "why_not", lambda env: None)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(serve, "_reasons", [])
    unclear.arguments = arguments
    assert serve_attached(unclear, mode) is False and serve.reason().endswith(why)
    assert serve_attached(unclear, "never") is False and serve.reason().endswith(why), "the first reason stays"
    place = Path(unclear.config).with_name("other.yaml")
    place.write_text(f"hub: {{attach: {mode}}}")
    said = serve.why_alone(str(place), os.environ)
    assert said == (why if env or "hub" in why else said)


def test_always_ends_the_program_in_place_of_a_hub_of_its_own(
    unclear: HubWanted, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        serve_attached(unclear, "always")
    assert ended.value.code == 3 and "[not_attached]" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("text", "mode"), [("servers: {}", "auto"), ("hub: {attach: always}", "always"), ("x: attach", None)]
)
def test_the_mode_is_auto_unless_the_file_has_another(tmp_path: Path, text: str, mode: str | None) -> None:
    place = tmp_path / "servers.yaml"
    place.write_text(text)
    assert mode_in(str(place)) == mode
    assert mode_in(str(tmp_path / "missing")) is None


@pytest.mark.parametrize(
    ("env", "attaches"),
    [({"CI": "true"}, False), ({"CI": "1"}, False), ({"container": "podman"}, False),
     ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, False), ({"CI": "false"}, True), ({}, True)],
)  # fmt: skip
def test_auto_does_not_attach_in_containers_and_ci(
    env: Mapping[str, str], attaches: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: False)
    assert (why_not(env) is None) == attaches


def test_a_hub_gets_the_variables_of_its_configuration_and_nothing_secret_else() -> None:
    client = {
        "HOME": "/home/ann", "TOKEN": "named", "SECRET": "not named", "LC_ALL": "C", "PATH": "bin:/usr/bin:",
        "MCP_HUB_INSTANCE": "of another hub", "MCP_HUB_TOKEN": "t", "MCP_HUB_ATTACH": "always", "LANG": "tlh",
        "MCP_HUB_STATE_DIR": "/state",
    }  # fmt: skip
    hub = hub_environment(client, ["TOKEN", "MISSING"])
    path = hub.pop("PATH").split(":")
    assert {name: hub.get(name) for name in client if name not in ("PATH", "LANG")} == {
        "HOME": "/home/ann", "TOKEN": "named", "SECRET": None, "LC_ALL": None,
        "MCP_HUB_INSTANCE": None, "MCP_HUB_TOKEN": None, "MCP_HUB_ATTACH": None, "MCP_HUB_STATE_DIR": "/state",
    }  # fmt: skip
    assert hub["LANG"].endswith(".UTF-8")
    assert "/usr/bin" in path and all(map(os.path.isabs, path))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with the default version of nvm, and programs of its user."""
    for place in (".nvm/versions/node/v22.1.0/bin", ".local/bin", "tools/bin"):
        (tmp_path / "home" / place).mkdir(parents=True)
    return tmp_path / "home"


def searched(home: Path, *folders: str | Path) -> list[str]:
    """The search path of a hub that a client with these folders starts."""
    return hub_environment({"HOME": str(home), "PATH": ":".join(map(str, folders))}, [])["PATH"].split(":")


def test_folders_of_the_account_come_before_those_of_the_client(home: Path) -> None:
    path = searched(home, f"{home}/tools/bin/", "/usr/bin", home / ".local/bin")
    order = [
        str(home / ".local/bin"),
        str(home / ".nvm/versions/node/v22.1.0/bin"),
        "/usr/bin",
        str(home / "tools/bin"),
    ]
    assert [folder for folder in path if folder in order] == order
    assert searched(home)[: path.index(order[-1])] == path[: path.index(order[-1])]


@pytest.mark.parametrize(
    "place",
    ["proj/node_modules/.bin", "proj/node_modules/npm/bin", "proj/.venv/bin", "proj/env/bin", "link",
     "conda/envs/x/bin", "open", "wide/bin", "missing", "file"],
)  # fmt: skip
def test_folders_of_a_project_or_of_others_are_not_searched(home: Path, place: str) -> None:
    folder = home / place
    (home / "proj/.venv/bin").mkdir(parents=True)
    if place == "file":
        folder.touch()
    elif place == "link":
        folder.symlink_to("proj/.venv/bin")
    elif place != "missing":
        folder.mkdir(parents=True, exist_ok=True)
    for project in ("proj/.venv", "proj/env"):
        if (home / project).exists():
            (home / project / "pyvenv.cfg").touch()
    if place.startswith("conda"):
        (folder.parent / "conda-meta").mkdir()
    if place in ("open", "wide/bin"):
        (home / place.partition("/")[0]).chmod(0o777)
    assert str(folder) not in searched(home, folder, "node_modules/.bin", ".", "", home / "tools/bin")
    assert shared_folders(f"{folder}:{home}/tools/bin") == [str(home / "tools/bin")]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")
def test_folders_of_another_user_are_not_searched(home: Path) -> None:
    os.chown(home / "tools/bin", 65534, 65534)
    os.chown(home / ".local/bin", 65534, 65534)
    assert not {str(home / "tools/bin"), str(home / ".local/bin")} & {*searched(home, home / "tools/bin")}


def test_a_hub_finds_the_session_of_a_client_that_passes_on_few_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / str(os.geteuid())
    runtime.mkdir(0o700)
    (runtime / "bus").touch()
    monkeypatch.setattr(environment, "USUAL_RUNTIME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert runtime_folder({}) == str(runtime)
    assert runtime_folder({"XDG_RUNTIME_DIR": "/x"}) == "/x"
    assert runtime_folder({"XDG_RUNTIME_DIR": ""}) is None
    hub = hub_environment({"HOME": "/home/ann"}, [])
    assert (hub["XDG_RUNTIME_DIR"], hub["DBUS_SESSION_BUS_ADDRESS"]) == (str(runtime), f"unix:path={runtime}/bus")


@pytest.mark.parametrize("caller", ["npm_execpath", "npm_command", "npm_lifecycle_event"])
def test_settings_that_npm_repeats_for_its_programs_are_not_the_users(caller: str) -> None:
    env = {"npm_config_registry": "r", "npm_config_cache": "c", "NPM_CONFIG_REGISTRY": "R", "UV_INDEX_A_PASSWORD": "p"}
    assert reaching(env).keys() == {"npm_config_registry", "NPM_CONFIG_REGISTRY"}
    assert reaching({**env, caller: "x"}).keys() == {"NPM_CONFIG_REGISTRY"}

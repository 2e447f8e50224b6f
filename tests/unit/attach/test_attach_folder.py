"""The folder of a hub, nobody else's; and odd machines: the next best folder for one that cannot be used."""

import os
import pwd
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mcp_hub.attach import folder as folders
from mcp_hub.attach.environment import REACH
from mcp_hub.attach.folder import (
    Untrusted,
    check_peer,
    check_socket,
    different_variables,
    hub_folder,
    scope_of,
    successor_folder,
    variables_of,
    write_variables,
)
from mcp_hub.attach.machine import use_machine
from mcp_hub.cli.access.running import HubRecord
from mcp_hub.cli.commands.running.status import _HubReport, report_lines

KEY = bytes(32)


@pytest.fixture
def state(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder whose name is short enough for sockets."""
    with TemporaryDirectory(prefix="s", dir="/tmp") as folder, TemporaryDirectory(prefix="t", dir="/tmp") as short:
        monkeypatch.setattr(folders, "SHORT", short)
        yield Path(folder)


@pytest.fixture
def env(state: Path) -> dict[str, str]:
    return {"XDG_RUNTIME_DIR": "", "MCP_HUB_STATE_DIR": str(state), "HOME": "/home/ann", "TOKEN": "a"}


def test_scopes_differ_by_configuration_named_values_key_and_home(env: dict[str, str]) -> None:
    scopes = [
        scope_of("/a", ["TOKEN"], env, KEY),
        scope_of("/b", ["TOKEN"], env, KEY),
        scope_of("/a", ["TOKEN"], {**env, "TOKEN": "b"}, KEY),
        scope_of("/a", ["TOKEN"], {name: value for name, value in env.items() if name != "TOKEN"}, KEY),
        scope_of("/a", ["TOKEN"], {**env, "TOKEN": ""}, KEY),
        scope_of("/a", ["TOKEN"], {**env, "HOME": "/home/bob"}, KEY),
        scope_of("/a", ["TOKEN"], env, bytes(31) + b"k"),
    ]
    assert len(set(scopes)) == len(scopes) and {len(scope) for scope in scopes} == {16}
    assert scope_of("/a", [], env, KEY) == scope_of("/a", [], {**env, "TOKEN": "b", "PATH": "/x", "TERM": "y"}, KEY)
    one = scope_of("/a", ["A", "B"], {**env, "A": "x", "B": "y"}, KEY)
    assert one != scope_of("/a", ["A", "B"], {**env, "A": "x2:B=y", "B": ""}, KEY)


@pytest.mark.parametrize(
    "more",
    [
        {"XDG_STATE_HOME": "/x"}, {"XDG_CACHE_HOME": "/x"}, {"XDG_CONFIG_HOME": "/x"}, {"TMPDIR": "/x"},
        {"LC_ALL": "C"}, {"SSH_AUTH_SOCK": "/x"},
        {"PYTHONPATH": "/x"}, {"VIRTUAL_ENV": "/x"}, {"PIP_CACHE_DIR": "/x"}, {"UV_CACHE_DIR": "/x"}, {"NO_PROXY": ""},
        {"npm_config_cache": "/x"}, {"npm_command": "exec", "npm_config_registry": "r"}, {"OTEL_SERVICE_NAME": "x"},
        {"HOME": "/home/ann/"}, {"HOME": "//home/./ann//"}, {"MCP_HUB_TRUST_CONFIG": ""}, {"MCP_HUB_TRUST_CONFIG": "0"},
        {"MCP_HUB_DUMPABLE": ""},
    ],
    ids=lambda more: "=".join(next(iter(more.items()))),
)  # fmt: skip
def test_variables_outside_the_table_do_not_split_hubs(env: dict[str, str], more: dict[str, str]) -> None:
    assert scope_of("/a", [], env, KEY) == scope_of("/a", [], {**env, **more}, KEY)


@pytest.mark.parametrize("name", [*sorted(REACH), "UV_INDEX_CORP_USERNAME", "npm_config_registry", "MCP_HUB_STATE_DIR"])
def test_variables_of_the_table_split_hubs(env: dict[str, str], name: str) -> None:
    one, two = ({**env, name: value} for value in ("/x", "/y"))
    assert len({scope_of("/a", [], values, KEY) for values in (env, one, two)}) == 3


def test_status_names_the_variables_of_a_scope_and_those_with_another_value(env: dict[str, str]) -> None:
    found = hub_folder("/a", ["TOKEN", "MISSING"], env)
    assert variables_of(found, env) == {}
    write_variables(found, ["TOKEN", "MISSING"], {**env, "PIP_INDEX_URL": "i"})
    here = {**env, "TOKEN": "b", "UV_INDEX": "i"}
    assert variables_of(found, here) == {
        "HOME": True, "MCP_HUB_STATE_DIR": True, "PIP_INDEX_URL": False, "TOKEN": False, "UV_INDEX": False
    }  # fmt: skip
    report = _HubReport("/a", [HubRecord("", 1, folder=found)], variables={found: variables_of(found, here)})
    lines = "\n".join(text for text, _ in report_lines(report, 0))
    assert "another hub: other values of PIP_INDEX_URL, TOKEN, UV_INDEX" in lines


def test_hubs_of_one_configuration_are_apart_by_names_of_variables_never_by_values(env: dict[str, str]) -> None:
    envs = [env, {**env, "TOKEN": "secret-b", "PIP_INDEX_URL": "i"}, {**env, "HOME": "/home/bob"}]
    found = [hub_folder("/a", ["TOKEN"], each) for each in envs]
    for folder, each in zip(found, envs, strict=True):
        write_variables(folder, ["TOKEN"], each)
    assert different_variables(found[0], found[1]) == ["PIP_INDEX_URL", "TOKEN"]
    assert different_variables(found[0], found[2]) == ["HOME"] and different_variables(found[0], found[0]) == []
    assert different_variables(found[0], "/elsewhere/0123") == ["XDG_RUNTIME_DIR"]
    newer = successor_folder(found[0], "/a", ["TOKEN"], env)
    assert os.path.dirname(newer) == os.path.dirname(found[0]) and newer not in found and not os.path.exists(newer)
    assert different_variables(found[0], newer) == []


def test_the_folder_is_private_and_the_same_each_time(env: dict[str, str]) -> None:
    found = hub_folder("/a", ["TOKEN"], env)
    assert found == hub_folder("/a", ["TOKEN"], env)
    assert os.stat(found).st_mode & 0o777 == 0o700 and os.path.dirname(found).endswith("/attach")


@pytest.mark.parametrize("damage", ["link", "open", "file", "open key"])
def test_a_folder_that_may_be_another_users_is_refused(
    env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    found = Path(hub_folder("/a", [], env))
    if damage == "open key":
        (found.parent / "key").chmod(0o644)
    elif damage == "open":
        found.chmod(0o755)
    else:
        found.rmdir()
        (tmp_path / "elsewhere").mkdir(0o700)
        found.symlink_to(tmp_path / "elsewhere") if damage == "link" else found.touch()
    monkeypatch.setattr(folders, "_bases", lambda env: [str(found.parent)])
    with pytest.raises(Untrusted, match=str(found.parent)):
        hub_folder("/a", [], env)


def test_base_that_others_may_write_or_that_is_too_long_for_a_socket_is_passed_over(
    env: dict[str, str], tmp_path: Path, state: Path
) -> None:
    long = tmp_path / ("x" * 90)
    found = hub_folder("/a", [], {**env, "MCP_HUB_STATE_DIR": str(long)})
    assert found.startswith(f"{folders.SHORT}/mcp-hub-{os.geteuid()}/") and not long.exists()
    state.chmod(0o777)
    assert hub_folder("/a", [], env).startswith(f"{folders.SHORT}/mcp-hub-{os.geteuid()}/")


@pytest.mark.parametrize("damage", ["mode", "link", "file"])
def test_a_socket_that_may_be_another_users_is_refused(tmp_path: Path, damage: str) -> None:
    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        place.chmod(0o666 if damage == "mode" else 0o600)
        if damage == "link":
            (tmp_path / "l").symlink_to(place)
            place = tmp_path / "l"
        elif damage == "file":
            place = tmp_path / "f"
            place.touch(0o600)
        with pytest.raises(Untrusted, match=str(place)):
            check_socket(str(place))


def test_a_peer_of_another_user_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        check_peer(ours)
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(Untrusted, match="another user"):
            check_peer(ours)


@pytest.fixture
def spare(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder in place of those that cannot be used; `/tmp` is another one."""
    with TemporaryDirectory(dir="/tmp") as short:
        monkeypatch.setattr(folders, "SHORT", short)
        yield Path(short) / f"mcp-hub-{os.geteuid()}"


def used(env: dict[str, str]) -> list[str]:
    """The lines that are said; `env` is as it is then."""
    lines: list[str] = []
    use_machine(env, lines.append)
    return lines


def test_nothing_is_replaced_or_said_on_an_ordinary_machine(spare: Path, tmp_path: Path) -> None:
    for env in ({"HOME": str(tmp_path)}, {"HOME": "/x", "MCP_HUB_STATE_DIR": "/dev/null/state"}):
        assert used(before := dict(env)) == [] and before == env
    assert not spare.exists()


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_home_is_that_of_the_account_where_the_variable_is_not_a_path(spare: Path, home: str | None) -> None:
    env = {"MCP_HUB_STATE_DIR": "/s"} | ({} if home is None else {"HOME": home})
    assert len(used(env)) == bool(home)
    assert env["HOME"] == pwd.getpwuid(os.geteuid()).pw_dir


def test_a_user_without_an_account_gets_a_private_home(spare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: {}[uid])
    env: dict[str, str] = {}
    (line,) = used(env)
    assert env == {"HOME": str(spare)} and str(spare) in line
    assert spare.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("damage", ["", "open", "file"])
def test_state_that_cannot_be_written_is_in_a_private_folder_or_not_kept(
    spare: Path, tmp_path: Path, damage: str
) -> None:
    (tmp_path / "file").touch()
    if damage == "open":
        spare.mkdir(mode=0o700)
        spare.chmod(0o777)
    elif damage == "file":
        spare.touch()
    env = {"HOME": str(tmp_path / "file")}
    (line,) = used(env)
    assert str(tmp_path / "file") in line and "MCP_HUB_STATE_DIR" in line
    assert env.get("MCP_HUB_STATE_DIR") == (None if damage else str(spare / "state"))


def test_a_removed_working_directory_is_replaced_by_an_empty_one(
    spare: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    (line,) = used({"HOME": str(tmp_path)})
    assert os.getcwd() == str(spare / "empty") and os.listdir() == [] and os.getcwd() in line


@pytest.mark.processes
@pytest.mark.skipif(sys.platform != "linux", reason="prctl(2) is of Linux")
@pytest.mark.parametrize(("value", "shows"), [("", "0 1"), ("0", "0 1"), ("1", "1 1")])
def test_this_process_is_hidden_and_programs_that_it_starts_are_not(value: str, shows: str) -> None:
    line = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), end=' ', flush=True)"
    program = f"""
import os, sys
from mcp_hub.attach.machine import hide_process
hide_process({{"MCP_HUB_DUMPABLE": {value!r}}})
{line}
os.execv(sys.executable, [sys.executable, "-c", {line!r}])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.strip() == shows


@pytest.mark.processes
def test_signals_that_a_parent_ignores_or_blocks_come_again() -> None:
    code = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN);"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM]);"
        "from mcp_hub.attach.machine import use_machine; use_machine(os.environ, print);"
        "print(signal.getsignal(signal.SIGCHLD), signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240)
    assert done.stdout == "0 set()\n"


SHIM = """
import os, sys
before = set(sys.modules)
import mcp_hub.__main__
import mcp_hub.attach.client
print(*sorted(set(sys.modules) - before))
"""
ALLOWED = {"_socket", "fcntl", "gc", "select"}
"""Beside the modules of attach itself. Each is a C module without imports of its own."""


@pytest.mark.processes
def test_a_client_that_joins_a_hub_loads_next_to_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-c", SHIM],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        check=True,
        text=True,
    )
    loaded = set(done.stdout.split())
    others = {name for name in loaded if name.split(".")[0] != "mcp_hub"}
    own = {name for name in loaded - others if not name.startswith("mcp_hub.attach")}
    assert others <= ALLOWED
    assert own == {"mcp_hub", "mcp_hub.__main__"}
    assert not {"mcp_hub.attach.start"} & loaded, "nobody starts a hub that runs"

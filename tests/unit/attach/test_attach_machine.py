"""Odd machines: the next best folder in place of one that cannot be used, with one line."""

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from mcp_hub.attach import folder as folders
from mcp_hub.attach.machine import use_machine

pytestmark = pytest.mark.processes


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
ALLOWED = {"_socket", "fcntl", "select"}
"""Beside the modules of attach itself. Each is a C module without imports of its own."""


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

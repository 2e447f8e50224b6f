"""`mcp-hub service`: the files of each system, and programs of the system that are stand-ins on PATH."""

import os
import plistlib
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from mcp_hub import windows
from mcp_hub.cli import main
from mcp_hub.cli.commands.running import service
from mcp_hub.cli.commands.running.service import MARK, _HubService, is_ours, plan

UNIT = """\
# Written by: mcp-hub service install
[Unit]
Description=MCP hub for /home/ann/servers.yaml

[Service]
Type=exec
ExecStart="/opt/hub/bin/python" "-m" "mcp_hub" "serve" "--http" "--config" "/home/ann/servers.yaml"
ExecReload=/bin/kill -HUP $MAINPID
Environment="PATH=/opt/hub/bin:/usr/bin"
# variables for servers.yaml, one NAME=value on a line; this file is yours and may be missing
EnvironmentFile=-/home/ann/.config/mcp-hub/environment
Restart=on-failure
RestartSec=2
# a mistake in the configuration does not go away by itself
RestartPreventExitStatus=2
TimeoutStopSec=10

[Install]
WantedBy=default.target
"""
TASK = (
    *("Triggers/LogonTrigger/UserId", "Principals/Principal/UserId", "Principals/Principal/RunLevel"),
    *("Settings/ExecutionTimeLimit", "Actions/Exec/Command", "Actions/Exec/Arguments"),
)
ODD = '/home/ann/my "50%" $HOME \\ servers; rm -rf & é.yaml'


def own(config: str = "/home/ann/servers.yaml", home: str = "/home/ann") -> _HubService:
    return _HubService(["/opt/hub/bin/python", "-m", "mcp_hub"], config, "/opt/hub/bin:/usr/bin", home)


def test_linux_gets_a_unit_of_the_user_in_which_nothing_of_a_path_means_anything() -> None:
    made = plan("linux", own(), 1000)
    assert made is not None and made.text.decode() == UNIT
    assert made.file == Path("/home/ann/.config/systemd/user/mcp-hub.service")
    assert made.starts[-1] == ("systemctl", "--user", "enable", "--now", "mcp-hub.service")
    made = plan("linux", own(ODD), 1000)
    assert made is not None
    (start,) = [line for line in made.text.decode().splitlines() if line.startswith("ExecStart=")]
    assert start.endswith(r'"/home/ann/my \"50%%\" $$HOME \\ servers; rm -rf & é.yaml"')


def test_macos_gets_an_agent_of_the_user() -> None:
    made = plan("darwin", own(ODD, "/Users/ann"), 501)
    assert made is not None and MARK.encode() in made.text
    agent = plistlib.loads(made.text)
    line = ["/opt/hub/bin/python", "-m", "mcp_hub", "serve", "--http", "--config", ODD]
    assert agent["ProgramArguments"] == line and agent["EnvironmentVariables"] == {"PATH": "/opt/hub/bin:/usr/bin"}
    assert agent["KeepAlive"] == {"SuccessfulExit": False} and agent["RunAtLoad"] is True
    assert made.file == Path("/Users/ann/Library/LaunchAgents/mcp-hub.plist")
    assert made.starts == [("launchctl", "bootstrap", "gui/501", str(made.file))]


def test_windows_gets_a_task_of_the_user() -> None:
    config, home = "C:\\Users\\Ann Lee\\R&D <1>\\servers.yaml", "C:\\Users\\Ann Lee"
    command = ["C:\\hub\\python.exe", "-m", "mcp_hub"]
    made = plan("win32", _HubService(command, config, "unused", home, "PC\\ann", "D:\\Windows"), 0)
    assert made is not None and made.text.startswith(b"\xff\xfe<\0") and is_ours(made.text)
    assert str(made.file) == f"{home}\\AppData\\Local\\mcp-hub\\mcp-hub\\mcp-hub.xml"
    space = {"": "http://schemas.microsoft.com/windows/2004/02/mit/task"}
    task = ElementTree.fromstring(made.text)
    texts = {path: task.findtext(path, namespaces=space) for path in TASK}
    assert texts == {
        "Triggers/LogonTrigger/UserId": "PC\\ann",
        "Principals/Principal/UserId": "PC\\ann",
        "Principals/Principal/RunLevel": "LeastPrivilege",
        "Settings/ExecutionTimeLimit": "PT0S",
        "Actions/Exec/Command": "C:\\hub\\python.exe",
        "Actions/Exec/Arguments": f'-m mcp_hub serve --http --config "{config}"',
    }
    tasks = "D:\\Windows\\System32\\schtasks.exe"
    assert made.starts == [
        (tasks, "/Create", "/TN", "mcp-hub", "/XML", str(made.file), "/F"),
        (tasks, "/Run", "/TN", "mcp-hub"),
    ]
    assert made.removes == [(tasks, "/Delete", "/TN", "mcp-hub", "/F")]


@pytest.mark.parametrize(
    ("systems", "config"),
    [
        *((["win32"], config) for config in ("C:\\%TEMP%\\a.yaml", "C:\\$(Arg0)\\a.yaml", "C:\\a\nb")),
        *((["linux", "darwin"], config) for config in ("/a\nExecStart=/bin/evil", "/a\0b", "/a\rb")),
    ],
)
def test_nothing_in_a_path_means_anything_to_the_system(systems: list[str], config: str) -> None:
    for system in systems:
        with pytest.raises(ValueError):
            plan(system, own(config), 1000)
    assert plan("sunos5", own(), 0) is None


@pytest.mark.parametrize("name", ["linux", "darwin", "win32"])
def test_each_system_is_asked_before_it_is_told(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The calls of the system's programs, recorded: of an installation, another one over it, and the removal."""
    calls: list[Sequence[str]] = []

    def run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        runs = bool(calls) and [*calls, ()].count(made.starts[-1]) > [*calls, ()].count(made.stops[-1])
        calls.append(command)
        return subprocess.CompletedProcess(command, int(command == made.asks and not runs), "", "")

    class Moved:
        home = staticmethod(Path.home)

        def __call__(self, text: object) -> Path:
            return home / re.split(r"[\\\\/]", str(text))[-1]

    monkeypatch.setattr(sys, "platform", name)
    monkeypatch.setattr(windows, "others_who_may", lambda *about: ())
    monkeypatch.setattr(service, "Path", Moved())
    monkeypatch.setattr(service, "_run", run)
    monkeypatch.setattr(shutil, "which", str)
    made = service._plan("")
    for command in ("install", "install", "uninstall"):
        done = CliRunner().invoke(service.service, [command])
        assert done.exit_code == 0, done.output
    first = [made.reaches, *([made.asks] if made.yields else ()), *made.starts]
    again = [made.reaches, *([made.asks, *made.yields] if made.yields else ()), *made.starts]
    assert calls == [*first, *again, made.reaches, made.asks, *made.stops, *made.removes]
    assert not made.file.exists()


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    odd = tmp_path / Path(ODD).name
    made = plan("linux", _HubService([sys.executable, "-m", "mcp_hub"], str(odd), "/usr/bin", str(tmp_path)), 1000)
    assert made is not None
    (tmp_path / "mcp-hub.service").write_bytes(made.text)
    line = ["systemd-analyze", "--user", "verify", str(tmp_path / "mcp-hub.service")]
    env = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=240)
    assert "mcp-hub.service" not in done.stderr, done.stderr


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of somebody with a configuration, on a system whose `systemctl` keeps a list of its calls."""
    monkeypatch.setattr(sys, "platform", "linux")
    for name, value in {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), "STATE": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MCP_HUB_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("MCP_HUB_CONFIG", str(tmp_path / "servers.yaml"))
    (tmp_path / "servers.yaml").write_text("servers: {}\n")
    (tmp_path / "bin").mkdir()
    return tmp_path


def system(home: Path, *fails: str) -> None:
    """A `systemctl` that fails for these subcommands."""
    cases = "".join(f"  {name}) echo 'no {name}' >&2; exit 1;;\n" for name in fails)
    text = f'#!/bin/sh\necho "$@" >> "{home}/calls"\ncase "$2" in\n{cases}esac\n'
    (home / "bin" / "systemctl").write_text(text)
    (home / "bin" / "systemctl").chmod(stat.S_IRWXU)


def calls(home: Path) -> list[str]:
    return [line.split()[1] for line in (home / "calls").read_text().splitlines()]


def unit(home: Path) -> Path:
    return home / ".config" / "systemd" / "user" / "mcp-hub.service"


def run(*args: str) -> Result:
    return CliRunner().invoke(main, ["service", *args])


@pytest.mark.processes
def test_install_starts_it_and_uninstall_takes_it_back(home: Path) -> None:
    system(home)
    assert run("status").exit_code == 3
    done = run("install")
    assert done.exit_code == 0 and "starts with your session" in done.output
    assert f'"{home}/servers.yaml"' in unit(home).read_text()
    assert calls(home) == ["show-environment", "daemon-reload", "enable"]
    assert run("status").exit_code == 0
    assert run("install").exit_code == 0, "once more"
    assert run("uninstall").exit_code == 0 and not unit(home).exists()
    assert calls(home)[-1] == "disable"
    assert "There is no service" in run("uninstall").output


@pytest.mark.processes
@pytest.mark.parametrize("has_systemctl", [False, True], ids=["no systemctl", "no session"])
def test_without_a_managed_session_the_file_is_written_and_the_commands_are_shown(
    home: Path, has_systemctl: bool
) -> None:
    if has_systemctl:
        system(home, "show-environment", "enable")
    done = run("install")
    assert done.exit_code == 0 and "systemctl --user enable --now mcp-hub.service\n" in done.output
    assert unit(home).exists()
    assert run("status").exit_code == 3
    assert run("uninstall").exit_code == 0 and not unit(home).exists()


def test_nothing_is_installed_by_a_dry_run_a_broken_configuration_or_without_services(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run("install", "--dry-run")
    assert done.exit_code == 0 and "ExecStart=" in done.output and "systemctl" in done.output
    (home / "servers.yaml").write_text("servers: {a: {comand: x}}")
    assert run("install").exit_code == 2 and not unit(home).exists()
    (home / "servers.yaml").write_text("servers: {}")
    monkeypatch.setattr(sys, "platform", "sunos5")
    done = run("install")
    assert done.exit_code == 2 and "[no_service]" in done.output


def test_a_file_of_somebody_else_is_left_alone(home: Path) -> None:
    unit(home).parent.mkdir(parents=True)
    unit(home).write_text("[Service]\n")
    for command in ("install", "uninstall"):
        done = run(command)
        assert done.exit_code == 2 and "[not_ours]" in done.output
    assert unit(home).read_text() == "[Service]\n"


@pytest.mark.processes
def test_a_refusal_of_the_system_is_passed_on(home: Path) -> None:
    system(home, "enable")
    done = run("install")
    said = " ".join(done.output.split())
    assert done.exit_code == 3 and "enable --now mcp-hub.service failed: no enable." in said
    assert "[service_failed]" in said

"""Service files: a systemd user unit, a launchd agent, a Windows task. Pure.

Sources: systemd.service(5), systemd.syntax(7); launchd.plist(5); Task Scheduler Schema, schtasks (Microsoft Learn).
"""

import plistlib
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final
from xml.sax.saxutils import escape

import msgspec

MARK: Final = "Written by: mcp-hub service install"
"""In every file of ours; no other file is replaced or removed."""
LABEL: Final = "mcp-hub"
ENVIRONMENT: Final = ".config/mcp-hub/environment"
"""The file with the variables of the service of Linux, in the home folder."""
_UNIT: Final = """\
# {mark}
[Unit]
Description=MCP hub for {title}

[Service]
Type=exec
ExecStart={start}
ExecReload=/bin/kill -HUP $MAINPID
Environment={path}
# variables for servers.yaml, one NAME=value on a line; this file is yours and may be missing
EnvironmentFile=-{variables}
Restart=on-failure
RestartSec=2
# a mistake in the configuration does not go away by itself
RestartPreventExitStatus=2
TimeoutStopSec=10

[Install]
WantedBy=default.target
"""
_TASK: Final = """\
<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.4" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>MCP hub for {title}. {mark}</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <UserId>{account}</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>{account}</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>3</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>{command}</Command>
      <Arguments>{arguments}</Arguments>
      <WorkingDirectory>{home}</WorkingDirectory>
    </Exec>
  </Actions>
</Task>
"""
_UTF_16: Final = b"\xff\xfe"
"""The mark of the byte order, at the beginning of the file of a task."""
_BAD: Final = "\0\n\r"


class HubService(msgspec.Struct, frozen=True):
    """A hub to start, with its PATH; for Windows the account and system folder."""

    command: Sequence[str]
    config: str
    path: str
    home: str
    account: str = ""
    system_root: str = "C:\\Windows"

    @property
    def line(self) -> list[str]:
        return [*self.command, "serve", "--http", "--config", self.config]


class ServicePlan(msgspec.Struct, frozen=True):
    """A file to write, and commands that start, stop and ask.

    `reaches` fails in unmanaged sessions. `removes` clean up after `stops`; `yields` end a running service for its
    successor.
    """

    file: Path
    text: bytes
    starts: Sequence[Sequence[str]]
    stops: Sequence[Sequence[str]]
    asks: Sequence[str]
    reaches: Sequence[str]
    removes: Sequence[Sequence[str]] = ()
    yields: Sequence[Sequence[str]] = ()

    @property
    def readable(self) -> str:
        return self.text.decode("utf-16" if self.text.startswith(_UTF_16) else "utf-8")


def is_ours(data: bytes) -> bool:
    """Whether the hub wrote this file."""
    return MARK.encode() in data or MARK.encode("utf-16-le") in data


def plan(system: str, service: HubService, user: int) -> ServicePlan | None:
    """The plan for a `sys.platform`, or None. Raises `ValueError` for a line break or NUL."""
    for text in (*service.line, service.path, service.home, service.account):
        if any(char in text for char in _BAD):
            raise ValueError(f"{text!r} has a line break or a NUL")
    if system == "linux":
        return _systemd(service)
    if system == "win32":
        return _task(service)
    return _launchd(service, user) if system == "darwin" else None


def _systemd(service: HubService) -> ServicePlan:
    folder = PurePosixPath(service.home) / ".config"
    unit = f"{LABEL}.service"
    text = _UNIT.format(
        mark=MARK,
        title=service.config.replace("%", "%%"),
        start=" ".join(map(_quoted, service.line)),
        path=_quoted(f"PATH={service.path}", has_variables=False),
        variables=str(PurePosixPath(service.home) / ENVIRONMENT).replace("%", "%%"),
    )
    control = ("systemctl", "--user")
    return ServicePlan(
        file=Path(folder / "systemd" / "user" / unit),
        text=text.encode(),
        starts=[(*control, "daemon-reload"), (*control, "enable", "--now", unit)],
        stops=[(*control, "disable", "--now", unit)],
        asks=(*control, "is-active", unit),
        reaches=(*control, "show-environment"),
    )


def _quoted(text: str, *, has_variables: bool = True) -> str:
    word = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word.replace("$", "$$") if has_variables else word}"'


def _launchd(service: HubService, user: int) -> ServicePlan:
    library = PurePosixPath(service.home) / "Library"
    file = Path(library / "LaunchAgents" / f"{LABEL}.plist")
    agent = {
        "Label": LABEL,
        "ProgramArguments": service.line,
        "EnvironmentVariables": {"PATH": service.path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
        "ExitTimeOut": 10,
        "StandardErrorPath": str(library / "Logs" / f"{LABEL}.log"),
    }
    text = plistlib.dumps(agent).replace(b"<plist", f"<!-- {MARK} -->\n<plist".encode(), 1)
    domain = f"gui/{user}"
    return ServicePlan(
        file=file,
        text=text,
        starts=[("launchctl", "bootstrap", domain, str(file))],
        stops=[("launchctl", "bootout", f"{domain}/{LABEL}")],
        asks=("launchctl", "print", f"{domain}/{LABEL}"),
        reaches=("launchctl", "print", domain),
        yields=[("launchctl", "bootout", f"{domain}/{LABEL}")],  # a second bootstrap fails
    )


def _task(service: HubService) -> ServicePlan:
    for text in service.line:
        if "%" in text or "$(" in text:
            raise ValueError(f"{text!r} has % or $(, which the Task Scheduler would replace")
    file = PureWindowsPath(service.home, "AppData", "Local", LABEL, LABEL, f"{LABEL}.xml")
    command, *arguments = service.line
    text = _TASK.format(
        mark=MARK,
        title=escape(service.config),
        account=escape(service.account),
        command=escape(command),
        arguments=escape(subprocess.list2cmdline(arguments)),
        home=escape(service.home),
    )
    programs = PureWindowsPath(service.system_root, "System32")
    tasks = str(programs / "schtasks.exe")
    shell = str(programs / "WindowsPowerShell" / "v1.0" / "powershell.exe")
    is_running = f"exit [int]((Get-ScheduledTask -TaskName '{LABEL}').State -ne 'Running')"
    return ServicePlan(
        file=Path(str(file)),
        text=_UTF_16 + text.encode("utf-16-le"),
        starts=[(tasks, "/Create", "/TN", LABEL, "/XML", str(file), "/F"), (tasks, "/Run", "/TN", LABEL)],
        stops=[(tasks, "/End", "/TN", LABEL)],
        asks=(shell, "-NoProfile", "-NonInteractive", "-Command", is_running),
        reaches=(tasks, "/Query"),
        removes=[(tasks, "/Delete", "/TN", LABEL, "/F")],
        yields=[(tasks, "/End", "/TN", LABEL)],
    )

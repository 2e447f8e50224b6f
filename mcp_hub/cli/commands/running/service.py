"""`mcp-hub service`, by a systemd user unit, a launchd agent or a task.

Sources: systemd.service(5), systemd.syntax(7); launchd.plist(5); Task Scheduler Schema, schtasks (Microsoft Learn).
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

import click
import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import user
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, config_path, fail, load_config
from mcp_hub.extras import lasting_install
from mcp_hub.files import LARGEST_OWN, read_file

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
_SECONDS: Final = 30


class _HubService(msgspec.Struct, frozen=True):
    """A hub to start, with PATH; for Windows account and system folder."""

    command: Sequence[str]
    config: str
    path: str
    home: str
    account: str = ""
    system_root: str = "C:\\Windows"

    @property
    def line(self) -> list[str]:
        return [*self.command, "serve", "--http", "--config", self.config]


class _Plan(msgspec.Struct, frozen=True):
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


def plan(system: str, service: _HubService, user: int) -> _Plan | None:
    """The plan for a `sys.platform`, or None. Raises `ValueError` for a line break or NUL."""
    for text in (*service.line, service.path, service.home, service.account):
        if any(char in text for char in _BAD):
            raise ValueError(f"{text!r} has a line break or a NUL")
    if system == "linux":
        return _systemd(service)
    if system == "win32":
        return _task(service)
    return _launchd(service, user) if system == "darwin" else None


def _systemd(service: _HubService) -> _Plan:
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
    return _Plan(
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


def _launchd(service: _HubService, user: int) -> _Plan:
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
    import plistlib

    text = plistlib.dumps(agent).replace(b"<plist", f"<!-- {MARK} -->\n<plist".encode(), 1)
    domain = f"gui/{user}"
    return _Plan(
        file=file,
        text=text,
        starts=[("launchctl", "bootstrap", domain, str(file))],
        stops=[("launchctl", "bootout", f"{domain}/{LABEL}")],
        asks=("launchctl", "print", f"{domain}/{LABEL}"),
        reaches=("launchctl", "print", domain),
        yields=[("launchctl", "bootout", f"{domain}/{LABEL}")],  # a second bootstrap fails
    )


def _task(service: _HubService) -> _Plan:
    from xml.sax.saxutils import escape  # loads an HTTP client

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
    return _Plan(
        file=Path(str(file)),
        text=_UTF_16 + text.encode("utf-16-le"),
        starts=[(tasks, "/Create", "/TN", LABEL, "/XML", str(file), "/F"), (tasks, "/Run", "/TN", LABEL)],
        stops=[(tasks, "/End", "/TN", LABEL)],
        asks=(shell, "-NoProfile", "-NonInteractive", "-Command", is_running),
        reaches=(tasks, "/Query"),
        removes=[(tasks, "/Delete", "/TN", LABEL, "/F")],
        yields=[(tasks, "/End", "/TN", LABEL)],
    )


@click.group()
def service() -> None:
    """Start a hub over HTTP with your session.

    Linux: a systemd user unit; macOS: a launchd agent; Windows: a task. Where systemctl, launchctl
    or schtasks does not manage the session, the file is written and the commands that start it are
    printed.
    """


@service.command()
@click.option("--dry-run", is_flag=True, help="Print the file and the commands; change nothing.")
@config_option
def install(dry_run: bool, config: str | None) -> None:
    """Write the service and start it.

    The hub serves HTTP at hub.http.host and hub.http.port of the configuration. Variables for it belong in the file
    `environment` in the configuration folder (Linux). A service that was installed before is replaced.
    """
    config_place = os.path.abspath(config_path(config))
    load_config(config)
    if (advice := lasting_install(sys.executable)) is not None:
        say(f"warning: {sys.executable} lies in a cache, which may be emptied. Install the hub: {advice}")
    service_plan = _plan(config_place)
    if dry_run:
        put(f"# {service_plan.file}\n{service_plan.readable}")
        _print_commands(service_plan.starts)
        return
    _check_ours(service_plan.file)
    try:
        make_folder(service_plan.file.parent)
        service_plan.file.write_bytes(service_plan.text)
    except OSError as problem:
        fail("output_unwritable", f"{service_plan.file} cannot be written: {problem.strerror}. Check its folder.")
    say(f"Wrote {service_plan.file}")
    if _has(service_plan):
        if service_plan.yields and _run(service_plan.asks).returncode == 0:
            _run_all(service_plan.yields)
        _run_all(service_plan.starts)
        say(f"The hub for {config_place} runs, and starts with your session. Look at it with mcp-hub status.")
    else:
        say(f"{service_plan.starts[0][0]} is not there, or does not manage this session. Start the service with:")
        _print_commands(service_plan.starts)


@service.command()
def uninstall() -> None:
    """Stop the service and remove its file."""
    file = stop_service()
    say("There is no service of mcp-hub." if file is None else f"Removed {file}")


def service_file() -> Path | None:
    """The file of the service, or None."""
    service_plan = _plan_here("")
    return None if service_plan is None or not os.path.exists(service_plan.file) else service_plan.file


def stop_service() -> Path | None:
    """Stops the service; removes and returns its file."""
    if service_file() is None:
        return None
    service_plan = _plan("")
    _check_ours(service_plan.file)
    if _has(service_plan):
        if _run(service_plan.asks).returncode == 0:
            _run_all(service_plan.stops)
        _run_all(service_plan.removes)
    service_plan.file.unlink()
    return service_plan.file


@service.command()
def status() -> None:
    """Show whether the service is installed and running. Exit code 3 if not."""
    service_plan = _plan("")
    if not os.path.exists(service_plan.file):
        say("The service is not installed. Install it with mcp-hub service install.")
        raise SystemExit(EXIT_UNAVAILABLE)
    put(f"installed: {service_plan.file}")
    if not _has(service_plan):
        put(f"running: unknown, because {service_plan.asks[0]} is not there, or does not manage this session")
        raise SystemExit(EXIT_UNAVAILABLE)
    runs = _run(service_plan.asks).returncode == 0
    put(f"running: {'yes' if runs else 'no'}")
    raise SystemExit(0 if runs else EXIT_UNAVAILABLE)


def _plan(config: str) -> _Plan:
    if (service_plan := _plan_here(config)) is None:
        fail("no_service", "There is no service for this system. Run mcp-hub serve --http, for example at log-in.")
    return service_plan


def _plan_here(config: str) -> _Plan | None:
    env = os.environ
    account = "\\".join(filter(None, (env.get("USERDOMAIN"), env.get("USERNAME"))))
    service = _HubService(
        command=[sys.executable, "-m", "mcp_hub"],
        config=config,
        path=env.get("PATH", os.defpath),
        home=str(Path.home()),
        account=account,
        system_root=env.get("SYSTEMROOT", "C:\\Windows"),
    )
    try:
        return plan(sys.platform, service, user() or 0)
    except ValueError as problem:
        fail("output_unwritable", f"The service cannot be written: {problem}. Rename the folder or file.")


def _check_ours(file: Path) -> None:
    try:
        is_written_here = is_ours(read_file(file, LARGEST_OWN).data)
    except FileNotFoundError:
        return
    except OSError:
        is_written_here = False
    if not is_written_here:
        fail("not_ours", f"{file} was not written by mcp-hub. Rename it, and try again.")


def _has(service_plan: _Plan) -> bool:
    return shutil.which(service_plan.reaches[0]) is not None and _run(service_plan.reaches).returncode == 0


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        process = _run(command)
        if process.returncode:
            message = process.stderr.strip() or process.stdout.strip() or f"exit code {process.returncode}"
            fail(
                "service_failed",
                f"{_line(command)} failed: {message}. Correct that, and try again.",
                EXIT_UNAVAILABLE,
            )


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, stdin=subprocess.DEVNULL)


def _print_commands(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        put(_line(command))


def _line(command: Sequence[str]) -> str:
    return subprocess.list2cmdline(command) if sys.platform == "win32" else shlex.join(command)

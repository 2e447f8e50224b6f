"""The files by which a system starts the hub with the user's session: a systemd user unit, a launchd agent. Pure.

Sources: systemd.service(5), systemd.syntax(7); launchd.plist(5).
"""

import plistlib
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

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
_BAD: Final = "\0\n\r"


class HubService(msgspec.Struct, frozen=True):
    """A hub over HTTP to start: its absolute command, its configuration, and the PATH on which it finds programs."""

    command: Sequence[str]
    config: str
    path: str
    home: str

    @property
    def line(self) -> list[str]:
        return [*self.command, "serve", "--http", "--config", self.config]


class ServicePlan(msgspec.Struct, frozen=True):
    """A file to write, and commands: to begin and end the service, to ask whether it runs, and whether they can work.

    The last fails in a session that the system does not manage, such as in a container.
    """

    file: Path
    text: bytes
    starts: Sequence[Sequence[str]]
    stops: Sequence[Sequence[str]]
    asks: Sequence[str]
    reaches: Sequence[str]


def plan(system: str, own: HubService, user: int) -> ServicePlan | None:
    """The plan for a system as `sys.platform` names it; None where there is none.

    Raises `ValueError` for a text that cannot stand in the file.
    """
    for text in (*own.line, own.path, own.home):
        if any(char in text for char in _BAD):
            raise ValueError(f"{text!r} has a line break or a NUL")
    if system == "linux":
        return _systemd(own)
    return _launchd(own, user) if system == "darwin" else None


def _systemd(own: HubService) -> ServicePlan:
    folder = PurePosixPath(own.home) / ".config"
    unit = f"{LABEL}.service"
    text = _UNIT.format(
        mark=MARK,
        title=own.config.replace("%", "%%"),
        start=" ".join(map(_quoted, own.line)),
        path=_quoted(f"PATH={own.path}", has_variables=False),
        variables=str(PurePosixPath(own.home) / ENVIRONMENT).replace("%", "%%"),
    )
    control = ("systemctl", "--user")
    return ServicePlan(
        Path(folder / "systemd" / "user" / unit),
        text.encode(),
        [(*control, "daemon-reload"), (*control, "enable", "--now", unit)],
        [(*control, "disable", "--now", unit)],
        (*control, "is-active", unit),
        (*control, "show-environment"),
    )


def _quoted(text: str, *, has_variables: bool = True) -> str:
    """One word of a unit: no specifier, no variable, no escape in it means anything."""
    word = text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{word.replace("$", "$$") if has_variables else word}"'


def _launchd(own: HubService, user: int) -> ServicePlan:
    library = PurePosixPath(own.home) / "Library"
    file = Path(library / "LaunchAgents" / f"{LABEL}.plist")
    agent = {
        "Label": LABEL,
        "ProgramArguments": own.line,
        "EnvironmentVariables": {"PATH": own.path},
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "ProcessType": "Background",
        "ExitTimeOut": 10,
        "StandardErrorPath": str(library / "Logs" / f"{LABEL}.log"),
    }
    text = plistlib.dumps(agent).replace(b"<plist", f"<!-- {MARK} -->\n<plist".encode(), 1)
    domain = f"gui/{user}"
    return ServicePlan(
        file,
        text,
        [("launchctl", "bootstrap", domain, str(file))],
        [("launchctl", "bootout", f"{domain}/{LABEL}")],
        ("launchctl", "print", f"{domain}/{LABEL}"),
        ("launchctl", "print", domain),
    )

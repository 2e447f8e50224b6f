"""`mcp-hub service`: has the system start a hub over HTTP with the user's session."""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from mcp_hub.attach.folder import make_folder
from mcp_hub.attach.system import user
from mcp_hub.cli.commands.running.units import HubService, ServicePlan, is_ours, plan
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import EXIT_UNAVAILABLE, config_option, config_path, fail, load_config
from mcp_hub.extras import lasting_install
from mcp_hub.files import LARGEST_OWN, read_file

_SECONDS: Final = 30


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
    made = _plan(config_place)
    if dry_run:
        put(f"# {made.file}\n{made.readable}")
        _print_commands(made.starts)
        return
    _check_ours(made.file)
    try:
        make_folder(made.file.parent)
        made.file.write_bytes(made.text)
    except OSError as problem:
        fail("output_unwritable", f"{made.file} cannot be written: {problem.strerror}. Check its folder.")
    say(f"Wrote {made.file}")
    if _has(made):
        if made.yields and _run(made.asks).returncode == 0:
            _run_all(made.yields)
        _run_all(made.starts)
        say(f"The hub for {config_place} runs, and starts with your session. Look at it with mcp-hub status.")
    else:
        say(f"{made.starts[0][0]} is not there, or does not manage this session. Start the service with:")
        _print_commands(made.starts)


@service.command()
def uninstall() -> None:
    """Stop the service and remove its file."""
    file = stop_service()
    say("There is no service of mcp-hub." if file is None else f"Removed {file}")


def service_file() -> Path | None:
    """The file of the service; None if there is none."""
    made = _plan_here("")
    return None if made is None or not os.path.exists(made.file) else made.file


def stop_service() -> Path | None:
    """Stops the service and removes its file, which is the result; None if there is none. Exits as the command."""
    if service_file() is None:
        return None
    made = _plan("")
    _check_ours(made.file)
    if _has(made):
        if _run(made.asks).returncode == 0:
            _run_all(made.stops)
        _run_all(made.removes)
    made.file.unlink()
    return made.file


@service.command()
def status() -> None:
    """Show whether the service is installed and running. Exit code 3 if not."""
    made = _plan("")
    if not os.path.exists(made.file):
        say("The service is not installed. Install it with mcp-hub service install.")
        raise SystemExit(EXIT_UNAVAILABLE)
    put(f"installed: {made.file}")
    if not _has(made):
        put(f"running: unknown, because {made.asks[0]} is not there, or does not manage this session")
        raise SystemExit(EXIT_UNAVAILABLE)
    runs = _run(made.asks).returncode == 0
    put(f"running: {'yes' if runs else 'no'}")
    raise SystemExit(0 if runs else EXIT_UNAVAILABLE)


def _plan(config: str) -> ServicePlan:
    if (made := _plan_here(config)) is None:
        fail("no_service", "There is no service for this system. Run mcp-hub serve --http, for example at log-in.")
    return made


def _plan_here(config: str) -> ServicePlan | None:
    env = os.environ
    account = "\\".join(filter(None, (env.get("USERDOMAIN"), env.get("USERNAME"))))
    service = HubService(
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


def _has(made: ServicePlan) -> bool:
    return shutil.which(made.reaches[0]) is not None and _run(made.reaches).returncode == 0


def _run_all(commands: Sequence[Sequence[str]]) -> None:
    for command in commands:
        done = _run(command)
        if done.returncode:
            message = done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}"
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

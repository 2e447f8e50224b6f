"""`mcp-hub service`: a hub that starts with the user's session."""

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
    """Stops the service, and removes and returns its file."""
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


def _plan(config: str) -> ServicePlan:
    if (service_plan := _plan_here(config)) is None:
        fail("no_service", "There is no service for this system. Run mcp-hub serve --http, for example at log-in.")
    return service_plan


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


def _has(service_plan: ServicePlan) -> bool:
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

"""`mcp-hub paths`: all files of the hub. `mcp-hub audit`: whether its lines hold. `mcp-hub schema` and `completion`."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec
from click.shell_completion import ShellComplete, get_completion_class
from msgspec import to_builtins

from mcp_hub.attach.folder import base_folders, problem_of
from mcp_hub.attach.serve import leaves_out
from mcp_hub.cli.commands.running.service import ENVIRONMENT
from mcp_hub.cli.completion import VARIABLE
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import (
    EXIT_CONFIG,
    EXIT_TOOL,
    EXIT_UNAVAILABLE,
    config_option,
    config_place,
    fail,
    fail_with,
    load_config,
)
from mcp_hub.config.trust import SECRETS, overrides_of, own_folders, state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.files import HISTORY_FILE
from mcp_hub.masking import visible
from mcp_hub.stores.server_logs import log_folder

if TYPE_CHECKING:
    from mcp_hub.config.schema.settings import Settings
    from mcp_hub.onboarding.clients.wsl import WindowsSide
    from mcp_hub.stores.audit import AuditReport

_STATE: Final = (
    "streams, results, history of calls, logs of servers, approvals, logins, undo records, "
    "homes of servers in a sandbox"
)


class HubPath(msgspec.Struct, frozen=True):
    """A path of the hub, which may not exist."""

    name: str
    path: Path
    description: str

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def paths(as_json: bool, config: str | None) -> None:
    """Show where the hub keeps its files.

    Configuration, secrets, state, cache, logs and sockets, also those that do not exist yet.
    """
    try:
        hub_files = shown_paths(config, os.environ)
    except ConfigError as error:
        fail_with(error)
    if as_json:
        tables.print_json({item.name: {"path": str(item.path), "exists": item.exists} for item in hub_files})
    else:
        tables.print_lines(path_lines(hub_files))


def shown_paths(config: str | None, env: Mapping[str, str]) -> list[HubPath]:
    """`hub_paths`, and in WSL the Windows user's folder. Raises `ConfigError`."""
    side = _windows_side(env)
    around = [] if side is None else [HubPath("windows", side.home, f"clients there start the hub in {side.place}")]
    return [*hub_paths(config, env), *around]


def _windows_side(env: Mapping[str, str]) -> "WindowsSide | None":
    if sys.platform == "linux" and (env.get("WSL_DISTRO_NAME") or "microsoft" in os.uname().release.lower()):
        from mcp_hub.onboarding.clients.model import Where

        return Where.here(env).windows
    return None


def _settings(file: str, env: Mapping[str, str]) -> "Settings | None":
    """The settings, if they are readable and may name a folder of the store."""
    if not os.path.lexists(file) or leaves_out(file, b"store"):
        return None
    from mcp_hub.config.load.load import load

    try:
        return load(Path(file), env, partly=True, lenient=True).settings
    except ConfigError:  # `check` and `doctor` say so
        return None


def _place_or_usual(config: str | None) -> str:
    """The configuration, or the one to create. Raises `ConfigError`."""
    try:
        return config_place(config)
    except ConfigError as error:
        if error.code != "config_not_found":
            raise
    from mcp_hub.config.load.load import usual_place

    return os.path.abspath(usual_place())


def hub_paths(config: str | None, env: Mapping[str, str]) -> list[HubPath]:
    """All paths, the configuration first. Raises `ConfigError`."""
    config_file = _place_or_usual(config)
    state = state_dir(env)
    stores = own_folders(_settings(config_file, env), env)
    optional = [
        HubPath("overrides", overrides_of(Path(config_file)), "settings that were made in the dashboard"),
        HubPath("environment", Path.home() / ENVIRONMENT, "variables of the service"),
    ]
    hub_files = [
        HubPath("configuration", Path(config_file), "servers and settings"),
        *(item for item in optional if item.exists),
        HubPath(
            "secrets",
            Path(config_file).parent / SECRETS,
            "a file for each secret that was moved out of the configuration",
        ),
        HubPath("state", state, _STATE),
        *(
            HubPath("store", path, "streams, results and history (hub.store.path)")
            for path in stores[1:]
            if path != state
        ),
        HubPath(
            "history", stores[-1] / HISTORY_FILE, "calls that have ended, with arguments and results (hub.history)"
        ),
        HubPath("cache", state / "lists", "last lists of the servers; made again"),
        HubPath("logs", log_folder(state, config_file), "stderr and log of the servers"),
    ]
    return [*hub_files, *socket_paths(env)[:1]]


def socket_paths(env: Mapping[str, str]) -> list[HubPath]:
    """The present and earlier folders of background hubs."""
    return [
        HubPath("sockets", Path(path), "background hubs")
        for number, path in enumerate(base_folders(env))
        if not number or _is_private(path)
    ]


def _is_private(path: str) -> bool:
    return problem_of(path) is None


def path_lines(hub_files: list[HubPath]) -> list[tuple[str, str]]:
    """A line for each, and its style."""
    widest = max(len(item.name) for item in hub_files) + 1
    lines = (
        (f"{item.name + ':':{widest}} {item.path}{'' if item.exists else ' (not there yet)'}", item)
        for item in hub_files
    )
    return [(visible(line), "" if item.exists else "dim") for line, item in lines]


_MODE_LINE: Final = "# yaml-language-server: $schema="
_HOW: Final = {
    "bash": 'eval "$(mcp-hub completion bash)"  # in ~/.bashrc',
    "zsh": 'eval "$(mcp-hub completion zsh)"  # in ~/.zshrc, behind compinit',
    "fish": "mcp-hub completion fish | source  # in ~/.config/fish/config.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that completes mcp-hub in a SHELL.

    \b
    bash: eval "$(mcp-hub completion bash)" in ~/.bashrc
    zsh:  eval "$(mcp-hub completion zsh)" in ~/.zshrc, behind compinit
    fish: mcp-hub completion fish | source in ~/.config/fish/config.fish

    Names of servers, tools and streams come from the configuration and from what hubs remember; no server is started.
    """
    script_class = get_completion_class(shell)
    assert script_class is not None
    # not its own `source`, which runs bash to see whether it is an old one: that prints the script, too
    script = ShellComplete.source(script_class(ctx.find_root().command, {}, "mcp-hub", VARIABLE))
    put(f"# {_HOW[shell]}\n{script}")


@click.command()
@click.option(
    "--write", "target", metavar="FILE",
    help="Write it to FILE, and print the line with which editors find it from a servers.yaml.",
)  # fmt: skip
def schema(target: str | None) -> None:
    """Print the JSON Schema of servers.yaml.

    Editors with a YAML language server complete keys and mark mistakes by it, without network: write it to a file, and
    put the line that the command prints at the top of servers.yaml.
    """
    from mcp_hub.config.schema.json_schema import json_schema

    text = msgspec.json.format(msgspec.json.encode(json_schema()), indent=2).decode()
    if target is None:
        put(text)
        return
    path = Path(target).absolute()
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as problem:
        fail("output_unwritable", f"{path} cannot be written: {problem.strerror}. Choose another file with --write.")
    say(f"Wrote {path}. Put this at the top of servers.yaml; the path may be relative to it:")
    put(f"{_MODE_LINE}{path}")


_LOST: Final = "(overload, a full disk, or a killed hub)"


@click.group()
def audit() -> None:
    """Verify the lines that hub.audit writes."""


@audit.command("verify")
@click.argument("path", required=False, type=click.Path(dir_okay=False, path_type=Path))
@click.option("--head", "heads", multiple=True, metavar="HASH", help="Require this hash, such as one of the hub's log.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def verify_command(path: Path | None, heads: tuple[str, ...], as_json: bool, config: str | None) -> None:
    """Verify the chain of the audit in PATH and its older files.

    Names each line where the chain breaks, and counts lost records. Without PATH: the files of hub.audit, of every hub
    that wrote there. Exit code 1 if a line was changed or is missing.
    """
    from mcp_hub.stores.audit import chains, generations, unwritten, verify

    files = [generations(path)] if path is not None else [*chains(_configured(config))]
    if not any(files):
        fail("audit_not_found", f"there is no file {path or _configured(config)}", EXIT_UNAVAILABLE)
    unseen, reports = set(heads), list[tuple[Path, "AuditReport", int]]()
    for chain in files:
        try:
            report = verify(chain, unseen)
            reports.append((chain[-1], report, unwritten(report, chain[-1], state_dir(os.environ))))
        except OSError as problem:
            fail("audit_unreadable", f"{chain[-1]} cannot be read: {problem.strerror}", EXIT_UNAVAILABLE)
    is_whole = all(report.is_whole for _, report, _ in reports) and not unseen
    if as_json:
        chain_reports = [
            {"file": str(file), **to_builtins(report), "unwritten": count} for file, report, count in reports
        ]
        tables.print_json({"ok": is_whole, "chains": chain_reports, "missing_heads": sorted(unseen)})
    else:
        for file, report, count in reports:
            _print(file, report, count)
        for head in sorted(unseen):
            say(f"No line has the hash {head}: the lines up to it were replaced or removed.", "red")
    if not is_whole:
        raise SystemExit(EXIT_TOOL)


def _configured(config: str | None) -> Path:
    from mcp_hub.app.telemetry import audit_path

    loaded = load_config(config, partly=True)
    if loaded.settings.hub.audit is None or loaded.settings.hub.audit.path is None:
        fail("no_audit_file", "hub.audit has no path in this configuration. Name the file.", EXIT_CONFIG)
    return audit_path(loaded)


def _print(file: Path, report: "AuditReport", unwritten_count: int) -> None:
    put(f"{file}: {plural(report.lines, 'line')}, {report.first} to {report.last}, {' to '.join(report.times)}")
    for problem in report.problems:
        say(problem, "red")
    if report.breaks > len(report.problems):
        say(f"… and {plural(report.breaks - len(report.problems), 'more break')}", "red")
    if report.missing:
        say(f"{plural(report.missing, 'line')} that were written are missing.", "red")
    if report.is_whole:
        put("The chain holds.")
    for note in _notes(report, unwritten_count):
        say(note, "yellow")
    put(f"Its end is {report.head}.")


def _notes(report: "AuditReport", unwritten_count: int) -> Sequence[str]:
    notes = []
    if report.first > 1:
        notes.append(f"Lines before {report.first} are in older files, which are not here.")
    if report.losses:
        notes.append(f"{plural(report.losses, 'record')} got no line {_LOST}.")
    if report.kills:
        notes.append(f"The hub ended {plural(report.kills, 'time')} without its last line: it was killed.")
    if unwritten_count:
        notes.append(f"{plural(unwritten_count, 'record')} got no line yet: a hub is running, or was killed.")
    return notes

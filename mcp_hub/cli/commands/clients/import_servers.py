"""`mcp-hub import` and `mcp-hub init`."""

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import click

from mcp_hub.cli import completion
from mcp_hub.cli.commands.clients.import_dialog import (
    AskedInputs,
    data_of,
    is_anybody_there,
    print_alerts,
    print_costs,
    print_plan,
    with_agreed_paths,
)
from mcp_hub.cli.commands.clients.steps import tell_no_windows
from mcp_hub.cli.commands.servers.edit import confirm, end_with, found_file, note_added, report, tell_next
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, answer, say
from mcp_hub.cli.setup import config_option, fail, load_config, quiet_logs
from mcp_hub.cli.trials import MeasuredCosts, Trial, boxed, boxed_plan, measured, print_trial
from mcp_hub.config.findings import nearest, on_one_line
from mcp_hub.config.load.imported import ValuePlaces
from mcp_hub.config.load.interpolate import closed_keyring, escaped
from mcp_hub.config.load.load import load, usual_place
from mcp_hub.config.trust import own_folders
from mcp_hub.errors import ConfigError
from mcp_hub.files import HISTORY_FILE
from mcp_hub.masking import hide
from mcp_hub.onboarding.clients.model import Client, Where
from mcp_hub.onboarding.clients.reading import clients_of, is_present
from mcp_hub.onboarding.clients.table import CLIENTS, find_client
from mcp_hub.onboarding.imports.found import FoundServers, of_clients, of_file
from mcp_hub.onboarding.imports.plan import ImportPlan, planned
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets, may_open_dialog
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile
from mcp_hub.types import JsonObject

_TIME: JsonObject = {"command": "uvx", "args": ["mcp-server-time"]}
_FILES: tuple[str, ...] = ("-y", "@modelcontextprotocol/server-filesystem")


@click.command("import")
@click.argument("sources", metavar="[CLIENT | FILE]...", nargs=-1, shell_complete=completion.sources)
@click.option("--all", "every", is_flag=True, help="Import from every client that is found on this machine.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported, and write nothing.")
@click.option("--keyring", is_flag=True, help="Keep secrets in the system's keyring, not in files.")
@click.option(
    "--count/--no-count", "counts", default=None,
    help="Start the imported servers once, to measure what their tools cost. Default: ask; with --yes, do it.",
)  # fmt: skip
@click.option(
    "--variable", "agreed", metavar="NAME", multiple=True,
    help="A variable of this shell that servers may get: of a project's file, or by pass_env. Repeatable.",
)  # fmt: skip
@click.option(
    "--sandbox/--no-sandbox", "is_boxed", default=None,
    help="Put local servers that start in a sandbox into one, or none of them. Default: ask; with --yes, do it.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@config_option
def import_servers(
    sources: tuple[str, ...],
    every: bool,
    dry_run: bool,
    keyring: bool,
    counts: bool | None,
    agreed: tuple[str, ...],
    is_boxed: bool | None,
    as_json: bool,
    yes: bool,
    config: str | None,
) -> None:
    """Import the servers of other clients into the configuration.

    CLIENT is a client's name, such as cursor. FILE is a file with servers, such as .mcp.json of a project. Shows every
    server first, merges duplicates, and keeps secrets out of the configuration. Changes no file of a client. `mcp-hub
    install --undo` takes the import back.
    """
    if every == bool(sources):
        raise click.UsageError("Name clients or files, or give --all. To only look: mcp-hub import --all --dry-run")
    file = found_file(config)
    plan, inputs = plan_of(sources, file, keyring=keyring, asks=not (yes or dry_run))
    if not as_json:
        print_plan(plan, is_dry=dry_run)
    is_strange = print_alerts(plan, os.environ)
    costs, trial = None, Trial()
    plan = with_agreed_paths(plan, yes=yes, asks=True) if not dry_run and (yes or is_anybody_there()) else plan
    if is_written := bool(plan.taken) and not dry_run:
        plan = _agreed(plan, agreed, yes=yes)
        _confirm(plan, yes=yes, is_strange=is_strange)
        plan, trial = boxed_plan(inputs.settle(plan), is_boxed, asks=not yes)
        carry_out(plan, trial)
        costs = _costs(file, [server.name for server in plan.taken]) if _counts(counts, yes=yes) else None
    if as_json:
        tables.print_json(data_of(plan, trial, written=is_written, costs=costs))
    elif costs is not None:
        print_costs(costs)
    if is_written and not as_json:
        tell_next(file, are_imported=True)


def _confirm(plan: ImportPlan, *, yes: bool, is_strange: bool) -> None:
    question = f"Write {tables.plural(len(plan.taken), 'server')} to {plan.file.path}?"
    confirm(question, yes=yes, default=not is_strange)


def _counts(counts: bool | None, *, yes: bool) -> bool:
    return counts or counts is None and (yes or is_to_count())


def _agreed(plan: ImportPlan, agreed: Sequence[str], *, yes: bool) -> ImportPlan:
    """The plan with agreed variables; `yes` disables servers that get others."""
    plan = plan.passing(_passed(plan, agreed, yes=yes))
    if not yes:
        return plan
    unagreed = {
        server: [name for name in names if name not in agreed] for server, names in plan.requested(os.environ).items()
    }
    unagreed = {server: names for server, names in unagreed.items() if names}
    for server, names in unagreed.items():
        enable = shlex.join(("mcp-hub", "enable", server))
        text = (
            f"{server}: imported, but disabled, because it gets values of this machine and the file is not your own: "
            f"{', '.join(names)}. To give them to it: {enable} [variable_not_agreed]"
        )
        say(hide(on_one_line(text)), "red")
    return plan.disabling(unagreed)


def _passed(plan: ImportPlan, agreed: Sequence[str], *, yes: bool) -> dict[str, list[str]]:
    passed: dict[str, list[str]] = {}
    for server in plan.taken:
        names = server.proposed(os.environ)
        passed[server.name] = [name for name in names if name in agreed]
        unagreed = [name for name in names if name not in agreed]
        message = f"Pass {', '.join(unagreed)} of this shell to {server.name}, which may need it (pass_env)?"
        if unagreed and not yes and sys.stdin.isatty() and agrees(message, default=False):
            passed[server.name] = names
    return passed


def plan_of(
    sources: Sequence[str], file: ServersFile, *, keyring: bool = False, asks: bool
) -> tuple[ImportPlan, AskedInputs]:
    """The plan for these sources, or all clients, and its inputs. Exits with 2.

    Without `asks`, skips keyrings that could open a dialog.
    """
    where = Where.here(os.environ)
    if not asks and may_open_dialog():
        click.get_current_context().with_resource(closed_keyring())
    try:
        secrets = KeptSecrets(file.folder, keyring=keyring, asks=asks)
        inputs = AskedInputs(secrets, asks=asks)
        places = ValuePlaces(inputs.ask, secrets.keep)
        servers = _servers_of(sources, where, places)
        return planned(servers, file, secrets, KeptSecrets(file.folder, keyring=keyring, asks=asks)), inputs
    except ConfigError as error:
        end_with(error)


def carry_out(plan: ImportPlan, trial: Trial) -> None:
    """Writes the plan and reports. Exits with 2."""
    try:
        plan.carry_out(os.environ)
    except ConfigError as error:
        end_with(error)
    report(plan.file, f"Imported {tables.plural(len(plan.taken), 'server')}")
    say("To take this back: mcp-hub install --undo")
    print_trial(trial, plan.file)
    tables.print_warnings(plan.file.unresolved([server.name for server in plan.taken]))


def print_costs_of(file: ServersFile, names: Sequence[str]) -> None:
    if (costs := _costs(file, names)) is not None:
        print_costs(costs)


def _costs(file: ServersFile, names: Sequence[str]) -> MeasuredCosts | None:
    quiet_logs(0)
    try:
        loaded = load(file.path, os.environ, partly=True, lenient=True)
    except ConfigError as error:
        say(f"The costs were not measured: {error}")
        return None
    return measured(loaded, names)


def is_to_count() -> bool:
    """Whether the person lets new servers start once."""
    message = "Start these servers once, to see which work and what their tools cost in tokens?"
    return sys.stdin.isatty() and agrees(message, default=True)


def _servers_of(sources: Sequence[str], where: Where, places: ValuePlaces) -> FoundServers:
    if not sources:
        tell_no_windows(where)
        return of_clients([candidate for candidate in clients_of(where) if is_present(candidate, where)], where, places)
    merged = FoundServers()
    for source in sources:
        client = _client(source)
        servers = of_file(Path(source), where, places) if client is None else of_clients([client], where, places)
        merged.add(servers)
        if not servers.files:
            say(f"{source}: nothing is found")
    return merged


def _client(source: str) -> Client | None:
    """The client of this name, None for a file. Exits with 2."""
    if (client := find_client(source)) is not None:
        return client
    if os.path.exists(source) or "/" in source or "\\" in source or "." in source:
        return None
    fail("unknown_client", f'"{source}" is neither a client nor a file{nearest(source, CLIENTS) or "."}')


@click.command()
@click.option(
    "--yes", "-y", is_flag=True, help="Do not ask: import the servers of the clients; without any, add a clock."
)
@click.option(
    "--count/--no-count", "counts", default=None,
    help="Start the new servers once, to see which work and what their tools cost. Default: ask; with --yes, do not.",
)  # fmt: skip
@click.option(
    "--sandbox/--no-sandbox", "is_boxed", default=None,
    help="Put local servers that start in a sandbox into one, or none of them. Default: ask; with --yes, do it.",
)  # fmt: skip
@config_option
def init(yes: bool, counts: bool | None, is_boxed: bool | None, config: str | None) -> None:
    """Create a first configuration.

    Imports the servers of the clients on this machine. If they have none, asks three questions. The file is that of
    --config or $MCP_HUB_CONFIG, else servers.yaml in the user's configuration folder; it must not exist yet.
    """
    named = config or os.environ.get("MCP_HUB_CONFIG")
    file = ServersFile(Path(named).expanduser() if named else usual_place(), os.environ)
    if file.exists:
        fail("output_exists", f"{file.path} exists already. Change it with mcp-hub add, import or edit.")
    if not yes and not is_anybody_there():
        fail("no_terminal", "The command cannot ask: stdin is not a terminal. Add --yes.")
    plan, inputs = plan_of((), file, asks=not yes)
    if plan.taken:
        print_plan(plan)
        print_alerts(plan, os.environ)
        plan = with_agreed_paths(plan, yes=yes, asks=not yes)
        confirm(f"Import {tables.plural(len(plan.taken), 'server')}?", yes=yes)
        plan, outcome = boxed_plan(inputs.settle(plan), is_boxed, asks=not yes)
        carry_out(plan, outcome)
        names = [server.name for server in plan.taken]
    else:
        say("The clients on this machine have no servers that could be imported.")
        names = _added(file, {"time": _TIME} if yes else _chosen(file), is_boxed, asks=not yes)
    if counts or counts is None and not yes and is_to_count():
        print_costs_of(file, names)
    history = own_folders(load_config(str(file.path), partly=True).settings, os.environ)[-1] / HISTORY_FILE
    say(f"The hub keeps each call with its arguments for 7 days, for your eyes only, in {history}")
    say("(mcp-hub history shows them, hub.history: off keeps none).")
    tell_next(file, are_imported=bool(plan.taken))


def _added(file: ServersFile, servers: Mapping[str, JsonObject], is_boxed: bool | None, *, asks: bool) -> list[str]:
    if not servers:
        say("Nothing is changed. To add a server: mcp-hub add NAME -- COMMAND")
        raise SystemExit(1)
    outcome = boxed(file, servers, dict, is_boxed, asks=asks)
    try:
        file.change([Put(name, entry) for name, entry in outcome.servers.items()])
    except ConfigError as error:
        end_with(error)
    report(file, f"Added {', '.join(servers)}")
    note_added(file, [*servers])
    print_trial(outcome, file)
    return list(servers)


def _chosen(file: ServersFile) -> dict[str, JsonObject]:
    """The servers of three answers; asks again after a wrong one."""
    servers: dict[str, JsonObject] = {}
    if agrees("Add a clock with time zones (mcp-server-time)?", default=True):
        servers["time"] = _TIME
    while text := _text("A folder whose files tools may read and write (empty: none)"):
        path = os.path.abspath(os.path.expanduser(text))
        if not os.path.isdir(path):
            say(f"{path} is not a folder.")
            continue
        servers["files"] = {"command": "npx", "args": [*_FILES, escaped(path)]}
        break
    while url := _text("The URL of a remote MCP server (empty: none)"):
        try:
            name = (urlsplit(url).hostname or "remote").removeprefix("www.").partition(".")[0]
            name = f"{name}-remote" if name in servers else name
            file.changed_text([Put(name, {"url": url})])
        except ConfigError as error:
            say("; ".join(f"{url}: {finding.message} [{finding.code}]" for finding in error.findings))
        except ValueError:
            say(f"{url} is not a URL.")
        else:
            servers[name] = {"url": url}
            break
    return servers


def _text(question: str) -> str:
    text = answer(question, "").strip()
    return "" if text.casefold() in ("n", "no", "none") else text

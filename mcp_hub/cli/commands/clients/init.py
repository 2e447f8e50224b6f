"""`mcp-hub init`."""

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import click

from mcp_hub.app.limits import own_folders
from mcp_hub.cli.commands.clients.import_dialog import is_anybody_there, print_alerts, print_plan, with_agreed_paths
from mcp_hub.cli.commands.clients.import_servers import carry_out, is_to_count, plan_of, print_costs_of
from mcp_hub.cli.commands.servers.changed import confirm, end_with, note_added, report, tell_next
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, answer, say
from mcp_hub.cli.setup import config_option, fail, load_config
from mcp_hub.cli.trials import boxed, boxed_plan, print_boxed
from mcp_hub.config.load.interpolate import escaped
from mcp_hub.config.load.load import usual_place
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.servers_file.servers_file import PutServer, ServersFile
from mcp_hub.stores.history.file import FILE as HISTORY
from mcp_hub.types import JsonObject

_TIME: JsonObject = {"command": "uvx", "args": ["mcp-server-time"]}
_FILES: tuple[str, ...] = ("-y", "@modelcontextprotocol/server-filesystem")


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
    history = own_folders(load_config(str(file.path), partly=True).settings, os.environ)[-1] / HISTORY
    say(f"The hub keeps each call with its arguments for 7 days, for your eyes only, in {history}")
    say("(mcp-hub history shows them, hub.history: off keeps none).")
    tell_next(file, are_imported=bool(plan.taken))


def _added(file: ServersFile, servers: Mapping[str, JsonObject], is_boxed: bool | None, *, asks: bool) -> list[str]:
    if not servers:
        say("Nothing is changed. To add a server: mcp-hub add NAME -- COMMAND")
        raise SystemExit(1)
    outcome = boxed(file, servers, dict, is_boxed, asks=asks)
    try:
        file.change([PutServer(name, entry) for name, entry in outcome.servers.items()])
    except ConfigError as error:
        end_with(error)
    report(file, f"Added {', '.join(servers)}")
    note_added(file, [*servers])
    print_boxed(outcome)
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
            file.changed_text([PutServer(name, {"url": url})])
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

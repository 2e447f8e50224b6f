"""`mcp-hub init`: a first configuration, of the servers that other clients have, or of three answers."""

import os
from pathlib import Path
from urllib.parse import urlsplit

import click

from mcp_hub.cli.commands.servers.changed import end_with, report, tell_next
from mcp_hub.cli.commands.servers.import_servers import carry_out, plan_of
from mcp_hub.cli.imports.asked_inputs import is_anybody_there
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.imports import print_alerts, print_plan
from mcp_hub.cli.render.output import agrees, answer, say
from mcp_hub.cli.servers_file.servers_file import PutServer, ServersFile
from mcp_hub.cli.setup import config_option, fail
from mcp_hub.config.load.load import usual_place
from mcp_hub.errors import ConfigError
from mcp_hub.types import JsonObject

_TIME: JsonObject = {"command": "uvx", "args": ["mcp-server-time"]}
_FILES: tuple[str, ...] = ("-y", "@modelcontextprotocol/server-filesystem")


@click.command()
@click.option(
    "--yes", "-y", is_flag=True, help="Do not ask: import the servers of the clients; without any, add a clock."
)
@config_option
def init(yes: bool, config: str | None) -> None:
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
    plan = plan_of((), file)
    if plan.taken:
        print_plan(plan)
        print_alerts(plan, os.environ)
        if yes or agrees(f"Import {tables.plural(len(plan.taken), 'server')}?", default=True):
            carry_out(plan)
            tell_next(file, are_imported=True)
            return
    else:
        say("The clients on this machine have no servers that could be imported.")
    servers = {"time": _TIME} if yes else _asked()
    try:
        file.change([PutServer(name, own) for name, own in servers.items()])
    except ConfigError as error:
        end_with(error)
    report(file, f"Added {', '.join(servers)}")
    tell_next(file, are_imported=False)


def _asked() -> dict[str, JsonObject]:
    """The servers of three answers; a clock if there is none."""
    servers: dict[str, JsonObject] = {}
    if agrees("Add a clock with time zones (mcp-server-time)?", default=True):
        servers["time"] = _TIME
    folder = answer("A folder whose files tools may read and write (empty: none)", "")
    if folder.strip():
        path = os.path.abspath(os.path.expanduser(folder.strip()))
        servers["files"] = {"command": "npx", "args": [*_FILES, path.replace("${", "$${")]}
    url = answer("The URL of a remote MCP server (empty: none)", "").strip()
    if url:
        servers[(urlsplit(url).hostname or "remote").removeprefix("www.").partition(".")[0]] = {"url": url}
    return servers or {"time": _TIME}

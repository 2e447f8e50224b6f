"""`mcp-hub add`: one more server in the configuration, from a command, a URL, or the `server.json` of a registry."""

import os
import re
from collections.abc import Sequence
from typing import Final

import click

from mcp_hub.cli.commands.servers.changed import confirm, end_with, found_file, report
from mcp_hub.cli.registry.fetch import read_server_json
from mcp_hub.cli.registry.server_json import entry_of, parse_server_json
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.servers import described
from mcp_hub.cli.render.tables import print_warnings
from mcp_hub.cli.servers_file.kept_secrets import KeptSecrets, secrets_written, without_secrets
from mcp_hub.cli.servers_file.servers_file import PutServer, ServersFile
from mcp_hub.cli.setup import config_option
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide, learn
from mcp_hub.types import JsonObject

_DASHES: Final = "mcp_hub.dashes"


class _CommandLine(click.Command):
    """Notes whether there is a `--`: without it, options of the server's command would be taken for ours."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[_DASHES] = "--" in args
        return super().parse_args(ctx, args)


@click.command(cls=_CommandLine)
@click.argument("words", metavar="NAME [URL | -- COMMAND...]", nargs=-1, required=True)
@click.option("--env", "env", metavar="NAME=VALUE", multiple=True, help="A variable for the process. Repeatable.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header for the URL. Repeatable.")
@click.option("--cwd", metavar="FOLDER", help="Working directory of the process.")
@click.option("--set", "values", metavar="NAME=VALUE", multiple=True, help="A value that a server.json asks for.")
@click.option("--name", metavar="NAME", help="The server's name, for a server.json.")
@click.option("--remote", is_flag=True, help="Prefer the URL of a server.json to its package.")
@click.option("--replace", is_flag=True, help="Replace a server of the same name.")
@click.option("--keyring", is_flag=True, help="Keep secrets in the system's keyring, not in files.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before the command of a server.json is written.")
@config_option
def add(
    words: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    cwd: str | None,
    values: tuple[str, ...],
    name: str | None,
    remote: bool,
    replace: bool,
    keyring: bool,
    yes: bool,
    config: str | None,
) -> None:
    """Add a server to the configuration.

    \b
    mcp-hub add time -- uvx mcp-server-time
    mcp-hub add team https://mcp.example.com/mcp --header 'X-Key=${TEAM_KEY}'
    mcp-hub add server.json            a file or URL of a registry's server.json
    mcp-hub add io.example/weather     a name in the registry at hub.registry

    A secret in an option or argument is kept in a file of its own, which only you can read, and is not shown. Better
    write ${VAR}, in single quotes. A running hub starts the server at once.
    """
    file = found_file(config)
    given = {**_pairs("--env", env), **_pairs("--header", headers), **_pairs("--set", values)}
    if len(words) == 1:
        own, usual = _from_registry(words[0], given, file, remote)
        chosen = name or usual
        learn(secrets_written(own))
        say(hide(f"{chosen}: {described(own)}"))
        confirm("Add this server?", yes=yes)
    else:
        if name is not None or values or remote:
            raise click.UsageError("--name, --set and --remote belong to a server.json.")
        chosen, own = words[0], _from_words(words[1:], _pairs("--env", env), _pairs("--header", headers), cwd)
    _write(file, chosen, own, replaces=replace, keyring=keyring)


def _from_registry(source: str, given: dict[str, str], file: ServersFile, is_remote: bool) -> tuple[JsonObject, str]:
    try:
        detail = parse_server_json(read_server_json(source, file.registry), source)
        return entry_of(detail, given, is_remote=is_remote), detail.short_name
    except ConfigError as error:
        end_with(error)


def _from_words(words: Sequence[str], env: dict[str, str], headers: dict[str, str], cwd: str | None) -> JsonObject:
    if len(words) == 1 and re.match(r"https?://", words[0]):
        if env or cwd:
            raise click.UsageError("--env and --cwd belong to a command. A URL takes --header.")
        return {"url": words[0], **({"headers": headers} if headers else {})}
    if not click.get_current_context().meta[_DASHES]:
        raise click.UsageError("Write -- before the command: mcp-hub add NAME -- COMMAND…")
    if headers:
        raise click.UsageError("--header belongs to a URL. A command takes --env.")
    own: JsonObject = {"command": words[0]}
    if words[1:]:
        own["args"] = list(words[1:])
    if env:
        own["env"] = env
    return own if cwd is None else {**own, "cwd": os.path.abspath(os.path.expanduser(cwd))}


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:  # not shown: it may be a secret
            raise click.UsageError(f"{option}: write it as NAME=VALUE.")
        pairs[name] = value
    return pairs


def _write(file: ServersFile, name: str, own: JsonObject, *, replaces: bool, keyring: bool) -> None:
    learn(secrets_written(own))
    try:
        secrets = KeptSecrets(file.folder, keyring=keyring)
        kept = without_secrets(name, own, secrets.keep)
        change = PutServer(name, kept, replaces)
        file.changed_text([change])  # refuses what cannot be written, before a secret is
        secrets.store(os.environ)
        file.change([change])
    except ConfigError as error:
        end_with(error)
    report(file, f"Added {name}: {described(kept)}")
    print_warnings(file.unresolved([name]))

"""`mcp-hub add`: a command, a URL, or a `server.json` from a file, a URL or the registry."""

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click
import httpx2

from mcp_hub import __version__
from mcp_hub.addresses import refused_place
from mcp_hub.cli.commands.servers.edit import confirm, end_with, found_file, note_added, report
from mcp_hub.cli.render.output import say
from mcp_hub.cli.render.servers import described
from mcp_hub.cli.render.tables import print_warnings
from mcp_hub.cli.setup import config_option, fail
from mcp_hub.cli.trials import Trial, boxed, in_sandbox, is_local, print_trial, why_unsupported
from mcp_hub.clock import SystemClock
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.interpolate import Unresolved
from mcp_hub.config.load.secrets import is_secret
from mcp_hub.config.load.texts import read_bytes
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.masking import MASK, hide_head, learn
from mcp_hub.onboarding.registry.dangers import dangers_of
from mcp_hub.onboarding.registry.server_json import (
    ServerDetail,
    command_of,
    entry_of,
    parse_server_json,
    variables_asked,
)
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets, secrets_written, without_secrets
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile
from mcp_hub.types import JsonObject

_SECONDS: Final = 20.0
_SERVER: Final = "/v0.1/servers/{}/versions/latest"
"""The path of a server in the API of the MCP registry."""
_DASHES: Final = "mcp_hub.dashes"


def read_server_json(source: str, registry: Callable[[], str | None]) -> bytes:
    """The document; `registry` returns the registry's URL. Raises `ConfigError`."""
    if re.match(r"https?://", source):
        return _fetched(source)
    path = Path(source).expanduser()
    if path.suffix == ".json" or os.path.isfile(path):
        return read_bytes(path, LARGEST_OWN)[0]
    url = registry()
    if url is None:
        message = f"{source!r} is neither a file nor a URL. Name a command: mcp-hub add {source} -- COMMAND… "
        message += "To look up names in a registry, set hub.registry to its URL."
        raise ConfigError(ConfigFinding("no_registry", message))
    return _fetched(url.rstrip("/") + _SERVER.format(quote(source, safe="")))


def _fetched(url: str) -> bytes:
    if (problem := refused_place(url, is_near=True)) is not None:  # http:// to this machine only
        raise ConfigError(ConfigFinding("invalid_url", f"cannot be used: {problem}", hide_head(url, 200)))
    headers = {"accept": "application/json", "user-agent": f"mcp-hub/{__version__}", "accept-encoding": "identity"}
    content = bytearray()
    is_whole = False
    try:
        with httpx2.stream("GET", url, headers=headers, timeout=_SECONDS, follow_redirects=False) as answer:
            if answer.status_code != 200:
                message = f"answered with {answer.status_code}. Check the URL or the name."
                raise ConfigError(ConfigFinding("fetch_failed", message, url))
            started = SystemClock.now()
            for part in answer.iter_raw():  # not decoded: a few bytes can become gigabytes
                content += part
                if len(content) > LARGEST_OWN or SystemClock.now() - started > _SECONDS:
                    break
            else:
                is_whole = True
    except (httpx2.HTTPError, OSError) as problem:
        message = f"cannot be fetched: {type(problem).__name__}. Check the URL and the network."
        raise ConfigError(ConfigFinding("fetch_failed", message, url)) from None
    if len(content) > LARGEST_OWN:
        raise ConfigError(ConfigFinding("config_too_large", f"larger than {LARGEST_OWN} bytes", url))
    if not is_whole:
        message = f"does not arrive within {_SECONDS:g} s. Check the URL and the network."
        raise ConfigError(ConfigFinding("fetch_failed", message, url))
    return bytes(content)


class _CommandLine(click.Command):
    """Notes a missing `--`: options of the server's command would be read as ours."""

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
@click.option(
    "--allow-any-command", "is_any_allowed", is_flag=True,
    help="Take a server.json whose command can run more than a package of a registry.",
)  # fmt: skip
@click.option(
    "--sandbox/--no-sandbox", "is_boxed", default=None,
    help="Write sandbox: on, or off. Default: on, if the server starts in a sandbox.",
)  # fmt: skip
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
    is_any_allowed: bool,
    is_boxed: bool | None,
    config: str | None,
) -> None:
    """Add a server to the configuration.

    \b
    mcp-hub add time -- uvx mcp-server-time
    mcp-hub add team https://mcp.example.com/mcp --header 'X-Key=${TEAM_KEY}'
    mcp-hub add server.json            a file or URL of a registry's server.json
    mcp-hub add io.example/weather     a name in the registry at hub.registry

    A secret in an option or argument is kept in a file of its own, which only you can read, and is not shown. Better
    write ${VAR}, in single quotes. A local server that starts in a sandbox gets one. A running hub starts the server.
    """
    file = found_file(config)
    secrets = _kept_secrets(file, keyring)
    pairs = {**_pairs("--env", env), **_pairs("--header", headers), **_pairs("--set", values)}
    if len(words) == 1:
        detail = _document(words[0], file)
        chosen = name or detail.short_name
        _confirm(chosen, detail, pairs, remote, is_any_allowed, yes)
        entry = _entry(chosen, detail, pairs, secrets, is_remote=remote)
    else:
        if name is not None or values or remote or is_any_allowed:
            raise click.UsageError("--name, --set, --remote and --allow-any-command belong to a server.json.")
        chosen, entry = words[0], _from_words(words[1:], _pairs("--env", env), _pairs("--header", headers), cwd)
    _write(file, chosen, entry, secrets, replaces=replace, is_boxed=is_boxed)


def _kept_secrets(file: ServersFile, keyring: bool) -> KeptSecrets:
    try:
        return KeptSecrets(file.folder, keyring=keyring)
    except ConfigError as error:
        end_with(error)


def _document(source: str, file: ServersFile) -> ServerDetail:
    try:
        return parse_server_json(read_server_json(source, file.registry), source)
    except ConfigError as error:
        end_with(error)


def _entry(
    name: str, detail: ServerDetail, pairs: dict[str, str], secrets: KeptSecrets, *, is_remote: bool
) -> JsonObject:
    declared = {label for label in detail.secret_names & pairs.keys() if "${" not in pairs[label]}
    references = {label: secrets.keep(name, label, pairs[label]) for label in declared}
    return entry_of(detail, {**pairs, **references}, is_remote=is_remote)


def _confirm(
    name: str, detail: ServerDetail, pairs: dict[str, str], is_remote: bool, is_any_allowed: bool, yes: bool
) -> None:
    declared = {label for label in detail.secret_names & pairs.keys() if "${" not in pairs[label]}
    secret = {label for label, value in pairs.items() if label in declared or is_secret(label, value)}
    learn(pairs[label] for label in secret)
    masked = {label: MASK if label in secret else value for label, value in pairs.items()}
    try:
        entry = entry_of(detail, pairs, is_remote=is_remote)
        # only what the person gave is masked: whatever the document says is to be read
        shown_entry = entry_of(detail, masked, is_remote=is_remote)
        command = command_of(detail, pairs, is_remote=is_remote)
        variables = [variable for variable in variables_asked(entry, pairs) if variable in os.environ]
    except Unresolved as problem:
        end_with(ConfigError(ConfigFinding(problem.code, str(problem))))
    except ConfigError as error:
        end_with(error)
    dangers = [] if command is None else dangers_of(command, pairs)
    say("A registry document can run any code with your rights. Add it only if you trust where it comes from.")
    say(on_one_line(f"{name}: {described(shown_entry)}"), "red" if dangers else None)
    for danger in dangers:
        say(on_one_line(f"  {danger}"), "red")
    if variables:
        say(f"  It gets the values of your variables: {', '.join(variables)}", "red")
    if dangers and not is_any_allowed:
        fail("any_command", "This command can run more than a package of a registry. See above; if you trust it, "
             "add --allow-any-command.")  # fmt: skip
    if variables and yes:
        agreed = " ".join(f"--set '{variable}=${{{variable}}}'" for variable in variables)
        fail("variable_not_agreed", f"The document asks for variables that are set here. To give them: {agreed}")
    confirm("Add this server?", yes=yes, default=not (dangers or variables))


def _from_words(words: Sequence[str], env: dict[str, str], headers: dict[str, str], cwd: str | None) -> JsonObject:
    if len(words) == 1 and re.match(r"https?://", words[0]):
        if env or cwd:
            raise click.UsageError("--env and --cwd belong to a command. A URL takes --header.")
        return {"url": words[0], **({"headers": headers} if headers else {})}
    if not click.get_current_context().meta[_DASHES]:
        raise click.UsageError("Write -- before the command: mcp-hub add NAME -- COMMAND…")
    if headers:
        raise click.UsageError("--header belongs to a URL. A command takes --env.")
    entry: JsonObject = {"command": words[0]}
    if words[1:]:
        entry["args"] = list(words[1:])
    if env:
        entry["env"] = env
    return entry if cwd is None else {**entry, "cwd": os.path.abspath(os.path.expanduser(cwd))}


def _pairs(option: str, texts: Sequence[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:  # not shown: it may be a secret
            raise click.UsageError(f"{option}: write it as NAME=VALUE.")
        pairs[name] = value
    return pairs


def _write(
    file: ServersFile, name: str, entry: JsonObject, secrets: KeptSecrets, *, replaces: bool, is_boxed: bool | None
) -> None:
    if is_boxed is not None and not is_local(entry):
        raise click.UsageError("--sandbox and --no-sandbox belong to a command: a URL has no process here.")
    learn(secrets_written(entry))
    try:
        safe_entry = without_secrets(name, entry, secrets.keep)
        file.changed_text([Put(name, safe_entry, replaces=replaces)])  # refuses what cannot be written, before a start
        outcome = _boxed(file, name, safe_entry, secrets, is_boxed)
        secrets.store(os.environ)
        file.change([Put(name, outcome.servers[name], replaces=replaces)])
    except ConfigError as error:
        end_with(error)
    report(file, f"Added {name}: {described(safe_entry)}")
    note_added(file, [name])
    print_trial(outcome, file)
    print_warnings(file.unresolved([name]))


def _boxed(file: ServersFile, name: str, entry: JsonObject, secrets: KeptSecrets, is_boxed: bool | None) -> Trial:
    if not is_boxed:
        return boxed(file, {name: entry}, secrets.filled, is_boxed, asks=False)
    reason = why_unsupported()
    notes = () if reason is None else (f"{name} will not start on this system, which has no sandbox: {reason}",)
    return Trial(servers={name: in_sandbox(entry)}, notes=notes)

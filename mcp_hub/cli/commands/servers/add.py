"""`mcp-hub add`: a command, a URL, a domain, or a `server.json` from a file, a URL or the registry. `mcp-hub registry`:
searches the registry.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import click
import msgspec

from mcp_hub.cli.commands.servers.edit import confirm, end_with, found_file, note_added, report
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import answer, say
from mcp_hub.cli.render.servers import described
from mcp_hub.cli.render.tables import print_warnings
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail
from mcp_hub.cli.trials import Trial, boxed, in_sandbox, is_local, print_trial, why_unsupported
from mcp_hub.config.findings import nearest, on_one_line, quoted
from mcp_hub.config.load.interpolate import Unresolved
from mcp_hub.config.load.secrets import is_secret
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.masking import MASK, hide_head, learn
from mcp_hub.onboarding.registry.dangers import dangers_of
from mcp_hub.onboarding.registry.documents import document_at, refused_remote, search
from mcp_hub.onboarding.registry.server_json import (
    ServerDetail,
    command_of,
    entry_of,
    inputs_of,
    variable_of,
    variables_asked,
)
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets, secrets_written, without_secrets
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile
from mcp_hub.types import JsonObject

_LONGEST_TEXT: Final = 200
"""Characters of a text of the registry."""


@click.group()
def registry() -> None:
    """Search the registry at hub.registry."""


@registry.command("search")
@click.argument("words", nargs=-1, required=True, metavar="WORD...")
@click.option(
    "--limit", type=click.IntRange(1, 100), default=20, show_default=True, metavar="N",
    help="Maximum number of servers.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@config_option
def search_command(words: Sequence[str], limit: int, as_json: bool, config: str | None) -> None:
    """Search the registry for servers whose name has WORD.

    `mcp-hub add NAME` adds one of them. Exit code 1 if there is none.
    """
    try:
        base = found_file(config).registry()
        if base is None:
            fail("no_registry", "There is no registry to search. Set hub.registry to the URL of one.")
        details = search(base, " ".join(words), limit)
    except ConfigError as error:
        end_with(error)
    if as_json:
        tables.print_json({"registry": base, "servers": [_data(detail) for detail in details]})
    elif details:
        _print(details)
    else:
        say("The registry has no such server.")
    if not details:
        raise SystemExit(EXIT_TOOL)


def _print(details: Sequence[ServerDetail]) -> None:
    content = tables.table("name", "version", "as", "description", whole=("version",))
    for detail in details:
        note = f"{detail.status}: " if detail.status == "deprecated" else ""
        cells = (detail.name, detail.version or "", ", ".join(detail.kinds), f"{note}{detail.description or ''}")
        content.add_row(*(tables.short_cell(hide_head(text, _LONGEST_TEXT, "…")) for text in cells))
    tables.print_table(content)
    say(f"Add one: mcp-hub add {hide_head(details[0].name, _LONGEST_TEXT, '…')}")


def _data(detail: ServerDetail) -> JsonObject:
    return {
        "name": detail.name,
        "title": detail.title,
        "version": detail.version,
        "description": detail.description,
        "kinds": detail.kinds,
        "status": detail.status,
        "website": detail.website_url,
    }


_DASHES: Final = "mcp_hub.dashes"
_OF_COMMAND: Final = "A registry document can run any code with your rights."
_OF_REMOTE: Final = "This server sees what is sent to it, and its texts reach your model."
_LONGEST: Final = 300
"""Characters of a text that a document has about itself."""


class _Document(msgspec.Struct, frozen=True):
    """A document, its place, and whether its URL is preferred to its package."""

    detail: ServerDetail
    origin: str
    is_remote: bool

    def entry(self, values: Mapping[str, str]) -> JsonObject:
        """The entry of `servers.yaml`. Raises `ConfigError`, `Unresolved`."""
        return entry_of(self.detail, values, is_remote=self.is_remote)

    def declared(self, pairs: Mapping[str, str]) -> set[str]:
        """The names of values that it declares secret."""
        return {label for label in self.detail.secret_names & pairs.keys() if "${" not in pairs[label]}


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
@click.option("--name", metavar="NAME", help="The server's name, for a server.json or a domain.")
@click.option("--entry", "listed", metavar="NAME", help="Of a domain with several servers, the one to add.")
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
    help="Write sandbox: on, or off. Default: on, unless the sandbox keeps the server from starting.",
)  # fmt: skip
@config_option
def add(
    words: tuple[str, ...],
    env: tuple[str, ...],
    headers: tuple[str, ...],
    cwd: str | None,
    values: tuple[str, ...],
    name: str | None,
    listed: str | None,
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
    mcp-hub add example.com            a domain, by its AI catalog and server cards
    mcp-hub add server.json            a file or URL of a registry's server.json, or of a server card
    mcp-hub add io.example/weather     a name in the registry at hub.registry

    A secret in an option or argument is kept in a file of its own, which only you can read, and is not shown. Better
    write ${VAR}, in single quotes. A local server gets a sandbox if it can. A running hub starts the server.
    """
    file = found_file(config)
    secrets = _kept_secrets(file, keyring)
    pairs = {**_pairs("--env", env), **_pairs("--header", headers), **_pairs("--set", values)}
    if len(words) == 1:
        document = _read(words[0], file, listed, is_remote=remote)
        chosen = name or document.detail.short_name
        entry = _from_document(chosen, document, pairs, secrets, is_any_allowed=is_any_allowed, yes=yes)
    else:
        if name is not None or listed is not None or values or remote or is_any_allowed:
            raise click.UsageError("--name, --entry, --set, --remote and --allow-any-command belong to a server.json.")
        chosen, entry = words[0], _from_words(words[1:], _pairs("--env", env), _pairs("--header", headers), cwd)
    _write(file, chosen, entry, secrets, replaces=replace, is_boxed=is_boxed)


def _kept_secrets(file: ServersFile, keyring: bool) -> KeptSecrets:
    try:
        return KeptSecrets(file.folder, keyring=keyring)
    except ConfigError as error:
        end_with(error)


def _read(source: str, file: ServersFile, listed: str | None, *, is_remote: bool) -> _Document:
    try:
        detail, origin = document_at(source, file.registry, partial(_choose, listed))
    except ConfigError as error:
        end_with(error)
    return _Document(detail, origin, is_remote)


def _from_document(
    name: str, document: _Document, pairs: dict[str, str], secrets: KeptSecrets, *, is_any_allowed: bool, yes: bool
) -> JsonObject:
    """The entry, once a person agrees. Exits otherwise."""
    _print_about(document)
    pairs = {**pairs, **_answers(name, document, pairs, is_secret=False, yes=yes)}
    _confirm(name, document, pairs, is_any_allowed=is_any_allowed, yes=yes)
    pairs |= _answers(name, document, pairs, is_secret=True, yes=yes)
    references = {label: secrets.keep(name, label, pairs[label]) for label in document.declared(pairs)}
    return document.entry({**pairs, **references})


def _choose(listed: str | None, servers: Mapping[str, str | JsonObject], url: str) -> str:
    """The name of a server in a catalog: the only one, `listed`, or what a person answers."""
    if not servers:
        raise ConfigError(ConfigFinding("unsupported_package", "lists no MCP server with a card", url))
    if listed is None and len(servers) == 1:
        return next(iter(servers))
    if listed is None:
        say(f"{url} lists {len(servers)} servers:")
        for name, card in servers.items():
            say(on_one_line(f"  {name}  {hide_head(card, _LONGEST, '…') if isinstance(card, str) else ''}".rstrip()))
        if not sys.stdin.isatty():
            fail("no_terminal", "The command cannot ask: stdin is not a terminal. Choose one with --entry NAME.")
        listed = answer("Which one", default=next(iter(servers)))
    if listed not in servers:
        message = f"lists no server {quoted(listed)}{nearest(listed, servers) or '.'}"
        raise ConfigError(ConfigFinding("unknown_server", message, url))
    return listed


def _print_about(document: _Document) -> None:
    """Prints what a document says of itself, escaped and on lines of its own."""
    detail = document.detail
    name = f"{detail.name} {detail.version or ''}".strip()
    lines = [name if detail.title in (None, "", detail.name) else f"{detail.title} ({name})"]
    lines += [text for text in (detail.description, detail.website_url) if text]
    for text in (*lines, f"from {document.origin}"):
        say(f"  {on_one_line(hide_head(text, _LONGEST, '…'))}")


def _answers(name: str, document: _Document, pairs: Mapping[str, str], *, is_secret: bool, yes: bool) -> dict[str, str]:
    """The values that a person types; none with `yes` or without a terminal."""
    if yes or not sys.stdin.isatty():
        return {}
    values: dict[str, str] = {}
    for item in inputs_of(document.detail, pairs, is_remote=document.is_remote):
        if item.password is is_secret and not {item.id, variable_of(item.id)} & os.environ.keys():
            text = on_one_line(hide_head(f"{item.id}: {item.description}" if item.description else item.id, _LONGEST))
            value = answer(f"{name} needs {text}. Value (Enter: set it later)", "", is_secret=is_secret)
            values |= {item.id: value} if value else {}
    return values


def _confirm(name: str, document: _Document, pairs: dict[str, str], *, is_any_allowed: bool, yes: bool) -> None:
    declared = document.declared(pairs)
    secret = {label for label, value in pairs.items() if label in declared or is_secret(label, value)}
    learn(pairs[label] for label in secret)
    masked = {label: MASK if label in secret else value for label, value in pairs.items()}
    try:
        entry = document.entry(pairs)
        # only what the person gave is masked: whatever the document says is to be read
        shown_entry = document.entry(masked)
        command = command_of(document.detail, pairs, is_remote=document.is_remote)
        variables = [variable for variable in variables_asked(entry, pairs) if variable in os.environ]
    except Unresolved as problem:
        end_with(ConfigError(ConfigFinding(problem.code, str(problem))))
    except ConfigError as error:
        end_with(error)
    if (refused := refused_remote(entry.get("url"), document.origin)) is not None:
        advice = "If that is meant: mcp-hub add NAME URL"
        fail("invalid_url", on_one_line(f"the document names {shown_entry['url']}, but {refused}. {advice}"))
    dangers = [] if command is None else dangers_of(command, pairs)
    say(f"{_OF_REMOTE if command is None else _OF_COMMAND} Add it only if you trust where it comes from.")
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

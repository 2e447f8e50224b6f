"""`mcp-hub export`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import anyio
import click

from mcp_hub.cli import completion
from mcp_hub.cli.commands.clients.steps import running_refusal
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import EXIT_TOOL, config_option, fail, fail_with, load_config
from mcp_hub.config.findings import nearest
from mcp_hub.config.load.interpolate import Unresolved, expand_home, resolve
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.schema.servers import Lookup
from mcp_hub.config.trust import problem_of_secret, state_dir
from mcp_hub.edit import entries, yaml_text
from mcp_hub.edit.entries import held_at, read_data
from mcp_hub.edit.writing import CannotEdit
from mcp_hub.errors import ConfigError
from mcp_hub.masking import hide, learn, visible
from mcp_hub.onboarding.changes.acts import Acts, FileChange
from mcp_hub.onboarding.changes.written import ClientRecords
from mcp_hub.onboarding.clients.exported import exported
from mcp_hub.onboarding.clients.model import Layout, Where
from mcp_hub.onboarding.clients.reading import ClientFile, hub_files, layout_of
from mcp_hub.onboarding.clients.table import CLIENTS, find_client
from mcp_hub.onboarding.files import FileRefused, content_of, target_of
from mcp_hub.onboarding.servers_file.servers_file import ServersFile
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.process.lookups import commands_of, outputs_once

_WRITTEN: Final = [client.name for client in CLIENTS.values() if client.is_written]


@click.command()
@click.argument("client", metavar="CLIENT", required=False, shell_complete=completion.applications)
@click.option("--write", "writes", is_flag=True, help="Put the servers into the client's file, beside those it has.")
@click.option("--all", "every", is_flag=True, help="With --write: all servers, not only those that came from CLIENT.")
@config_option
def export(client: str | None, writes: bool, every: bool, config: str | None) -> None:
    """Print the servers in the form of another client.

    With --write, servers that came from CLIENT go back into its file, with their names and the values of their secrets;
    `mcp-hub install --undo` takes that back. Then `mcp-hub uninstall` removes the hub. Secrets are masked in the
    output.
    """
    if client is None:
        fail("usage", f"Name a CLIENT: {', '.join(_WRITTEN)}.")
    file = _file_of(client)
    loaded = load_config(config, partly=True)  # its secrets are masked from here on
    try:
        source = ServersFile.find(config, os.environ)
        servers = source.servers()
        text = _text(file.path)
        layout = layout_of(None if text is None else read_data(text, file.path.name), file.place)
    except ConfigError as error:
        fail_with(error)
    names = {name: name for name in servers} if every or not writes else _origins(file, source)
    values: set[str] = set()
    secret = partial(_secret, source.folder, values, _outputs(loaded, names) if writes else {}) if writes else None
    exports = [
        exported(file.client, layout, names[name], _placed(server, source.folder), secret)
        for name, server in servers.items()
        if isinstance(server, dict) and name in names
    ]
    for item in exports:
        for note in item.notes:
            say(hide(f"{item.name}: {'' if item.entry is not None else 'not exported, '}{note}"))
    written = {item.name: item.entry for item in exports if item.entry is not None}
    if writes:
        if _write(file, layout, written) and values:
            _tell_readers(file.path)
    else:
        put(hide(_document(file.path.name, layout, written)))


def _origins(file: ClientFile, source: ServersFile) -> dict[str, str]:
    names = ClientRecords(state_dir(os.environ)).names(file.client.name, os.path.abspath(source.path))
    if not names:
        say(visible(f"No server of {source.path} came from {file.client.title}. To write all of them: add --all"))
    return names


def _placed(server: Mapping[str, object], folder: Path) -> Mapping[str, object]:
    cwd = server.get("cwd")
    if not isinstance(cwd, str) or not cwd or cwd.startswith("${"):
        return server
    with suppress(Unresolved):
        return {**server, "cwd": os.path.normpath(folder / expand_home(cwd, os.environ))}
    return server


def _outputs(loaded: Loaded, names: Mapping[str, str]) -> dict[Lookup, str]:
    servers = {name: server for name, server in loaded.settings.servers.items() if name in names}
    lookups = {lookup for name, server in servers.items() for lookup in commands_of(name, server)}
    folder = str(loaded.path.absolute().parent)
    outcomes = anyio.run(outputs_once, lookups, os.environ, folder) if lookups else {}
    for outcome in outcomes.values():
        if not isinstance(outcome, str):
            say(visible(hide(outcome.brief)))
    return {lookup: outcome for lookup, outcome in outcomes.items() if isinstance(outcome, str)}


def _secret(folder: Path, values: set[str], outputs: Mapping[Lookup, str], reference: str) -> str | None:
    try:
        resolved = resolve(reference, {}, folder, refusal=None)
        text = "".join(part if isinstance(part, str) else outputs[part] for part in resolved.parts) or resolved.text
    except (Unresolved, KeyError):
        return None
    learn({*resolved.secrets, text})
    values.add(text)
    return text


def _file_of(name: str) -> ClientFile:
    client = find_client(name)
    if client is None:
        hint = nearest(name.casefold(), _WRITTEN) or "."
        fail("unknown_client", f'There is no client "{visible(name)}"{hint} Known: {", ".join(_WRITTEN)}.')
    files = hub_files(client, Where.here(os.environ))
    if not files and client.windows_of:
        fail(
            "no_windows",
            f"{client.title} is not reached: this is not the Linux of WSL, or its Windows is not found.",
        )
    if not files:
        fail(
            "client_import_only",
            f"The hub does not know how {client.title} writes its servers on this system.",
        )
    return files[0]


def _text(path: Path) -> str | None:
    try:
        content = content_of(target_of(path))
        return None if content is None else content.decode()
    except (FileRefused, UnicodeDecodeError):
        return None


def _document(name: str, layout: Layout, servers: Mapping[str, JsonObject]) -> str:
    if layout.is_list:
        around = {key: value for key, value in layout.around.items() if key != layout.key[0]}
        return yaml_text.document({**around, layout.key[0]: list(servers.values())}).rstrip("\n")
    text = ""
    for server, entry in servers.items():
        text = entries.put(text, name, (*layout.key, server), entry)
    return text.rstrip("\n")


def _refuse_running(file: ClientFile) -> None:
    refusal = running_refusal(file.client, Where.here(os.environ))
    if refusal is not None:
        raise refusal


def _write(file: ClientFile, layout: Layout, servers: Mapping[str, JsonObject]) -> int:
    if layout.is_list:
        message = f"{file.client.title} keeps its servers in a list, which the hub does not edit. Paste those above."
        fail("client_file_unclear", message, EXIT_TOOL)
    added: dict[str, None] = {}

    def edited(before: bytes | None) -> bytes | None:
        text, name = (before or b"").decode(), file.path.name
        added.clear()
        try:
            there = held_at(read_data(text, name), layout.key)
            for server, entry in servers.items():
                if not (isinstance(there, dict) and server in there):
                    text = entries.put(text, name, (*layout.key, server), entry)
                    added[server] = None
        except (CannotEdit, ConfigError) as problem:
            message = f"{file.path}: {problem}. Run the command without --write, and paste the servers."
            raise FileRefused("client_file_unclear", message) from None
        return text.encode() if added else before

    try:
        _refuse_running(file)
        edited(content_of(target_of(file.path), file.place.largest))
        for name in added:
            say(visible(f"+ {'.'.join(layout.key)}.{name}"))
        paths = [(*layout.key, name) for name in added]
        change = FileChange(file.path, edited, entries=paths)
        for refusal in Acts(state_dir(os.environ)).do(f"export to {file.client.title}", [change]).values():
            if refusal is not None:
                raise refusal
    except FileRefused as problem:
        fail(problem.code, str(problem), EXIT_TOOL)
    say(visible(f"{file.path}: {plural(len(added), 'server')} added"))
    return len(added)


def _tell_readers(path: Path) -> None:
    with suppress(OSError):
        if (problem := problem_of_secret(os.stat(path), path)) is not None:
            say(visible(f"{path} has values of secrets, and {problem}"), "yellow")

"""`mcp-hub install`."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

import click
import msgspec

from mcp_hub.app.build import App, open_app
from mcp_hub.cli import completion
from mcp_hub.cli.access.running import running_hub
from mcp_hub.cli.access.waiting import started_once
from mcp_hub.cli.commands.clients import steps as common
from mcp_hub.cli.commands.clients.import_dialog import AskedInputs, is_anybody_there, print_costs, with_agreed_paths
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.render.tables import plural
from mcp_hub.cli.setup import EXIT_TOOL, check_caller, config_option, fail, fail_with, load_config, quiet_logs, run_with
from mcp_hub.cli.trials import boxed_plan, measured, print_trial
from mcp_hub.config.findings import on_one_line
from mcp_hub.config.load.imported import ValuePlaces
from mcp_hub.config.load.load import Loaded, load
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.extras import lasting_install
from mcp_hub.masking import hide
from mcp_hub.onboarding.changes.acts import FileChange
from mcp_hub.onboarding.changes.entry_options import PROFILE_PATH, EntryRules
from mcp_hub.onboarding.changes.plan import KeyPath, Source, Step, plan_install, plan_move
from mcp_hub.onboarding.changes.written import ClientRecords, ImportedServer, snippet
from mcp_hub.onboarding.clients.entries import Command, hub_command, serve_args
from mcp_hub.onboarding.clients.model import Client, Where
from mcp_hub.onboarding.clients.reading import ClientFile, client_files, clients_of, hub_files
from mcp_hub.onboarding.clients.wsl import through_wsl
from mcp_hub.onboarding.files import FileRefused
from mcp_hub.onboarding.imports.found import FoundServer, of_files
from mcp_hub.onboarding.imports.plan import ImportPlan, planned
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets
from mcp_hub.onboarding.servers_file.servers_file import ServersFile

_IMPORTS_ONLY: Final = (
    "--sandbox and --no-sandbox belong to --import. For a server of the hub: mcp-hub sandbox SERVER on"
)


class _Moved(msgspec.Struct, frozen=True):
    """Servers moving from clients' files into the configuration.

    `taken`: keys to remove by file, list indices last first. `changes`: of the hub's files; may ask for values.
    `lines`: for the person. `origins`: servers with clients.
    """

    taken: Mapping[Path, Sequence[KeyPath]] = {}
    changes: Callable[[], Sequence[FileChange]] = tuple
    lines: Sequence[str] = ()
    origins: Sequence[ImportedServer] = ()


_Moves = Callable[[Sequence[ClientFile], Path], _Moved]
"""Decides which servers of these files move into the configuration. Raises `ConfigError`."""


class Options(msgspec.Struct, frozen=True):
    """`moves`: takes servers over. `replaces`: the configuration replaces another one in an entry."""

    over_http: bool = False
    dry_run: bool = False
    waits: bool = False
    every: bool = False
    moves: _Moves | None = None
    profile: str | None = None
    replaces: bool = True


@click.command()
@click.argument("clients", nargs=-1, metavar="[CLIENT]...", shell_complete=completion.applications)
@click.option("--all", "every", is_flag=True, help="All clients that are found on this machine.")
@click.option(
    "--http", "over_http", is_flag=True, help="Let clients connect to a running hub, instead of starting one."
)
@click.option(
    "--profile",
    shell_complete=completion.profiles,
    help="Let these clients have only this profile. Kept when the hub is installed again.",
)
@click.option("--import", "imports", is_flag=True, help="Also move the client's own servers into the hub.")
@click.option(
    "--sandbox/--no-sandbox", "is_boxed", default=None,
    help="With --import: put local servers that start in a sandbox into one, or none of them. Default: ask; without a "
    "terminal, do it.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Only show the changes.")
@click.option(
    "--undo",
    is_flag=True,
    help="Undo the last install, uninstall, leave, import or export; with CLIENT, its part in that client's file. "
    "What a client has changed since stays.",
)
@click.option("--wait", "waits", is_flag=True, help="Wait until a client that would undo the change has been quit.")
@click.option("--link", is_flag=True, help="Print links that install the hub by a click; change nothing.")
@config_option
def install(
    clients: tuple[str, ...],
    every: bool,
    over_http: bool,
    profile: str | None,
    imports: bool,
    is_boxed: bool | None,
    dry_run: bool,
    undo: bool,
    waits: bool,
    link: bool,
    config: str | None,
) -> None:
    """Put the hub into other MCP clients.

    CLIENT is claude-desktop, claude-code, cursor, vscode, codex, gemini, zed or another one; an unknown name lists all
    of them. In WSL, cursor-windows is Cursor on Windows. Adds one entry to the client's file, and keeps a backup beside
    it. An existing entry keeps its options, such as --profile and env. Exit code 1 if a client could not be changed.
    """
    where = Where.here(os.environ)
    if undo:
        if every or over_http or imports or dry_run or link or profile is not None or is_boxed is not None:
            fail("usage", "--undo takes no other options: it undoes the last change, of CLIENT if you name one.")
        raise SystemExit(common.undo(clients, where))
    if is_boxed is not None and not imports:
        fail("usage", _IMPORTS_ONLY)
    loaded = _configuration(config, may_be_new=imports)
    check_caller(loaded, profile)
    if link:
        raise SystemExit(_print_links(clients, every, loaded, where, profile))
    chosen = common.chosen_clients(clients, every, where)
    options = Options(
        over_http=over_http, dry_run=dry_run, waits=waits, every=every, profile=profile,
        moves=partial(moved_servers, is_boxed=is_boxed, is_dry=dry_run) if imports else None,
        replaces=config is not None or bool(os.environ.get("MCP_HUB_CONFIG")),
    )  # fmt: skip
    code, changed = install_into(chosen, loaded, where, options)
    if changed:
        _start_once(loaded, code, options)
    raise SystemExit(code)


def install_into(clients: Sequence[Client], loaded: Loaded, where: Where, options: Options) -> tuple[int, bool]:
    """Puts the hub into these clients; returns the exit code, and whether files changed."""
    source = _source(loaded, where, options)
    for client in clients:
        if not client.is_written:
            _refuse_import_only(client, source, where)
    files = [file for client in clients for file in hub_files(client, where)]
    move_files = [file for client in clients for file in client_files(client, where) if file not in files]
    moved = _moved([file for file in [*files, *move_files] if not _stays(file, source)], loaded, options)
    planned = [plan_install(file, source, where.env, moved.taken.get(file.path, ())) for file in files]
    planned += [plan_move(file, moved.taken[file.path]) for file in move_files if file.path in moved.taken]
    skipped = [step for step in planned if options.every and _lacks_http(step)]
    for step in skipped:
        say(f"Skipped: {step.problem}")
    planned = [step for step in planned if step not in skipped]
    common.show(planned)
    for line in moved.lines:
        put(line)
    if options.dry_run:
        return common.tell_problems(planned), False
    planned = [common.unless_running(step, where, options.waits) for step in planned]
    common.tell_unclear(planned, where)
    args = (*(("--http",) if options.over_http else ()), "--config", loaded.place)
    code = common.do("install into", planned, args, moved.changes())
    with suppress(OSError):  # `export` then wants --all
        ClientRecords(state_dir(os.environ)).add_imported(moved.origins)
    if options.moves is None:
        common.tell_others(planned)
    return code, any(step.is_needed and step.problem is None for step in planned)


def _stays(file: ClientFile, source: Source) -> bool:
    """Whether the hub's entry, and with it the client's servers, is not touched."""
    problem = plan_install(file, source, {}).problem if file.place.is_written else None
    return problem is not None and problem.code == "client_entry_differs"


def _moved(files: Sequence[ClientFile], loaded: Loaded, options: Options) -> _Moved:
    try:
        return options.moves(files, loaded.path) if options.moves is not None else _Moved()
    except ConfigError as error:
        fail_with(error)


def _configuration(config: str | None, *, may_be_new: bool) -> Loaded:
    if may_be_new and not (file := ServersFile.find(config, os.environ)).exists:
        return Loaded(Settings(), file.path, frozenset())
    return load_config(config, partly=True)


def _start_once(loaded: Loaded, code: int, options: Options) -> None:
    quiet_logs(0)
    if options.moves is not None:
        say("Starting each server once, to count the tokens of its tools …")
        try:
            loaded = load(loaded.path, os.environ, partly=True, lenient=True)
        except ConfigError as error:
            fail_with(error)
        print_costs(measured(loaded, loaded.settings.servers))
    elif not options.over_http and any(
        server.enabled or loaded.settings.failure(name) for name, server in loaded.settings.servers.items()
    ):
        say("Starting each server once, so that clients get their lists at once …")
        run_with(lambda: open_app(loaded, os.environ), partial(_warmed, code))


def _lacks_http(step: Step) -> bool:
    return step.problem is not None and step.problem.code == "client_without_http"


def _source(loaded: Loaded, where: Where, options: Options) -> Source:
    config = Path(loaded.place)
    rules = EntryRules(os.path.abspath(config), loaded.settings, where.env, options.profile)
    command = partial(_command, config, where, options.profile)
    source = Source(command, rules=rules, written=_written(options), windows=where.windows)
    if not options.over_http:
        return source
    http = loaded.settings.hub.http
    hub = running_hub(loaded.place, where.env, over_http=True)
    if hub is None:
        say(f"No hub serves {config} over HTTP now. Start one with: mcp-hub serve --http --config {config}")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(http.host, http.host)
    url = f"http://{f'[{host}]' if ':' in host else host}:{http.port}/mcp"
    url = hub.url if hub else url
    if options.profile is not None:
        url = url.removesuffix("/mcp") + PROFILE_PATH + quote(options.profile, safe="")
    return msgspec.structs.replace(source, url=url, needs_token=bool(loaded.settings.hub.tokens))


def _written(options: Options) -> dict[str, str]:
    with suppress(OSError):
        entries = ClientRecords(state_dir(os.environ)).entries() if options.replaces else []
        return {entry.path: entry.config for entry in entries if entry.config is not None}
    return {}


def _command(config: Path, where: Where, profile: str | None, kind: str) -> Command:
    try:
        return hub_command(where.env, serve_args(config, kind, profile))
    except HubError as problem:
        advice = f": {lasting}" if (lasting := lasting_install()) else ""
        fail("client_command_lost", f"{problem}. Put uvx on the PATH, or install the hub to stay{advice}")


def _refuse_import_only(client: Client, source: Source, where: Where) -> None:
    location = client.places[-1]
    layout = location.layouts[-1]
    path = (location.paths.at(where) or (Path("its file"),))[0]
    say(f"{client.title}: the hub does not change its file. Put this into {path}:")
    put(snippet(path.name, location, layout, source.entry(client, layout)))
    fail("client_import_only", f"{client.title} was not changed.", EXIT_TOOL)


def _print_links(names: Sequence[str], every: bool, loaded: Loaded, where: Where, profile: str | None) -> int:
    chosen = common.chosen_clients(names, every, where) if names else _linked(where)
    for client in chosen:
        command = _command(Path(loaded.place), where, profile, client.client_kind)
        try:
            command = through_wsl(command, where.windows) if client.windows_of and where.windows else command
        except FileRefused as problem:
            fail(problem.code, str(problem), EXIT_TOOL)
        if client.link is not None:
            put(f"{client.title}: {client.link(command)}")
        elif names:
            linked = ", ".join(dict.fromkeys(each.row for each in clients_of(where) if each.link is not None))
            fail("usage", f"{client.title} does not have install links. Those that do: {linked}.")
    return 0


def _linked(where: Where) -> list[Client]:
    return sorted(
        (client for client in clients_of(where) if client.link is not None), key=lambda client: not client.windows_of
    )


async def _warmed(code: int, app: App) -> int:
    tables.print_outcome(*await started_once(app))  # a server that fails is reported; the hub is installed anyway
    return code


def moved_servers(
    files: Sequence[ClientFile], config: Path, *, is_boxed: bool | None = None, is_dry: bool = False
) -> _Moved:
    """The servers of these files that the hub takes over or has, and the changes of its files.

    Writes nothing. `is_dry`: does not ask about paths. Raises `ConfigError`.
    """
    file = ServersFile(config, os.environ)
    secrets = KeptSecrets(file.folder)
    inputs = AskedInputs(secrets, asks=True)
    places = ValuePlaces(inputs.ask, secrets.keep)
    plan = planned(of_files(files, Where.here(os.environ), places), file, secrets, KeptSecrets(file.folder))
    plan = with_agreed_paths(plan, yes=False, asks=is_anybody_there() and not is_dry, tells=False)
    gone = [*plan.there, *(origin for server in plan.taken for origin in server.origins)]
    lines = [hide(on_one_line(line)) for line in _lines(plan)]

    def changes() -> list[FileChange]:
        settled, limited = boxed_plan(inputs.settle(plan), is_boxed, asks=is_anybody_there())
        print_trial(limited, file)
        return settled.changes()

    return _Moved(_places(gone), changes, lines, plan.origins())


def _places(gone: Sequence[FoundServer]) -> dict[Path, list[KeyPath]]:
    """The entries to remove from each file; of a list, the last first."""
    places: dict[Path, list[KeyPath]] = {}
    for server in gone:
        if server.file is not None:
            places.setdefault(server.file, []).append(server.place)
    return {file: sorted(paths, key=lambda path: path[-1] if isinstance(path[-1], int) else 0, reverse=True)
            for file, paths in places.items()}  # fmt: skip


def _lines(plan: ImportPlan) -> list[str]:
    counted = f"{plural(len(plan.taken), 'server')} from {plural(len(plan.sources), 'client')}"
    there = {(server.name, server.source) for server in plan.there}
    stays = [server for server in plan.skipped if server[:2] not in there]
    lines = [f"{counted} to {plan.file.path}, {plural(plan.doubles, 'double')} merged"]
    if not plan.taken:
        lines = ["Nothing can be moved." if stays else "Nothing to move: these clients start no servers of their own."]
        if plan.there:
            lines = [f"No server is new to the hub: those that move are in {plan.file.path} already."]
    lines += [f"  + {server.name} ({', '.join(server.sources)})" for server in plan.taken]
    lines += [f"  warning: {finding}" for finding in plan.problems if finding.code == "sandbox_narrowed"]
    return [*lines, *(f"  not moved: {name} ({source}): {reason}" for name, source, reason in stays)]

"""`mcp-hub approve`: shows changed tools and texts of servers, and approves them."""

import os
import sys
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import NoReturn

import click
import msgspec

from mcp_hub.app.catalog_rules import confirmed_servers, policies
from mcp_hub.app.upstream_factory import list_file
from mcp_hub.catalog.flags import decoded, squeezed
from mcp_hub.catalog.pins import (
    Fingerprint,
    Pin,
    Record,
    UnapprovedTool,
    approved,
    encoded,
    findings_of,
    read,
    unconfirmed_of,
)
from mcp_hub.catalog.trust.scan import diff_lines, flag_lines
from mcp_hub.cli import completion
from mcp_hub.cli.commands.servers.edit import end_with, found_file, note_added, report
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import agrees, put, say
from mcp_hub.cli.setup import EXIT_TOOL, check_servers, config_option, fail, load_config
from mcp_hub.cli.trials import boxed, is_local, print_trial
from mcp_hub.clock import wall_time
from mcp_hub.config.load.load import Loaded
from mcp_hub.config.trust import state_dir
from mcp_hub.errors import ConfigError
from mcp_hub.ids import record_key
from mcp_hub.masking import hide
from mcp_hub.onboarding.servers_file.proposals import (
    ProposedEdit,
    change_to,
    command_of,
    lines_for_terminal,
    proposals_of,
)
from mcp_hub.onboarding.servers_file.servers_file import ServersFile
from mcp_hub.protocol.shape.stream_events import timestamp
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import JsonObject


class _Waiting(msgspec.Struct, frozen=True):
    finding: UnapprovedTool
    pin: Pin
    key: str


@click.command()
@click.argument("server", required=False, shell_complete=completion.servers)
@click.argument("tools", nargs=-1, metavar="[TOOL]...")
@click.option("--all", "every", is_flag=True, help="Approve for all servers; required for --yes without SERVER.")
@click.option(
    "--list", "is_list", is_flag=True, help="Only list the tools, one per line. Exit code 1 if there are any."
)
@click.option("--yes", "-y", is_flag=True, help="Approve without asking.")
@click.option("--forget", is_flag=True, help="Forget SERVER's approvals; its next list is trusted on first use.")
@click.option("--reject", is_flag=True, help="Discard the edit of SERVER that the dashboard has proposed.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; approve nothing.")
@config_option
def approve(
    server: str | None,
    tools: tuple[str, ...],
    every: bool,
    is_list: bool,
    yes: bool,
    forget: bool,
    reject: bool,
    as_json: bool,
    config: str | None,
) -> None:
    """Review and approve changed or new tools.

    Also edits that the dashboard proposes and, with `hints: approved`, tools that were trusted on first use.

    TOOL is the server's name of a tool, or `prompt:NAME`, `template:URI` or `server:instructions`. Reads records and
    starts no server; `mcp-hub list` records the current lists. Exit code 1 if something was not approved.
    """
    loaded, file = load_config(config), found_file(config)
    if reject:
        _reject(file, server)
        return
    edits = [] if tools or forget else [edit for edit in proposals_of(file).all() if server in (None, edit.server)]
    if server is not None and edits and not (is_list or as_json):
        if not (is_done := _edited(file, edits[0], yes)) or server not in loaded.settings.servers:
            raise SystemExit(0 if is_done else EXIT_TOOL)
        edits = []
    check_servers(loaded, [server] if server is not None and not edits else [])
    _check_usage(server, every, yes, forget)
    store = KeyedFiles(state_dir(os.environ) / "approvals")
    if forget and server is not None:
        _forget(store, loaded, server, yes)
        return
    waiting = list(_waiting(store, loaded, server, tools))
    if as_json:
        proposed = {"proposals": [_proposal(file, edit) for edit in edits]}
        tables.print_json({"waiting": list(map(_data, waiting)), **(proposed if edits else {})})
        return
    raise SystemExit(EXIT_TOOL if _reviewed(store, file, waiting, edits, yes=yes, is_list=is_list) else 0)


def _check_usage(server: str | None, every: bool, yes: bool, forget: bool) -> None:
    if server is None and (yes or forget) and not (every and yes and not forget):
        fail("usage", "--forget needs a SERVER." if forget else "--yes without a SERVER needs --all.")
    if every and server is not None:
        fail("usage", "--all and SERVER exclude each other. Give one of them.")


def _reviewed(
    store: KeyedFiles,
    file: ServersFile,
    waiting: Sequence[_Waiting],
    edits: Sequence[ProposedEdit],
    *,
    yes: bool,
    is_list: bool,
) -> bool:
    for edit in edits:
        say(f"{decoded(edit.server)}: an edit of the configuration waits. Review it: {command_of(file, edit.server)}")
    if is_list or not waiting:
        _list(waiting, has_edits=bool(edits))
        return bool(waiting or edits)
    unapproved = [item for item in waiting if not _approved(store, item, yes)]
    return bool(unapproved or edits)


def _edited(file: ServersFile, edit: ProposedEdit, yes: bool) -> bool:
    """Shows an edit of the dashboard, and makes it if the person agrees."""
    before, name = file.servers().get(edit.server), decoded(edit.server)
    verb = "add" if before is None else "change"
    lines = [(f"{name}: a page of the dashboard proposes to {verb} it, since {timestamp(edit.at)}", "bold")]
    lines += [(f"  why you are asked: {squeezed(reason)}", "yellow") for reason in edit.reasons]
    styles = {"+": "green", "-": "red"}
    lines += [(f"  {squeezed(line)}", styles.get(line[:1], "")) for line in lines_for_terminal(before, edit.entry)]
    tables.print_lines(lines)
    if yes or not _is_anybody_there():
        fail("no_terminal", "An edit needs a yes at a terminal, also with --yes. Run the command there, without it.")
    if not agrees(f"Make this edit of {name}?", default=False, err=False):
        say(f"Nothing is changed. The edit still waits; to discard it: {command_of(file, edit.server, ' --reject')}")
        return False
    try:
        if file.servers().get(edit.server) != before:
            say(f"{name} has changed in the meantime. Review it again.")
            return False
        entry, started = edit.entry, None
        if before is None and is_local(entry):
            started = boxed(file, {edit.server: entry}, lambda plain: plain, None, asks=False)
            entry = dict(started.servers[edit.server])
        change_to(file, edit.server, before, entry)
        proposals_of(file).remove(edit.server, edit)
    except ConfigError as error:
        end_with(error)
    report(file, f"{'Added' if before is None else 'Changed'} {name}")
    if started is not None:
        note_added(file, [edit.server])
        print_trial(started, file)
    return True


def _reject(file: ServersFile, server: str | None) -> None:
    if server is None:
        fail("usage", "--reject needs a SERVER.")
    try:
        was_there = proposals_of(file).remove(server)
    except ConfigError as error:
        end_with(error)
    put(f"{'Discarded the edit' if was_there else 'No edit waits'} of {decoded(server)}.")


def _proposal(file: ServersFile, edit: ProposedEdit) -> JsonObject:
    lines = [hide(line) for line in lines_for_terminal(file.servers().get(edit.server), edit.entry)]
    return {
        "server": edit.server,
        "since": timestamp(edit.at),
        "reasons": list(edit.reasons),
        "diff": lines,
    }


def _waiting(store: KeyedFiles, loaded: Loaded, only: str | None, tools: Sequence[str]) -> Iterator[_Waiting]:
    confirms = confirmed_servers(loaded.settings)
    for name, policy in policies(loaded.settings).items():
        if only not in (None, name):
            continue
        record, key = _record(store, loaded, name), record_key(loaded.place, name)
        if absent := [decoded(tool) for tool in tools if tool not in record.tools]:
            message = f'No hub has recorded a tool "{absent[0]}" of server "{decoded(name)}". Run mcp-hub list first.'
            fail("unknown_tool", message)
        for tool, finding in findings_of(name, record, record.tools, policy).items():
            if not tools or tool in tools:
                yield _Waiting(finding, record.tools[tool], key)
        for tool, finding in (unconfirmed_of(name, record, record.tools) if name in confirms else {}).items():
            if not tools or tool in tools:
                yield _Waiting(finding, Pin(offered=record.tools[tool].approved), key)


def _record(store: KeyedFiles, loaded: Loaded, server: str) -> Record:
    key = record_key(loaded.place, server)
    try:
        return read(store.read(key))
    except (OSError, ValueError) as problem:
        message = f"{store.path(key)} cannot be read: {decoded(str(problem))}"
        fail("state_unreadable", f"{message}. To start again, run: mcp-hub approve {quote(server)} --forget")


def _list(waiting: Sequence[_Waiting], *, has_edits: bool) -> None:
    if not waiting:
        put("All tools are approved." if not has_edits else "All tools are approved; edits wait.")
        return
    table = tables.table("server", "tool", "since", "held", "what")
    for item in waiting:
        finding = item.finding
        texts = (
            decoded(finding.server),
            decoded(finding.tool),
            timestamp(finding.since),
            "yes" if finding.is_held else "no",
        )
        table.add_row(*map(tables.cell, (*texts, finding.text)))
    tables.print_table(table)


def _approved(store: KeyedFiles, item: _Waiting, yes: bool) -> bool:
    tables.print_lines(list(_finding_lines(item)))
    return (yes or _agrees(item.finding)) and _approve(store, item)


def _finding_lines(item: _Waiting) -> Iterator[tuple[str, str]]:
    finding = item.finding
    note = ", held back" if finding.is_held else ""
    yield (
        f"{decoded(finding.server)}: {decoded(finding.tool)} {finding.text}, since {timestamp(finding.since)}{note}",
        "bold",
    )
    for line, style in diff_lines(item.pin):
        yield f"  {line}", style
    for line in flag_lines(item.pin):
        yield f"  suspicious: {line}", "yellow"


def _is_anybody_there() -> bool:
    return sys.stdin.isatty()


def _confirmed(question: str) -> bool:
    if not _is_anybody_there():
        fail("no_terminal", "Cannot ask: stdin is not a terminal. Add --yes.")
    return agrees(question, default=False, err=False)


def _agrees(finding: UnapprovedTool) -> bool:
    return _confirmed(f"Approve {decoded(finding.tool)}?")


def _approve(store: KeyedFiles, item: _Waiting) -> bool:
    """False if the tool changed since it was shown."""
    missed: list[str] = []

    def change(text: bytes | None) -> bytes | None:
        record, changed = approved(read(text), {item.finding.tool: item.finding.digest}, wall_time())
        missed.extend(changed)
        return None if changed else encoded(record)

    try:
        store.update(item.key, change)
    except (OSError, ValueError) as problem:
        _fail_to_write(store, item.key, problem)
    tool = decoded(item.finding.tool)
    if missed:
        say(f"{tool} has changed again in the meantime. Review it again.")
    else:
        put(f"approved {tool}")
    return not missed


def _fail_to_write(store: KeyedFiles, key: str, problem: Exception) -> NoReturn:
    fail("state_unwritable", f"{store.path(key)} cannot be changed: {decoded(str(problem))}. Check its permissions.")


def _forget(store: KeyedFiles, loaded: Loaded, server: str, yes: bool) -> None:
    name, key = decoded(server), record_key(loaded.place, server)
    if not yes and not _confirmed(f"Forget the approvals of {name}, and trust its next list?"):
        raise SystemExit(EXIT_TOOL)
    try:
        # a remembered list may hold what nobody has approved: the next hub would take it for the first one
        list_file(state_dir(os.environ) / "lists", server, loaded.settings.servers[server]).path.unlink(missing_ok=True)
        store.update(key, lambda text: encoded(Record(server=server, config=loaded.place)))
    except OSError as problem:
        _fail_to_write(store, key, problem)
    put(f"Forgot the approvals of {name}. Its next list is trusted on first use.")


def _data(item: _Waiting) -> JsonObject:
    finding = item.finding
    return {
        "server": finding.server,
        "tool": finding.tool,
        "kind": finding.kind,
        "members": list(finding.members),
        "since": timestamp(finding.since),
        "held": finding.is_held,
        "approved": _definition(item.pin.approved),
        "offered": _definition(item.pin.offered),
        "is_whole": item.pin.offered is not None
        and not item.pin.offered.length
        and _definition(item.pin.offered) is not None,
        "diff": [line for line, _ in diff_lines(item.pin)],
        "flags": flag_lines(item.pin),
    }


def _definition(fingerprint: Fingerprint | None) -> msgspec.Raw | None:
    return (
        fingerprint.definition if fingerprint is not None and isinstance(fingerprint.definition, msgspec.Raw) else None
    )

"""Planned changes of client files, and their outcomes."""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.cli.access.running import end_hubs_of
from mcp_hub.cli.render import tables
from mcp_hub.cli.render.output import put, say
from mcp_hub.cli.setup import EXIT_TOOL, fail
from mcp_hub.config.findings import nearest
from mcp_hub.config.trust import state_dir
from mcp_hub.masking import hide, visible
from mcp_hub.onboarding.changes.acts import Acts, FileChange, Outcomes
from mcp_hub.onboarding.changes.entry_options import has_variables, profile_of
from mcp_hub.onboarding.changes.plan import Step
from mcp_hub.onboarding.changes.restore import Restored
from mcp_hub.onboarding.changes.written import ClientRecords, WrittenEntry, difference, has_hub
from mcp_hub.onboarding.clients import programs
from mcp_hub.onboarding.clients.model import Client, Where
from mcp_hub.onboarding.clients.reading import client_files, clients_of, is_present
from mcp_hub.onboarding.clients.table import CLIENTS, WINDOWS_CLIENTS, find_client
from mcp_hub.onboarding.files import FileRefused

_DRIFT: Final = "undo_drift"


def chosen_clients(names: Sequence[str], every: bool, where: Where) -> list[Client]:
    """The clients of these names, or all installed ones. Exits with 2."""
    if every and names:
        fail("usage", "--all and CLIENT exclude each other. Give one of them.")
    present = [
        client
        for client in clients_of(where)
        if client.is_written and is_present(client, where) and not _is_doubled(client, where)
    ]
    if every:
        tell_no_windows(where)
        return present or _no_client()
    if not names:
        installed = f"Found: {', '.join(client.name for client in present)}." if present else "None was found."
        fail("usage", f"Name a client, or add --all. {installed}")
    chosen = list({client.name: client for client in map(_client_of, names)}.values())
    if (
        where.windows is None
        and (client := next((candidate for candidate in chosen if candidate.windows_of), None)) is not None
    ):
        fail("no_windows", f"{client.title} is not reached: {where.no_windows or 'this is not the Linux of WSL'}.")
    for client in chosen:
        around = WINDOWS_CLIENTS.get(f"{client.name}-windows")
        if around is not None and around not in chosen and is_present(around, where) and not is_present(client, where):
            say(f"{client.title} is found on Windows only. To name that one: {around.name}", "yellow")
    return chosen


def _is_doubled(client: Client, where: Where) -> bool:
    around = None if client.windows_of else WINDOWS_CLIENTS.get(f"{client.remote_of}-windows")
    return around is not None and where.windows is not None and is_present(around, where)


def tell_no_windows(where: Where) -> int:
    """Says why clients on Windows are left out; returns the exit code."""
    if where.windows is not None:
        return 0
    names: list[str] = []
    with suppress(OSError):
        clients = [find_client(entry.client) for entry in ClientRecords(state_dir(os.environ)).entries()]
        names = [client.title for client in clients if client is not None and client.windows_of]
    if where.no_windows or names:
        note = f". The hub stays in: {', '.join(dict.fromkeys(names))}" if names else ""
        reason = where.no_windows or "this is not the Linux of WSL"
        say(f"Clients on Windows are left out: {reason}{note}. [no_windows]", "yellow")
    return EXIT_TOOL if names else 0


def unless_running(step: Step, where: Where, waits: bool) -> Step:
    """The step, with a problem if the client runs."""
    if step.problem is not None or not step.is_needed:
        return step
    client = step.file.client
    if waits and _is_running(client, where):
        say(f"{client.title} is running. Quit it, from its tray icon too; waiting …")
        programs.wait_for_end(lambda: _is_running(client, where))
    problem = running_refusal(client, where, "Quit it, or add --wait.")
    return step if problem is None else msgspec.structs.replace(step, change=None, problem=problem)


def tell_unclear(steps: Iterable[Step], where: Where) -> None:
    """Names clients that may run, which Windows does not say."""
    changed = {step.file.client.name: step.file.client for step in steps if step.problem is None and step.is_needed}
    for client in changed.values():
        there = where.for_clients(are_on_windows=bool(client.windows_of))
        if there is not None and client.rewrites and programs.is_unclear(client.rewrites, there.system):
            advice = "If it runs, quit it, from its tray icon too, and run this once more: it writes its file back"
            say(f"{client.title}: the hub cannot see whether it runs. {advice}.", "yellow")


def running_refusal(client: Client, where: Where, advice: str = "Quit it first.") -> FileRefused | None:
    """The problem with a running client, which would write its file back."""
    if not _is_running(client, where):
        return None
    message = f"{client.title} is running, and would undo the change of its file. {advice}"
    return FileRefused("client_running", message)


def _is_running(client: Client, where: Where) -> bool:
    there = where.for_clients(are_on_windows=bool(client.windows_of))
    return there is not None and bool(client.rewrites) and programs.is_running(client.rewrites, there.system)


def show(steps: Iterable[Step]) -> None:
    for step in steps:
        if step.problem is not None or not step.is_needed:
            continue
        lines = [(f"{step.file.client.title}: {visible(str(step.file.path))}", "bold")]
        lines += [(f"  - {visible(hide(str(path[-1])))} (moves to the hub)", "red") for path in step.moved]
        lines += [(f"  + {visible(hide(name))} (comes back)", "green") for name in step.back]
        for line in difference(step.file.path.name, step.layout, step.before, step.after):
            style = {"+": "green", "-": "red"}.get(line[0], "dim")
            lines.append((f"  {visible(line)}", style))
        tables.print_lines(lines)


def do(
    verb: str,
    steps: Sequence[Step],
    args: Sequence[str],
    first: Sequence[FileChange] = (),
    *,
    ends: bool = False,
) -> int:
    """Makes the changes and reports; returns the exit code.

    `args` install the hub again. `ends`: removes the undo record after success.
    """
    state = state_dir(os.environ)
    needed = [step for step in steps if step.change is not None and step.is_needed]
    changes = [step.change for step in needed if step.change is not None]
    title = f"{verb} {', '.join(dict.fromkeys(step.file.client.title for step in needed))}"
    try:
        outcomes = Acts(state).do(title, changes, first)
        _record(ClientRecords(state), steps, outcomes, args)
    except FileRefused as problem:
        fail(problem.code, str(problem), EXIT_TOOL)
    except OSError as problem:
        fail("state_unwritable", f"{state}: {problem.strerror}. Check its permissions.", EXIT_TOOL)
    failed = False
    for step in steps:
        problem_of_step = step.problem or outcomes.get(step.file.path)
        failed = failed or problem_of_step is not None
        _tell(step, problem_of_step)
    if None in outcomes.values() and not (ends and not failed):
        say("To take this back: mcp-hub install --undo")
    return EXIT_TOOL if failed else 0


def tell_others(steps: Iterable[Step]) -> None:
    """Names clients that still start own servers."""
    clients = [step.file.client for step in steps if step.servers_left and step.problem is None]
    if clients:
        titles = list(dict.fromkeys(client.title for client in clients))
        verb = "starts its" if len(titles) == 1 else "start their"
        message = f"{', '.join(titles)} also {verb} own servers as before."
        names = " ".join(dict.fromkeys(client.name for client in clients))
        say(f"{message} To move these into the hub: mcp-hub install --import {names}")


def undo(names: Sequence[str], where: Where) -> int:
    """Undoes the last act, or its part in these clients; returns the exit code."""
    state = state_dir(os.environ)
    owners = {path: client for client in clients_of(where) for path in _targets(client, where)}
    clients = list(map(_client_of, names))
    only = {path for path, client in owners.items() if client in clients} if names else None
    configs = installed_configs(state)

    def refusal(path: Path) -> FileRefused | None:
        return running_refusal(owners[path], where) if path in owners else None

    try:
        act = Acts(state).undo(only, refusal)
        for path, result in act.files if act is not None else ():
            _tell_undone(path, result, owners.get(path))
            if not result.is_open and not (path in owners and has_hub(path, owners[path])):
                ClientRecords(state).remove_entry(path)
    except FileRefused as problem:
        fail(problem.code, str(problem), EXIT_TOOL)
    except OSError as problem:
        fail("state_unwritable", f"{state}: {problem.strerror}. Check its permissions.", EXIT_TOOL)
    if act is None:
        who = f" for {', '.join(client.title for client in clients)}" if names else ""
        fail("nothing_to_undo", f"There is nothing to undo{who}.", EXIT_TOOL)
    failed = any(result.problems for _, result in act.files)
    put(f"{'Undone in part' if failed or names else 'Undone'}: {act.title}")
    if act.earlier:
        again = " ".join(("mcp-hub install --undo", *names))
        say(visible(f"What was done before stays: {act.earlier}. To take that back, too: {again}"))
    gone = {str(path) for path, _ in act.files if not os.path.lexists(path)}
    end_unused({*configs, *gone} - installed_configs(state))
    return EXIT_TOOL if failed else 0


def installed_configs(state: Path) -> set[str]:
    """The configurations that the hub wrote into clients."""
    try:
        return {entry.config for entry in ClientRecords(state).entries() if entry.config is not None}
    except OSError:
        return set()


def end_unused(configs: Iterable[str]) -> None:
    for config in end_hubs_of(configs):
        put(f"Stopped the background hub of {visible(config)}.")


def _targets(client: Client, where: Where) -> Iterator[Path]:
    for file in client_files(client, where):
        yield file.path
        yield Path(os.path.realpath(file.path))


def _tell_undone(file: Path, result: Restored, client: Client | None) -> None:
    path = visible(str(file))
    who = path if client is None else f"{client.title}: {path}"
    if result.is_exact:
        put(f"restored {path}" if result.content is not None else f"removed {path}")
    elif not result.problems or result.back:
        back = f", {tables.plural(len(result.back), 'server')} back: {', '.join(result.back)}" if result.back else ""
        is_out = "the hub is out" if client is not None else "what the hub put there is out"
        put(visible(f"{who} has been changed since: {is_out}{back}; all else is untouched"))
    for problem in result.problems:
        say(visible(hide(f"{problem} [{_DRIFT}]")))
    if result.saved is not None:
        say(f"  Its content from before is in {visible(str(result.saved))}")


def tell_problems(steps: Iterable[Step]) -> int:
    """Prints problems of planned steps; returns the exit code."""
    problems = [step for step in steps if step.problem is not None or step.problems]
    for step in problems:
        if step.problem is not None:
            say(f"{step.file.client.title}: {step.problem} [{step.problem.code}]")
        _tell_drift(step)
    return EXIT_TOOL if problems else 0


def _client_of(name: str) -> Client:
    client = find_client(name)
    if client is None:
        hint = nearest(name.casefold(), CLIENTS) or "."
        fail("unknown_client", f'There is no client "{visible(name)}"{hint} Known: {", ".join(CLIENTS)}.')
    return client


def _no_client() -> list[Client]:
    fail("no_client", "No client was found on this machine. Name one: mcp-hub install CLIENT.")


def _record(written: ClientRecords, steps: Sequence[Step], outcomes: Outcomes, args: Sequence[str]) -> None:
    for step in steps:
        if step.problem is not None or outcomes.get(step.file.path) is not None or step.only_moves:
            continue
        path = os.path.realpath(step.file.path)
        if step.after is None:
            written.remove_entry(Path(path))
        else:
            profile = profile_of(step.after)
            narrow = () if profile is None else ("--profile", profile)
            written.add_entry(WrittenEntry(step.file.client.name, path, (*args, *narrow)))


def _tell(step: Step, problem: FileRefused | None) -> None:
    client = step.file.client
    if problem is None and client.windows_of and has_variables(step.after or {}):
        say(f"{client.title}: the variables of its entry do not reach the hub in WSL. Set them for the servers.")
    if problem is not None:
        say(f"{client.title}: {problem} [{problem.code}]")
    elif step.only_moves:
        put(f"{client.title}: {tables.plural(len(step.moved), 'server')} moved out of {visible(step.file.path.name)}.")
    elif not step.is_needed:
        put(f"{client.title}: {'the hub is already there' if step.after else 'the hub is not there'}")
    else:
        outcome = "the hub is installed" if step.after else "the hub is removed"
        if step.back:
            outcome += f", {tables.plural(len(step.back), 'server')} back: {visible(hide(', '.join(step.back)))}"
        itself = f"restart the client if it {'does not show' if step.after else 'still shows'} the hub"
        restart = f". Next: {client.restart or itself}"
        if step.options and isinstance(step.before, dict):
            outcome += visible(hide(f"; it keeps {', '.join(step.options)}"))
        put(f"{client.title}: {outcome}{restart}.")
    _tell_drift(step)


def _tell_drift(step: Step) -> None:
    for line in step.problems:
        say(visible(hide(f"{step.file.client.title}: {line} [{_DRIFT}]")))

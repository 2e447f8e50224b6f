"""Plans how the hub and servers move in and out of clients' files, one step per file."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from mcp_hub.config.load.foreign_limits import switched_off
from mcp_hub.edit.entries import held_at, names_in, read_data, remove
from mcp_hub.edit.writing import CannotEdit
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.changes.acts import FileChange
from mcp_hub.onboarding.changes.entry_options import EntryRules, additions, entry_with_options, refusal
from mcp_hub.onboarding.changes.restore import EntryPath, FileState, Restored, names_back, restored, with_added
from mcp_hub.onboarding.changes.written import snippet, with_hub, without_hub
from mcp_hub.onboarding.clients import programs
from mcp_hub.onboarding.clients.entries import HUB, Command, filled, filled_with_url
from mcp_hub.onboarding.clients.model import Client, Layout
from mcp_hub.onboarding.clients.reading import ClientFile, is_disabled, layout_of, servers_of
from mcp_hub.onboarding.clients.wsl import WindowsSide, through_wsl
from mcp_hub.onboarding.files import FileRefused, content_of, target_of
from mcp_hub.types import JsonObject

KeyPath = tuple[str | int, ...]


class Source(msgspec.Struct, frozen=True):
    """The hub for clients: `command` by kind of client, or `url`."""

    command: Callable[[str], Command]
    url: str | None = None
    needs_token: bool = False
    rules: EntryRules = EntryRules()
    written: Mapping[str, str] = {}
    """Configurations that the hub wrote, by file; these may be replaced."""
    windows: WindowsSide | None = None
    """Windows around WSL, for its clients."""

    def entry_for(self, file: ClientFile, layout: Layout, old: object) -> JsonObject:
        """The hub's entry, with a person's additions to the old one. Raises `FileRefused`."""
        new = self.entry(file.client, layout)
        if not isinstance(old, dict):
            return new
        template = layout.stdio if self.url is None else layout.http or {}
        replaceable = self.written.get(os.path.realpath(file.path))
        rules = msgspec.structs.replace(self.rules, replaceable=replaceable)
        try:
            return entry_with_options(new, old, template, rules)
        except FileRefused as problem:
            raise refusal(file.client.name, problem) from None

    def entry(self, client: Client, layout: Layout) -> JsonObject:
        """A new entry for a client. Raises `FileRefused` if it does not take a URL."""
        if self.url is None:
            command = self.command(client.client_kind)
            if client.windows_of and self.windows is not None:
                command = through_wsl(command, self.windows)
            return filled(layout.stdio, command)
        if layout.http is None:
            message = f"{client.title} does not take a URL in its file. Install it without --http."
            raise FileRefused("client_without_http", message)
        if self.needs_token and client.token is None:
            message = f"{client.title} cannot send a token of its environment. Install it without --http."
            raise FileRefused("client_without_http", message)
        return filled_with_url(layout.http, self.url, client.token if self.needs_token else None)


class Step(msgspec.Struct, frozen=True):
    """One file's change. `after`: the hub's entry, None if removed. With a `problem` nothing changes.

    `servers_left`: the client's servers that stay enabled. `back`: servers that return; `problems`: those that do not.
    `options`: kept options.
    """

    file: ClientFile
    layout: Layout
    before: object = None
    after: JsonObject | None = None
    change: FileChange | None = None
    problem: FileRefused | None = None
    moved: Sequence[KeyPath] = ()
    servers_left: int = 0
    back: Sequence[str] = ()
    problems: Sequence[str] = ()
    options: Sequence[str] = ()

    @property
    def only_moves(self) -> bool:
        return self.before is None and self.after is None and bool(self.moved)

    @property
    def is_needed(self) -> bool:
        return bool(self.moved) or bool(self.back) or self.before != self.after


def plan_install(file: ClientFile, source: Source, env: Mapping[str, str], moved: Sequence[KeyPath] = ()) -> Step:
    """The step that adds the hub and removes the moved servers."""
    layout = file.place.layouts[-1]
    try:
        text = _text(file.path, content_of(target_of(file.path), file.place.largest))
        data = _data(text, file)
        layout = layout_of(data, file.place)
        before, plain = _entry_in(data, layout), source.entry(file.client, layout)
        after = source.entry_for(file, layout, before)
        servers_left = len(_started(data, file).keys() - {path[-1] for path in moved})
    except FileRefused as problem:
        return Step(file, layout, problem=problem)

    def edited(content: bytes | None) -> bytes | None:
        current = _text(file.path, content)
        parsed = _data(current, file)
        try:
            for path in moved:
                current = remove(current or "", file.path.name, path)
            edited_text = with_hub(
                current,
                file.path.name,
                file.place,
                lambda chosen_layout: source.entry_for(file, chosen_layout, _entry_in(parsed, chosen_layout)),
            )
        except CannotEdit as problem:
            paste = snippet(file.path.name, file.place, layout, after)
            message = f"{file.path}: {problem}. Put this into it yourself:\n{paste}"
            raise FileRefused("client_file_unclear", message) from None
        return edited_text.encode()

    options = additions(after, plain)
    # the client's own command would show values of the entry to other users, and may not take all keys
    run = None if options else _run_to_add(file, text, layout, after, moved, env)
    change = FileChange(file.path, edited, run, [*_entry_paths(data, moved), (*layout.key, HUB)])
    step = Step(
        file=file, layout=layout, before=before, after=after, change=change, moved=moved, servers_left=servers_left,
        options=options,
    )  # fmt: skip
    return _checked(step, text)


def plan_move(file: ClientFile, moved: Sequence[KeyPath]) -> Step:
    """The step that only removes the moved servers."""

    def edited(content: bytes | None) -> bytes | None:
        current = _text(file.path, content)
        try:
            for path in moved:
                current = remove(current or "", file.path.name, path)
        except CannotEdit as problem:
            names = ", ".join(str(path[-1]) for path in moved)
            raise FileRefused("client_file_unclear", f"{file.path}: {problem}. Remove {names} yourself.") from None
        return None if current is None else current.encode()

    step = Step(file, file.place.layouts[-1], moved=moved)
    try:
        text = _text(file.path, content_of(target_of(file.path), file.place.largest))
        change = FileChange(file.path, edited, entries=_entry_paths(_data(text, file), moved))
    except FileRefused as problem:
        return Step(file, step.layout, problem=problem)
    return _checked(msgspec.structs.replace(step, change=change), text)


def plan_uninstall(
    file: ClientFile, env: Mapping[str, str], states: Sequence[FileState] = (), *, as_before: bool = False
) -> Step:
    """The step that removes the hub and undoes `states`, last first.

    `as_before`: an unchanged file gets its old bytes, with any hub entry from before.
    """
    layout = file.place.layouts[-1]
    try:
        content = content_of(target_of(file.path), file.place.largest)
        text = _text(file.path, content)
        data = _data(text, file)
        layout = layout_of(data, file.place)
        result = turned_back(content, states)
        is_whole = as_before and bool(states) and result.is_exact
        old = _entry_in(_data(_text(file.path, result.content), file), layout) if is_whole else None
    except FileRefused as problem:
        return Step(file, layout, problem=problem)

    def edited(content: bytes | None) -> bytes | None:
        result = turned_back(content, states)
        if as_before and states and result.is_exact:
            return result.content
        current = _text(file.path, result.content)
        return None if current is None else _hub_out(current, file)

    if is_whole and result.content == content:
        return Step(file, layout)
    run = None if result.back else _run_to_remove(file, text, env)
    entries = [*(path for state in states for path in state.entries), (*layout.key, HUB)]
    change = FileChange(file.path, edited, run, entries)
    back = [*result.back, *([HUB] if old is not None else [])]
    step = Step(
        file=file, layout=layout, before=_entry_in(data, layout), after=None, change=change, back=back,
        problems=result.problems,
    )  # fmt: skip
    return _checked(step, text)


def _hub_out(text: str, file: ClientFile) -> bytes | None:
    try:
        edited_text = without_hub(text, file.path.name, file.place)
    except CannotEdit as problem:
        message = f'{file.path}: {problem}. Remove the entry "{HUB}" yourself.'
        raise FileRefused("client_file_unclear", message) from None
    return None if edited_text is None else edited_text.encode()


def turned_back(content: bytes | None, states: Sequence[FileState]) -> Restored:
    """The content with changes undone, last first; exported entries stay."""
    result = Restored(content)
    problems: list[str] = []
    is_exact = True
    for state in states:
        result = restored(result.content, state)
        problems += result.problems
        is_exact = is_exact and result.is_exact
    whole, missing = with_added(result.content, content, states)
    back = (name for state in states for name in names_back(state, content, whole))
    return Restored(whole, list(dict.fromkeys(back)), [*problems, *missing], is_exact)


def _started(data: object, file: ClientFile) -> dict[str, JsonObject]:
    servers = servers_of(data, file.place)
    off = switched_off(data, servers) if isinstance(data, dict) else {}
    return {name: server for name, server in servers.items() if name not in off and not is_disabled(server)}


def _entry_paths(data: object, places: Sequence[KeyPath]) -> list[EntryPath]:
    entry_paths: list[EntryPath] = []
    for entry_path in places:
        keys = tuple(str(key) for key in entry_path[:-1])
        holder = held_at(data, keys)
        name = (
            names_in(holder)[entry_path[-1]]
            if isinstance(holder, list) and isinstance(entry_path[-1], int)
            else str(entry_path[-1])
        )
        entry_paths.append((*keys, name))
    return entry_paths


def entry_in(file: ClientFile) -> object:
    """The hub's entry, if any. Raises `FileRefused`."""
    data = _data(_text(file.path, content_of(target_of(file.path), file.place.largest)), file)
    return _entry_in(data, layout_of(data, file.place))


def _checked(step: Step, text: str | None) -> Step:
    assert step.change is not None
    try:
        step.change.edit(None if text is None else text.encode())
    except FileRefused as problem:
        return msgspec.structs.replace(step, change=None, problem=problem)
    return step


def _text(path: Path, content: bytes | None) -> str | None:
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        message = f"{path} is not UTF-8 text. Save it as UTF-8, or put the hub into it yourself."
        raise FileRefused("client_file_unclear", message) from None


def _data(text: str | None, file: ClientFile) -> object:
    try:
        return None if text is None else read_data(text, file.path.name)
    except ConfigError as error:
        first = error.findings[0]
        line = f" line {first.line}:" if first.line else ""
        message = f"{file.path}:{line} {first.message} The client cannot read it either."
        raise FileRefused("client_file_unclear", message) from None


def _entry_in(data: object, layout: Layout) -> object:
    holder = held_at(data, layout.key)
    if isinstance(holder, list):
        return next((entry for entry in holder if isinstance(entry, dict) and entry.get("name") == HUB), None)
    return holder.get(HUB) if isinstance(holder, dict) else None


def _run_to_add(
    file: ClientFile,
    text: str | None,
    layout: Layout,
    entry: JsonObject,
    moved: Sequence[KeyPath],
    env: Mapping[str, str],
) -> Callable[[], bool] | None:
    cli = file.client.cli if file.place is file.client.places[-1] else None  # it writes its usual file
    names = [str(path[-1]) for path in moved]
    program = programs.find_cli(cli, env)
    if cli is None or program is None or cli.writes_anew and (text or "").strip() or names and not cli.remove:
        return None
    if (
        any(path[:-1] != layout.key or str(path[-1]).startswith("-") for path in moved)
        or "{command}" in cli.add
        and "url" in entry
    ):
        return None

    def run() -> bool:
        removed = [*names, *([HUB] if cli.remove and entry_in(file) is not None else [])]
        results = [programs.run_cli(program, programs.remove_args(cli, name), env) for name in removed]
        if not all([*results, programs.run_cli(program, programs.add_args(cli, entry), env)]):
            return False
        return _verified(file, entry, cli.program)

    return run


def _run_to_remove(file: ClientFile, text: str | None, env: Mapping[str, str]) -> Callable[[], bool] | None:
    cli = file.client.cli
    program = programs.find_cli(cli, env)
    if cli is None or program is None or not cli.remove or cli.writes_anew and (text or "").strip():
        return None

    def run() -> bool:
        return programs.run_cli(program, programs.remove_args(cli, HUB), env) and _verified(file, None, cli.program)

    return run


def _verified(file: ClientFile, entry: JsonObject | None, program: str) -> bool:
    present = entry_in(file)
    is_there = isinstance(present, dict) and entry is not None and entry.items() <= present.items()
    if not (is_there if entry is not None else present is None):
        message = (
            f"{program} reported success, but {file.path} does not have the change. Try again, or update {program}."
        )
        raise FileRefused("client_cli_failed", message)
    return True

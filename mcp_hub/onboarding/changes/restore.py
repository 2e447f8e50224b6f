"""Undoes a change in a file, even if the client changed it since. Pure.

An unchanged file gets its old bytes; else lines are merged, or entries undone singly.
"""

import base64
from collections.abc import Iterable, Sequence
from contextlib import suppress
from copy import copy
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from mcp_hub.edit.entries import (
    copy_all,
    copy_entry,
    entry_at,
    held_at,
    line_of,
    names_in,
    place_of,
    read_data,
    remove,
    remove_all,
    same_data,
)
from mcp_hub.edit.writing import CannotEdit, merged
from mcp_hub.errors import ConfigError
from mcp_hub.onboarding.clients.entries import HUB

EntryPath = tuple[str, ...]
"""The keys to an entry; in a list, its name is the last."""
_UNKNOWN: Final = "?"
"""The digest while another program has still to write."""


def digest(content: bytes | None) -> str | None:
    return None if content is None else sha256(content).hexdigest()


class _ChangedBytes(msgspec.Struct):
    """The content after: `text` (Base64) replaces bytes `start` to `end`."""

    start: int
    end: int
    text: str


class FileState(msgspec.Struct):
    """A recorded file: old content, digest of the new one, changed entries."""

    path: str
    before: str | None
    """In Base64."""
    after: str | None
    delta: _ChangedBytes | None = None
    """None if there is no file afterwards, or another program has still to write."""
    entries: list[EntryPath] = []
    folders: list[str] = []
    """Folders that the change creates, innermost first."""

    def content(self) -> bytes | None:
        return None if self.before is None else base64.b64decode(self.before)

    def content_after(self) -> bytes | None:
        """The content after the change; None if there was no file."""
        if self.delta is None:
            return None
        before = self.content() or b""
        return before[: self.delta.start] + base64.b64decode(self.delta.text) + before[self.delta.end :]

    def change_to(self, after: bytes | None) -> None:
        self.after, self.delta = digest(after), None if after is None else _delta(self.content() or b"", after)

    def expect_other(self) -> None:
        self.after, self.delta = _UNKNOWN, None

    def become(self, fresh: "FileState") -> None:
        self.before, self.after, self.delta = fresh.before, fresh.after, fresh.delta


class Restored(msgspec.Struct, frozen=True):
    """The restored content; None: no file.

    `problems`: what stays, with file and line. `is_exact`: the client changed nothing. `is_open`: can be retried after
    a correction. `saved`: a copy of what was not restored.
    """

    content: bytes | None
    back: Sequence[str] = ()
    problems: Sequence[str] = ()
    is_exact: bool = False
    is_open: bool = False
    saved: Path | None = None


def state_of(path: Path, before: bytes | None, entries: Iterable[EntryPath], folders: Iterable[str] = ()) -> FileState:
    """The state before a change; `folders` do not exist yet."""
    encoded = None if before is None else base64.b64encode(before).decode()
    return FileState(str(path), encoded, None, entries=list(dict.fromkeys(entries)), folders=[*folders])


def restored(present: bytes | None, state: FileState) -> Restored:
    """The file with the change undone; `present` is its current content."""
    before = state.content()
    if digest(present) == state.after or present == before:
        return Restored(before, names_back(state, present, before), is_exact=True)
    if present is None:
        missing = names_back(state, None, before)
        message = f"{state.path} is gone, and {', '.join(missing)} with it."
        return Restored(None, problems=[message] if missing or not state.entries else (), is_exact=not missing)
    if not state.entries:
        return Restored(present, problems=[f"{state.path} has been changed since, and stays as it is."])
    try:
        change = _Change(state, present)
    except UnicodeDecodeError:
        message = f"{state.path} is not UTF-8 text any more. Save it as UTF-8, and try again."
        return Restored(present, problems=[message], is_open=True)
    except ConfigError as error:
        first = error.findings[0]
        line = f":{first.line}" if first.line else ""
        message = f"{state.path}{line}: {first.message} Then try again."
        return Restored(present, problems=[message], is_open=True)
    return change.turned_back()


def composed(older: FileState, newer: FileState) -> FileState:
    """Both changes of one file as one; the client's changes in between stay."""
    before = restored(newer.content(), older).content
    folders = dict.fromkeys([*newer.folders, *older.folders])
    state = state_of(Path(newer.path), before, [*older.entries, *newer.entries], folders)
    state.change_to(newer.content_after())
    return state


def with_added(
    result: bytes | None, present: bytes | None, states: Iterable[FileState]
) -> tuple[bytes | None, list[str]]:
    """The result with entries that changes added (an export may have no other copy), and what cannot be kept."""
    problems: list[str] = []
    for state in states:
        paths = [path for path in state.entries if path[-1] != HUB]
        contents = (state.content(), state.content_after(), present, result) if paths else ()
        try:
            data = [_data(content, state.path) for content in contents]
        except (ConfigError, UnicodeDecodeError):  # which the step says
            continue
        added = [
            path
            for path in paths
            if [entry_at(version, path) is None for version in data] == [True, False, False, True]
        ]
        for holder in dict.fromkeys(path[:-1] for path in added):
            chosen = [path for path in added if path[:-1] == holder]
            result = _with_entries(result, present, state.path, chosen, problems)
    return result, problems


def _with_entries(
    result: bytes | None, present: bytes | None, file: str, paths: Sequence[EntryPath], problems: list[str]
) -> bytes | None:
    name, text, source = Path(file).name, (result or b"").decode(), (present or b"").decode()
    with suppress(CannotEdit, ConfigError):
        return copy_all(text, name, paths, source).encode()
    for path in paths:
        try:
            text = copy_entry(text, name, path, source)
        except (CannotEdit, ConfigError) as problem:
            problems.append(f"{file}: {path[-1]} cannot stay: {problem}.")
    return text.encode() if text else result


def _delta(before: bytes, after: bytes) -> _ChangedBytes:
    shorter = min(len(before), len(after))
    start = _equal(lambda size: before[:size] == after[:size], shorter)
    size = _equal(lambda size: before[len(before) - size :] == after[len(after) - size :], shorter - start)
    return _ChangedBytes(start, len(before) - size, base64.b64encode(after[start : len(after) - size]).decode())


def _equal(is_equal: Any, limit: int) -> int:
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_equal(middle) else (low, middle - 1)
    return low


def names_back(state: FileState, old: bytes | None, new: bytes | None) -> list[str]:
    """Entries of the state in `new` but not in `old`, except the hub's."""
    try:
        before, after = (_data(content, state.path) for content in (old, new))
    except (ConfigError, UnicodeDecodeError):
        return []
    paths = [path for path in state.entries if path[-1] != HUB]
    return [path[-1] for path in paths if entry_at(before, path) is None and entry_at(after, path) is not None]


def _data(content: bytes | None, path: str) -> object:
    return None if content is None else read_data(content.decode(), Path(path).name)


class _Change:
    """A change of entries, to be undone in a newer content."""

    def __init__(self, state: FileState, present: bytes) -> None:
        contents = (state.content(), state.content_after(), present)
        self._state, self._name = state, Path(state.path).name
        self._before, self._after, self._present = ((content or b"").decode() for content in contents)
        self._old, self._new, self._current = (_data(content, state.path) for content in contents)
        self._problems: list[str] = []

    def turned_back(self) -> Restored:
        paths = [path for path in self._state.entries if self._is_ours(path)]
        text = self._merged(paths)
        if text is None:
            text = self._by_entry(paths)
        back = [path[-1] for path in paths if path[-1] != HUB and entry_at(self._old, path) is not None]
        data = read_data(text, self._name)
        missing = [name for name in back if not any(entry_at(data, path) for path in paths if path[-1] == name)]
        is_gone = self._state.before is None and not self._problems
        if is_gone and same_data(_without(data, paths), _without(self._new, paths), self._name):
            return Restored(None)
        return Restored(text.encode(), [name for name in back if name not in missing], self._problems)

    def _is_ours(self, path: EntryPath) -> bool:
        """Whether the entry is as the hub left it, or the hub's own."""
        old, new, current = (entry_at(data, path) for data in (self._old, self._new, self._current))
        if same_data(current, old, "") or current is None and new is not None and path[-1] != HUB:
            return False
        if path[-1] == HUB or same_data(current, new, ""):
            return True
        line = line_of(self._present, self._name, path)
        there = self._state.path if line is None else f"{self._state.path}:{line}"
        self._problems.append(f"{there}: {path[-1]} has been changed since, and stays as it is.")
        return False

    def _merged(self, paths: Sequence[EntryPath]) -> str | None:
        """By lines; None unless exactly right."""
        text = merged(self._after, self._before, self._present)
        if text is None:
            return None
        try:
            data = read_data(text, self._name)
        except ConfigError:
            return None
        is_right = all(same_data(entry_at(data, path), entry_at(self._old, path), "") for path in paths)
        remainders = [_without(version, paths) for version in (data, self._current)]
        return text if is_right and same_data(remainders[0], remainders[1], self._name) else None

    def _by_entry(self, paths: Sequence[EntryPath]) -> str:
        """Adds first, so that no list becomes empty."""
        text = self._present
        order = {path[:-1]: names_in(held_at(self._old, path[:-1])) for path in paths}
        ranks = {above: {name: rank for rank, name in enumerate(names)} for above, names in order.items()}
        back = [path for path in paths if entry_at(self._old, path) is not None]
        back.sort(key=lambda path: ranks[path[:-1]][path[-1]])
        missing = [path for path in back if entry_at(self._current, path) is None]
        for above in ranks:
            text = self._at_once(text, [path for path in missing if path[:-1] == above], is_back=True)
        for path in back:
            text = text if path in {*missing} else self._edited(text, path, "is not put back")
        gone = [path for path in paths if path not in {*back}]
        for above in ranks:
            text = self._at_once(text, [path for path in gone if path[:-1] == above], is_back=False)
        return text

    def _at_once(self, text: str, paths: Sequence[EntryPath], *, is_back: bool) -> str:
        failure = "is not put back" if is_back else "is not taken out"
        for size in (len(paths), len(paths) - 1):
            chosen = paths[len(paths) - size :]
            if size > 1:
                with suppress(CannotEdit):
                    if is_back:
                        return copy_all(text, self._name, chosen, self._before)
                    return remove_all(text, self._name, chosen)
            if size == len(paths) and paths:
                text = self._edited(text, paths[0], failure)
        middle = (len(paths) + 1) // 2
        for half in (paths[1:middle], paths[middle:]) if len(paths) > 1 else ():
            text = self._at_once(text, half, is_back=is_back)
        return text

    def _edited(self, text: str, path: EntryPath, failure: str) -> str:
        try:
            edited, data = text, read_data(text, self._name)
            if entry_at(data, path) is not None:
                edited = remove(text, self._name, place_of(data, path))
            if entry_at(self._old, path) is not None:
                return copy_entry(edited, self._name, path, self._before)
            return self._without_holder(edited, path[:-1])
        except CannotEdit as problem:
            line = line_of(text, self._name, path)
            there = self._state.path if line is None else f"{self._state.path}:{line}"
            self._problems.append(f"{there}: {path[-1]} {failure}: {problem}.")
            return text

    def _without_holder(self, text: str, holder: EntryPath) -> str:
        if not holder or held_at(self._old, holder) is not None or held_at(read_data(text, self._name), holder) != {}:
            return text
        try:
            return self._without_holder(remove(text, self._name, holder), holder[:-1])
        except CannotEdit:
            return text


def _without(data: object, paths: Iterable[EntryPath]) -> object:
    tree: Any = copy(data) if isinstance(data, dict) else {}
    for path in paths:
        _drop(tree, path)
    return tree


def _drop(tree: Any, path: EntryPath) -> None:
    key, *more = path
    if isinstance(tree, list):
        tree[:] = [item for item in tree if not (isinstance(item, dict) and item.get("name") == key)]
    elif isinstance(tree, dict) and key in tree:
        if more:
            tree[key] = copy(tree[key])
            _drop(tree[key], tuple(more))
            if tree[key] in ({}, [], None):
                del tree[key]
        else:
            del tree[key]

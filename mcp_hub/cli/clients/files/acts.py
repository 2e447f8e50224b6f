"""Acts: several files changed together, each with its content before, so that the last act can be undone."""

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.cli.clients.files.replace import (
    LARGEST,
    Changed,
    FileRefused,
    back_up,
    content_of,
    digest,
    drop_backup,
    locked,
    replace,
    target_of,
    unreadable,
    unwritable,
)
from mcp_hub.stores.locks import remove

_MOST: Final = 20
"""Acts that are kept to be undone."""
_LARGEST: Final = 4 * LARGEST
"""Bytes of a record, which has the content of each file in Base64."""
_UNKNOWN: Final = "?"
"""The digest of a file that another program writes, until it has."""


class FileChange(msgspec.Struct, frozen=True):
    """A file and its change: `edit` makes the new content of the present one; None stands for no file.

    `edit` is called again if the file changes meanwhile. It may raise `FileRefused`. `run` lets another program change
    the file instead; False if it could not, then `edit` does. It may raise `FileRefused`, too.
    """

    path: Path
    edit: Callable[[bytes | None], bytes | None]
    run: Callable[[], bool] | None = None


class FileState(msgspec.Struct):
    """A file in the record of an act: content before, and the digest of the one after."""

    path: str
    before: str | None
    """In Base64."""
    after: str | None

    def content(self) -> bytes | None:
        """The content before."""
        return None if self.before is None else base64.b64decode(self.before)


class Done(msgspec.Struct, frozen=True):
    """A file that was changed, or with a `problem` was not."""

    path: Path
    problem: FileRefused | None = None


class _Planned(msgspec.Struct):
    change: FileChange
    target: Path
    state: FileState
    is_first: bool

    @property
    def is_needed(self) -> bool:
        return self.state.after != digest(self.state.content())


class Act(msgspec.Struct):
    """The files that a command changed, and its title."""

    title: str
    files: list[FileState]


class Acts:
    """The acts of this user, the records of which are in the state folder, for nobody else's eyes."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "clients" / "acts"
        self._locks = state / "clients" / "locks"

    def do(self, title: str, changes: Sequence[FileChange], first: Sequence[FileChange] = ()) -> list[Done]:
        """Changes the files, and records it under this title; those that need no change are not in the result.

        The files of `first` come first: if one of them is refused, nothing else is changed. Raises `FileRefused`; what
        was changed before that can be undone.
        """
        with locked(self._folder, self._locks):
            return self._done(title, changes, first)

    def _done(self, title: str, changes: Sequence[FileChange], first: Sequence[FileChange]) -> list[Done]:
        planned = [_planned(one, is_first=True) for one in first] + [_planned(one, is_first=False) for one in changes]
        wanted = [one for one in planned if one.is_needed]
        act = Act(title, [one.state for one in wanted])
        record = self._path(self._last() + 1)
        done: list[Done] = []
        if wanted:
            self._write(record, act)  # before anything is changed
        for one in wanted:
            try:
                with locked(one.target, self._locks):
                    self._do_one(one, lambda: self._write(record, act))
            except FileRefused as problem:
                if one.change.run is None or digest(one.state.content()) == one.state.after:
                    act.files = [state for state in act.files if state is not one.state]  # it is as it was
                if one.is_first:
                    act.files = act.files[: len(done)]
                    self._end(record, act)
                    raise
                done.append(Done(one.change.path, problem))
            else:
                done.append(Done(one.change.path))
        self._end(record, act)
        return done

    def undo(self) -> Act | None:
        """Gives the files of the last act their content from before it; None if there is no act.

        Raises `FileRefused` if one of them has been changed since; then all stay as they are.
        """
        with locked(self._folder, self._locks):
            return self._undone()

    def _undone(self) -> Act | None:
        record = self._path(self._last())
        act = self._read(record)
        if act is None:
            return None
        paths = [Path(state.path) for state in act.files]
        present = {path: content_of(path) for path in paths}
        wanted = dict(present)
        for path, state in reversed([*zip(paths, act.files, strict=True)]):  # links of two clients may meet in one file
            if digest(wanted[path]) not in (state.after, digest(state.content())):
                said = f"{path} has been changed since, so nothing was undone. Edit it, or use the backup beside it."
                raise FileRefused("undo_drift", said)
            wanted[path] = state.content()
        for path, before in wanted.items():
            with locked(path, self._locks):
                if present[path] != before:
                    _swap(path, present[path], before)
        for state in act.files:
            drop_backup(Path(state.path), state.content())
        remove(record)
        return act

    def _do_one(self, planned: _Planned, record: Callable[[], None]) -> None:
        """Changes one file; if it has changed since it was read, once more from its new content."""
        change, target, state = planned.change, planned.target, planned.state
        for is_last in (False, True):
            before = content_of(target)
            if before != state.content():
                fresh = _state(change, target, before)
                state.before, state.after = fresh.before, fresh.after
                record()
            if before is not None:
                back_up(target, before)
            if change.run is not None:
                if self._was_run(change.run, target, state, record):
                    return
                before = content_of(target)
            after = change.edit(before)
            if state.after != digest(after):
                state.after = digest(after)
                record()
            try:
                replace(target, before, after)
            except Changed:
                if is_last:
                    raise _busy(target) from None
            else:
                return

    def _was_run(self, run: Callable[[], bool], target: Path, state: FileState, record: Callable[[], None]) -> bool:
        try:
            return run()
        finally:
            state.after = digest(content_of(target))
            record()

    def _last(self) -> int:
        return max((int(path.stem) for path in self._folder.glob("[0-9]*.json")), default=0)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.json"

    def _write(self, path: Path, act: Act) -> None:
        try:
            make_folder(self._folder)
        except OSError as problem:
            raise unwritable(self._folder, problem) from None
        replace(path, content_of(path, _LARGEST), msgspec.json.encode(act))

    def _read(self, path: Path) -> Act | None:
        content = content_of(path, _LARGEST)
        try:
            return None if content is None else msgspec.json.decode(content, type=Act)
        except (ValueError, RecursionError):
            raise unreadable(path, OSError(0, "it is damaged")) from None

    def _end(self, record: Path, act: Act) -> None:
        """Keeps the record of an act that changed something, and not too many."""
        if act.files:
            self._write(record, act)
        else:
            remove(record)
        for path in sorted(self._folder.glob("[0-9]*.json"))[:-_MOST]:
            remove(path)


def _planned(change: FileChange, *, is_first: bool) -> _Planned:
    target = target_of(change.path)
    return _Planned(change, target, _state(change, target, content_of(target)), is_first)


def _state(change: FileChange, target: Path, before: bytes | None) -> FileState:
    after = digest(change.edit(before)) if change.run is None else _UNKNOWN
    return FileState(str(target), None if before is None else base64.b64encode(before).decode(), after)


def _swap(path: Path, present: bytes | None, before: bytes | None) -> None:
    try:
        replace(path, present, before)
    except Changed:
        raise _busy(path) from None


def _busy(path: Path) -> FileRefused:
    said = f"{path} is being changed by another program. Quit that program, and try again."
    return FileRefused("client_file_changed", said)

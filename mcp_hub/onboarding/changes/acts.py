"""Acts: files changed together, with old contents, to be undone."""

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.folder import make_folder
from mcp_hub.onboarding.changes.restore import EntryPath, FileState, Restored, composed, digest, restored, state_of
from mcp_hub.onboarding.files import (
    LARGEST,
    FileRefused,
    back_up,
    content_of,
    drop_backup,
    drop_folders,
    locked,
    missing_folders,
    replace,
    target_of,
    unreadable,
    unwritable,
)
from mcp_hub.stores.locks import remove

_MOST: Final = 20
"""Acts that can be undone; older ones are merged into one change per file."""
_SAVED: Final = 100
"""Copies of files that could not be restored."""
_LARGEST: Final = 4 * LARGEST
"""Bytes of a record, with files in Base64."""


class FileChange(msgspec.Struct, frozen=True):
    """A change of one file; `edit` maps old content to new (None: no file), again if it changes meanwhile.

    By `run` another program changes it; False falls back to `edit`. Both may raise `FileRefused`. `entries`: those
    changed, to undo singly.
    """

    path: Path
    edit: Callable[[bytes | None], bytes | None]
    run: Callable[[], bool] | None = None
    entries: Sequence[EntryPath] = ()


Outcomes = dict[Path, FileRefused | None]
"""Why each needed change failed, None if it was made."""


class _Planned(msgspec.Struct):
    change: FileChange
    target: Path
    state: FileState
    is_first: bool

    @property
    def is_needed(self) -> bool:
        return self.state.after != digest(self.state.content())


class _Act(msgspec.Struct):
    """Files changed by one command. `was_tried`: an undo failed for the files left."""

    title: str
    files: list[FileState]
    was_tried: bool = False


class _Undone(msgspec.Struct, frozen=True):
    """`earlier`: the act that another undo would take back, or empty."""

    title: str
    files: Sequence[tuple[Path, Restored]]
    earlier: str = ""


class Acts:
    """This user's acts, recorded privately in the state folder."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "clients" / "acts"
        self._locks = state / "clients" / "locks"
        self._copies = state / "clients" / "saved"
        self._origin = self._folder / "origin.json"

    def do(self, title: str, changes: Sequence[FileChange], first: Sequence[FileChange] = ()) -> Outcomes:
        """Makes and records changes; returns the outcomes of those needed.

        If one of `first` is refused, nothing else changes. Raises `FileRefused`.
        """
        with locked(self._folder, self._locks):
            return self._change_all(title, changes, first)

    def _change_all(self, title: str, changes: Sequence[FileChange], first: Sequence[FileChange]) -> Outcomes:
        planned = [_planned(change, is_first=True) for change in first] + [
            _planned(change, is_first=False) for change in changes
        ]
        needed = [change for change in planned if change.is_needed]
        act = _Act(title, [change.state for change in needed])
        record = self._path(self._last() + 1)
        outcomes: Outcomes = {}
        if needed:
            self._write(record, act)  # before anything is changed
        for number, change in enumerate(needed):
            try:
                with locked(change.target, self._locks):
                    self._do_one(change, lambda: self._write(record, act))
            except FileRefused as problem:
                if change.change.run is None or digest(change.state.content()) == change.state.after:
                    act.files = [state for state in act.files if state is not change.state]  # it is as it was
                if change.is_first:
                    act.files = act.files[:number]
                    self._end(record, act)
                    raise
                outcomes[change.change.path] = problem
            else:
                outcomes[change.change.path] = None
        self._end(record, act)
        return outcomes

    def undo(
        self, only: Collection[Path] | None = None, refusal: Callable[[Path], FileRefused | None] = lambda _: None
    ) -> _Undone | None:
        """Undoes the last act, or its files in `only`; None without one.

        In a file changed since, undoes the act's entries alone. `refusal`: why a file cannot be written now. Skips an
        act that fails twice. Raises `FileRefused` for an unreadable record.
        """
        title, files = "", list[tuple[Path, Restored]]()
        with locked(self._folder, self._locks):
            for record in self._records():
                act = self._read(record)
                if act is None or not (
                    chosen := [state for state in act.files if only is None or Path(state.path) in only]
                ):
                    continue
                was_tried = act.was_tried
                tried = self._undone(record, act, chosen, refusal)
                title = act.title
                files += tried
                if not was_tried or any(not result.is_open for _, result in tried):
                    break
            earlier = "" if any(result.is_open for _, result in files) else self._title(only)
        return _Undone(title, files, earlier) if title else None

    def _title(self, only: Collection[Path] | None) -> str:
        """The title of the last act with a file in `only`, empty without one or for an unreadable record."""
        with suppress(FileRefused):
            for act in filter(None, map(self._read, self._records())):
                if any(only is None or Path(state.path) in only for state in act.files):
                    return act.title
        return ""

    def states(self, path: Path | None = None) -> list[FileState]:
        """All changes of a `target_of`, or of all files, last first. Raises `FileRefused`."""
        acts = [act for record in [*self._records(), self._origin] if (act := self._read(record)) is not None]
        return [state for act in acts for state in reversed(act.files) if path is None or state.path == str(path)]

    def save(self, name: str, content: bytes) -> Path:
        """Keeps a private copy of what could not be restored; the last hundred stay."""
        path = self._copies / name
        make_folder(self._copies)
        if not replace(path, content_of(path), content):
            raise _busy(path)
        for old in sorted(self._copies.iterdir(), key=lambda copy: copy.stat().st_mtime)[:-_SAVED]:
            remove(old)
        return path

    def _clean_up(self, target: Path, before: bytes | None, after: bytes | None) -> None:
        states = self.states(target) if after is None else []
        if states and states[-1].before is None:
            drop_backup(target, before)
            drop_folders(folder for state in states for folder in state.folders)

    def _undone(
        self, record: Path, act: _Act, chosen: Sequence[FileState], refusal: Callable[[Path], FileRefused | None]
    ) -> list[tuple[Path, Restored]]:
        files: list[tuple[Path, Restored]] = []
        texts: list[bytes] = []
        for state in reversed(chosen):  # links of two clients may meet in one file
            path = Path(state.path)
            needed = state.before is None and any(f"/{path.name}}}".encode() in text for text in texts)
            result = Restored(None) if needed else self._turned_back(record, state, refusal)
            if not result.is_exact and result.content is not None:
                texts.append(result.content)
            if not needed:
                files.append((path, result))
            if not result.is_open:
                act.files = [kept_file for kept_file in act.files if kept_file is not state]
        act.was_tried = bool(files) and all(result.is_open for _, result in files)
        self._end(record, act)
        return files

    def _turned_back(self, record: Path, state: FileState, refusal: Callable[[Path], FileRefused | None]) -> Restored:
        path = Path(state.path)
        try:
            target = target_of(path)  # which may be another one since: a person has put a link in its place
            with locked(target, self._locks):
                present, result = self._swapped(target, state, refusal)
        except FileRefused as problem:
            present, result = None, Restored(None, problems=[str(problem)], is_open=True)
        gone = (
            state.content() if result.problems else present if result.content is None and not result.is_exact else None
        )
        if gone is not None:
            return msgspec.structs.replace(result, saved=self.save(_copy_name(record, path), gone))
        drop_backup(path, state.content())
        self._clean_up(target, present, result.content)
        return result

    def _swapped(
        self, target: Path, state: FileState, refusal: Callable[[Path], FileRefused | None]
    ) -> tuple[bytes | None, Restored]:
        path = Path(state.path)
        for _ in range(2):
            present = content_of(target)
            result = restored(present, state)
            if result.content == present:
                return present, result
            if (problem := refusal(path)) is not None:
                raise problem
            if replace(target, present, result.content):
                return present, result
        raise _busy(path)

    def _do_one(self, planned: _Planned, record: Callable[[], None]) -> None:
        """Retries once if the file has changed."""
        change, target, state = planned.change, planned.target, planned.state
        for is_last in (False, True):
            before = content_of(target)
            if before != state.content():
                fresh = _state(change, target, before)
                state.become(fresh)
                record()
            if before is not None:
                back_up(target, before)
            if change.run is not None:
                if self._was_run(change.run, target, state, record):
                    return
                before = content_of(target)
            after = change.edit(before)
            if state.after != digest(after):
                state.change_to(after)
                record()
            if replace(target, before, after):
                self._clean_up(target, before, after)
                return
            if is_last:
                raise _busy(target)

    def _was_run(self, run: Callable[[], bool], target: Path, state: FileState, record: Callable[[], None]) -> bool:
        try:
            return run()
        finally:
            state.change_to(content_of(target))
            record()

    def _records(self) -> list[Path]:
        return sorted(self._folder.glob("[0-9]*.json"), reverse=True)

    def _last(self) -> int:
        return max((int(path.stem) for path in self._records()), default=0)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08}.json"

    def _write(self, path: Path, act: _Act) -> None:
        try:
            make_folder(self._folder)
        except OSError as problem:
            raise unwritable(self._folder, problem) from None
        replace(path, content_of(path, _LARGEST), msgspec.json.encode(act))

    def _read(self, path: Path) -> _Act | None:
        content = content_of(path, _LARGEST)
        try:
            return None if content is None else msgspec.json.decode(content, type=_Act)
        except (ValueError, RecursionError):
            raise unreadable(path, OSError(0, "it is damaged")) from None

    def _end(self, record: Path, act: _Act) -> None:
        if act.files:
            self._write(record, act)
        else:
            remove(record)
        for path in reversed(self._records()[_MOST:]):
            self._into_origin(path)
            remove(path)

    def _into_origin(self, record: Path) -> None:
        act, origin = self._read(record), self._read(self._origin) or _Act("earlier changes", [])
        for state in act.files if act is not None else ():
            if not state.entries:
                continue
            older = next((file for file in origin.files if file.path == state.path), None)
            if older is None:
                origin.files.append(state)
            else:
                origin.files[origin.files.index(older)] = composed(older, state)
        if origin.files:
            self._write(self._origin, origin)


def _planned(change: FileChange, *, is_first: bool) -> _Planned:
    target = target_of(change.path)
    return _Planned(change, target, _state(change, target, content_of(target)), is_first)


def _state(change: FileChange, target: Path, before: bytes | None) -> FileState:
    state = state_of(target, before, change.entries, missing_folders(target) if before is None else ())
    if change.run is None:
        state.change_to(change.edit(before))
    else:
        state.expect_other()
    return state


def _copy_name(record: Path, path: Path) -> str:
    return f"{record.stem}-{sha256(os.fsencode(path)).hexdigest()[:6]}-{path.name}"


def _busy(path: Path) -> FileRefused:
    message = f"{path} is being changed by another program. Quit that program, and try again."
    return FileRefused("client_file_changed", message)

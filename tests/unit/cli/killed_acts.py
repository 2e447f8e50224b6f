"""A program that is killed at every nth step of an act, and looks at what is left of the files each time.

Its arguments are a folder and n. Prints the number of steps of installing and of undoing. Its exit code is not 0 if a
byte was lost.
"""

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType

from mcp_hub.onboarding.changes.acts import Acts, FileChange
from mcp_hub.onboarding.files import BACKUP

BEFORE = {"mcp.json": b'{"a": 1}', "config.toml": b"a = 1\n", "gone.yaml": b"a: 1\n", "new.json": None}
AFTER = {"mcp.json": b'{"a": 1, "hub": 2}', "config.toml": b"a = 1\n[hub]\n", "gone.yaml": None, "new.json": b"{}"}
EVENTS = ("open", "os.")
MOST = 1000


def prepared(folder: Path) -> Acts:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in BEFORE.items():
        if content is not None:
            (folder / name).write_bytes(content)
    (folder / "mcp.json").rename(folder / "real.json")
    (folder / "mcp.json").symlink_to("real.json")
    return Acts(folder / "state")


def contents(folder: Path) -> dict[str, bytes | None]:
    return {name: (folder / name).read_bytes() if (folder / name).exists() else None for name in BEFORE}


def to(content: bytes | None) -> Callable[[bytes | None], bytes | None]:
    return lambda _: content


def install(done: Acts, folder: Path) -> None:
    done.do("test", [FileChange(folder / name, to(content)) for name, content in AFTER.items()])


class Killer:
    """Kills this process before its step of this number: whatever Python announces of files, flushes and writes."""

    def __init__(self, step: int) -> None:
        self._left = step

    def step(self, event: str, args: object = None) -> None:
        if event.startswith(EVENTS):
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    def flush(self, fd: object) -> None:
        self.step("os.fsync")

    def write(self, frame: FrameType, event: str, called: object) -> None:
        if event == "c_call" and getattr(called, "__name__", "") == "write":
            self.step("os.write")


def killed_at(step: int, work: Callable[[], object]) -> bool:
    """Whether the work was killed before its step of this number."""
    child = os.fork()
    if child == 0:
        killer = Killer(step)
        os.fsync = killer.flush  # not announced; what was written survives the process without it
        sys.addaudithook(killer.step)
        sys.setprofile(killer.write)
        work()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or status == 0, f"step {step}: the work failed"
    return os.WIFSIGNALED(status)


def check(folder: Path, step: int) -> None:
    """Each file is as it was or as it is to be, and a file that was removed or replaced has a backup."""
    for name, found in contents(folder).items():
        assert found in (BEFORE[name], AFTER[name]), f"step {step}: {name} holds {found!r}"
        backup = folder / f"{'real.json' if name == 'mcp.json' else name}{BACKUP}"
        if found != BEFORE[name] and BEFORE[name] is not None:
            assert backup.read_bytes() == BEFORE[name], f"step {step}: {name} does not have its backup"


def steps_of_install(folder: Path, stride: int) -> int:
    for step in range(1, MOST, stride):
        done = prepared(folder)
        was_killed = killed_at(step, partial(install, done, folder))
        check(folder, step)
        if step % 2:  # at once back, or once more and then back
            install(done, folder)
            assert contents(folder) == AFTER, f"step {step}: the second time failed"
        while done.undo() is not None:
            pass
        assert contents(folder) == BEFORE, f"step {step}: undo gave {contents(folder)}"
        if not was_killed:
            return step
    raise AssertionError("it has no end")


def steps_of_undo(folder: Path, stride: int) -> int:
    for step in range(1, MOST, stride):
        done = prepared(folder)
        install(done, folder)
        was_killed = killed_at(step, done.undo)
        for name, found in contents(folder).items():
            assert found in (BEFORE[name], AFTER[name]), f"step {step}: {name} holds {found!r}"
        done.undo()
        assert contents(folder) == BEFORE, f"step {step}: undo once more gave {contents(folder)}"
        if not was_killed:
            return step
    raise AssertionError("it has no end")


def no_flush(fd: object) -> None:
    """In place of a flush to the disk, which takes most of the time."""


if __name__ == "__main__":
    os.fsync = no_flush
    place = Path(sys.argv[1]) / "files"
    every = int(sys.argv[2])
    print(steps_of_install(place, every), steps_of_undo(place, every))

"""Decisions of Windows, as golden cases on every system, and the order of its calls, recorded."""

import itertools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import platformdirs.macos
import platformdirs.unix
import platformdirs.windows
import pytest
from platformdirs.windows import get_win_folder_from_env_vars

from mcp_hub import windows
from mcp_hub.attach.system import user_folder
from mcp_hub.config import trust
from mcp_hub.config.trust import problem_of_config, problem_of_secret

ANN = "S-1-5-21-1-2-3-1001"
BOB = "S-1-5-21-1-2-3-1002"
PATH = 'C:\\bin;;.;relative;"C:\\Program Files\\nodejs";D:\\tools\\'
CMD = '"C:\\W\\System32\\cmd.exe" /d /e:on /v:off /s /c'
FILES = {
    *("C:\\bin\\tool", "C:\\bin\\tool.py", "C:\\bin\\both.cmd", "C:\\bin\\both.exe", "relative\\near.exe", "near.exe"),
    *("C:\\Program Files\\nodejs\\npx.cmd", "D:\\tools\\node.exe", "D:\\tools\\a.b.exe"),
}


@pytest.mark.parametrize(
    ("command", "pathext", "program"),
    [
        ("npx", ".COM;.EXE;.BAT;.CMD", "C:\\Program Files\\nodejs\\npx.cmd"),
        ("NODE.EXE", None, None),  # the file system of the test tells capitals apart
        ("node.exe", None, "D:\\tools\\node.exe"),
        ("both", ".COM;.EXE;.BAT;.CMD", "C:\\bin\\both.exe"),
        ("both", ".CMD;.EXE", "C:\\bin\\both.cmd"),
        ("a.b", None, "D:\\tools\\a.b.exe"),
        ("tool", ".PY;.EXE", None),  # neither without an extension, nor a document of Python
        ("near", None, None),  # not in the current folder, nor in a relative one
        ("D:\\tools\\node", None, "D:\\tools\\node.exe"),
        (".\\near", None, None),
    ],
)
def test_a_program_is_looked_for_by_pathext_in_absolute_folders(
    command: str, pathext: str | None, program: str | None
) -> None:
    env = {"PATH": PATH, **({} if pathext is None else {"PATHEXT": pathext})}
    assert windows.find_program(command, env, FILES.__contains__) == program


@pytest.mark.parametrize(
    ("program", "args", "line"),
    [
        (
            "C:\\n\\node.exe",
            ["a b", 'say "x"', "c:\\d\\", "", "%PATH%"],
            'C:\\n\\node.exe "a b" "say \\"x\\"" c:\\d\\ "" %PATH%',
        ),
        ("C:\\n\\npx.cmd", ["-y", "@scope/x@1"], f'{CMD} ""C:\\n\\npx.cmd" -y "@scope/x@1""'),
        ("C:\\n\\x.BAT", ["a,b;c=d", "x (1)\\", ""], f'{CMD} ""C:\\n\\x.BAT" "a,b;c=d" "x (1)\\\\" """'),
    ],
)
def test_a_line_gives_a_program_exactly_its_arguments(program: str, args: list[str], line: str) -> None:
    assert windows.command_line(program, args, {"SYSTEMROOT": "C:\\W"}) == line


@pytest.mark.parametrize("text", ['"', "%PATH%", "!x!", "a&b", "a|b", "a^b", "<a", ">b", "a\nb", "a\rb", "\x1a", "a\0"])
def test_a_batch_file_gets_nothing_that_cmd_would_read(text: str) -> None:
    for program, args in (("C:\\npx.cmd", ["-y", text]), (f"C:\\{text}\\npx.bat", [])):
        with pytest.raises(windows._LineRefused):
            windows.command_line(program, args, {})
    with pytest.raises(windows._LineRefused, match="8191"):
        windows.command_line("C:\\npx.cmd", ["x" * 9000], {})


def test_the_words_of_an_editor_keep_backslashes() -> None:
    env = {"PATH": PATH, "SYSTEMROOT": "C:\\W"}
    line = windows.editor_line('"C:\\Program Files\\nodejs\\npx.cmd" --wait', "D:\\a b.yaml", env, FILES.__contains__)
    assert line == f'{CMD} ""C:\\Program Files\\nodejs\\npx.cmd" --wait "D:\\a b.yaml""'
    assert windows.editor_line("node", "x", env, FILES.__contains__) == "D:\\tools\\node.exe x"
    for missing in ("near", ""):
        with pytest.raises(FileNotFoundError):
            windows.editor_line(missing, "x", env, FILES.__contains__)


PRIVATE = f"O:{ANN}G:{ANN}D:PAI(A;OICI;FA;;;SY)(A;OICI;FA;;;BA)(A;OICI;FA;;;{ANN})"


@pytest.mark.parametrize(
    ("descriptor", "readers", "writers"),
    [
        (PRIVATE, (), ()),
        (PRIVATE + "S:AI(AU;SAFA;FA;;;WD)", (), ()),  # who is watched says nothing
        (f"O:BAD:(A;;FA;;;{ANN})", (), ()),
        (f"O:{BOB}D:(A;;FA;;;{ANN})", (BOB,), (BOB,)),  # an owner can change the list
        (f"{PRIVATE}(A;;FR;;;BU)", ("all users of this machine",), ()),
        (f"{PRIVATE}(A;;0x1301bf;;;AU)", ("all users who log in",), ("all users who log in",)),  # of a second disk
        (f"{PRIVATE}(A;;0x1200a9;;;WD)(A;;WO;;;{BOB})", ("everyone", BOB), (BOB,)),
        (f"{PRIVATE}(A;OICIIO;FA;;;WD)", (), ()),  # for what is made in the folder
        (f"{PRIVATE}(A;OICIIO;GA;;;CO)(A;;FA;;;OW)", (), ()),
        (f"O:{ANN}D:(D;;FA;;;{BOB})(A;;FA;;;{BOB})(A;;FA;;;{ANN})", (), ()),
        (f"O:{ANN}D:(A;;FA;;;{BOB})(D;;FA;;;{BOB})", (BOB,), (BOB,)),
        (f'O:{ANN}D:(XA;;FA;;;WD;(@User.x == "a"))', ("everyone",), ("everyone",)),
        (f"O:{ANN}D:(A;;??;;;{BOB})", (BOB,), (BOB,)),  # rights that are not understood are all
        (f"O:{ANN}D:NO_ACCESS_CONTROL", ("everyone",), ("everyone",)),
        (f"O:{ANN}", ("everyone",), ("everyone",)),
        (f"O:{ANN}D:", (), ()),  # an empty list gives nobody a right
        ("", ("everyone",), ("everyone",)),
    ],
)
def test_others_are_named_who_can_read_or_write_a_file(
    descriptor: str, readers: tuple[str, ...], writers: tuple[str, ...]
) -> None:
    assert windows.others_in(descriptor, ANN, "read") == readers
    assert windows.others_in(descriptor, ANN, "write") == writers


class Recorder:
    """The calls of Windows, noted in place of being made."""

    def __init__(self, error: int = 0, descriptor: str = PRIVATE, fails: str = "") -> None:
        self.calls: list[tuple[object, ...]] = []
        self._error = error
        self._descriptor = descriptor
        self._fails = fails

    def _note(self, name: str, *about: object) -> None:
        self.calls.append((name, *about))
        if name == self._fails:
            raise OSError(name)

    def lock(self, file: int, flags: int, offset: int) -> int:
        self._note("lock", file, flags, offset)
        return self._error

    def descriptor(self, path: str) -> str:
        self._note("descriptor", path)
        return self._descriptor

    def user(self) -> str:
        return ANN

    def open_job(self, limits: int) -> int:
        self._note("open_job", limits)
        return 7

    def assign(self, job: int, pid: int) -> None:
        self._note("assign", job, pid)

    def resume(self, pid: int) -> None:
        self._note("resume", pid)

    def close(self, handle: int) -> None:
        self._note("close", handle)


@pytest.mark.parametrize(("shared", "flags"), [(True, 1), (False, 3)])
def test_a_lock_is_on_a_byte_without_content_and_never_waits(shared: bool, flags: int) -> None:
    free, taken, broken = Recorder(), Recorder(33), Recorder(5)
    assert windows.lock_region(4, shared=shared, calls=free) and free.calls == [("lock", 4, flags, 1 << 62)]
    assert not windows.lock_region(4, shared=shared, calls=taken)
    with pytest.raises(OSError, match="error 5"):
        windows.lock_region(4, shared=shared, calls=broken)


class Process:
    """A started process, whose end is noted by the recorder."""

    pid = 99

    def __init__(self, recorder: Recorder, seconds_needed: float) -> None:
        self._recorder = recorder
        self._seconds = seconds_needed

    def wait(self, seconds: float) -> int:
        if seconds < self._seconds:
            raise subprocess.TimeoutExpired("x", seconds)
        return 3

    def kill(self) -> None:
        self._recorder.calls.append(("kill",))


def starter(recorder: Recorder, needed: float = 0) -> Callable[..., Any]:
    def start(line: str, **options: Any) -> Process:
        recorder.calls.append(("start", line, options["creationflags"]))
        return Process(recorder, needed)

    return start


START = ("start", "C:\\x.exe a", 0x08000004)
JOB = ("open_job", 0x2000)


def run(recorder: Recorder, seconds: float = 5, needed: float = 0) -> int:
    start = starter(recorder, needed)
    return windows.run_program("C:\\x.exe", ["a"], {}, "C:\\", seconds, calls=recorder, start=start)


def test_program_is_in_its_job_before_it_runs_and_ends_with_it_even_late() -> None:
    recorder = Recorder()
    assert run(recorder) == 3
    assert recorder.calls == [JOB, START, ("assign", 7, 99), ("resume", 99), ("close", 7)]
    recorder = Recorder()
    with pytest.raises(subprocess.TimeoutExpired):
        run(recorder, seconds=1, needed=2)
    assert recorder.calls[-2:] == [("kill",), ("close", 7)]


@pytest.mark.parametrize("fails", ["assign", "resume"])
def test_a_program_that_cannot_be_in_its_job_never_runs_on(fails: str) -> None:
    recorder = Recorder(fails=fails)
    with pytest.raises(OSError, match=fails):
        run(recorder)
    assert recorder.calls[-2:] == [("kill",), ("close", 7)]


def test_the_access_list_of_a_file_counts_on_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = os.stat(tmp_path)
    monkeypatch.setattr(trust, "effective_user", lambda: None)
    open_to_all = Recorder(descriptor=f"{PRIVATE}(A;;FA;;;WD)")
    for calls, is_private in ((Recorder(), True), (open_to_all, False), (Recorder(fails="descriptor"), True)):
        monkeypatch.setattr(windows, "_calls", lambda calls=calls: calls)
        written, readable = problem_of_config(state, {}, path=tmp_path), problem_of_secret(state, tmp_path)
        assert (written is None, readable is None) == (is_private, is_private)
        assert problem_of_config(state, {trust.OVERRIDE: "1"}, path=tmp_path) is None
    assert written is None
    monkeypatch.setattr(windows, "_calls", lambda: open_to_all)
    written = problem_of_config(state, {}, path=tmp_path)
    assert written is not None and "by everyone, who could have the hub run any command" in written
    assert f'icacls "{tmp_path}" /inheritance:r /grant:r "%USERNAME%:(OI)(CI)F"' in written


def test_off_windows_nothing_of_it_is_called() -> None:
    assert windows.others_who_may("read", "x") == ()
    with pytest.raises(OSError, match="not Windows"):
        windows.lock_region(0, shared=True)


USUAL = {"HOME": "/home/ann", "USERPROFILE": "C:\\Users\\ann", "LOCALAPPDATA": "D:\\Local"}
XDG = {"XDG_CONFIG_HOME": "/x/config", "XDG_STATE_HOME": "/x/state"}


@pytest.mark.parametrize(("kind", "more"), [*itertools.product(("config", "state"), ({}, XDG))])
def test_the_folders_of_each_system_are_those_of_platformdirs(
    kind: str, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    env = {**USUAL, **more}
    for name in (*USUAL, *XDG):
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(platformdirs.windows, "get_win_folder", get_win_folder_from_env_vars)
    classes: dict[str, Any] = {
        "linux": platformdirs.unix.Unix,
        "darwin": platformdirs.macos.MacOS,
        "win32": platformdirs.windows.Windows,
    }
    for platform, folders in classes.items():
        usual = getattr(folders("mcp-hub"), f"user_{kind}_dir")
        if platform == "win32":
            usual = usual.replace("/", "\\")
        assert user_folder(kind, env, platform) == usual

"""Windows around WSL: its user, its drives, and the command for Linux programs.

`wsl.exe` splits the words after `-e` like the C runtime; `-d` and `-u` values end at a blank (WSL's source).
"""

import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.attach.system import account, user
from mcp_hub.clock import SystemClock
from mcp_hub.config.load.foreign_windows import linux_path
from mcp_hub.files import read_file
from mcp_hub.onboarding.clients.entries import Command
from mcp_hub.onboarding.files import FileRefused

_CONF: Final = "etc/wsl.conf"
_LARGEST: Final = 64 << 10
_USUAL_ROOT: Final = "/mnt/"
_KERNEL: Final = "proc/sys/kernel/osrelease"
_INTEROP: Final = "proc/sys/fs/binfmt_misc/WSLInterop"
_SYSTEM: Final = "c/Windows/System32"
_SECONDS: Final = 10.0
_SECTION: Final = re.compile(r"\[(?P<name>[A-Za-z0-9]+)\]\s*(?:#.*)?")
_KEY: Final = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9]*)[ \t]*=(?P<value>.*)")
_VALUE: Final = re.compile(r'"(?P<quoted>(?:[^"\\]|\\.)*)"|\\(?P<escape>.)|(?P<comment>#.*)|(?P<plain>[^"\\#]+)')
_PROFILE: Final = re.compile(r"[A-Za-z]:\\[^\0-\x1f\"<>|?*:]+")
_NAME: Final = re.compile(r"[A-Za-z0-9._][A-Za-z0-9._-]{0,254}")
"""Names that `wsl.exe` reads as one word, not as an option."""
_UNPLAIN: Final = re.compile(r"[\0-\x1f\x7f\"%&|<>^!\\\ud800-\udfff]")
"""Characters that `cmd.exe` or the C runtime may interpret: some clients use `cmd /c`."""
_NOT_PEOPLE: Final = frozenset(
    ("public", "default", "default user", "all users", "defaultuser0", "defaultapppool", "wdagutilityaccount")
)
_CODE_PAGES: Final = (
    *("utf-8-sig", "cp437", "cp850", "cp852", "cp866", "cp1252", "cp1250", "cp1251", "cp932", "gbk", "cp949", "cp950"),
    *("cp737", "cp775", "cp855", "cp857", "cp858", "cp861", "cp862", "cp863", "cp864", "cp865", "cp869", "cp874"),
    *("cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258"),
)
"""Console encodings; the existing folder shows the right one."""


class WindowsSide(msgspec.Struct, frozen=True):
    """Windows, its user, and its name for this Linux.

    `root`: folder of the drives. `program`: `wsl.exe` with its folder, so that no other such file is started.
    """

    root: Path
    home: Path
    distribution: str
    user: str
    program: str = "wsl.exe"

    @property
    def place(self) -> str:
        """The Linux in which Windows clients start the hub."""
        return f"the distribution {self.distribution}, user {self.user}"


class _Machine(msgspec.Struct, frozen=True):
    """The sources of the search: files below `root`, user name, and `run`, which returns a program's output."""

    root: Path
    user: str
    run: Callable[[Sequence[str], Path, Mapping[str, str]], bytes]

    @classmethod
    def here(cls) -> "_Machine":
        return cls(Path("/"), _user(), _printed)


def windows_side(env: Mapping[str, str]) -> WindowsSide | str | None:
    """Windows around this Linux; None outside WSL; the reason if the user's files are not found.

    May run Windows programs for up to 30 s; cached.
    """
    names = ("WSL_DISTRO_NAME", "WSL_INTEROP", "PATH", "USERPROFILE")
    chosen = tuple((name, env[name]) for name in names if name in env)
    return _cached(_Machine.here, chosen) if sys.platform == "linux" else None


@lru_cache(maxsize=8)
def _cached(machine: Callable[[], _Machine], env: tuple[tuple[str, str], ...]) -> WindowsSide | str | None:
    return side_of(dict(env), machine())


def side_of(env: Mapping[str, str], machine: _Machine) -> WindowsSide | str | None:
    """`windows_side` of `machine`."""
    if not is_wsl(env, machine.root):
        return None
    settings = wsl_settings(_text(machine.root / _CONF))
    root = machine.root / drives_root(settings).lstrip("/")
    if not os.path.isdir(root / "c"):
        message = f"the drive C: of Windows is not at {root}/c"
        return message if "WSL_DISTRO_NAME" in env else None  # a container has the same kernel
    home = _home(env, machine, root, _can_run(settings, machine.root))
    if home is None:
        message = f"the folder of the Windows user in {root}/c/Users is not clear"
        return rf"{message}. Name it, for example: export USERPROFILE='C:\Users\NAME'"
    there = (root / _SYSTEM / "wsl.exe").is_file()
    program = r"C:\Windows\System32\wsl.exe" if there else "wsl.exe"
    return WindowsSide(
        root=root, home=home, distribution=env.get("WSL_DISTRO_NAME", ""), user=machine.user, program=program
    )


def is_wsl(env: Mapping[str, str], root: Path = Path("/")) -> bool:
    return bool(env.get("WSL_DISTRO_NAME")) or "microsoft" in _text(root / _KERNEL).lower()


def wsl_settings(text: str) -> dict[str, str]:
    """`/etc/wsl.conf` by lower-case `section.key`; the first of duplicates counts."""
    settings: dict[str, str] = {}
    section = ""
    for line in text.splitlines():
        if (match := _SECTION.fullmatch(line.strip())) is not None:
            section = match["name"].lower()
        elif (match := _KEY.fullmatch(line.strip())) is not None:
            settings.setdefault(f"{section}.{match['key'].lower()}", _plain(match["value"]))
    return settings


def _plain(text: str) -> str:
    parts: list[str] = []
    for match in _VALUE.finditer(text.strip()):
        if match["comment"] is not None:
            break
        quoted = match["quoted"]
        parts.append(re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else match["escape"] or match["plain"] or "")
    return "".join(parts).strip()


def drives_root(settings: Mapping[str, str]) -> str:
    """The mount folder: from `wsl.conf` if absolute, else the default."""
    written = settings.get("automount.root", "")
    is_path = written.startswith("/") and ".." not in written.split("/") and written.isprintable()
    return written if is_path else _USUAL_ROOT


def _can_run(settings: Mapping[str, str], root: Path) -> bool:
    is_off = settings.get("interop.enabled", "").lower() in ("false", "0", "off", "no")
    return not is_off and not _text(root / _INTEROP).startswith("disabled")


def _home(env: Mapping[str, str], machine: _Machine, root: Path, can_run: bool) -> Path | None:
    for answer in _answers(env, machine, root, can_run):
        if (folder := _profile(answer, root)) is not None:
            return folder
    return only_person(root / "c/Users", machine.user)


def _answers(env: Mapping[str, str], machine: _Machine, root: Path, can_run: bool) -> Iterator[bytes]:
    if (written := env.get("USERPROFILE")) is not None:  # by WSLENV, or of this person
        yield os.fsencode(written)
    folder = root / "c"
    # not the working directory, which may be a project of somebody else
    path = os.pathsep.join(entry for entry in env.get("PATH", "").split(os.pathsep) if os.path.isabs(entry))
    if can_run and (program := shutil.which("wslvar", path=path)) is not None:
        yield machine.run((program, "USERPROFILE"), folder, env)
    usual = root / _SYSTEM / "cmd.exe"
    program = shutil.which("cmd.exe", path=path) or (str(usual) if usual.is_file() else None)
    if can_run and program is not None:
        # cmd.exe cannot work in a folder of Linux, so it starts on a drive; `echo` would run a name that follows an &
        answer = machine.run((program, "/c", "set", "USERPROFILE"), folder, env)
        yield answer or machine.run((program, "/c", "echo", "%USERPROFILE%"), folder, env)


def _profile(answer: bytes, root: Path) -> Path | None:
    for text in _readings(answer):
        for line in (raw_line.strip().removeprefix("USERPROFILE=") for raw_line in reversed(text.splitlines())):
            is_path = _PROFILE.fullmatch(line) and ".." not in line.split("\\")
            path = linux_path(line, str(root)) if is_path else line if line.startswith(f"{root}/") else None
            if path is not None and ".." not in path.split("/") and len(Path(path).relative_to(root).parts) > 1:
                if os.path.isdir(path):
                    return Path(path.rstrip("/"))
    return None


def _readings(answer: bytes) -> Iterator[str]:
    if b"\0" in answer:
        yield answer.decode("utf-16-le" if answer[1:2] == b"\0" else "utf-16", "replace").lstrip("\ufeff")
    for encoding in _CODE_PAGES:
        try:
            yield answer.decode(encoding)
        except UnicodeDecodeError:
            continue


def only_person(users: Path, user: str) -> Path | None:
    """The only writable profile; of several, the one named like the Linux user; else None."""
    try:
        names = sorted(os.listdir(users))
    except OSError:
        return None
    folders = [users / name for name in names if name.lower() not in _NOT_PEOPLE]
    writable = [
        folder for folder in folders if folder.is_dir() and not folder.is_symlink() and os.access(folder, os.W_OK)
    ]
    people = [folder for folder in writable if os.access(folder / "AppData", os.W_OK)] or writable
    if len(people) > 1:
        people = [folder for folder in people if folder.name.casefold() == user.casefold()]
    return people[0] if len(people) == 1 else None


def through_wsl(command: Command, side: WindowsSide) -> Command:
    """The Windows command line for a Linux `command`. Raises `FileRefused` for texts that Windows may misread."""
    for name, value in (("name of the WSL distribution", side.distribution), ("name of the Linux user", side.user)):
        if not value:
            message = "Run the command in a shell of WSL, where WSL_DISTRO_NAME has it"
            raise FileRefused("wsl_unplain", f"The {name} is not known. {message}.")
        if not _NAME.fullmatch(value):
            message = "which wsl.exe may read in another way. Give it one of letters, digits and . _ - only"
            raise FileRefused("wsl_unplain", f'The {name} is "{value}", {message}.')
    for word in (command.program, *command.args):
        if _UNPLAIN.search(word):
            message = 'has a character that Windows may read in another way (" % & | < > ^ ! \\). Move or rename it'
            raise FileRefused("wsl_unplain", f'"{word}" {message}.')
    start = ("-d", side.distribution, "-u", side.user, "--cd", "~", "-e")
    return Command(side.program, (*start, command.program, *command.args))


def _text(path: Path) -> str:
    try:
        return read_file(path, _LARGEST).data.decode("utf-8-sig", "replace")
    except (OSError, ValueError):
        return ""


def _printed(argv: Sequence[str], folder: Path, env: Mapping[str, str]) -> bytes:
    if sys.platform == "win32":
        return b""
    else:
        try:
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
                env=dict(env), start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError):
            return b""
        try:
            with suppress(OSError):
                return _read(process)
            return b""
        finally:
            with suppress(OSError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(1.0)


def _read(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    clock, data = SystemClock(), b""
    end = clock.now() + _SECONDS
    with process.stdout as out, selectors.DefaultSelector() as selector:
        selector.register(out, selectors.EVENT_READ)
        while (seconds := end - clock.now()) > 0 and len(data) < _LARGEST:
            if selector.select(seconds):
                part = os.read(out.fileno(), _LARGEST)
                if not part:
                    return data
                data += part
    return b""


def _user() -> str:
    entry = account(user())
    return "" if entry is None else entry[0]

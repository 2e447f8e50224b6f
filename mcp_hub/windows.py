"""Windows: pure decisions that differ there, and its calls, only simulated in tests.

Sources: LockFileEx, CreateProcessW, Job Objects, Security Descriptor String Format, cmd.exe (Microsoft Learn).
"""

import ntpath
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

_FAIL_AT_ONCE, _EXCLUSIVE = 1, 2
_LOCK_OFFSET: Final = 1 << 62
"""The locked byte, where no file has content: locks are mandatory."""
_LOCKED: Final = (33, 997)
"""ERROR_LOCK_VIOLATION, and ERROR_IO_PENDING."""
_SHELL_READS: Final = frozenset('"%!^&|<>')
_LONGEST_LINE: Final = 8191
"""Characters that cmd.exe reads."""
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.:/\\+-]+")
_STARTABLE: Final = (".com", ".exe", ".bat", ".cmd")
"""Extensions of programs."""
_SCRIPTS: Final = (".bat", ".cmd")

Right = Literal["read", "write"]
_GENERIC: Final = 0x10000000 | 0x40000 | 0x80000  # all, and what gives the rest: WRITE_DAC and WRITE_OWNER
_MASKS: Final[Mapping[Right, int]] = {
    "read": _GENERIC | 0x80000000 | 0x1,
    "write": _GENERIC | 0x40000000 | 0x10000 | 0x2 | 0x4 | 0x40,
}
_RIGHTS: Final = {
    **{"GA": 0x10000000, "GR": 0x80000000, "GW": 0x40000000, "GX": 0x20000000},
    **{"RC": 0x20000, "SD": 0x10000, "WD": 0x40000, "WO": 0x80000},
    **{"FA": 0x1F01FF, "FR": 0x120089, "FW": 0x120116, "FX": 0x1200A0},
    **{"CC": 0x1, "DC": 0x2, "LC": 0x4, "SW": 0x8, "RP": 0x10, "WP": 0x20, "DT": 0x40, "LO": 0x80, "CR": 0x100},
}
_TRUSTED: Final = frozenset(
    (
        *("SY", "S-1-5-18", "BA", "S-1-5-32-544", "DA", "EA"),
        *("OW", "S-1-3-4", "CO", "S-1-3-0"),  # the owner, who is looked at, too
        "S-1-5-80-956008885-3418522649-1831038044-1853292631-2271478464",  # the installer of Windows
    )
)
"""The system and its administrators."""
_NAMES: Final = {
    **{"WD": "everyone", "S-1-1-0": "everyone", "AU": "all users who log in", "BU": "all users of this machine"},
    **{"IU": "all users at this machine", "AN": "anonymous users", "BG": "guests"},
}
_OWNER: Final = re.compile(r"\AO:(S-[0-9-]+|[A-Z]{2})")
_LIST: Final = re.compile(r"D:(NO_ACCESS_CONTROL|[A-Z]*)((?:\((?:[^()]|\([^()]*\))*\))*)")
_ENTRY: Final = re.compile(r"\(((?:[^()]|\([^()]*\))*)\)")

_KILL_ON_CLOSE: Final = 0x2000
_SUSPENDED, _NO_WINDOW = 0x4, 0x08000000


class _Calls(Protocol):
    """Calls of Windows. All but `lock` raise `OSError`."""

    def lock(self, file: int, flags: int, offset: int) -> int:
        """LockFileEx on one byte: 0 or an error number."""

    def descriptor(self, path: str) -> str:
        """A file's owner and access list, as a security descriptor string."""

    def user(self) -> str:
        """The SID of this process's user."""

    def open_job(self, limits: int) -> int:
        """The handle of a new job object."""

    def assign(self, job: int, pid: int) -> None:
        """Puts a process into a job."""

    def resume(self, pid: int) -> None:
        """Resumes a process that was started suspended."""

    def close(self, handle: int) -> None:
        """Closes a handle."""


class _JobPlan(NamedTuple):
    """Start flags, suspended, and limits of a job, whose end kills all in it."""

    creation_flags: int = _SUSPENDED | _NO_WINDOW
    limits: int = _KILL_ON_CLOSE


class _LineRefused(ValueError):
    """An argument that cmd.exe would interpret, or a line that it would cut."""


def lock_region(file: int, *, shared: bool, calls: _Calls | None = None) -> bool:
    """Locks an open file until it is closed; False if it is locked. Raises `OSError`."""
    flags = _FAIL_AT_ONCE | (0 if shared else _EXCLUSIVE)
    error = (calls or _calls()).lock(file, flags, _LOCK_OFFSET)
    if error and error not in _LOCKED:
        raise OSError(f"the file cannot be locked: error {error} of Windows")
    return not error


def find_program(command: str, env: Mapping[str, str], is_file: Callable[[str], bool] = os.path.isfile) -> str | None:
    """The program that Windows would start, by path or PATH and PATHEXT.

    Ignores relative folders: others may write there.
    """
    usual = ";".join(_STARTABLE)
    extensions = [ext.lower() for ext in env.get("PATHEXT", usual).split(";") if ext.lower() in _STARTABLE]
    has_extension = ntpath.splitext(command)[1].lower() in extensions
    names = [command, *(command + ext for ext in extensions)] if has_extension else [command + e for e in extensions]
    if ntpath.dirname(command):
        return next((name for name in names if ntpath.isabs(name) and is_file(name)), None)
    folders = (folder.strip().strip('"') for folder in env.get("PATH", "").split(";"))
    paths = (ntpath.join(folder, name) for folder in folders if ntpath.isabs(folder) for name in names)
    return next(filter(is_file, paths), None)


def is_script(program: str) -> bool:
    return ntpath.splitext(program)[1].lower() in _SCRIPTS


def editor_line(
    command: str, path: str, env: Mapping[str, str], is_file: Callable[[str], bool] = os.path.isfile
) -> str:
    """The line for a person's `command` and a file. Raises `FileNotFoundError`, `_LineRefused`."""
    words: list[str] = re.findall(r'(?:"[^"]*"?|[^\s"])+', command)
    name, *args = [word.replace('"', "") for word in words] or [command]
    if (program := find_program(name, env, is_file)) is None:
        raise FileNotFoundError(f"{name} is not in a folder of PATH")
    return command_line(program, [*args, path], env)


def command_line(program: str, args: Sequence[str], env: Mapping[str, str]) -> str:
    """The line that starts a program with exactly these arguments. Raises `_LineRefused` for what cmd.exe would
    interpret.
    """
    for text in (program, *args):
        if "\0" in text:
            raise _LineRefused(f"{text!r} has a NUL")
    if not is_script(program):
        return subprocess.list2cmdline([program, *args])
    for text in (program, *args):
        if bad := sorted({char for char in text if char in _SHELL_READS or char < " "}):
            chars = " ".join(char if char.isprintable() else ascii(char)[1:-1] for char in bad)
            raise _LineRefused(f"{text!r} has {chars}, which cmd.exe would read. Start the program without {program}")
    shell = ntpath.join(env.get("SYSTEMROOT") or env.get("SystemRoot") or "C:\\Windows", "System32", "cmd.exe")
    words = " ".join((_quoted(program), *(arg if _PLAIN.fullmatch(arg) else _quoted(arg) for arg in args)))
    line = f'"{shell}" /d /e:on /v:off /s /c "{words}"'
    if len(line) > _LONGEST_LINE:
        raise _LineRefused(f"the command line of {program} has over {_LONGEST_LINE} characters: cmd.exe would cut it")
    return line


def _quoted(text: str) -> str:
    backslashes = len(text) - len(text.rstrip("\\"))
    return f'"{text}{backslashes * chr(92)}"'


def others_in(descriptor: str, user: str, right: Right) -> tuple[str, ...]:
    """Accounts with a right in a security descriptor, without `user`, system and administrators.

    Without an access list: everyone. An earlier denial wins.
    """
    trusted = {*_TRUSTED, user, *(("LA",) if user.endswith("-500") else ())}
    owner, listed = _OWNER.match(descriptor), _LIST.search(descriptor)
    if owner is None or listed is None or listed[1] == "NO_ACCESS_CONTROL":
        return ("everyone",)
    accounts = [] if owner[1] in trusted else [owner[1]]
    denied: dict[str, int] = {}
    for kind, mask, group in _entries(listed[2]):
        if kind in ("D", "OD", "XD"):
            denied[group] = denied.get(group, 0) | mask
        elif kind in ("A", "OA", "XA") and group not in trusted and mask & ~denied.get(group, 0) & _MASKS[right]:
            accounts.append(group)
    return tuple(dict.fromkeys(_NAMES.get(group, group) for group in accounts))


def _entries(text: str) -> Iterator[tuple[str, int, str]]:
    for entry in _ENTRY.findall(text):
        kind, flags, rights, _, _, group = [*str(entry).split(";"), *[""] * 6][:6]
        if "IO" not in (flags[index : index + 2] for index in range(0, len(flags), 2)):
            yield kind, _mask(rights), group


def _mask(rights: str) -> int:
    try:
        if rights[:1].isdigit():
            return int(rights, 0)
        return sum({_RIGHTS[rights[index : index + 2]] for index in range(0, len(rights), 2)}) if rights else 0
    except (KeyError, ValueError):
        return ~0


def others_who_may(right: Right, path: str | os.PathLike[str], calls: _Calls | None = None) -> tuple[str, ...]:
    """`others_in` for a file or folder; empty if Windows does not say."""
    try:
        calls = calls or _calls()
        return others_in(calls.descriptor(os.fspath(path)), calls.user(), right)
    except OSError:
        return ()


def run_program(
    program: str,
    args: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    seconds: float,
    *,
    calls: _Calls | None = None,
    start: Callable[..., Any] = subprocess.Popen,
    plan: _JobPlan = _JobPlan(),  # noqa: B008
) -> int:
    """The exit code of a silent program, killed with its children after `seconds`.

    Raises `OSError`, `_LineRefused`, `subprocess.TimeoutExpired`.
    """
    line, calls = command_line(program, args, env), calls or _calls()
    job = calls.open_job(plan.limits)
    try:
        null = subprocess.DEVNULL
        process = start(
            line, stdin=null, stdout=null, stderr=null, env=dict(env), cwd=cwd, creationflags=plan.creation_flags
        )
        try:
            calls.assign(job, process.pid)
            calls.resume(process.pid)
            return int(process.wait(seconds))
        except BaseException:
            process.kill()
            raise
    finally:
        calls.close(job)


def _calls() -> _Calls:
    if sys.platform == "win32":
        return Kernel()
    raise OSError("this is not Windows")


if sys.platform == "win32":
    import ctypes
    import msvcrt
    from ctypes import wintypes

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _advapi32 = ctypes.WinDLL("advapi32", use_last_error=True)
    _ntdll = ctypes.WinDLL("ntdll")
    _create_job = ctypes.WINFUNCTYPE(wintypes.HANDLE, wintypes.LPVOID, wintypes.LPCWSTR, use_last_error=True)(
        ("CreateJobObjectW", _kernel32)
    )
    _open_process = ctypes.WINFUNCTYPE(
        wintypes.HANDLE, wintypes.DWORD, wintypes.BOOL, wintypes.DWORD, use_last_error=True
    )(("OpenProcess", _kernel32))
    _this_process = ctypes.WINFUNCTYPE(wintypes.HANDLE)(("GetCurrentProcess", _kernel32))

    class _Overlapped(ctypes.Structure):
        _fields_ = (
            ("Internal", ctypes.c_void_p),
            ("InternalHigh", ctypes.c_void_p),
            ("Offset", wintypes.DWORD),
            ("OffsetHigh", wintypes.DWORD),
            ("hEvent", wintypes.HANDLE),
        )

    class _JobLimits(ctypes.Structure):
        """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    _FILE_OBJECT, _OWNER_AND_LIST, _REVISION = 1, 1 | 4, 1
    _TOKEN_QUERY, _TOKEN_USER = 8, 1
    _EXTENDED_LIMITS = 9
    _ADD_TO_JOB, _SUSPEND_RESUME = 0x100 | 0x1, 0x800

    def _checked(is_done: int) -> None:
        if not is_done:
            raise ctypes.WinError(ctypes.get_last_error())

    def _text_of(pointer: ctypes.c_wchar_p) -> str:
        text = pointer.value or ""
        _kernel32.LocalFree(pointer)
        return text

    class Kernel:
        """`_Calls` by ctypes."""

        def lock(self, file: int, flags: int, offset: int) -> int:
            span = _Overlapped(Offset=offset & 0xFFFFFFFF, OffsetHigh=offset >> 32)
            handle = wintypes.HANDLE(msvcrt.get_osfhandle(file))
            is_done = _kernel32.LockFileEx(handle, flags, 0, 1, 0, ctypes.byref(span))
            return 0 if is_done else ctypes.get_last_error()

        def descriptor(self, path: str) -> str:
            security, text = ctypes.c_void_p(), ctypes.c_wchar_p()
            error = _advapi32.GetNamedSecurityInfoW(
                ctypes.c_wchar_p(path), _FILE_OBJECT, _OWNER_AND_LIST, None, None, None, None, ctypes.byref(security)
            )
            if error:
                raise ctypes.WinError(error)
            try:
                _checked(
                    _advapi32.ConvertSecurityDescriptorToStringSecurityDescriptorW(
                        security, _REVISION, _OWNER_AND_LIST, ctypes.byref(text), None
                    )
                )
            finally:
                _kernel32.LocalFree(security)
            return _text_of(text)

        def user(self) -> str:
            token, size, text = wintypes.HANDLE(), wintypes.DWORD(), ctypes.c_wchar_p()
            process = wintypes.HANDLE(_this_process())
            _checked(_advapi32.OpenProcessToken(process, _TOKEN_QUERY, ctypes.byref(token)))
            try:
                _advapi32.GetTokenInformation(token, _TOKEN_USER, None, 0, ctypes.byref(size))
                data = ctypes.create_string_buffer(size.value)
                _checked(_advapi32.GetTokenInformation(token, _TOKEN_USER, data, size, ctypes.byref(size)))
            finally:
                _kernel32.CloseHandle(token)
            identifier = ctypes.cast(data, ctypes.POINTER(ctypes.c_void_p))[0]
            _checked(_advapi32.ConvertSidToStringSidW(ctypes.c_void_p(identifier), ctypes.byref(text)))
            return _text_of(text)

        def open_job(self, limits: int) -> int:
            job = _create_job(None, None)
            _checked(job)
            job_limits = _JobLimits(LimitFlags=limits)
            is_done = _kernel32.SetInformationJobObject(
                wintypes.HANDLE(job), _EXTENDED_LIMITS, ctypes.byref(job_limits), ctypes.sizeof(job_limits)
            )
            _checked(is_done)
            return int(job)

        def assign(self, job: int, pid: int) -> None:
            process = self._opened(_ADD_TO_JOB, pid)
            try:
                _checked(_kernel32.AssignProcessToJobObject(wintypes.HANDLE(job), process))
            finally:
                _kernel32.CloseHandle(process)

        def resume(self, pid: int) -> None:
            process = self._opened(_SUSPEND_RESUME, pid)
            try:
                if _ntdll.NtResumeProcess(process):
                    raise OSError(f"process {pid} cannot be resumed")
            finally:
                _kernel32.CloseHandle(process)

        def close(self, handle: int) -> None:
            _kernel32.CloseHandle(wintypes.HANDLE(handle))

        def _opened(self, rights: int, pid: int) -> wintypes.HANDLE:
            process = _open_process(rights, False, pid)
            _checked(process)
            return wintypes.HANDLE(process)

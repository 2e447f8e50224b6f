"""Translates servers of Windows clients for WSL. Pure."""

import ntpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PureWindowsPath
from typing import Final

import msgspec

from mcp_hub.config.load.foreign_sandbox import Note
from mcp_hub.config.load.interpolate import Unresolved
from mcp_hub.globs import late
from mcp_hub.types import JsonObject

_DRIVE: Final = late(r"(?:\\\\\?\\)?(?P<drive>[A-Za-z]):(?P<path>[\\/].*)", re.DOTALL)
_SHARE: Final = late(r"\\\\(?:\?\\UNC\\)?(?P<host>[^\\/?]+)\\(?P<share>[^\\/]+)(?P<path>.*)", re.DOTALL)
_HERE: Final = frozenset(("wsl$", "wsl.localhost"))
"""Share hosts for files of WSL distributions."""
_VALUE: Final = late(r"(?P<before>-*[A-Za-z_][\w.-]*=|file:///)(?P<value>.*)", re.DOTALL)
_MOUNT: Final = late(
    r"(?P<before>type=bind,(?:.*,)?(?:src|source)=)(?P<path>[A-Za-z]:[\\/][^,]*)(?P<after>.*)", re.DOTALL
)
_ANY_PATH: Final = late(r"(?<![A-Za-z\\])[A-Za-z]:(?:\\|/(?!/))|\\\\(?:\?|wsl[.$])")
_VARIABLE: Final = late(r"%(?P<name>[A-Za-z_][A-Za-z0-9_()]{2,})%")
_SUFFIXES: Final = (".exe", ".cmd", ".bat", ".com", ".ps1", ".vbs")
_RUNNERS: Final = frozenset(
    "npx npm pnpm pnpx yarn bunx bun node deno tsx uvx uv pipx python python3 docker podman java go dotnet".split()
)
"""Package runners with one name on Windows and Linux."""
_PYTHON: Final = late(r"-(?P<version>[23](?:\.\d{1,2})?)(?:-(?:32|64))?")
"""The version that the launcher `py` takes for an option."""
_SWITCHES: Final = late(r"/[dsqau]|/[tefv]:\w+", re.IGNORECASE)
_READ_BY_CMD: Final = late(r'[&|<>^"\r\n]')
_READ_BY_SHELL: Final = late(r"[^\w@%+=:,./~-]")
_WITH_VALUE: Final = ("-d", "--distribution", "--distribution-id", "-u", "--user", "--cd", "--shell-type")
_BEFORE_COMMAND: Final = ("-e", "--exec", "--")
_SYSTEM: Final = frozenset(
    "appdata localappdata programdata programfiles programfiles(x86) userprofile homedrive homepath public"
    " systemroot systemdrive windir comspec path pathext temp tmp".split()
)
"""Variables about places on Windows, set for clients that do not pass them on."""
_WITH_PATHS: Final = ("args", "cwd", "envFile", "env", "sandbox")
_DEEPEST: Final = 4
"""Nested wrappers such as `cmd /c`."""


class Drives(msgspec.Struct, frozen=True):
    """Windows seen from this Linux. `is_clients`: the servers are a Windows client's, with Windows variables."""

    root: str
    distribution: str
    has_program: Callable[[str], bool]
    is_clients: bool = True


def linux_path(text: str, root: str, distribution: str = "") -> str | None:
    r"""The Linux name of a Windows path, if any. `..` stops at the drive.

    Of shares only `\\wsl.localhost\NAME` of this distribution counts.
    """
    if "\0" in text:
        return None
    if (match := _DRIVE.fullmatch(text)) is not None:
        return f"{root.rstrip('/')}/{match['drive'].lower()}{_normal(match['path'])}"
    match = _SHARE.fullmatch(text)
    if match is not None and match["host"].lower() in _HERE and match["share"].lower() == distribution.lower() != "":
        return _normal(match["path"] or "/")
    return None


def _normal(path: str) -> str:
    return ntpath.normpath(path).replace("\\", "/")


def words_in_wsl(words: Sequence[str]) -> tuple[dict[str, str], list[str]] | None:
    """Options and Linux command of a `wsl.exe` line; None for other programs."""
    if not words or program_name(words[0]) != "wsl":
        return None
    options: dict[str, str] = {}
    at = 1
    while at < len(words):
        word = words[at]
        if word in _BEFORE_COMMAND:
            return {**options, "mode": word}, [*words[at + 1 :]]
        if not word.startswith("-") and word != "~":
            break
        if word in _WITH_VALUE and at + 1 < len(words):
            options[{"-d": "--distribution", "-u": "--user"}.get(word, word)] = words[at + 1]
            at += 1
        else:
            options[word] = ""
        at += 1
    return options, [*words[at:]]


def program_name(word: str) -> str:
    """The program in lower case, without folder and suffix."""
    name = PureWindowsPath(word).name.lower()
    return next((name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix)), name)


def linux_server(entry: JsonObject, drives: Drives, note: Note, note_omitted: Note) -> JsonObject:
    """The server as Linux starts it. Raises `Unresolved` for what only Windows has.

    `note` gets translated paths, `note_omitted` dropped variables.
    """
    if drives.is_clients and isinstance(variables := entry.get("env"), dict):
        for name in [name for name in variables if name.lower() in _SYSTEM]:
            note_omitted(f"env.{name}", "left out: it says where Windows has something")
        entry = {**entry, "env": {name: value for name, value in variables.items() if name.lower() not in _SYSTEM}}
    _check_variables(entry, drives)
    if not isinstance(command := entry.get("command"), str) or not command:
        return entry
    args = entry.get("args")
    words = [command, *(args if isinstance(args, list) else ())]
    if not all(isinstance(word, str) for word in words):
        return entry
    server = dict(entry)
    if (inside := words_in_wsl(words)) is not None:
        return _of_wsl(server, *inside, drives)
    program, *values = _program(words, drives)
    server["command"] = program
    if values or "args" in server:
        server["args"] = values
    placed: JsonObject = {key: _all_placed(server[key], key, drives, note) for key in _WITH_PATHS if key in server}
    return {**server, **placed}


def without_cmd(entry: JsonObject) -> JsonObject:
    """The server behind `cmd /c`, as people copy it to other systems. Raises `Unresolved` for a script of `cmd`."""
    command, args = entry.get("command"), entry.get("args", [])
    if not isinstance(command, str) or not isinstance(args, list) or program_name(command) != "cmd" or "/" in command:
        return entry
    program, *values = _behind_cmd([command, *map(str, args)])
    name = program_name(program)
    return {**entry, "command": name if name in _RUNNERS and "/" not in program else program, "args": values}


def _all_placed(value: object, key: str, drives: Drives, note: Note) -> object:
    if isinstance(value, str):
        return _placed(value, key, drives, note)
    if isinstance(value, list):
        return [_all_placed(item, key, drives, note) for item in value]
    if isinstance(value, dict):
        return {name: _all_placed(item, f"{key}.{name}", drives, note) for name, item in value.items()}
    return value


def _check_variables(entry: JsonObject, drives: Drives) -> None:
    if not drives.is_clients:
        return
    variables = entry.get("env")
    names = {name.upper() for name in variables} if isinstance(variables, dict) else set()
    if isinstance(passed := entry.get("pass_env"), list) and passed:
        raise of_windows(str(passed[0]))
    for key in ("command", "args", "cwd", "envFile", "env"):
        for text in _texts(entry.get(key)):
            for match in _VARIABLE.finditer(text):
                if match["name"].upper() not in names:
                    raise of_windows(match[0])


def of_windows(written: str) -> Unresolved:
    """The error for a server with a Windows variable."""
    reason = "is a variable of Windows, which is not filled in from Linux. Write its value into the client's file"
    return Unresolved("windows_variable", f"{written} {reason}")


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        if isinstance(item, str):
            yield item


def _program(words: list[str], drives: Drives) -> list[str]:
    for _ in range(_DEEPEST):
        if program_name(words[0]) != "cmd" or "/" in words[0]:
            break
        words = _behind_cmd(words)
    word, name = words[0], program_name(words[0])
    is_bare = "\\" not in word and "/" not in word and ":" not in word
    if is_bare and name == "py":
        version = _PYTHON.fullmatch(words[1]) if len(words) > 1 else None
        return [f"python{version['version']}" if version else "python3", *words[2 if version else 1 :]]
    if is_bare and name in _RUNNERS:
        return ["python3" if name == "python" and not drives.has_program(name) else name, *words[1:]]
    is_path = "\\" in word or _DRIVE.fullmatch(word) is not None or drives.is_clients and "/" in word
    is_missing = is_bare and drives.is_clients and not drives.has_program(word)
    if is_path or word.lower().endswith(_SUFFIXES) or name in ("cmd", "powershell") or is_missing:
        raise _program_of_windows(word, name if name in _RUNNERS else "")
    return words


def _behind_cmd(words: Sequence[str]) -> list[str]:
    at = 1
    while at < len(words) and _SWITCHES.fullmatch(words[at]):
        at += 1
    inside = [*words[at + 1 :]]
    if len(inside) == 1:
        inside = inside[0].split()
    is_plain = inside and words[at].lower() == "/c" and not any(map(_READ_BY_CMD.search, inside))
    if not is_plain:
        raise _program_of_windows(" ".join(words[: at + 2]))
    return inside


def _program_of_windows(word: str, runner: str = "") -> Unresolved:
    reason = "is a program of Windows, and the hub starts programs of Linux. It stays with its client"
    advice = f". To start it by that of Linux: mcp-hub add NAME -- {runner} …" if runner else ""
    return Unresolved("windows_program", f"{word} {reason}{advice}")


def _of_wsl(entry: JsonObject, options: Mapping[str, str], words: list[str], drives: Drives) -> JsonObject:
    distribution = options.get("--distribution", drives.distribution)
    folder = options.get("--cd", "")
    is_shell = options.get("mode", "") not in ("-e", "--exec")
    odd = [name for name in options if name not in ("mode", "--distribution", "--user", "--cd", "~")]
    if distribution.lower() != drives.distribution.lower() or odd or "--user" in options:
        raise Unresolved("windows_program", "wsl.exe starts it in another distribution or for another user. It stays")
    if not words or is_shell and any(map(_READ_BY_SHELL.search, words)):
        raise Unresolved("windows_program", "wsl.exe hands it to a shell as a script. It stays with its client")
    path = linux_path(folder, drives.root, drives.distribution) or folder
    placed: JsonObject = {"cwd": path} if path and path != "~" else {}
    if crossing := _crossing(entry.get("env")):
        placed["env"] = crossing
    remaining = {key: value for key, value in entry.items() if key not in ("env", "cwd", "envFile")}
    return {**remaining, "command": words[0], "args": words[1:], **placed}


def _crossing(variables: object) -> JsonObject:
    env = variables if isinstance(variables, dict) else {}
    names = [part for part in str(env.get("WSLENV", "")).split(":") if part.partition("/")[2] in ("", "u")]
    return {name: env[name] for part in names if (name := part.partition("/")[0]) in env}


def _placed(text: str, key: str, drives: Drives, note: Note) -> str:
    match = _VALUE.fullmatch(text)
    before, value = (match["before"], match["value"]) if match is not None else ("", text)
    if (path := linux_path(value, drives.root, drives.distribution)) is not None and not _ANY_PATH.search(value[2:]):
        note(key, f"{value} becomes {path}")
        return before.replace("file:///", "file://") + path
    mount = _MOUNT.fullmatch(text)  # of `docker run --mount`
    if mount is not None and not _ANY_PATH.search(mount["after"]):
        return f"{mount['before']}{_placed(mount['path'], key, drives, note)}{mount['after']}"
    if _SHARE.match(value) or _ANY_PATH.search(text):
        reason = "has a path of Windows that Linux does not have, or not alone. It stays with its client"
        raise Unresolved("windows_path", f"{key} {reason}")
    return text

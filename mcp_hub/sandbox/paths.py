"""Finds what a command needs: interpreter, packages, and paths among its arguments.

Interpreters of pyenv, uv, nvm, volta, asdf and mise are found by links, `#!`, `pyvenv.cfg` and PATH.
"""

import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from mcp_hub.sandbox.places import BROAD, PROJECTS, SYSTEM, ancestors, is_inside, leads_through

_FIRST_LINE: Final = 512
_CONFIG: Final = 4096
_DEPTH: Final = 5
"""Links from script to interpreter to base: more are a circle."""
_ABOVE: Final = 8
_MOST_ARGUMENTS: Final = 256
_MOST_LINES: Final = 64
_BINARIES: Final = ("bin", "sbin", "shims")
_PARTS: Final = ("bin", "lib", "lib64", "libexec", "include")
"""Parts of an installation in a mixed folder such as `~/.local`."""
_SCRIPT: Final = re.compile(r".*\.(?:py|pyz|[cm]?js|[cm]?ts|tsx|sh|rb|php|pl|jar|dll|exe|wasm)", re.DOTALL)
_PROGRAMS: Final = (b"#!", b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
"""First bytes of scripts and machine code."""
_RUNTIMES: Final = ("node", "npx", "npm", "python3", "python", "uv", "uvx", "bun", "bunx", "deno", "pnpm", "git")
MANAGERS: Final = {
    **{"VOLTA_HOME": ".volta", "ASDF_DATA_DIR": ".asdf", "PYENV_ROOT": ".pyenv", "NODENV_ROOT": ".nodenv"},
    **{"RBENV_ROOT": ".rbenv", "MISE_DATA_DIR": ".local/share/mise", "MISE_CONFIG_DIR": ".config/mise"},
    **{"PROTO_HOME": ".proto", "RYE_HOME": ".rye"},
}
"""Version managers: variable, and folder in the home."""
_QUIET: Final = (".nvm", ".local/share/fnm", ".fnm", ".n", "n", ".local/share/uv/python", ".local/share/uv/tools")
_QUIET_TOO: Final = (".bun/bin", ".deno/bin", ".local/share/pipx/venvs", ".local/pipx/venvs", ".local/share/pnpm")
"""Programs that need no variable."""


def interpreters(program: str, env: Mapping[str, str], home: str, writable: Sequence[str]) -> Iterator[str]:
    """Real paths that a program runs from, with its interpreter.

    Nothing in `writable` folders is followed: the server could open more.
    """
    folders = [folder for folder in env.get("PATH", "").split(os.pathsep) if os.path.isabs(folder)]
    folders = [folder for folder in folders if os.path.isdir(folder) and not leads_through(folder, writable)]
    search = os.pathsep.join(folders)
    yield from _chain(program, search, home, writable, _DEPTH)
    for folder in folders:
        if not _is_broad(os.path.realpath(folder), home):
            yield os.path.realpath(folder)
    for name in _RUNTIMES:
        path = shutil.which(name, path=search)
        if path is not None and not _is_system(os.path.realpath(path)):
            yield from _chain(path, search, home, writable, _DEPTH)


def managers(program: str, env: Mapping[str, str], home: str) -> tuple[list[str], dict[str, str]]:
    """Version managers' folders in use, and their variables."""
    used = [os.path.realpath(program), program, *env.get("PATH", "").split(os.pathsep)]
    folders, variables = [], {}
    for name, default in MANAGERS.items():
        folder = env.get(name) or os.path.join(home, default)
        is_used = any(is_inside(path, folder) for path in used) or name == "MISE_CONFIG_DIR"
        if is_used and os.path.isabs(folder) and os.path.isdir(folder):
            folders.append(folder)
            variables[name] = folder
    for default in (*_QUIET, *_QUIET_TOO):
        folder = os.path.join(home, default)
        if os.path.isdir(folder):
            folders.append(folder)
    return folders, variables


def installations(program: str, env: Mapping[str, str], home: str) -> Iterator[str]:
    """Real folders with programs: PATH, environment, version managers, prefixes."""
    folder = os.path.dirname(program)
    environment = _environment(program)
    candidates = [path for path in env.get("PATH", "").split(os.pathsep) if path != folder or _is_of_binaries(path)]
    candidates += [*managers(program, env, home)[0], *([environment] if environment else [])]
    for path in [path for path in candidates if _is_of_binaries(path)]:
        if any(os.path.lexists(os.path.join(path, name)) for name in (*_RUNTIMES, "../pyvenv.cfg")):
            candidates.append(os.path.dirname(path))
    for path in map(os.path.realpath, filter(os.path.isabs, candidates)):
        if not _is_broad(path, home):
            yield path


def _is_of_binaries(folder: str) -> bool:
    return os.path.basename(folder) in _BINARIES


def scripts(args: Sequence[str], cwd: str, home: str, writable: Sequence[str]) -> Iterator[str]:
    """Folders to read for scripts among the arguments."""
    for path in argument_paths(args, cwd, home):
        if leads_through(path, writable):
            continue
        real = os.path.realpath(path)
        if _is_script(real):
            yield from _package(real, home)
            if not _SCRIPT.fullmatch(real):
                yield from _installation(real, home)


def data(args: Sequence[str], cwd: str, home: str) -> Iterator[str]:
    """Other existing paths among the arguments."""
    for path in argument_paths(args, cwd, home):
        if not _is_script(os.path.realpath(path)):
            yield path


def argument_paths(args: Sequence[str], cwd: str, home: str) -> Iterator[str]:
    """Existing paths among the arguments, absolute, with links."""
    for word in args[:_MOST_ARGUMENTS]:
        for text in dict.fromkeys((word, word.rpartition("=")[2])):
            path = _path_of(text, cwd, home)
            if path is not None and os.path.lexists(path):
                yield path
                break


def _path_of(text: str, cwd: str, home: str) -> str | None:
    if text.startswith("file:"):
        text = unquote(urlsplit(text).path)
    if text == "~" or text.startswith("~/"):
        text = home + text[1:]
    is_path = text.startswith((".", "/")) or "/" in text or _SCRIPT.fullmatch(text)
    return os.path.normpath(os.path.join(cwd, text)) if is_path and "\0" not in text else None


def _is_script(path: str) -> bool:
    return os.path.isfile(path) and (_SCRIPT.fullmatch(path) is not None or _head(path).startswith(_PROGRAMS))


def _head(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(4)
    except OSError:
        return b""


def _package(path: str, home: str) -> Iterator[str]:
    yield path
    folder = os.path.dirname(path)
    parts = folder.split(os.sep)
    if "node_modules" in parts:
        yield os.sep.join(parts[: parts.index("node_modules") + 1])
        return
    ancestor = folder
    for _ in range(_ABOVE):
        if _is_broad(ancestor, home) or ancestor == os.path.dirname(ancestor):
            break
        if any(os.path.lexists(os.path.join(ancestor, name)) for name in PROJECTS):
            yield ancestor
            return
        ancestor = os.path.dirname(ancestor)
    if not _is_broad(folder, home):
        yield folder


def _chain(program: str, search: str, home: str, writable: Sequence[str], depth: int) -> Iterator[str]:
    real = os.path.realpath(program)
    if depth == 0 or leads_through(program, writable) or not os.path.isfile(real):
        return
    for path in dict.fromkeys((program, real)):
        yield from _installation(path, home)
    yield real
    environment = _environment(program) or _environment(real)
    if environment is not None:
        yield from _sources(environment)
        base = _setting(os.path.join(environment, "pyvenv.cfg"), "home")
        if base is not None:
            yield from _chain(os.path.join(base, "python3"), search, home, writable, depth - 1)
    if _SCRIPT.fullmatch(real) or "node_modules" in real.split(os.sep):
        yield from _package(real, home)
    if (interpreter := _interpreter(real, search)) is not None:
        yield from _chain(interpreter, search, home, writable, depth - 1)


def hidden_interpreter(program: str, env: Mapping[str, str], is_open: Callable[[str], bool]) -> str | None:
    """A script's closed interpreter, or None."""
    search = env.get("PATH", "")
    for _ in range(_DEPTH):
        real = os.path.realpath(program)
        interpreter = _interpreter(real, search)
        if interpreter is None or not os.path.isfile(interpreter):
            return None
        if not is_open(os.path.realpath(interpreter)):  # behind `env` the next one of the path is taken
            paths = (_interpreter(real, folder) for folder in search.split(os.pathsep))
            usable = next((path for path in paths if path is not None and is_open(os.path.realpath(path))), None)
            if usable is None:
                return interpreter
            interpreter = usable
        program = interpreter
    return None


def _installation(path: str, home: str) -> Iterator[str]:
    """The folder above `bin`, or its parts."""
    folder = os.path.dirname(path)
    prefix = os.path.dirname(folder) if os.path.basename(folder) in _BINARIES else folder
    prefix = os.path.realpath(prefix)
    if _is_system(prefix):
        return
    if not _is_broad(prefix, home):
        yield prefix
    elif prefix != folder:
        yield from (os.path.join(prefix, part) for part in _PARTS)


def _interpreter(path: str, search: str) -> str | None:
    try:
        with open(path, "rb") as file:
            first = file.read(_FIRST_LINE).partition(b"\n")[0]
    except OSError:
        return None
    words = os.fsdecode(first[2:]).split() if first.startswith(b"#!") else []
    if not words:
        return None
    if os.path.basename(words[0]) != "env":
        return words[0]
    named = next((word for word in words[1:] if not word.startswith("-") and "=" not in word), None)
    return shutil.which(named, path=search) if named else None


def _environment(program: str) -> str | None:
    folder = os.path.dirname(os.path.dirname(program))
    return folder if os.path.isfile(os.path.join(folder, "pyvenv.cfg")) else None


def _sources(environment: str) -> Iterator[str]:
    """Editable installations, from `.pth` files."""
    library = os.path.join(environment, "lib")
    for version in _listed(library):
        packages = os.path.join(library, version, "site-packages")
        for name in _listed(packages):
            if name.endswith(".pth"):
                for line in _lines(os.path.join(packages, name)):
                    if os.path.isabs(line) and os.path.isdir(line):
                        yield line


def _listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_CONFIG).splitlines()[:_MOST_LINES]
    except OSError:
        return []


def _setting(path: str, name: str) -> str | None:
    for line in _lines(path):
        key, _, value = line.partition("=")
        if key.strip() == name:
            return value.strip()
    return None


def _is_system(path: str) -> bool:
    return any(ancestor in SYSTEM for ancestor in ancestors(path))


def _is_broad(folder: str, home: str) -> bool:
    return is_inside(home, folder) or folder in {os.path.join(home, name) for name in BROAD}

"""VS Code's sandbox (`sandboxEnabled`, `sandbox`) as our rule, never wider.

VS Code opens all files for reading (`mcpSandboxService.ts`). Our rule cannot close part of an open folder or wildcard:
`deny…` closes the whole.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.addresses import HostRule, host_rule
from mcp_hub.config.load.interpolate import escaped
from mcp_hub.types import JsonObject

Note = Callable[[str, str], None]
"""Called with a server's key, and why it is unused or changed."""
UNREADABLE: Final = "cannot be read. It limits the server, so the server is disabled"
RULE_OF_FILE: Final = "sandbox of the file"
"""The key for the rule that stands beside the servers."""
_SANDBOX: Final = {
    "filesystem": ("allowWrite", "denyWrite", "denyRead"),
    "network": ("allowedDomains", "deniedDomains"),
}
"""The lists of VS Code's sandbox; others that begin with `allow` only open more."""
_INDEXES: Final = ("registry.npmjs.org", "pypi.org", "files.pythonhosted.org")
"""Hosts that our sandbox opens to package runners; VS Code opens the first one to all."""
_RUNNERS: Final = frozenset(("npx", "npm", "pnpm", "pnpx", "yarn", "bunx", "bun", "uvx", "uv", "pipx", "pip"))
_GLOBS: Final = frozenset("*?[]{}!")
"""Characters that may make a glob."""
_OF_DATA: Final = ("/home", "/root", "/Users", "/mnt", "/media", "/srv", "/data", "/tmp")
"""Folders in which our sandbox opens only programs, and what the entry names."""
_OF_PROGRAMS: Final = (
    *(".local", ".nvm", ".fnm", ".n", "n", ".volta", ".asdf", ".pyenv", ".nodenv", ".rbenv", ".proto", ".rye"),
    *(".config/mise", ".bun", ".deno"),
)
"""Program folders in the home folder that our sandbox may open."""


def readable_sandbox(box: object) -> JsonObject | None:
    """VS Code's lists by `section.part`; None for other limits or forms."""
    if not isinstance(box, dict):
        return None
    lists: JsonObject = {}
    for section, parts in box.items():
        if section not in _SANDBOX or not isinstance(parts, dict):
            return None
        for part, values in parts.items():
            if part.startswith("allow") and part not in _SANDBOX[section]:
                lists[f"{section}.{part}"] = []
            elif part in _SANDBOX[section] and isinstance(values, list) and all(map(_is_text, values)):
                lists[f"{section}.{part}"] = values
            else:
                return None
    return lists


def _forms(path: str) -> set[str]:
    return {path, os.path.realpath(path)}


def _is_text(value: object) -> bool:
    return isinstance(value, str)


class SandboxedEntry(msgspec.Struct, frozen=True):
    """A VS Code server, and paths that it opens; `path` is PATH. Unknown texts are None."""

    program: str
    args: Sequence[str | None]
    base: str
    home: str
    path: str
    starts_in_base: bool
    writes_base: bool

    def absolute(self, text: str) -> str:
        """The path without `~` and `..`."""
        text = self.home + text[1:] if text == "~" or text.startswith("~/") else text
        return os.path.normpath(os.path.join(self.base, text))

    def closed_at(self, text: str) -> str:
        """The path that a deny entry closes; for globs, the folder of all matches."""
        parts = text.split("/")
        first = next((number for number, part in enumerate(parts) if _GLOBS & set(part)), len(parts))
        return self.absolute("/".join(parts[:first]) or ("/" if text.startswith("/") else "."))

    def opened(self) -> Iterator[str]:
        """Paths that our sandbox may open without a rule."""
        if self.starts_in_base:
            yield self.base
        for word in self.args:
            if word is None:  # it may be any
                yield self.home
                continue
            for text in (word, word.rpartition("=")[2]):
                if text.startswith((".", "/", "~")) or "/" in text:
                    path = self.absolute(text)
                    yield self._package(path) if os.path.splitext(path)[1] else path
        programs = [os.path.join(self.home, name) for name in _OF_PROGRAMS]
        programs += [folder for folder in self.path.split(os.pathsep) if os.path.isabs(folder)]
        programs += [os.path.dirname(folder) for folder in programs if os.path.basename(folder) in ("bin", "shims")]
        yield from (folder for folder in programs if not is_in(self.home, folder))

    def why_open(self, path: str, written: Iterable[str]) -> str | None:
        """The folder at, in or around `path` that our sandbox opens; None if closed."""
        forms = _forms(path)
        for folder in (*written, *self.opened()):
            for form in forms:
                if any(is_in(form, spelling) or is_in(spelling, form) for spelling in _forms(folder)):
                    return folder
        roots = (self.home, *_OF_DATA)
        is_data = all(any(is_in(form, root) and form != root for root in roots) for form in forms)
        return None if is_data else "folders of the system"

    def _package(self, file: str) -> str:
        if not is_in(file, self.home):
            return os.path.dirname(file)
        return os.path.join(self.home, os.path.relpath(file, self.home).split(os.sep)[0])


def sandbox_rule(lists: Mapping[str, Sequence[str]], entry: SandboxedEntry, note: Note) -> JsonObject | None:
    """Our rule for VS Code's lists; None, with a note, if it would be wider."""
    for key in lists.keys() - {f"{section}.{part}" for section, parts in _SANDBOX.items() for part in parts}:
        note(f"sandbox.{key}", "is left out: it only opens more")
    written = _writable(lists, entry, note)
    for text in lists.get("filesystem.denyRead", ()):
        if (opened := entry.why_open(entry.closed_at(text), written)) is not None:
            message = f"{text} cannot be left out of {opened}, which the hub's sandbox opens, so the server is disabled"
            note("sandbox.filesystem.denyRead", message)
            return None
    key, texts = "sandbox.network.deniedDomains", lists.get("network.deniedDomains", ())
    try:
        denied = [host_rule(text) for text in texts]
    except ValueError as problem:
        note(key, f"{UNREADABLE}: a host {problem}")
        return None
    hosts = _hosts([_INDEXES[0], *lists.get("network.allowedDomains", ())], denied, note)
    index = next((host for host in _INDEXES if any(_covers(rule.host, host) for rule in denied)), None)
    if hosts and index is not None and os.path.basename(entry.program).partition(".")[0] in _RUNNERS:
        note(key, f"{index} cannot be left out, since {entry.program} downloads packages, so the server is disabled")
        return None
    system = {"mode": "prefer"} if sys.platform == "win32" else {}  # where VS Code has no sandbox either
    return {**system, "write": [*map(escaped, written)], "net": hosts or "none"}


def _writable(lists: Mapping[str, Sequence[str]], entry: SandboxedEntry, note: Note) -> list[str]:
    denied = [form for text in lists.get("filesystem.denyWrite", ()) for form in _forms(entry.closed_at(text))]
    written: dict[str, None] = {}
    for text in (*([entry.base] if entry.writes_base else []), *lists.get("filesystem.allowWrite", ())):
        path = entry.absolute(text)
        forms = _forms(path)
        inner = next((folder for folder in denied if any(is_in(folder, form) for form in forms)), None)
        if any(char in text for char in "*?["):
            message = f"{text} is left out: the hub takes no globs. Add a folder to write of sandbox"
        elif path == os.sep or is_in(entry.home, path):
            message = f"{text} is left out: it contains the home folder. Add folders to write of sandbox"
        elif any(is_in(form, outer) for form in forms for outer in denied):
            continue
        elif inner is not None:
            message = f"{path} is left out: denyWrite closes {inner} in it, which the hub cannot leave out"
        else:
            written[path] = None
            continue
        note("sandbox.filesystem.allowWrite", message)
    return [*written]


def _hosts(names: Iterable[str], denied: Sequence[HostRule], note: Note) -> list[str]:
    hosts: dict[str, None] = {}
    for name in names:
        try:
            host = host_rule(name).host
        except ValueError as problem:
            note("sandbox.network.allowedDomains", f"{name} is left out: it {problem}")
            continue
        if any(_covers(rule.host, host) for rule in denied):
            continue
        if inner := next((rule.host for rule in denied if _covers(host, rule.host)), None):
            message = f"{name} is left out: deniedDomains closes {inner} in it, which the hub cannot leave out"
            note("sandbox.network.allowedDomains", message)
            continue
        hosts[name] = None
    return [*hosts]


def _covers(outer: str, host: str) -> bool:
    return host == outer or outer.startswith("*.") and host.endswith(outer[1:])


def is_in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)

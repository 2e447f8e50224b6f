"""Resolves a rule to a `Confinement`."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, Literal

import msgspec

import mcp_hub
from mcp_hub.config.findings import on_one_line, quoted
from mcp_hub.sandbox import paths
from mcp_hub.sandbox.confinement import DEVICE, READ, SHARED, WRITE, Confinement, PathRight, proxy_variables, support
from mcp_hub.sandbox.filters import Net
from mcp_hub.sandbox.home import PrivateHome
from mcp_hub.sandbox.network.interface import HostRule, is_literal
from mcp_hub.sandbox.places import (
    DEVICES,
    SHARED_MEMORY,
    ancestors,
    is_inside,
    leads_through,
    programs_at,
    secret_at,
    secret_of,
    system_paths,
    why_closed,
    why_shared,
    why_too_broad,
)

_NO_PROXY: Final = ("NO_PROXY", "no_proxy", "PIP_PROXY")
_TRUST: Final = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "GIT_SSL_CAPATH"),
    *("NODE_EXTRA_CA_CERTS", "DENO_CERT", "CARGO_HTTP_CAINFO", "PIP_CERT", "NPM_CONFIG_CAFILE"),
)
"""Variables that name certificate files."""
_OF_THE_HUB: Final = tuple(
    os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, os.path.dirname(mcp_hub.__file__))
)
"""Its environment, its interpreter, its package."""


_CODE: Final = tuple(
    os.path.realpath(os.path.dirname(path))
    for path in (mcp_hub.__file__, os.__file__, os.path.dirname(msgspec.__file__))
)
"""Folders of the hub's modules, the interpreter's, and packages'."""


class RuleError(Exception):
    """An invalid rule, by `key`."""

    def __init__(self, key: str, message: str) -> None:
        super().__init__(message)
        self.key = key


class Rule(msgspec.Struct, frozen=True):
    """A rule as plain values. `read` and `write` None: as the arguments say. Paths may begin with `~/`.

    `is_preferred`: without support the server starts unconfined.
    """

    read: tuple[str, ...] | None = None
    write: tuple[str, ...] | None = None
    net: Net = "any"
    hosts: tuple[HostRule, ...] = ()
    sockets: tuple[str, ...] = ()
    is_preferred: bool = False


class Surroundings(msgspec.Struct, frozen=True):
    """The user's home; the hub's folders and configuration."""

    home: str
    hub: tuple[str, ...] = ()
    config: str | None = None


class Subject(msgspec.Struct, frozen=True):
    """A command to start; `program` is absolute, `env` unconfined. `is_spare`: its folder is the hub's."""

    program: str
    args: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    around: Surroundings
    is_spare: bool = False


FileKey = Literal["read", "write"]


class ResolvedRule(msgspec.Struct, frozen=True):
    """A confinement with remarks. `entries`: its lists `read` and `write`, or what they would have to repeat."""

    confinement: Confinement
    remarks: tuple[str, ...] = ()
    around: Surroundings = Surroundings(os.sep)
    entries: Mapping[str, tuple[str, ...]] = {}

    def line(self, key: FileKey, path: str) -> str:
        return listed(key, (*self.entries.get(key, ()), path))

    def why_not(self, key: FileKey, path: str) -> str | None:
        """A sentence why no line is proposed for a path, or None. May search a folder."""
        home = os.path.realpath(self.around.home)
        if (reason := why_too_broad(path, home, map(os.path.realpath, self.around.hub))) is not None:
            return f"No rule opens it: {reason}."
        if (reason := why_shared(path, home)) is not None:
            return f"There is no line to add: {reason}. Name what the server needs in it."
        if (secret := secret_at(path, home)) is not None:
            return f"{on_one_line(secret)} is secret: ask why the server needs it. Only its name under {key} opens it."
        return None if is_literal(path) else "Its name cannot stand in a rule."

    def advice(self, key: FileKey, path: str) -> str:
        """A sentence on opening a path, or why not to."""
        return self.why_not(key, path) or f"If it may, set {self.line(key, path)} in its sandbox."

    def advice_for_program(self, program: str) -> str:
        """`advice` for a program's folder or file."""
        real = os.path.realpath(program)
        folder = os.path.dirname(real)
        return self.advice("read", folder if self.why_not("read", folder) is None else real)


def resolve(rule: Rule, subject: Subject, private: PrivateHome) -> ResolvedRule:
    """One start's sandbox. Raises `RuleError` and `Unsupported`."""
    abi, machine = support(rule.net, has_sockets=bool(rule.sockets))
    resolver = _Resolver(rule, subject, private)
    grants = resolver.grants()
    hosts = proxy_variables() if rule.net == "hosts" else {}
    confinement = Confinement(
        grants=tuple(grants),
        net=rule.net,
        abi=abi,
        machine=machine,
        hosts=rule.hosts if rule.net != "hosts" else _with_indexes(rule.hosts, subject, private),
        sockets=tuple(resolver.sockets()),
        home=private.folder,
        variables={**resolver.variables, **private.variables(), **hosts},
        removed=_NO_PROXY if rule.net == "hosts" else (),
    )
    resolved = ResolvedRule(confinement, (), subject.around, resolver.entries)
    if confinement.allows(os.path.realpath(subject.program)) is None:
        advice = resolved.advice_for_program(subject.program)
        raise RuleError("command", f"the sandbox hides the program {subject.program}. {advice}")
    hidden = paths.hidden_interpreter(subject.program, subject.env, lambda real: confinement.allows(real) is not None)
    if hidden is not None:
        advice = resolved.advice_for_program(hidden)
        raise RuleError("command", f"the sandbox hides {hidden}, the interpreter of {subject.program}. {advice}")
    return msgspec.structs.replace(resolved, remarks=tuple(remark(resolved) for remark in resolver.remarks))


def listed(key: str, entries: Iterable[str]) -> str:
    """A key with its list."""
    return f"{key}: [{', '.join(map(quoted, entries))}]"


_Remark = Callable[[ResolvedRule], str]
"""A remark, for complete entries."""


def _plain(text: str) -> _Remark:
    return lambda rule: text


def _opening(text: str, key: FileKey, path: str) -> _Remark:
    if not is_literal(path):
        return _plain(f"{text}. Its name cannot stand in a rule.")
    return lambda rule: f"{text}. To open it, set {rule.line(key, path)}."


def _closing(text: str, path: str) -> _Remark:
    return lambda rule: f"{text}. To close it, set {listed('write', (e for e in rule.entries['write'] if e != path))}."


def _with_indexes(hosts: Sequence[HostRule], subject: Subject, private: PrivateHome) -> tuple[HostRule, ...]:
    return tuple(dict.fromkeys((*hosts, *private.index_hosts(subject.program, subject.env))))


class _Resolver:
    """Collects one start's grants, remarks and variables."""

    def __init__(self, rule: Rule, subject: Subject, private: PrivateHome) -> None:
        self._rule = rule
        self._subject = subject
        self._private = private
        self._home = os.path.realpath(subject.around.home)
        self._hub = [os.path.realpath(folder) for folder in subject.around.hub]
        folders = [private.home, private.temporary, *([subject.cwd] if subject.is_spare else [])]
        self._writable = [*folders, *map(os.path.realpath, folders)]
        self._only_readable: list[str] = []
        self.remarks: list[_Remark] = []
        self.variables: dict[str, str] = {}
        self.entries: dict[str, tuple[str, ...]] = {"read": rule.read or (), "write": rule.write or ()}

    def grants(self) -> list[PathRight]:
        private = dict.fromkeys(map(os.path.realpath, self._writable))
        if self._rule.write is None:
            self.entries["write"] = tuple(self._changeable())
        self._write(self.entries["write"] if self._rule.write is None else self._named("write"))
        readable = [*map(os.path.realpath, self._closed_in(self._named("read"))), *system_paths(), *self._usual()]
        grants = [PathRight(path, READ | WRITE, is_needed=True) for path in private]
        grants.append(PathRight(os.path.realpath(self._private.settings), READ, is_needed=True))
        grants += [PathRight(os.path.realpath(path), READ | WRITE) for path in self._writable]
        grants += [PathRight(path, READ) for path in readable]
        grants += [PathRight(os.path.realpath(path), DEVICE) for path in DEVICES]
        grants.append(PathRight(os.path.realpath(SHARED_MEMORY), SHARED))
        return _reduced(grants)

    def _write(self, named: Iterable[str]) -> None:
        targets = {path: os.path.realpath(path) for path in sorted(named, key=len)}
        for path, real in targets.items():
            paths = [path_in_pair for pair in targets.items() if pair[1] != real for path_in_pair in pair]
            if not leads_through(path, [*self._writable, *paths]):
                self._check_configuration(real)
                self._writable += (path, real)

    def _is_writable(self, path: str) -> bool:
        return leads_through(path, self._writable)

    def _closed_in(self, named: Iterable[str]) -> Iterator[str]:
        return (path for path in named if not self._is_writable(path))

    def sockets(self) -> Iterator[str]:
        for text in self._rule.sockets:
            path = self._expanded(text)
            if (reason := why_closed(path)) is not None:
                raise RuleError("sockets", f"{text}: {reason}")
            if self._is_writable(path):
                raise RuleError("sockets", f"{text}: the server may write there, and put another one in its place")
            if not os.path.exists(path):
                self.remarks.append(_plain(f"sockets: {text} does not exist"))
            yield os.path.realpath(path)

    def _named(self, key: FileKey) -> Iterator[str]:
        for text in getattr(self._rule, key) or ():
            path = self._expanded(text)
            real = os.path.realpath(path)
            if (reason := why_too_broad(real, self._home, self._hub)) is not None:
                raise RuleError(key, f"{text} cannot be opened: {reason}. Name the folders that the server needs.")
            if not os.path.lexists(path):
                self.remarks.append(_plain(f"{key}: {text} does not exist, and is not made"))
                continue
            if (reason := self._why_behind(key, path, real)) is not None:
                message = f"{key}: {text} stays closed, since it leads to {on_one_line(real)} by a link, and {reason}"
                self.remarks.append(_plain(f"{message}. To open it, name that path."))
                continue
            yield path

    def _why_behind(self, key: FileKey, path: str, real: str) -> str | None:
        """The reason to keep a path closed whose links, perhaps another server's, lead to a secret or, for writing, to
        programs.
        """
        home = self._subject.around.home
        written = self._home + path[len(home) :] if is_inside(path, home) else path
        if written == real:
            return None
        if (secret := secret_of(real, self._home)) is not None and secret_of(written, self._home) is None:
            return f"{secret} is secret"
        if key == "read" or programs_at(written, self._home, self._programs) is not None:
            return None
        programs = programs_at(real, self._home, self._programs)
        return None if programs is None else f"{programs} has programs or settings of others"

    @cached_property
    def _programs(self) -> list[str]:
        subject = self._subject
        return [*paths.installations(subject.program, subject.env, self._home), *_OF_THE_HUB]

    def _arguments(self) -> Iterator[str]:
        subject = self._subject
        chosen: list[str] = []
        for path in sorted(paths.data(subject.args, subject.cwd, subject.around.home), key=len):
            real = os.path.realpath(path)
            if self._is_writable(path) or any(is_inside(path, folder) for folder in chosen):
                continue
            if (reason := why_too_broad(real, self._home, self._hub)) is not None:
                raise RuleError("args", f"the argument {path} cannot be opened: {reason}. Name folders with write.")
            if (secret := secret_of(real, self._home)) is not None:
                self.remarks.append(_opening(f"args: {path} stays closed, since {secret} is secret", "read", path))
                continue
            chosen += (path, real)
            yield path

    def _changeable(self) -> Iterator[str]:
        """Arguments without programs; others become read-only."""
        for path in self._arguments():
            programs = programs_at(os.path.realpath(path), self._home, self._programs)
            if programs is None:
                yield path
                inner = next((folder for folder in self._programs if is_inside(folder, os.path.realpath(path))), None)
                if inner is not None:
                    reason = f"{inner} is in it, from which the hub may start programs of other servers"
                    self.remarks.append(_closing(f"args: {path} can be written, and {reason}", path))
                continue
            self._only_readable.append(path)
            if os.access(path, os.W_OK):
                reason = f"since {programs} has programs or settings of others"
                self.remarks.append(_opening(f"args: {path} stays closed for writing, {reason}", "write", path))

    def _usual(self) -> Iterator[str]:
        """Real paths that the command needs."""
        subject = self._subject
        home, writable = subject.around.home, self._writable
        folders, variables = paths.managers(subject.program, subject.env, home)
        self.variables |= variables
        candidates = [*paths.interpreters(subject.program, subject.env, home, writable), *folders]
        candidates += paths.scripts(subject.args, subject.cwd, home, writable)
        candidates += [subject.env[name] for name in _TRUST if os.path.isabs(subject.env.get(name, ""))]
        if self._rule.read is None:
            opened = [] if subject.is_spare else [subject.cwd]
            opened += self._arguments() if self._rule.write is not None else ()
            self.entries["read"] = tuple(path for path in opened if not self._is_closed(os.path.realpath(path)))
            candidates += opened
        candidates += self._only_readable
        candidates += self._private.trusted()
        for path in self._closed_in(candidates):
            real = os.path.realpath(path)
            if not self._is_closed(real) or path == subject.program:
                yield real

    def _is_closed(self, real: str) -> bool:
        return bool(why_too_broad(real, self._home, self._hub) or secret_of(real, self._home))

    def _check_configuration(self, path: str) -> None:
        """Raises `RuleError` if the hub's code or configuration would be writable."""
        config = self._subject.around.config
        files = {"configuration": config, "program": mcp_hub.__file__, "interpreter": sys.executable}
        key = "args" if self._rule.write is None else "write"
        for name, file in files.items():
            forms = {os.path.abspath(file), os.path.realpath(file)} if file else set[str]()
            if any(is_inside(form, path) for form in forms):
                message = f"{path} cannot be writable: the hub's {name} is in it. Name the folders with write."
                raise RuleError(key, message)
        if any(is_inside(path, folder) or is_inside(folder, path) for folder in _CODE):
            raise RuleError(key, f"{path} cannot be writable: the hub runs code in it. Name the folders with write.")

    def _expanded(self, text: str) -> str:
        path = self._subject.around.home + text[1:] if text.startswith("~/") else text
        return os.path.normpath(path)


def _reduced(grants: Iterable[PathRight]) -> list[PathRight]:
    """Each path once, without redundant inner ones."""
    chosen: dict[str, PathRight] = {}
    for grant in sorted(grants, key=lambda grant: (len(grant.path), -grant.access, not grant.is_needed)):
        covering = (chosen[path] for path in ancestors(grant.path) if path in chosen)
        if not any(outer.access & grant.access == grant.access for outer in covering):
            access = grant.access | (chosen[grant.path].access if grant.path in chosen else 0)
            chosen[grant.path] = PathRight(grant.path, access, grant.is_needed)
    return list(chosen.values())

"""Plans an import: servers to take, and others with reasons."""

import json
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from mcp_hub.addresses import is_this_machine
from mcp_hub.config.load.imported import sources_of
from mcp_hub.config.load.interpolate import CLIENTS_FOLDER, Unresolved, is_keyring_closed, resolve
from mcp_hub.config.load.load import load
from mcp_hub.config.trust import SECRETS, state_dir
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.onboarding.changes.acts import Acts, FileChange
from mcp_hub.onboarding.changes.written import ClientRecords, ImportedServer
from mcp_hub.onboarding.files import FileRefused
from mcp_hub.onboarding.imports.found import FoundServer, FoundServers, SkippedServer
from mcp_hub.onboarding.servers_file.kept_secrets import (
    KEPT,
    KEPT_HERE,
    KeptSecrets,
    place_name,
    without_secrets,
)
from mcp_hub.onboarding.servers_file.servers_file import Put, ServersFile, findings_about
from mcp_hub.types import JsonObject
from mcp_hub.upstreams.process.commands import proposed_variables

_SAME: Final = ("command", "args", "cwd", "env", "url", "headers", "bearer", "local", "skills", "scripts")
"""Keys that identify a server; different `env` or `headers` may be two accounts."""
_LONGEST: Final = 64


class _MergedServer(msgspec.Struct):
    name: str
    entry: JsonObject
    origins: list[FoundServer]


class TakenServer(msgspec.Struct, frozen=True):
    """A server to take: `entry` is without secrets."""

    name: str
    entry: JsonObject
    origins: tuple[FoundServer, ...]

    @property
    def sources(self) -> list[str]:
        return list(dict.fromkeys(origin.source for origin in self.origins))

    @property
    def old_names(self) -> list[str]:
        return list(dict.fromkeys(origin.name for origin in self.origins if origin.name != self.name))

    @property
    def left_out(self) -> list[str]:
        return list(dict.fromkeys(key for origin in self.origins for key in origin.left_out))

    @property
    def renamed(self) -> list[str]:
        """Windows paths with Linux names."""
        return list(dict.fromkeys(line for origin in self.origins for line in origin.renamed))

    @property
    def sources_outside(self) -> list[str]:
        """Variables and files that it gets, without kept secrets."""
        return [source for source in sources_of(self.entry) if not source.startswith(f"file {SECRETS}/")]

    @property
    def is_users(self) -> bool:
        return any(origin.is_users for origin in self.origins)

    def proposed(self, env: Mapping[str, str]) -> list[str]:
        """Shell variables that its command wants but does not get, for `pass_env`."""
        entry = self.entry
        texts = [value for value in entry.get("args") or () if isinstance(value, str)]
        passed = [*(entry.get("env") or ())]
        return proposed_variables(str(entry["command"]), texts, passed, env) if "command" in entry else []


class ImportPlan(msgspec.Struct, frozen=True):
    """The plan; nothing is written yet. `there`: already configured. `doubles`: number of merged entries."""

    file: ServersFile
    secrets: KeptSecrets
    taken: tuple[TakenServer, ...]
    there: tuple[FoundServer, ...]
    skipped: tuple[SkippedServer, ...]
    problems: tuple[ConfigFinding, ...]
    sources: tuple[str, ...]
    doubles: int
    named: Mapping[str, Sequence[FoundServer]] = {}
    """Servers in `there` by their names in the hub."""

    def origins(self) -> list[ImportedServer]:
        """Each server of the hub, per client that has it."""
        config = os.path.abspath(self.file.path)
        every = [*((server.name, server.origins) for server in self.taken), *self.named.items()]
        return [
            ImportedServer(server.client, config, name, server.name) for name, origins in every for server in origins
        ]

    @property
    def puts(self) -> list[Put]:
        return [Put(server.name, server.entry) for server in self.taken]

    def requested(self, env: Mapping[str, str]) -> dict[str, list[str]]:
        """Values that servers from files other than the user's would get, by server, if set: variables, `${file:…}` and
        `${keyring:…}`.
        """
        variables: dict[str, list[str]] = {}
        for server in self.taken:
            sources = () if server.is_users else sources_of(server.entry)
            names = [
                source.removeprefix("$") if source[0] == "$" else source.replace(" ", ":", 1) for source in sources
            ]
            values = [n for n in names if _has_value(n, env, self.file.folder) and not self.secrets.keeps(n)]
            if values:
                variables[server.name] = values
        return variables

    def disabling(self, names: Collection[str]) -> "ImportPlan":
        """The plan with these servers disabled."""
        taken = [
            replace(server, entry={**server.entry, "enabled": False}) if server.name in names else server
            for server in self.taken
        ]
        return replace(self, taken=tuple(taken))

    def passing(self, names: Mapping[str, Collection[str]]) -> "ImportPlan":
        """The plan with variables added to `pass_env`, by server."""
        taken = []
        for server in self.taken:
            passed = list(dict.fromkeys([*server.entry.get("pass_env", ()), *names.get(server.name, ())]))
            taken.append(replace(server, entry={**server.entry, "pass_env": passed}) if passed else server)
        return replace(self, taken=tuple(taken))

    def without(self, reasons: Mapping[str, str]) -> "ImportPlan":
        """The plan without these servers, by name with reason."""
        gone = [
            skipped
            for server in self.taken
            if server.name in reasons
            for skipped in _skipped(server, reasons[server.name])
        ]
        taken = tuple(server for server in self.taken if server.name not in reasons)
        return replace(self, taken=taken, skipped=(*self.skipped, *gone))

    def limited(self, servers: Mapping[str, JsonObject]) -> "ImportPlan":
        return replace(self, taken=tuple(replace(server, entry=servers[server.name]) for server in self.taken))

    def carry_out(self, env: Mapping[str, str]) -> None:
        """Writes secrets, then the configuration, as one act. Raises `ConfigError`."""
        self.secrets.store_in_keyring()
        try:
            Acts(state_dir(env)).do(f"import into {self.file.path}", (), first=self.changes())
            ClientRecords(state_dir(env)).add_imported(self.origins())
        except FileRefused as refused:
            raise ConfigError(ConfigFinding(refused.code, str(refused))) from None
        except OSError as problem:
            message = f"cannot be written: {problem.strerror}. Check its folder and permissions."
            raise ConfigError(ConfigFinding("output_unwritable", message, str(self.file.path))) from None

    def changes(self) -> list[FileChange]:
        """The changes for `Acts.do`, the configuration last. Keyring secrets are extra, and survive an undo."""
        changes = [FileChange(path, partial(_content, content)) for path, content in self.secrets.files().items()]
        entries = [(self.file.holder(), server.name) for server in self.taken]
        return [*changes, FileChange(self.file.path, self._edited, entries=entries)] if self.taken else []

    def _edited(self, before: bytes | None) -> bytes:
        try:
            return self.file.changed(before, self.puts)
        except ConfigError as error:
            raise FileRefused(error.code, str(error)) from None


def planned(servers_found: FoundServers, file: ServersFile, secrets: KeptSecrets, probe: KeptSecrets) -> ImportPlan:
    """The plan; `probe` finds secrets already kept.

    Raises `ConfigError` if the configuration is unreadable, `not_editable` if not editable.
    """
    servers = file.servers()
    present = _KnownServers(servers, probe)
    ports = _ports(file)
    there: list[FoundServer] = []
    named: dict[str, list[FoundServer]] = {}
    skipped = list(servers_found.skipped)
    every = merged(servers_found.servers, servers)
    fresh: list[TakenServer] = []
    for server in every:
        if (name := present.name_of(server.entry)) is not None:
            there += server.origins
            named.setdefault(name, []).extend(server.origins)
            skipped += _skipped(server, f"the hub has it already, as {name}")
        elif _is_at(server.entry.get("url"), ports):
            skipped += _skipped(server, "it is this hub")
        else:
            entry = without_secrets(server.name, server.entry, secrets.keep)
            fresh.append(TakenServer(server.name, entry, tuple(server.origins)))
    refused = _refusals(file, [Put(server.name, server.entry) for server in fresh])
    for name, reason in refused.items():
        failed = (server for server in fresh if server.name == name)
        skipped += [gone for server in failed for gone in _skipped(server, f"it has failed: {reason}")]
    sources = dict.fromkeys(server.source for server in servers_found.servers)
    doubles = sum(len(server.origins) - 1 for server in every)
    return ImportPlan(
        file=file,
        secrets=secrets,
        taken=tuple(server for server in fresh if server.name not in refused),
        there=tuple(there),
        skipped=tuple(skipped),
        problems=tuple(servers_found.problems),
        sources=tuple(sources),
        doubles=doubles,
        named=named,
    )


def merged(servers: Iterable[FoundServer], taken: Collection[str]) -> list[_MergedServer]:
    """Each server once, from the user's own file if possible. Names in `taken` or repeated get a client's name
    appended.
    """
    by_identity: dict[str, _MergedServer] = {}
    names = set(taken)
    for server in servers:
        key = identity(server.entry)
        if (double := by_identity.get(key)) is not None:
            if server.is_users and not any(earlier.is_users for earlier in double.origins):
                double.entry = server.entry
            double.origins.append(server)
            continue
        name = _free(clean(server.name), server.client, names)
        names.add(name)
        by_identity[key] = _MergedServer(name, server.entry, [server])
    return list(by_identity.values())


def identity(entry: JsonObject) -> str:
    """A text that is equal for equal servers."""
    same = {key: entry[key] for key in _SAME if entry.get(key)}
    if same.get("cwd") == CLIENTS_FOLDER:  # which an import adds
        del same["cwd"]
    if isinstance(url := same.get("url"), str):
        same["url"] = url.rstrip("/")
    return json.dumps(same, sort_keys=True, default=str)


def clean(name: str) -> str:
    """A valid server name: printable and short enough."""
    printable = "".join(char if char.isprintable() else " " for char in name).strip()
    return printable[:_LONGEST].rstrip() or "server"


def _free(name: str, client: str, names: Collection[str]) -> str:
    if name not in names:
        return name
    for tail in (f"-{client}", *(f"-{client}-{number}" for number in range(2, 1000))):
        tried = name[: _LONGEST - len(tail)] + tail
        if tried not in names:
            return tried
    raise AssertionError("a thousand servers of one name")


def _has_value(name: str, env: Mapping[str, str], folder: Path) -> bool:
    if ":" not in name:
        return bool(env.get(name))
    if is_keyring_closed() and name.startswith("keyring:"):
        return True  # it may have one
    try:
        return bool(resolve(f"${{{name}}}", env, folder).text)
    except Unresolved:
        return False


def _skipped(server: _MergedServer | TakenServer, reason: str) -> list[SkippedServer]:
    return [(origin.name, origin.source, reason) for origin in server.origins]


def _refusals(file: ServersFile, changes: Sequence[Put]) -> dict[str, str]:
    refused: dict[str, str] = {}
    while remaining := [change for change in changes if change.name not in refused]:
        try:
            file.changed_text(remaining)
        except ConfigError as error:
            if error.code == "not_editable":
                raise
            mistakes = {change.name: findings_about(change.name, error.findings) for change in remaining}
            fresh = {name: _listed(findings) for name, findings in mistakes.items() if findings}
            refused |= fresh or {remaining[0].name: _listed(error.findings)}
        else:
            break
    return refused


def _listed(findings: Iterable[ConfigFinding]) -> str:
    return "; ".join(f"{finding.path}: {finding.message} [{finding.code}]" for finding in findings)


class _KnownServers:
    """Recognizes configured servers, also with secrets moved."""

    def __init__(self, servers: Mapping[str, object], probe: KeptSecrets) -> None:
        self._probe = probe
        self._servers = [*servers]
        self._names = {identity(entry): name for name, entry in servers.items() if isinstance(entry, dict)}
        self._alike: dict[str, list[str]] = {}
        for text in self._names:
            self._alike.setdefault(KEPT.sub("", text), []).append(text)

    def name_of(self, entry: JsonObject) -> str | None:
        """Its name in the configuration, if any. Its secrets may be kept under an older name."""
        alike = self._alike.get(KEPT.sub("", identity(without_secrets("", entry, lambda *_: KEPT_HERE))), [])
        places = {secret for text in alike for secret in KEPT.findall(text)}
        starts = {name: place_name(f"{name}.x")[:-1] for name in self._servers} if places else {}
        names = [name for name, start in starts.items() if any(secret.startswith(start) for secret in places)]
        for name in names or self._servers[: 1 if alike else 0]:
            same = self._names.get(identity(without_secrets(name, entry, self._probe.keep)))
            if same is not None:
                return same
        return None


def _ports(file: ServersFile) -> tuple[int, ...]:
    try:
        return (load(file.path, file.env, partly=True, lenient=True).settings.hub.http.port,)
    except ConfigError:
        return ()


def _is_at(url: object, ports: Iterable[int]) -> bool:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        is_here = parts is not None and parts.port in [*ports] and is_this_machine(parts.hostname or "")
    except ValueError:
        return False
    return is_here and parts is not None and parts.path.startswith(("/mcp", "/sse"))


def _content(content: bytes, _: bytes | None) -> bytes:
    return content

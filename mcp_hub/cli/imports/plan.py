"""The plan of an import: the servers to take and under which names, and those that are not taken, with the reason."""

from collections.abc import Iterable, Mapping
from functools import partial
from urllib.parse import urlsplit

import msgspec

from mcp_hub.cli.clients.files.acts import FileChange
from mcp_hub.cli.clients.files.replace import FileRefused
from mcp_hub.cli.imports.found import FoundServers, SkippedServer
from mcp_hub.cli.imports.merge import MergedServer, identity, merged
from mcp_hub.cli.servers_file.kept_secrets import KeptSecrets, without_secrets
from mcp_hub.cli.servers_file.servers_file import EditRefused, PutServer, ServersFile
from mcp_hub.config.load.load import load
from mcp_hub.config.schema.remote import is_this_machine
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.types import JsonObject


class TakenServer(msgspec.Struct, frozen=True):
    """A server to take: `own` is its entry, without secrets; `sources` are the clients and files that have it.

    `old_names` are names that it has there, if that is another one; `left_out` keys of the clients that we have not.
    """

    name: str
    own: JsonObject
    sources: tuple[str, ...]
    old_names: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class ImportPlan(msgspec.Struct, frozen=True):
    """All that an import would do; nothing is written yet. `doubles` counts entries that were merged into others."""

    file: ServersFile
    secrets: KeptSecrets
    taken: tuple[TakenServer, ...]
    skipped: tuple[SkippedServer, ...]
    problems: tuple[ConfigFinding, ...]
    sources: tuple[str, ...]
    doubles: int

    @property
    def puts(self) -> list[PutServer]:
        return [PutServer(one.name, one.own) for one in self.taken]

    def carry_out(self, env: Mapping[str, str]) -> None:
        """Writes the secrets, then the configuration. Raises `ConfigError`."""
        self.secrets.store(env)
        self.file.change(self.puts)

    def changes(self) -> list[FileChange]:
        """The changes of files by which `Acts.do` carries it out, the configuration last, so that it can be undone.

        Secrets of the keyring are not among them: `secrets.store_in_keyring` writes those, and an undo leaves them.
        """
        done = [FileChange(path, partial(_content, content)) for path, content in self.secrets.files().items()]
        return [*done, FileChange(self.file.path, self._edited)] if self.taken else []

    def _edited(self, before: bytes | None) -> bytes:
        try:
            return self.file.changed(before, self.puts)
        except ConfigError as error:
            raise FileRefused(error.code, str(error)) from None


def planned(found: FoundServers, file: ServersFile, secrets: KeptSecrets, probe: KeptSecrets) -> ImportPlan:
    """The plan for what was found. `probe` keeps nothing: it tells whether a secret is kept already.

    Raises `ConfigError` if the configuration cannot be read, and `EditRefused` if it cannot be edited.
    """
    there = file.servers()
    known = {identity(own): name for name, own in there.items() if isinstance(own, dict)}
    hub = _endpoint(file)
    taken: list[TakenServer] = []
    skipped = list(found.skipped)
    every = merged((one for one in found.servers), there)
    for one in every:
        reason = _reason(one, there, known, hub, probe)
        if reason is None:
            name = one.name
            own = without_secrets(name, one.own, secrets.keep)
            reason = _refusal(file, PutServer(name, own))
        if reason is not None:
            skipped += (SkippedServer(own.name, own.source, reason) for own in one.found)
            continue
        taken.append(_taken(one, own))
    sources = dict.fromkeys(one.source for one in found.servers)
    doubles = sum(len(one.found) - 1 for one in every)
    return ImportPlan(file, secrets, tuple(taken), tuple(skipped), tuple(found.problems), tuple(sources), doubles)


def _taken(one: MergedServer, own: JsonObject) -> TakenServer:
    old = dict.fromkeys(found.name for found in one.found if found.name != one.name)
    left_out = dict.fromkeys(key for found in one.found for key in found.left_out)
    sources = dict.fromkeys(found.source for found in one.found)
    return TakenServer(one.name, own, tuple(sources), tuple(old), tuple(left_out))


def _reason(
    one: MergedServer,
    there: Mapping[str, JsonObject],
    known: Mapping[str, str],
    hub: tuple[int, ...],
    probe: KeptSecrets,
) -> str | None:
    """The reason not to take a server that is right: the hub has it, or it is the hub."""
    if _is_at(one.own.get("url"), hub):
        return "it is this hub"
    for name in there:
        if (same := known.get(identity(without_secrets(name, one.own, probe.keep)))) is not None:
            return f"the hub has it already, as {same}"
    return None


def _refusal(file: ServersFile, change: PutServer) -> str | None:
    """The mistakes for which the hub would not take the server."""
    try:
        file.changed_text([change])
    except EditRefused:
        raise
    except ConfigError as error:
        return "; ".join(f"{one.path}: {one.message} [{one.code}]" for one in error.findings)
    return None


def _endpoint(file: ServersFile) -> tuple[int, ...]:
    """The port at which the hub of this configuration listens; empty without one."""
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

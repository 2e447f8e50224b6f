"""Server edits from the dashboard: shown without secrets, judged, written or proposed.

A proposal waits until a person approves it (`mcp-hub approve NAME`).
"""

import difflib
import re
import shlex
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec
import yaml

from mcp_hub.app.dashboard.edits import Edited
from mcp_hub.clock import wall_time
from mcp_hub.config.findings import DataPath, path_text
from mcp_hub.config.load.interpolate import closed_keyring
from mcp_hub.config.load.locate import read_document
from mcp_hub.config.trust import state_dir
from mcp_hub.edit import writing
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.ids import record_key
from mcp_hub.masking import MASK, hide, visible
from mcp_hub.onboarding.changes.written import ClientRecords
from mcp_hub.onboarding.clients.table import CLIENTS
from mcp_hub.onboarding.files import Undo
from mcp_hub.onboarding.registry.documents import row_of, search
from mcp_hub.onboarding.servers_file.kept_secrets import KeptSecrets, without_secrets
from mcp_hub.onboarding.servers_file.risks import neutralized, reasons_to_ask, references, refused_url
from mcp_hub.onboarding.servers_file.servers_file import (
    UNRESOLVED,
    Change,
    Put,
    Remove,
    ServersFile,
    SwitchServer,
    findings_about,
    option_for,
)
from mcp_hub.protocol.rest.overview import (
    EditBody,
    EditFinding,
    EditOutcome,
    ProposalInfo,
    SwitchBody,
)
from mcp_hub.stores.keyed_files import KeyedFiles
from mcp_hub.types import JsonObject

LARGEST: Final = 64 << 10
"""Characters of an entry."""
MOST: Final = 16
"""Proposals that wait at once, per configuration."""
_MOST_SERVERS: Final = 500
"""Servers of a configuration that the page may extend."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
"""A name that is safe in a command line that a person copies."""
_MOST_HITS: Final = 20
"""Servers that a search shows."""
_STAND_IN: Final = "${MCP_HUB_IS_NOT_LOOKED_UP}"
_FRAGMENT: Final = "entry.yaml"


class ProposedEdit(msgspec.Struct, frozen=True):
    """An entry that waits for approval since `at` (Unix seconds), with the reasons."""

    server: str
    entry: JsonObject
    at: float
    reasons: tuple[str, ...]


class _ProposedEdits:
    """One configuration's proposals, in the state folder. Methods raise `ConfigError`."""

    def __init__(self, state: Path, config: str) -> None:
        self._files = KeyedFiles(state / "proposals")
        self._key = record_key(config, "")

    def all(self) -> list[ProposedEdit]:
        """Oldest first; empty if the file has other contents."""
        try:
            return _decoded(self._files.read(self._key))
        except OSError as problem:
            raise self._unusable(problem) from None

    def put(self, proposal: ProposedEdit) -> None:
        def added(text: bytes | None) -> bytes:
            edits = [edit for edit in _decoded(text) if edit.server != proposal.server]
            if len(edits) >= MOST:
                raise ConfigError(ConfigFinding("proposals_full", f"{MOST} proposals wait already. Withdraw one."))
            return msgspec.json.encode([*edits, proposal])

        self._update(added)

    def remove(self, server: str, only: ProposedEdit | None = None) -> bool:
        """Removes the proposal, if still `only`; false without one."""
        removed: list[ProposedEdit] = []

        def without(text: bytes | None) -> bytes | None:
            every = _decoded(text)
            removed.extend(edit for edit in every if edit.server == server and only in (None, edit))
            return msgspec.json.encode([edit for edit in every if edit not in removed]) if removed else None

        if any(proposal.server == server for proposal in self.all()):
            self._update(without)
        return bool(removed)

    def _update(self, change: Callable[[bytes | None], bytes | None]) -> None:
        try:
            self._files.update(self._key, change)
        except OSError as problem:
            raise self._unusable(problem) from None

    def _unusable(self, problem: OSError) -> ConfigError:
        text = f"cannot be used: {problem.strerror or problem}. Check its permissions."
        return ConfigError(ConfigFinding("state_unwritable", text, str(self._files.path(self._key))))


def proposals_of(file: ServersFile) -> _ProposedEdits:
    return _ProposedEdits(state_dir(file.env), str(file.path.absolute()))


def command_of(file: ServersFile, server: str, option: str = "") -> str:
    """The command that approves a server's proposal."""
    words = f"-- {shlex.quote(server)}" if server.startswith("-") else shlex.quote(server)
    return f"mcp-hub approve{option_for(file)}{option} {words}"


class PageEditor:
    """The dashboard's `ServerEditor` for the configuration at `path`."""

    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self._file, self._state = ServersFile(path, env), state_dir(env)
        self._proposals = proposals_of(self._file)
        self._disabled_here: dict[str, str] = {}

    def origin(self, server: str) -> str:
        """The title of the client it was imported from, or empty."""
        client = ClientRecords(self._state).client_of(str(self._file.path.absolute()), server)
        return CLIENTS[client].title if client in CLIENTS else client

    def text(self, server: str) -> tuple[str, str]:
        """Its YAML without secrets, and the digest of the entry."""
        entry = self._entry(server)
        return ("", "") if entry is None else (_yaml(_masked(entry)), _digest(entry))

    def waiting(self) -> list[ProposalInfo]:
        """The proposals for a page."""
        servers = self._file.servers() if self._file.exists else {}
        return [self._info(edit, servers.get(edit.server)) for edit in self._proposals.all()]

    def _info(self, edit: ProposedEdit, before: JsonObject | None) -> ProposalInfo:
        diff = _diff(_masked(before or {}), _masked(edit.entry))
        return ProposalInfo(
            server=edit.server, at=edit.at, command=command_of(self._file, edit.server), reasons=list(edit.reasons),
            diff=diff, new=before is None,
        )  # fmt: skip

    def judge(self, body: EditBody) -> EditOutcome:
        """The edit's effect; writes and looks up nothing."""
        return self._judged(body)[2]

    def edit(self, body: EditBody) -> Edited:
        """Makes or proposes the edit. Raises `ConfigError` with its errors."""
        before, entry, judgement = self._judged(body)
        if errors := [ConfigFinding(finding.code, finding.message) for finding in judgement.findings if finding.error]:
            raise ConfigError(*errors)
        if judgement.effect == "proposal":
            return self._propose(body.server, entry, judgement.reasons)
        if judgement.effect == "none":
            return EditOutcome("none"), None
        return _written(change_to(self._file, body.server, before, entry))

    def switch(self, body: SwitchBody) -> Edited:
        """Switches or removes the server, proposes that, or withdraws a proposal."""
        if body.action == "withdraw":
            return EditOutcome("now" if self._proposals.remove(body.server) else "none"), None
        entry = self._entry(body.server)
        if entry is None:
            raise ConfigError(ConfigFinding("unknown_server", "the file does not have a server of this name"))
        if body.action == "remove":
            return _written(self._file.change([Remove(body.server)]))
        if body.action == "disable":
            outcome, undo = _written(self._file.change([SwitchServer(body.server, False)]))
            if undo is not None:
                self._disabled_here[body.server] = _digest(_enabled(self._entry(body.server) or {}))
            return outcome, undo
        after = _enabled(entry)
        reasons = reasons_to_ask(entry, after, self._file.servers())
        if reasons and self._disabled_here.get(body.server) != _digest(after):
            return self._propose(body.server, after, reasons)
        return _written(self._file.change([SwitchServer(body.server, True)]))

    def search(self, words: str) -> list[JsonObject]:
        """Servers of `hub.registry`, each with entries that may be proposed. Blocks."""
        if (base := self._file.registry()) is None:
            raise ConfigError(ConfigFinding("no_registry", "there is no registry to search. Set hub.registry"))
        return [row_of(detail, base) for detail in search(base, words, _MOST_HITS)]

    def _propose(self, server: str, entry: JsonObject, reasons: list[str]) -> Edited:
        self._proposals.put(ProposedEdit(server, entry, wall_time(), tuple(reasons)))
        return EditOutcome("proposal", command=command_of(self._file, server)), None

    def _entry(self, server: str) -> JsonObject | None:
        entry = self._file.servers().get(server) if self._file.exists else None
        return entry if entry is None or isinstance(entry, dict) else {}

    def _judged(self, body: EditBody) -> tuple[JsonObject | None, JsonObject, EditOutcome]:
        """Old entry, new one with secrets, judgement. Raises `ConfigError`."""
        if len(body.text) > LARGEST:
            raise ConfigError(ConfigFinding("config_too_large", f"the entry is larger than {LARGEST} characters"))
        servers = self._file.servers() if self._file.exists else {}
        before = servers.get(body.server)
        _check_place(body, before, servers)
        try:
            document = read_document(body.text, _FRAGMENT)
        except ConfigError as error:
            return (
                before,
                {},
                EditOutcome("none", [_error(item.message, item.code, item.line or 0) for item in error.findings]),
            )
        if not isinstance(document.data, dict) or document.findings:
            text = "a key occurs twice" if document.findings else "expected keys and values, such as url: https://…"
            return before, {}, EditOutcome("none", [_error(text, "invalid_value")])
        masked = _masked(before or {})
        entry = _exchanged(document.data, masked, before or {})
        assert isinstance(entry, dict)
        findings = [_error(text, code) for code, text in _refusals(entry, before)]
        if not findings:
            findings = self._findings(body.server, entry, document.lines)
        if before == entry:
            return before, entry, EditOutcome("none", findings)
        reasons = reasons_to_ask(before, entry, servers)
        diff = _diff(masked, _masked(entry))
        return before, entry, EditOutcome("proposal" if reasons else "now", findings, reasons, diff)

    def _findings(self, server: str, entry: JsonObject, lines: Mapping[DataPath, int]) -> list[EditFinding]:
        present = {name for server_entry in self._file.servers().values() for name in references(server_entry)}
        checked = neutralized(entry, present, _STAND_IN)
        assert isinstance(checked, dict)
        errors, advice = list[ConfigFinding](), list[ConfigFinding]()
        with closed_keyring():
            try:
                loaded = self._file.loaded_with([Put(server, checked, replaces=True)])
            except ConfigError as error:
                errors = [*error.findings]
            else:
                errors += loaded.failures.get(server, ())
                advice = [finding for finding in (*loaded.warnings, *loaded.notes) if finding not in errors]
        prefix = path_text((self._file.holder(), server))
        places = {path_text((self._file.holder(), server, *path)): line for path, line in lines.items()}
        return [
            EditFinding(hide(finding.message), finding.code, _line(finding.path, prefix, places), finding in errors)
            for finding in [*errors, *findings_about(server, advice)]
            if finding.code not in UNRESOLVED
        ]


def _written(undo: Undo | None) -> Edited:
    return EditOutcome("none" if undo is None else "now"), undo


def change_to(file: ServersFile, server: str, before: JsonObject | None, entry: JsonObject) -> Undo | None:
    """Writes keys that differ, their secrets to files. Raises `ConfigError`, with nothing changed."""
    secrets = KeptSecrets(file.folder)
    fresh = {key: value for key, value in entry.items() if before is None or before.get(key, ...) != value}
    fresh = without_secrets(server, fresh, secrets.keep)
    changes = changes_to(server, before, {**entry, **fresh})
    file.changed_text(changes)  # refuses, before a secret is written
    secrets.store(file.env)
    return file.change(changes)


def changes_to(server: str, before: JsonObject | None, entry: JsonObject) -> list[Change]:
    """The changes from one entry to the other."""
    if before is None:
        return [Put(server, entry)]
    removed = [key for key in before if key not in entry]
    changed = [(key, value) for key, value in entry.items() if before.get(key, ...) != value]
    return [*(Put(server, value, key) for key, value in changed), *(Remove(server, key) for key in removed)]


def lines_for_terminal(before: JsonObject | None, entry: JsonObject) -> list[str]:
    """The diff for a person; only unchanged secrets are masked."""
    masked = _exchanged(entry, before or {}, _masked(before or {}))
    return _diff(_masked(before or {}), masked if isinstance(masked, dict) else {})


def _error(text: str, code: str, line: int = 0) -> EditFinding:
    return EditFinding(hide(text), code, line, error=True)


def _check_place(body: EditBody, before: JsonObject | None, servers: Mapping[str, JsonObject]) -> None:
    if before is None and body.digest:
        raise ConfigError(ConfigFinding("entry_changed", "the server was removed in the meantime"))
    if before is not None and not body.digest:
        raise ConfigError(ConfigFinding("server_exists", "there is a server of this name already"))
    if before is not None and _digest(before) != body.digest:
        raise ConfigError(
            ConfigFinding("entry_changed", "somebody has changed the entry in the meantime. Load it again")
        )
    if before is None and not _NAME.fullmatch(body.server):
        text = "a name has at most 64 letters, digits, _ . and -, and begins with a letter, a digit or _"
        raise ConfigError(ConfigFinding("invalid_value", text))
    if before is None and len(servers) >= _MOST_SERVERS:
        raise ConfigError(ConfigFinding("config_too_large", f"the configuration has {len(servers)} servers already"))


def _refusals(entry: JsonObject, before: JsonObject | None) -> list[tuple[str, str]]:
    refusals = []
    if _has_mask(entry, before):
        text = f"{MASK} stands for a secret that has another place now. Write the secret again, or its {'${VAR}'}"
        refusals.append(("masked_value", text))
    if (reason := refused_url(entry.get("url"))) is not None:
        refusals.append(("invalid_url", reason))
    return refusals


def _has_mask(tree: object, old: object) -> bool:
    if isinstance(tree, dict):
        olds = old if isinstance(old, dict) else {}
        return any(_has_mask(value, olds.get(key)) for key, value in tree.items())
    if isinstance(tree, list):
        items = old if isinstance(old, list) and len(old) == len(tree) else [None] * len(tree)
        return any(map(_has_mask, tree, items))
    return isinstance(tree, str) and MASK in tree and tree != old


def _exchanged(tree: object, old: object, new: object) -> object:
    if isinstance(tree, dict):
        pairs = (old, new) if isinstance(old, dict) and isinstance(new, dict) else ({}, {})
        return {key: _exchanged(value, pairs[0].get(key), pairs[1].get(key)) for key, value in tree.items()}
    if isinstance(tree, list):
        olds, news = (old, new) if isinstance(old, list) and isinstance(new, list) else ([], [])
        at = range(min(len(olds), len(news)))
        return [_exchanged(item, olds[n], news[n]) if n in at else item for n, item in enumerate(tree)]
    return new if isinstance(tree, str) and tree == old and isinstance(new, str) else tree


def _masked(entry: JsonObject) -> JsonObject:
    masked = _hidden(without_secrets("", entry, lambda *_: MASK))  # not learned: a stranger may have written them
    return masked if isinstance(masked, dict) else {}


def _hidden(tree: object) -> object:
    if isinstance(tree, dict):
        return {key: _hidden(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_hidden(value) for value in tree]
    return hide(tree) if isinstance(tree, str) else tree


def _yaml(entry: JsonObject) -> str:
    text = "\n".join(line for key, value in entry.items() for line in writing.entry(str(key), value, 0, 2))
    return text if visible(text) == text else str(yaml.safe_dump(entry, sort_keys=False, width=LARGEST))


def _diff(before: JsonObject, after: JsonObject) -> list[str]:
    lines = (_yaml(before).splitlines(), _yaml(after).splitlines())
    return [line for line in difflib.ndiff(*lines) if not line.startswith("?")]


def _digest(entry: JsonObject) -> str:
    return sha256(repr(entry).encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _enabled(entry: JsonObject) -> JsonObject:
    return {key: value for key, value in entry.items() if key not in ("enabled", "disabled")}


def _line(path: str, prefix: str, places: Mapping[str, int]) -> int:
    while len(path) > len(prefix):
        if path in places:
            return places[path]
        path = path[: max(path.rfind("."), path.rfind("["), len(prefix))]
    return 0


def _decoded(text: bytes | None) -> list[ProposedEdit]:
    try:
        return [] if text is None else msgspec.json.decode(text, type=list[ProposedEdit])
    except (ValueError, RecursionError):
        return []

"""Reads and changes the servers of the hub's configuration file."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.findings import nearest, path_text, quoted
from mcp_hub.config.load.foreign import is_foreign, place_of_servers
from mcp_hub.config.load.load import Loaded, commands_refused, find_config, load, parse, usual_place
from mcp_hub.config.load.locate import is_json, read_document
from mcp_hub.config.load.texts import BYTE_ORDER_MARK, UTF16_MARKS, decoded, read_bytes
from mcp_hub.config.schema.fields import as_flag
from mcp_hub.config.trust import SECRETS, state_dir
from mcp_hub.edit import writing
from mcp_hub.edit.entries import put, put_all, remove
from mcp_hub.edit.writing import STEP, CannotEdit, nested
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.onboarding.files import Undo, edit_file
from mcp_hub.types import JsonObject

HEAD: Final = "# The servers behind this hub: mcp-hub add, import and edit change this file.\n"
"""The first line of a new file."""
UNRESOLVED: Final = ("variable_not_set", "file_unreadable", "keyring_unavailable", "command_refused")
"""Codes of a `${…}` without a value; the server is written anyway."""


class Put(msgspec.Struct, frozen=True):
    """Adds a server, or sets its `key`. A whole entry replaces another only if it `replaces`."""

    name: str
    value: object
    key: str | None = None
    replaces: bool = False


class Remove(msgspec.Struct, frozen=True):
    """Removes a server, or only its `key`."""

    name: str
    key: str | None = None


class SwitchServer(msgspec.Struct, frozen=True):
    """Switches a server on or off."""

    name: str
    on: bool


Change = Put | Remove | SwitchServer


class ServersFile(msgspec.Struct, frozen=True):
    """The configuration at `path`, which may not exist. Methods raise `ConfigError`."""

    path: Path
    env: Mapping[str, str]

    @classmethod
    def find(cls, config: str | None, env: Mapping[str, str]) -> "ServersFile":
        """The hub's file, or the one to create."""
        try:
            return cls(find_config(config, Path.cwd(), env), env)
        except ConfigError as error:
            if error.code != "config_not_found":
                raise
            return cls(usual_place(), env)

    @property
    def exists(self) -> bool:
        return os.path.lexists(self.path)

    @property
    def folder(self) -> Path:
        return self.path.absolute().parent

    def servers(self) -> dict[str, JsonObject]:
        """The servers as written, `${…}` included."""
        content = self._content()
        return {} if content is None else self._read(self._decoded(content))[1]

    def holder(self) -> str:
        """The key of the servers."""
        content = self._content()
        return "servers" if content is None else self._read(self._decoded(content))[0]

    def secret_files(self) -> set[Path]:
        """Secret files that the file refers to; empty if unreadable."""
        try:
            text = (self._content() or b"").decode("utf-8", "replace")
        except ConfigError:
            return set()
        return {path for path in (self.folder / SECRETS).glob("*") if f"${{file:{SECRETS}/{path.name}}}" in text}

    def registry(self) -> str | None:
        """`hub.registry`; None without a file."""
        return load(self.path, self.env, partly=True, lenient=True).settings.hub.registry if self.exists else None

    def unresolved(self, names: Sequence[str]) -> list[ConfigFinding]:
        """The `${…}` of these servers without a value."""
        try:
            loaded = self._parsed(self._decoded(self._content() or b""))
        except ConfigError as error:
            findings: Sequence[ConfigFinding] = error.findings
        else:
            findings = loaded.warnings
        return [finding for finding in findings if finding.code in UNRESOLVED and _is_about(finding, names)]

    def loaded_with(self, changes: Sequence[Change]) -> Loaded:
        return self._parsed(self.changed_text(changes)[1], partly=True)

    def _parsed(self, text: str, *, partly: bool = False) -> Loaded:
        refusal = commands_refused(self.path, self.path.stat(), is_named=True) if self.path.exists() else None
        path, base = str(self.path), self.folder
        return parse(text, path, self.env, base, lenient=True, partly=partly, refusal=refusal)

    def change(self, changes: Sequence[Change]) -> Undo | None:
        """Makes all changes or none; returns what undoes them, or None if nothing changes.

        Raises `not_editable` if the text cannot be edited, and findings for invalid servers.
        """
        return edit_file(self.path, lambda before: self.changed(before, changes), state_dir(self.env))

    def changed_text(self, changes: Sequence[Change]) -> tuple[str, str]:
        """The text before and after; writes nothing."""
        before = self._content()
        return self._decoded(before or b""), self._decoded(self.changed(before, changes))

    def changed(self, before: bytes | None, changes: Sequence[Change]) -> bytes:
        """The changed bytes, without reading or writing. Raises like `change`."""
        text = HEAD if before is None else self._decoded(before)
        fresh = self._fresh(text, changes)
        text = text if fresh is None else fresh
        for change in changes if fresh is None else ():
            text = self._with(text, change)
        self._check(text, [change.name for change in changes if not isinstance(change, SwitchServer)])
        return text.encode()

    def _fresh(self, text: str, changes: Sequence[Change]) -> str | None:
        puts = {change.name: change.value for change in changes if isinstance(change, Put) and change.key is None}
        if len(puts) < max(len(changes), 2):
            return None
        holder, servers = self._read(text)
        if puts.keys() & servers.keys():
            return None
        try:
            return put_all(text, self._form(text), (holder,), puts, "hub")
        except CannotEdit:
            return None  # which names the server

    def _with(self, text: str, change: Change) -> str:
        holder, servers = self._read(text)
        name, path, file = change.name, (holder, change.name), self._form(text)
        is_there, adds = name in servers, isinstance(change, Put) and change.key is None
        if isinstance(change, Put) and adds and is_there and not change.replaces:
            message = f"there is a server {quoted(name)} already. Choose another name, or add --replace."
            raise ConfigError(ConfigFinding("server_exists", message, str(self.path)))
        if not adds and not is_there:
            hint = nearest(name, servers) or f". Configured: {', '.join(servers) or 'none'}."
            message = f"there is no server {quoted(name)}{hint}"
            raise ConfigError(ConfigFinding("unknown_server", message, str(self.path)))
        match change:
            case Put(value=value, key=key):
                return self._put(text, file, path if key is None else (*path, key), value)
            case Remove(key=key):
                return self._removed(text, file, path if key is None else (*path, key))
            case SwitchServer(on=on):
                return self._switched(text, file, path, servers[name], on)

    def _form(self, text: str) -> str:
        return f"servers.{'json' if is_json(text, self.path.name) else 'yaml'}"

    def _put(self, text: str, file: str, path: tuple[str, ...], value: object) -> str:
        try:
            return put(text, file, path, value, "hub")
        except CannotEdit as refused:
            raise self._refusal(f"{refused}. Change it by hand:", pasted(file, path, value)) from None

    def _removed(self, text: str, file: str, path: tuple[str, ...]) -> str:
        try:
            return remove(text, file, path, "hub")
        except CannotEdit as refused:
            raise self._refusal(f"{refused}. Remove it by hand.") from None

    def _refusal(self, message: str, snippet: str = "") -> ConfigError:
        return ConfigError(ConfigFinding("not_editable", message, str(self.path)), snippet=snippet)

    def _switched(self, text: str, file: str, path: tuple[str, str], entry: object, on: bool) -> str:
        if not isinstance(entry, dict):
            raise self._refusal("the server is not a mapping. Remove it by hand.")
        key = "disabled" if "disabled" in entry else "enabled"
        value = on if key == "enabled" else not on
        if key in entry and as_flag(entry[key]) == value or key not in entry and on:
            return text
        if on:
            without = self._removed(text, file, (*path, key))
            if without.count("#") == text.count("#"):  # no comment goes with it
                return without
        return self._put(text, file, (*path, key), value)

    def _read(self, text: str) -> tuple[str, dict[str, JsonObject]]:
        name = str(self.path)
        document = read_document(text, name)
        data = document.data
        if data is None:
            return "servers", {}
        if not isinstance(data, dict):
            raise ConfigError(ConfigFinding("wrong_type", "expected a mapping at the top", name, 1))
        if is_foreign(data, name, is_yaml=document.is_yaml):
            message = "is the file of another client. Import its servers: mcp-hub import FILE."
            raise ConfigError(ConfigFinding("foreign_file", message, name))
        (holder,) = place_of_servers(data, is_yaml=document.is_yaml)
        servers = data.get(str(holder)) or {}
        if not isinstance(servers, dict):
            raise ConfigError(ConfigFinding("wrong_type", "expected a mapping (key: value)", name, path=str(holder)))
        return str(holder), servers

    def _content(self) -> bytes | None:
        try:
            return read_bytes(self.path, LARGEST_OWN, create="Create it with: mcp-hub init")[0]
        except ConfigError as error:
            if error.code != "config_not_found":
                raise
            return None

    def _decoded(self, content: bytes) -> str:
        if content.startswith(UTF16_MARKS):
            message = "the text is UTF-16, which can be read and not changed. Save the file as UTF-8."
            raise ConfigError(ConfigFinding("invalid_text", message, str(self.path)))
        mark = BYTE_ORDER_MARK if content.startswith(BYTE_ORDER_MARK.encode()) else ""  # every byte stays
        return mark + decoded(content, str(self.path))

    def _check(self, text: str, names: Sequence[str]) -> None:
        """Refuses invalid servers only."""
        try:
            parse(text, str(self.path), self.env, self.folder)
        except ConfigError as error:
            refusals = [
                finding for finding in error.findings if finding.code not in UNRESOLVED and _is_about(finding, names)
            ]
            if refusals:
                raise ConfigError(*refusals) from None


def option_for(file: ServersFile) -> str:
    """` --config FILE`; empty if other commands find the file anyway."""
    is_usual = ServersFile.find(None, file.env).path == file.path
    return "" if is_usual else f" --config {shlex.quote(str(file.path))}"


def findings_about(name: str, findings: Sequence[ConfigFinding]) -> list[ConfigFinding]:
    return [finding for finding in findings if _is_about(finding, [name])]


def _is_about(finding: ConfigFinding, names: Sequence[str]) -> bool:
    places = [path_text((holder, name)) for name in names for holder in ("servers", "mcpServers")]
    return any(
        finding.path == server_path or finding.path.startswith((f"{server_path}.", f"{server_path}["))
        for server_path in places
    )


def pasted(file: str, path: Sequence[str], value: object) -> str:
    """Lines that set the value at `path` in such a file."""
    tree = nested(path[:-1], {path[-1]: value})
    if file.endswith(".json"):
        return json.dumps(tree, ensure_ascii=False)
    return "\n".join(line for key, inner in tree.items() for line in writing.entry(key, inner, 0, STEP))

"""Other clients' servers in our keys and notation, for `import` and `--config`."""

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import msgspec
from pydantic import ValidationError

from mcp_hub.config.findings import DataPath, Finding, Findings
from mcp_hub.config.load.check import READ_AS_OTHERS_WRITE, STAND_IN, refused_keys
from mcp_hub.config.load.foreign import (
    ForeignFile,
    conventions_of,
    inputs_of,
    origin_of,
    works_where_started,
)
from mcp_hub.config.load.foreign_limits import narrowed, switched_off
from mcp_hub.config.load.foreign_sandbox import UNREADABLE, SandboxedEntry, sandbox_rule
from mcp_hub.config.load.foreign_server import flat, is_hub, own_keys, translated
from mcp_hub.config.load.foreign_windows import Drives, linux_server, without_cmd
from mcp_hub.config.load.interpolate import (
    CLIENTS_FOLDER,
    OF_CLIENTS,
    Interpolation,
    Reference,
    Unresolved,
    escaped,
    expand_home,
    resolve,
    split_text,
    variable_of_input,
)
from mcp_hub.config.load.notations import Notation
from mcp_hub.config.load.secrets import is_secret
from mcp_hub.config.load.texts import variables_of
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.types import JsonObject

_LIMITS = frozenset(("tools", "prompts", "resources", "enabled", "sandbox"))
_ORDER = {key: index for index, key in enumerate(("command", "args", *ServerSettings.model_fields))}
_ANYWHERE = "https://mcp.example/mcp"
"""An address for one that is not clear yet."""
_OWN_RIGHTS = frozenset(("approval", "hints", "idempotent", "orphan", "pass_env", "per_tool", "retry", "tls"))
"""Keys only of `servers.yaml`, by which a server gets more rights or fewer questions."""
_NOT_TAKEN = "not taken from the file of another client: it decides about rights. Set it in servers.yaml yourself."


class Input(msgspec.Struct, frozen=True):
    """A value that VS Code asks for."""

    id: str
    description: str = ""
    default: str | None = None
    password: bool = False


class ValuePlaces(msgspec.Struct, frozen=True):
    """Stores values outside the configuration; returns the `${…}` to write.

    `ask` gets an input, `keep` a server, variable and value of an `envFile`.
    """

    ask: Callable[[Input], str]
    keep: Callable[[str, str, str], str]


class Translator(msgspec.Struct, frozen=True):
    """Translates the servers of one file; failures are errors in `report`.

    `is_confined`: variable files must be in the project; `_OWN_RIGHTS` are dropped. `drives`: the file may be for
    Windows.
    """

    origin: ForeignFile
    data: JsonObject
    env: Mapping[str, str]
    places: ValuePlaces
    report: Findings
    is_confined: bool = True
    drives: Drives | None = None

    def servers(self, servers: JsonObject) -> JsonObject:
        """The translated servers by name."""
        translated: JsonObject = {}
        for name, server in narrowed(self.data, servers, self.origin.client).items():
            path: DataPath = ("servers", name)
            if not isinstance(server, dict):
                self.report.error(path, "wrong_type", "expected a mapping (key: value)")
                continue
            before = len(self.report.errors)
            try:
                entry = self._server(name, server, path)
            except Unresolved as problem:
                self.report.error(path, problem.code, str(problem))
            if len(self.report.errors) == before:
                translated[name] = entry
        return translated

    def _server(self, name: str, server: JsonObject, path: DataPath) -> JsonObject:
        theirs = flat(server)
        for key in _OWN_RIGHTS & theirs.keys() if self.is_confined else ():
            self.report.warn((*path, key), "misplaced_key", _NOT_TAKEN)
            del theirs[key]
        entry = translated(theirs, self.origin.client, partial(self._note, path, "ignored_key"))
        keys = {*ServerSettings.model_fields, *READ_AS_OTHERS_WRITE[ServerSettings]}
        if isinstance(entry.get("envFile"), str) and "command" in entry:
            keys.add("envFile")
        entry = own_keys(entry, path, keys, self.report)
        if self.drives is not None:
            renamed, note_variable = (partial(self._note, path, code) for code in ("windows_path", "windows_variable"))
            entry = linux_server(entry, self.drives, renamed, note_variable)
        elif os.name != "nt":
            entry = without_cmd(entry)
        entry = self._notation(name, entry, path).server(entry)
        has_folder = bool(entry.get("cwd"))
        self._make_absolute(entry)
        if isinstance(lists := entry.pop("sandbox", None), dict):
            self._limit(entry, lists, has_folder, path)
        if "envFile" in entry:
            self._take_variables(name, entry, path)
        entry = self._without_refused(entry, path)
        return dict(sorted(entry.items(), key=lambda item: _ORDER.get(item[0], len(_ORDER))))

    def _note(self, path: DataPath, code: str, key: str, message: str) -> None:
        self.report.warn((*path, *key.split(".", 1)) if key else path, code, message)

    def _notation(self, name: str, entry: JsonObject, path: DataPath) -> Notation:
        variables = entry.get("env")
        is_elsewhere = self.drives is not None and self.drives.is_clients
        return Notation(
            client=self.origin.client,
            env=self.env,
            names=_names(self.origin, {} if is_elsewhere else self.env),
            variables=variables if isinstance(variables, dict) else {},
            files=None if self.is_confined and not self.origin.is_users else self.origin.file.parent,
            ask=lambda input_name: self.places.ask(self._inputs().get(input_name, Input(input_name))),
            keep=partial(self.places.keep, name),
            note=partial(self._note, path, "invalid_placeholder"),
            is_elsewhere=is_elsewhere,
        )

    def _inputs(self) -> dict[str, Input]:
        inputs: dict[str, Input] = {}
        for entry in inputs_of(self.data):
            id_, default, text = entry.get("id"), entry.get("default"), entry.get("description")
            if isinstance(id_, str):
                default_text = str(default) if isinstance(default, str | int | float) else None
                inputs[id_] = Input(
                    id_, text if isinstance(text, str) else "", default_text, entry.get("password") is True
                )
        return inputs

    def _make_absolute(self, entry: JsonObject) -> None:
        if "command" not in entry:
            return
        for key in ("cwd", "command"):
            path = entry.get(key)
            if not isinstance(path, str) or not path or path.startswith(("~", "$")):
                continue
            if key == "cwd" or os.path.dirname(path):
                entry[key] = os.path.abspath(os.path.join(escaped(str(self.origin.base)), path))
        if entry.get("cwd"):
            return
        if self.origin.project is not None:
            entry["cwd"] = escaped(str(self.origin.project))
        elif works_where_started(entry["command"], entry.get("args")):
            entry["cwd"] = CLIENTS_FOLDER

    def _limit(self, entry: JsonObject, lists: JsonObject, has_folder: bool, path: DataPath) -> None:
        def note(key: str, message: str) -> None:
            self.report.warn((*path, *key.split(".")), "sandbox_narrowed", message)

        values: dict[str, list[str]] = {}
        for key, texts in lists.items():
            values[key] = [value for text in texts if isinstance(value := self._value(text, key), str)]
            if len(values[key]) < len(texts):
                is_limit = ".deny" in key or ".denied" in key
                note(f"sandbox.{key}", UNREADABLE if is_limit else "holds a variable that is not set: left out")
                entry |= {"enabled": False} if is_limit else {}
        rule = sandbox_rule(values, self._entry_of(entry, has_folder), note)
        entry |= {"enabled": False} if rule is None else {"sandbox": rule}

    def _entry_of(self, entry: JsonObject, has_folder: bool) -> SandboxedEntry:
        home = self.env.get("HOME") or os.path.expanduser("~")
        folder, args = self._value(entry.get("cwd", ""), "cwd"), entry.get("args")
        folder = f"{home}{folder[1:]}" if isinstance(folder, str) and folder.startswith("~/") else folder
        base = folder if isinstance(folder, str) and os.path.isabs(folder) else None
        words = [self._value(word, "args") for word in args] if isinstance(args, list) else []
        is_elsewhere = base is None and "cwd" in entry  # in a folder that is not known now
        return SandboxedEntry(
            program=str(entry.get("command")),
            args=[*(word if isinstance(word, str) else None for word in words), *([None] if is_elsewhere else [])],
            base=base or str(self.origin.base),
            home=home,
            path=self.env.get("PATH", ""),
            starts_in_base=base is not None,
            writes_base=base is not None and has_folder,
        )

    def _take_variables(self, name: str, entry: JsonObject, path: DataPath) -> None:
        base = self.origin.base
        text = entry.pop("envFile")
        try:
            env_file = resolve(text, self.env, base).text
            if self.is_confined and not self._is_inside(base / expand_home(env_file, self.env)):
                message = f"a file of a project has no files outside of {base}: set the variables (left out)"
                self.report.warn((*path, "envFile"), "file_unreadable", message)
                return
            variables, warnings = variables_of(env_file, self.env, base)
        except Unresolved as problem:
            self.report.error((*path, "envFile"), problem.code, str(problem))
            return
        for code, message in warnings:
            self.report.warn((*path, "envFile"), code, message)
        present = entry.get("env") or {}
        if isinstance(present, dict):
            values = {key: self.places.keep(name, key, value) for key, value in variables.items()}
            entry["env"] = {**values, **present}

    def _is_inside(self, file: Path) -> bool:
        if self.origin.is_users:
            return True
        try:
            return file.resolve().is_relative_to(self.origin.base.resolve())
        except (OSError, ValueError, RuntimeError):
            return False

    def _without_refused(self, entry: JsonObject, path: DataPath) -> JsonObject:
        allowed = dict(entry)
        for key, reason in refused_keys({key: self._value(value, key) for key, value in entry.items()}):
            if key in _LIMITS:
                allowed["enabled"] = False
                reason = f"{reason}. It limits the server, so the server is disabled"
            self.report.warn((*path, *key.split(".", 1)), "ignored_key", f"ignored: {reason}")
            section, _, name = key.partition(".")
            if name:
                allowed[section] = {item: value for item, value in allowed[section].items() if item != name}
            else:
                allowed.pop(key, None)
        return allowed

    def _value(self, tree: object, key: str) -> object:
        """Fills in variables; None if one is unknown. Reads no files."""
        if isinstance(tree, dict):
            return {name: value for name, item in tree.items() if (value := self._value(item, key)) is not None}
        if isinstance(tree, list):
            return [value for item in tree if (value := self._value(item, key)) is not None]
        if not isinstance(tree, str):
            return tree
        try:
            if not any(map(_is_lookup, _references(tree))):
                return resolve(tree, self.env, self.origin.base).text
        except Unresolved:
            pass
        return {"url": _ANYWHERE, "command": "x"}.get(key)


def _is_lookup(reference: str) -> bool:
    kind, colon, _ = reference.partition(":")
    return bool(colon) and kind in ("file", "keyring", "cmd")


def _names(origin: ForeignFile, env: Mapping[str, str]) -> dict[str, str]:
    folder = str(origin.file.parent)
    names = {"pathSeparator": os.sep, "/": os.sep, "CLAUDE_PLUGIN_ROOT": folder}
    if origin.file.name == "gemini-extension.json":
        names["extensionPath"] = folder
    if origin.project is not None:
        if conventions_of(origin.client).is_editor:
            names |= dict.fromkeys(("cwd", "localWorkspaceFolder"), str(origin.project))
        names |= dict.fromkeys(("workspaceFolder", "workspaceRoot", "CLAUDE_PROJECT_DIR"), str(origin.project))
        names["workspaceFolderBasename"] = origin.project.name
    if home := env.get("HOME") or env.get("USERPROFILE"):
        names["userHome"] = home
    return names


def in_our_form(
    tree: JsonObject, data: JsonObject, file: Path, interpolation: Interpolation, report: Findings, *, is_named: bool
) -> tuple[JsonObject, dict[str, tuple[str, ...]]]:
    """Another client's file in our form, and what each server takes from outside.

    Errors in `report`: untranslatable servers, and those that take something from outside while not `is_named`.
    """
    tree = without_foreign_sections(tree, report)
    servers = tree.get("servers")
    if not isinstance(servers, dict):
        report.error(("servers",), "wrong_type", "expected a mapping (key: value)")
        raise report.failure()

    def learn(server: str, name: str, value: str) -> None:
        if is_secret(name, value, is_from_outside=True):
            interpolation.take(("servers", server, "envFile"), [value], ())

    places = values_in_place(interpolation.env, learn)
    origin = origin_of(file, data, interpolation.env)
    translator = Translator(
        origin=origin, data=data, env=interpolation.env, places=places, report=report, is_confined=not is_named
    )
    translated = translator.servers({name: server for name, server in servers.items() if is_whole(name, report)})
    off = {name: "it is this hub" for name in translated if is_hub(servers[name])} | switched_off(data, translated)
    for name, reason in off.items():
        translated[name]["enabled"] = False
        report.warn(("servers", name), "ignored_key", f"{reason}, so the server is disabled")
    sources = {
        name: (*sources_of(translated.get(name)), *_file_of_variables(server)) for name, server in servers.items()
    }
    for name, taken in sources.items() if not is_named else ():
        if taken:
            message = f"nobody has named this file, so the server does not get {', '.join(taken)}. Name it by --config"
            report.errors.insert(0, Finding(("servers", name), "file_not_named", message))
    return {**tree, "servers": {name: translated.get(name, STAND_IN) for name in servers}}, sources


def is_whole(name: str, report: Findings) -> bool:
    return not any(error.code == "duplicate_key" and error.path[:2] == ("servers", name) for error in report.errors)


def values_in_place(env: Mapping[str, str], learn: Callable[[str, str, str], None]) -> ValuePlaces:
    """Inputs become variables, other values stay. `learn` gets server, name and value of each `envFile` variable."""

    def ask(input_: Input) -> str:
        name, default = variable_of_input(input_.id), input_.default
        return f"${{{name}}}" if name in env or default is None else escaped(default)

    def keep(server: str, name: str, value: str) -> str:
        learn(server, name, value)
        return escaped(value)

    return ValuePlaces(ask, keep)


def sources_of(entry: object) -> tuple[str, ...]:
    """Values from outside, in order: `$NAME`, `file PATH`, `keyring NAME`, `cmd PROGRAM`."""
    passed = entry.get("pass_env") if isinstance(entry, dict) else None
    names = [f"${name}" for name in (passed if isinstance(passed, list) else ())]
    for reference in _references(entry):
        if reference in OF_CLIENTS:
            continue
        name = reference.removeprefix("env:").partition(":-")[0]
        names.append(reference.replace(":", " ", 1) if _is_lookup(reference) else f"${name}")
    return tuple(dict.fromkeys(names))


def _file_of_variables(server: object) -> tuple[str, ...]:
    file = server.get("envFile") if isinstance(server, dict) else None
    return (f"file {file}",) if isinstance(file, str) else ()


def _references(tree: object) -> list[str]:
    if isinstance(tree, str):
        try:
            return [part.text for part in split_text(tree) if isinstance(part, Reference)]
        except Unresolved:
            return []
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [reference for value in inner for reference in _references(value)]


def without_foreign_sections(tree: JsonObject, report: Findings) -> JsonObject:
    """Drops sections that the hub lacks or cannot read, with warnings."""
    report.excuse(lambda error: error.code == "duplicate_key" and error.path[:1] != ("servers",))
    own_sections = own_keys(tree, (), {*Settings.model_fields, "mcpServers"}, report)
    for key in [key for key in own_sections if key != "servers"]:
        try:
            Settings.model_validate({key: own_sections[key]})
        except ValidationError:
            report.warn((key,), "ignored_key", "ignored: the hub has another meaning for this key")
            del own_sections[key]
    return own_sections

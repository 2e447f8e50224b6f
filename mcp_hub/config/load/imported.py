"""The servers of another client's file in the hub's own format, with `${…}` as they are to be written there."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.config.findings import DataPath, Findings
from mcp_hub.config.load.env_file import variables_of
from mcp_hub.config.load.foreign import is_foreign, names_of_others, place_of_servers, sections, without_foreign_keys
from mcp_hub.config.load.interpolate import Reference, Unresolved, expand_home, joined, resolve, split_text
from mcp_hub.config.load.locate import half_findings, read_document
from mcp_hub.config.load.texts import read_text_file
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OF_CLIENTS
from mcp_hub.types import JsonObject

_LOOKUP: Final = re.compile(r"(?<!\$)\$\{(?=(?:file|keyring):)")

_OWN_RIGHTS: Final = ("approval", "hints", "idempotent", "orphan", "pass_env", "per_tool", "retry", "tls")
"""Keys of `servers.yaml` that no other client has, by which a server gets more or is asked for less."""
_NOT_TAKEN: Final = (
    "not taken from the file of another client: it decides about rights. Set it in servers.yaml yourself."
)


class Input(msgspec.Struct, frozen=True):
    """A value that VS Code asks for: an entry of `inputs`."""

    id: str
    description: str = ""
    default: str | None = None
    password: bool = False


class ValuePlaces(msgspec.Struct, frozen=True):
    """Where values are put that do not belong into a configuration; each returns the `${…}` to write.

    `ask` is called for each use of an input, `keep` with a server, a variable's name, and its value of an `envFile`.
    """

    ask: Callable[[Input], str]
    keep: Callable[[str, str, str], str]


def imported(file: Path, env: Mapping[str, str], places: ValuePlaces) -> tuple[JsonObject, tuple[ConfigFinding, ...]]:
    """The servers by name, and warnings. Raises `ConfigError`."""
    text = read_text_file(file, LARGEST_OF_CLIENTS).text
    document = read_document(text, str(file))
    data = document.data
    if not isinstance(data, dict) or not is_foreign(data, str(file), is_yaml=document.is_yaml):
        said = "this is not a file of another client. Use it with --config as it is."
        raise ConfigError(ConfigFinding("not_foreign", said, str(file)))
    report = Findings(str(file), document.lines, errors=list(document.findings))
    servers = sections(data, place_of_servers(data, is_yaml=False), report).get("servers")
    if not isinstance(servers, dict) or report.errors:
        report.error(("servers",), "wrong_type", "expected a mapping (key: value) without duplicate keys")
        raise report.failure()
    report.errors.extend(half_findings(servers, ("servers",), text))
    if report.errors:
        raise report.failure()
    servers = {name: as_text(own) for name, own in servers.items()}
    done = in_our_keys(servers, data, file, env, places, report)
    return done, report.located(report.warnings)


def as_text(tree: object) -> object:
    """The data, in which `${file:…}` and `${keyring:…}` stay text: no other client looks anything up by them."""
    return mapped(tree, lambda text: _LOOKUP.sub("$${", text))


def in_our_keys(
    servers: JsonObject,
    data: JsonObject,
    file: Path,
    env: Mapping[str, str],
    places: ValuePlaces,
    report: Findings,
    *,
    is_users: bool = False,
) -> JsonObject:
    """Servers of another client's file, whose whole data is `data`, in the keys of ours; `report` gets the warnings.

    What only our format has and what decides about rights (`_OWN_RIGHTS`) is not taken. A file that is not the user's
    (`is_users`), such as a project's, has files of variables in its workspace only.
    """
    own_keys = without_foreign_keys({"servers": servers}, env, report)["servers"]
    others = names_of_others(data, file, env)
    translated = _translation(env, others, _inputs(data), places)
    done: JsonObject = {}
    for name, own in own_keys.items():
        if not isinstance(own, dict):
            report.warn(("servers", name), "wrong_type", "expected a mapping (key: value) (the server is left out)")
            continue
        for key in _OWN_RIGHTS:
            if key in own:
                report.warn(("servers", name, key), "misplaced_key", _NOT_TAKEN)
        done[name] = {key: mapped(value, translated) for key, value in own.items() if key not in _OWN_RIGHTS}
        _make_absolute(done[name], file.absolute().parent)
        if "envFile" in own:
            folder = None if is_users else Path(others["workspaceFolder"])
            _take_variables(name, done[name], file, folder, env, places, report)
    return done


def _translation(
    env: Mapping[str, str], others: Mapping[str, str], inputs: Mapping[str, Input], places: ValuePlaces
) -> Callable[[str], str]:
    """The function for each text: inputs become references of ours, names of folders the folders."""

    def written(part: str | Reference) -> list[str | Reference]:
        if isinstance(part, str) or part.text in env:
            return [part]
        if part.text.startswith("input:"):
            name = part.text.removeprefix("input:")
            return split_text(places.ask(inputs.get(name, Input(name))))
        return [others.get(part.text, part)]

    def translated(text: str) -> str:
        try:
            return joined(new for part in split_text(text) for new in written(part))
        except Unresolved:
            return text  # refused with the whole configuration, which says why

    return translated


def _make_absolute(own: JsonObject, base: Path) -> None:
    """The paths that were relative to the file of the other client."""
    for key in ("cwd", "command"):
        path = own.get(key)
        if isinstance(path, str) and not path.startswith(("~", "$")) and (key == "cwd" or os.path.dirname(path)):
            own[key] = os.path.abspath(base / path)


def _take_variables(
    name: str,
    own: JsonObject,
    file: Path,
    folder: Path | None,
    env: Mapping[str, str],
    places: ValuePlaces,
    report: Findings,
) -> None:
    path: DataPath = ("servers", name, "envFile")
    base = file.absolute().parent
    try:
        place = resolve(own.pop("envFile"), env, base).text
        if folder is not None and not _is_below(base / expand_home(place, env), folder):
            raise Unresolved(
                "file_unreadable", f"a file of a project has no files outside of {folder}: set the variables"
            )
        found, _ = variables_of(place, env, base)
    except Unresolved as problem:
        report.warn(path, problem.code, f"{problem} (left out)")
        return
    given = own.get("env") or {}
    if isinstance(given, dict):
        own["env"] = {**{key: places.keep(name, key, value) for key, value in found.items()}, **given}


def _is_below(path: Path, folder: Path) -> bool:
    """Whether the file behind all links is in the folder."""
    try:
        return path.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def _inputs(data: JsonObject) -> dict[str, Input]:
    nested = data.get("mcp")
    listed = [*_list(data.get("inputs")), *_list(nested.get("inputs") if isinstance(nested, dict) else None)]
    found: dict[str, Input] = {}
    for own in listed:
        try:
            one = msgspec.convert(own, Input)
        except msgspec.ValidationError:
            continue  # without an id
        found[one.id] = one
    return found


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def mapped(tree: object, change: Callable[[str], str]) -> object:
    """The data with every text changed."""
    if isinstance(tree, dict):
        return {key: mapped(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [mapped(item, change) for item in tree]
    return change(tree) if isinstance(tree, str) else tree

"""Files of other clients: where they have their servers, and keys that are not the hub's, ignored with a warning each.

The class of a file follows from the key that holds its servers, and from nothing else: an unknown key never makes a
file another client's, or ours. In our own files, YAML and any that has a `hub`, unknown keys are errors. Works on any
shape of data.
"""

import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from mcp_hub.config.findings import DataPath, Finding, Findings, nearest, quoted
from mcp_hub.config.load.check import READ_AS_OTHERS_WRITE
from mcp_hub.config.load.foreign_server import LISTS, SOURCES, translated
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.types import JsonObject

_HOLDERS: Final[tuple[DataPath, ...]] = (
    ("context_servers",),  # Zed
    ("mcp_servers",),  # Codex
    ("mcp", "servers"),  # settings of VS Code, OpenCode
    ("mcp",),  # OpenCode
)
_VS_CODE: Final = "mcp.json"
_APPROVES: Final = "the client asks before a call, not the hub. Set this in the client."
_OF_OTHERS: Final = {
    **dict.fromkeys(("autoApprove", "alwaysAllow", "trust"), _APPROVES),
    "envFile": "expected the path of a file of variables",
    **dict.fromkeys(("auth", "authorization"), "to log in to a remote server, set oauth: {} or bearer"),
    **dict.fromkeys(LISTS, "set tools.allow or tools.deny"),
    "inputs": "a value for ${input:NAME} comes from the environment variable NAME, in capitals and with _ for -",
}
"""Advice for keys that other clients know: they are not misspelled keys of ours, however similar."""
_PROJECT: Final = re.compile(r"\.[a-z]+")
"""The folder in a project that is a client's: `.vscode`, `.cursor`."""


def place_of_servers(data: Mapping[str, object], *, is_yaml: bool) -> DataPath:
    """The path of the mapping of servers; empty if the file is nothing else."""
    if "mcpServers" in data:
        return ("mcpServers",)
    for place in _HOLDERS if not is_yaml and "hub" not in data else ():
        if isinstance(_at(data, place), dict | list):
            return place
    is_bare = not is_yaml and not Settings.model_fields.keys() & data.keys() and any(map(_is_server, data.values()))
    return () if is_bare else ("servers",)


def is_foreign(data: Mapping[str, object], name: str, *, is_yaml: bool) -> bool:
    """Whether the file is that of another client."""
    if is_yaml or "hub" in data:
        return False
    is_vs_code = "servers" in data and ("inputs" in data or Path(name).name == _VS_CODE)
    return is_vs_code or place_of_servers(data, is_yaml=False) != ("servers",)


def sections(data: JsonObject, place: DataPath, report: Findings) -> JsonObject:
    """The top level under the names of `Settings`, with the servers at `place` under `servers`."""
    if place == ("servers",):
        return {key: value for key, value in data.items() if key != "$schema"}
    servers = _at(data, place)
    tree = {key: value for key, value in data.items() if place and key not in ("$schema", place[0])}
    report.written["servers"] = place
    if "servers" in tree:
        report.error(place, "conflicting_keys", 'means the same as "servers". Keep one of them.')
        report.written.clear()
        return tree
    if isinstance(servers, list):  # each with its name
        servers = {str(own.get("name")): _without_name(own) for own in servers if isinstance(own, dict)}
    elif not place:
        servers = {key: value for key, value in data.items() if key != "$schema"}
    return {**tree, "servers": servers}


def without_foreign_keys(tree: JsonObject, env: Mapping[str, str], report: Findings) -> JsonObject:
    """`tree`, whose servers are under `servers`, without keys that are not the hub's; each of them is a warning."""
    own = _own_keys(tree, (), {*Settings.model_fields, *READ_AS_OTHERS_WRITE[Settings]}, report)
    if isinstance(servers := own.get("servers"), dict):
        own["servers"] = {name: _server(server, ("servers", name), env, report) for name, server in servers.items()}
    return own


def names_of_others(data: JsonObject, file: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The values of other clients' own `${…}`: folders, and the defaults of inputs (`input:ID`).

    The workspace is the folder of the file, or the one above if the file is in a client's folder such as `.vscode`.
    """
    folder = file.absolute().parent
    workspace = folder.parent if _PROJECT.fullmatch(folder.name) else folder
    names = {
        "workspaceFolder": str(workspace),
        "workspaceRoot": str(workspace),
        "workspaceFolderBasename": workspace.name,
        "pathSeparator": os.sep,
        "/": os.sep,
    }
    if home := env.get("HOME") or env.get("USERPROFILE"):
        names["userHome"] = home
    for place in ("inputs",), ("mcp", "inputs"):
        inputs = _at(data, place)
        for own in inputs if isinstance(inputs, list) else ():
            if isinstance(own, dict) and isinstance(own.get("default"), str):
                names[f"input:{own.get('id')}"] = own["default"]
    return names


def _at(data: object, place: DataPath) -> object:
    for key in place:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _is_server(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(value.get(key), str | list) for key in SOURCES)


def _without_name(server: JsonObject) -> JsonObject:
    return {key: value for key, value in server.items() if key != "name"}


def _server(server: object, path: DataPath, env: Mapping[str, str], report: Findings) -> object:
    if not isinstance(server, dict):
        return server
    own = translated(server, env)
    known = {*ServerSettings.model_fields, *READ_AS_OTHERS_WRITE[ServerSettings]}
    if own.get("auth") == "oauth":
        known.add("auth")
    if isinstance(own.get("envFile"), str) and "command" in own:
        known.add("envFile")
    return _own_keys(own, path, known, report)


def _own_keys(section: JsonObject, path: DataPath, known: Collection[str], report: Findings) -> JsonObject:
    for key in section:
        if key in known:
            continue
        about, guess = _OF_OTHERS.get(key), nearest(key, known)
        if about is None and guess:
            report.slips.append(Finding((*path, key), "unknown_key", f"unknown key {quoted(key)}{guess}"))
        said = f"ignored: {about}" if about else f"ignored: the hub does not have this key{guess}"
        report.warn((*path, key), "ignored_key", said)
    return {key: value for key, value in section.items() if key in known}

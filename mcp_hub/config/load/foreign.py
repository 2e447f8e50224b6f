"""Files of other clients (`mcpServers`, or VS Code's `servers` next to `inputs`): unknown keys are ignored with a
warning, and a few keys of other clients are read as ours. Works on any shape of data.

In our own files, YAML and JSON that has a `hub`, unknown keys are errors.
"""

from collections.abc import Collection, Mapping
from typing import Final

from mcp_hub.config.findings import DataPath, Finding, Findings, nearest, quoted
from mcp_hub.config.load.check import READ_AS_OTHERS_WRITE
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.types import JsonObject

_URLS: Final = ("serverUrl", "httpUrl")
_LISTS: Final = {
    **dict.fromkeys(("disabledTools", "disabled_tools", "excludeTools"), "deny"),
    **dict.fromkeys(("enabledTools", "enabled_tools", "includeTools"), "allow"),
}
"""Lists of tool names in other clients' files, and the key of `tools` that each stands for."""
_APPROVES: Final = "the client asks before a call, not the hub. Set this in the client."
_OF_OTHERS: Final = {
    **dict.fromkeys(("autoApprove", "alwaysAllow", "trust"), _APPROVES),
    "envFile": "the hub does not read files of variables. Set the variables under env.",
    **dict.fromkeys(("auth", "authorization"), "to log in to a remote server, set oauth: {} or bearer"),
    **dict.fromkeys(_LISTS, "set tools.allow or tools.deny"),
    "inputs": "the hub does not ask when it starts. Write ${VAR} where a server needs a value",
}
"""Advice for keys that other clients know: they are not misspelled keys of ours, however similar."""


def is_foreign(tree: Mapping[str, object], *, is_json: bool) -> bool:
    """Whether the top level of a file is that of another client."""
    return is_json and "hub" not in tree and ("mcpServers" in tree or {"servers", "inputs"} <= tree.keys())


def without_foreign_keys(tree: JsonObject, report: Findings) -> JsonObject:
    """`tree`, whose servers are under `servers`, without keys that are not the hub's; each of them is a warning."""
    own = _own_keys(tree, (), {*Settings.model_fields, *READ_AS_OTHERS_WRITE[Settings]}, report)
    if isinstance(servers := own.get("servers"), dict):
        own["servers"] = {name: _server(server, ("servers", name), report) for name, server in servers.items()}
    return own


def _server(server: object, path: DataPath, report: Findings) -> object:
    if not isinstance(server, dict):
        return server
    own = dict(server)
    for key in _URLS:
        if key in own and not {"url", "command"} & own.keys():
            own["url"] = own.pop(key)
    if own.get("type") == "local" and "command" in own:
        del own["type"]
    if isinstance(tools := own.get("tools"), list):  # `["*"]` is all, `[]` none
        own["tools"] = {"allow": tools} if tools else {"deny": ["*"]}
    for key, target in _LISTS.items():
        if key in own and (filtered := _filtered(own.get("tools"), target, own[key])) is not None:
            own["tools"] = filtered
            del own[key]
    known = {*ServerSettings.model_fields, *READ_AS_OTHERS_WRITE[ServerSettings]}
    if own.get("auth") == "oauth":
        known.add("auth")
    return _own_keys(own, path, known, report)


def _filtered(tools: object, target: str, names: object) -> JsonObject | None:
    """`tools` with these names denied, or allowed if nothing else is; None if they cannot be put there."""
    if not (isinstance(names, list) and all(isinstance(name, str) and name for name in names)):
        return None
    filters: object = {} if tools is None else tools
    if not isinstance(filters, dict):
        return None
    there = filters.get(target)
    if there is not None and (target == "allow" or not isinstance(there, list)):
        return None  # a second allow list would let more through
    return {**filters, target: [*(there or []), *names]}


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

"""One server as other clients write it, in the keys of ours. Pure; keys that fit nowhere stay as they are."""

from collections.abc import Mapping
from typing import Final

from mcp_hub.config.load.interpolate import is_variable_name
from mcp_hub.types import JsonObject

_SAME: Final = {
    "serverUrl": "url",
    "httpUrl": "url",
    "uri": "url",
    "transportType": "type",
    "environment": "env",
    "http_headers": "headers",
    "working_directory": "cwd",
    "bearer_token": "bearer",
    "startup_timeout_sec": "start_timeout",
    "tool_timeout_sec": "timeout",
}
"""Keys with the one of ours that means the same."""
SOURCES: Final = ("command", "url", "serverUrl", "httpUrl")
LISTS: Final = {
    **dict.fromkeys(("disabledTools", "disabled_tools", "excludeTools"), "deny"),
    **dict.fromkeys(("enabledTools", "enabled_tools", "includeTools"), "allow"),
}
"""Lists of tool names in other clients' files, and the key of `tools` that each stands for."""


def translated(server: JsonObject, env: Mapping[str, str]) -> JsonObject:
    """The server in our keys; `env` has the variables of the environment."""
    own = _flat(server)
    for theirs, ours in _SAME.items():
        if theirs in own and ours not in own and not (ours == "url" and "command" in own):
            own[ours] = own.pop(theirs)
    if own.get("type") in ("local", "stdio") and "command" in own or own.get("type") == "remote" and "url" in own:
        del own["type"]
    if isinstance(command := own.get("command"), list) and command and "args" not in own:
        own["command"], own["args"] = command[0], command[1:]
    if isinstance(given := own.get("env"), dict):
        own["env"] = {name: _text(value) for name, value in given.items() if value is not None}
    if isinstance(seconds := own.get("startup_timeout_ms"), int) and "start_timeout" not in own:
        own["start_timeout"] = f"{seconds}ms"
        del own["startup_timeout_ms"]
    _refer(own, env)
    _filter(own)
    return own


def _flat(server: JsonObject) -> JsonObject:
    """Without the nested `transport` of Cline and the nested `command` of old Zed."""
    own = dict(server)
    if isinstance(nested := own.get("transport"), dict):
        own = {**{key: value for key, value in own.items() if key != "transport"}, **nested}
    if isinstance(nested := own.get("command"), dict) and "path" in nested:
        rest = {key: value for key, value in nested.items() if key != "path"}
        own = {**own, **rest, "command": nested["path"]}
    return own


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _refer(own: JsonObject, env: Mapping[str, str]) -> None:
    """Codex names variables, where we write `${VAR}`; one of `env_vars` that is not set is not passed on."""
    if is_name(name := own.get("bearer_token_env_var")) and "bearer" not in own:
        own["bearer"] = f"${{{name}}}"
        del own["bearer_token_env_var"]
    if isinstance(names := own.get("env_http_headers"), dict) and all(map(is_name, names.values())):
        own["headers"] = {**_mapping(own.get("headers")), **{key: f"${{{name}}}" for key, name in names.items()}}
        del own["env_http_headers"]
    if isinstance(passed := own.get("env_vars"), list):
        named = [one.get("name") if isinstance(one, dict) else one for one in passed]
        found = {name: f"${{{name}}}" for name in named if is_name(name) and name in env}
        own["env"] = {**found, **_mapping(own.get("env"))}
        del own["env_vars"]


def is_name(value: object) -> bool:
    """Whether the value is the name of an environment variable: `${…}` around another text could read a file."""
    return isinstance(value, str) and is_variable_name(value)


def _filter(own: JsonObject) -> None:
    """Lists of tools become filters."""
    if isinstance(tools := own.get("tools"), list):  # `["*"]` is all, `[]` none
        own["tools"] = {"allow": tools} if tools else {"deny": ["*"]}
    for key, target in LISTS.items():
        if key in own and (filtered := _filtered(own.get("tools"), target, own[key])) is not None:
            own["tools"] = filtered
            del own[key]


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


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}

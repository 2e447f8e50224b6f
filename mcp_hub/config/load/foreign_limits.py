"""Limits in other clients' files: on or off, tool lists, sandboxes. Pure.

An unreadable limit disables the server.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mcp_hub.config.load.foreign_sandbox import RULE_OF_FILE, UNREADABLE, Note, readable_sandbox
from mcp_hub.config.schema.fields import as_flag
from mcp_hub.globs import late
from mcp_hub.types import JsonObject

_SWITCHES: Final = {
    **dict.fromkeys(("enabled", "enable", "isenabled", "active", "isactive"), False),
    **dict.fromkeys(("disabled", "disable", "isdisabled", "inactive"), True),
}
"""Plain keys that switch a server, and the value for off."""
_OFF: Final = frozenset(("disabled", "inactive", "off"))
"""The values of `status` and `state` that switch a server off."""
_LISTED: Final = late(r"(tool|prompt|resource)")
_APPROVALS: Final = late(r"always|auto|approv|trust|confirm")
"""Keys about asking before a call, not about available tools."""
_NO_LIMITS: Final = late(r"time|parallel|prefix|output|choice|search|permission")
_DENIES: Final = late(r"disallow|disabl|exclud|deny|denied|block|forbid|blacklist|hidden|ignor")
_ALLOWS: Final = late(r"allow|enabl|includ|permit|whitelist|available|only|select")
_NO_LIMIT: Final = frozenset((("allow", "*"), ("deny", "")))
"""Texts in place of a list: allow all, deny none."""
_SWITCH: Final = "sandboxenabled"
_NO_SANDBOX: Final = frozenset(("", "none", "off", "false"))


def plain_key(key: str) -> str:
    """Lower case, without `-`, `_`, `.` and spaces."""
    return re.sub(r"[-_. ]", "", key).lower()


def is_approval(key: str) -> bool:
    return _APPROVALS.search(plain_key(key)) is not None


def is_list_of_tools(key: str) -> bool:
    """Whether the key allows or denies tools, prompts or resources."""
    return _list_of(key) is not None


def limited(entry: JsonObject, client: str, note: Note) -> JsonObject:
    """The server with limits in our keys; an unclear one disables it."""
    translated = dict(entry)
    for key in ("tools", "prompts", "resources"):
        if key in translated:
            _limit(translated, key, _filters(translated.pop(key), client), note)
    if client == "goose" and translated.get("available_tools") == []:  # all of them
        del translated["available_tools"]
    for key in [*translated]:
        if (key_of_list := _list_of(key)) is not None:
            kind, target = key_of_list
            names, present = translated.pop(key), translated.pop(kind, {})
            _limit(translated, kind, _filtered(present, target, names), note, key)
    if not _is_on(translated, note):
        translated["enabled"] = False
    return translated


def _list_of(key: str) -> tuple[str, str] | None:
    plain = plain_key(key)
    kind = _LISTED.search(plain)
    if kind is None or plain in ("tools", "prompts", "resources") or is_approval(key) or _NO_LIMITS.search(plain):
        return None
    if _DENIES.search(plain):
        return f"{kind[1]}s", "deny"
    if _ALLOWS.search(plain):
        return f"{kind[1]}s", "allow"
    return (f"{kind[1]}s", "") if "filter" in plain else None


def _limit(entry: JsonObject, key: str, filters: JsonObject | None, note: Note, written: str = "") -> None:
    if filters is None:
        entry["enabled"] = False
        note(written or key, f"{UNREADABLE}. Set {key}.allow or {key}.deny")
    elif filters:
        entry[key] = filters


def _filters(value: object, client: str) -> JsonObject | None:
    if value is True or value == "*":
        return {}
    if value is False:
        return {"deny": ["*"]}
    if isinstance(value, list):  # `["*"]` is all, `[]` none
        return ({"allow": value} if value else {"deny": ["*"]}) if _are_names(value) else None
    if not isinstance(value, dict):
        return None
    if value and value.keys() <= {"allow", "deny", "include", "exclude"}:
        renamed: JsonObject = {{"include": "allow", "exclude": "deny"}.get(key) or key: value[key] for key in value}
        return renamed if len(renamed) == len(value) else None
    return _denied_by_flags(value, client)


def _denied_by_flags(tools: JsonObject, client: str) -> JsonObject | None:
    denied = []
    for name, value in tools.items():
        if isinstance(value, dict):
            flags = {_flag(item) if off is False else _opposite(_flag(item)) for _, off, item in _switches(value)}
            is_readable = None not in flags and (bool(flags) or client == "codex" or all(map(is_approval, value)))
            is_on = False not in flags
        else:
            is_readable, is_on = isinstance(value, bool), bool(value)
        if not is_readable:
            return None
        denied += [] if is_on else [name]
    return {"deny": denied} if denied else {}


def _switches(table: JsonObject) -> Iterator[tuple[str, bool, object]]:
    for key, value in table.items():
        if (off := _SWITCHES.get(plain_key(key))) is not None:
            yield key, off, value


def _flag(value: object) -> bool | None:
    return bool(value) if value in (0, 1) and isinstance(value, int) else as_flag(value)


def _opposite(flag: bool | None) -> bool | None:
    return None if flag is None else not flag


def _are_names(names: list[object]) -> bool:
    return all(isinstance(name, str) and name for name in names)


def _filtered(section: object, target: str, names: object) -> JsonObject | None:
    if names is (target == "allow") or isinstance(names, str) and (target, names.strip()) in _NO_LIMIT:
        return section if isinstance(section, dict) else None
    if not (target and isinstance(names, list) and _are_names(names) and isinstance(section, dict)):
        return None
    there = section.get(target)
    if there is not None and (target == "allow" or not isinstance(there, list)):
        return None  # a second allow list would let more through
    return {**section, target: [*(there or []), *names]}


def _is_on(entry: JsonObject, note: Note) -> bool:
    """Removes the switches; unreadable means off."""
    is_on = True
    for key, off, value in [*_switches(entry)]:
        del entry[key]
        flag = _flag(value)
        is_on = is_on and flag is not None and flag is not off
        if flag is None:
            note(key, f"{UNREADABLE}. Expected true or false")
    for key in ("status", "state"):
        is_on = is_on and not (isinstance(value := entry.get(key), str) and value.lower() in _OFF)
    if entry.get("experimental_environment", "local") != "local":
        note("experimental_environment", "the hub runs servers on this machine only, so the server is disabled")
        return False
    return _takes_sandbox(entry, note) and is_on


def _takes_sandbox(entry: JsonObject, note: Note) -> bool:
    """Moves VS Code's lists under `sandbox`; False if unreadable. Servers with a URL are not in a sandbox."""
    boxes = {key: entry.pop(key) for key in [*entry] if "sandbox" in plain_key(key)}
    switches = {key: _flag(boxes.pop(key)) for key in [*boxes] if plain_key(key) == _SWITCH}
    rules = {key: box for key, box in boxes.items() if box and str(box).strip().lower() not in _NO_SANDBOX}
    if "url" in entry or False in switches.values() or not (switches or rules):
        return True
    unclear = [key for key, flag in switches.items() if flag is None]
    lists = {key: readable_sandbox(box) for key, box in rules.items()}
    unclear += [key for key, paths in lists.items() if paths is None] or [*lists][1:]
    for key in unclear:
        note(key, UNREADABLE)
    entry["sandbox"] = next(iter(lists.values()), {})
    return not unclear


def switched_off(data: Mapping[str, object], servers: Iterable[str]) -> dict[str, str]:
    """Servers excluded beside the list (Gemini CLI, Qwen Code, VS Code), with reasons; all for an unreadable rule."""
    names = list(servers)
    if data.get("chat.mcp.access") == "none" or data.get("chat.mcp.enabled") is False:
        return dict.fromkeys(names, "MCP is switched off there")
    rules = data.get("mcp")
    if "mcpServers" not in data:
        return {}
    beside = rules if isinstance(rules, dict) else {}
    off: dict[str, str] = {}
    for allows, excludes, setting in (
        (beside.get("allowed"), beside.get("excluded"), "mcp.allowed"),
        (data.get("allowMCPServers"), data.get("excludeMCPServers"), "allowMCPServers"),
    ):
        if any(rule is not None and not isinstance(rule, list) for rule in (allows, excludes)):
            counterpart = "mcp.excluded" if "." in setting else "excludeMCPServers"
            return dict.fromkeys(names, f"{setting} or {counterpart} cannot be read")
        if isinstance(allows, list) and allows:
            off |= {name: f"it is not among {setting} there" for name in names if name not in allows}
        if isinstance(excludes, list):
            off |= {name: "it is excluded there" for name in names if name in excludes}
    return off


def narrowed(data: Mapping[str, object], servers: JsonObject, client: str) -> JsonObject:
    """The servers with limits set beside the list (OpenCode, Amp, Kiro; VS Code's sandbox)."""
    rules = (data.get("sandbox"), _mapping(data.get("mcp")).get("sandbox"), data.get("mcp.sandbox"))
    rule = next((rule for rule in rules if rule is not None), None)
    beside: JsonObject = {} if rule is None else {RULE_OF_FILE: rule}
    return {
        name: server
        if not isinstance(server, dict)
        else {**server, **_beside(data, name, client), **(beside if _names_sandbox(server) else {})}
        for name, server in servers.items()
    }


def _names_sandbox(server: JsonObject) -> bool:
    return any(plain_key(key) == _SWITCH for key in server)


def _beside(data: Mapping[str, object], name: str, client: str) -> JsonObject:
    tools = data.get("tools")
    if client == "opencode":
        permission = data.get("permission")
        rules = [*(tools.items() if isinstance(tools, dict) else ())]
        rules += [(key, value != "deny") for key, value in _mapping(permission).items() if isinstance(value, str)]
        return _ruled(rules, f"{re.sub(r'[^A-Za-z0-9_-]', '_', name)}_")
    if client == "amp" and isinstance(off := data.get("amp.tools.disable"), list):
        return _ruled([(glob, False) for glob in off], f"mcp__{name}__")
    if client == "kiro" and "mcpServers" in data and tools is not None:
        if not isinstance(tools, list):
            return {"enabled": False}
        if "*" in tools or f"@{name}" in tools:
            return {}
        names = [tool.removeprefix(f"@{name}/") for tool in tools if str(tool).startswith(f"@{name}/")]
        return {"allowedTools": names} if names else {"enabled": False}
    return {}


def _ruled(rules: Iterable[tuple[object, object]], prefix: str) -> JsonObject:
    """The last matching rule wins."""
    is_on = True
    denied: dict[str, None] = {}
    for glob, value in rules:
        parts = _behind(glob, prefix) if isinstance(glob, str) else set()
        if "*" in parts:
            is_on, denied = value is not False, {}
        elif value is False:
            denied |= dict.fromkeys(sorted(parts - {""}))
        else:
            denied = {part: None for part in denied if part not in parts}
    return {"enabled": False} if not is_on else {"disallowedTools": [*denied]} if denied else {}


def _behind(glob: str, prefix: str) -> set[str]:
    patterns = {re.sub(r"\*+", "*", glob)}
    for char in prefix:
        patterns = {after for part in patterns for after in _after(part, char)}
    return patterns


def _after(glob: str, char: str) -> Iterator[str]:
    if glob.startswith("*"):
        yield glob
        yield from _after(glob[1:], char)
    elif glob[:1] in ("?", char):
        yield glob[1:]


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}

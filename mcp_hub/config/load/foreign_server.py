"""Another client's server with our keys. Pure; drops unreadable values with a note."""

import re
import shlex
from base64 import b64encode
from collections.abc import Collection
from typing import Final
from urllib.parse import unquote, urlsplit, urlunsplit

from mcp_hub.config.findings import DataPath, Finding, Findings, nearest, quoted
from mcp_hub.config.load.foreign import conventions_of
from mcp_hub.config.load.foreign_limits import is_approval, is_list_of_tools, limited, plain_key
from mcp_hub.config.load.foreign_sandbox import Note
from mcp_hub.config.load.foreign_windows import words_in_wsl
from mcp_hub.config.load.interpolate import is_variable_name
from mcp_hub.config.schema.fields import LONGEST, TRANSPORTS, as_flag, is_transport_header, parse_duration
from mcp_hub.globs import late
from mcp_hub.types import JsonObject

_SAME: Final = {
    **{name: name for name in ("command", "args", "env", "url", "headers", "cwd", "type")},
    **dict.fromkeys(("serverurl", "baseurl", "endpoint", "uri", "httpurl", "sseurl", "mcpurl"), "url"),
    "cmd": "command",
    **dict.fromkeys(("environment", "envs"), "env"),
    "httpheaders": "headers",
    "workingdirectory": "cwd",
    "bearertoken": "bearer",
}
"""Other clients' keys, as `plain_key` has them, and ours of the same meaning."""
_PROGRAM: Final = late(r"(?:^|[/\\])mcp-hub(?:\.exe)?(?:@\S+)?$")
_APPROVES: Final = "the client asks before a call, not the hub. Set this in the client."
_OF_OTHERS: Final = {
    "envFile": "expected the path of a file of variables",
    **dict.fromkeys(("auth", "authorization"), "to log in to a remote server, set oauth: {} or bearer"),
    "authProviderType": "the hub does not support logins of this provider. Set oauth: {} or bearer",
    "headersHelper": "the hub runs no command for headers. Set headers or bearer",
    "inputs": "a value for ${input:NAME} comes from the environment variable NAME, in capitals and with _ for -",
}
"""Advice for keys of other clients, which are not misspelled keys of ours."""
_TYPES: Final = {
    **{re.sub(r"[-_]", "", name.lower()): kind for name, kind in TRANSPORTS.items()},
    **dict.fromkeys(("streaminghttp", "httpstream", "streamable", "httpstreamable"), "http"),
}
_LEAST_MILLISECONDS: Final = 1000
_RUNNERS: Final = frozenset("npx npm node bunx bun deno uvx uv pipx python python3 docker podman".split())
"""Programs that people write with their arguments into `command`."""
_TIME: Final = re.compile(
    r"(?:(?P<start>start|startup|init|initialization|initialize|connect|connection|handshake)|tool|call|toolcall|request)?"
    r"timeout(?:in)?(?P<unit>ms|millis|milliseconds|s|sec|secs|seconds)?"
)
"""Keys of times, without the characters by which clients differ."""
_OWN_TIMES: Final = frozenset(("timeout", "request_timeout", "start_timeout"))
_PARTS_OF_TIMES: Final = {"startup": "start_timeout", "execution": "timeout", "catalog": "request_timeout"}
"""Members of `timeout` of OpenCode."""
_OAUTH: Final = {
    "clientId": "client_id",
    "CLIENT_ID": "client_id",
    "clientSecret": "client_secret",
    "CLIENT_SECRET": "client_secret",
    "callbackPort": "redirect_port",
    "scope": "scopes",
}
_OAUTH_OURS: Final = frozenset(("client_id", "client_secret", "redirect_port", "scopes", "issuer", "grant"))


def translated(server: JsonObject, client: str, note: Note) -> JsonObject:
    """The `flat` server with our keys and unchanged texts."""
    entry = {key: value for key, value in server.items() if value is not None}
    if entry.get("httpUrl"):  # Gemini CLI prefers it to `url`, which is for the older transport
        entry["url"] = entry.pop("httpUrl")
    for theirs in [*entry]:
        plain = plain_key(theirs)
        ours = _SAME.get(plain, theirs)
        if ours != theirs and not entry.get(ours):
            entry[ours] = entry.pop(theirs)
            if plain == "sseurl":
                entry.setdefault("type", "sse")
    _arguments(entry)
    _address(entry, client, note)
    for key in ("env", "headers"):
        if key in entry:
            entry[key] = _pairs(entry[key], key, note)
    _times(entry, client, note)
    _login(entry, note)
    _refer(entry)
    return limited(entry, client, note)


def is_name(value: object) -> bool:
    """Whether the value names a variable: `${…}` around other text could read a file."""
    return isinstance(value, str) and is_variable_name(value)


def flat(server: JsonObject) -> JsonObject:
    """The server with nested `transport` (Cline), `command` (old Zed), headers (Continue) moved up."""
    entry = dict(server)
    if isinstance(nested := entry.get("transport"), dict):
        entry = {**{key: value for key, value in entry.items() if key != "transport"}, **nested}
    if isinstance(nested := entry.get("command"), dict) and "path" in nested:
        more = {key: value for key, value in nested.items() if key != "path"}
        entry = {**entry, **more, "command": nested["path"]}
    if isinstance(options := entry.get("requestOptions"), dict) and "headers" in options:  # Continue
        entry.setdefault("headers", options["headers"])
    return entry


def _arguments(entry: JsonObject) -> None:
    args = entry.get("args")
    if isinstance(args, str):
        args = _words(args)
    if isinstance(command := entry.get("command"), list) and command:
        entry["command"], args = command[0], [*command[1:], *(args if isinstance(args, list) else ())]
    elif isinstance(command, str) and not args and command.partition(" ")[0] in _RUNNERS:
        entry["command"], *args = _words(command)  # no program has such a name with a blank
    if isinstance(args, list):
        entry["args"] = [_text(arg) for arg in args if arg is not None]


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text) if "\\" not in text else text.split()
    except ValueError:
        return [text]


def _text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int | float) else value


def _address(entry: JsonObject, client: str, note: Note) -> None:
    for key in ("command", "url"):
        if isinstance(text := entry.pop(key, ""), str):
            text = text.strip()
        entry |= {key: text} if text != "" else {}
    written = [entry.pop(key) for key in ("type", "transport", "transportType") if key in entry]
    kinds = [re.sub(r"[-_ ]", "", kind.lower()) if isinstance(kind, str) else "" for kind in written]
    kind = next((_TYPES[kind] for kind in kinds if kind in _TYPES), None)
    if "command" in entry and "url" in entry:
        spared = "url" if kind is None else "command"
        note(spared, f"ignored: the server has a {'command' if kind is None else 'url'}, too, which its type is for")
        for key in [spared, *(("args", "env", "cwd") if spared == "command" else ())]:
            entry.pop(key, None)
    if "url" not in entry:
        return
    if kind is not None or client == "cline" and not written:
        entry["type"] = kind or "sse"
    elif any(name not in ("remote", "stdio", "local", "") for name in kinds):
        note("type", "ignored: the hub finds out the transport of the url")
    _take_user(entry)


def _take_user(entry: JsonObject) -> None:
    try:
        parts = urlsplit(str(entry["url"]))
    except ValueError:
        return
    user, at, host = parts.netloc.rpartition("@")
    if at and "$" not in user:
        entry["url"] = urlunsplit(parts._replace(netloc=host))
        header = f"Basic {b64encode(unquote(user).encode()).decode()}"
        headers = entry.get("headers")
        entry["headers"] = {"Authorization": header, **(headers if isinstance(headers, dict) else {})}


def _pairs(value: object, key: str, note: Note) -> object:
    pairs: JsonObject = {}
    if isinstance(value, str):
        value = [line for line in value.splitlines() if line.strip()]
    if isinstance(value, list):
        for item in value:
            if isinstance(item, str):
                name, _, content = item.partition("=" if key == "env" else ":")
                pairs[name.strip()] = content if key == "env" else content.strip()
            elif isinstance(item, dict):
                pairs[str(item.get("name", item.get("key")))] = item.get("value")
    elif isinstance(value, dict):
        pairs = dict(value)
    else:
        return value
    return {name: text for name, item in pairs.items() if (text := _pair(name, item, key, note)) is not None}


def _pair(name: str, value: object, key: str, note: Note) -> str | None:
    text = _text(value)
    if text is None:
        return None
    if key == "headers" and is_transport_header(name):
        note(f"headers.{name}", "ignored: the hub sets this header itself")
    elif not isinstance(text, str):
        note(f"{key}.{name}", "ignored: expected text")
    elif not name or key == "env" and "=" in name:
        note(key, "ignored: it holds a name that is not possible")
    else:
        return text.strip() if key == "headers" else text
    return None


def _times(entry: JsonObject, client: str, note: Note) -> None:
    times: JsonObject = {}
    if isinstance(parts := entry.get("timeout"), dict) and parts.keys() <= _PARTS_OF_TIMES.keys():
        del entry["timeout"]
        times = {_PARTS_OF_TIMES[key]: _duration(value, _unit(value, client)) for key, value in parts.items()}
    for key in [*entry]:
        named = _TIME.fullmatch(plain_key(key))
        if named is None or key in _OWN_TIMES - {"timeout"}:
            continue
        value = entry.pop(key)
        unit = named["unit"] or ("ms" if named["start"] in ("init", "connection") else "")
        if (duration := _duration(value, unit[:1].replace("m", "ms") or _unit(value, client))) is None:
            note(key, "ignored: expected a time that is longer than 0")
        else:
            times.setdefault("start_timeout" if named["start"] else "timeout", duration)
            if not unit and not conventions_of(client).times and _unit(value, client) == "ms":
                note(key, "is taken for milliseconds")
    for ours, duration in times.items():
        if duration is not None:
            entry.setdefault(ours, duration)


def _unit(value: object, client: str) -> str:
    if (unit := conventions_of(client).times) != "":
        return unit
    text = str(value)
    number = value if isinstance(value, int | float) else int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    return "ms" if number >= _LEAST_MILLISECONDS else "s"


def _duration(value: object, unit: str) -> str | None:
    text = re.sub(r"\s+", "", value.lower()) if isinstance(value, str) else _text(value)
    if isinstance(value, bool) or not isinstance(text, str):
        return None
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        is_whole = unit == "ms" and text.endswith("000") and "." not in text
        text = f"{text.removesuffix('000')}s" if is_whole else f"{text}{unit}"
    try:
        return text if 0 < parse_duration(text) <= LONGEST else None
    except ValueError:
        return None


def _login(entry: JsonObject, note: Note) -> None:
    if isinstance(bearer := entry.get("bearer"), str):
        entry["bearer"] = re.sub(r"(?i)^\s*bearer\s+", "", bearer).strip()
        if not entry["bearer"]:
            del entry["bearer"]
    _take_key(entry)
    if entry.get("auth") == "oauth" or isinstance(entry.get("auth"), dict) and "oauth" not in entry:
        auth = entry.pop("auth")
        entry.setdefault("oauth", {} if auth == "oauth" else auth)
    oauth = entry.pop("oauth", False)
    if oauth is False or isinstance(oauth, dict) and as_flag(oauth.get("enabled")) is False:
        return
    if not isinstance(oauth, dict):
        if oauth is not True:
            note("oauth", "ignored: expected a mapping (key: value)")
            return
        oauth = {}
    if isinstance(scopes := entry.pop("scopes", None), list):  # Codex
        oauth = {"scopes": scopes, **oauth}
    entry["oauth"] = _oauth({key: value for key, value in oauth.items() if value is not None}, note)


def _take_key(entry: JsonObject) -> None:
    theirs = entry.get("apiKey")
    key = theirs.get("key") if isinstance(theirs, dict) else None
    if not isinstance(theirs, dict) or not isinstance(key, str) or "url" not in entry:
        return
    del entry["apiKey"]
    kind = theirs.get("authorization_type")
    custom_name = theirs.get("custom_header") if kind == "custom" else None
    header = (
        {custom_name: key}
        if isinstance(custom_name, str)
        else {"Authorization": f"{'Basic' if kind == 'basic' else 'Bearer'} {key}"}
    )
    entry["headers"] = {**header, **_mapping(entry.get("headers"))}


def _oauth(theirs: JsonObject, note: Note) -> JsonObject:
    ours: JsonObject = {}
    for key, value in theirs.items():
        name = _OAUTH.get(key, key)
        if name == "scopes" and isinstance(value, str):
            value = re.split(r"[\s,]+", value.strip()) if value.strip() else []
        if name in _OAUTH_OURS and name not in ours:
            ours[name] = value
        elif key != "enabled":
            note(f"oauth.{key}", "ignored: the hub does not have this key, and finds out the addresses of a login")
    return ours


def _refer(entry: JsonObject) -> None:
    if is_name(name := entry.get("bearer_token_env_var")) and "bearer" not in entry:
        entry["bearer"] = f"${{{name}}}"
        del entry["bearer_token_env_var"]
    if isinstance(names := entry.get("env_http_headers"), dict) and all(map(is_name, names.values())):
        entry["headers"] = {**_mapping(entry.get("headers")), **{key: f"${{{name}}}" for key, name in names.items()}}
        del entry["env_http_headers"]
    if isinstance(passed := entry.get("env_vars"), list):
        variables = [item for item in passed if not isinstance(item, dict) or item.get("source", "local") == "local"]
        listed = [item.get("name") if isinstance(item, dict) else item for item in variables]
        if names := [name for name in listed if is_name(name) and name not in _mapping(entry.get("env"))]:
            entry["pass_env"] = names
        del entry["env_vars"]
    if isinstance(keys := entry.get("env_keys"), list):  # Goose has their values in its own keyring
        entry["env"] = {**{key: f"${{{key}}}" for key in keys if is_name(key)}, **_mapping(entry.get("env"))}


def _mapping(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def is_hub(server: object) -> bool:
    """Whether the entry starts this hub."""
    entry = flat(server) if isinstance(server, dict) else {}
    argv = [entry.get("command", entry.get("cmd")), entry.get("args")]
    words = [word for part in argv for word in (part if isinstance(part, list) else [part]) if isinstance(word, str)]
    if (inside := words_in_wsl(words)) is not None:
        words = inside[1]
    return any(_PROGRAM.search(word) for word in words[:2]) and "serve" in words[:3]


def own_keys(section: JsonObject, path: DataPath, keys: Collection[str], report: Findings) -> JsonObject:
    """The section with `keys` only; others give warnings."""
    for key in section:
        if key in keys:
            continue
        reason, guess = _OF_OTHERS.get(key) or _advice(key), nearest(key, keys)
        if reason is None and guess:
            report.slips.append(Finding((*path, key), "unknown_key", f"unknown key {quoted(key)}{guess}"))
        message = f"ignored: {reason}" if reason else f"ignored: the hub does not have this key{guess}"
        report.warn((*path, key), "ignored_key", message)
    return {key: value for key, value in section.items() if key in keys}


def _advice(key: str) -> str | None:
    if is_approval(key):
        return _APPROVES
    return "set tools.allow or tools.deny" if is_list_of_tools(key) else None

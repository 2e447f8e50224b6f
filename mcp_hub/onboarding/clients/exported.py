"""Servers of the hub in another client's form, with notes on omissions. Pure; nothing is resolved."""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcp_hub.config.load.interpolate import CLIENTS_FOLDER, Reference, Unresolved, is_variable_name, split_text
from mcp_hub.config.schema.fields import as_flag, parse_duration
from mcp_hub.globs import is_glob
from mcp_hub.onboarding.clients.entries import TOKEN_VARIABLE, Command, Slot, filled
from mcp_hub.onboarding.clients.model import Client, Layout, ServerKeys, Template
from mcp_hub.types import JsonObject

_KEPT: Final = {
    "command",
    "args",
    "env",
    "url",
    "headers",
    "bearer",
    "type",
    "enabled",
    "disabled",
    "cwd",
    "description",
}
"""Server keys that are carried over, or mean nothing elsewhere."""
_VARIABLE: Final = re.compile(r"\$(?:\{|[A-Za-z_])")
"""A text that may look like a variable."""
Secret = Callable[[str], str | None]
"""The value for a `${…}`; None if it cannot be read."""
_BEARER: Final = re.compile(r"Bearer \$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_TO_WINDOWS: Final = "What came from this client goes back by mcp-hub uninstall --restore"
_TIMES: Final = ("timeout", "startup_timeout_sec", "tool_timeout_sec")
"""Keys of the hub's entry that do not concern other servers."""


class _ExportedServer(msgspec.Struct, frozen=True):
    """A server in a client's form; without `entry`, `notes` say why."""

    name: str
    entry: JsonObject | None
    notes: tuple[str, ...] = ()


def exported(
    client: Client, layout: Layout, name: str, server: Mapping[str, object], secret: Secret | None = None
) -> _ExportedServer:
    """The entry for a `server` of `servers.yaml`.

    `secret` returns the value of `${file:…}`, `${keyring:…}` or `${cmd:…}`; without it they stay, with a note.
    """
    keys, is_off = layout.keys, _is_off(server)
    template = layout.http if "url" in server else layout.stdio
    reason = _why_not(client, server, can_be_off=keys.off is not None)
    if reason is not None or template is None:
        return _ExportedServer(name, None, (reason or f"{client.title} does not take the URL of a server in its file",))
    template = {key: part for key, part in template.items() if key not in _TIMES}
    fill = _Placeholders(client, layout, secret)
    entry = (_remote if "url" in server else _process)(keys, template, server, fill, name)
    limits = _limits(keys, server)
    entry |= limits.entry | (dict([keys.off]) if is_off and keys.off is not None else {})
    if fill.unreadable:
        return _ExportedServer(name, None, (f"these cannot be read: {', '.join(sorted(fill.unreadable))}",))
    box = server.get("sandbox")
    is_boxed = bool(keys.sandbox) and isinstance(box, dict) and box.get("net", "any") != "any"
    if is_boxed:
        entry[keys.sandbox] = True
        limits.keys.add("sandbox")
    unknown = sorted(server.keys() - _KEPT - limits.keys - ({"sandbox"} if as_flag(box) is False else set()))
    notes = [f"left out: {', '.join(unknown)}"] if unknown else []
    notes += [_note_of_sandbox(box)] if is_boxed and isinstance(box, dict) else []
    notes += [f"{client.title} takes no headers in its file: the server will refuse it"] if fill.lost_headers else []
    return _ExportedServer(name, entry, (*notes, *fill.notes()))


def _why_not(client: Client, server: Mapping[str, object], *, can_be_off: bool) -> str | None:
    if _is_off(server) and not can_be_off:
        return f"it is disabled, which the file of {client.title} cannot say"
    if "local" in server:
        return "only the hub runs Python functions"
    if "skills" in server:
        return "only the hub serves a folder of skills"
    if "scripts" in server:
        return "only the hub runs scripts"
    if client.windows_of and "url" not in server:
        return f"it starts in Linux. {_TO_WINDOWS} {client.windows_of}-windows"
    return None if "url" in server or server.get("command") else "it has neither a command nor a URL"


def _note_of_sandbox(box: Mapping[str, object]) -> str:
    written, hosts = box.get("write") or [], box.get("net")
    rule = {
        "filesystem": {"allowWrite": written} if written else {},
        "network": {"allowedDomains": hosts} if isinstance(hosts, list) else {},
    }
    rule_text = json.dumps({key: value for key, value in rule.items() if value}, ensure_ascii=False)
    return f'it runs in the sandbox of VS Code, which reads all files. Beside "servers" it needs "sandbox": {rule_text}'


def _is_off(server: Mapping[str, object]) -> bool:
    enabled = server.get("enabled")
    return enabled == "project" or as_flag(enabled) is False or as_flag(server.get("disabled")) is True


class _Limits(msgspec.Struct):
    """Members of an entry, and the server's keys that they replace."""

    entry: JsonObject = {}
    keys: set[str] = set()


def _limits(keys: ServerKeys, server: Mapping[str, object]) -> _Limits:
    limits = _Limits()
    for key, theirs in (("timeout", keys.timeout), ("start_timeout", keys.start_timeout)):
        if theirs and (time := _time(server.get(key), keys)) is not None:
            limits.entry[theirs] = time
            limits.keys.add(key)
    tools = server.get("tools")
    lists = tools if isinstance(tools, dict) else {}
    for key, theirs in (("allow", keys.allow), ("deny", keys.deny)):
        if theirs and _are_names(names := lists.get(key)):
            limits.entry[theirs] = names
            lists = {list_key: value for list_key, value in lists.items() if list_key != key}
    if tools and not lists:
        limits.keys.add("tools")
    return limits


def _time(value: object, keys: ServerKeys) -> float | None:
    try:
        amount = parse_duration(value) * keys.units
    except ValueError:
        return None
    return amount if keys.has_fractions and amount % 1 else math.ceil(amount) or None


def _are_names(names: object) -> bool:
    return bool(names) and isinstance(names, list) and all(isinstance(n, str) and not is_glob(n) for n in names)


class _Placeholders:
    """Rewrites `${…}`; remembers what the client cannot read."""

    def __init__(self, client: Client, layout: Layout, secret: Secret | None) -> None:
        self._secret, self._client = secret, client
        self._form = None if _names_tokens(layout.http) else client.token
        self._takes_dollars = self._form is not None and self._form.startswith("${HUB")
        self.unreadable: set[str] = set()
        self._unread: set[str] = set()
        self._defaults: set[str] = set()
        self._literals: set[str] = set()
        self.lost_headers = False

    def __call__(self, value: object, at: str) -> object:
        if isinstance(value, dict):
            return {key: self(item, f"{at}.{key}") for key, item in value.items()}
        if isinstance(value, list):
            return [self(item, at) for item in value]
        return self._text(value, at) if isinstance(value, str) else value

    def _text(self, text: str, at: str) -> str:
        try:
            parts = split_text(text)
        except Unresolved:  # the hub cannot read it either
            self._unread.add(at)
            return text
        written, literal = "", ""
        for part in (*parts, Reference("")):
            if isinstance(part, str):
                literal += part
                continue
            if self._takes_dollars and _VARIABLE.search(literal):
                self._literals.add(at)
            written, literal = written + literal + (self._reference(part.text, at) if part.text else ""), ""
        return written

    def notes(self) -> list[str]:
        """Values that the client reads in another way than the hub."""
        title = self._client.title
        message = (
            (f"{title} does not fill these in, set them yourself", self._unread),
            (f"{title} knows no defaults, these are left out", self._defaults),
            (f"{title} takes a $ in these for a variable, which is plain text here", self._literals),
        )
        return [f"{text}: {', '.join(sorted(names))}" for text, names in message if names]

    def _reference(self, reference: str, at: str) -> str:
        text = f"${{{reference}}}"
        name, has_default, _ = reference.removeprefix("env:").partition(":-")
        if not is_variable_name(name):
            return self._value(text, at)
        if self._form is None:
            self._unread.add(f"${{{name}}}")
            return text
        if has_default and self._client.fills_defaults:
            return f"${{{reference.removeprefix('env:')}}}"
        if has_default:
            self._defaults.add(name)
        return self._form.replace(TOKEN_VARIABLE, name)

    def _value(self, text: str, at: str) -> str:
        if self._secret is None:
            self._unread.add(text)
            return text
        value = self._secret(text)
        if value is None:
            self.unreadable.add(text)
        elif self._takes_dollars and _VARIABLE.search(value):
            self._literals.add(at)
        return value or ""


def _process(
    keys: ServerKeys, template: Template, server: Mapping[str, object], fill: _Placeholders, name: str
) -> JsonObject:
    args = server.get("args")
    words = [str(fill(word, "args")) for word in args] if isinstance(args, list) else []
    entry = filled(template, Command(str(fill(server["command"], "command")), tuple(words)), name)
    nested = entry.get("transport")
    at = nested if isinstance(nested, dict) else entry
    variables = server.get("env")
    env = dict(variables) if isinstance(variables, dict) else {}
    if keys.passed and (handed_on := [key for key, value in env.items() if value == f"${{{key}}}"]):
        at[keys.passed] = handed_on
        env = {key: value for key, value in env.items() if key not in handed_on}
    if env:
        at[keys.env] = fill(env, "env")
    if server.get("cwd") and server["cwd"] != CLIENTS_FOLDER:  # where the client starts it anyway
        at[keys.folder] = fill(server["cwd"], "cwd")
    return entry


def _remote(
    keys: ServerKeys, template: Template, server: Mapping[str, object], fill: _Placeholders, name: str
) -> JsonObject:
    fixed = server.get("headers")
    headers = dict(fixed) if isinstance(fixed, dict) else {}
    if server.get("bearer"):
        headers["Authorization"] = f"Bearer {server['bearer']}"
    values: dict[Slot, object] = {Slot.NAME: name, Slot.URL: fill(server["url"], "url")}
    if _names_tokens(template) and (bearer := _BEARER.fullmatch(str(headers.get("Authorization", "")))):
        values[Slot.TOKEN_VARIABLE] = bearer[1]
        del headers["Authorization"]
    if headers:
        values[Slot.HEADERS] = fill(headers, "headers")
    entry = _with(template, values)
    at = entry["transport"] if isinstance(entry.get("transport"), dict) else entry
    if headers and keys.headers:
        at[keys.headers] = values[Slot.HEADERS]
    elif headers and "headers" not in at:
        fill.lost_headers = True
    if server.get("type") == "sse" and "type" in at and at["type"] != "remote":
        at["type"] = "sse"
    return entry


def _names_tokens(template: Template | None) -> bool:
    """Whether an entry has the name of the token's variable, and no variables in its texts."""
    return template is not None and Slot.TOKEN_VARIABLE in template.values()


def _with(template: Mapping[str, object], values: Mapping[Slot, object]) -> JsonObject:
    entry: JsonObject = {}
    for key, part in template.items():
        if isinstance(part, Mapping):
            entry[key] = _with(part, values)
        elif not isinstance(part, Slot):
            entry[key] = part
        elif part in values:
            entry[key] = values[part]
    return entry

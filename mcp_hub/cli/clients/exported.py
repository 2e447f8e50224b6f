"""Servers of the hub in the form of another client, so that a person can leave again. Pure; nothing is resolved.

`${VAR}` becomes the client's own way to name a variable, where it has one. What the client cannot do is left out, with
the reason.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from mcp_hub.cli.clients.entries import TOKEN_VARIABLE, Command, Slot, filled
from mcp_hub.cli.clients.model import Client, Layout, Template
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
"""Keys of a server that are carried over, or have no meaning elsewhere."""
_VARIABLE: Final = re.compile(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-[^}]*)?\}")
_SECRET: Final = re.compile(r"\$\{(?:file|keyring):[^}]*\}")
Secret = Callable[[str], str | None]
"""The value for a `${…}`; None if it cannot be read."""
_ENV: Final = {"goose": "envs", "opencode": "environment"}
"""The key of variables where it is not `env`."""
_HEADERS: Final = {"goose": "headers", "copilot": "headers", "codex": "http_headers"}
"""The key of headers that the hub's own entry does not have."""
_BEARER: Final = re.compile(r"Bearer \$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)\}")
_FOLDER: Final = {"warp": "working_directory"}
"""The key of the working directory where it is not `cwd`."""
_NO_PLACEHOLDERS: Final = ("codex",)
"""Clients that name a variable for the token only."""


class ExportedServer(msgspec.Struct, frozen=True):
    """A server as the client writes it; without an `entry`, `notes` say why it cannot."""

    name: str
    entry: JsonObject | None
    notes: tuple[str, ...] = ()


def exported(
    client: Client, layout: Layout, name: str, own: Mapping[str, object], secret: Secret | None = None
) -> ExportedServer:
    """The entry for `own`, a server as `servers.yaml` writes it.

    `secret` gives the value for a `${file:…}` or `${keyring:…}`, which no other client understands; without it they
    stay, with a note.
    """
    if own.get("enabled") is False or own.get("disabled") is True:
        return ExportedServer(name, None, ("it is disabled",))
    if "local" in own:
        return ExportedServer(name, None, ("only the hub runs Python functions",))
    if "skills" in own:
        return ExportedServer(name, None, ("only the hub serves a folder of skills",))
    template = layout.http if "url" in own else layout.stdio
    if template is None:
        return ExportedServer(name, None, (f"{client.title} does not take the URL of a server in its file",))
    notes = [f"left out: {', '.join(sorted(own.keys() - _KEPT))}"] if own.keys() - _KEPT else []
    fill = _Placeholders(client, secret)
    made = _remote(client, template, own, fill, name) if "url" in own else _process(client, template, own, fill, name)
    notes += [f"{client.title} takes no headers in its file: the server will refuse it"] if fill.lost_headers else []
    if fill.lost:
        return ExportedServer(name, None, (f"these cannot be read: {', '.join(sorted(fill.lost))}",))
    if fill.left:
        notes.append(f"{client.title} does not fill these in, set them yourself: {', '.join(sorted(fill.left))}")
    return ExportedServer(name, made, tuple(notes))


class _Placeholders:
    """Rewrites `${…}` for a client, and keeps those that it does not understand."""

    def __init__(self, client: Client, secret: Secret | None) -> None:
        self._secret = secret
        self.lost: set[str] = set()
        self._form = None if client.name in _NO_PLACEHOLDERS else client.token
        self.left: set[str] = set()
        self.lost_headers = False

    def __call__(self, value: object) -> object:
        if isinstance(value, dict):
            return {key: self(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self(item) for item in value]
        if not isinstance(value, str):
            return value
        done = _VARIABLE.sub(self._variable, value)
        if self._secret is not None:
            return _SECRET.sub(self._value, done)
        self.left.update(found[0] for found in _SECRET.finditer(done))
        return done

    def _value(self, found: re.Match[str]) -> str:
        value = None if self._secret is None else self._secret(found[0])
        if value is None:
            self.lost.add(found[0])
        return value or ""

    def _variable(self, found: re.Match[str]) -> str:
        if self._form is None:
            self.left.add(found[0])
            return found[0]
        return self._form.replace(TOKEN_VARIABLE, found[1])


def _process(
    client: Client, template: Template, own: Mapping[str, object], fill: _Placeholders, name: str
) -> JsonObject:
    args = own.get("args")
    words = [str(fill(word)) for word in args] if isinstance(args, list) else []
    made = filled(template, Command(str(fill(own["command"])), tuple(words)), name)
    nested = made.get("transport")
    at = nested if isinstance(nested, dict) else made
    given = own.get("env")
    env = dict(given) if isinstance(given, dict) else {}
    if client.name == "codex" and (handed_on := [key for key, value in env.items() if value == f"${{{key}}}"]):
        at["env_vars"] = handed_on
        env = {key: value for key, value in env.items() if key not in handed_on}
    if env:
        at[_ENV.get(client.name, "env")] = fill(env)
    if own.get("cwd"):
        at[_FOLDER.get(client.name, "cwd")] = fill(own["cwd"])
    return made


def _remote(
    client: Client, template: Template, own: Mapping[str, object], fill: _Placeholders, name: str
) -> JsonObject:
    given = own.get("headers")
    headers = dict(given) if isinstance(given, dict) else {}
    if own.get("bearer"):
        headers["Authorization"] = f"Bearer {own['bearer']}"
    values: dict[Slot, object] = {Slot.NAME: name, Slot.URL: fill(own["url"])}
    if client.name == "codex" and (bearer := _BEARER.fullmatch(str(headers.get("Authorization", "")))):
        values[Slot.TOKEN_VARIABLE] = bearer[1]
        del headers["Authorization"]
    if headers:
        values[Slot.HEADERS] = fill(headers)
    made = _with(template, values)
    at = made["transport"] if isinstance(made.get("transport"), dict) else made
    if headers and (key := _HEADERS.get(client.name)) is not None:
        at[key] = values[Slot.HEADERS]
    elif headers and "headers" not in at:
        fill.lost_headers = True
    if own.get("type") == "sse" and "type" in at and at["type"] != "remote":
        at["type"] = "sse"
    return made


def _with(template: Mapping[str, object], values: Mapping[Slot, object]) -> JsonObject:
    made: JsonObject = {}
    for key, part in template.items():
        if isinstance(part, Mapping):
            made[key] = _with(part, values)
        elif not isinstance(part, Slot):
            made[key] = part
        elif part in values:
            made[key] = values[part]
    return made

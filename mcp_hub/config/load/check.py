"""Validates interpolated data; no message repeats a value, which may be secret."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import PurePath
from types import NoneType
from typing import Final, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from mcp_hub.config.findings import DataPath, Finding, Findings, nearest, path_text, quoted
from mcp_hub.config.schema.fields import problems_of_headers, server_name
from mcp_hub.config.schema.hub import HubSettings
from mcp_hub.config.schema.servers import AccountLookup, ServerSettings
from mcp_hub.config.schema.settings import Settings, claims_at
from mcp_hub.config.schema.tools import AskSettings
from mcp_hub.extras import is_installed, with_extra
from mcp_hub.globs import late
from mcp_hub.types import Cause, JsonObject

_VERDICTS: Mapping[str, tuple[str, str]] = {
    "missing": ("missing_key", "is missing"),
    "string_type": ("wrong_type", "expected text. Put it in quotes."),
    **dict.fromkeys(("int_type", "int_parsing", "int_from_float"), ("wrong_type", "expected a whole number")),
    **dict.fromkeys(("bool_type", "bool_parsing"), ("wrong_type", "expected true or false")),
    "list_type": ("wrong_type", "expected a list"),
    **dict.fromkeys(("dict_type", "model_type"), ("wrong_type", "expected a mapping (key: value)")),
    "greater_than_equal": ("out_of_range", "must be at least {ge}"),
    "less_than_equal": ("out_of_range", "must be at most {le}"),
    **dict.fromkeys(("too_short", "string_too_short"), ("out_of_range", "must not be empty")),
    "too_long": ("out_of_range", "must have at most {max_length} entries"),
    "string_too_long": ("out_of_range", "must have at most {max_length} characters"),
    "string_unicode": ("invalid_text", "holds half of a character (a lone surrogate)"),
    "string_pattern_mismatch": ("invalid_value", "may hold letters, digits, _ and -, with a letter or _ first"),
    "literal_error": ("invalid_value", "expected {expected}"),
    "value_error": ("invalid_value", "{error}"),
    "finding": ("", "{message}"),
}
"""Code and message, with `{members}` of the error's context, by pydantic's error type."""
SHELLS: Final = frozenset("sh bash dash zsh ksh ash fish pwsh powershell".split())
SCRIPT: Final = late(r"-[A-Za-z]*c|-Command", re.IGNORECASE)
_PYTHONS: Final = late(r"(?:python|pypy)[\d.]*w?")
_CODE: Final[Mapping[str, re.Pattern[str]]] = {
    "cmd": late(r"/[ck]", re.IGNORECASE),
    "python": late(r"-[A-Za-z]*c"),
    "deno": late("eval"),
    "php": late("-r|--run"),
    **dict.fromkeys(SHELLS, SCRIPT),
    **dict.fromkeys(("node", "bun", "tsx", "perl", "ruby", "osascript", "lua"), late("-[A-Za-z]*[epE]|--eval|--print")),
    **dict.fromkeys(("npx", "npm", "su", "script", "flock"), late("-c|--call|--command")),
}
"""The option right before code, by program."""
_JOINS: Final = frozenset(("cmd", "pwsh", "powershell"))
"""Programs that run all following words as code."""
READ_AS_OTHERS_WRITE: Mapping[type[BaseModel], tuple[str, ...]] = {
    Settings: ("mcpServers",),
    ServerSettings: ("disabled", "transport"),
}
"""Keys that are accepted without being fields."""
_DECIDES: Final = frozenset(("command", "url", "args", "env"))
"""Keys that say what a server is."""
STAND_IN: Final[JsonObject] = {"command": "-", "enabled": False}
"""Replaces a failed server."""


def validated(tree: JsonObject, report: Findings, *, partly: bool = False) -> Settings:
    """The settings. Raises `ConfigError` with all of `report`.

    `partly`: servers with errors fail, with warnings, if others are right and nothing else is wrong.
    """
    reported = {finding.path for finding in report.errors}
    settings = None
    try:
        settings = Settings.model_validate(tree)
    except ValidationError as invalid:
        problems = map(finding_of, invalid.errors(include_url=False, include_input=False))
        report.errors.extend(finding for finding in problems if finding.path not in reported)
    if settings is not None and not report.errors:
        return settings
    causes = _causes(tree, report) if partly else None
    if causes is None:
        raise report.failure()
    servers = {
        name: STAND_IN if name in causes else server
        for name, server in _mapping(tree.get("servers")).items()
        if name not in causes or _is_server_name(name)
    }
    return validated({**tree, "servers": servers}, report).failing(causes)


def _causes(tree: JsonObject, report: Findings) -> dict[str, Cause] | None:
    """None if something else is wrong, or no server is right."""
    servers = _mapping(tree.get("servers"))
    causes: dict[str, Cause] = {}
    for error in report.errors:
        if error.path[:1] != ("servers",) or str(error.path[1:2][0] if error.path[1:] else "") not in servers:
            return None
        location = f"{path_text(error.path[2:])}: " if error.path[2:] else ""
        causes.setdefault(str(error.path[1]), Cause(error.code, f"{location}{error.message.rstrip('.')}."))
        report.warn(error.path, error.code, f"{error.message} (the server has failed)", is_failure=True)
    if causes.keys() >= servers.keys():
        return None
    report.errors.clear()
    return causes


def _is_server_name(name: str) -> bool:
    try:
        server_name(name).encode()
    except ValueError:  # also characters that no text may have
        return False
    return True


def refused_keys(server: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Keys that the hub refuses and the server can do without (headers as `headers.NAME`), with reasons."""
    entry = dict(server)
    headers = entry.get("headers")
    if isinstance(headers, dict) and "url" in entry:
        texts = {name: value.strip() for name, value in headers.items() if isinstance(value, str)}
        refused = {name: flaw.message for name, flaw in problems_of_headers(texts)}
        yield from ((f"headers.{name}", message) for name, message in refused.items())
        entry["headers"] = {name: value for name, value in headers.items() if name not in refused}
    while True:
        try:
            ServerSettings.model_validate(entry)
            return
        except ValidationError as invalid:
            errors = invalid.errors(include_url=False, include_input=False)
            findings = [finding_of(error, ServerSettings) for error in errors]
        spared = {
            str(finding.path[0]): finding.message
            for finding in findings
            if finding.path and (finding.path[0] not in _DECIDES or finding.code == "misplaced_key")
        }
        yield from spared.items()
        entry = {key: value for key, value in entry.items() if key not in spared}
        if not spared:
            return


def finding_of(error: ErrorDetails, root: type[BaseModel] = Settings) -> Finding:
    """The finding for a pydantic error in data of `root`."""
    context: JsonObject = error.get("ctx", {})
    path = tuple(part for part in error["loc"] if part != "[key]")
    if error["type"] == "extra_forbidden":
        name = str(path[-1])
        return Finding(path, "unknown_key", f"unknown key {quoted(name)}{nearest(name, _known_keys(root, path[:-1]))}")
    if (key := context.get("key", "")) != "":
        path = (*path, *key) if isinstance(key, tuple) else (*path, key)
    if error["type"] == "list_type" and path[-1] == "args":
        return Finding(path, "wrong_type", 'expected a list, such as ["-l", "-a"]')
    if error["type"] == "string_type" and path[-1] == "command":
        advice = "expected the program alone. Put its arguments into args: {command: npx, args: [-y, some-server]}"
        return Finding(path, "wrong_type", advice)
    if error["type"] not in _VERDICTS:
        return Finding(path, "invalid_value", error["msg"].lower())
    code, advice = _VERDICTS[error["type"]]
    if error["type"] == "literal_error":
        context = {"expected": context["expected"].replace("'", '"')}
    return Finding(path, context.get("code", code), advice.format(**context))


def _known_keys(root: type[BaseModel], path: DataPath) -> Iterator[str]:
    kind: object = root
    for part in path:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            kind = kind.model_fields[str(part)].annotation
        else:
            kind = get_args(kind)[-1]  # the type of the items of a dict or list
        if NoneType in get_args(kind):
            kind = get_args(kind)[0]
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield from kind.model_fields
        yield from READ_AS_OTHERS_WRITE.get(kind, ())


def check_references(tree: JsonObject, changed: Collection[DataPath], report: Findings) -> None:
    """Reports unknown names and repeated tokens, without texts at `changed` paths."""
    servers, profiles = _mapping(tree.get("servers")), _mapping(tree.get("profiles"))
    for name, profile in profiles.items():
        for index, server in enumerate(_list(_mapping(profile).get("servers"))):
            if isinstance(server, str) and server not in servers:
                path = ("profiles", name, "servers", index)
                report.error(path, "unknown_server", f"unknown server {quoted(server)}{nearest(server, servers)}")
    hub = _mapping(tree.get("hub"))
    unresolved = {finding.path for finding in report.errors}
    for at_path, profile in _profiles_of(hub):
        if isinstance(profile, str) and profile not in profiles and at_path not in unresolved:
            profile_text = "" if at_path in changed else f" {quoted(profile)}{nearest(profile, profiles)}"
            report.error(at_path, "unknown_profile", f"unknown profile{profile_text}")
    _check_tokens(_list(hub.get("tokens")), report)
    _check_names(servers, hub.get("max_name_length", HubSettings.model_fields["max_name_length"].default), report)


def check_accounts(
    tree: JsonObject, lookups: Mapping[str, Mapping[DataPath, Sequence[object]]], report: Findings
) -> None:
    """Reports servers whose accounts could not be kept apart. `lookups`: by server and a text's path."""
    hub, general = _mapping(tree.get("hub")), _mapping(tree.get("defaults"))
    for name, entry in _mapping(tree.get("servers")).items():
        server = _mapping(entry)
        of_accounts = [
            (path, part)
            for path, parts in lookups.get(name, {}).items()
            for part in parts
            if isinstance(part, AccountLookup)
        ]
        if server.get("enabled", True) is False:
            continue
        if server.get("account", "shared") != "own":
            for path, _ in of_accounts:
                message = "there is one account for all callers. Set account: own on the server"
                report.error(("servers", name, *path), "misplaced_key", message)
            continue
        values = [part.name for _, part in of_accounts if part.name is not None]
        for code, message in _faults_of_accounts(server, hub, general, has_values=bool(values)):
            report.error(("servers", name, "account"), code, message)


def _faults_of_accounts(
    server: Mapping[str, object], hub: Mapping[str, object], general: Mapping[str, object], *, has_values: bool
) -> Iterator[tuple[str, str]]:
    if "command" not in server and "url" not in server:
        yield "misplaced_key", "own accounts belong to a command or a url"
        return
    if not _mapping(hub.get("accounts")).get("key"):
        message = "own accounts are encrypted. Run mcp-hub account key > FILE, and set hub.accounts.key: ${file:FILE}"
        yield "missing_key", message
    if not hub.get("tokens") and not _mapping(hub.get("http")).get("oauth"):
        message = "callers need no token here, so that all would have one account. Set hub.tokens or hub.http.oauth"
        yield "missing_key", message
    if server.get("scope") is not None:
        yield "conflicting_keys", "scope also says whose a process is. Remove scope"
    if "command" in server and not _is_sandboxed(server.get("sandbox", general.get("sandbox"))):
        yield "missing_key", "processes of one user read each other's variables. Set sandbox: on"
    sent = {str(header).lower() for header in _mapping(server.get("headers"))}
    if ("authorization" in sent or server.get("bearer")) and not has_values:
        yield "conflicting_keys", "bearer or headers has one login for all callers. Remove it, or write ${account:NAME}"
    if _mapping(server.get("oauth")).get("grant") == "token_exchange" and not _mapping(hub.get("http")).get("oauth"):
        yield "missing_key", "token_exchange exchanges the callers' tokens of an issuer. Set hub.http.oauth"
    if _mapping(server.get("oauth")).get("grant") == "client_credentials":
        yield "conflicting_keys", "client_credentials is the hub's own login, not a caller's. Remove grant"


def _is_sandboxed(rule: object) -> bool:
    mode = rule.get("mode", "on") if isinstance(rule, dict) else rule
    return mode is True or mode == "on"


def _check_names(servers: Mapping[str, object], longest: object, report: Findings) -> None:
    new_names: dict[str, str] = {}
    for server, entry in servers.items():
        renamed, per_tool = _mapping(_mapping(entry).get("rename")), _mapping(_mapping(entry).get("per_tool"))
        names: dict[DataPath, object] = {("rename", key): name for key, name in renamed.items()}
        for key, tool in per_tool.items():
            names["per_tool", key, "name"] = _mapping(tool).get("name")
            if _mapping(tool).get("name") is not None and key in renamed.values():
                advice = "rename gives this name to a tool. Write the new name there: a tool is renamed once."
                report.warn(("servers", server, "per_tool", key, "name"), "duplicate_name", advice)
        for path, name in names.items():
            if not isinstance(name, str):
                continue
            if new_names.setdefault(name, server) != server:
                advice = f"a tool of server {quoted(new_names[name])} is given the same name. Change one of them."
                report.warn(("servers", server, *path), "duplicate_name", advice)
            if isinstance(longest, int) and len(name) > longest:
                advice = f"is longer than hub.max_name_length ({longest}), so that clients get another name"
                advice += ". Shorten it, or raise that limit (64 at most)."
                report.warn(("servers", server, *path), "name_too_long", advice)


def _check_tokens(tokens: list[object], report: Findings) -> None:
    unresolved = {finding.path for finding in report.errors}
    first_use: dict[str, int] = {}
    for index, token in enumerate(tokens):
        path: DataPath = ("hub", "tokens", index, "token")
        text = _mapping(token).get("token")
        if isinstance(text, str) and first_use.setdefault(text, index) != index and path not in unresolved:
            report.error(path, "duplicate_token", f"the same token as hub.tokens[{first_use[text]}]")


def _profiles_of(hub: Mapping[str, object]) -> Iterator[tuple[DataPath, object]]:
    for index, token in enumerate(_list(hub.get("tokens"))):
        yield ("hub", "tokens", index, "profile"), _mapping(token).get("profile")
    for index, issuer in enumerate(_list(_mapping(_mapping(hub.get("http")).get("oauth")).get("issuers"))):
        path: DataPath = ("hub", "http", "oauth", "issuers", index)
        yield (*path, "profile"), _mapping(issuer).get("profile")
        for scope, profile in _mapping(_mapping(issuer).get("scope_profiles")).items():
            yield (*path, "scope_profiles", scope), profile


def check_rules(settings: Settings, report: Findings) -> None:
    """Warns of rules for calls that nothing can fulfil, and of scripts."""
    check_code(settings, report)
    hub = settings.hub
    asks: dict[DataPath, AskSettings | None] = {("hub", "ask"): hub.ask}
    asks |= {("profiles", name, "ask"): profile.ask for name, profile in settings.profiles.items()}
    for server, entry in settings.servers.items():
        asks |= {("servers", server, "per_tool", name, "ask"): tool.ask for name, tool in entry.per_tool.items()}
    for path, ask in asks.items():
        is_read_only = hub.http.dashboard.mode in ("off", "read")
        if ask is not None and ask.by == "person" and hub.ask_webhook is None and is_read_only:
            message = "nobody can answer: there is no hub.ask_webhook, and hub.http.dashboard is not full. Set one."
            report.warn(path, "nobody_to_ask", message)
    for path in () if hub.http.oauth is not None else claims_at(settings):
        message = "no caller has claims without hub.http.oauth: an allow is never met, a deny always."
        report.warn(path, "no_claims", message)


def check_code(settings: Settings, report: Findings) -> None:
    """Warns where scripts are allowed that cannot run, and of their folders where none is allowed."""
    modes: dict[DataPath, str | None] = {("hub",): settings.hub.code}
    modes |= {("profiles", name): profile.code for name, profile in settings.profiles.items()}
    for path, mode in modes.items():
        if mode not in (None, "off") and not is_installed("code"):
            message = "run_code is not listed: it needs a package that is not installed."
            report.warn((*path, "code"), "code_unavailable", f"{message} Install it with: {with_extra('code')}")
    if any(mode not in (None, "off") for mode in modes.values()):
        return
    for name, server in settings.servers.items():
        if server.enabled and server.scripts is not None:
            message = "the scripts can call no tool while hub.code is off. Set it to reads, ask or all."
            report.warn(("servers", name, "scripts"), "code_off", message)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def code_in(command: str, args: Sequence[str]) -> Iterator[int]:
    """Indices of arguments that an interpreter runs as code."""
    program, is_code, is_rest = "", False, False
    for index, word in enumerate((command, *args)):
        option, equals, _ = word.partition("=")
        before = _CODE.get(program)
        if is_code or is_rest or equals and before is not None and before.fullmatch(option):
            yield index - 1
        is_code = before is not None and before.fullmatch(word) is not None
        is_rest |= is_code and program in _JOINS
        name = program_name(word)
        name = "python" if _PYTHONS.fullmatch(name) else name
        program = name if name in _CODE else program


def program_name(word: str) -> str:
    return PurePath(word.replace("\\", "/")).name.lower().removesuffix(".exe")

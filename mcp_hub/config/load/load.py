"""From `servers.yaml` to `Loaded`: find, read, fill in, check."""

import os
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mcp_hub.addresses import is_cleartext
from mcp_hub.attach.system import user_folder
from mcp_hub.config.findings import DataPath, Finding, Findings
from mcp_hub.config.load.check import check_accounts, check_references, check_rules, code_in, validated
from mcp_hub.config.load.foreign import is_foreign, place_of_servers, sections
from mcp_hub.config.load.interpolate import (
    LEFT_OUT,
    NO_COMMANDS,
    Interpolation,
    OnFailure,
    Unresolved,
    clients_in,
    expand_home,
    resolve,
)
from mcp_hub.config.load.locate import LocatedData, half_findings, read_document
from mcp_hub.config.load.overrides import overlaid, read_overrides
from mcp_hub.config.load.secrets import is_secret, secret_arguments, secret_texts
from mcp_hub.config.load.texts import NOT_UTF8, read_text_file
from mcp_hub.config.schema.defaults import Defaults
from mcp_hub.config.schema.fields import as_flag
from mcp_hub.config.schema.hub import PLACES, written_out
from mcp_hub.config.schema.servers import ServerSettings
from mcp_hub.config.schema.settings import Settings
from mcp_hub.config.schema.tools import OverrideSettings
from mcp_hub.config.trust import overrides_of, problem_of_commands, problem_of_config
from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OWN
from mcp_hub.masking import learn
from mcp_hub.types import Cause, FileStamp, JsonObject

_OWN_TOOLS = 350  # tokens, at most
_STARTER = "servers: {time: {command: uvx, args: [mcp-server-time]}}"
USERS_FILE = "@user"
"""Stands for the user's own configuration, from any folder."""
_NAMES = ("servers.yaml", "servers.yml", "servers.json")
_GUESSED = 16  # characters: a token of this length cannot be guessed
_CALLED_ONCE = "a tool that may act twice is called once. Set idempotent: true if it may be called again."
_PLACEHOLDERS_STAY = ("command", "url", "local", "skills", "scripts", "args", "env")  # of a disabled server


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings, their file, and findings; only `check` shows the `notes`.

    `secrets` must stay out of logs and pages. `stamp` and `overrides_stamp`: file versions; `settings` contain the
    `overrides`. `sources`: from outside, for servers of another client's file. `is_named`: chosen, not only found.
    `needs_name`: choosing it would give it more. `failures`: warnings by failed server.
    """

    settings: Settings = field(repr=False)
    path: Path
    secrets: frozenset[str] = field(repr=False)
    warnings: tuple[ConfigFinding, ...] = ()
    stamp: FileStamp | None = None
    notes: tuple[ConfigFinding, ...] = ()
    overrides: OverrideSettings | None = None
    overrides_stamp: FileStamp | None = None
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_named: bool = True
    needs_name: bool = False
    failures: Mapping[str, tuple[ConfigFinding, ...]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The absolute path, the key of records about its servers."""
        return os.path.abspath(self.path)  # a link is not followed: Kubernetes turns one to update a file


_WITH_SECRETS = ("tokens", "accounts", "ask_webhook")
"""Sections of `hub` whose values are secret."""


def find_config(explicit: str | None, cwd: Path, env: Mapping[str, str]) -> Path:
    """The file: `explicit`, else `$MCP_HUB_CONFIG`, else the first usual place. Raises `ConfigError`.

    `@user` skips the working directory: a cloned repository must not choose what runs.
    """
    named = (None if explicit == USERS_FILE else explicit) or env.get("MCP_HUB_CONFIG")
    if named:
        try:
            return cwd / expand_home(named, env)
        except Unresolved as problem:
            raise ConfigError(ConfigFinding(problem.code, str(problem), named)) from None
    places = [*(cwd / name for name in _NAMES if explicit != USERS_FILE), usual_place()]
    for path in places:
        if os.path.isfile(path):
            return path
    searched = ", ".join(str(path) for path in places)
    message = f"no configuration found (searched: {searched}). Create one with: mcp-hub init"
    raise ConfigError(ConfigFinding("config_not_found", message))


def is_named(explicit: str | None, path: Path, cwd: Path, env: Mapping[str, str]) -> bool:
    return bool((explicit and explicit != USERS_FILE) or env.get("MCP_HUB_CONFIG")) or path.parent != cwd


def usual_place() -> Path:
    return Path(user_folder("config", os.environ)) / _NAMES[0]


def load(
    path: Path, env: Mapping[str, str], *, partly: bool = False, lenient: bool = False, is_named: bool = True
) -> Loaded:
    """Reads and checks one file, and masks its secrets from then on. Raises `ConfigError` with every finding.

    A wrong server only fails, with a warning, if others are right: in other clients' files, and with `partly`; with
    `lenient` also for a `${…}` without a value. Other clients' files that are not `is_named` get nothing from outside.
    """
    loaded = read(path, env, partly=partly, lenient=lenient, is_named=is_named)
    learn(loaded.secrets)
    return loaded


def read(
    path: Path, env: Mapping[str, str], *, partly: bool = False, lenient: bool = False, is_named: bool = True
) -> Loaded:
    """Reads and checks one file without masking its secrets. Raises like `load`."""
    text, state = read_text_file(path, LARGEST_OWN, create=f"Create it with: mcp-hub init --config {path}")
    if (problem := problem_of_config(state, env, path=path)) is not None:
        raise ConfigError(ConfigFinding("config_untrusted", problem, str(path)))
    base, refusal = path.absolute().parent, commands_refused(path, state, is_named=is_named)
    parsed = parse(text, str(path), env, base, partly=partly, lenient=lenient, is_named=is_named, refusal=refusal)
    return replace(_with_overrides(parsed, overrides_of(path), env), stamp=FileStamp.of(state))


def commands_refused(path: Path, state: os.stat_result, *, is_named: bool) -> Cause | None:
    """Why no `${cmd:…}` of this file runs; None allows it."""
    if not is_named and path.absolute() != usual_place():
        message = "nobody has named this file, so no command in it is run. Name it by --config"
        return Cause("command_refused", message)
    problem = problem_of_commands(state, path)
    return None if problem is None else Cause("command_refused", problem)


def _with_overrides(loaded: Loaded, path: Path, env: Mapping[str, str]) -> Loaded:
    overrides, stamp = read_overrides(path, env)
    if overrides is None:
        return loaded
    report = Findings(str(path))
    settings = overlaid(loaded.settings, overrides, report)
    if report.errors:
        raise report.failure()
    warnings = (*loaded.warnings, *report.located(report.warnings))
    return replace(loaded, settings=settings, warnings=warnings, overrides=overrides, overrides_stamp=stamp)


def parse(
    text: str,
    name: str,
    env: Mapping[str, str],
    base: Path,
    *,
    partly: bool = False,
    lenient: bool = False,
    is_named: bool = True,
    refusal: Cause | None = NO_COMMANDS,
) -> Loaded:
    """Checks the text of file `name`; files in it are relative to `base`. Raises like `load`."""
    if len(text) > LARGEST_OWN:
        raise ConfigError(ConfigFinding("config_too_large", f"larger than {LARGEST_OWN} characters", name))
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ConfigError(ConfigFinding("invalid_text", NOT_UTF8, name))
    document = read_document(text, name)
    report = Findings(name, document.lines, errors=list(document.findings))
    tree = _sections(document, report)
    if findings := half_findings(tree, (), text):  # it could not be shown or written to a file
        report.errors.extend(findings)
        raise report.failure()
    interpolation = Interpolation(env, base, refusal)
    sources: Mapping[str, tuple[str, ...]] = {}
    data = document.data
    if is_theirs := isinstance(data, dict) and is_foreign(data, name, is_yaml=document.is_yaml):
        tree, sources = _translated(tree, data, base / Path(name).name, interpolation, report, is_named=is_named)
    failed: dict[str, Cause] | None = {} if lenient else None
    tree = _filled(tree, interpolation, report, failed)
    check_references(tree, interpolation.changed, report)
    check_accounts(tree, interpolation.commands, report)
    settings = _with_commands(validated(tree, report, partly=partly or is_theirs), failed or {}, interpolation)
    _check(settings, env, report)
    report.warnings += interpolation.warnings
    outside = interpolation.secrets | _passed_secrets(settings, env)
    secrets = frozenset(outside | secret_texts(settings, outside))
    notes, warnings = report.located(_notes(settings, interpolation.secret_at)), report.located(report.warnings)
    needs_name = not is_named and (is_theirs or interpolation.refused)
    values = (settings, Path(name), secrets, warnings, None, notes, None, None, sources, is_named, needs_name)
    return Loaded(*values, report.failures())


def _with_commands(settings: Settings, failed: Mapping[str, Cause], interpolation: Interpolation) -> Settings:
    settings = settings.failing(failed)
    texts = {name: command for name, command in interpolation.commands.items() if settings.failure(name) is None}
    servers = {name: server.with_commands(texts.get(name, {})) for name, server in settings.servers.items()}
    return settings.model_copy(update={"servers": servers}) if texts else settings


def _passed_secrets(settings: Settings, env: Mapping[str, str]) -> set[str]:
    names = {name for server in settings.servers.values() for name in server.pass_env if name in env}
    return {env[name] for name in names if is_secret(name, env[name], is_from_outside=True)}


def _check(settings: Settings, env: Mapping[str, str], report: Findings) -> None:
    if settings.hub.telemetry.lacks_place(env):
        message = f"there is no endpoint to send to. Set endpoint, or {PLACES[0]} in the environment"
        report.error(("hub", "telemetry", "enabled"), "missing_key", message)
        raise report.failure()
    if not settings.servers:
        report.warn(
            (), "no_servers", "there are no servers. Add one, for example: mcp-hub add time -- uvx mcp-server-time"
        )
    for server in settings.servers:
        _check_server(settings, server, report)
    check_rules(settings, report)
    if settings.hub.store.is_cleartext:
        message = "others on the network can read redis:// and its password. Use rediss:// or a private network."
        report.warn(("hub", "store", "url"), "cleartext_url", message)
    budgets = {("profiles", name): profile.budget for name, profile in settings.profiles.items()}
    for path, budget in ((("hub",), settings.hub.budget), *budgets.items()):
        if budget is not None and budget < _OWN_TOOLS:
            message = f"less than the {_OWN_TOOLS} tokens of find_tools, read_tool, run_tool and read_result"
            message += '. To list no other tools, write "expose: search".'
            report.warn((*path, "budget"), "budget_too_small", message)


def _check_server(settings: Settings, server: str, report: Findings) -> None:
    entry, general = settings.servers[server], settings.effective(server)
    if entry.url is not None and entry.enabled and is_cleartext(entry.url):
        message = "others on the network can read http://. Use https://."
        report.warn(("servers", server, "url"), "cleartext_url", message)
    for index in code_in(entry.command or "", entry.args):
        if clients_in(entry.args[index]):
            message = "a folder's name can hold code. Set a variable by env, and use that in the code."
            report.warn(("servers", server, "args", index), "client_in_code", message)
    if general.hints == "approved" and general.approval == "off":
        message = "no hints are used: with approval: off the hub records no approvals. Set approval: warn."
        report.warn(("servers", server, "hints" if entry.hints else "approval"), "conflicting_keys", message)
    _check_retries(server, entry, general, report)


def _check_retries(server: str, entry: ServerSettings, general: Defaults, report: Findings) -> None:
    for name, tool in entry.per_tool.items():
        is_idempotent = general.idempotent if tool.idempotent is None else tool.idempotent
        if tool.retry is not None and tool.retry.pauses.get("timeout") and not is_idempotent:
            path = ("servers", server, "per_tool", name, "retry", "on")
            report.warn(path, "conflicting_keys", f"timeout has no effect: {_CALLED_ONCE}")


def _notes(settings: Settings, secret_at: Collection[DataPath]) -> Iterator[Finding]:
    places = {path for path in secret_at if path[0] == "servers" and path[2:3] == ("args",)}
    for name, server in settings.servers.items():
        places |= {("servers", name, "args", index) for index in secret_arguments(server.args)}
    for path in sorted(places):
        message = "everybody on this machine can read arguments (ps). If the value is secret, set it under env instead."
        yield Finding(path, "secret_in_arguments", message)
    for name, server in settings.servers.items():
        is_idempotent = settings.effective(name).idempotent or any(tool.idempotent for tool in server.per_tool.values())
        if server.retry is not None and server.retry.pauses.get("timeout") and not is_idempotent:
            message = f"timeout is for reads alone: {_CALLED_ONCE}"
            yield Finding(("servers", name, "retry", "on"), "conflicting_keys", message)
    for index, token in enumerate(settings.hub.tokens):
        if len(token.token.get_secret_value()) < _GUESSED:
            message = f"is shorter than {_GUESSED} characters, which can be guessed"
            yield Finding(("hub", "tokens", index, "token"), "guessable_token", message)


def _sections(document: LocatedData, report: Findings) -> JsonObject:
    data = document.data
    if data is None:
        raise ConfigError(ConfigFinding("config_empty", f"the file is empty. Begin with: {_STARTER}", report.name))
    if not isinstance(data, dict):
        message = f"expected a mapping at the top. Begin with: {_STARTER}"
        raise ConfigError(ConfigFinding("wrong_type", message, report.name, 1))
    return sections(data, place_of_servers(data, is_yaml=document.is_yaml), report)


def _translated(
    tree: JsonObject, data: JsonObject, file: Path, interpolation: Interpolation, report: Findings, *, is_named: bool
) -> tuple[JsonObject, Mapping[str, tuple[str, ...]]]:
    from mcp_hub.config.load.imported import in_our_form  # half a megabyte, which files of ours do without

    return in_our_form(tree, data, file, interpolation, report, is_named=is_named)


def _filled(
    tree: JsonObject, interpolation: Interpolation, report: Findings, failed: dict[str, Cause] | None
) -> JsonObject:
    """Fills in `${…}`. A server without a value goes to `failed`; if that is None, it is an error."""

    def refuse(path: DataPath, text: str, problem: Unresolved) -> str:
        report.error(path, problem.code, str(problem))
        return text

    filled = dict(tree)
    if isinstance(servers := tree.get("servers"), dict):
        filled["servers"] = {
            name: _server(("servers", name), server, interpolation, report, refuse, failed)
            for name, server in servers.items()
        }
    if isinstance(hub := tree.get("hub"), dict):  # addresses and folders are not secret
        places = Interpolation(interpolation.env, interpolation.base, warnings=interpolation.warnings)
        filled["hub"] = hub | {
            key: (interpolation if key in _WITH_SECRETS else places).fill(hub[key], ("hub", key), refuse)
            for key in ("http", "tokens", "store", "accounts", "ask_webhook")
            if key in hub
        }
        if isinstance(sent := hub.get("telemetry"), dict):
            filled["hub"]["telemetry"] = {
                key: (interpolation if key == "headers" else places).fill(value, ("hub", "telemetry", key), refuse)
                for key, value in sent.items()
            }
        if "store" in hub:
            filled["hub"]["store"] = written_out(filled["hub"]["store"])
        _make_absolute(("hub", "store"), "path", filled["hub"].get("store"), interpolation, report)
        _place_keys(filled["hub"].get("http"), interpolation, report)
    return filled


def _place_keys(http: object, interpolation: Interpolation, report: Findings) -> None:
    oauth = http.get("oauth") if isinstance(http, dict) else None
    issuers = oauth.get("issuers") if isinstance(oauth, dict) else None
    for index, issuer in enumerate(issuers if isinstance(issuers, list) else ()):
        path = ("hub", "http", "oauth", "issuers", index)
        _make_absolute(path, "jwks_file", issuer, interpolation, report)
        if isinstance(issuer, dict) and isinstance(file := issuer.get("jwks_file"), str):
            _check_file((*path, "jwks_file"), file, interpolation.env, report, power="let anybody in")


def _check_file(path: DataPath, file: str, env: Mapping[str, str], report: Findings, *, power: str) -> None:
    try:
        problem = problem_of_config(os.stat(file), env, power=power, path=file)
    except (OSError, ValueError):
        return
    if problem is not None:
        report.error(path, "file_untrusted", f"{file} {problem}")


def _server(
    path: DataPath,
    server: object,
    interpolation: Interpolation,
    report: Findings,
    refuse: OnFailure,
    failed: dict[str, Cause] | None,
) -> object:
    is_disabled = isinstance(server, dict) and _is_disabled(server, interpolation)
    state = "is disabled" if is_disabled else "has failed"
    causes: list[Cause] = []

    def excuse(path: DataPath, text: str, problem: Unresolved) -> object:
        causes.append(Cause(problem.code, f"{problem}."))
        report.warn(path, problem.code, f"{problem} (the server {state})", is_failure=not is_disabled)
        return text if len(path) < 3 or path[2] in _PLACEHOLDERS_STAY else LEFT_OUT

    on_failure = excuse if is_disabled or failed is not None else refuse
    filled = interpolation.fill(server, path, on_failure)
    for key in ("cwd", "skills", "scripts"):
        _make_absolute(path, key, filled, interpolation, report)
    tls = filled.get("tls") if isinstance(filled, dict) else None
    _make_absolute((*path, "tls"), "ca", tls, interpolation, report)
    if isinstance(tls, dict) and isinstance(file := tls.get("ca"), str):
        _check_file((*path, "tls", "ca"), file, interpolation.env, report, power="stand in for the server")
    if causes and failed is not None and not is_disabled and isinstance(filled, dict):
        failed[str(path[1])] = causes[0]
        filled.pop("disabled", None)
        filled["enabled"] = False  # what is missing is not to be checked
    return filled


def _make_absolute(path: DataPath, key: str, section: object, interpolation: Interpolation, report: Findings) -> None:
    if (
        isinstance(section, dict)
        and isinstance(folder := section.get(key), str)
        and folder
        and not folder.startswith("${client.")
    ):
        try:
            section[key] = str(interpolation.base / expand_home(folder, interpolation.env))
        except Unresolved as problem:
            report.error((*path, key), problem.code, str(problem))


def _is_disabled(server: JsonObject, interpolation: Interpolation) -> bool:
    def flag(key: str) -> bool | None:
        value = server.get(key)
        try:
            if isinstance(value, str):
                value = resolve(value, interpolation.env, interpolation.base).text
            return as_flag(value)
        except Unresolved:
            return None  # reported where the server is filled in

    return flag("enabled") is False or flag("disabled") is True

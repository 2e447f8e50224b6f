"""One entry under `servers`, with its `oauth` section, and keys of other clients."""

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, PrivateAttr, SecretStr, model_validator

from mcp_hub.addresses import is_cleartext, is_this_machine, origin_parts, refused_place
from mcp_hub.config.findings import Flaw, quoted
from mcp_hub.config.schema.defaults import RestartSettings, RetrySettings, SandboxSettings
from mcp_hub.config.schema.fields import (
    TRANSPORTS,
    Approval,
    AtOnce,
    Count,
    ExportedName,
    HintRule,
    IdleStop,
    Lines,
    NoFlag,
    Orphan,
    PositiveDuration,
    Prefix,
    Rate,
    Reference,
    Section,
    StartRule,
    TaskRule,
    Text,
    TextLine,
    VariableName,
    as_flag,
    finding,
    findings,
    problems_of,
)
from mcp_hub.config.schema.tools import FilterSettings, ToolFilterSettings, ToolSettings
from mcp_hub.globs import is_glob
from mcp_hub.methods import MOST_PATTERNS, pattern_problem
from mcp_hub.types import LogRule

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")  # a scope token (RFC 6749 §3.3)
_SECRETS: Final = ("client_secret", "private_key")
_SOURCES = ("command", "url", "local", "skills", "scripts")
_BELONGS = {
    **dict.fromkeys(("args", "env", "pass_env", "cwd", "scope", "sandbox"), "command"),
    **dict.fromkeys(("type", "headers", "bearer", "oauth"), "url"),
}
_NOT_FOR_FUNCTIONS = {
    **dict.fromkeys(("start", "idle_stop"), "they are not started or stopped"),
    "logs": "each log message goes to the call that it belongs to",
}
_NOT_FOR_FOLDERS = dict.fromkeys(("start", "idle_stop", "logs"), "nothing is started for it")
COMMAND_OUTPUT: Final = "${cmd}"
"""Stands for a command's output in settings."""


class OAuthSettings(Section):
    """The login to a remote server; all keys are optional."""

    grant: Literal["authorization_code", "client_credentials", "token_exchange"] = "authorization_code"
    client_id: Text | None = None
    client_secret: Annotated[SecretStr, Field(min_length=1)] | None = None
    token_auth: Literal["basic", "post"] | None = None
    private_key: Annotated[SecretStr, Field(min_length=1)] | None = None
    algorithm: Literal["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "ES512", "EdDSA"] = "RS256"
    client_metadata_url: Text | None = None
    issuer: Text | None = None
    scopes: list[Text] = []
    redirect_port: Annotated[int, Field(ge=1, le=65535), NoFlag] | None = None
    audience: Text | None = None
    resource: Text | None = None

    @model_validator(mode="after")
    def _exchanges(self) -> Self:
        if self.grant != "token_exchange":
            for key in ("audience", "resource"):
                if getattr(self, key) is not None:
                    raise finding("misplaced_key", 'is for "grant: token_exchange"', key)
        elif self.issuer is None or self.client_id is None:  # else a caller's token could be sent anywhere
            raise finding(
                "missing_key", 'token_exchange needs "issuer", which gets the tokens, and "client_id"', "grant"
            )
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for key in _SECRETS:
            if getattr(self, key) is not None and self.client_id is None:
                raise finding("missing_key", 'belongs to a client: set "client_id", too', key)
        if self.token_auth is not None and self.client_secret is None:
            raise finding("missing_key", 'says how a client_secret is sent: set "client_secret", too', "token_auth")
        if self.client_id is not None and self.client_metadata_url is not None:
            message = "client_id already says who the hub is. Keep one of them."
            raise finding("conflicting_keys", message, "client_metadata_url")
        if self.grant == "client_credentials":
            self._check_machine()
        elif self.private_key is not None:
            message = 'is for "grant: client_credentials"; a login in a browser takes a client_secret'
            raise finding("misplaced_key", message, "private_key")
        return self

    def _check_machine(self) -> None:
        if [getattr(self, key) is None for key in _SECRETS].count(False) != 1:
            message = 'client_credentials needs either a "client_secret" or a "private_key"'
            raise finding("missing_key", message, "grant")
        if self.issuer is None:  # else a secret could be sent to a server that somebody else names
            raise finding("missing_key", 'client_credentials needs "issuer", the server that gets the secret', "grant")

    @model_validator(mode="after")
    def _names_real_places(self) -> Self:
        for key in ("issuer", "client_metadata_url"):
            url: str | None = getattr(self, key)
            if url is not None and refused_place(url, is_near=True) is not None:
                raise finding("invalid_value", "expected an https:// URL (http:// only for this machine)", key)
        url = self.client_metadata_url
        if url is not None and (is_this_machine(origin_parts(url)[1]) or origin_parts(url)[2] in ("", "/")):
            message = "expected an https:// URL with a path, which everybody can read"
            raise finding("invalid_value", message, "client_metadata_url")
        if not all(_SCOPE.fullmatch(scope) for scope in self.scopes):
            message = "a scope has printable ASCII characters only, no spaces, quotes or backslashes"
            raise finding("invalid_value", message, "scopes")
        return self

    def secrets(self) -> set[str]:
        return {value.get_secret_value() for key in _SECRETS if (value := getattr(self, key)) is not None}


class AccountLookup(msgspec.Struct, frozen=True):
    """`${account:NAME}`: a value of the caller's account; without a name `${client.principal}`."""

    name: str | None = None


CommandLookup = tuple[str, ...]
"""`${cmd:PROGRAM ARG…}`: a program whose output is a value, and its arguments."""
Lookup = CommandLookup | AccountLookup
CommandTexts = Mapping[tuple[str | int, ...], tuple[str | Lookup, ...]]
"""Parts of texts with values that are looked up, by place: `("env", "TOKEN")`, `("args", 0)`."""


class _TlsSettings(Section):
    """`ca`: a file of additional trusted certificates."""

    ca: TextLine | None = None


def _without_ends(value: object) -> object:
    """RFC 9110 §5.5: white space at the ends is not part of a header's value."""
    return value.strip() if isinstance(value, str) else value


HeaderValue = Annotated[SecretStr, BeforeValidator(_without_ends)]


def _foreign(pattern: str) -> str:
    if (problem := pattern_problem(pattern)) is not None:
        raise ValueError(f"{quoted(pattern)} {problem}")
    return pattern


_MethodPattern = Annotated[TextLine, AfterValidator(_foreign)]


def _switched(value: object) -> object:
    flag = value if value == "project" else as_flag(value)
    if flag is None:
        raise finding("wrong_type", "expected true, false or project")
    return flag


_Switch = Annotated[bool | Literal["project"], BeforeValidator(_switched)]


class ServerSettings(Section):
    """A server: a child process (`command`), a remote server (`url`), functions (`local`), `skills` or `scripts`.

    Keys of `Defaults` may be None: use `Settings.effective` and `Settings.tool_rules`.
    """

    command: TextLine | None = None
    url: Text | None = Field(default=None, repr=False)
    local: Reference | None = None
    skills: TextLine | None = None
    scripts: TextLine | None = None
    args: list[Lines] = Field(default=[], repr=False)
    env: dict[VariableName, Lines] = Field(default={}, repr=False)
    pass_env: list[VariableName] = []
    cwd: TextLine | None = None
    scope: Literal["shared", "session", "call"] | None = None
    account: Literal["shared", "own"] = "shared"
    sandbox: SandboxSettings | None = None
    type: Literal["http", "sse"] | None = None
    headers: dict[str, HeaderValue] = {}
    bearer: Annotated[SecretStr, Field(min_length=1)] | None = None
    oauth: OAuthSettings | None = None
    tls: _TlsSettings = _TlsSettings.model_construct()
    enabled: _Switch = True
    tools: AtOnce[ToolFilterSettings] = ToolFilterSettings.model_construct()
    resources: AtOnce[FilterSettings] = FilterSettings.model_construct()
    prompts: AtOnce[FilterSettings] = FilterSettings.model_construct()
    events: AtOnce[FilterSettings] = FilterSettings.model_construct()
    expose: AtOnce[Literal["full", "search"] | None] = None
    compact: AtOnce[bool | None] = None
    prefix: AtOnce[Prefix | None] = None
    rename: AtOnce[dict[Text, ExportedName]] = {}
    era: Literal["follow", "handshake", "modern"] = "follow"
    apps: bool = True
    passthrough: AtOnce[Annotated[list[_MethodPattern], Field(max_length=MOST_PATTERNS)]] = []
    logs: AtOnce[LogRule | None] = None
    timeout: AtOnce[PositiveDuration | None] = None
    max_duration: AtOnce[PositiveDuration | None] = None
    request_timeout: AtOnce[PositiveDuration | None] = None
    start_timeout: AtOnce[PositiveDuration | None] = None
    restart: AtOnce[RestartSettings | None] = None
    start: AtOnce[StartRule | None] = None
    idle_stop: AtOnce[IdleStop | None] = None
    task: AtOnce[TaskRule | None] = None
    orphan: AtOnce[Orphan | None] = None
    idempotent: AtOnce[bool | None] = None
    retry: AtOnce[RetrySettings | None] = None
    approval: AtOnce[Approval | None] = None
    hints: AtOnce[HintRule | None] = None
    rate: AtOnce[Rate | None] = None
    concurrency: AtOnce[Count | None] = None
    per_tool: AtOnce[dict[Text, ToolSettings]] = {}
    description: AtOnce[str | None] = None
    _command_texts: CommandTexts = PrivateAttr(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read_other_clients(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        entry = dict(data)
        if "transport" in entry and entry.setdefault("type", entry["transport"]) != entry.pop("transport"):
            raise finding("conflicting_keys", "contradicts type. Keep one of them.", "transport")
        if entry.get("type") == "stdio" and "command" in entry:
            del entry["type"]
        elif isinstance(kind := entry.get("type"), str):
            entry["type"] = TRANSPORTS.get(kind, kind)
        if entry.get("era") == "auto":  # as it was called before
            entry["era"] = "follow"
        if entry.get("auth") == "oauth":
            del entry["auth"]
            entry.setdefault("oauth", {})
        disabled = entry.pop("disabled", None)
        if disabled is not None:
            entry["enabled"] = _opposite(disabled, entry.get("enabled"))
        return entry

    @model_validator(mode="after")
    def _is_one_source(self) -> Self:
        sources = [key for key in _SOURCES if getattr(self, key) is not None]
        if not sources:
            message = (
                'needs a "command" to start, a "url" to connect to, "local" for functions, or "skills" or "scripts" '
                "for a folder"
            )
            raise finding("missing_key", message)
        if len(sources) > 1:
            raise finding("conflicting_keys", f"a server has a {sources[0]} or a {sources[1]}, not both", sources[1])
        for key, owner in _BELONGS.items():
            if owner not in sources and getattr(self, key):
                raise finding("misplaced_key", f"belongs to a {owner}. A {sources[0]} does not have it.", key)
        if self.url is None and self.tls.ca is not None:
            raise finding("misplaced_key", f"belongs to a url. A {sources[0]} does not have it.", "tls")
        for key, why in _NOT_FOR_FUNCTIONS.items():
            if self.local is not None and getattr(self, key) is not None:
                raise finding("misplaced_key", f"does not apply to Python functions: {why}", key)
        for key, why in _NOT_FOR_FOLDERS.items():
            if not (self.skills is None and self.scripts is None) and getattr(self, key) is not None:
                raise finding("misplaced_key", f"does not apply to a folder of {sources[0]}: {why}", key)
        return self

    @model_validator(mode="after")
    def _has_methods(self) -> Self:
        if self.passthrough and self.command is None and self.url is None:
            raise finding(
                "misplaced_key", "belongs to a command or a url: other servers have tools only", "passthrough"
            )
        return self

    @model_validator(mode="after")
    def _has_each_name_once(self) -> Self:
        renamed = dict(self.rename)
        for key, tool in self.per_tool.items():
            if tool.name is None:
                continue
            if key in renamed:
                message = f"per_tool also has a name for {quoted(key)}. Keep one of them."
                raise finding("conflicting_keys", message, "rename")
            if is_glob(key):
                raise finding("misplaced_key", f"{quoted(key)} is a glob, but a name belongs to one tool", "per_tool")
            renamed[key] = tool.name
        if len(set(renamed.values())) < len(renamed):
            section = "rename" if self.rename else "per_tool"
            raise finding("duplicate_name", "two names are exported as the same one", section)
        return self

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        problems: list[Flaw] = []
        if self.url is not None and self.enabled:  # a disabled server may have ${…} that is not set
            headers = {name: value.get_secret_value() for name, value in self.headers.items()}
            problems += problems_of(self.url, headers, self.bearer.get_secret_value() if self.bearer else None)
            if self.oauth is not None and (self.bearer or any(name.lower() == "authorization" for name in headers)):
                message = "bearer or headers already has the credentials. Keep one of them."
                problems.append(Flaw("oauth", "conflicting_keys", message))
            if self.oauth is not None and all(flaw.key != "url" for flaw in problems) and is_cleartext(self.url):
                problems.append(Flaw("oauth", "cleartext_url", "needs an https:// url: others could read the token"))
        if self.oauth is not None and self.oauth.grant == "token_exchange" and self.account != "own":
            message = 'token_exchange acts as each caller. Set "account: own", too'
            problems.append(Flaw("oauth", "missing_key", message))
        if self.type == "sse" and self.era == "modern":
            problems.append(Flaw("era", "conflicting_keys", "the sse transport belongs to the handshake era"))
        if problems:
            raise findings(problems)
        return self

    def sent_headers(self) -> dict[str, str]:
        """Headers of every request, credentials included."""
        sent = {name: value.get_secret_value() for name, value in self.headers.items()}
        return sent if self.bearer is None else {**sent, "Authorization": f"Bearer {self.bearer.get_secret_value()}"}

    @property
    def command_texts(self) -> CommandTexts:
        """Texts that need values looked up; the settings have `COMMAND_OUTPUT` there."""
        return self._command_texts

    def with_commands(self, texts: CommandTexts) -> Self:
        """A copy with these texts."""
        copied = self.model_copy()
        copied._command_texts = texts
        return copied

    def filled(self, outputs: Mapping[Lookup, str]) -> Self:
        """A copy with these values; `${…}` in them stays, other lookups too."""
        args, env, headers, bearer = list(self.args), dict(self.env), dict(self.headers), self.bearer
        remaining: dict[tuple[str | int, ...], tuple[str | Lookup, ...]] = {}
        for key, parts in self._command_texts.items():
            filled_parts = tuple(part if isinstance(part, str) else outputs.get(part, part) for part in parts)
            text = "".join(part if isinstance(part, str) else COMMAND_OUTPUT for part in filled_parts)
            if not all(isinstance(part, str) for part in filled_parts):
                remaining[key] = filled_parts
            match key:
                case ("args", int(index)):
                    args[index] = text
                case ("env", str(name)):
                    env[name] = text
                case ("headers", str(name)):
                    headers[name] = SecretStr(text.strip())
                case _:
                    bearer = SecretStr(text.strip())
        copied = self.model_copy(update={"args": args, "env": env, "headers": headers, "bearer": bearer})
        return copied.with_commands(remaining)

    @property
    def account_values(self) -> list[str]:
        """Names of the values that each account needs."""
        lookups = (part for parts in self._command_texts.values() for part in parts)
        return sorted({part.name for part in lookups if isinstance(part, AccountLookup) and part.name is not None})


def _opposite(disabled: object, enabled: object) -> bool:
    flag = as_flag(disabled)
    if flag is None:
        raise finding("wrong_type", "expected true or false", "disabled")
    if enabled is not None:
        raise finding("conflicting_keys", "means the same as enabled. Keep one of them.", "disabled")
    return not flag

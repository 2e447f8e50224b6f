"""The `hub` section: fronts, access, lists, stores, limits and telemetry (spans and durations by OTLP over HTTP)."""

import base64
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Annotated, Final, Literal, Self
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)

from mcp_hub.addresses import is_this_machine
from mcp_hub.config.findings import Flaw, quoted
from mcp_hub.config.schema.clients import ClientSettings, check_clients
from mcp_hub.config.schema.fields import (
    Aliases,
    Amount,
    AtOnce,
    CodeRule,
    Count,
    Duration,
    Expose,
    Globs,
    KiB,
    MiB,
    NoFlag,
    Origin,
    PositiveDuration,
    Section,
    Size,
    Text,
    TextLine,
    finding,
    findings,
    problems_of,
)
from mcp_hub.config.schema.issuers import (
    DEFAULT_DASHBOARD,
    AuthorizationRule,
    BaseUrl,
    DashboardRule,
    PublicUrl,
    ResourceServerSettings,
)  # fmt: skip
from mcp_hub.config.schema.records import AskWebhookSettings, AuditSettings, HistorySettings
from mcp_hub.config.schema.tools import AskSettings
from mcp_hub.extras import with_extra

PLACES: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")  # variables: where spans go
_SERVER, _COLLECTOR = "https://example.com/mcp", "http://127.0.0.1:4318"
"""Example URLs in errors: a server's, a collector's."""
_NEEDED: Final = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_ROOT_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~-]{1,64}){0,8}")
_KEY: Final = 32
"""Bytes of a key for accounts."""
_PLACEHOLDER: Final = re.compile(r"\$\{[^{}]+\}")
_SERVERS: Final = ("redis", "rediss", "unix")
"""Schemes of a server's URL: plain, TLS, Unix socket."""
_OF_TYPE: Final = {
    "path": ("sqlite", "Any other store does not have a folder."),
    **dict.fromkeys(("url", "prefix", "lease", "acknowledge"), ("redis", 'Also set "type: redis" and "url".')),
}
"""Keys of a store that are for one type only, with advice."""


class TelemetrySettings(Section):
    """OpenTelemetry (extra `otel`). `endpoint`: a collector, without `/v1/traces`; None: by `OTEL_*` variables."""

    enabled: bool | None = None
    endpoint: Text | None = None
    headers: dict[TextLine, SecretStr] = {}

    @property
    def is_on(self) -> bool:
        return self.endpoint is not None if self.enabled is None else self.enabled

    def lacks_place(self, env: Mapping[str, str]) -> bool:
        """Whether it is on without an endpoint in file or environment."""
        return self.is_on and self.endpoint is None and not any(env.get(name) for name in PLACES)

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        if self.endpoint is None and self.headers:
            raise finding("missing_key", 'need an endpoint. Also set "endpoint".', "headers")
        if self.endpoint is not None:
            headers = {key: value.get_secret_value() for key, value in self.headers.items()}
            problems = [
                Flaw("endpoint" if key == "url" else key, code, message.replace(_SERVER, _COLLECTOR))
                for key, code, message in problems_of(self.endpoint, headers, None)
            ]
            has_place = all(flaw.key != "endpoint" for flaw in problems)
            if has_place and set(urlsplit(self.endpoint)[3:]) != {""}:
                problems.append(Flaw("endpoint", "invalid_url", "must have no query and no fragment"))
            if problems:
                raise findings(problems)
        if self.is_on and not all(map(_is_installed, _NEEDED)):
            message = f"needs packages that are not installed. Install them with: {with_extra('otel')}"
            raise finding("not_installed", message, "enabled" if self.endpoint is None else "endpoint")
        return self


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def _root_path(text: str) -> str:
    path = text.rstrip("/")
    if _ROOT_PATH.fullmatch(path) is None or {".", ".."} & set(path.split("/")):
        raise ValueError("expected a path such as /tools/hub: segments of letters, digits, and . _ ~ -")
    return path


class HttpSettings(Section):
    """The HTTP front; bytes, seconds, per second."""

    host: TextLine = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535), NoFlag] = 8765
    allowed_hosts: AtOnce[list[Text]] = []
    allowed_origins: AtOnce[list[Text]] = []
    cors: AtOnce[list[Origin]] = []
    allow_public: AtOnce[bool] = False
    public_url: AtOnce[PublicUrl | None] = None
    root_path: AtOnce[Annotated[TextLine, AfterValidator(_root_path)] | None] = None
    max_body: Size = 32 * MiB
    max_sessions: Count = 1000
    sessions_per_principal: Count = 500
    session_rate: Amount = 100
    requests_per_principal: Count = 3072
    request_rate: Amount = 0
    bodies_per_principal: Size = 256 * MiB
    max_connections: Count = 4096
    max_headers: Size = 64 * KiB
    header_timeout: PositiveDuration = 20.0
    body_timeout: PositiveDuration = 60.0
    close_streams_after: Annotated[Duration, Field(ge=30)] | None = None
    oauth: AtOnce[ResourceServerSettings | None] = None
    authorization: AtOnce[AuthorizationRule] = None
    dashboard: AtOnce[DashboardRule] = DEFAULT_DASHBOARD

    @model_validator(mode="after")
    def _has_an_address_for_others(self) -> Self:
        if self.authorization is not None and self.public_url is None:
            message = 'needs the https address under which clients reach the hub. Set "public_url", too.'
            raise finding("missing_key", message, "authorization")
        if self.dashboard.login is not None and self.public_url is None:
            message = 'needs the https address to which the provider sends people back. Set "public_url", too.'
            raise finding("missing_key", message, ("dashboard", "login"))
        return self


class TokenSettings(Section):
    """A bearer token, its principal and profile. `operator`: operates the hub, sees everybody's calls."""

    token: Annotated[SecretStr, Field(min_length=1)]
    principal: Text
    profile: Text | None = None
    operator: bool = False

    @model_validator(mode="after")
    def _operates_the_whole_hub(self) -> Self:
        if self.operator and self.profile is not None:
            message = "A token with a profile sees a part of the hub, and cannot operate it. Keep operator or profile."
            raise finding("conflicting_keys", message, "operator")
        if self.operator and self.principal == "local":  # the dashboard lets `local` allow calls of its own
            message = '"local" is everybody without a token. Give the token of an operator the name of its owner.'
            raise finding("conflicting_keys", message, "principal")
        return self


class _LogSettings(Section):
    """The log on stderr; `auto`: console on a terminal, else JSON. `files`: logs of servers in files."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    files: bool = True


def written_out(store: object) -> object:
    """The mapping for a text under `hub.store`; other values stay."""
    type_, colon, path = store.partition(":") if isinstance(store, str) else ("", "", "")
    if type_ in _SERVERS and path.startswith("//"):
        return {"type": "redis", "url": store}
    if type_ not in ("sqlite", "memory") or (colon and not path):
        return store
    return {"type": type_, "path": path} if colon else {"type": type_}


def _server_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.path if parts.scheme == "unix" else parts.hostname and parts.port != 0)
        is_fine = parts.scheme in _SERVERS and has_place
    except ValueError:
        is_fine = False
    if not is_fine:
        raise ValueError("write redis://HOST:PORT/DATABASE, rediss:// for TLS, or unix:///PATH/OF/THE/SOCKET")
    return url


class StoreSettings(Section):
    """The store of durable streams: SQLite in folder `path` (None: the state directory), memory, or Redis or Valkey at
    `url`, shared by replicas.

    `retention`: seconds that an ended stream stays readable. `prefix`: of all keys on a server. A replica silent for
    `lease` seconds loses its calls. `acknowledge`: whose copy of a beginning or ending is awaited.
    """

    type: Literal["sqlite", "memory", "redis"] = "sqlite"
    path: TextLine | None = None
    url: Annotated[SecretStr, AfterValidator(lambda url: SecretStr(_server_url(url.get_secret_value())))] | None = None
    prefix: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.:/-]{1,64}$")] = "mcp-hub:"
    lease: Annotated[Duration, Field(ge=0.5, le=60)] = 1.2
    acknowledge: Literal["local", "replica"] = "local"
    retention: PositiveDuration = 86400.0

    @property
    def is_cleartext(self) -> bool:
        """Whether others on the network can read the traffic."""
        parts = urlsplit("" if self.url is None else self.url.get_secret_value())
        return parts.scheme == "redis" and not is_this_machine(parts.hostname or "")

    @property
    def shown(self) -> str:
        """The URL without user, password and query."""
        parts = urlsplit("" if self.url is None else self.url.get_secret_value())
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

    def secrets(self) -> set[str]:
        """Passwords in the URL."""
        if self.url is None:
            return set()
        url = self.url.get_secret_value()
        parts = urlsplit(url)
        passwords = {parts.password or "", *(text for name, text in parse_qsl(parts.query) if name == "password")}
        return {form for text in passwords if text for form in (text, unquote(text))}

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, data: object) -> object:
        store = written_out(data)
        if isinstance(store, str):
            message = f"{quoted(store.rpartition('@')[2])} is not a store. Write sqlite, sqlite:FOLDER, memory or redis://HOST:PORT"
            raise finding("invalid_value", message)
        return {"type": "redis", **store} if isinstance(store, dict) and store.get("url") is not None else store

    @model_validator(mode="after")
    def _has_a_place_or_none(self) -> Self:
        for key, (type_, message) in _OF_TYPE.items():
            if self.type != type_ and getattr(self, key) != type(self).model_fields[key].default:
                raise finding("misplaced_key", f"belongs to {type_}. {message}", key)
        if self.type == "redis" and self.url is None:
            raise finding("missing_key", 'A store of type redis needs the server. Set "url".', "url")
        if self.type == "redis" and find_spec("redis") is None:
            message = f"needs a package that is not installed. Install it with: {with_extra('redis')}"
            raise finding("not_installed", message, "url")
        return self


class _LimitSettings(Section):
    """Bounds on memory and work; bytes and seconds."""

    line: Size = 32 * MiB
    running_calls: AtOnce[Count] = 1024
    waiting_calls: AtOnce[Amount] = 4096
    detached_calls: Count = 64
    tools_per_server: AtOnce[Count] = 10000
    question_timeout: PositiveDuration = 600.0
    stream_events: Count = 10000
    stream_size: Size = 64 * MiB
    results: Count = 200
    results_size: Size = 256 * MiB
    result_ttl: PositiveDuration = 86400.0
    cache_size: Size = 64 * MiB


class _CodeLimitSettings(Section):
    """Limits of one script; bytes and seconds. `seconds` of its own computing, `silence` without output or progress.

    `output`: its result; `printed`: its output in all; `snapshot`: its state between two calls.
    """

    memory: Annotated[Size, Field(ge=1 * MiB)] = 28 * MiB
    seconds: PositiveDuration = 10.0
    calls: Count = 200
    parallel: Count = 8
    silence: PositiveDuration = 300.0
    output: Size = 1 * MiB
    printed: Size = 1 * MiB
    snapshot: Size = 1 * MiB


def _fernet_key(key: SecretStr) -> SecretStr:
    text = key.get_secret_value()
    try:
        size = _KEY if _PLACEHOLDER.fullmatch(text) else len(base64.urlsafe_b64decode(text))
    except ValueError:
        size = 0
    if size != _KEY:
        raise ValueError("is not such a key. Make one with: mcp-hub account key > FILE, and write ${file:FILE}")
    return key


def _listed(keys: object) -> object:
    return [keys] if isinstance(keys, str) else keys


_AccountKeys = Annotated[
    list[Annotated[SecretStr, AfterValidator(_fernet_key)]],
    Field(max_length=4),
    BeforeValidator(_listed, json_schema_input_type=str | Annotated[list[str], Field(max_length=4)]),
]


class _AccountSettings(Section):
    """Accounts of principals (`account: own`). The first `key` encrypts them, each reads them; `idle` in seconds.

    `connections`: of one server at a time.
    """

    key: _AccountKeys = []
    idle: PositiveDuration = 90 * 86400.0
    connections: Count = 256

    def keys(self) -> list[str]:
        return [key.get_secret_value() for key in self.key]


class _EventSettings(Section):
    """Events of servers, readable for `keep` seconds. `webhook_hosts`: globs of hosts in inner networks."""

    keep: PositiveDuration = 7 * 86400.0
    webhook_hosts: Globs = []


class HubSettings(Section):
    """The hub; seconds, `budget` and `max_result_tokens` in tokens.

    `attach`: stdio clients share one background hub, which ends after `attach_idle` without use.
    """

    name: Text = "mcp-hub"
    capabilities: AtOnce[Literal["known", "all"]] = "known"
    expose: AtOnce[Expose] = "auto"
    budget: AtOnce[Amount] = 8000
    compact: AtOnce[bool] = False
    pinned: AtOnce[Globs] = []
    max_result_tokens: AtOnce[Amount] = 8000
    aliases: AtOnce[Aliases] = {}
    prefix: AtOnce[Literal["auto", "always", "never"]] = "auto"
    max_name_length: AtOnce[Annotated[int, Field(ge=16, le=64), NoFlag]] = 48
    first_list_wait: Duration | None = None
    list_max_age: AtOnce[Duration] = 300.0
    page_size: AtOnce[Count] = 1000
    http: HttpSettings = HttpSettings.model_construct()
    tokens: AtOnce[list[TokenSettings]] = []
    log: _LogSettings = _LogSettings.model_construct()
    limits: _LimitSettings = _LimitSettings.model_construct()
    store: StoreSettings = StoreSettings.model_construct()
    accounts: _AccountSettings = _AccountSettings.model_construct()
    events: AtOnce[_EventSettings] = _EventSettings.model_construct()
    history: AtOnce[HistorySettings] = HistorySettings.model_construct()
    audit: AuditSettings | None = None
    attach: Literal["auto", "always", "never"] = "auto"
    attach_idle: PositiveDuration = 600.0
    task_after: AtOnce[Duration] = 5.0
    watch: AtOnce[bool] = True
    drain_timeout: AtOnce[Duration] = 30.0
    clients: AtOnce[Annotated[dict[TextLine, ClientSettings], AfterValidator(check_clients)]] = {}
    instructions: AtOnce[str | None] = None
    telemetry: TelemetrySettings = TelemetrySettings.model_construct()
    registry: AtOnce[BaseUrl | None] = None
    code: AtOnce[CodeRule] = "off"
    code_limits: AtOnce[_CodeLimitSettings] = _CodeLimitSettings.model_construct()
    ask: AtOnce[AskSettings | None] = None
    ask_webhook: AtOnce[AskWebhookSettings | None] = None

    @model_validator(mode="after")
    def _has_place_of_links(self) -> Self:
        if self.ask_webhook is not None and self.http.public_url is None:
            raise finding("missing_key", "needs hub.http.public_url, where its links lead", "ask_webhook")
        return self

    @model_validator(mode="after")
    def _has_people_who_let_clients_in(self) -> Self:
        if self.http.authorization is not None and not self.tokens:
            message = "needs tokens, by which people let clients in. Also set hub.tokens."
            raise finding("missing_key", message, ("http", "authorization"))
        return self

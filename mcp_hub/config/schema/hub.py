"""The `hub` section: the fronts, who may come in, what clients are listed, where streams are kept, and limits."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from mcp_hub.config.findings import quoted
from mcp_hub.config.schema.clients import ClientSettings, check_clients
from mcp_hub.config.schema.issuers import BaseUrl, PublicUrl, ResourceServerSettings
from mcp_hub.config.schema.scalars import (
    Aliases,
    Amount,
    Count,
    DashboardRule,
    Duration,
    Expose,
    Globs,
    KiB,
    MiB,
    NoFlag,
    Origin,
    PositiveDuration,
    Size,
    Text,
    TextLine,
)
from mcp_hub.config.schema.section import AtOnce, Section, finding
from mcp_hub.config.schema.telemetry import TelemetrySettings


class HttpSettings(Section):
    """The HTTP front (docs/configuration-hub.md, docs/limits.md); in bytes, seconds, and per second."""

    host: TextLine = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535), NoFlag] = 8765
    allowed_hosts: AtOnce[list[Text]] = []
    allowed_origins: AtOnce[list[Text]] = []
    cors: AtOnce[list[Origin]] = []
    allow_public: AtOnce[bool] = False
    public_url: AtOnce[PublicUrl | None] = None
    max_body: Size = 32 * MiB
    max_sessions: Count = 1000
    sessions_per_principal: Count = 500
    session_rate: Amount = 100
    admin_rate: Amount = 1
    requests_per_principal: Count = 3072
    request_rate: Amount = 0
    bodies_per_principal: Size = 256 * MiB
    max_connections: Count = 4096
    max_headers: Size = 64 * KiB
    header_timeout: PositiveDuration = 20.0
    body_timeout: PositiveDuration = 60.0
    close_streams_after: Annotated[Duration, Field(ge=30)] | None = None
    oauth: AtOnce[ResourceServerSettings | None] = None
    dashboard: AtOnce[DashboardRule | None] = None


class TokenSettings(Section):
    """A bearer token of the HTTP front, the principal that shows it, and the profile that it is bound to."""

    token: Annotated[SecretStr, Field(min_length=1)]
    principal: Text
    profile: Text | None = None


class LogSettings(Section):
    """The log goes to stderr; `auto` is console on a terminal, else JSON.

    `files`: keep the logs of servers in files, too.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    files: bool = True


def written_out(store: object) -> object:
    """The mapping that a text under `hub.store` stands for; any other value as it is."""
    type_, colon, path = store.partition(":") if isinstance(store, str) else ("", "", "")
    if type_ not in ("sqlite", "memory") or (colon and not path):
        return store
    return {"type": type_, "path": path} if colon else {"type": type_}


class StoreSettings(Section):
    """The store of durable streams: a SQLite file in the folder `path` (None = the state directory), or memory.

    `retention` in seconds is how long a stream can be read after its end. A text stands for the first two.
    """

    type: Literal["sqlite", "memory"] = "sqlite"
    path: TextLine | None = None
    retention: PositiveDuration = 86400.0

    @model_validator(mode="before")
    @classmethod
    def _read_text(cls, data: object) -> object:
        store = written_out(data)
        if isinstance(store, str):
            raise finding("invalid_value", f"{quoted(store)} is not a store. Write sqlite, sqlite:FOLDER or memory")
        return store

    @model_validator(mode="after")
    def _has_a_place_or_none(self) -> Self:
        if self.type == "memory" and self.path is not None:
            raise finding("misplaced_key", "belongs to sqlite. A store in memory does not have a folder.", "path")
        return self


class LimitSettings(Section):
    """Bounds on memory and work that clients and servers can cause (docs/limits.md); in bytes and seconds."""

    line: Size = 32 * MiB
    depth: Annotated[int, Field(ge=8, le=512), NoFlag] = 512
    batch: Count = 100
    open_requests: Count = 8192
    listens: Count = 64
    running_calls: AtOnce[Count] = 1024
    waiting_calls: AtOnce[Amount] = 4096
    detached_calls: Count = 64
    tools_per_server: AtOnce[Count] = 10000
    pages: AtOnce[Count] = 100
    stderr_lines: Amount = 200
    question_timeout: PositiveDuration = 600.0
    followers: Count = 16
    stream_events: Count = 10000
    stream_size: Size = 64 * MiB
    event: Size = 256 * KiB
    results: Count = 200
    results_size: Size = 256 * MiB
    result_ttl: PositiveDuration = 86400.0


class HubSettings(Section):
    """The hub itself (docs/configuration-hub.md). Durations in seconds, `budget` and `max_result_tokens` in tokens.

    `attach`: whether clients over stdio join one background hub, which ends `attach_idle` after it was needed last.
    """

    name: Text = "mcp-hub"
    expose: AtOnce[Expose] = "auto"
    budget: AtOnce[Amount] = 8000
    compact: AtOnce[bool] = False
    pinned: AtOnce[Globs] = []
    max_result_tokens: AtOnce[Amount] = 8000
    aliases: AtOnce[Aliases] = {}
    prefix: AtOnce[Literal["auto", "always", "never"]] = "auto"
    max_name_length: AtOnce[Annotated[int, Field(ge=16, le=64), NoFlag]] = 48
    first_list_wait: Duration | None = None
    page_size: AtOnce[Count] = 1000
    http: HttpSettings = HttpSettings()
    tokens: AtOnce[list[TokenSettings]] = []
    log: LogSettings = LogSettings()
    limits: LimitSettings = LimitSettings()
    store: StoreSettings = StoreSettings()
    attach: Literal["auto", "always", "never"] = "auto"
    attach_idle: PositiveDuration = 600.0
    task_after: AtOnce[Duration] = 5.0
    watch: AtOnce[bool] = True
    drain_timeout: AtOnce[Duration] = 30.0
    clients: AtOnce[Annotated[dict[TextLine, ClientSettings], AfterValidator(check_clients)]] = {}
    instructions: AtOnce[str | None] = None
    telemetry: TelemetrySettings = TelemetrySettings()
    registry: AtOnce[BaseUrl | None] = None

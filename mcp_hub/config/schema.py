"""Pydantic models of `servers.yaml` after interpolation, and the JSON Schema for editors.

Durations are float seconds and sizes int bytes once validated. Messages never repeat a value. References
between sections (profiles to servers, tokens to profiles) are checked by `load`, which knows the lines.
"""

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from mcp_hub.config.quantities import as_flag, format_duration, format_size, parse_duration, parse_size
from mcp_hub.config.remote import TRANSPORTS, problem_of
from mcp_hub.types import JsonObject

__all__ = [
    "Defaults",
    "FilterSettings",
    "HttpSettings",
    "HubSettings",
    "LimitSettings",
    "LogSettings",
    "ProfileSettings",
    "RestartSettings",
    "ServerSettings",
    "Settings",
    "TokenSettings",
    "json_schema",
]

MiB = 1 << 20


def _more_than_nothing(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("must be longer than 0")
    return seconds


def _one_line(text: str) -> str:
    if "\0" in text or "\n" in text:
        raise ValueError("must not contain a NUL or a line break")
    return text


def _server_name(name: str) -> str:
    if not 0 < len(name) <= 64:
        raise ValueError("a server's name must have 1 to 64 characters")
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        raise ValueError("a server's name must not contain control characters")
    return name


def _variable_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError('a variable\'s name must not be empty or contain "="')
    return _one_line(name)


def _reference(text: str) -> str:
    module, colon, attribute = text.partition(":")
    if not (colon and all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")])):
        raise ValueError('expected "module:attribute", for example "mcp_hub.examples.jobs:registry"')
    return text


_DURATION_JSON: JsonObject = {
    "description": 'A duration: "30m", "2s", "250ms", "1h30m", or a number of seconds.',
    "anyOf": [
        {"type": "number", "minimum": 0},
        {"type": "string", "pattern": r"^([0-9]+(\.[0-9]+)?(ms|s|m|h|d))+$|^[0-9]+(\.[0-9]+)?$"},
    ],
}
_SIZE_JSON: JsonObject = {
    "description": 'A size: "32MiB", "1MB", or a number of bytes.',
    "anyOf": [
        {"type": "integer", "minimum": 1},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*([KkMmGg][Ii]?)?[Bb]?$"},
    ],
}
_AsDuration = PlainSerializer(format_duration, return_type=str, when_used="json")
Duration = Annotated[float, BeforeValidator(parse_duration), _AsDuration, WithJsonSchema(_DURATION_JSON)]
PositiveDuration = Annotated[Duration, AfterValidator(_more_than_nothing)]
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    PlainSerializer(format_size, return_type=str, when_used="json"),
    WithJsonSchema(_SIZE_JSON),
]
Text = Annotated[str, StringConstraints(min_length=1)]
Line = Annotated[str, AfterValidator(_one_line)]
ServerName = Annotated[str, AfterValidator(_server_name)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
# protocol.md §3 "Names": what every model vendor accepts; 64 is the hard limit of models
ExportedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=64)]
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=32)]
Count = Annotated[int, Field(ge=1)]


class _Section(BaseModel):
    """Frozen, refuses unknown keys, and takes `key:` with nothing behind it as the key left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


class RestartSettings(_Section):
    """A server that failed is started again, up to `intensity` times within `period` seconds; then it stays failed.

    A remote server is tried for as long as the hub runs, unless it has a `restart` of its own.
    """

    intensity: Annotated[int, Field(ge=0)] = 5
    period: PositiveDuration = 60.0


class FilterSettings(_Section):
    """Globs on names; an empty `allow` allows everything, and `deny` wins over `allow`."""

    allow: list[Text] = []
    deny: list[Text] = []


class HttpSettings(_Section):
    """The HTTP front, at `http://host:port/mcp`. `max_body` in bytes, of one request; port 0 takes a free one.

    `allowed_hosts` and `allowed_origins` are accepted besides the address itself. `allow_public` permits a non-loopback
    `host` without tokens. `close_streams_after` (at least 30 s) is for clients that come back for the rest of a stream.
    """

    host: Annotated[Text, AfterValidator(_one_line)] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    allowed_hosts: list[Text] = []
    allowed_origins: list[Text] = []
    allow_public: bool = False
    max_body: Size = 32 * MiB
    max_sessions: Count = 1000
    close_streams_after: Annotated[Duration, Field(ge=30)] | None = None


class TokenSettings(_Section):
    """A bearer token of the HTTP front, who it stands for, and the profile that it is bound to."""

    token: Annotated[SecretStr, Field(min_length=1)]
    principal: Text
    profile: Text | None = None


class LogSettings(_Section):
    """Logs go to stderr; `auto` is console on a terminal, else JSON."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class LimitSettings(_Section):
    """Bounds on what peers can make the hub hold.

    `line` is in bytes, of one JSON-RPC message. `running_calls` counts per principal; `waiting_calls` those behind
    it, and beyond them a call is refused. `tools_per_server` and `pages` bound a server's lists; `stderr_lines`
    are remembered per server. `question_timeout` in seconds is how long a client may leave a server's question open.
    """

    line: Size = 32 * MiB
    running_calls: Count = 1024
    waiting_calls: Annotated[int, Field(ge=0)] = 4096
    tools_per_server: Count = 10000
    pages: Count = 100
    stderr_lines: Annotated[int, Field(ge=0)] = 200
    question_timeout: PositiveDuration = 600.0


class HubSettings(_Section):
    """The hub itself: what it calls itself, how it names tools, who may come in, and its limits.

    `max_name_length` (16 to 64) bounds exported names. `first_list_wait` in seconds is how long a first list waits for
    servers that still start (0 = never). `page_size` is the entries of one page of a list.
    """

    name: Text = "mcp-hub"
    expose: Literal["full"] = "full"
    prefix: Literal["auto", "always", "never"] = "auto"
    max_name_length: Annotated[int, Field(ge=16, le=64)] = 48
    first_list_wait: Duration = 2.0
    page_size: Count = 1000
    http: HttpSettings = HttpSettings()
    tokens: list[TokenSettings] = []
    log: LogSettings = LogSettings()
    limits: LimitSettings = LimitSettings()
    instructions: str | None = None


class Defaults(_Section):
    """What holds for every server that does not say otherwise; durations in seconds.

    `timeout` is the longest silence of a server on one call, `max_duration` the longest call, `request_timeout`
    bounds lists and reads, `start_timeout` the time until a server is ready.
    """

    timeout: PositiveDuration = 1800.0
    max_duration: PositiveDuration = 21600.0
    request_timeout: PositiveDuration = 60.0
    start_timeout: PositiveDuration = 60.0
    restart: RestartSettings = RestartSettings()


_OTHER_CLIENTS: JsonObject = {
    "disabled": {"type": "boolean", "description": "The opposite of enabled, as other clients write it."},
    "type": {
        "enum": ["stdio", *TRANSPORTS],
        "description": "How a url is reached, found out if it is left out; stdio is accepted next to a command.",
    },
    "transport": {"enum": ["stdio", *TRANSPORTS], "description": "The same as type, as other clients write it."},
}
_SOURCES = ("command", "url", "local")
_BELONGS = {
    "args": "command",
    "env": "command",
    "cwd": "command",
    "scope": "command",
    "type": "url",
    "headers": "url",
    "bearer": "url",
}


def _describe_server(schema: JsonObject) -> None:
    schema["properties"].update(_OTHER_CLIENTS)
    schema["oneOf"] = [{"required": [key]} for key in _SOURCES]


class ServerSettings(_Section):
    """One upstream: a child process (`command`), a remote server (`url`) or Python functions (`local`,
    "module:attribute"), exactly one.

    `args`, `env` (added to an allow-listed environment), `cwd` and `scope` (one process for all callers, shared, the
    default; for each session; for each call) belong to a command. `type` (found out if left out),
    `headers` and `bearer` (a token, sent as `Authorization`) belong to a url. `tools`, `resources` and
    `prompts` filter on the server's own names; `rename` maps such a name to the exported one. `prefix` is a text or one
    of auto, always, never. A duration or `restart` left out is taken from `defaults`: ask `Settings.effective`.
    `disabled`, `transport`, other words for `type`, and `type: stdio` next to a command are read as other clients write
    them.
    """

    model_config = ConfigDict(json_schema_extra=_describe_server)

    command: Annotated[Text, AfterValidator(_one_line)] | None = None
    url: Text | None = Field(default=None, repr=False)
    local: Annotated[str, AfterValidator(_reference)] | None = None
    args: list[Line] = Field(default=[], repr=False)
    env: dict[VariableName, Line] = Field(default={}, repr=False)
    cwd: Annotated[Text, AfterValidator(_one_line)] | None = None
    scope: Literal["shared", "session", "call"] | None = None
    type: Literal["http", "sse"] | None = None
    headers: dict[str, SecretStr] = {}
    bearer: Annotated[SecretStr, Field(min_length=1)] | None = None
    enabled: bool = True
    tools: FilterSettings = FilterSettings()
    resources: FilterSettings = FilterSettings()
    prompts: FilterSettings = FilterSettings()
    prefix: Prefix | None = None
    rename: dict[Text, ExportedName] = {}
    era: Literal["auto", "handshake", "modern"] = "auto"
    timeout: PositiveDuration | None = None
    max_duration: PositiveDuration | None = None
    request_timeout: PositiveDuration | None = None
    start_timeout: PositiveDuration | None = None
    restart: RestartSettings | None = None
    description: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_other_clients(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        own = dict(data)
        if "transport" in own and own.setdefault("type", own["transport"]) != own.pop("transport"):
            raise _finding("type says something else: keep one of them", "transport")
        if own.get("type") == "stdio" and "command" in own:
            del own["type"]
        elif isinstance(kind := own.get("type"), str):
            own["type"] = TRANSPORTS.get(kind, kind)
        disabled = own.pop("disabled", None)
        if disabled is not None:
            own["enabled"] = _opposite(disabled, own.get("enabled"))
        return own

    @model_validator(mode="after")
    def _is_one_source(self) -> Self:
        found = [key for key in _SOURCES if getattr(self, key) is not None]
        if not found:
            raise _finding('needs a "command" to start, a "url" to connect to, or "local" for Python functions')
        if len(found) > 1:
            raise _finding(f"a server has a {found[0]} or a {found[1]}, not both", found[1])
        for key, owner in _BELONGS.items():
            if owner not in found and getattr(self, key):
                raise _finding(f"belongs to a {owner}; a {found[0]} has none", key)
        if len(set(self.rename.values())) < len(self.rename):
            raise _finding("two names are exported as the same one", "rename")
        return self

    @model_validator(mode="after")
    def _can_be_reached(self) -> Self:
        if self.url is not None and self.enabled:  # a disabled server may lack what is yet to be filled in
            headers = {name: value.get_secret_value() for name, value in self.headers.items()}
            problem = problem_of(self.url, headers, self.bearer.get_secret_value() if self.bearer else None)
            if problem is not None:
                raise _finding(problem[1], problem[0])
        if self.type == "sse" and self.era == "modern":
            raise _finding("the sse transport belongs to the handshake era", "era")
        return self

    def sent_headers(self) -> dict[str, str]:
        """What a remote server is sent with every request, credentials included."""
        sent = {name: value.get_secret_value() for name, value in self.headers.items()}
        return sent if self.bearer is None else {**sent, "Authorization": f"Bearer {self.bearer.get_secret_value()}"}


def _opposite(disabled: object, enabled: object) -> bool:
    flag = as_flag(disabled)
    if flag is None:
        raise _finding("expected true or false", "disabled")
    if enabled is not None:
        raise _finding("enabled says it already: keep one of them", "disabled")
    return not flag


def _finding(message: str, key: str = "") -> PydanticCustomError:
    """A finding about `key` of the mapping being validated; pydantic itself can only point at the mapping."""
    return PydanticCustomError("finding", "{message}", {"key": key, "message": message})


class ProfileSettings(_Section):
    """A named narrower view: only these servers (None = all), only the exported names that `tools` lets through."""

    servers: list[Text] | None = None
    tools: FilterSettings = FilterSettings()


class Settings(_Section):
    """All of `servers.yaml`, validated; `servers` keeps the file's order."""

    hub: HubSettings = HubSettings()
    servers: dict[ServerName, ServerSettings] = {}
    defaults: Defaults = Defaults()
    profiles: dict[Text, ProfileSettings] = {}

    def effective(self, server: str) -> Defaults:
        """Durations and restart rule that hold for `server`: its own, else the default. Raises: KeyError."""
        settings = self.servers[server]
        own = {key: getattr(settings, key) for key in Defaults.model_fields}
        return self.defaults.model_copy(update={key: value for key, value in own.items() if value is not None})


def json_schema() -> JsonObject:
    """The JSON Schema (2020-12) of the file as people write it: duration texts, `${…}`, `mcpServers`."""
    schema: JsonObject = Settings.model_json_schema()
    for name in ("HttpSettings", "RestartSettings", "ServerSettings"):
        properties: JsonObject = schema["$defs"][name]["properties"]
        properties.update({key: _or_interpolated(value) for key, value in properties.items()})
    own: JsonObject = schema["properties"]
    own["mcpServers"] = {**own["servers"], "description": "The same as servers, as other clients write it."}
    own["$schema"] = {"type": "string"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "mcp-hub servers.yaml",
        "not": {"required": ["servers", "mcpServers"]},
    }


def _or_interpolated(schema: JsonObject) -> JsonObject:
    """`schema`, or a text that holds `${`; what takes any text already, lists and sections stay as they are."""
    branches: list[JsonObject] = schema.get("anyOf", [schema])
    if isinstance(values := schema.get("additionalProperties"), dict):
        return {**schema, "additionalProperties": _or_interpolated(values)}
    if any("$ref" in branch or branch.get("type") in ("array", "object") for branch in branches):
        return schema
    if any(branch.get("type") == "string" and not {"enum", "pattern"} & branch.keys() for branch in branches):
        return schema
    about: JsonObject = {key: schema[key] for key in ("title", "description", "default") if key in schema}
    bare = [{key: value for key, value in branch.items() if key not in about} for branch in branches]
    return {**about, "anyOf": [*bare, {"type": "string", "pattern": r"\$\{"}]}

"""The base of all sections, findings of their validators, types of single values.

Durations are float seconds, sizes int bytes. No message repeats a value.
"""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from decimal import Decimal
from typing import Annotated, Final, Literal, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError
from pydantic_core.core_schema import no_info_plain_validator_function

from mcp_hub.config.findings import DataPath, Flaw
from mcp_hub.errors import InvalidParams
from mcp_hub.globs import late
from mcp_hub.masking import hide
from mcp_hub.selection import check_path
from mcp_hub.types import CodeMode

_T = TypeVar("_T")


class _Mark:
    """The mark of `AtOnce` among the metadata of a field."""


_AT_ONCE: Final = _Mark()
AtOnce = Annotated[_T, _AT_ONCE]
"""A key that applies as soon as a reload has read it."""


_outer: Final[ContextVar[type[BaseModel] | None]] = ContextVar("outer", default=None)
"""The section whose validator is being built: those in it are built later."""


class Section(BaseModel):
    """Frozen, without unknown keys; an empty `key:` counts as left out. Built when a file first has it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[BaseModel], handler: GetCoreSchemaHandler) -> CoreSchema:
        if _outer.get() is not None:
            ref = f"{cls.__module__}.{cls.__qualname__}:{id(cls)}"  # as of its own schema, for the JSON Schema
            return no_info_plain_validator_function(cls.model_validate, ref=ref)
        before = _outer.set(cls)
        try:
            return handler(source)
        finally:
            _outer.reset(before)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, object]:
        if schema["type"] == "function-plain":
            cls.model_rebuild()
            schema = {**schema, "json_schema_input_schema": cls.__pydantic_core_schema__}
        return handler(schema)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}

    def __repr__(self) -> str:
        return hide(super().__repr__())

    __str__ = __repr__


def holds_at_once(section: type[Section], key: str) -> bool:
    return _AT_ONCE in section.model_fields[key].metadata


def findings(flaws: Sequence[Flaw]) -> PydanticCustomError:
    """One finding for several keys, with code and key of the first."""
    first, *more = flaws
    message = "; ".join((first.message, *(f"{flaw.key}: {flaw.message}" for flaw in more)))
    return finding(first.code, message, first.key)


def finding(code: str, message: str, key: str | int | DataPath = "") -> PydanticCustomError:
    """A finding about `key`, or the path, inside the mapping or list being validated."""
    return PydanticCustomError("finding", "{message}", {"code": code, "key": key, "message": message})


LONGEST = 366 * 86400.0  # more is a slip of the unit, such as milliseconds written as seconds
_LARGEST = 1 << 40  # 1 TiB: as above
_LONGEST_TEXT = 64  # bounds the arithmetic on hostile input
_SECONDS = {"ms": Decimal("0.001"), "s": Decimal(1), "m": Decimal(60), "h": Decimal(3600), "d": Decimal(86400)}
_BYTES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = late(rf"({_NUMBER})(ms|s|m|h|d)")
_PARTS = late(rf"(?:{_PART.pattern})+")
_SIZE = late(rf"({_NUMBER})\s*([A-Za-z]*)")
_WANT_DURATION = 'expected a duration such as "30m", "2s", "250ms" or "1h30m", or a number of seconds'
_WANT_SIZE = 'expected a size such as "32MiB" or "1MB", or a number of bytes'
_FLAGS = {
    **dict.fromkeys(("1", "on", "t", "true", "y", "yes"), True),
    **dict.fromkeys(("0", "off", "f", "false", "n", "no"), False),
}
_ORIGIN: Final = late(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s/@\\?#*]+/?")
KiB: Final = 1 << 10
MiB: Final = 1 << 20


def parse_duration(value: object) -> float:
    """Seconds of `"30m"`, `"1h30m"`, `"250ms"`, `"2.5"` or a number; 0 to `LONGEST`. Raises `ValueError`."""
    seconds = _duration_of(value)
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(_WANT_DURATION)
    if seconds > LONGEST:
        raise ValueError("longer than the limit of 366 days")
    return seconds


def _duration_of(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(_WANT_DURATION)
    if isinstance(value, int):
        return float(max(min(value, 10**12), -1))  # an int beyond float's range must not overflow
    if isinstance(value, float):
        return value
    text = value.strip()
    if len(text) > _LONGEST_TEXT:
        raise ValueError(_WANT_DURATION)
    if re.fullmatch(_NUMBER, text):
        return float(text)
    if not _PARTS.fullmatch(text):
        raise ValueError(_WANT_DURATION)
    return float(sum(Decimal(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))


def parse_size(value: object) -> int:
    """Bytes of `"32MiB"`, `"1MB"`, `"4096"` or an int; 1 to 1 TiB. Raises `ValueError`."""
    size = _size_of(value)
    if size < 1:
        raise ValueError(_WANT_SIZE)
    if size > _LARGEST:
        raise ValueError("larger than the limit of 1 TiB")
    return size


def _size_of(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str) or len(value) > _LONGEST_TEXT:
        raise ValueError(_WANT_SIZE)
    match = _SIZE.fullmatch(value.strip())
    if match is None or match[2].lower() not in _BYTES:
        raise ValueError(_WANT_SIZE)
    return int(Decimal(match[1]) * _BYTES[match[2].lower()])


def as_flag(value: object) -> bool | None:
    """`true`, `"yes"`, `"0"`, … as a bool, else None."""
    if isinstance(value, bool):
        return value
    return _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None


def _more_than_nothing(seconds: float) -> float:
    if seconds <= 0:
        raise ValueError("must be longer than 0")
    return seconds


def _one_line(text: str) -> str:
    if any(char in text for char in "\0\n\r"):
        raise ValueError("must not contain a NUL or a line break")
    return text


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain a NUL")
    return text


def server_name(name: str) -> str:
    """The name: 1 to 64 characters, without control characters. Raises `ValueError`."""
    if not 0 < len(name) <= 64:
        raise ValueError("a server's name must have 1 to 64 characters")
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        raise ValueError("a server's name must not contain control characters")
    return name


def _origin(text: str) -> str:
    if not _ORIGIN.fullmatch(text):
        raise ValueError(
            'expected the origin of a page, for example "https://app.example.com", and neither "*" nor a path'
        )
    return text.rstrip("/")


def _variable_name(name: str) -> str:
    if not name or "=" in name:
        raise ValueError('a variable\'s name must not be empty or contain "="')
    return _one_line(name)


def _off(value: object) -> object:
    """YAML reads a bare `off` as false."""
    return "off" if value is False else value


def _no_flag(value: object) -> object:
    """Python takes true for 1."""
    if isinstance(value, bool):
        raise ValueError("expected a whole number")
    return value


def _finite(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    try:
        json.dumps(arguments, allow_nan=False)
    except ValueError:
        raise ValueError("holds a number that JSON does not have (.inf or .nan)") from None
    return arguments


def _reference(text: str) -> str:
    module, colon, attribute = text.partition(":")
    names = [*module.split("."), *(attribute.split(".") if colon else ())]
    if not all(name.isidentifier() for name in names):
        raise ValueError('expected "module" or "module:attribute", for example "mcp_hub.examples.jobs:registry"')
    return text


def _json_path(text: str) -> str:
    try:
        check_path(text)
    except InvalidParams as problem:
        position = "" if problem.data is None else f", and this one is wrong at character {problem.data['character']}"
        raise ValueError(f"expected a JSON path such as $.items[*].name{position}") from None
    return text


def _word_or_duration(*words: str) -> Callable[[object], object]:
    choice = " or ".join(f'"{word}"' for word in words)

    def read(value: object) -> object:
        if value in words:
            return value
        try:
            return _more_than_nothing(parse_duration(value))
        except ValueError as problem:
            raise ValueError(f"{problem}; or write {choice}") from None

    return read


_RATE: Final = late(r"^([1-9][0-9]{0,4})\s*/\s*([0-9]{0,3})\s*(s|sec|min|m|h|d)$")
_PERIODS: Final = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_rate(text: str) -> tuple[int, float]:
    """Calls, and seconds, of `60/min`, `5/s` or `100/10min`; 1 to 10,000 calls. Raises `ValueError`."""
    match = _RATE.match(text.strip())
    calls, count = (int(match[1]), int(match[2] or 1)) if match is not None else (0, 0)
    if match is None or not 0 < calls <= 10_000 or not count:
        raise ValueError('expected a rate such as "60/min", "5/s" or "100/10min": 1 to 10000 calls in s, min, h or d')
    return calls, count * _PERIODS[match[3]]


def _rate(text: str) -> str:
    parse_rate(text)
    return text


def _never_at_zero(value: object) -> object:
    try:
        return "never" if parse_duration(value) == 0 else value
    except ValueError:
        return value


Duration = Annotated[float, BeforeValidator(parse_duration)]
ResultGap = Annotated[float, BeforeValidator(parse_duration), Field(le=0.1)]
PositiveDuration = Annotated[Duration, AfterValidator(_more_than_nothing)]
Rate = Annotated[str, AfterValidator(_rate), WithJsonSchema({"type": "string", "pattern": _RATE.pattern})]
"""So many calls in a time, such as `60/min`."""
Size = Annotated[int, BeforeValidator(parse_size), WithJsonSchema({"type": "size"})]
Text = Annotated[str, StringConstraints(min_length=1)]
Lines = Annotated[str, AfterValidator(_no_nul)]
TextLine = Annotated[Text, AfterValidator(_one_line)]
ServerName = Annotated[str, AfterValidator(server_name)]
VariableName = Annotated[str, AfterValidator(_variable_name)]
Origin = Annotated[Text, AfterValidator(_origin)]
"""Scheme, host and port of web pages."""
JsonPath = Annotated[Text, AfterValidator(_json_path)]
Reference = Annotated[str, AfterValidator(_reference)]
# names that every model vendor accepts; 64 is the hard limit of models
ExportedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=64)]
Prefix = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$", max_length=32)]
NoFlag: Final = BeforeValidator(_no_flag)
"""Stands last in annotations of whole numbers."""
Count = Annotated[int, Field(ge=1), NoFlag]
Amount = Annotated[int, Field(ge=0), NoFlag]
Globs = Annotated[list[Text], Field(max_length=1000)]  # each glob is tried on every name
_Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]
# each word of a query is looked up, and all that it stands for is searched
Aliases = Annotated[dict[_Word, Annotated[list[_Word], Field(min_length=1, max_length=32)]], Field(max_length=1000)]
Arguments = Annotated[dict[Text, JsonValue], AfterValidator(_finite)]
"""Values of a tool's arguments, as JSON."""
Expose = Literal["auto", "full", "search", "names"]
StartRule = Literal["eager", "lazy"]
TaskRule = Literal["auto", "always", "required", "never"]
Approval = Annotated[Literal["off", "warn", "block"], BeforeValidator(_off)]
HintRule = Literal["trust", "approved", "ignore"]
CodeRule = Annotated[CodeMode, BeforeValidator(_off)]
HistoryRule = Annotated[Literal["off"], BeforeValidator(_off)]
Orphan = Annotated[Literal["cancel", "finish"] | float, BeforeValidator(_word_or_duration("cancel", "finish"))]
SoftDeadline = Annotated[Literal["never"] | float, BeforeValidator(_word_or_duration("never"))]
IdleStop = Annotated[
    Literal["never"] | float, BeforeValidator(_word_or_duration("never")), BeforeValidator(_never_at_zero)
]


TRANSPORTS: Final = {
    **dict.fromkeys(("http", "streamable-http", "streamableHttp", "streamable_http"), "http"),
    "sse": "sse",
}
"""Values of `type`, other clients' included."""

_OTHER_SCHEMES: Final = ("ws", "wss", "unix", "pipe", "tcp", "grpc")
_NAME: Final = late(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = late(r"([\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?)?")
_TOKEN: Final = late(r"[\x21-\x7e]+")
_OWN: Final = late(
    r"accept|accept-encoding|connection|content-(length|type|encoding)|host|keep-alive|last-event-id|te|trailer"
    r"|transfer-encoding|upgrade|mcp-.*"
)
"""Headers that the transport sets."""


def problems_of(url: str, headers: Mapping[str, str], bearer: str | None) -> list[Flaw]:
    """Invalid settings of a remote server, with reasons."""
    flaws = [Flaw("url", "invalid_url", problem)] if (problem := _of_url(url)) is not None else []
    flaws += (flaw for _, flaw in problems_of_headers(headers))
    if bearer is not None and not _TOKEN.fullmatch(bearer):
        message = 'expected the token alone, without "Bearer" before it, of printable ASCII characters'
        flaws.append(Flaw("bearer", "invalid_value", message))
    if bearer is not None and any(name.lower() == "authorization" for name in headers):
        flaws.append(Flaw("bearer", "conflicting_keys", "headers already has an Authorization. Keep one of them."))
    return flaws


def problems_of_headers(headers: Mapping[str, str]) -> Iterator[tuple[str, Flaw]]:
    """Headers that cannot be sent, with reasons."""
    seen: set[str] = set()
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            yield name, Flaw("headers", "invalid_value", "holds a name that a header cannot have")
            continue
        if is_transport_header(name) or name.lower() in seen:
            message = f"{name} is {'given twice' if name.lower() in seen else 'set by the hub itself'}"
            yield name, Flaw("headers", "conflicting_keys", message)
        if not _VALUE.fullmatch(value):
            yield name, Flaw("headers", "invalid_value", f"{name} may hold printable ASCII characters only")
        seen.add(name.lower())


def is_transport_header(name: str) -> bool:
    return _OWN.fullmatch(name.lower()) is not None


def _of_url(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        has_place = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return "is not a URL"
    if parts.scheme in _OTHER_SCHEMES:
        return f"the hub does not speak {parts.scheme}://. Use the server's http:// or https:// address"
    if parts.scheme not in ("http", "https") or not has_place or not url.isprintable() or " " in url:
        return "expected http:// or https:// with a host, for example https://example.com/mcp"
    if "@" in parts.netloc:
        return "must not hold a user or a password. Use bearer or headers."
    return None

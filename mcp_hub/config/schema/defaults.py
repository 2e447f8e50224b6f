"""The `defaults` section: settings of servers without their own."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import AfterValidator, BeforeValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from mcp_hub.addresses import host_rule
from mcp_hub.config.findings import DataPath, quoted
from mcp_hub.config.schema.fields import (
    Amount,
    Approval,
    HintRule,
    IdleStop,
    NoFlag,
    Orphan,
    PositiveDuration,
    Section,
    StartRule,
    TaskRule,
    TextLine,
    finding,
)

_PATHS: Final = 256


def _path(text: str) -> str:
    if any(char in text for char in "*?["):
        raise ValueError("globs are not taken: files that come later would be open, too. Name the folder")
    plain = text.rstrip("/")
    if plain in ("", "~"):
        opened = "the whole home folder" if plain else "the whole system"
        raise ValueError(f"opens {opened}. Name the folders that the server needs")
    if not text.startswith(("/", "~/")):
        raise ValueError('expected an absolute path, or one that begins with "~/"')
    if ".." in text.split("/"):
        raise ValueError('expected a path without ".."')
    return text


def _net(value: object) -> object:
    if isinstance(value, list):
        for index, host in enumerate(value):
            if not isinstance(host, str):
                raise finding("wrong_type", "expected text. Put it in quotes.", index)
            try:
                host_rule(host)
            except ValueError as problem:
                raise finding("invalid_value", str(problem), index) from None
        if not value:
            raise finding("out_of_range", "must not be empty. To close the network, write net: none")
    elif value not in ("none", "any"):
        raise finding("invalid_value", 'expected none, any, or a list of hosts, such as ["api.example.com"]')
    return value


_Path = Annotated[TextLine, AfterValidator(_path)]
_PathList = Annotated[list[_Path], Field(max_length=_PATHS)]


class SandboxSettings(Section):
    """The sandbox rule. `mode: prefer` starts without one if unsupported.

    `read` None: working directory and paths in `args`; `write` None: paths in `args`. System folders, the interpreter
    and a private home are always open. `sockets`: paths of Unix sockets.
    """

    mode: Literal["off", "on", "prefer"] = "on"
    read: _PathList | None = None
    write: _PathList | None = None
    net: Annotated[Literal["none", "any"] | Annotated[list[str], Field(max_length=_PATHS)], BeforeValidator(_net)] = (
        "any"
    )
    sockets: _PathList = []

    @model_validator(mode="before")
    @classmethod
    def _is_word(cls, data: object) -> object:
        """YAML reads bare `on` and `off` as true and false."""
        if isinstance(data, bool):
            return {"mode": "on" if data else "off"}
        if isinstance(data, str):
            if data not in ("off", "on", "prefer"):
                raise finding("invalid_value", "expected off, on, prefer, or a mapping with read, write, net, sockets")
            return {"mode": data}
        if isinstance(data, dict) and isinstance(mode := data.get("mode"), bool):
            return {**data, "mode": "on" if mode else "off"}
        return data


class RestartSettings(Section):
    """Up to `intensity` restarts within `period` seconds; then the server stays failed."""

    intensity: Amount = 5
    period: PositiveDuration = 60.0


RetryClass = Literal["not_sent", "rate_limited", "unavailable", "lost", "timeout"]
_CLASSES: Final[tuple[RetryClass, ...]] = get_args(RetryClass)
_UNLISTED: Final[tuple[RetryClass, ...]] = ("not_sent", "rate_limited", "unavailable", "lost")
"""The classes without `on`."""
_LONGEST_PAUSE: Final = 3600.0


def _at_most_an_hour(seconds: float) -> float:
    if seconds > _LONGEST_PAUSE:
        raise ValueError("must be at most 1 h")
    return seconds


def _by_class(value: object) -> object:
    """A list of classes as a mapping."""
    if isinstance(value, list):
        for index, name in enumerate(value):
            if name not in _CLASSES:
                *names, last = map(quoted, _CLASSES)
                raise finding("invalid_value", f"expected {', '.join(names)} or {last}", index)
        return dict.fromkeys(value, {})
    if not isinstance(value, dict):
        message = "expected a list such as [not_sent, timeout], or a mapping such as {timeout: {first: 5s}}"
        raise finding("wrong_type", message)
    return {name: {} if pauses is None else pauses for name, pauses in value.items()}


_Few = Annotated[int, Field(ge=1, le=10), NoFlag]
_Pause = Annotated[PositiveDuration, AfterValidator(_at_most_an_hour)]


class _PauseSettings(Section):
    """Pauses before at most `attempts` - 1 further attempts: `first`, then `factor` times as long, up to `most`."""

    attempts: _Few = 3
    first: _Pause = 0.25
    factor: _Few = 2
    most: _Pause = 60.0


class RetrySettings(_PauseSettings):
    """Retries after failures of the classes `on`, each with its own keys, else these; None: those safe for the tool."""

    on: Annotated[
        dict[RetryClass, _PauseSettings] | None,
        BeforeValidator(
            _by_class, json_schema_input_type=list[RetryClass] | dict[RetryClass, _PauseSettings | None] | None
        ),
    ] = None

    @model_validator(mode="after")
    def _reaches_longest(self) -> Self:
        if self.first > self.most:
            raise _too_long(self.first, self.most, ("first",))
        for name, pauses in (self.on or {}).items():
            first, longest = self._limits(pauses)
            if first > longest:
                key = "first" if "first" in pauses.model_fields_set else "most"
                raise _too_long(first, longest, ("on", name, key))
        return self

    def _limits(self, pauses: _PauseSettings) -> tuple[float, float]:
        is_set = pauses.model_fields_set
        return pauses.first if "first" in is_set else self.first, pauses.most if "most" in is_set else self.most

    @cached_property
    def pauses(self) -> Mapping[RetryClass, tuple[float, ...]]:
        """The pauses before the second and each further attempt, by class; seconds."""
        if self.on is None:
            return dict.fromkeys(_UNLISTED, self._listed(self))
        return {name: self._listed(pauses) for name, pauses in self.on.items()}

    def _listed(self, pauses: _PauseSettings) -> tuple[float, ...]:
        first, longest = self._limits(pauses)
        attempts = pauses.attempts if "attempts" in pauses.model_fields_set else self.attempts
        factor = pauses.factor if "factor" in pauses.model_fields_set else self.factor
        return tuple(min(first * factor**number, longest) for number in range(attempts - 1))


def _too_long(first: float, longest: float, path: DataPath) -> PydanticCustomError:
    relation = f"{first:g} s is longer than most, {longest:g} s"
    if path[-1] == "most":
        relation = f"{longest:g} s is shorter than first, {first:g} s"
    return finding("conflicting_keys", f"{relation}. Raise most or lower first.", path)


class Defaults(Section):
    """Settings of servers without their own; seconds.

    `orphan` None: tasks and detached calls finish within 1 h, read-only calls are cancelled after 30 s, others finish
    within 10 min. `idle_stop` None: never for eager servers, else 10 min.
    """

    timeout: PositiveDuration = 1800.0
    max_duration: PositiveDuration = 21600.0
    request_timeout: PositiveDuration = 60.0
    start_timeout: PositiveDuration = 60.0
    restart: RestartSettings = RestartSettings.model_construct()
    start: StartRule = "eager"
    idle_stop: IdleStop | None = None
    task: TaskRule = "auto"
    orphan: Orphan | None = None
    idempotent: bool = False
    retry: RetrySettings = RetrySettings.model_construct()
    approval: Approval = "warn"
    hints: HintRule = "trust"
    sandbox: SandboxSettings = SandboxSettings.model_construct(mode="off")

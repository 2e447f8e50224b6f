"""The `defaults` section: settings of servers without their own."""

from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from mcp_hub.addresses import host_rule
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
    """The sandbox rule. `mode: prefer` starts without one if the system does not support it.

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


class RetrySettings(Section):
    """Up to `attempts` in all, after failures of the classes `on` (None: those safe for the tool)."""

    attempts: Annotated[int, Field(ge=1, le=10), NoFlag] = 3
    on: list[Literal["not_sent", "rate_limited", "unavailable", "lost"]] | None = None


class Defaults(Section):
    """Settings of servers without their own; seconds.

    `orphan` None: tasks and detached calls finish within 1 h, read-only calls are cancelled after 30 s, others finish
    within 10 min. `idle_stop` None: never for eager servers, else 10 min.
    """

    timeout: PositiveDuration = 1800.0
    max_duration: PositiveDuration = 21600.0
    request_timeout: PositiveDuration = 60.0
    start_timeout: PositiveDuration = 60.0
    restart: RestartSettings = RestartSettings()
    start: StartRule = "eager"
    idle_stop: IdleStop | None = None
    task: TaskRule = "auto"
    orphan: Orphan | None = None
    idempotent: bool = False
    retry: RetrySettings = RetrySettings()
    approval: Approval = "warn"
    hints: HintRule = "trust"
    sandbox: SandboxSettings = SandboxSettings(mode="off")

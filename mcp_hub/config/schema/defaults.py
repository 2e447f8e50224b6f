"""The `defaults` section: settings of every server that does not have its own."""

from typing import Annotated, Literal

from pydantic import Field

from mcp_hub.config.schema.sandbox import SandboxSettings
from mcp_hub.config.schema.scalars import (
    Amount,
    Approval,
    HintRule,
    IdleStop,
    NoFlag,
    Orphan,
    PositiveDuration,
    StartRule,
    TaskRule,
)
from mcp_hub.config.schema.section import Section


class RestartSettings(Section):
    """A failed server is restarted up to `intensity` times within `period` seconds; then it stays failed."""

    intensity: Amount = 5
    period: PositiveDuration = 60.0


class RetrySettings(Section):
    """A call that failed is made again, up to `attempts` in all, after failures of the classes `on`.

    `on` None: those that are safe for the tool. `trust_hints`: a tool that claims to only read is safe to repeat.
    """

    attempts: Annotated[int, Field(ge=1, le=10), NoFlag] = 3
    on: list[Literal["not_sent", "rate_limited", "unavailable", "lost"]] | None = None
    trust_hints: bool = False


class Defaults(Section):
    """Settings of every server that does not have its own (docs/configuration.md); durations in seconds.

    `orphan` None: tasks and detached calls finish within 1 h, of others the read-only ones are cancelled after 30 s
    and the rest finish within 10 min. `idle_stop` None is never for eager servers, 10 min for others.
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

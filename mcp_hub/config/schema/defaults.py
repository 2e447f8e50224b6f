"""The `defaults` section: settings of every server that does not have its own."""

from mcp_hub.config.schema.scalars import Amount, Approval, IdleStop, Orphan, PositiveDuration, StartRule, TaskRule
from mcp_hub.config.schema.section import Section


class RestartSettings(Section):
    """A failed server is restarted up to `intensity` times within `period` seconds; then it stays failed."""

    intensity: Amount = 5
    period: PositiveDuration = 60.0


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
    approval: Approval = "warn"

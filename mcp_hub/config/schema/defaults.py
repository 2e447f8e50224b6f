"""The `defaults` section: settings of every server that does not have its own."""

from mcp_hub.config.schema.scalars import Amount, Approval, IdleStop, Orphan, PositiveDuration, StartRule, TaskRule
from mcp_hub.config.schema.section import Section


class RestartSettings(Section):
    """A failed server is restarted up to `intensity` times within `period` seconds; then it stays failed.

    A remote server is retried as long as the hub runs, unless it has a `restart` of its own.
    """

    intensity: Amount = 5
    period: PositiveDuration = 60.0


class Defaults(Section):
    """Settings of every server that does not have its own; durations in seconds.

    `timeout` is the longest silence of a server on one call, `max_duration` the longest call, `request_timeout`
    bounds lists and reads, `start_timeout` the time until a server is ready. `task`, `orphan` and `idempotent` are
    explained at `per_tool`; `orphan` left out is the hub's rule: tasks and detached calls finish within 1 h, of others
    the read-only ones are cancelled after 30 s and the rest finish within 10 min. `approval` is about tools that have
    changed since they were approved (name, description, schemas, annotations); the first list of a server is trusted:
    ignore changes (off), warn (warn), or hide and refuse changed and new tools until `mcp-hub approve` (block).

    `start: lazy` starts a server when it is first needed; its lists are known from its last start, and without one it
    is started once. `idle_stop` is the time without a call or a subscription after which a server is stopped until it
    is needed; the default is never for eager servers, 10 min for lazy ones and for the processes of a `scope`.
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

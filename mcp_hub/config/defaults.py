"""What holds for every server unless it says otherwise."""

from typing import Annotated

from pydantic import Field

from mcp_hub.config.scalars import Orphan, PositiveDuration, TaskRule
from mcp_hub.config.section import Section

__all__ = ["Defaults", "RestartSettings"]


class RestartSettings(Section):
    """A server that failed is started again, up to `intensity` times within `period` seconds; then it stays failed.

    A remote server is tried for as long as the hub runs, unless it has a `restart` of its own.
    """

    intensity: Annotated[int, Field(ge=0)] = 5
    period: PositiveDuration = 60.0


class Defaults(Section):
    """What holds for every server that does not say otherwise; durations in seconds.

    `timeout` is the longest silence of a server on one call, `max_duration` the longest call, `request_timeout`
    bounds lists and reads, `start_timeout` the time until a server is ready. `task`, `orphan` and `idempotent` are
    explained at `per_tool`; `orphan` left out is the hub's rule: tasks and detached calls finish within 1 h, of others
    the read-only ones are cancelled after 30 s and the rest finish within 10 min.
    """

    timeout: PositiveDuration = 1800.0
    max_duration: PositiveDuration = 21600.0
    request_timeout: PositiveDuration = 60.0
    start_timeout: PositiveDuration = 60.0
    restart: RestartSettings = RestartSettings()
    task: TaskRule = "auto"
    orphan: Orphan | None = None
    idempotent: bool = False

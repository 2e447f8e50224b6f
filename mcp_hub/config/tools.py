"""What holds for one tool's calls: its own entry under `per_tool`, else its server's keys, else `defaults`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from mcp_hub.config.defaults import Defaults
from mcp_hub.config.globs import best_match
from mcp_hub.config.scalars import Orphan, TaskRule
from mcp_hub.config.section import Section

__all__ = ["ToolRules", "ToolSettings", "rules_of"]


class ToolSettings(Section):
    """The calls of some of a server's tools; a key left out is taken from the server, else from `defaults`.

    `task` is when a client that takes tasks is answered with one: once the call has run for `hub.task_after` (auto),
    at once (always), always and a client that takes none is refused (required), or never. `orphan` is what becomes of
    a call whose client is gone: cancel, finish, or finish within a duration in seconds. `idempotent` says that calls
    may be repeated: a second identical one joins the first while it runs.
    """

    task: TaskRule | None = None
    orphan: Orphan | None = None
    idempotent: bool | None = None


@dataclass(frozen=True, slots=True)
class ToolRules:
    """What holds for the calls of one tool; `orphan` None leaves it to the hub's own rule, a float is seconds."""

    task: TaskRule
    orphan: Literal["cancel", "finish"] | float | None
    idempotent: bool


def rules_of(tool: str, per_tool: Mapping[str, ToolSettings], general: Defaults) -> ToolRules:
    """The rules of `tool`, the server's own name; `general` is what its server says, completed from the defaults.

    One entry decides: that of the exact name, else of the first glob.
    """
    pattern = best_match(tool, per_tool)
    own = ToolSettings() if pattern is None else per_tool[pattern]
    return ToolRules(
        task=general.task if own.task is None else own.task,
        orphan=general.orphan if own.orphan is None else own.orphan,
        idempotent=general.idempotent if own.idempotent is None else own.idempotent,
    )

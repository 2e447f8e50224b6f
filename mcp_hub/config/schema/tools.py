"""One entry under `per_tool`: how tools are listed and called."""

from collections.abc import Mapping
from typing import Literal, Self

import msgspec
from pydantic import Field, model_validator

from mcp_hub.config.findings import quoted
from mcp_hub.config.schema.defaults import Defaults, RetrySettings
from mcp_hub.config.schema.filters import HintSettings
from mcp_hub.config.schema.scalars import Arguments, ExportedName, Globs, HistoryRule, Orphan, TaskRule, Text
from mcp_hub.config.schema.section import Section, finding
from mcp_hub.globs import first_match


def check_hints(hints: HintSettings | None) -> None:
    if hints is not None and hints.readOnlyHint and hints.destructiveHint:
        message = "a tool that only reads destroys nothing. Keep readOnlyHint or destructiveHint."
        raise finding("conflicting_keys", message, "annotations")


class ToolSettings(Section):
    """Overrides for a tool, or all that a glob matches.

    `annotations` replace the server's hints. Missing `task`, `orphan` (seconds), `idempotent` and `retry` come from the
    server, else `defaults`. `history: off`: calls are not kept.
    """

    name: ExportedName | None = None
    description: Text | None = None
    hide: bool = False
    pin: bool | None = None
    tags: Globs = []
    arguments: Arguments = Field(default={}, repr=False)
    fixed: Arguments = Field(default={}, repr=False)
    task: TaskRule | None = None
    orphan: Orphan | None = None
    idempotent: bool | None = None
    retry: RetrySettings | None = None
    history: HistoryRule | None = None
    annotations: HintSettings = HintSettings()

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        check_hints(self.annotations)
        for argument in self.arguments:
            if argument in self.fixed:
                message = f"{quoted(argument)} is also among the arguments. Keep one of them."
                raise finding("conflicting_keys", message, "fixed")
        return self

    def changed(self) -> tuple[str, ...]:
        """The keys that change lists or arguments."""
        keys = [key for key in ToolSettings.model_fields if key not in Defaults.model_fields and key != "history"]
        return tuple(key for key in keys if getattr(self, key) != ToolSettings.model_fields[key].default)


class ToolRules(msgspec.Struct, frozen=True):
    """Call rules of one tool. `orphan`: seconds, or None for the hub's rule."""

    task: TaskRule
    orphan: Literal["cancel", "finish"] | float | None
    idempotent: bool
    retry: RetrySettings = RetrySettings()
    is_kept: bool = True
    """Whether the history keeps its calls."""


def rules_of(tool: str, per_tool: Mapping[str, ToolSettings], general: Defaults) -> ToolRules:
    """Rules of the entry of that name, else the first matching glob, else `general`; without `tool`, of other calls."""
    pattern = first_match(tool, per_tool) if tool else None
    settings = ToolSettings() if pattern is None else per_tool[pattern]
    return ToolRules(
        task=general.task if settings.task is None else settings.task,
        orphan=general.orphan if settings.orphan is None else settings.orphan,
        idempotent=general.idempotent if settings.idempotent is None else settings.idempotent,
        retry=general.retry if settings.retry is None else settings.retry,
        is_kept=settings.history != "off",
    )

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
    """Raises the finding of hints that contradict each other."""
    if hints is not None and hints.readOnlyHint and hints.destructiveHint:
        said = "a tool that only reads destroys nothing. Keep readOnlyHint or destructiveHint."
        raise finding("conflicting_keys", said, "annotations")


class ToolSettings(Section):
    """Overrides of one tool, or of the tools that a glob matches, in lists and in calls (docs/configuration.md).

    `annotations` are hints that take the place of the server's. `task`, `orphan` (seconds if a number), `idempotent`
    and `retry` left out are those of the server, else of `defaults`. `history: off`: its calls are not kept there.
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
                said = f"{quoted(argument)} is also among the arguments. Keep one of them."
                raise finding("conflicting_keys", said, "fixed")
        return self

    def changed(self) -> tuple[str, ...]:
        """The keys by which lists or arguments differ from what the server says, in the order of this class."""
        own = [key for key in ToolSettings.model_fields if key not in Defaults.model_fields and key != "history"]
        return tuple(key for key in own if getattr(self, key) != ToolSettings.model_fields[key].default)


class ToolRules(msgspec.Struct, frozen=True):
    """The rules for calls of one tool. `orphan` None leaves it to the hub's own rule, a float is seconds."""

    task: TaskRule
    orphan: Literal["cancel", "finish"] | float | None
    idempotent: bool
    retry: RetrySettings = RetrySettings()
    is_kept: bool = True
    """In the history of calls."""


def rules_of(tool: str, per_tool: Mapping[str, ToolSettings], general: Defaults) -> ToolRules:
    """The rules of `tool`: one entry decides, that of its name, else of the first glob; the rest is as in `general`.

    Without a name they are those of other calls of the server.
    """
    pattern = first_match(tool, per_tool) if tool else None
    own = ToolSettings() if pattern is None else per_tool[pattern]
    return ToolRules(
        task=general.task if own.task is None else own.task,
        orphan=general.orphan if own.orphan is None else own.orphan,
        idempotent=general.idempotent if own.idempotent is None else own.idempotent,
        retry=general.retry if own.retry is None else own.retry,
        is_kept=own.history != "off",
    )

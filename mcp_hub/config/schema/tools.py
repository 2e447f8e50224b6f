"""Tools in the configuration: filters by name, tag and hints; entries under `per_tool`, which say how tools are listed
and called; the dashboard's file of overrides, and a project's overlay.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

import msgspec
from pydantic import AfterValidator, BeforeValidator, Field, JsonValue, model_validator

from mcp_hub.config.findings import DataPath, quoted
from mcp_hub.config.schema.defaults import Defaults, RetrySettings
from mcp_hub.config.schema.fields import (
    Arguments,
    Count,
    Duration,
    ExportedName,
    Globs,
    HistoryRule,
    JsonPath,
    Orphan,
    Rate,
    Section,
    ServerName,
    TaskRule,
    Text,
    finding,
)
from mcp_hub.globs import first_match

_MOST = 1000  # entries of one list: each costs time for every name
OVERRIDE_KEYS = ("name", "description", "hide", "pin", "annotations")
"""Keys of `per_tool` that may be overridden; none changes a call."""
_OF_CALLS: Final = ("history", "ask", "allow_if", "deny_if", "reason", "rate", "concurrency", "cache")
"""Keys of `per_tool` that change neither lists nor arguments."""
_Names = Annotated[list[ServerName], Field(max_length=1000)]


class _HintSettings(Section):
    readOnlyHint: bool | None = None
    destructiveHint: bool | None = None
    idempotentHint: bool | None = None
    openWorldHint: bool | None = None


class SelectorSettings(Section):
    """A filter entry: a glob on names, or conditions that must all hold."""

    expected: ClassVar[str] = 'expected a glob in quotes, or a mapping such as {tag: "read"}'

    name: Text | None = None
    tag: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_glob(cls, data: object) -> object:
        if data == "":
            raise finding("out_of_range", "must not be empty")
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, dict):
            raise finding("wrong_type", cls.expected)
        if all(value is None for value in data.values()):
            raise finding("missing_key", f"is empty: {cls.expected}")
        return data


class ToolSelector(SelectorSettings, _HintSettings):
    """A filter entry for tools, with hints: `{readOnlyHint: true}`."""

    expected: ClassVar[str] = 'expected a glob in quotes, or a mapping such as {tag: "read"} or {readOnlyHint: true}'


class FilterSettings(Section):
    """Passes `allow` (None: all; empty: nothing) without `deny`."""

    allow: Annotated[list[SelectorSettings] | None, Field(max_length=_MOST)] = None
    deny: Annotated[list[SelectorSettings], Field(max_length=_MOST)] = []


class ToolFilterSettings(Section):
    """`FilterSettings` for tools, with hints."""

    allow: Annotated[list[ToolSelector] | None, Field(max_length=_MOST)] = None
    deny: Annotated[list[ToolSelector], Field(max_length=_MOST)] = []


def check_hints(hints: _HintSettings | None) -> None:
    if hints is not None and hints.readOnlyHint and hints.destructiveHint:
        message = "a tool that only reads destroys nothing. Keep readOnlyHint or destructiveHint."
        raise finding("conflicting_keys", message, "annotations")


_DEEPEST: Final = 8
"""Levels of a pattern."""


def _checked_patterns(patterns: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if not patterns:
        raise ValueError("is empty: name a member and a glob")
    for pattern in patterns.values():
        _check_pattern(pattern, _DEEPEST)
    return patterns


def _check_pattern(pattern: JsonValue, levels: int) -> None:
    if not levels:
        raise ValueError(f"has more than {_DEEPEST} levels")
    if isinstance(pattern, dict | list):
        if not pattern:
            raise ValueError("has an empty list or mapping, which nothing fits")
        for inner in pattern.values() if isinstance(pattern, dict) else pattern:
            _check_pattern(inner, levels - 1)


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


_Patterns = Annotated[dict[Text, JsonValue], Field(max_length=_MOST), AfterValidator(_checked_patterns)]
_OneOrMore = Annotated[list[Text], Field(min_length=1, max_length=_MOST), BeforeValidator(_as_list)]


class _ConditionSettings(Section):
    """A condition over a call: all members must hold. A list among patterns is *or*."""

    arguments: _Patterns | None = None
    principal: _OneOrMore | None = None
    claims: _Patterns | None = None
    client: _OneOrMore | None = None
    hints: _HintSettings | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_condition(cls, data: object) -> object:
        if not isinstance(data, dict) or all(value is None for value in data.values()):
            names = ", ".join(cls.model_fields)
            raise finding("wrong_type", f'expected a mapping such as {{arguments: {{repo: "team/*"}}}}, of {names}')
        return data

    @property
    def patterns(self) -> dict[str, object]:
        members = {name: getattr(self, name) for name in type(self).model_fields if name != "hints"}
        hints = {} if self.hints is None else self.hints.model_dump(exclude_none=True)
        return {name: each for name, each in {**members, "hints": hints or None}.items() if each is not None}


Conditions = Annotated[list[_ConditionSettings], Field(max_length=100)]
_ASK: Final = "expected always, once, a list of conditions, or keys such as {when: once, by: person}"


class AskSettings(Section):
    """A person's yes: `always` before each call, or `once` for the same arguments in a session.

    `by: person` leaves the caller out, whose program may answer by itself.
    """

    when: Literal["always", "once"] = "always"
    only_if: Conditions | None = None
    by: Literal["caller", "person"] = "caller"

    @model_validator(mode="before")
    @classmethod
    def _read_short_form(cls, data: object) -> object:
        if isinstance(data, list):
            return {"only_if": data}
        if data in ("always", "once"):
            return {"when": data}
        if not isinstance(data, dict):
            raise finding("invalid_value", _ASK)
        return data

    @model_validator(mode="after")
    def _asks_at_all(self) -> Self:
        if self.only_if == []:
            raise finding("out_of_range", "is empty, so that nothing would be asked. Leave it out to ask always")
        return self


ClaimPlaces = dict[DataPath, Collection[str]]
"""Claims that conditions look at, by place."""


def claims_of(path: DataPath, key: str, conditions: list[_ConditionSettings] | None) -> ClaimPlaces:
    """The claims that a list of conditions looks at."""
    listed = enumerate(conditions or ())
    return {(*path, key, index, "claims"): each.claims for index, each in listed if each.claims is not None}


class ToolSettings(Section):
    """Overrides for a tool, or all that a glob matches.

    `annotations` replace the server's hints. Missing `task`, `orphan` (seconds), `idempotent` and `retry` come from the
    server, else `defaults`. `history: off`: calls are not kept. `path` selects parts of results. `rate` and
    `concurrency` are each tool's. `cache`: seconds for results of a tool that only reads. `ask`, `allow_if` and
    `deny_if` of every entry that fits decide about each call.
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
    path: JsonPath | None = None
    rate: Rate | None = None
    concurrency: Count | None = None
    cache: Duration = 0.0
    annotations: _HintSettings = _HintSettings.model_construct()
    ask: AskSettings | None = None
    allow_if: Conditions | None = None
    deny_if: Conditions = []
    reason: Text | None = None

    @model_validator(mode="after")
    def _can_be_called(self) -> Self:
        if self.allow_if == []:
            message = "is empty, so that every call would be refused. Write hide: true, or a condition"
            raise finding("out_of_range", message, "allow_if")
        if self.reason is not None and self.allow_if is None and not self.deny_if:
            raise finding("misplaced_key", "is for refused calls: it belongs to allow_if or deny_if", "reason")
        return self

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        check_hints(self.annotations)
        if self.cache and self.annotations.readOnlyHint is False:
            message = "only results of tools that read are kept, and readOnlyHint is false. Remove one of them."
            raise finding("conflicting_keys", message, "cache")
        for argument in self.arguments:
            if argument in self.fixed:
                message = f"{quoted(argument)} is also among the arguments. Keep one of them."
                raise finding("conflicting_keys", message, "fixed")
        return self

    def claims(self, path: DataPath) -> ClaimPlaces:
        """The claims that the rules at `path` look at."""
        asks = claims_of((*path, "ask"), "only_if", None if self.ask is None else self.ask.only_if)
        return asks | claims_of(path, "allow_if", self.allow_if) | claims_of(path, "deny_if", self.deny_if)

    def changed(self) -> tuple[str, ...]:
        """The keys that change lists or arguments."""
        keys = [key for key in ToolSettings.model_fields if key not in (*Defaults.model_fields, *_OF_CALLS)]
        return tuple(key for key in keys if getattr(self, key) != ToolSettings.model_fields[key].default)


class ToolRules(msgspec.Struct, frozen=True):
    """Call rules of one tool. `orphan`: seconds, or None for the hub's rule."""

    task: TaskRule
    orphan: Literal["cancel", "finish"] | float | None
    idempotent: bool
    retry: RetrySettings = RetrySettings.model_construct()
    is_kept: bool = True
    """Whether the history keeps its calls."""
    rate: str | None = None
    concurrency: int = 0
    cache: float = 0.0
    pattern: str = ""
    """The key of its entry."""


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
        rate=settings.rate,
        concurrency=settings.concurrency or 0,
        cache=settings.cache,
        pattern=pattern or "",
    )


class OverriddenTool(Section):
    """`per_tool` keys that replace those in `servers.yaml`."""

    name: ExportedName | None = None
    description: Text | None = None
    hide: bool | None = None
    pin: bool | None = None
    annotations: _HintSettings | None = None

    @model_validator(mode="after")
    def _says_it_once(self) -> Self:
        check_hints(self.annotations)
        return self


class _OverriddenServer(Section):
    """A server's tools by original name; globs are literal."""

    per_tool: dict[Text, OverriddenTool] = {}


class OverrideSettings(Section):
    """All of `servers.overrides.yaml`."""

    servers: dict[ServerName, _OverriddenServer] = {}


class OverlaySettings(Section):
    """`.mcp-hub.yaml`: servers to turn off or on (`enabled: project`), and a profile."""

    disable: _Names = []
    enable: _Names = []
    profile: Text | None = None

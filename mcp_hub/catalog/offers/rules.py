"""Settings of tools, servers and kinds of callers. Pure.

An override changes only `description`, hints, and in `inputSchema` the top-level `required` and fixed `properties`.
Values of arguments are never listed: they may be secret.
"""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec
from msgspec.structs import replace

from mcp_hub.catalog.offers.definitions import Definition, first_line, with_hints
from mcp_hub.catalog.offers.filters import (
    EVERYTHING,
    NO_CLAIMS,
    EffectiveHints,
    Filter,
    HintClaims,
    HintRule,
    annotated,
)
from mcp_hub.errors import InvalidParams
from mcp_hub.globs import first_match
from mcp_hub.protocol.jsonrpc.envelope import object_bytes, raw_object
from mcp_hub.protocol.meta import is_absent
from mcp_hub.types import CodeMode, Expose, RawObject

_required = msgspec.json.Decoder(list[str]).decode


class Supplied(msgspec.Struct, frozen=True):
    """Encoded arguments by name: defaults, and `fixed` ones that are always sent."""

    arguments: RawObject = msgspec.field(default_factory=dict)
    fixed: RawObject = msgspec.field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.arguments or self.fixed)

    def completed(self, sent: msgspec.Raw | None, tool: str) -> msgspec.Raw:
        """The completed `arguments`. Raises: InvalidParams for a fixed one, and if they are not an object."""
        members = raw_object(msgspec.UNSET if sent is None or is_absent(sent) else sent)
        if members is None:
            raise InvalidParams("tools/call: params.arguments must be an object")
        for name in self.fixed:
            if name in members:
                raise InvalidParams(f"tools/call: argument {name!r} of {tool} is set by the hub: leave it out")
        missing = {name: value for name, value in self.arguments.items() if name not in members}
        return msgspec.Raw(object_bytes({**members, **missing, **self.fixed}))


class Override(msgspec.Struct, frozen=True):
    """The settings of one tool or glob. `pin` None: `ViewRules.pinned` decides. `path` projects results."""

    name: str | None = None
    description: str | None = None
    hide: bool = False
    pin: bool | None = None
    tags: frozenset[str] = frozenset()
    supplied: Supplied = Supplied()
    hints: HintClaims = NO_CLAIMS
    path: str | None = None


UNCHANGED: Final = Override()


def find_override(overrides: Mapping[str, Override], tool: str) -> Override:
    """By exact name, else by the first glob."""
    pattern = first_match(tool, overrides.keys()) if overrides else None
    return UNCHANGED if pattern is None else overrides[pattern]


def overridden(
    definition: Definition, override: Override, rule: HintRule = "trust", *, is_approved: bool = False
) -> Definition:
    """The definition as listed; the same object if nothing changes. `is_approved`: by a person."""
    fields, hints = definition.fields, _hints(definition.hints.server, override.hints, rule, is_approved)
    if override.description is not None:
        fields = {**fields, "description": _encoded(override.description)}
    if override.supplied:
        fields = {**fields, "inputSchema": _schema(fields["inputSchema"], override.supplied)}
    if not hints.is_as_sent:  # a client that asks by hints asks by these
        fields = annotated(fields, hints.claims)
    if fields is definition.fields and not override.tags and hints == definition.hints:
        return definition
    summary = definition.summary if override.description is None else first_line(override.description)
    traits = replace(definition.traits, tags=definition.traits.tags | override.tags)
    return with_hints(replace(definition, fields=fields, summary=summary, traits=traits), hints)


def _hints(server: HintClaims, user: HintClaims, rule: HintRule, is_approved: bool) -> EffectiveHints:
    return EffectiveHints(server, user, rule, rule == "trust" or (rule == "approved" and is_approved))


def _schema(schema: msgspec.Raw, supplied: Supplied) -> msgspec.Raw:
    members = raw_object(schema) or {}
    changed = dict(members)
    if "required" in members:
        names = supplied.arguments.keys() | supplied.fixed.keys()
        required = [name for name in _required(members["required"]) if name not in names]
        changed["required"] = _encoded(required)
        if not required:
            del changed["required"]
    # a pointer into `properties` would lead nowhere
    if supplied.fixed and "properties" in members and b"#/properties" not in bytes(schema):
        listed = raw_object(members["properties"]) or {}
        changed["properties"] = _encoded({name: value for name, value in listed.items() if name not in supplied.fixed})
    return schema if changed == members else _encoded(changed)


def _encoded(value: object) -> msgspec.Raw:
    return msgspec.Raw(object_bytes(value))


class ServerRules(msgspec.Struct, frozen=True):
    """The settings of one server's listing. `always` repeats a `prefix` that a name already has.

    Filters match upstream and exported names and URIs; `rename` and `overrides` (globs, too) upstream names. `expose`
    and `compact` None: the view's. `yields`: takes no name from another server. `description` replaces the server's
    own. `passthrough`: patterns of methods that the hub does not know.
    """

    prefix: str | None = None
    always: bool = False
    rename: Mapping[str, str] = msgspec.field(default_factory=dict)
    tools: Filter = EVERYTHING
    resources: Filter = EVERYTHING
    prompts: Filter = EVERYTHING
    events: Filter = EVERYTHING
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict)
    expose: Literal["full", "search"] | None = None
    compact: bool | None = None
    yields: bool = False
    description: str | None = None
    hints: HintRule = "trust"
    apps: bool = True
    passthrough: tuple[str, ...] = ()


class ViewRules(msgspec.Struct, frozen=True):
    """The servers in list order, and the profile's own filters.

    `tools`, `prompts`, `events` and `pinned` match exported names, `resources` both URIs. `shared`: one answer for all
    profiles, tokens and sessions. `budget` and `max_result_tokens` are in tokens; the latter 0: no limit.
    `code`: tools that scripts may call; `lists_code`: whether scripts can run here, so that `run_code` is listed.
    `capabilities`: those of the servers are declared, or all.
    `event_sources`: modes by which servers may deliver events; `event_deliveries`: those that the hub offers.
    """

    servers: Mapping[str, ServerRules]
    tools: Filter = EVERYTHING
    max_name_length: int = 48
    shared: bool = True
    resources: Filter = EVERYTHING
    prompts: Filter = EVERYTHING
    events: Filter = EVERYTHING
    pinned: tuple[str, ...] = ()
    expose: Expose = "full"
    budget: int = 8000
    compact: bool = False
    max_result_tokens: int = 8000
    instructions: str | None = None
    code: CodeMode = "off"
    lists_code: bool = False
    capabilities: Literal["known", "all"] = "known"
    event_sources: frozenset[str] = frozenset(("push", "poll"))
    event_deliveries: tuple[str, ...] = ("push", "poll", "webhook")

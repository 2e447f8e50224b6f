"""MCP definitions as a provider's tools, and back. Groups of tools: namespaces of the Responses API."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from mcp_hub.errors import FormatRefused
from mcp_hub.formats.providers import FACTS, Format
from mcp_hub.formats.records import Exported, Loss, json_value
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.dialects import STRICT_OPTIONAL, STRICT_TOOLS, STRICT_UNIONS
from mcp_hub.formats.schemas.emitters import OVER, Strictness, plain, strict
from mcp_hub.formats.schemas.nodes import Node, text_of
from mcp_hub.formats.schemas.subset import NotStrict
from mcp_hub.types import JsonObject

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64


class ToolGroup(NamedTuple):
    """A group's name and description."""

    name: str
    description: str


def server_groups(servers: Mapping[str, str | None]) -> dict[str, ToolGroup]:
    """A deterministic group for each server, from descriptions by name."""
    names: dict[str, str] = {}
    for server in servers:
        base = _ODD.sub("_", server)[:_LONGEST]
        name, number = base, 2
        while name in names.values():
            ending = f"_{number}"
            name, number = base[: _LONGEST - len(ending)] + ending, number + 1
        names[server] = name
    return {server: ToolGroup(name, servers[server] or f"Tools of {server}.") for server, name in names.items()}


def check_groups(groups: Mapping[str, ToolGroup], into: Format) -> None:
    """Raises: FormatRefused: `grouping_unsupported`, `unsupported_tool`, `duplicate_name`."""
    facts = FACTS.get(into)
    if facts is None or not facts.groups:
        formats = ", ".join(format_ for format_ in FACTS if FACTS[format_].groups)
        raise FormatRefused("grouping_unsupported", f"{into} does not have groups. Leave them out, or use {formats}.")
    names = [group.name for group in set(groups.values())]
    odd = sorted(name for name in names if facts.names.fullmatch(name) is None)
    if odd:
        raise FormatRefused("unsupported_tool", f"{into} does not take the groups {', '.join(odd)}. Rename them.")
    if len(set(names)) < len(names):
        raise FormatRefused("duplicate_name", "Two groups have the same name. Rename one of them.")


def grouped(tools: Sequence[JsonObject], groups: Mapping[str, ToolGroup]) -> list[JsonObject]:
    """Each group becomes a namespace where its first tool was."""
    entries: list[JsonObject] = []
    inside: dict[ToolGroup, list[JsonObject]] = {}
    for tool in tools:
        group = groups.get(tool["name"])
        if group is None:
            entries.append(tool)
        elif group in inside:
            inside[group].append(tool)
        else:
            inside[group] = [tool]
            entries.append({"type": "namespace", **group._asdict(), "tools": inside[group]})
    return entries


PROGRAMMATIC: Final = {Format.ANTHROPIC: "code_execution_20260521", Format.OPENAI_RESPONSES: "programmatic"}
"""The caller of a format that is a program."""


_END: Final = {"cache_control": {"type": "ephemeral"}}
"""At the last tool of those that Anthropic caches."""


class _Definitions(Protocol):
    """Definitions of tools, counted and read in order."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[JsonObject]: ...


def export(
    tools: _Definitions,
    into: Format,
    *,
    is_strict: bool = False,
    search: JsonObject | None = None,
    programmatic: Collection[str] = (),
    has_breakpoint: bool = True,
    groups: Mapping[str, ToolGroup] | None = None,
    sealed: Callable[[JsonObject], Any] | None = None,
) -> Exported:
    """The tools in a format, in their order; each is read once.

    * `is_strict`: the provider enforces schemas where its subset allows; losses explain the others.
    * `search`: the definition of a search tool; all others are deferred.
    * `programmatic`: tools that a model's code may call.
    * `has_breakpoint`: Anthropic's cached part ends at the last tool that is not deferred.
    * `groups`: by tool name; each becomes a namespace.
    * `sealed`: replaces each complete tool outside groups, to save memory.

    Raises: FormatRefused: `too_many_tools`, `unsupported_tool`, `duplicate_name`, `deferral_unsupported`,
    `grouping_unsupported`.
    """
    if groups is not None:
        check_groups(groups, into)
    if into is Format.MCP:
        return Exported({"tools": [*([search] if search else []), *tools]}, {})
    _check_count(len(tools), into, is_deferred=search is not None)
    has_end = has_breakpoint and into is Format.ANTHROPIC
    emitter = _Emitter(into, is_strict, frozenset(programmatic), is_deferred=search is not None, has_end=has_end)
    exported: list[Any] = [] if search is None else [emitter.search(search)]
    definitions: list[Any] = []
    for number, definition in enumerate(tools, 1):
        tool = emitter.tool(definition, is_last=number == len(tools))
        definitions.append(sealed(tool) if sealed is not None and groups is None else tool)
    emitter.check_names()
    exported += definitions if groups is None else grouped(definitions, groups)
    entries = [{"functionDeclarations": exported}] if into is Format.GEMINI and exported else exported
    return Exported({"tools": entries}, emitter.losses)


def _check_count(count: int, into: Format, *, is_deferred: bool) -> None:
    facts = FACTS[into]
    if is_deferred and not facts.defers:
        raise FormatRefused("deferral_unsupported", f"{into} cannot defer tools. Use expose=search for a short list.")
    if facts.most_tools and not is_deferred and count > facts.most_tools:
        raise FormatRefused(
            "too_many_tools",
            f"{count} tools, and {into} takes {facts.most_tools}. Select some with tools=, server= or profile=, "
            "or use expose=search or defer=1 (openai-responses).",
        )


class _Emitter:
    def __init__(
        self, into: Format, is_strict: bool, programmatic: frozenset[str], *, is_deferred: bool, has_end: bool
    ) -> None:
        self.losses: dict[str, tuple[Loss, ...]] = {}
        self._into = into
        self._facts = FACTS[into]
        self._is_strict = is_strict
        self._programmatic = programmatic
        self._is_deferred = is_deferred
        self._has_end = has_end
        self._names: list[str] = []
        self._odd: list[str] = []
        self._budget = [STRICT_TOOLS, STRICT_OPTIONAL, STRICT_UNIONS] if into is Format.ANTHROPIC else None

    def search(self, definition: JsonObject) -> JsonObject:
        if self._into is Format.OPENAI_RESPONSES:
            self._has_name(definition)
            schema, _ = self._schema(definition, [], may_be_strict=False)
            description = definition.get("description", "")
            return {"type": "tool_search", "execution": "client", "description": description, "parameters": schema}
        return self._tool(definition) | (_END if self._has_end else {})

    def tool(self, definition: JsonObject, *, is_last: bool) -> JsonObject:
        tool = self._tool(definition)
        if self._is_deferred:
            tool["defer_loading"] = True
        elif is_last and self._has_end:
            tool |= _END
        return tool

    def check_names(self) -> None:
        """Raises: FormatRefused: `unsupported_tool`, `duplicate_name`."""
        if self._odd:
            raise FormatRefused(
                "unsupported_tool",
                f"{self._into} does not take the names {', '.join(self._odd)}. Rename the tools in servers.yaml.",
            )
        if len(set(self._names)) < len(self._names):
            raise FormatRefused("duplicate_name", "Two tools have the same name. Rename one of them.")

    def _has_name(self, definition: JsonObject) -> bool:
        name = definition.get("name")
        is_sound = isinstance(name, str) and self._facts.names.fullmatch(name) is not None
        (self._names if is_sound else self._odd).append(str(name))
        return is_sound

    def _tool(self, definition: JsonObject) -> JsonObject:
        if not self._has_name(definition):
            return {}
        name, losses = definition["name"], list[Loss]()
        schema, is_strict = self._schema(definition, losses, may_be_strict=self._is_strict)
        if losses:
            self.losses[name] = tuple(losses)
        tool = _SHAPES[self._into](definition, schema, is_strict)
        if name in self._programmatic and self._into in PROGRAMMATIC:
            tool["allowed_callers"] = ["direct", PROGRAMMATIC[self._into]]
            if self._into is Format.ANTHROPIC and "outputSchema" in definition:
                returned = text_of(definition["outputSchema"])
                tool["description"] = f"{tool.get('description', '')}\n\nReturns JSON: {returned}".strip()
        return tool

    def _schema(self, definition: JsonObject, losses: list[Loss], *, may_be_strict: bool) -> tuple[Node, bool]:
        schema = canonical(definition.get("inputSchema"), losses)
        dialect = self._facts.strict
        if may_be_strict and dialect is not None:
            strict_losses: list[Loss] = []
            try:
                enforced = strict(schema, dialect, strict_losses, self._budget[1] if self._budget else None)
                self._spend(enforced)
            except NotStrict as reason:
                losses.append(Loss("", "not_strict", str(reason)))
            else:
                losses += strict_losses
                return enforced.schema, True
        return plain(schema, self._facts.plain, losses), False

    def _spend(self, enforced: Strictness) -> None:
        """Raises: NotStrict above Anthropic's limits for a request."""
        if self._budget is None:
            return
        budget = [have - cost for have, cost in zip(self._budget, (1, enforced.optional, enforced.unions), strict=True)]
        if min(budget) < 0:
            raise NotStrict(OVER)
        self._budget = budget


def _labels(definition: JsonObject) -> JsonObject:
    description = definition.get("description") or definition.get("title")
    return {"name": definition["name"], **({"description": description} if description else {})}


def _anthropic(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    return {**_labels(definition), "input_schema": schema, **({"strict": True} if is_strict else {})}


def _openai(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    return {"type": "function", "function": {**_labels(definition), "parameters": schema, "strict": is_strict}}


def _responses(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    output = {"output_schema": definition["outputSchema"]} if "outputSchema" in definition else {}
    return {"type": "function", **_labels(definition), "parameters": schema, "strict": is_strict, **output}


def _gemini(definition: JsonObject, schema: Node, is_strict: bool) -> JsonObject:
    tool = _labels(definition)
    tool.setdefault("description", definition["name"])
    output = {"responseJsonSchema": definition["outputSchema"]} if "outputSchema" in definition else {}
    return {**tool, "parametersJsonSchema": schema, **output}


_SHAPES: Final = {
    Format.ANTHROPIC: _anthropic,
    Format.OPENAI: _openai,
    Format.OPENAI_RESPONSES: _responses,
    Format.GEMINI: _gemini,
}


def read_tools(body: Mapping[str, Any], out_of: Format) -> list[JsonObject]:
    """MCP definitions for a request's functions; SDK objects are accepted."""
    tools = json_value(body.get("tools", []))
    match out_of:
        case Format.MCP:
            return list(tools)
        case Format.ANTHROPIC:
            return [_read(tool, tool["input_schema"], None) for tool in tools if "input_schema" in tool]
        case Format.OPENAI:
            functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
            return [_read(tool, tool.get("parameters"), None) for tool in functions]
        case Format.OPENAI_RESPONSES:
            listed = [
                function
                for tool in tools
                for function in (tool["tools"] if tool.get("type") == "namespace" else (tool,))
            ]
            functions = [tool for tool in listed if tool.get("type") == "function"]
            return [_read(tool, tool.get("parameters"), tool.get("output_schema")) for tool in functions]
        case Format.GEMINI:
            functions = [function for tool in tools for function in tool.get("functionDeclarations", ())]
            return [_read(tool, tool.get("parametersJsonSchema"), tool.get("responseJsonSchema")) for tool in functions]


def _read(tool: JsonObject, schema: Node | None, output: Node | None) -> JsonObject:
    description = {"description": tool["description"]} if "description" in tool else {}
    returned = {} if output is None else {"outputSchema": output}
    return {"name": tool["name"], **description, "inputSchema": schema or {"type": "object"}, **returned}

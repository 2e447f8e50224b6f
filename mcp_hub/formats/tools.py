"""MCP definitions as a provider's tools, and back; groups (namespaces); tool search."""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, Final, Protocol

import msgspec

from mcp_hub.errors import Rejected
from mcp_hub.formats.calls import read_calls, write_results
from mcp_hub.formats.provider import NOTHING_FOUND
from mcp_hub.formats.providers import FORMATS, Format
from mcp_hub.formats.records import CallFault, Exported, ModelCall, json_value
from mcp_hub.formats.schemas.canonical import canonical
from mcp_hub.formats.schemas.emitters import OVER, plain, strict
from mcp_hub.formats.schemas.nodes import Node
from mcp_hub.formats.schemas.subset import NotStrict
from mcp_hub.protocol.rest.calls import LossInfo
from mcp_hub.types import JsonObject

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST: Final = 64
_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^A-Z_.\-\s]+|[A-Z]")
"""The words of a name: `get_file`, `getFile`, `get-file`."""
MOST_IN_GROUP: Final = 10
"""Tools of a group (developers.openai.com, "Tool search": "fewer than 10 functions" are advised)."""
_MOST_LISTED: Final = 48
"""Characters of the names that a group's description lists."""


ToolGroup = tuple[str, str]
"""A group's name and description."""


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
    return {server: (name, servers[server] or f"Tools of {server}.") for server, name in names.items()}


def tool_groups(owners: Mapping[str, str], servers: Mapping[str, str | None]) -> dict[str, ToolGroup]:
    """The group of each tool by name: its server's, or a part of that with at most `MOST_IN_GROUP` tools.

    `owners`: the server of each tool; a tool of another server than `servers` has no group. Parts follow from the first
    words of names. All tools have to be there, so that a search finds the same groups as a list.
    """
    by_server: dict[str, list[str]] = {server: [] for server in servers}
    for name, server in owners.items():
        if server in by_server:
            by_server[server].append(name)
    wholes = server_groups(servers)
    taken = {name for server, (name, _) in wholes.items() if len(by_server[server]) <= MOST_IN_GROUP}
    groups: dict[str, ToolGroup] = {}
    for server, (whole, _) in wholes.items():
        if names := by_server[server]:
            groups |= _groups_of(whole, servers[server], names, taken)
    return groups


def _groups_of(whole: str, purpose: str | None, names: list[str], taken: set[str]) -> dict[str, ToolGroup]:
    words = {name: _WORDS.findall(name) for name in names}
    shared = len(_common(list(words.values()))) if len(names) > 1 else 0
    short = {name: "_".join(words[name][shared:]) or name for name in names}
    if len(names) <= MOST_IN_GROUP:
        return dict.fromkeys(names, (whole, purpose or f"{whole}: {_listed(names, short)}"))
    groups: dict[str, ToolGroup] = {}
    for part in _parts(names, words, shared):
        name = _free("_".join([whole, *_common([words[tool][shared:] for tool in part])]), taken)
        summary = (purpose or whole).rstrip(". ")
        groups |= dict.fromkeys(part, (name, f"{summary}: {_listed(part, short)}"))
    return groups


def _parts(names: list[str], words: Mapping[str, list[str]], depth: int) -> list[list[str]]:
    """The names in parts that are small enough, those with the same first words together."""
    by_word: dict[str, list[str]] = {}
    for name in names:
        by_word.setdefault(words[name][depth] if depth < len(words[name]) else "", []).append(name)
    if len(by_word) == 1 and "" in by_word:
        return [names[start : start + MOST_IN_GROUP] for start in range(0, len(names), MOST_IN_GROUP)]
    parts: list[list[str]] = []
    has_room = False
    for alike in by_word.values():
        if len(alike) > MOST_IN_GROUP:
            parts += _parts(alike, words, depth + 1)
            has_room = False
        elif has_room and len(parts[-1]) + len(alike) <= MOST_IN_GROUP:
            parts[-1] = [*parts[-1], *alike]
        else:
            parts.append(alike)
            has_room = True
    return parts


def _common(words: list[list[str]]) -> list[str]:
    shared = list(takewhile(lambda column: len(set(column)) == 1, zip(*words, strict=False)))
    return [column[0] for column in shared]


def _free(name: str, taken: set[str]) -> str:
    base, number = _ODD.sub("_", name)[:_LONGEST], 2
    name = base
    while name in taken:
        ending = f"_{number}"
        name, number = base[: _LONGEST - len(ending)] + ending, number + 1
    taken.add(name)
    return name


def _listed(names: list[str], short: Mapping[str, str]) -> str:
    text = short[names[0]]
    for name in names[1:]:
        if len(text) + len(short[name]) > _MOST_LISTED:
            return f"{text}, …"
        text += f", {short[name]}"
    return text


def check_groups(groups: Mapping[str, ToolGroup], into: Format) -> None:
    """Raises: Rejected: `grouping_unsupported`, `unsupported_tool`, `duplicate_name`."""
    provider = FORMATS[into]
    if not provider.has_groups:
        formats = ", ".join(name for name, entry in FORMATS.items() if entry.has_groups)
        raise Rejected("grouping_unsupported", f"{into} does not have groups. Leave them out, or use {formats}.")
    names = [name for name, _ in set(groups.values())]
    odd = sorted(name for name in names if provider.names.fullmatch(name) is None)
    if odd:
        raise Rejected("unsupported_tool", f"{into} does not take the groups {', '.join(odd)}. Rename them.")
    if len(set(names)) < len(names):
        raise Rejected("duplicate_name", "Two groups have the same name. Rename one of them.")


def grouped(tools: Sequence[JsonObject], groups: Mapping[str, ToolGroup]) -> list[JsonObject]:
    """Each group becomes a namespace at its first tool."""
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
            entries.append({"type": "namespace", "name": group[0], "description": group[1], "tools": inside[group]})
    return entries


PROGRAMMATIC: Final = tuple(name for name, entry in FORMATS.items() if entry.for_programs is not None)
"""The formats of tools that a model's code may call."""


class _Definitions(Protocol):
    """_Definitions of tools, counted and read in order."""

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

    Raises: Rejected: `too_many_tools`, `unsupported_tool`, `duplicate_name`, `deferral_unsupported`,
    `grouping_unsupported`.
    """
    if groups is not None:
        check_groups(groups, into)
    if into is Format.MCP:
        return Exported({"tools": [*([search] if search else []), *tools]}, {})
    _check_count(len(tools), into, is_deferred=search is not None)
    emitter = _Emitter(into, is_strict, frozenset(programmatic), is_deferred=search is not None, has_end=has_breakpoint)
    exported: list[Any] = [] if search is None else [emitter.search(search)]
    definitions: list[Any] = []
    for number, definition in enumerate(tools, 1):
        tool = emitter.tool(definition, is_last=number == len(tools))
        definitions.append(sealed(tool) if sealed is not None and groups is None else tool)
    emitter.check_names()
    exported += definitions if groups is None else grouped(definitions, groups)
    around = FORMATS[into].around
    entries = [{around: exported}] if around and exported else exported
    return Exported({"tools": entries}, emitter.losses)


def _check_count(count: int, into: Format, *, is_deferred: bool) -> None:
    provider = FORMATS[into]
    if is_deferred and provider.write_found is None:
        raise Rejected("deferral_unsupported", f"{into} cannot defer tools. Use expose=search for a short list.")
    if provider.most_tools and not is_deferred and count > provider.most_tools:
        raise Rejected(
            "too_many_tools",
            f"{count} tools, and {into} takes {provider.most_tools}. Select some with tools=, server= or profile=, "
            "or use expose=search or defer=1 (openai-responses).",
        )


class _Emitter:
    def __init__(
        self, into: Format, is_strict: bool, programmatic: frozenset[str], *, is_deferred: bool, has_end: bool
    ) -> None:
        self.losses: dict[str, tuple[LossInfo, ...]] = {}
        self._into = into
        self._provider = provider = FORMATS[into]
        self._is_strict = is_strict
        self._programmatic = programmatic
        self._is_deferred = is_deferred
        self._end = provider.end if has_end else {}
        self._names: list[str] = []
        self._odd: list[str] = []
        self._budget = provider.budget

    def search(self, definition: JsonObject) -> JsonObject:
        if self._provider.write_search is None:
            return self._tool(definition) | self._end
        self._has_name(definition)
        schema, _ = self._schema(definition, [], may_be_strict=False)
        return self._provider.write_search(definition, schema)

    def tool(self, definition: JsonObject, *, is_last: bool) -> JsonObject:
        tool = self._tool(definition)
        if self._is_deferred:
            tool["defer_loading"] = True
        elif is_last:
            tool |= self._end
        return tool

    def check_names(self) -> None:
        """Raises: Rejected: `unsupported_tool`, `duplicate_name`."""
        if self._odd:
            raise Rejected(
                "unsupported_tool",
                f"{self._into} does not take the names {', '.join(self._odd)}. Rename the tools in servers.yaml.",
            )
        if len(set(self._names)) < len(self._names):
            raise Rejected("duplicate_name", "Two tools have the same name. Rename one of them.")

    def _has_name(self, definition: JsonObject) -> bool:
        name = definition.get("name")
        is_sound = isinstance(name, str) and self._provider.names.fullmatch(name) is not None
        (self._names if is_sound else self._odd).append(str(name))
        return is_sound

    def _tool(self, definition: JsonObject) -> JsonObject:
        if not self._has_name(definition):
            return {}
        name, losses = definition["name"], list[LossInfo]()
        schema, is_strict = self._schema(definition, losses, may_be_strict=self._is_strict)
        if losses:
            self.losses[name] = tuple(losses)
        tool = self._provider.write_tool(definition, schema, is_strict)
        if name in self._programmatic and self._provider.for_programs is not None:
            self._provider.for_programs(tool, definition)
        return tool

    def _schema(self, definition: JsonObject, losses: list[LossInfo], *, may_be_strict: bool) -> tuple[Node, bool]:
        schema = canonical(definition.get("inputSchema"), losses)
        dialect = self._provider.strict
        if may_be_strict and dialect is not None:
            strict_losses: list[LossInfo] = []
            try:
                enforced = strict(schema, dialect, strict_losses, self._budget[1] if self._budget else None)
                self._spend(enforced.optional, enforced.unions)
            except NotStrict as reason:
                losses.append(LossInfo("", "not_strict", str(reason)))
            else:
                losses += strict_losses
                return enforced.schema, True
        return plain(schema, self._provider.plain, losses), False

    def _spend(self, optional: int, unions: int) -> None:
        """Raises: NotStrict above the provider's limits for a request."""
        if self._budget is None:
            return
        tools, most_optional, most_unions = self._budget
        budget = (tools - 1, most_optional - optional, most_unions - unions)
        if min(budget) < 0:
            raise NotStrict(OVER)
        self._budget = budget


def read_tools(body: Mapping[str, Any], out_of: Format) -> list[JsonObject]:
    """MCP definitions for a request's functions; SDK objects are accepted."""
    return FORMATS[out_of].read_tools(json_value(body.get("tools", [])))


# -- search


class _SearchArguments(msgspec.Struct):
    query: str
    server: str | None = None
    limit: int | None = None


def read_search(call: object, out_of: Format) -> ModelCall:
    """A model's call of the search tool; SDK objects are accepted. Raises: Rejected: `invalid_calls`."""
    item = json_value(call)
    as_call = FORMATS[out_of].read_search
    calls = read_calls(as_call(item) if as_call is not None and isinstance(item, dict) else item, out_of)
    if len(calls) != 1:
        raise Rejected("invalid_calls", f"call has to be one call of the search tool, in the format {out_of}.")
    (search_call,) = calls
    if search_call.fault is not None:
        return search_call
    try:
        if search_arguments(search_call).query.strip():
            return search_call
        problem = "the query is empty"
    except msgspec.ValidationError as error:
        problem = str(error)
    fault = CallFault("invalid_arguments", f"{problem}. Give query: what the tool is needed for, in a few words.")
    return msgspec.structs.replace(search_call, fault=fault)


def search_arguments(call: ModelCall) -> _SearchArguments:
    """Raises: msgspec.ValidationError."""
    return msgspec.convert(call.arguments, _SearchArguments, strict=False)


def write_found(
    tools: Sequence[JsonObject],
    into: Format,
    call: ModelCall | None = None,
    *,
    is_strict: bool = False,
    groups: Mapping[str, ToolGroup] | None = None,
    is_inline: bool = False,
) -> JsonObject:
    """The answer to a search with these tools, the best first; `call` is the model's, if any. Raises: Rejected.

    Anthropic takes references, or definitions (`is_inline`), OpenAI's Responses API and Gemini's interactions take
    definitions; elsewhere tools go into the next request.
    """
    if groups is not None:
        check_groups(groups, into)
    messages = [] if call is None else _answered(call, tools, into)
    if is_inline and (write_inline := FORMATS[into].write_inline) is not None:
        return write_inline(export(tools, into, is_strict=is_strict, has_breakpoint=False).body["tools"], messages)
    if (write := FORMATS[into].write_found) is not None:
        return write(tools, call, messages, lambda: _deferred(tools, into, is_strict, groups))
    answer = export(tools, into, is_strict=is_strict).body
    return answer if call is None else {**answer, "messages": messages}


def _deferred(
    tools: Sequence[JsonObject], into: Format, is_strict: bool, groups: Mapping[str, ToolGroup] | None
) -> list[JsonObject]:
    exported = [{**tool, "defer_loading": True} for tool in export(tools, into, is_strict=is_strict).body["tools"]]
    return exported if groups is None else grouped(exported, groups)


def _answered(call: ModelCall, tools: Sequence[JsonObject], into: Format) -> list[JsonObject]:
    text = f"You can call these tools now: {', '.join(tool['name'] for tool in tools)}" if tools else NOTHING_FOUND
    result = {call.id: {"content": [{"type": "text", "text": text}]}} if call.fault is None else {}
    return write_results([call], result, into)

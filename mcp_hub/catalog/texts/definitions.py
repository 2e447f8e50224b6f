"""The definitions of the meta-tools: at most 350 tokens, 330 of which a model reads."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from mcp_hub.catalog.texts.signatures import all_names, counted, greatest
from mcp_hub.catalog.tokens import estimate
from mcp_hub.types import JsonObject, plural

FIND: Final = "find_tools"
RUN: Final = "run_tool"
RUN_READING: Final = "read_tool"
READ: Final = "read_result"

_MOST_NAMES: Final = 1800  # bytes in the description of `find_tools`; clients cut it after some 2,000
_MOST_NAMES_IN_SCHEMA: Final = 12_000  # bytes in the schema of `run_tool`: those of 611 captured tools are 11,000
HOW_TO_READ: Final = "Names, x_{a b} for x_a and x_b:\n"
_SERVERS_TOKENS: Final = 6  # tokens that 350 leave to the names of servers

_READS: Final = {"readOnlyHint": True}  # which makes them idempotent, too (schema, ToolAnnotations)
_RUNS_READING: Final = {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": True}


def _parameter(kind: str, description: str) -> JsonObject:
    return {"type": kind, "description": description}


def _tool(name: str, description: str, properties: JsonObject, annotations: JsonObject) -> bytes:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    hints = {"annotations": annotations} if annotations else {}
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": schema, **hints})


_QUERY: Final = {
    "query": _parameter("string", "One step: 'create GitHub issue'; empty lists server"),
    "server": _parameter("string", "Only this server"),
    "limit": _parameter("integer", "Hits"),
    "detail": _parameter("string", "brief or full"),
}
_TAKES: Final = {"name": _parameter("string", "Tool"), "arguments": _parameter("object", "Its arguments")}
_NAME: Final = f"From {FIND}"
_RUNS: Final = "Run any tool: name 'git_log', arguments {'max_count': 3}"
_THEN_RUN: Final = f"Returns name(parameters): purpose. Run those marked * by {RUN_READING}, others by {RUN}."

READING_TOOL: Final = _tool(RUN_READING, "Run a tool marked *", _TAKES, _RUNS_READING)
"""`read_tool`, the same bytes always."""

READ_RESULT: Final = _tool(
    READ,
    "Read more of a cut result",
    {
        "id": _parameter("string", "Named there"),
        "offset": _parameter("integer", "Byte"),
        "limit": _parameter("integer", "Bytes"),
        "grep": _parameter("string", "Regex"),
        "path": _parameter("string", "JSONPath"),
    },
    _READS,
)
"""`read_result`, the same bytes always."""


def definitions(
    groups: Mapping[str, Sequence[str]], *, is_names: bool, description_limit: int = 2000
) -> tuple[bytes, ...]:
    """`find_tools`, `read_tool` and `run_tool`, encoded; `groups`: exported names by server.

    `is_names` puts names into the description of `find_tools` or, above `description_limit` or 1,800 bytes, into the
    schema of `run_tool`; above 12,000 bytes nowhere.
    """
    ordered = {server: sorted(groups[server]) for server in sorted(groups) if groups[server]}
    counts = {server: len(names) for server, names in ordered.items()}
    if is_names and counts:
        description, name = _with_names(ordered, counts, description_limit)
    else:
        description, name = f"{_search(counts)} {_THEN_RUN}", _NAME
    takes = {"name": _parameter("string", name), "arguments": _parameter("object", "For that tool")}
    # without annotations a tool may do anything, which is all that is known of this one (schema, ToolAnnotations)
    return _tool(FIND, description, _QUERY, _READS), READING_TOOL, _tool(RUN, _RUNS, takes, {})


def search_tool(counts: Mapping[str, int]) -> bytes:
    """`find_tools` for a provider that defers all other tools; `counts`: tools of each server."""
    query = {name: _QUERY[name] for name in ("query", "server", "limit")}
    return _tool(FIND, f"{_search(counts)} Then call those that it returns.", query, _READS)


def _search(counts: Mapping[str, int], *, with_servers: bool = True) -> str:
    servers = greatest(counts, lambda text: estimate(text) <= _SERVERS_TOKENS) if with_servers else ""
    return f"Search {plural(sum(counts.values()), 'tool')}{f' of {servers}' if servers else ''}."


def _with_names(groups: Mapping[str, Sequence[str]], counts: Mapping[str, int], limit: int) -> tuple[str, str]:
    first = f"{_search(counts, with_servers=False)} {_THEN_RUN}"
    names = HOW_TO_READ + all_names(groups)
    size = len(names.encode())
    if size <= min(limit - len(first) - 1, _MOST_NAMES):
        return f"{first}\n{names}", _NAME
    servers = counted(counts, min(limit - len(first) - len("\nServers: "), _MOST_NAMES))
    return f"{first}\nServers: {servers}", names if size <= _MOST_NAMES_IN_SCHEMA else _NAME

"""Texts for the model about tools that are not listed: the meta-tools' definitions and the answers of `find_tools`.

The three definitions together are at most 250 tokens however many tools there are, and depend on nothing but the tools.
Strangers wrote what answers show: a line that is not indented and no JSON is the hub's, or begins with a tool's name.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from mcp_hub.catalog.compact.schema import compact_tool
from mcp_hub.catalog.costs.tokens import estimate
from mcp_hub.catalog.discovery.plain_text import escaped, one_line
from mcp_hub.catalog.discovery.signatures import all_names, counted, greatest, parameter_notes, signature
from mcp_hub.catalog.search.ranker import Hit, SearchAnswer
from mcp_hub.protocol.jsonrpc.envelope import raw_object
from mcp_hub.types import JsonObject

FIND: Final = "find_tools"
RUN: Final = "run_tool"
READ: Final = "read_result"
Detail = Literal["brief", "full"]

_MOST_NAMES: Final = 1800  # bytes in the description of `find_tools`; clients cut it after some 2,000
_MOST_NAMES_IN_SCHEMA: Final = 12_000  # bytes in the schema of `run_tool`: those of 611 captured tools are 11,000
_HOW_TO_READ: Final = "Names, x_{a b} for x_a and x_b:\n"
_SERVERS_TOKENS: Final = 12  # tokens that 250 leave to the names of servers
_SERVERS_BYTES: Final = 200  # bytes of servers before weak hits, some 60 tokens
_ONLY_SERVERS_BYTES: Final = 600  # bytes of servers in an answer without hits
_NOTED: Final = 2  # hits whose parameters are explained: the tool that is called is mostly one of them
_NOTES: Final = 220  # characters of notes on one hit's parameters
_MOST_ALSO: Final = 4  # near-duplicates that are named with a hit

_META: Final = {"anthropic/alwaysLoad": True}
_READS: Final = {"readOnlyHint": True}
_STRING: Final = {"type": "string"}
_INTEGER: Final = {"type": "integer"}
_DETAIL: Final = {"type": "string", "enum": ["brief", "full"]}
_OF_A_TOOL: Final = ("name", "description", "inputSchema")


def _tool(name: str, description: str, properties: JsonObject, annotations: JsonObject) -> bytes:
    """An encoded definition whose first parameter is required."""
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    hints = {"annotations": annotations} if annotations else {}
    fields = {"name": name, "description": description, "inputSchema": schema, **hints, "_meta": _META}
    return msgspec.json.encode(fields)


READ_RESULT: Final = _tool(
    READ,
    "Read more of a long result by offset, grep or JSON path.",
    {"id": _STRING, "offset": _INTEGER, "limit": _INTEGER, "grep": _STRING, "path": _STRING},
    _READS,
)
"""`read_result`, the same bytes always."""


def definitions(
    groups: Mapping[str, Sequence[str]], *, is_names: bool, description_limit: int = 2000
) -> tuple[bytes, ...]:
    """`find_tools` and `run_tool`, encoded, for the exported names of every server's tools, in whatever order.

    With `is_names` all names are in the description of `find_tools`. Where that would be longer than
    `description_limit` bytes, or the names than 1,800, servers and counts are there and the names in the schema of
    `run_tool`; over 12,000 bytes names are nowhere.
    """
    ordered = {server: sorted(groups[server]) for server in sorted(groups) if groups[server]}
    counts = {server: len(names) for server, names in ordered.items()}
    if is_names and counts:
        description, name = _with_names(ordered, counts, description_limit)
    else:
        servers = greatest(counts, lambda text: estimate(text) <= _SERVERS_TOKENS)
        description, name = _search(servers, counts), {}
    query = {"query": _STRING, "server": _STRING, "limit": _INTEGER, "detail": _DETAIL}
    takes = {"name": {**_STRING, **name}, "arguments": {"type": "object"}}
    # without annotations a tool may do anything, which is all that is known of this one (schema, ToolAnnotations)
    return _tool(FIND, description, query, _READS), _tool(RUN, f"Run a tool that {FIND} found.", takes, {})


def answer(
    found: SearchAnswer,
    raws: Mapping[str, bytes],
    servers: Mapping[str, int],
    *,
    detail: Detail = "brief",
    limit: int = 8,
    budget_tokens: int = 2000,
) -> str:
    """The answer of `find_tools`: a line a hit, the first two with notes on parameters; in full, their definitions.

    `raws` has the encoded definition of every hit, `servers` how many tools each has. Of at most `limit` hits those
    that do not fit into `budget_tokens` are in full shown as lines, else counted. A weak answer says that it is one.
    """
    hits = [hit for hit in found.hits if hit.id in raws][: max(limit, 1)]
    lines = [] if hits and not found.is_weak else [_nothing_fits(servers, bool(hits))]
    left = budget_tokens - sum(map(estimate, lines))
    is_short, missing = False, 0
    for place, hit in enumerate(hits):
        notes = _NOTES if place < _NOTED and not found.is_weak else 0
        text, is_full = _shown(hit, raws[hit.id], detail, notes, left)
        cost = estimate(text) + 1
        if cost > left:
            missing = len(hits) - place
            break
        left -= cost
        is_short = is_short or not is_full
        lines.append(text)
    if is_short and detail == "full":
        lines.append(f"Those in one line were too long in full: ask {FIND} for one by its exact name.")
    if missing:
        lines.append(f"{missing} more were left out.")
    return "\n".join(lines)


def exact(raw: bytes) -> str:
    """The compact definition of one tool as JSON on one line: name, description and input schema. Never raises."""
    try:
        fields = raw_object(compact_tool(raw)) or {}
        shown = msgspec.json.encode({name: fields[name] for name in _OF_A_TOOL if name in fields})
        return escaped(msgspec.json.format(shown, indent=-1).decode())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "{}"


def _search(servers: str, counts: Mapping[str, int]) -> str:
    of = f" of {servers}" if servers else ""
    return f"Search {sum(counts.values())} tools{of} for one step, as 'create GitHub issue'."


def _with_names(
    groups: Mapping[str, Sequence[str]], counts: Mapping[str, int], limit: int
) -> tuple[str, dict[str, str]]:
    """The description of `find_tools`, and that of the name in `run_tool`, if any."""
    first = _search("", counts)
    names = _HOW_TO_READ + all_names(groups)
    size = len(names.encode())
    if size <= min(limit - len(first) - 1, _MOST_NAMES):
        return f"{first}\n{names}", {}
    servers = counted(counts, min(limit - len(first) - len("\nServers: "), _MOST_NAMES))
    return f"{first}\nServers: {servers}", {"description": names} if size <= _MOST_NAMES_IN_SCHEMA else {}


def _shown(hit: Hit, raw: bytes, detail: Detail, notes: int, left: int) -> tuple[str, bool]:
    """One hit, and whether in the detail that was asked for."""
    also = "\nalso: " + _listed(hit.also) if hit.also else ""
    if detail == "full" and estimate(text := exact(raw) + also) < left:
        return text, True
    lines = parameter_notes(raw, notes) if detail == "brief" and notes else []
    noted = "\n  " + "; ".join(lines) if lines else ""
    return signature(hit.id, raw) + noted + also, detail == "brief"


def _listed(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _MOST_ALSO else ""
    return ", ".join(map(one_line, names[:_MOST_ALSO])) + more


def _nothing_fits(servers: Mapping[str, int], is_something: bool) -> str:
    if not servers:
        return "No tool fits: there are none."
    there = counted(servers, _SERVERS_BYTES if is_something else _ONLY_SERVERS_BYTES)
    return f"No close match. Servers: {there}. Nearest:" if is_something else f"No tool fits. Servers: {there}."

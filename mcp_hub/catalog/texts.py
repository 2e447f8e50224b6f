"""Texts for a model: harmless, on one line, bounded. Pure.

In: texts and schemas of servers.

Out: text bounded in characters or tokens: a tool in one line, many tools by name alone, and the definitions of the
meta-tools.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from os.path import commonprefix
from typing import Final

import msgspec

from mcp_hub.catalog.tokens import estimate
from mcp_hub.globs import late
from mcp_hub.schema import Property, alternatives, input_schema, listed_values, named_types, parameters, type_name
from mcp_hub.types import JsonObject, plural

OPENING: Final = "One MCP server in front of several; a tool's name begins with its server."
"""The first sentence of the hub's own instructions."""
MAX_PURPOSE: Final = 120
"""Characters of a server's first sentence in the hub's own instructions."""
MAX_READ: Final = 8192  # characters of a text that are looked at: the longest of 611 descriptions has 7,000
_MAX_FIRST: Final = 2048  # characters in which the first sentence is looked for

_SEQUENCES: Final = late("\x1b\\[[0-?]{0,64}[ -/]{0,16}[@-~]|\x1b\\][^\x07\x1b]{0,256}(?:\x07|\x1b\\\\)")
"""Terminal control sequences (ECMA-48 §5.4) and operating system commands."""
_BREAKING: Final = late("[\\s\x00-\x1f\x7f-\x9f\u2028\u2029]+")
# format characters (bidirectional controls, joiners, tags), fillers, variation selectors, surrogates, private use
_FORMAT: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd\U00013430-\U0001343f\U000e0000-\U0010ffff"
)
_UNSEEN: Final = late(f"[{_FORMAT}]+")
_UNSEEN_IN_JSON: Final = late(f"[\x7f-\x9f\u2028\u2029{_FORMAT}]")
_MARKUP: Final = late(r"^(?:[#>*=~_`-]+\s+)+|^[#*`]+|\*\*|``+")
# a line that continues in lower case was only wrapped; Chinese and Japanese put no space after a full stop
_END: Final = late(r"\r?\n(?!\s{0,16}[a-z(`])|(?<=[.!?])(?<!e\.g\.)(?<!i\.e\.)(?<!\bvs\.)(?<!etc\.)\s+|(?<=[。！？])")


def one_line(text: str, limit: int = MAX_READ) -> str:
    """At most `limit` characters without line breaks, control, format and other unseen characters."""
    text = _SEQUENCES.sub("", text[:MAX_READ])
    return cut(_BREAKING.sub(" ", _UNSEEN.sub("", text)).strip(), limit)


def escaped(text: str) -> str:
    """JSON with unseen characters escaped; `text` has no white space between tokens."""
    return _UNSEEN_IN_JSON.sub(lambda match: json.dumps(match[0])[1:-1], text)


def sentences(text: str) -> list[str]:
    """Sentences of `text`, each one line without Markdown; headings only if there is nothing else."""
    parts = _END.split(text[:MAX_READ])
    return _plain(part for part in parts if not part.lstrip().startswith("#")) or _plain(parts)


def _plain(parts: Iterable[str]) -> list[str]:
    lines = (_MARKUP.sub("", one_line(part)) for part in parts)
    return [line for line in lines if line.strip(".!?:;,- ")]


def first_sentence(text: str, limit: int) -> str:
    """Without its full stop, at most `limit` characters."""
    for part in sentences(text[:_MAX_FIRST]):
        return cut(part.rstrip(".。:;, "), limit)
    return ""


def cut(text: str, limit: int) -> str:
    """`text`, or as many whole words as fit with an ellipsis into `limit` characters."""
    if len(text) <= limit:
        return text
    if limit <= 1:
        return "…"[: max(limit, 0)]
    head = text[: limit - 1]
    words = head if text[limit - 1] == " " else head.rpartition(" ")[0]
    # one endless word, or a script without spaces
    return (words if 2 * len(words) > limit else head).rstrip(" ,;:.") + "…"


WIDTH: Final = 200  # characters of a line
_ABOUT: Final = 64  # characters that parameters leave to the description: fewer say too little to choose by
_NOTE: Final = 72  # characters of what a parameter says of itself
_MOST_NOTED: Final = 32  # parameters that are looked at for notes
_MAX_NAME: Final = 64  # characters of a server's or parameter's name: the limit that models set for tools
_MAX_TYPE: Final = 40  # characters of a type, so of all values of an enumeration; a longer one is not shown
_MAX_MEMBERS: Final = 16  # members of a union or an enumeration that are looked at
_MAX_STEPS: Final = 48  # schemas that are looked at for one type, so that one which refers to itself comes to an end

_NULL: Final = "null"
_ARRAY: Final = "list"
_TYPES: Final = {
    **{"string": "str", "integer": "int", "number": "num", "boolean": "bool", "object": "obj"},
    **{"array": _ARRAY, "null": _NULL},
}
_PLAIN: Final = re.compile(r"[\w.$@/+-]+")
_WORDS: Final = re.compile(r"[^\W_]+")
_WORD_END: Final = re.compile("[_-]")
_decode = msgspec.json.Decoder(JsonObject).decode


def signature(exported: str, raw: bytes, width: int = WIDTH, mark: str = "") -> str:
    """`github_create_issue(owner:str, title:str, body?:str): Create a new issue` of an encoded definition.

    At most `width` characters; `+2` and `+5?` count required and other parameters that do not fit.
    """
    tool = _object(raw)
    sentence = _purpose(tool, width)
    name = one_line(exported, width)
    room = width - len(f"{name}(){mark}") - (len(": ") + min(len(sentence), _ABOUT) if sentence else 0)
    head = f"{name}({', '.join(_parameters(tool, room))}){mark}"
    return one_line(f"{head}: {sentence}" if sentence else head, width)


def purpose(raw: bytes, limit: int = WIDTH) -> str:
    """The first sentence of the description, else of the title."""
    return _purpose(_object(raw), limit)


def _purpose(tool: JsonObject, limit: int) -> str:
    return first_sentence(_text(tool, "description") or _text(tool, "title"), limit)


def parameter_notes(raw: bytes, budget: int) -> list[str]:
    """`name: first sentence` where that says more than the name, required first, within `budget` characters."""
    notes: list[str] = []
    for name, schema, _ in _listed(_object(raw))[:_MOST_NOTED]:
        sentence = first_sentence(_text(schema, "description"), _NOTE)
        if not _words(sentence) - _words(name):
            continue
        note = f"{_parameter_name(name)}: {sentence}"
        budget -= len(note)
        if budget < 0:
            break
        notes.append(note)
    return notes


def parameter_lines(raw: bytes) -> list[str]:
    """`steps?:int: into how many steps` of each parameter, required first, for people."""
    tool = _object(raw)
    lines: list[str] = []
    for name, schema, is_required in _listed(tool):
        description = one_line(_text(schema, "description"))
        lines.append(
            f"{_parameter(name, schema, is_required, tool['inputSchema'])}{f': {description}' if description else ''}"
        )
    return lines


def all_names(groups: Mapping[str, Sequence[str]]) -> str:
    """A line per server: `github_{create_issue list_issues}`; `git: ` precedes names that do not begin with the
    server's.
    """
    return "\n".join(_braced(server, names) for server, names in groups.items() if names)


def counted(servers: Mapping[str, int], limit: int) -> str:
    """`github (26), notion (24)`: as many servers as fit into `limit` bytes."""
    return greatest(servers, lambda text: len(text.encode()) <= limit, "{} ({})") or "…"


def greatest(servers: Mapping[str, int], fits: Callable[[str], bool], form: str = "{}") -> str:
    """The largest servers that fit, then an ellipsis; empty if none fits."""
    text = ""
    for server, count in sorted(servers.items(), key=lambda item: (-item[1], item[0])):
        longer = (f"{text}, " if text else "") + form.format(_server(server), count)
        if not fits(f"{longer}, …"):
            return f"{text}, …" if text else ""
        text = longer
    return text


def _braced(server: str, names: Sequence[str]) -> str:
    shared = _shared(names) if len(names) > 1 else ""
    listed = " ".join(one_line(name[len(shared) :]) for name in names if name.startswith(shared))
    unshared = [one_line(name) for name in names if not name.startswith(shared)]
    text = " ".join((f"{one_line(shared)}{{{listed}}}", *unshared)) if shared else listed
    return text if text.startswith(server) else f"{_server(server)}: {text}"


def _shared(names: Sequence[str]) -> str:
    """The beginning of all names, or the most saving one of more than half; whole words only."""
    ends = _WORD_END.finditer
    if shared := [end.end() for end in ends(commonprefix(list(names)))]:
        return names[0][: shared[-1]]
    counts = Counter(name[: end.end()] for name in names for end in ends(name))
    savings = {text: (count - 1) * len(text) for text, count in counts.items() if count * 2 > len(names)}
    return max(sorted(savings), key=savings.__getitem__, default="")


def _server(name: str) -> str:
    return one_line(name, _MAX_NAME)


def _object(raw: bytes) -> JsonObject:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


def _text(of: object, name: str) -> str:
    value = of.get(name) if isinstance(of, dict) else None
    return value if isinstance(value, str) else ""


def _words(text: str) -> set[str]:
    return {word.lower() for word in _WORDS.findall(text)}


def _parameters(tool: JsonObject, room: int) -> list[str]:
    listed = _listed(tool)
    texts: list[str] = []
    for name, schema, is_required in listed:
        texts.append(_parameter(name, schema, is_required, tool["inputSchema"]))
        if len(", ".join(texts)) > room:
            break
    while texts and len(", ".join([*texts, *_counts(listed[len(texts) :])])) > room:
        texts.pop()
    return [*texts, *_counts(listed[len(texts) :])]


def _counts(left_out: list[Property]) -> list[str]:
    needed = sum(is_required for _, _, is_required in left_out)
    counts = {"": needed, "?": len(left_out) - needed}
    return [f"+{count}{mark}" for mark, count in counts.items() if count]


def _listed(tool: JsonObject) -> list[Property]:
    return sorted(parameters(input_schema(tool)), key=lambda parameter: not parameter[2])


def _parameter(name: str, schema: object, is_required: bool, root: JsonObject) -> str:
    kinds = dict.fromkeys(_kinds(schema, root))
    if not is_required:
        kinds.pop(_NULL, None)  # who may leave it out needs no null
    kind = "|".join(kinds)
    text = _parameter_name(name) + ("" if is_required else "?")
    return f"{text}:{kind}" if 0 < len(kind) <= _MAX_TYPE else text


def _parameter_name(name: str) -> str:
    """A name that is not a plain word becomes JSON in ASCII."""
    if not _PLAIN.fullmatch(name):
        name = json.dumps(name[:_MAX_NAME])
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"


def _kinds(schema: object, root: JsonObject) -> Iterator[str]:
    waiting: list[tuple[object, bool]] = [(schema, False)]
    for _ in range(_MAX_STEPS):
        if not waiting:
            return
        current, is_listed = waiting.pop()
        if not isinstance(current, dict):
            continue
        inner = alternatives(current, root)
        if inner is not None:
            waiting += [(branch, is_listed) for branch in reversed(inner[:_MAX_MEMBERS])]
            continue
        for kind in _own_kinds(current):
            if kind == _ARRAY and not is_listed and isinstance(items := current.get("items"), dict):
                waiting.append((items, True))
            else:
                yield f"list[{kind}]" if is_listed else kind


def _own_kinds(schema: JsonObject) -> list[str]:
    if (values := listed_values(schema)) is not None:
        return _values(values)
    return [_TYPES[name] for name in named_types(schema)[:_MAX_MEMBERS] if name in _TYPES]


def _values(values: list[object]) -> list[str]:
    texts = [_value(value) for value in values[: _MAX_MEMBERS + 1]]
    if len(texts) <= _MAX_MEMBERS and len("|".join(texts)) <= _MAX_TYPE and all(map(_PLAIN.fullmatch, texts)):
        return texts
    return list(dict.fromkeys(_TYPES[type_name(value)] for value in values[:_MAX_MEMBERS]))


def _value(value: object) -> str:
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else json.dumps(value)


FIND: Final = "find_tools"
RUN: Final = "run_tool"
RUN_READING: Final = "read_tool"
READ: Final = "read_result"

_MOST_NAMES: Final = 1800  # bytes in the description of `find_tools`; clients cut it after some 2,000
_MOST_NAMES_IN_SCHEMA: Final = 12_000  # bytes in the schema of `run_tool`: those of 611 captured tools are 11,000
HOW_TO_READ: Final = "Names, x_{a b} for x_a and x_b:\n"
_SERVERS_TOKENS: Final = 6  # tokens that 350 leave to the names of servers

_READS: Final = {"readOnlyHint": True}  # which makes them idempotent, too (schema, ToolAnnotations)


def _tool_parameter(kind: str, description: str = "") -> JsonObject:
    # a name may say enough: each description is read by every model, in every request
    return {"type": kind, "description": description} if description else {"type": kind}


def _tool(name: str, description: str, properties: JsonObject, annotations: JsonObject) -> bytes:
    schema = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    hints = {"annotations": annotations} if annotations else {}
    return msgspec.json.encode({"name": name, "description": description, "inputSchema": schema, **hints})


_QUERY: Final = {
    "query": _tool_parameter("string", "Step in English: 'create GitHub issue'; empty lists server"),
    "server": _tool_parameter("string"),
    "detail": _tool_parameter("string", "brief or full"),
}
_RUNS: Final = "Run any tool: name 'git_log', arguments {'max_count': 3}"
_THEN_RUN: Final = f"Run hits marked * by {RUN_READING}, others by {RUN}."


def _takes(name: str = "", path: str = "") -> JsonObject:
    return {
        "name": _tool_parameter("string", name),
        "arguments": _tool_parameter("object"),
        "path": _tool_parameter("string", path),
    }


READING_TOOL: Final = _tool(RUN_READING, "Run a tool marked *", _takes(), _READS)
"""`read_tool`, the same bytes always."""

READ_RESULT: Final = _tool(
    READ,
    "Read more of a cut result, by byte offset, regex or JSONPath",
    {
        "id": _tool_parameter("string"),
        "offset": _tool_parameter("integer"),
        "grep": _tool_parameter("string"),
        "path": _tool_parameter("string"),
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
        description, name = f"{_search(counts)} {_THEN_RUN}", ""
    takes = _takes(name, "JSONPath into the result")
    # without annotations a tool may do anything, which is all that is known of this one (schema, ToolAnnotations)
    return _tool(FIND, description, _QUERY, _READS), READING_TOOL, _tool(RUN, _RUNS, takes, {})


def search_tool(counts: Mapping[str, int]) -> bytes:
    """`find_tools` for a provider that defers all other tools; `counts`: each server's tools."""
    query = {name: _QUERY[name] for name in ("query", "server")} | {"limit": _tool_parameter("integer", "Hits")}
    return _tool(FIND, f"{_search(counts)} Then call those that it returns.", query, _READS)


def _search(counts: Mapping[str, int], *, with_servers: bool = True) -> str:
    servers = greatest(counts, lambda text: estimate(text) <= _SERVERS_TOKENS) if with_servers else ""
    return f"Search {plural(sum(counts.values()), 'tool')}{f' of {servers}' if servers else ''}."


def _with_names(groups: Mapping[str, Sequence[str]], counts: Mapping[str, int], limit: int) -> tuple[str, str]:
    first = f"{_search(counts, with_servers=False)} {_THEN_RUN}"
    names = HOW_TO_READ + all_names(groups)
    size = len(names.encode())
    if size <= min(limit - len(first) - 1, _MOST_NAMES):
        return f"{first}\n{names}", ""
    servers = counted(counts, min(limit - len(first) - len("\nServers: "), _MOST_NAMES))
    return f"{first}\nServers: {servers}", names if size <= _MOST_NAMES_IN_SCHEMA else ""

"""A tool in one line, and many tools by name alone; every text is bounded."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import commonprefix
from typing import Any, Final

import msgspec

from mcp_hub.catalog.texts.plain_text import first_sentence, one_line
from mcp_hub.schema import (
    Property,
    alternatives,
    input_schema,
    listed_values,
    named_types,
    parameters,
    type_name,
)
from mcp_hub.types import JsonObject

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
    purpose = first_sentence(_text(tool, "description") or _text(tool, "title"), width)
    name = one_line(exported, width)
    room = width - len(f"{name}(){mark}") - (len(": ") + min(len(purpose), _ABOUT) if purpose else 0)
    head = f"{name}({', '.join(_parameters(tool, room))}){mark}"
    return one_line(f"{head}: {purpose}" if purpose else head, width)


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


def _text(of: Any, name: str) -> str:
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
    return sorted(parameters(input_schema(tool)), key=lambda parameter: not parameter.is_required)


def _parameter(name: str, schema: Any, is_required: bool, root: JsonObject) -> str:
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


def _kinds(schema: Any, root: JsonObject) -> Iterator[str]:
    waiting: list[tuple[Any, bool]] = [(schema, False)]
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


def _values(values: list[Any]) -> list[str]:
    texts = [_value(value) for value in values[: _MAX_MEMBERS + 1]]
    if len(texts) <= _MAX_MEMBERS and len("|".join(texts)) <= _MAX_TYPE and all(map(_PLAIN.fullmatch, texts)):
        return texts
    return list(dict.fromkeys(_TYPES[type_name(value)] for value in values[:_MAX_MEMBERS]))


def _value(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if isinstance(value, dict | list) else json.dumps(value)

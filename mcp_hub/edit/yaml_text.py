"""Entries of YAML by their places in the text: those of mappings and lists, in block or in flow style."""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import yaml

from mcp_hub.edit.splices import KEPT_TEXTS, CannotEdit, Splice, line_end, line_start, newline_of
from mcp_hub.masking import visible
from mcp_hub.types import JsonObject

_STEP: Final = "  "
_WIDEST: Final = 1 << 30


class _Pair(msgspec.Struct, frozen=True):
    """An entry of a mapping or a list: its node, and for a mapping the node of its key."""

    key: yaml.Node
    value: yaml.Node


def set_entry(text: str, path: Sequence[str], value: JsonObject) -> list[Splice]:
    """Sets the entry of a mapping at the path; mappings above it are made. Raises `CannotEdit`."""
    root = _composed(text)
    newline = newline_of(text)
    if root is None:
        before = newline if text.strip() and not text.endswith("\n") else ""
        return [Splice(len(text), len(text), before + block(path, value, "", newline) + newline)]
    at, rest, above = root, list(path), None
    while len(rest) > 1 and (found := _pair(at, rest[0])) is not None:
        above, at = found, found.value
        rest.pop(0)
    if len(rest) == 1 and (found := _pair(at, rest[0])) is not None:
        return _replaced(text, at, found, rest[0], value)
    if isinstance(at, yaml.ScalarNode) and above is not None and at.tag.endswith(":null"):
        indent = " " * (above.key.start_mark.column + len(_STEP))
        return [Splice(at.start_mark.index, at.end_mark.index), _below(text, above, rest, value, indent)]
    if not isinstance(at, yaml.MappingNode):
        raise CannotEdit("there is a value that is not a mapping where the servers belong")
    if at.flow_style:
        comma = ", " if at.value else ""
        place = at.start_mark.index + 1
        return [Splice(place, place, f"{_key(rest[0])}: {_flow(_nested(rest[1:], value))}{comma}")]
    if above is not None:
        return [_below(text, above, rest, value, " " * at.start_mark.column)]
    ends_line = text.endswith("\n")
    written = block(rest, value, " " * at.start_mark.column, newline)
    return [Splice(len(text), len(text), written + newline if ends_line else newline + written)]


def remove_entry(text: str, path: Sequence[str | int]) -> list[Splice]:
    """Removes the entry at the path, which exists; an index is that of a list. Raises `CannotEdit`."""
    at, above = _composed(text), None
    for key in path[:-1]:
        above = None if at is None else _pair(at, key)
        at = None if above is None else above.value
    gone = None if at is None else _pair(at, path[-1])
    if gone is None or not isinstance(at, yaml.CollectionNode):
        raise CannotEdit("the entry was not found in the text")
    if at.flow_style:
        return [_out_of_flow(text, at, gone)]
    start, end = _lines(text, gone)
    splices = [Splice(start, end)]
    if len(at.value) == 1:
        if above is None:
            raise CannotEdit("nothing would be left of the file")
        colon = text.index(":", above.key.end_mark.index) + 1
        splices.append(Splice(colon, colon, " {}" if isinstance(at, yaml.MappingNode) else " []"))
    elif end == len(text) and not text.endswith("\n"):
        start -= 2 if text[:start].endswith("\r\n") else 1
        splices = [Splice(start, end)]
    return splices


def copy_entry(
    text: str, path: Sequence[str | int], source: str, old: Sequence[str | int], after: str | int | None
) -> list[Splice]:
    """Inserts the lines of the entry that `source` has at the path `old`, behind the entry `after`, or first.

    Raises `CannotEdit`.
    """
    lines, newline = _copied(source, old), newline_of(text)
    at = root = _composed(text)
    above = None
    for key in path[:-1]:
        above = None if at is None else _pair(at, key)
        at = None if above is None else above.value
    if above is None or at is None:
        return _new_holder(text, root, path, lines)
    if not isinstance(at, yaml.CollectionNode) or not at.value:
        return _into_empty(text, above, lines)
    if at.flow_style:
        raise CannotEdit("the servers are written on one line")
    entry = _indented(lines, at.start_mark.column, newline)
    sibling = None if after is None else _pair(at, after)
    place = line_start(text, next(_pairs(at))[1].key.start_mark.index) if sibling is None else _lines(text, sibling)[1]
    if place and not text[:place].endswith("\n"):
        return [Splice(place, place, newline + entry.removesuffix(newline))]
    return [Splice(place, place, entry)]


def _new_holder(text: str, root: yaml.Node | None, path: Sequence[str | int], lines: Sequence[str]) -> list[Splice]:
    """The key that holds the entry, at the end of the text, with the entry below it."""
    if len(path) != 2 or not (root is None or isinstance(root, yaml.MappingNode) and not root.flow_style):
        raise CannotEdit(f"it does not have {path[0]}")
    newline = newline_of(text)
    before = newline if text.strip() and not text.endswith("\n") else ""
    entry = f"{_key(str(path[0]))}:{newline}{_indented(lines, len(_STEP), newline)}"
    return [Splice(len(text), len(text), before + entry)]


def _into_empty(text: str, above: _Pair, lines: Sequence[str]) -> list[Splice]:
    """The first entry, below the line of its key; the empty brackets there go."""
    newline = newline_of(text)
    colon, end = text.index(":", above.key.end_mark.index) + 1, above.value.end_mark.index
    emptied = [Splice(colon, end)] if end > colon else []
    place = line_end(text, max(end, colon))
    entry = _indented(lines, above.key.start_mark.column + len(_STEP), newline)
    return [*emptied, Splice(place, place, entry if text[:place].endswith("\n") else newline + entry)]


def _indented(lines: Sequence[str], column: int, newline: str) -> str:
    return "".join((" " * column + line if line else line) + newline for line in lines)


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The line, from 1, on which the entry at the path begins. Raises `CannotEdit`."""
    return int(_walked(text, path)[1].key.start_mark.line) + 1


def _walked(text: str, path: Sequence[str | int]) -> tuple[yaml.Node, _Pair]:
    """The collection that holds the entry at the path, and the entry."""
    at, pair = _composed(text), None
    above = at
    for key in path:
        above = at
        pair = None if at is None else _pair(at, key)
        at = None if pair is None else pair.value
    if above is None or pair is None:
        raise CannotEdit("the entry was not found in the text")
    return above, pair


def _copied(source: str, path: Sequence[str | int]) -> list[str]:
    """The lines of an entry in a block, without its indentation and without line ends."""
    above, pair = _walked(source, path)
    if isinstance(above, yaml.CollectionNode) and above.flow_style:
        raise CannotEdit("the entry is written on one line with others")
    start, end = _lines(source, pair)
    indent = " " * above.start_mark.column
    return [line.removeprefix(indent).rstrip("\r") for line in source[start:end].removesuffix("\n").split("\n")]


def document(value: JsonObject, newline: str = "\n") -> str:
    """A new text of YAML with these keys, one a line; lists with one entry a line."""
    lines = []
    for key, one in value.items():
        if isinstance(one, list):
            lines += [f"{key}:", *(f"  - {_flow(item)}" for item in one)]
        else:
            lines.append(f"{key}: {_flow(one)}")
    return "".join(line + newline for line in lines)


@lru_cache(maxsize=KEPT_TEXTS)
def _composed(text: str) -> yaml.Node | None:
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError):
        raise CannotEdit("it is not YAML with one document") from None
    return root


def _pairs(node: yaml.Node) -> Iterator[tuple[str | int, _Pair]]:
    if isinstance(node, yaml.SequenceNode):
        yield from ((index, _Pair(one, one)) for index, one in enumerate(node.value))
    elif isinstance(node, yaml.MappingNode):
        yield from ((key.value, _Pair(key, one)) for key, one in node.value if isinstance(key, yaml.ScalarNode))


def _pair(node: yaml.Node, wanted: str | int) -> _Pair | None:
    found = [pair for key, pair in _pairs(node) if key == wanted]
    if len(found) > 1:
        raise CannotEdit("a key occurs twice")
    if found and not node.start_mark.index <= found[0].value.start_mark.index <= node.end_mark.index:
        raise CannotEdit("the servers are an alias of another part of the file")
    return found[0] if found else None


def _below(text: str, above: _Pair, rest: Sequence[str], value: JsonObject, indent: str) -> Splice:
    """A first entry of a block, under the line of its key: comments there stay with the entries that they are about."""
    newline = newline_of(text)
    place = line_end(text, above.key.end_mark.index)
    written = block(rest, value, indent, newline)
    return Splice(place, place, written + newline if text[:place].endswith("\n") else newline + written)


def _replaced(text: str, at: yaml.Node, found: _Pair, name: str, value: JsonObject) -> list[Splice]:
    assert isinstance(at, yaml.MappingNode)
    if at.flow_style:
        return [Splice(found.value.start_mark.index, found.value.end_mark.index, _flow(value))]
    start, end = _lines(text, found)
    newline = newline_of(text)
    written = block([name], value, " " * found.key.start_mark.column, newline)
    return [Splice(start, end, written + newline if text[:end].endswith("\n") else written)]


def _lines(text: str, pair: _Pair) -> tuple[int, int]:
    """The lines of an entry in a block, without the comments that follow."""
    start = line_start(text, pair.key.start_mark.index)
    if text[start : pair.key.start_mark.index].strip(" -"):
        raise CannotEdit("the entry does not begin a line")
    end = _end(pair.value)
    return start, line_end(text, end if pair.key is pair.value else max(end, pair.key.end_mark.index))


def _end(node: yaml.Node) -> int:
    """The end of the last value in a node: the end of a block is where the next thing begins."""
    if isinstance(node, yaml.ScalarNode):
        if node.style in ("|", ">"):
            raise CannotEdit("the entry has a text of several lines")
        return int(node.end_mark.index)
    assert isinstance(node, yaml.CollectionNode)
    if node.flow_style or not node.value:
        return int(node.end_mark.index)
    last = node.value[-1]
    return max(map(_end, last)) if isinstance(last, tuple) else _end(last)


def _out_of_flow(text: str, at: yaml.CollectionNode, gone: _Pair) -> Splice:
    nodes = [one[0] if isinstance(one, tuple) else one for one in at.value]
    place = next(index for index, node in enumerate(nodes) if node is gone.key)
    if place + 1 < len(nodes):
        return Splice(gone.key.start_mark.index, nodes[place + 1].start_mark.index)
    before = at.value[place - 1] if place else None
    if before is None:
        return Splice(gone.key.start_mark.index, gone.value.end_mark.index)
    last = before[1] if isinstance(before, tuple) else before
    return Splice(last.end_mark.index, gone.value.end_mark.index)


def _nested(path: Sequence[str], value: JsonObject) -> JsonObject:
    for key in reversed(path):
        value = {key: value}
    return value


def block(path: Sequence[str], value: JsonObject, indent: str, newline: str) -> str:
    """The keys of the path below one another, the members of the value under the last; no line end at the end."""
    lines = [f"{indent}{_STEP * depth}{_key(key)}:" for depth, key in enumerate(path)]
    inner = indent + _STEP * len(path)
    return newline.join([*lines, *(f"{inner}{_key(key)}: {_flow(one)}" for key, one in value.items())])


def _key(key: str) -> str:
    return (
        key if key.replace("-", "a").replace("_", "a").isalnum() and key.isascii() and key[0].isalpha() else _flow(key)
    )


def _flow(value: object) -> str:
    if isinstance(value, str):
        is_seen = visible(value) == value  # else escapes show that there is something
        text: str = yaml.safe_dump(value, default_style='"', allow_unicode=is_seen, width=_WIDEST)
        return text.strip()
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    return json.dumps(value)

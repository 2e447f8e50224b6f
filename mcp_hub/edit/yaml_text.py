"""Edits of YAML mappings and lists, in block or flow style, by the marks of PyYAML's parser. Pure."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec
import yaml

from mcp_hub.edit import writing
from mcp_hub.edit.writing import KEPT_TEXTS, STEP, CannotEdit, Manner, Splice, line_end, line_start, nested, newline_of
from mcp_hub.types import JsonObject

_ALIAS: Final = "!alias"
_COMMENT: Final = re.compile(r"#[^\r\n]*")


class _Pair(msgspec.Struct, frozen=True):
    """A key and its value; for an item of a list, both are the item."""

    key: yaml.Node
    value: yaml.Node

    @property
    def start(self) -> int:
        return _index(self.key.start_mark)


class _Composer(yaml.SafeLoader):
    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if not self.check_event(yaml.AliasEvent):
            return super().compose_node(parent, index)
        event = self.get_event()  # type: ignore[no-untyped-call]  # types-PyYAML lacks it
        return yaml.ScalarNode(_ALIAS, event.anchor, event.start_mark, event.end_mark)


@lru_cache(maxsize=KEPT_TEXTS)
def composed(text: str) -> yaml.Node | None:
    """The root node, or None. Raises `CannotEdit`."""
    try:
        return _Composer(text).get_single_node()
    except (yaml.YAMLError, RecursionError):
        raise CannotEdit("it is not YAML with one document") from None


def pairs_of(node: yaml.Node | None) -> list[_Pair]:
    """The entries of a mapping or list."""
    if isinstance(node, yaml.SequenceNode):
        return [_Pair(item, item) for item in node.value]
    return [_Pair(*pair) for pair in node.value] if isinstance(node, yaml.MappingNode) else []


def find_pair(node: yaml.Node | None, key: str | int) -> _Pair | None:
    """The entry with this key or index, or None. Raises `CannotEdit` for a duplicate key."""
    listed = pairs_of(node)
    if isinstance(node, yaml.SequenceNode):
        return listed[key] if isinstance(key, int) and key < len(listed) else None
    named = [pair for pair in listed if isinstance(pair.key, yaml.ScalarNode) and pair.key.value == key]
    if len(named) > 1:
        raise CannotEdit("a key occurs twice")
    return named[0] if named else None


def pair_at(root: yaml.Node | None, path: Sequence[str | int]) -> _Pair | None:
    """The entry at the path, or None."""
    pair, node = None, root
    for key in path:
        pair = find_pair(node, key)
        if pair is None:
            return None
        node = pair.value
    return pair


def start_of(node: yaml.Node) -> int:
    return _index(node.start_mark)


def column_of(node: yaml.Node) -> int:
    """Its column, from 0."""
    assert node.start_mark is not None
    return int(node.start_mark.column)


def is_flow(node: yaml.Node) -> bool:
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def is_block(node: yaml.Node) -> bool:
    """Whether it has lines of its own."""
    if isinstance(node, yaml.CollectionNode):
        return not node.flow_style
    return isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")


def is_empty_value(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and start_of(node) == _index(node.end_mark)


def end_of(text: str, node: yaml.Node) -> int:
    """The index behind its last character, before comments and blank lines."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return end_of(text, last[1] if isinstance(last, tuple) else last)
    index = _index(node.end_mark)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        header = _COMMENT.sub("", text[start_of(node) : text.find("\n", start_of(node))])
        if "+" not in header:  # otherwise blank lines are part of the value
            index = len(text[:index].rstrip(" \r\n"))
    return index


def indent_before(text: str, index: int) -> str | None:
    """The indentation, if nothing else is before `index`."""
    before = text[line_start(text, index) : index]
    return before if not before.strip(" ") else None


def without_comments(gap: str) -> str:
    """The text with blanks in place of comments."""
    return _COMMENT.sub(lambda comment: " " * len(comment[0]), gap)


def _index(mark: yaml.Mark | None) -> int:
    assert mark is not None
    return int(mark.index)


def put(text: str, above: Sequence[str], members: Mapping[str, object], manner: Manner) -> list[Splice]:
    """Sets one member of a mapping, or several new ones; makes missing mappings. Raises `CannotEdit`."""
    root = composed(text)
    page = _Page(text, newline_of(text), _step(root), manner)
    if root is None or is_empty_value(root):
        return [page.with_lines(len(text), page.block(nested(above, members), 0))]
    pair, node = None, root
    for depth, key in enumerate(above):
        child = find_pair(node, key)
        if child is None:
            return page.inserted(pair, node, {key: nested(above[depth + 1 :], members)})
        if not pairs_of(child.value):
            return page.replaced(node, child, nested(above[depth + 1 :], members))
        pair, node = child, child.value
    present = [child for key in members if (child := find_pair(node, key)) is not None]
    if not present:
        return page.inserted(pair, node, members)
    if len(members) > 1:
        raise CannotEdit("an entry is there already")
    return page.replaced(node, present[0], *members.values())


def remove(text: str, path: Sequence[str | int], manner: Manner) -> list[Splice]:
    """Removes the entry at the path, which may end with an index. Raises `CannotEdit`."""
    above = pair_at(composed(text), path[:-1])
    node, pair = _walked(text, path)
    if is_flow(node):
        return _Page(text).without_item(node, pair)
    begin, end = _lines(text, pair)
    is_last = len(pairs_of(node)) == 1
    if is_last and above is None:
        raise CannotEdit("nothing would be left of the file")
    if is_last and above is not None and manner == "client":
        colon = text.index(":", _end(above.key)) + 1
        return [Splice(begin, end), Splice(colon, colon, " {}" if isinstance(node, yaml.MappingNode) else " []")]
    if end == len(text) and not text.endswith("\n") and text[:begin].endswith("\n"):
        begin -= 2 if text[:begin].endswith("\r\n") else 1
    return [Splice(begin, end)]


def copy(
    text: str, path: Sequence[str | int], source: str, old: Sequence[str | int], after: str | int | None
) -> list[Splice]:
    """Inserts the lines at `old` in `source`, behind `after`, or first. Raises `CannotEdit`."""
    lines, newline = _copied(source, old), newline_of(text)
    root = composed(text)
    above = pair_at(root, path[:-1])
    if above is None:
        return _new_holder(text, root, path, lines)
    node = above.value
    if not pairs_of(node):
        return _into_empty(text, above, lines)
    if is_flow(node):
        raise CannotEdit("the servers are written on one line")
    entry = _indented(lines, column_of(node), newline)
    sibling = None if after is None else find_pair(node, after)
    index = line_start(text, pairs_of(node)[0].start) if sibling is None else _lines(text, sibling)[1]
    if index and not text[:index].endswith("\n"):
        return [Splice(index, index, newline + entry.removesuffix(newline))]
    return [Splice(index, index, entry)]


def line_of(text: str, path: Sequence[str | int]) -> int:
    return text.count("\n", 0, _walked(text, path)[1].start) + 1


def document(value: JsonObject, newline: str = "\n") -> str:
    """A new YAML text, one key or list entry a line."""
    lines = []
    for key, member in value.items():
        if isinstance(member, list):
            lines += [f"{key}:", *(f"  - {writing.flow(item, 'client')}" for item in member)]
        else:
            lines.append(f"{key}: {writing.flow(member, 'client')}")
    return "".join(line + newline for line in lines)


class _Page(msgspec.Struct, frozen=True):
    """A text, and the style of its new lines."""

    text: str
    newline: str = "\n"
    step: int = STEP
    manner: Manner = "hub"

    def block(self, members: Mapping[str, object], column: int) -> list[str]:
        entries = (writing.entry(key, value, column, self.step, self.manner) for key, value in members.items())
        return [line for lines in entries for line in lines]

    def with_lines(self, index: int, lines: Sequence[str], end: int | None = None) -> Splice:
        stop = index if end is None else end
        before = self.newline if index and self.text[index - 1] != "\n" else ""
        is_open = self.manner == "client" and stop > 0 and self.text[stop - 1] != "\n"  # nor had the last line
        return Splice(index, stop, before + self.newline.join(lines) + ("" if is_open else self.newline))

    def inserted(self, above: _Pair | None, node: yaml.Node, members: Mapping[str, object]) -> list[Splice]:
        """Inserts members behind the last entry; in a client's file, directly below the key `above`."""
        if not isinstance(node, yaml.MappingNode):
            raise CannotEdit("there is a value that is not a mapping where the servers belong")
        if node.flow_style:
            return self._with_items(node, members)
        indents = (indent_before(self.text, pair.start) for pair in pairs_of(node))
        blanks = next((blanks for blanks in indents if blanks is not None), None)
        if blanks is None:
            raise CannotEdit("its keys do not begin their lines")
        if above is not None and self.manner == "client":
            return [self.with_lines(line_end(self.text, _end(above.key)), self.block(members, len(blanks)))]
        index = line_end(self.text, end_of(self.text, node))
        for line in self.text[index:].splitlines(keepends=True):  # comments of the entry before
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) < len(blanks):
                break
            index += len(line)
        return [self.with_lines(index, self.block(members, len(blanks)))]

    def replaced(self, node: yaml.Node, pair: _Pair, value: object) -> list[Splice]:
        """Sets the value of an entry and keeps its comment."""
        old, text = pair.value, self.text
        begin, end = start_of(old), end_of(text, old)
        has_lines = isinstance(value, dict) and bool(value) and not is_flow(node)
        is_empty = is_empty_value(old) or isinstance(old, yaml.MappingNode) and not old.value
        if is_block(old) or has_lines and self.manner == "client" and not is_empty:
            lines = writing.entry(str(pair.key.value), value, self._column(pair), self.step, self.manner)
            return [self.with_lines(line_start(text, pair.start), lines, line_end(text, end))]
        if isinstance(value, dict) and has_lines and is_empty:
            below = self.with_lines(line_end(text, end), self.block(value, self._column(pair) + self.step))
            return [Splice(len(text[:begin].rstrip(" ")), end), below]
        gap = " " if is_empty_value(old) and text[begin - 1 : begin] == ":" else ""
        return [Splice(begin, end, gap + writing.flow(value, self.manner))]

    def without_item(self, node: yaml.Node, pair: _Pair) -> list[Splice]:
        listed, text, end = pairs_of(node), self.text, end_of(self.text, pair.value)
        number = next(index for index, item in enumerate(listed) if item.start == pair.start)
        is_last = number + 1 == len(listed)
        behind = end_of(text, node) - 1 if is_last else listed[number + 1].start
        before = end_of(text, listed[number - 1].value) if number else None
        comma = self._comma(end, behind)
        begin, stop = line_start(text, pair.start), line_end(text, comma or end)
        if not text[begin : pair.start].strip() and stop <= behind:
            if comma is None and before is not None and (separator := self._comma(before, pair.start)) is not None:
                return [Splice(separator - 1, separator), Splice(begin, stop)]
            return [Splice(begin, stop)]
        if not is_last:
            begin, stop, between = pair.start, behind, text[end:behind]
        elif before is not None:
            begin, stop, between = before, end, text[before : pair.start]
        else:
            begin, stop, between = pair.start, comma or end, ""
        if between.replace(",", "", 1).strip():
            raise CannotEdit("a comment may be that of another entry")
        return [Splice(begin, stop)]

    def _with_items(self, node: yaml.MappingNode, members: Mapping[str, object]) -> list[Splice]:
        items = [writing.flow({key: value}, self.manner)[1:-1] for key, value in members.items()]
        text, close, line, listed = self.text, end_of(self.text, node) - 1, ", ".join(items), pairs_of(node)
        if not listed:
            return [Splice(start_of(node) + len(text[start_of(node) : close].rstrip(" ")), close, line)]
        last = end_of(text, listed[-1].value)
        comma = self._comma(last, close)
        behind, end = comma or last, "," if comma else ""
        blanks = text[line_start(text, listed[-1].start) : listed[-1].start]
        if blanks.strip():  # not on a line of its own
            return [Splice(behind, behind, f"{'' if comma else ','} {line}{end}")]
        index = text.find("\n", behind, close)
        index = behind if index < 0 else index - 1 if text[index - 1] == "\r" else index
        below = self.newline + blanks + f",{self.newline}{blanks}".join(items) + end
        if comma or index == last:
            return [Splice(index, index, below if comma else "," + below)]
        return [Splice(last, last, ","), Splice(index, index, below)]

    def _column(self, pair: _Pair) -> int:
        blanks = indent_before(self.text, pair.start)
        if blanks is None:
            raise CannotEdit("the entry does not begin a line")
        return len(blanks)

    def _comma(self, begin: int, end: int) -> int | None:
        index = without_comments(self.text[begin:end]).find(",")
        return None if index < 0 else begin + index + 1


def _step(root: yaml.Node | None) -> int:
    for outer in pairs_of(root):
        inner = pairs_of(outer.value) if isinstance(outer.value, yaml.MappingNode) else []
        if inner and is_block(outer.value):
            return max(1, column_of(inner[0].key) - column_of(outer.key))
    return STEP


def _walked(text: str, path: Sequence[str | int]) -> tuple[yaml.Node, _Pair]:
    root = composed(text)
    above = pair_at(root, path[:-1])
    node = root if above is None else above.value
    pair = find_pair(node, path[-1]) if above is not None or len(path) == 1 else None
    if node is None or pair is None:
        raise CannotEdit("the entry was not found in the text")
    return node, pair


def _lines(text: str, pair: _Pair) -> tuple[int, int]:
    begin = line_start(text, pair.start)
    if text[begin : pair.start].strip(" -" if pair.key is pair.value else " "):
        raise CannotEdit("the entry does not begin a line")
    end = end_of(text, pair.value)
    return begin, line_end(text, end if pair.key is pair.value else max(end, _end(pair.key)))


def _end(key: yaml.Node) -> int:
    assert key.end_mark is not None
    return int(key.end_mark.index)


def _copied(source: str, path: Sequence[str | int]) -> list[str]:
    node, pair = _walked(source, path)
    if is_flow(node):
        raise CannotEdit("the entry is written on one line with others")
    begin, end = _lines(source, pair)
    indent = " " * column_of(node)
    return [line.removeprefix(indent).rstrip("\r") for line in source[begin:end].removesuffix("\n").split("\n")]


def _indented(lines: Sequence[str], column: int, newline: str) -> str:
    return "".join((" " * column + line if line else line) + newline for line in lines)


def _new_holder(text: str, root: yaml.Node | None, path: Sequence[str | int], lines: Sequence[str]) -> list[Splice]:
    if len(path) != 2 or not (root is None or isinstance(root, yaml.MappingNode) and not root.flow_style):
        raise CannotEdit(f"it does not have {path[0]}")
    newline = newline_of(text)
    before = newline if text.strip() and not text.endswith("\n") else ""
    (head,) = writing.entry(str(path[0]), None, 0, STEP, "client")
    entry = f"{head.removesuffix(' null')}{newline}{_indented(lines, STEP, newline)}"
    return [Splice(len(text), len(text), before + entry)]


def _into_empty(text: str, above: _Pair, lines: Sequence[str]) -> list[Splice]:
    newline = newline_of(text)
    colon, end = text.index(":", _end(above.key)) + 1, end_of(text, above.value)
    emptied = [Splice(colon, end)] if end > colon else []
    index = line_end(text, max(end, colon))
    entry = _indented(lines, column_of(above.key) + STEP, newline)
    return [*emptied, Splice(index, index, entry if text[:index].endswith("\n") else newline + entry)]

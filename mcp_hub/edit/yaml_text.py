"""Edits of YAML mappings and lists, in block or flow style."""

from collections.abc import Mapping, Sequence

import msgspec
import yaml

from mcp_hub.edit import spans, writing
from mcp_hub.edit.spans import Pair
from mcp_hub.edit.splices import CannotEdit, Splice, line_end, line_start, newline_of
from mcp_hub.edit.writing import STEP, Manner, nested
from mcp_hub.types import JsonObject


def put(text: str, above: Sequence[str], members: Mapping[str, object], manner: Manner) -> list[Splice]:
    """Sets one member of a mapping, or several new ones; makes missing mappings. Raises `CannotEdit`."""
    root = spans.composed(text)
    page = _Page(text, newline_of(text), _step(root), manner)
    if root is None or spans.is_empty(root):
        return [page.with_lines(len(text), page.block(nested(above, members), 0))]
    pair, node = None, root
    for depth, key in enumerate(above):
        child = spans.find(node, key)
        if child is None:
            return page.inserted(pair, node, {key: nested(above[depth + 1 :], members)})
        if not spans.pairs(child.value):
            return page.replaced(node, child, nested(above[depth + 1 :], members))
        pair, node = child, child.value
    present = [child for key in members if (child := spans.find(node, key)) is not None]
    if not present:
        return page.inserted(pair, node, members)
    if len(members) > 1:
        raise CannotEdit("an entry is there already")
    return page.replaced(node, present[0], *members.values())


def remove(text: str, path: Sequence[str | int], manner: Manner) -> list[Splice]:
    """Removes the entry at the path, which may end with an index. Raises `CannotEdit`."""
    above = spans.walk(spans.composed(text), path[:-1])
    node, pair = _walked(text, path)
    if spans.is_flow(node):
        return _Page(text).without_item(node, pair)
    begin, end = _lines(text, pair)
    is_last = len(spans.pairs(node)) == 1
    if is_last and above is None:
        raise CannotEdit("nothing would be left of the file")
    if is_last and above is not None and manner is Manner.CLIENT:
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
    root = spans.composed(text)
    above = spans.walk(root, path[:-1])
    if above is None:
        return _new_holder(text, root, path, lines)
    node = above.value
    if not spans.pairs(node):
        return _into_empty(text, above, lines)
    if spans.is_flow(node):
        raise CannotEdit("the servers are written on one line")
    entry = _indented(lines, spans.column(node), newline)
    sibling = None if after is None else spans.find(node, after)
    index = line_start(text, spans.pairs(node)[0].start) if sibling is None else _lines(text, sibling)[1]
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
            lines += [f"{key}:", *(f"  - {writing.flow(item, Manner.CLIENT)}" for item in member)]
        else:
            lines.append(f"{key}: {writing.flow(member, Manner.CLIENT)}")
    return "".join(line + newline for line in lines)


class _Page(msgspec.Struct, frozen=True):
    """A text, and the style of its new lines."""

    text: str
    newline: str = "\n"
    step: int = STEP
    manner: Manner = Manner.HUB

    def block(self, members: Mapping[str, object], column: int) -> list[str]:
        entries = (writing.entry(key, value, column, self.step, self.manner) for key, value in members.items())
        return [line for lines in entries for line in lines]

    def with_lines(self, index: int, lines: Sequence[str], end: int | None = None) -> Splice:
        stop = index if end is None else end
        before = self.newline if index and self.text[index - 1] != "\n" else ""
        is_open = self.manner is Manner.CLIENT and stop > 0 and self.text[stop - 1] != "\n"  # nor had the last line
        return Splice(index, stop, before + self.newline.join(lines) + ("" if is_open else self.newline))

    def inserted(self, above: Pair | None, node: yaml.Node, members: Mapping[str, object]) -> list[Splice]:
        """Inserts members behind the last entry; in a client's file, directly below the key `above`."""
        if not isinstance(node, yaml.MappingNode):
            raise CannotEdit("there is a value that is not a mapping where the servers belong")
        if node.flow_style:
            return self._with_items(node, members)
        indents = (spans.indent(self.text, pair.start) for pair in spans.pairs(node))
        blanks = next((blanks for blanks in indents if blanks is not None), None)
        if blanks is None:
            raise CannotEdit("its keys do not begin their lines")
        if above is not None and self.manner is Manner.CLIENT:
            return [self.with_lines(line_end(self.text, _end(above.key)), self.block(members, len(blanks)))]
        index = line_end(self.text, spans.end(self.text, node))
        for line in self.text[index:].splitlines(keepends=True):  # comments of the entry before
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) < len(blanks):
                break
            index += len(line)
        return [self.with_lines(index, self.block(members, len(blanks)))]

    def replaced(self, node: yaml.Node, pair: Pair, value: object) -> list[Splice]:
        """Sets the value of an entry and keeps its comment."""
        old, text = pair.value, self.text
        begin, end = spans.start(old), spans.end(text, old)
        has_lines = isinstance(value, dict) and bool(value) and not spans.is_flow(node)
        is_empty = spans.is_empty(old) or isinstance(old, yaml.MappingNode) and not old.value
        if spans.is_block(old) or has_lines and self.manner is Manner.CLIENT and not is_empty:
            lines = writing.entry(str(pair.key.value), value, self._column(pair), self.step, self.manner)
            return [self.with_lines(line_start(text, pair.start), lines, line_end(text, end))]
        if isinstance(value, dict) and has_lines and is_empty:
            below = self.with_lines(line_end(text, end), self.block(value, self._column(pair) + self.step))
            return [Splice(len(text[:begin].rstrip(" ")), end), below]
        gap = " " if spans.is_empty(old) and text[begin - 1 : begin] == ":" else ""
        return [Splice(begin, end, gap + writing.flow(value, self.manner))]

    def without_item(self, node: yaml.Node, pair: Pair) -> list[Splice]:
        listed, text, end = spans.pairs(node), self.text, spans.end(self.text, pair.value)
        number = next(index for index, item in enumerate(listed) if item.start == pair.start)
        is_last = number + 1 == len(listed)
        behind = spans.end(text, node) - 1 if is_last else listed[number + 1].start
        before = spans.end(text, listed[number - 1].value) if number else None
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
        text, close, line, listed = self.text, spans.end(self.text, node) - 1, ", ".join(items), spans.pairs(node)
        if not listed:
            return [Splice(spans.start(node) + len(text[spans.start(node) : close].rstrip(" ")), close, line)]
        last = spans.end(text, listed[-1].value)
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

    def _column(self, pair: Pair) -> int:
        blanks = spans.indent(self.text, pair.start)
        if blanks is None:
            raise CannotEdit("the entry does not begin a line")
        return len(blanks)

    def _comma(self, begin: int, end: int) -> int | None:
        index = spans.without_comments(self.text[begin:end]).find(",")
        return None if index < 0 else begin + index + 1


def _step(root: yaml.Node | None) -> int:
    for outer in spans.pairs(root):
        inner = spans.pairs(outer.value) if isinstance(outer.value, yaml.MappingNode) else []
        if inner and spans.is_block(outer.value):
            return max(1, spans.column(inner[0].key) - spans.column(outer.key))
    return STEP


def _walked(text: str, path: Sequence[str | int]) -> tuple[yaml.Node, Pair]:
    root = spans.composed(text)
    above = spans.walk(root, path[:-1])
    node = root if above is None else above.value
    pair = spans.find(node, path[-1]) if above is not None or len(path) == 1 else None
    if node is None or pair is None:
        raise CannotEdit("the entry was not found in the text")
    return node, pair


def _lines(text: str, pair: Pair) -> tuple[int, int]:
    begin = line_start(text, pair.start)
    if text[begin : pair.start].strip(" -" if pair.key is pair.value else " "):
        raise CannotEdit("the entry does not begin a line")
    end = spans.end(text, pair.value)
    return begin, line_end(text, end if pair.key is pair.value else max(end, _end(pair.key)))


def _end(key: yaml.Node) -> int:
    assert key.end_mark is not None
    return int(key.end_mark.index)


def _copied(source: str, path: Sequence[str | int]) -> list[str]:
    node, pair = _walked(source, path)
    if spans.is_flow(node):
        raise CannotEdit("the entry is written on one line with others")
    begin, end = _lines(source, pair)
    indent = " " * spans.column(node)
    return [line.removeprefix(indent).rstrip("\r") for line in source[begin:end].removesuffix("\n").split("\n")]


def _indented(lines: Sequence[str], column: int, newline: str) -> str:
    return "".join((" " * column + line if line else line) + newline for line in lines)


def _new_holder(text: str, root: yaml.Node | None, path: Sequence[str | int], lines: Sequence[str]) -> list[Splice]:
    if len(path) != 2 or not (root is None or isinstance(root, yaml.MappingNode) and not root.flow_style):
        raise CannotEdit(f"it does not have {path[0]}")
    newline = newline_of(text)
    before = newline if text.strip() and not text.endswith("\n") else ""
    (head,) = writing.entry(str(path[0]), None, 0, STEP, Manner.CLIENT)
    entry = f"{head.removesuffix(' null')}{newline}{_indented(lines, STEP, newline)}"
    return [Splice(len(text), len(text), before + entry)]


def _into_empty(text: str, above: Pair, lines: Sequence[str]) -> list[Splice]:
    newline = newline_of(text)
    colon, end = text.index(":", _end(above.key)) + 1, spans.end(text, above.value)
    emptied = [Splice(colon, end)] if end > colon else []
    index = line_end(text, max(end, colon))
    entry = _indented(lines, spans.column(above.key) + STEP, newline)
    return [*emptied, Splice(index, index, entry if text[:index].endswith("\n") else newline + entry)]

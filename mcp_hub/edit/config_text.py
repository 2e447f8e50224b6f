"""Puts one entry into the text of a configuration, or takes one out; every other byte stays. Pure.

The new text is read again: it has to say the same as before but for that entry. So an edit that comments, aliases or
merge keys make uncertain is refused, never made.
"""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import yaml

from mcp_hub.config.load.locate import is_json, read_document, without_json_comments
from mcp_hub.edit import spans, writing
from mcp_hub.edit.spans import Pair
from mcp_hub.errors import ConfigError, HubError
from mcp_hub.types import JsonObject

Keys = tuple[str, ...]
_STEP: Final = 2
_BOM: Final = "\ufeff"
_NOT_YAML: Final = re.compile(r"\\/")
"""An escape of JSON that YAML does not have; what it stands for does not matter here."""


class NotEditable(HubError):
    """A text that cannot be edited surely. `snippet` is what a person may put there; empty for a removal."""

    def __init__(self, reason: str, snippet: str) -> None:
        super().__init__(reason)
        self.snippet = snippet


class _Uncertain(Exception):
    """No sure edit; caught in this module."""


def put(text: str, name: str, path: Keys, value: object) -> str:
    """The text with the value at the path: in place of the one that is there, else behind its last neighbour.

    `name` is that of the file: its suffix says whether it is JSON. Mappings on the way are made. Raises `ConfigError`
    for a text that cannot be read, and `NotEditable`.
    """
    *above, last = path
    snippet = writing.flow(_nested(path, value), as_json=True) if is_json(text, name) else _block(path, value)

    def changed(data: object) -> object:
        return _with(data, above, {last: value}, snippet)

    return _edited(text, name, lambda doc: doc.put(path, value), changed, snippet)


def put_new(text: str, name: str, above: Keys, members: Mapping[str, object]) -> str:
    """The text with these members, which are not there yet, in the mapping at the path `above`: `put` of all at once.

    The text is read twice, however many they are. Raises as `put`.
    """
    value = dict(members)
    snippet = writing.flow(_nested(above, value), as_json=True) if is_json(text, name) else _block(above, value)
    return _edited(
        text, name, lambda doc: doc.put_new(above, value), lambda data: _with(data, above, value, snippet), snippet
    )


def remove(text: str, name: str, path: Keys) -> str:
    """The text without the entry at the path and its lines. Raises as `put`, and `KeyError` if it is not there."""
    *above, last = path

    def changed(data: object) -> object:
        tree: JsonObject = copy.deepcopy(data) if isinstance(data, dict) else {}
        at = tree
        for key in above:
            inner = at.get(key)
            if not isinstance(inner, dict):
                raise KeyError(key)
            at = inner
        del at[last]
        return tree

    return _edited(text, name, lambda doc: doc.remove(path), changed, "")


def _with(data: object, above: Sequence[str], members: Mapping[str, object], snippet: str) -> JsonObject:
    """A copy of the data with these members in the mapping at the path."""
    tree: JsonObject = copy.deepcopy(data) if isinstance(data, dict) else {}
    at = tree
    for key in above:
        if at.get(key) is not None and not isinstance(at[key], dict):
            raise NotEditable(f"{key} is not a mapping", snippet)
        at[key] = at.get(key) or {}
        at = at[key]
    at.update(members)
    return tree


def _edited(
    text: str, name: str, edit: Callable[["_Text"], str], changed: Callable[[object], object], snippet: str
) -> str:
    before = read_document(text, name)
    if before.findings:
        raise NotEditable("a key occurs twice", snippet)
    expected = changed(before.data)
    mark = _BOM if text.startswith(_BOM) else ""
    try:
        done = mark + edit(_Text.of(text.removeprefix(_BOM), is_json(text, name)))
        after = read_document(done, name)
    except (_Uncertain, ConfigError, yaml.YAMLError):
        raise NotEditable("its form does not allow a sure edit", snippet) from None
    if not is_json(text, name):
        expected = _as_read(expected)
    if after.findings or repr(_without_empty(after.data)) != repr(_without_empty(expected)):
        raise NotEditable("an edit would change other entries, too", snippet)
    return done


def _as_read(data: object) -> object:
    """The data with the values that YAML reads for its words."""
    if isinstance(data, dict):
        return {key: _as_read(value) for key, value in data.items()}
    if isinstance(data, list):
        return [*map(_as_read, data)]
    return yaml.safe_load(data) if isinstance(data, writing.Word) else data


def _without_empty(data: object) -> object:
    """The data where an empty mapping is null: a mapping without entries is written as either."""
    if isinstance(data, dict):
        return {key: _without_empty(value) for key, value in data.items()} or None
    return [_without_empty(item) for item in data] if isinstance(data, list) else data


def _nested(path: Keys, value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


def _block(path: Keys, value: object) -> str:
    return "\n".join(writing.entry(path[0], _nested(path[1:], value), 0, _STEP))


class _Text(msgspec.Struct, frozen=True):
    """A text without byte order mark, and what its lines are like."""

    text: str
    root: yaml.Node | None
    is_json: bool
    line_break: str
    step: int

    @classmethod
    def of(cls, text: str, is_json: bool) -> "_Text":
        root = spans.composed(_NOT_YAML.sub("__", without_json_comments(text)) if is_json else text)
        first = text.find("\n")
        line_break = "\r\n" if first > 0 and text[first - 1] == "\r" else "\n"
        return cls(text, root, is_json, line_break, _step(root))

    def put(self, path: Keys, value: object) -> str:
        node = self.root
        if node is None or spans.is_empty(node):
            return self._with_lines(len(self.text), writing.entry(path[0], _nested(path[1:], value), 0, self.step))
        for depth, key in enumerate(path):
            inner = _nested(path[depth + 1 :], value)
            found = spans.pairs(node)
            if found is None:
                raise _Uncertain
            pair = spans.find(node, key)
            if pair is None:
                return self._inserted(node, found, {key: inner})
            if depth == len(path) - 1 or not spans.pairs(pair.value):
                return self._replaced(node, pair, inner)
            node = pair.value
        raise AssertionError("a path has a key")

    def put_new(self, above: Keys, members: Mapping[str, object]) -> str:
        holder = spans.walk(self.root, above)
        found = None if holder is None else spans.pairs(holder.value)
        if holder is None or not found:
            return self.put(above, members)
        if {pair.key.value for pair in found} & members.keys():
            raise _Uncertain
        return self._inserted(holder.value, found, members)

    def remove(self, path: Keys) -> str:
        node = self.root
        if len(path) > 1:
            above = spans.walk(node, path[:-1])
            node = above.value if above else None
        pair = spans.find(node, path[-1])
        if node is None or pair is None:
            raise _Uncertain  # it came by a merge key or an alias
        if spans.is_flow(node):
            return self._without_item(node, pair)
        if spans.indent(self.text, pair.start) is None:
            raise _Uncertain
        begin = spans.line_start(self.text, pair.start)
        return self.text[:begin] + self.text[spans.line_end(self.text, spans.end(self.text, pair.value)) :]

    def _inserted(self, node: yaml.Node, found: list[Pair], members: Mapping[str, object]) -> str:
        if spans.is_flow(node):
            items = [f"{writing.flow(key, as_json=self.is_json)}: {self._flow(own)}" for key, own in members.items()]
            return self._with_items(node, found, items)
        own_lines = (spans.indent(self.text, pair.start) for pair in found)
        blanks = next((blanks for blanks in own_lines if blanks is not None), None)
        if blanks is None:  # every key is an explicit one: "? key"
            raise _Uncertain
        at = spans.line_end(self.text, spans.end(self.text, node))
        for line in self.text[at:].splitlines(keepends=True):  # comments of the entry before
            if not line.lstrip(" ").startswith("#") or len(line) - len(line.lstrip(" ")) < len(blanks):
                break
            at += len(line)
        entries = (writing.entry(key, own, len(blanks), self.step) for key, own in members.items())
        return self._with_lines(at, [line for lines in entries for line in lines])

    def _replaced(self, node: yaml.Node, pair: Pair, value: object) -> str:
        old, text = pair.value, self.text
        begin, end = spans.start(old), spans.end(text, old)
        has_lines = isinstance(value, dict) and bool(value) and not spans.is_flow(node)
        if spans.is_block(old):
            blanks = spans.indent(text, pair.start)
            if blanks is None:
                raise _Uncertain
            lines = writing.entry(str(pair.key.value), value, len(blanks), self.step)
            stop = spans.line_end(text, end)
            return self._with_lines(spans.line_start(text, pair.start), lines, stop)
        if has_lines and (spans.is_empty(old) or spans.pairs(old) == []):
            assert isinstance(value, dict)
            blanks = spans.indent(text, pair.start)
            if blanks is None:
                raise _Uncertain
            stop = spans.line_end(text, end)
            rest = text[:begin].rstrip(" ") + text[end:stop]
            column = len(blanks) + self.step
            lines = [line for key, own in value.items() for line in writing.entry(key, own, column, self.step)]
            return msgspec.structs.replace(self, text=rest + text[stop:])._with_lines(len(rest), lines)
        gap = " " if spans.is_empty(old) and text[begin - 1 : begin] == ":" else ""
        return text[:begin] + gap + self._flow(value) + text[end:]

    def _flow(self, value: object) -> str:
        return writing.flow(value, as_json=self.is_json)

    def _with_lines(self, at: int, lines: list[str], stop: int | None = None) -> str:
        before, after = self.text[:at], self.text[at if stop is None else stop :]
        if before and not before.endswith("\n"):
            before += self.line_break
        return before + "".join(line + self.line_break for line in lines) + after

    def _with_items(self, node: yaml.Node, found: list[Pair], items: Sequence[str]) -> str:
        """The text with more pairs in brackets, each on a line of its own if their neighbour has one."""
        text, close, line = self.text, spans.end(self.text, node) - 1, ", ".join(items)
        if not found:
            return text[: spans.start(node)] + text[spans.start(node) : close].rstrip(" ") + line + text[close:]
        last = spans.end(text, found[-1].value)
        comma = self._comma(last, close)
        behind = comma or last
        blanks = text[spans.line_start(text, found[-1].start) : found[-1].start]
        if blanks.strip():  # not on a line of its own
            return text[:behind] + ("" if comma else ",") + f" {line}" + ("," if comma else "") + text[behind:]
        line_end = text.find("\n", behind, close)
        if line_end < 0:
            line_end = behind
        elif text[line_end - 1] == "\r":
            line_end -= 1
        first = text[:last] + ("" if comma else ",") + text[last:line_end]
        lines = f",{self.line_break}{blanks}".join(items)
        return first + self.line_break + blanks + lines + ("," if comma else "") + text[line_end:]

    def _without_item(self, node: yaml.Node, pair: Pair) -> str:
        """The text without a pair in brackets and the comma between it and a neighbour."""
        found = spans.pairs(node) or []
        place = next(index for index, one in enumerate(found) if one.start == pair.start)
        text, end = self.text, spans.end(self.text, pair.value)
        behind = found[place + 1].start if place + 1 < len(found) else spans.end(text, node) - 1
        before = spans.end(text, found[place - 1].value) if place else None
        comma = self._comma(end, behind)
        line, line_end = spans.line_start(text, pair.start), spans.line_end(text, comma or end)
        if not text[line : pair.start].strip() and line_end <= behind:
            kept = text[:line]
            if comma is None and before is not None and (other := self._comma(before, pair.start)) is not None:
                kept = text[: other - 1] + text[other:line]
            return kept + text[line_end:]
        if place + 1 < len(found):
            begin, stop, between = pair.start, behind, text[end:behind]
        elif before is not None:
            begin, stop, between = before, end, text[before : pair.start]
        else:
            begin, stop, between = pair.start, comma or end, ""
        if between.replace(",", "", 1).strip():  # a comment, whose entry nobody knows
            raise _Uncertain
        return text[:begin] + text[stop:]

    def _comma(self, begin: int, end: int) -> int | None:
        """The index behind the comma there; None if there is none."""
        found = self._gap(begin, end).find(",")
        return None if found < 0 else begin + found + 1

    def _gap(self, begin: int, end: int) -> str:
        gap = self.text[begin:end]
        return without_json_comments(gap) if self.is_json else spans.without_comments(gap)


def _step(root: yaml.Node | None) -> int:
    """The blanks by which the file indents."""
    for outer in spans.pairs(root) or ():
        inner = spans.pairs(outer.value)
        if inner and spans.is_block(outer.value):
            return max(1, _column(inner[0]) - _column(outer))
    return _STEP


def _column(pair: Pair) -> int:
    mark = pair.key.start_mark
    assert mark is not None
    return int(mark.column)

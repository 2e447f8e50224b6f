"""Places of keys and values in YAML, by the marks of PyYAML's parser. Pure."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
import yaml

from mcp_hub.edit.splices import KEPT_TEXTS, CannotEdit, line_start

_ALIAS: Final = "!alias"
_COMMENT: Final = re.compile(r"#[^\r\n]*")


class Pair(msgspec.Struct, frozen=True):
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


def pairs(node: yaml.Node | None) -> list[Pair]:
    """The entries of a mapping or list."""
    if isinstance(node, yaml.SequenceNode):
        return [Pair(item, item) for item in node.value]
    return [Pair(*pair) for pair in node.value] if isinstance(node, yaml.MappingNode) else []


def find(node: yaml.Node | None, key: str | int) -> Pair | None:
    """The entry with this key or index, or None. Raises `CannotEdit` for a duplicate key."""
    listed = pairs(node)
    if isinstance(node, yaml.SequenceNode):
        return listed[key] if isinstance(key, int) and key < len(listed) else None
    named = [pair for pair in listed if isinstance(pair.key, yaml.ScalarNode) and pair.key.value == key]
    if len(named) > 1:
        raise CannotEdit("a key occurs twice")
    return named[0] if named else None


def walk(root: yaml.Node | None, path: Sequence[str | int]) -> Pair | None:
    """The entry at the path, or None."""
    pair, node = None, root
    for key in path:
        pair = find(node, key)
        if pair is None:
            return None
        node = pair.value
    return pair


def start(node: yaml.Node) -> int:
    return _index(node.start_mark)


def column(node: yaml.Node) -> int:
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


def is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and start(node) == _index(node.end_mark)


def end(text: str, node: yaml.Node) -> int:
    """The index behind its last character, before comments and blank lines."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return end(text, last[1] if isinstance(last, tuple) else last)
    index = _index(node.end_mark)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        header = _COMMENT.sub("", text[start(node) : text.find("\n", start(node))])
        if "+" not in header:  # otherwise blank lines are part of the value
            index = len(text[:index].rstrip(" \r\n"))
    return index


def indent(text: str, index: int) -> str | None:
    """The indentation before `index`, if nothing else is there."""
    before = text[line_start(text, index) : index]
    return before if not before.strip(" ") else None


def without_comments(gap: str) -> str:
    """The text with blanks in place of comments."""
    return _COMMENT.sub(lambda comment: " " * len(comment[0]), gap)


def _index(mark: yaml.Mark | None) -> int:
    assert mark is not None
    return int(mark.index)

"""The places of keys and values in the text of a configuration, by the marks of PyYAML's parser. Pure.

JSON is read as YAML, once its comments are blanked: all marks are those of the text as it is.
"""

import re
from typing import Final

import msgspec
import yaml

from mcp_hub.config.findings import DataPath

_ALIAS: Final = "!alias"
_COMMENT: Final = re.compile(r"#[^\r\n]*")


class Pair(msgspec.Struct, frozen=True):
    """A key and its value."""

    key: yaml.Node
    value: yaml.Node

    @property
    def start(self) -> int:
        return _index(self.key.start_mark)


class _Composer(yaml.SafeLoader):
    """Composes nodes where an alias is a scalar: only its place matters."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if not self.check_event(yaml.AliasEvent):
            return super().compose_node(parent, index)
        event = self.get_event()  # type: ignore[no-untyped-call]  # types-PyYAML lacks it
        return yaml.ScalarNode(_ALIAS, event.anchor, event.start_mark, event.end_mark)


def composed(text: str) -> yaml.Node | None:
    """The root; None for a text without a value. Raises `yaml.YAMLError`."""
    return _Composer(text).get_single_node()


def pairs(node: yaml.Node | None) -> list[Pair] | None:
    """Those of a mapping; None for anything else."""
    return [Pair(*pair) for pair in node.value] if isinstance(node, yaml.MappingNode) else None


def find(node: yaml.Node | None, key: str | int) -> Pair | None:
    """The pair of that key."""
    found = (pair for pair in pairs(node) or () if isinstance(pair.key, yaml.ScalarNode) and pair.key.value == key)
    return next(found, None)


def walk(root: yaml.Node | None, path: DataPath) -> Pair | None:
    """The pair at the end of the path."""
    pair, node = None, root
    for key in path:
        pair = find(node, key)
        if pair is None:
            return None
        node = pair.value
    return pair


def start(node: yaml.Node) -> int:
    """The index of its first character."""
    return _index(node.start_mark)


def is_flow(node: yaml.Node) -> bool:
    """Whether it is a mapping or a list in brackets."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def is_block(node: yaml.Node) -> bool:
    """Whether it has lines of its own: a mapping or a list without brackets, or a text behind `|` or `>`."""
    if isinstance(node, yaml.CollectionNode):
        return not node.flow_style
    return isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")


def is_empty(node: yaml.Node) -> bool:
    """Whether there is nothing in the text: `key:`."""
    return isinstance(node, yaml.ScalarNode) and start(node) == _index(node.end_mark)


def end(text: str, node: yaml.Node) -> int:
    """The index behind its last character; comments and blank lines behind it are not part of it."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return end(text, last[1] if isinstance(last, tuple) else last)
    found = _index(node.end_mark)
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        header = _COMMENT.sub("", text[start(node) : text.find("\n", start(node))])
        if "+" not in header:  # otherwise blank lines are part of the value
            found = len(text[:found].rstrip(" \r\n"))
    return found


def line_start(text: str, index: int) -> int:
    """The index of the first character of its line."""
    return text.rfind("\n", 0, index) + 1


def line_end(text: str, index: int) -> int:
    """The index behind its line and the line's end; of an index that begins a line, that is the line before."""
    if index > 0 and text[index - 1] == "\n":
        return index
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def indent(text: str, index: int) -> str | None:
    """The blanks before it on its line; None if anything else is there."""
    before = text[line_start(text, index) : index]
    return before if not before.strip(" ") else None


def without_comments(gap: str) -> str:
    """The text between two values of a list or mapping, with its comments as blanks."""
    return _COMMENT.sub(lambda found: " " * len(found[0]), gap)


def _index(mark: yaml.Mark | None) -> int:
    assert mark is not None
    return int(mark.index)

"""Edits of JSON with comments and trailing commas (JSONC, not JSON5)."""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from mcp_hub.edit.writing import KEPT_TEXTS, CannotEdit, Manner, Splice, indent_of, line_start, nested, newline_of
from mcp_hub.masking import hide_head
from mcp_hub.types import JsonObject

_BLANK: Final = re.compile(r"(?:[ \t\r\n]|//[^\n]*|/\*.*?\*/)*+", re.DOTALL)
_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_TAIL: Final = re.compile(r"(?:[ \t]|/\*[^\n]*?\*/)*+(?://[^\r\n]*+)?(?=\r?\n)")
_STRING: Final = re.compile(r'"(?:\\.|[^"\\\n])*+"')
_SCALAR: Final = re.compile(r"-?[0-9][0-9.eE+-]*|true|false|null")
_DEEPEST: Final = 200
_DECODER: Final = json.JSONDecoder()


class _Span(msgspec.Struct):
    """A value; an object on the edited path has `members`."""

    start: int
    end: int
    members: "dict[str, _Member] | None" = None


class _Member(msgspec.Struct):
    """A name and its value; `comma` is the index of the comma behind it."""

    start: int
    value: _Span
    comma: int | None = None


def put(text: str, above: Sequence[str], members: Mapping[str, object], manner: Manner) -> list[Splice]:
    """Sets one member of an object, or several new ones; makes missing objects. Raises `CannotEdit`."""
    span = _scanned(text, (*above, ""))
    is_hubs = manner == "hub"
    if span is None:
        return [_new_document(text, nested(above, members), is_hubs)]
    keys = list(above)
    while keys and (child := _members(span).get(keys[0])) and text[child.value.start : child.value.end] != "null":
        span = child.value
        keys.pop(0)
    fresh = nested(keys, members)
    flat = _is_flat(text, span, is_hubs)
    is_short = flat or is_hubs
    present = [member for name in fresh if (member := _members(span).get(name)) is not None]
    if not present:
        return _inserted(text, span, flat, [_writer(text, name, fresh[name], is_short) for name in fresh])
    if len(fresh) > 1:
        raise CannotEdit("an entry is there already")
    old, (value,) = present[0], fresh.values()
    return [Splice(old.value.start, old.value.end, _rendered(value, text, _indent_at(text, old.start), is_short))]


def _writer(text: str, name: str, value: object, is_on_one_line: bool) -> Callable[[str], str]:
    head = json.dumps(name, ensure_ascii=False)
    return lambda indent: f"{head}: {_rendered(value, text, indent, is_on_one_line)}"


def remove(text: str, path: Sequence[str], also_removed: Collection[str] = ()) -> list[Splice]:
    """Removes the member. Raises `CannotEdit`.

    `also_removed`: members that other splices remove.
    """
    at = _above(text, path)
    names = [name for name in _members(at) if name == path[-1] or name not in also_removed]
    members = [_members(at)[name] for name in names]
    number = names.index(path[-1])
    gone = members[number]
    if len(members) == 1 and _is_alone(text, at, gone):
        return [Splice(at.start, at.end, "{}")]
    start, end = gone.start, gone.value.end
    splices: list[Splice] = []
    if gone.comma == end:
        end += 1
    elif gone.comma is not None:
        splices.append(Splice(gone.comma, gone.comma + 1))
    elif number and (comma := members[number - 1].comma) is not None:
        splices.append(Splice(comma, comma + 1))
    if number + 1 < len(members):
        return [*splices, _with_line(text, start, end)]
    before = members[number - 1] if number else None
    behind = at.start + 1 if before is None else before.value.end if before.comma is None else before.comma + 1
    return [*splices, Splice(_end_of_blanks(text, behind, start, end), end)]


def copy(text: str, path: Sequence[str], source: str, after: str | None) -> list[Splice]:
    """Inserts the member as `source` writes it, behind `after`, or first. Raises `CannotEdit`."""
    member, at = _member(source, path), _above(text, path)
    written = source[member.start : member.value.end].replace("\r\n", "\n")
    indent = _indent_at(source, member.start)

    def at_indent(inner: str) -> str:
        first, *more = written.split("\n")
        moved = [inner + line.removeprefix(indent) if line.strip() else line for line in more]
        return newline_of(text).join([first, *moved])

    members = _members(at)
    if not members:
        return _inserted(text, at, _is_flat(text, at), [at_indent])
    flat, head = _is_flat(text, at), next(iter(members.values()))
    sibling = members[after] if after is not None else None
    inner = _inner_indent(text, at, sibling or head)
    entry = at_indent(inner)
    old = _above(source, path)
    blank = " " if ", " in source[old.start : old.end] else ""
    before = blank if flat else newline_of(text) + inner
    if sibling is None:
        return [Splice(at.start + 1, at.start + 1, f"{entry},{blank}")] if flat else [
            Splice(index, index, f"{before}{entry},") for index in [_end_of_line(text, at.start + 1)]
        ]  # fmt: skip
    if sibling.comma is not None:
        index = _end_of_line(text, sibling.comma + 1)
        return [Splice(index, index, f"{before}{entry},")]
    index = _end_of_line(text, sibling.value.end)
    if index == sibling.value.end:
        return [Splice(index, index, f",{before}{entry}")]
    return [Splice(sibling.value.end, sibling.value.end, ","), Splice(index, index, before + entry)]


def line_of(text: str, path: Sequence[str]) -> int:
    return _line(text, _member(text, path).start)


def _above(text: str, path: Sequence[str]) -> _Span:
    at = _scanned(text, (*path[:-1], ""))  # the members of the object are wanted, whatever the last name is
    for key in path[:-1]:
        if at is None or key not in _members(at):
            raise CannotEdit(f"it does not have {key}")
        at = _members(at)[key].value
    if at is None:
        raise CannotEdit("it is empty")
    return at


def _member(text: str, path: Sequence[str]) -> _Member:
    members = _members(_above(text, path))
    if path[-1] not in members:
        raise CannotEdit(f"it does not have {path[-1]}")
    return members[path[-1]]


def _end_of_line(text: str, index: int) -> int:
    tail = _TAIL.match(text, index)
    return tail.end() if tail is not None else index


@lru_cache(maxsize=KEPT_TEXTS)
def _scanned(text: str, path: tuple[str, ...]) -> _Span | None:
    """The root, with members for objects on the path; None for an empty text."""
    start = _skipped(text, 0)
    if start == len(text):
        return None
    root = _value(text, start, 0, path)
    if _skipped(text, root.end) != len(text):
        raise _not_understood(text, root.end)
    return root


def _value(text: str, index: int, depth: int, path: Sequence[str]) -> _Span:
    if depth > _DEEPEST:
        raise CannotEdit(f"it is nested deeper than {_DEEPEST} levels")
    if not path and text.startswith(("{", "["), index):
        try:  # a file of a client may have megabytes beside its servers
            return _Span(index, _DECODER.raw_decode(text, index)[1])
        except (ValueError, RecursionError):
            pass  # it has comments, or is not JSON
    if text.startswith("{", index):
        return _object(text, index, depth, path)
    if text.startswith("[", index):
        return _array(text, index, depth)
    token = _STRING.match(text, index) or _SCALAR.match(text, index)
    if token is None:
        raise _not_understood(text, index)
    return _Span(index, token.end())


def _object(text: str, start: int, depth: int, path: Sequence[str]) -> _Span:
    members: dict[str, _Member] = {}
    index = _skipped(text, start + 1)
    while not text.startswith("}", index):
        name = _STRING.match(text, index)
        colon = _skipped(text, name.end()) if name else index
        if name is None or not text.startswith(":", colon):
            raise _not_understood(text, index)
        key = json.loads(name[0], strict=False)
        inner = path[1:] if path and key == path[0] else ()
        member = _Member(index, _value(text, _skipped(text, colon + 1), depth + 1, inner))
        if key in members:
            raise CannotEdit(
                f"line {_line(text, index)} has a name for the second time: {hide_head(json.dumps(key), 80)}"
            )
        members[key] = member
        index = _skipped(text, member.value.end)
        if text.startswith(",", index):
            member.comma = index
            index = _skipped(text, index + 1)
        elif not text.startswith("}", index):
            raise _not_understood(text, index)
    return _Span(start, index + 1, members)


def _array(text: str, start: int, depth: int) -> _Span:
    index = _skipped(text, start + 1)
    while not text.startswith("]", index):
        index = _skipped(text, _value(text, index, depth + 1, ()).end)
        if text.startswith(",", index):
            index = _skipped(text, index + 1)
        elif not text.startswith("]", index):
            raise _not_understood(text, index)
    return _Span(start, index + 1)


def _skipped(text: str, index: int) -> int:
    blank = _BLANK.match(text, index)
    return blank.end() if blank else index


def _not_understood(text: str, index: int) -> CannotEdit:
    return CannotEdit(f"line {_line(text, index)} is not JSON")


def _line(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


def _members(span: _Span) -> dict[str, _Member]:
    if span.members is None:
        raise CannotEdit("there is a value that is not an object where the servers belong")
    return span.members


def _new_document(text: str, value: JsonObject, is_on_one_line: bool) -> Splice:
    newline = newline_of(text)
    before = newline if text.strip() and not text.endswith("\n") else ""
    return Splice(len(text), len(text), f"{before}{_rendered(value, text, '', is_on_one_line)}{newline}")


def _inner_indent(text: str, at: _Span, member: _Member | None) -> str:
    if member is not None and not text[line_start(text, member.start) : member.start].strip():
        return _indent_at(text, member.start)
    return _indent_at(text, at.start) + indent_of(text)


def _inserted(text: str, at: _Span, flat: bool, entries: Sequence[Callable[[str], str]]) -> list[Splice]:
    members = list(_members(at).values())
    outer = _indent_at(text, at.start)
    inner = _inner_indent(text, at, members[-1] if members else None)
    newline = newline_of(text)
    before = " " if flat else newline + inner
    written = f",{before}".join(entry(inner) for entry in entries)
    last = members[-1] if members else None
    end_of_last = at.start + 1 if last is None else last.value.end if last.comma is None else last.comma + 1
    index = end_of_last + len(text[end_of_last : at.end - 1].rstrip())  # behind comments
    if last is None:
        end = "" if flat or "\n" in text[index : at.end] else newline + outer
        return [Splice(index, index, (written if flat else before + written) + end)]
    if last.comma is not None:
        return [Splice(index, index, f"{before}{written},")]
    if index == end_of_last:
        return [Splice(index, index, f",{before}{written}")]
    return [Splice(end_of_last, end_of_last, ","), Splice(index, index, before + written)]


def _is_flat(text: str, at: _Span, is_hubs: bool = False) -> bool:
    part = text[at.start : at.end] if at.members or is_hubs else text.strip()
    return "\n" not in part and (is_hubs or len(part) > len("{}"))


def _indent_at(text: str, index: int) -> str:
    start = line_start(text, index)
    return text[start : start + len(text[start:index]) - len(text[start:index].lstrip(" \t"))]


def _rendered(value: object, text: str, indent: str, is_on_one_line: bool) -> str:
    if is_on_one_line or not isinstance(value, dict):
        return json.dumps(value, ensure_ascii=False)
    return (newline_of(text) + indent).join(rendered(value, indent_of(text)))


def rendered(value: JsonObject, step: str) -> list[str]:
    """The lines of an object, one for each member."""
    lines = []
    for name, member in value.items():
        head = f"{step}{json.dumps(name, ensure_ascii=False)}: "
        if isinstance(member, dict) and member:
            first, *more = rendered(member, step)
            lines += [head + first, *(step + line for line in more)]
        else:
            lines.append(head + json.dumps(member, ensure_ascii=False))
        lines[-1] += ","
    return ["{", *lines[:-1], lines[-1][:-1], "}"] if lines else ["{}"]


def _is_alone(text: str, at: _Span, member: _Member) -> bool:
    return not (text[at.start + 1 : member.start] + text[member.value.end : at.end - 1]).strip(" \t\r\n,")


def _with_line(text: str, start: int, end: int) -> Splice:
    before, after = text[line_start(text, start) : start], text[end:].split("\n", 1)[0]
    if not before.strip() and not after.strip() and line_start(text, start):
        first = line_start(text, start) - 1
        return Splice(first - text[first - 1 : first].count("\r"), end + len(after.rstrip("\r")))
    return Splice(start, end + len(after) - len(after.lstrip(" \t")))


def _end_of_blanks(text: str, behind: int, start: int, end: int) -> int:
    index = behind + len(text[behind:start].rstrip())
    last = (_COMMENT.findall(text, behind, start) or [""])[-1]
    is_open = last.startswith("//") and "\n" not in text[end : len(text) - len(text[end:].lstrip())]
    return text.index("\n", index) + 1 if is_open else index

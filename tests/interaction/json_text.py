"""JSON as text: what changed between two spellings of a value, down to the byte, in a few words."""

import json
import re

SPACE = "white space between tokens"
_SHOWN = 40
"""Characters of a value in a change."""
_WHITE = re.compile(r"[ \t\n\r]*")
_SURROGATES = re.compile(r"(\\u[dD][89abAB]..\\u[dD][c-fC-F]..)|\\u[dD][89a-fA-F]..")
_scan = json.JSONDecoder().raw_decode


def members(text: str) -> list[tuple[str, str]]:
    """The members of an object in order, doubled ones included, each value as it is spelled."""
    found = []
    at = _skip(text, 1)
    while text[at] != "}":
        key, at = _scan(text, at)
        start = _skip(text, _skip(text, at) + 1)
        _, at = _scan(text, start)
        found.append((key, text[start:at]))
        at = _skip(text, at)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def items(text: str) -> list[str]:
    """The items of an array, each as it is spelled."""
    found = []
    at = _skip(text, 1)
    while text[at] != "]":
        _, end = _scan(text, at)
        found.append(text[at:end])
        at = _skip(text, end)
        at = _skip(text, at + 1) if text[at] == "," else at
    return found


def member(text: str, *path: str) -> str:
    """The value at this path of objects, as it is spelled; `""` if there is none."""
    for name in path:
        text = dict(members(text)).get(name, "") if text.startswith("{") else ""
    return text


def changes(sent: str, got: str, path: str = "") -> list[str]:
    """What is different, outermost difference first; nothing if every byte is the same."""
    if sent == got:
        return []
    if _mended(sent) == got:
        return ["lone surrogates → U+FFFD"]
    if sent[:1] == got[:1] == "{":
        return _of_objects(sent, got, path)
    if sent[:1] == got[:1] == "[" and len(items(sent)) == len(items(got)):
        pairs = enumerate(zip(items(sent), items(got), strict=True))
        return [change for i, (a, b) in pairs for change in changes(a, b, f"{path}[{i}]")] or [SPACE]
    return [f"`{path or 'value'}` {_short(sent)} → {_short(got)}"]


def _of_objects(sent: str, got: str, path: str) -> list[str]:
    before, after = members(sent), members(got)
    old, new = dict(before), dict(after)
    names = {name: f"{path}.{name}" if path else name for name in [*old, *new]}
    found = [f"`{names[name]}` dropped" for name in old if name not in new]
    found += [f"`{names[name]}` added" for name in new if name not in old]
    found += [change for name in old if name in new for change in changes(old[name], new[name], names[name])]
    if len(before) - len(old) != len(after) - len(new):
        found.append("of members of one name the last is kept")
    if [name for name in old if name in new] != [name for name in new if name in old]:
        found.append("members in another order")
    return found or [SPACE]


def _mended(text: str) -> str:
    return _SURROGATES.sub(lambda found: found[1] or r"\ufffd", text)


def _short(value: str) -> str:
    shown = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
    return f"`{shown}`"


def _skip(text: str, at: int) -> int:
    white = _WHITE.match(text, at)
    return at if white is None else white.end()

"""Regular expressions of JSON Schema as clients in JavaScript compile them: those of ECMAScript with the flag `u`.

Source: ECMA-262, 2024, §22.2.1 "Patterns" without annex B. Groups with modifiers are later and refused.
"""

import re
from typing import Final

MOST: Final = 10_000
"""Characters of an expression that is looked at; a longer one is refused."""
_ESCAPE = re.compile(
    r"\\(?:[dDwWsSfnrtv^$\\.*+?()\[\]{}|/]|c[A-Za-z]|0(?!\d)|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}"
    r"|u\{0*(?:10|[0-9A-Fa-f])?[0-9A-Fa-f]{1,4}\}|[pP]\{(?P<property>[A-Za-z_]+(?:=[A-Za-z_]+)?)\})"
)
_CODE = re.compile(r"\\[xu]((?![dD][89a-fA-F])[0-9A-Fa-f]{2,4})")
"""The escape of one character, but for halves of a pair."""
_QUANTIFIER = re.compile(r"(?:[*+?]|\{(\d+)(?:(,)(\d*))?\})\??")
_OPEN = re.compile(r"\((?:\?(?:[:=!]|<[=!]|<([A-Za-z_$][\w$]*)>))?", re.ASCII)
_REFERENCE = re.compile(r"\\(?:([1-9]\d*)|k<([A-Za-z_$][\w$]*)>)", re.ASCII)
_CATEGORIES: Final = (
    "L Lu Ll Lt LC Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn"
)
_LONG: Final = (
    "Letter Uppercase_Letter Lowercase_Letter Mark Number Decimal_Number Punctuation Symbol Separator Other "
    "ASCII Alphabetic Any Assigned Emoji ID_Start ID_Continue Lowercase Uppercase White_Space XID_Start XID_Continue"
)
_PROPERTIES: Final = frozenset(f"{_CATEGORIES} {_LONG}".split())
_KEYED = re.compile(r"(?:Script|sc|Script_Extensions|scx)=[A-Z][a-z]+(?:_[A-Z][a-z]+)*")
_CLASS_SETS: Final = frozenset("dDwWsSpP")
_ASSERTIONS: Final = frozenset({"(?=", "(?!", "(?<=", "(?<!"})


class _Refused(Exception):
    """The message is the reason."""


def problem_of_pattern(text: str) -> str | None:
    """Why clients could not compile the expression; None if they can."""
    if len(text) > MOST:
        return f"longer than {MOST} characters"
    try:
        _Reader(text).read()
    except _Refused as problem:
        return str(problem)
    return None


class _Reader:
    """One pass over an expression; groups are counted, and references compared with them at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._open: list[str] = []  # groups that are not closed
        self._names: list[str] = []
        self._groups = 0
        self._references: list[tuple[str | None, str | None]] = []

    def read(self) -> None:
        """Raises: _Refused."""
        while self._at < len(self._text):
            if self._term():
                self._quantifier()
        if self._open:
            raise _Refused("a group is not closed")
        if len(set(self._names)) < len(self._names):
            raise _Refused("two groups have one name")
        for number, name in self._references:
            if (int(number) > self._groups) if number else (name not in self._names):
                raise _Refused(f"there is no group {number or name}")

    def _term(self) -> bool:
        """Reads one term or bracket; whether a quantifier may follow."""
        letter = self._text[self._at]
        match letter:
            case "(":
                self._group()
                return False
            case ")":
                if not self._open:
                    raise _Refused("a group is closed that is not open")
                self._at += 1
                return self._open.pop() not in _ASSERTIONS
            case "[":
                self._class()
                return True
            case "\\":
                return self._escape()
            case "*" | "+" | "?" | "{":
                raise _Refused(f"nothing that {letter} repeats")
            case "]" | "}":
                raise _Refused(f"{letter} without its beginning")
        self._at += 1
        return letter not in "^$|"

    def _quantifier(self) -> None:
        if self._text[self._at : self._at + 1] not in ("*", "+", "?", "{"):
            return
        read = _QUANTIFIER.match(self._text, self._at)
        if read is None:
            raise _Refused("a { that begins no quantifier")
        if read[3] and int(read[3]) < int(read[1]):
            raise _Refused(f"{read[0]} ends before it begins")
        self._at = read.end()

    def _group(self) -> None:
        read = _OPEN.match(self._text, self._at)
        if read is None or self._text.startswith("?", read.end()):
            raise _Refused(f"a group that JavaScript does not have: {self._text[self._at : self._at + 5]}")
        if read[1]:
            self._names.append(read[1])
        self._groups += read[0] == "(" or bool(read[1])
        self._open.append(read[0])
        self._at = read.end()

    def _escape(self) -> bool:
        if self._text.startswith(("\\b", "\\B"), self._at):
            self._at += 2
            return False
        if read := _REFERENCE.match(self._text, self._at):
            self._references.append((read[1], read[2]))
            self._at = read.end()
        else:
            self._at = _escape_at(self._text, self._at)
        return True

    def _class(self) -> None:
        """A set of characters in brackets."""
        self._at += 2 if self._text.startswith("[^", self._at) else 1
        while not self._text.startswith("]", self._at):
            low, is_set = self._member()
            if self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
                self._at += 1
                high, is_other_set = self._member()
                if is_set or is_other_set:
                    raise _Refused("a range between sets of characters")
                if low is not None and high is not None and low > high:
                    raise _Refused(f"the range {low}-{high} is out of order")
        self._at += 1

    def _member(self) -> tuple[str | None, bool]:
        """A character of a set, None for one that is written as an escape; whether it is a set itself."""
        if self._at >= len(self._text):
            raise _Refused("a [ is not closed")
        start = self._at
        if self._text[start] != "\\":
            self._at += 1
            return self._text[start], False
        if self._text.startswith(("\\b", "\\-"), start):
            self._at += 2
            return (None if self._text[start + 1] == "b" else "-"), False
        self._at = _escape_at(self._text, start)
        code = _CODE.fullmatch(self._text, start, self._at)
        return (chr(int(code[1], 16)) if code else None), self._text[start + 1] in _CLASS_SETS


def _escape_at(text: str, start: int) -> int:
    """The end of an escape. Raises: _Refused."""
    read = _ESCAPE.match(text, start)
    if read is None:
        raise _Refused(f"the escape {text[start : start + 2]}, which JavaScript does not have")
    name = read["property"]
    if name is not None and name not in _PROPERTIES and _KEYED.fullmatch(name) is None:
        raise _Refused(f"the property {name} of characters is unknown")
    return read.end()

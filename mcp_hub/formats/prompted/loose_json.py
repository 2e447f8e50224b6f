"""JSON as models write it, as valid JSON: where the text has one reading, that one.

Read are comments, commas too many or forgotten, keys without quotes, other quotes (`'`, typographic ones, Gemma's),
words and numbers of Python and JavaScript, line breaks in strings, escapes that JSON does not know, quotes inside
strings that are not escaped and come in pairs, and braces missing at the end. Blanks stay. Not read are words without
quotes, expressions, NaN, keys that occur twice, and what leaves a choice.
"""

import json
import re
import sys
from typing import Final

from mcp_hub.formats.prompted.characters import MalformedCall, shown
from mcp_hub.formats.prompted.output import MAX_DEPTH

_MAX_DEPTH: Final = MAX_DEPTH + 4
_NEAR: Final = 512  # characters behind a quote that say whether it ends its string
_SKIPPED: Final = re.compile(r"(?:[\s\u200b\u200e\ufeff\u2060]+|//[^\n]*|#[^\n]*|/\*.*?(?:\*/|\Z))*", re.DOTALL)
_QUOTES: Final = {
    **{'"': '"', "'": "'", "`": "`", "“": "”“", "”": "”“", "„": "“”", "‘": "’‘", "’": "’‘", "«": "»", "＂": "＂"},
    **{'"""': '"""', "'''": "'''", '<|"|>': '<|"|>', "<escape>": "<escape>"},
}
"""Quotes that begin a string, and what ends it."""
_PLAIN: Final = {quote: re.compile(rf'[^\\"\x00-\x1f{ends}]+') for quote, ends in _QUOTES.items()}
_OPENING: Final = re.compile("|".join(sorted(map(re.escape, _QUOTES), key=len, reverse=True)))
_WORD: Final = re.compile(r"[^\W\d][\w$.-]*")
_WORDS: Final = {
    "true": "true", "True": "true", "TRUE": "true", "false": "false", "False": "false", "FALSE": "false",
    "null": "null", "None": "null", "NULL": "null",
}  # fmt: skip
_NUMBER: Final = re.compile(
    r"(?P<sign>[+-]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|(?P<whole>\d[\d_]*|(?=\.\d))(?:\.(?P<part>\d*))?"
    r"(?P<power>[eE][+-]?\d+)?)(?=[\s,;\]})]|//|/\*|#|\Z)"
)
_KEY_AHEAD: Final = re.compile(
    r"""[\s\u200b]*(?:["'“”‘’„«`＂][^"'“”‘’„«»`＂\n]{1,256}["'“”‘’»`＂]|[^\W\d][\w$.-]{0,255})"""
    r"""[\s\u200b]*(?::|=|：|\Z)|[\s\u200b]*["'“‘„«`＂]?[\w $.-]{0,256}\Z"""
)
_BEFORE_INNER: Final = frozenset(" \t\r\n([{<=>:,;.!?-/\\|*_~`'\"“‘")
_AFTER_INNER: Final = frozenset(" \t\r\n)]}<>=:,;.!?-/\\|*_~`'\"”’")
_KNOWN_ESCAPES: Final = {"'": "'", "\n": "", "`": "`"}
_DROPPED: Final = frozenset("$-_*#&!~@%:;,=<>` ")
"""Characters that a backslash does not change in any language: shells and Markdown escape them."""
_KEPT: Final = frozenset("cdghijklmopqswyzABCDEFGHIJKLMOPQRSTVWXYZ")
"""Letters that no language escapes: the backslash stands for itself."""
_COMMAS: Final = ",，;"
_COLONS: Final = re.compile(r"=>|[:=：]")


def read_value(text: str, start: int = 0) -> tuple[str, int, int]:
    """The JSON at `start`; its end, and how many braces and brackets are missing there.

    Raises: MalformedCall; EOFError if more text could make it a value.
    """
    reader = _Reader(text, start)
    value = reader.value("]")
    return value, reader.at, reader.missing


def skipped(text: str, start: int, limit: int = sys.maxsize) -> int:
    """The end of white space and comments, which are looked at up to `limit` characters."""
    matched = _SKIPPED.match(text, start, min(len(text), start + limit))
    assert matched is not None
    return matched.end()


class _Reader:
    def __init__(self, text: str, start: int) -> None:
        self._text = text
        self._depth = 0
        self.at = start
        self.missing = 0

    def value(self, context: str) -> str:
        """`context`: `,` for a member, else the bracket that ends the items."""
        blanks = self._skip()
        char = self._text[self.at : self.at + 1]
        if not char:
            raise EOFError
        if char == "{":
            return blanks + self._container("}")
        if char in "[(":
            return blanks + self._container("]" if char == "[" else ")")
        if opening := _OPENING.match(self._text, self.at):
            return blanks + self._string(opening[0], context)
        if number := _NUMBER.match(self._text, self.at):
            self.at = number.end()
            return blanks + _number(number, is_member=context == ",")
        return blanks + self._word()

    def _word(self) -> str:
        word = _WORD.match(self._text, self.at)
        if word is None or word[0] not in _WORDS:
            raise MalformedCall(f"expected a value, found {self._shown()}")
        if word.end() == len(self._text) and self._depth == 0:
            raise EOFError
        self.at = word.end()
        return _WORDS[word[0]]

    def _container(self, closing: str) -> str:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise MalformedCall(f"it nests deeper than {MAX_DEPTH} levels")
        pieces, keys = ["{" if closing == "}" else "["], set[str]()
        self.at += 1
        separator = ""
        while not self._closes(closing, bool(separator) and len(pieces) > 1):
            blanks = self._skip()
            if closing == "}":
                key = self._key(keys)
                pieces.append(f"{separator}{blanks}{key}{self._colon()}{self.value(',')}")
            else:
                pieces.append(f"{separator}{blanks}{self.value(closing)}")
            separator = self._separator(closing)
        self._depth -= 1
        blanks, self._pending = self._pending, ""
        return "".join(pieces) + blanks + ("}" if closing == "}" else "]")

    _pending = ""

    def _closes(self, closing: str, has_comma: bool) -> bool:
        """Whether the container ends: by its bracket, or with the text, after a value."""
        start = self.at
        blanks = self._skip()
        char = self._text[self.at : self.at + 1]
        if char == closing:
            self.at += 1
        elif not char:
            if has_comma or self._text[start - 1 : start] in "{[(":
                raise EOFError
            self.missing += 1
            blanks = ""
        elif char in "}])":
            raise MalformedCall(f"expected {closing}, found {char}")
        else:
            self.at = start
            return False
        self._pending = blanks
        return True

    def _separator(self, closing: str) -> str:
        """The comma after a member or an item; forgotten ones only before a key."""
        start = self.at
        blanks = self._skip()
        char = self._text[self.at : self.at + 1]
        if not char or char in "}])":
            self.at = start
            return ""
        if char in _COMMAS:
            while self._text[self.at : self.at + 1] in tuple(_COMMAS):
                self.at += 1
                after = self.at
                self._skip()
                if closing != "}" or self._text[self.at : self.at + 1] not in tuple(_COMMAS):
                    self.at = after
                    break
            return f"{blanks},"
        is_next = (
            blanks and _KEY_AHEAD.match(self._text, self.at) if closing == "}" else self._text[start - 1] + char == "}{"
        )
        if is_next:
            self.at = start
            return ","
        raise MalformedCall(f"expected a comma or {closing}, found {self._shown()}")

    def _key(self, keys: set[str]) -> str:
        if opening := _OPENING.match(self._text, self.at):
            key = self._string(opening[0], ":")
        elif word := _WORD.match(self._text, self.at):
            self.at = word.end()
            key = json.dumps(word[0], ensure_ascii=False)
        else:
            raise MalformedCall(f"expected a key, found {self._shown()}")
        if key in keys:
            raise MalformedCall(f"{key} occurs twice")
        keys.add(key)
        return key

    def _colon(self) -> str:
        blanks = self._skip()
        colon = _COLONS.match(self._text, self.at)
        if colon is None:
            if self.at == len(self._text):
                raise EOFError
            raise MalformedCall(f"expected a colon, found {self._shown()}")
        self.at = colon.end()
        return f"{blanks}:"

    def _skip(self) -> str:
        start, self.at = self.at, skipped(self._text, self.at)
        between = self._text[start : self.at]
        return between if between.strip(" \t\r\n") == "" else " "

    def _shown(self) -> str:
        return shown(self._text[self.at :].split("\n", 1)[0])

    def _string(self, quote: str, context: str) -> str:
        """`context`: `:` for a key, else that of the value."""
        self.at += len(quote)
        if len(quote) > 1:
            return self._delimited(_QUOTES[quote])
        string, plain = _String(), _PLAIN[quote]
        while True:
            if piece := plain.match(self._text, self.at):
                string.add(piece[0])
                self.at = piece.end()
            char = self._text[self.at : self.at + 1]
            if not char:
                raise EOFError
            if char == "\\":
                self.at += string.escape(self._text, self.at)
            elif char in _QUOTES[quote] and self._ends(context):
                self.at += 1
                return string.ended()
            else:
                is_quote = char in _QUOTES[quote]
                string.add(self._inner_quote(string) if is_quote else json.dumps(char, ensure_ascii=False)[1:-1])
                self.at += 1

    def _delimited(self, quote: str) -> str:
        end = self._text.find(quote, self.at)
        if end < 0:
            raise EOFError
        string, self.at = self._text[self.at : end], end + len(quote)
        if quote[0] in "\"'" and "\\" in string:
            raise MalformedCall("a string in three quotes contains a backslash")
        return json.dumps(string, ensure_ascii=False)

    def _ends(self, context: str) -> bool:
        """Whether the quote at hand ends the string: only what may follow a string follows."""
        after = skipped(self._text, self.at + 1, _NEAR)
        char = self._text[after : after + 1]
        if context == ":":
            return not char or char in ":=："
        if not char or char in "}]" or char == context == ")":
            return True
        if char in _COMMAS:
            return context != "," or self._member_follows(after + 1)
        return context == "," and after > self.at + 1 and _KEY_AHEAD.match(self._text, after) is not None

    def _member_follows(self, after: int) -> bool:
        next_at = skipped(self._text, after, _NEAR)
        return self._text[next_at : next_at + 1] in ("", "}", *_COMMAS) or bool(_KEY_AHEAD.match(self._text, next_at))

    def _inner_quote(self, string: "_String") -> str:
        """A quote inside a string. They come in pairs, each outside of what it quotes."""
        char = self._text[self.at]
        if char == "'" and self._text[self.at - 1].isalnum() and self._text[self.at + 1 : self.at + 2].isalnum():
            return char  # an apostrophe
        before, after = self._text[self.at - 1], self._text[self.at + 1 : self.at + 2]
        string.has_open_inner = not string.has_open_inner
        fits = (
            (string.is_empty or before in _BEFORE_INNER) and not after.isspace()
            if string.has_open_inner
            else after in _AFTER_INNER and not before.isspace()
        )
        if not fits:
            raise MalformedCall("quotes inside a string are not escaped")
        return '\\"' if char == '"' else char


class _String:
    """A JSON string. A backslash that stands for itself leaves no other escape with a meaning."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._has_escapes = False
        self._has_backslashes = False
        self.has_open_inner = False

    @property
    def is_empty(self) -> bool:
        return not self._pieces

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def ended(self) -> str:
        if self.has_open_inner:
            raise MalformedCall("quotes inside a string are not escaped")
        if self._has_escapes and self._has_backslashes:
            raise MalformedCall("some backslashes in a string are not escaped")
        return f'"{"".join(self._pieces)}"'

    def escape(self, text: str, at: int) -> int:
        """Adds the escape at `at`; returns its length."""
        char = text[at + 1 : at + 2]
        if not char:
            raise EOFError
        if char in '"\\/':
            self.add(f"\\{char}")
        elif char in "bfnrt":
            self._has_escapes = True
            self.add(f"\\{char}")
        elif char in _KNOWN_ESCAPES:
            self.add(_KNOWN_ESCAPES[char])
        elif char in "uxU":
            return self._coded(text, at, {"x": 2, "u": 4, "U": 8}[char])
        elif char in _DROPPED:
            self.add(json.dumps(char)[1:-1])
        elif char in _KEPT:
            self._has_backslashes = True
            self.add(f"\\\\{char}")
        else:
            raise MalformedCall(f"\\{char} in a string is not an escape of JSON")
        return 2

    def _coded(self, text: str, at: int, length: int) -> int:
        code = text[at + 2 : at + 2 + length]
        if not re.fullmatch(f"[0-9a-fA-F]{{{length}}}", code) or int(code, 16) > 0x10FFFF:
            if at + 2 + length > len(text):
                raise EOFError
            raise MalformedCall(f"{length} hexadecimal digits follow \\{text[at + 1]} in a string")
        self.add(f"\\u{code}" if length == 4 else json.dumps(chr(int(code, 16)), ensure_ascii=False)[1:-1])
        return 2 + length


def _number(number: re.Match[str], *, is_member: bool) -> str:
    if number["hex"]:
        return str(int(f"{number['sign']}{number['hex']}", 16))
    whole, part = number["whole"].replace("_", ""), number["part"]
    if len(whole) > 1 and whole[0] == "0" and not is_member:
        raise MalformedCall(f"a number does not begin with 0: {number[0]}")
    fraction = f".{part or '0'}" if part is not None else ""
    return f"{number['sign'].strip('+')}{whole.lstrip('0') or '0'}{fraction}{number['power'] or ''}"

"""Calls that break their format, read as a whole: a text with one reading, in whatever form.

Forms are objects and lists of JSON, a name with an object, Python calls, and elements. No name or argument is made up:
what is left over, or ambiguous, makes the call malformed.
"""

import html
import re
from collections.abc import Mapping
from typing import Final

from mcp_hub.formats.prompted.characters import MalformedCall, shown, tag_of
from mcp_hub.formats.prompted.json_shapes import calls_in, checked, has_whole_arguments, is_call_object, members_of
from mcp_hub.formats.prompted.loose_json import read_value, skipped
from mcp_hub.formats.prompted.output import Tools, resolved
from mcp_hub.formats.prompted.pythonic_calls import python_call_in
from mcp_hub.formats.prompted.tagged_calls import add_argument, object_of, typed_argument
from mcp_hub.schema import properties, required

Calls = list[tuple[str, str]]
"""Names and arguments, as JSON objects."""

_MAX_CALLS: Final = 128
_BETWEEN: Final = re.compile(
    r"(?:[\s,;]|```[\w-]*[ \t]*(?=\n|\Z)|~~~[\w-]*[ \t]*(?=\n|\Z)"
    r"|<\|(?:open|close)\|>json[^<>]*<\|sep\|>|<\|(?!open|close)\w+\|>)+"
)
_CLOSERS: Final = re.compile(r"[\s}\])]+(?=\Z|<|```|#|//)")
_TAG: Final = re.compile(r"<[^<>\n]{1,256}>|\[/?\w+\]")
_PROSE: Final = re.compile(r"[^\"{}\[\]<>]+")
_LISTED: Final = re.compile(r"\[\s*[{\[]|\[\s*\Z|\[\s*(?=\])")
_WORD: Final = re.compile(r"(?:(?:call|function|tool)\s*[:=]\s*|to\s*=\s*)?(?P<name>[\w.:/@-]*[\w/@-](?:\(\))?)")
_TO_OBJECT: Final = re.compile(
    r"(?:\s|:(?=\s|\{)|<[|｜][^<>]{1,64}[|｜]>|\[ARGS\]|\[CALL_ID\][\w-]+|```\w*"
    r"|json\b|code\b|commentary\b|arguments?\s*[:=])*(?=\{)"
)
_HARMONY: Final = re.compile(r"[^<{]*\bto=(?P<name>[\w.:/@-]+)[^{\n]*?<\|message\|>\s*")
_XTML: Final = re.compile(r'<\|open\|>call tool="(?P<name>[^"<>]+)"[^<>]*<\|sep\|>')
_LINES: Final = re.compile(
    r"(?i)(?:name|tool|function|action)[ \t]*:[ \t]*[\"']?(?P<name>[\w./@-]+)[\"']?[ \t]*\n\s*"
    r"(?:arguments|parameters|args|params|input|action input|tool input)[ \t]*:\s*(?=\{)"
)
_CALL: Final = re.compile(r"call:(?P<name>[\w./@-]+)(?=\{)")
_NO_MORE: Final = re.compile(r"(?:\s|<[|｜][^<>]{1,64}[|｜]>|\[ARGS\])*")
_TO_NAME: Final = re.compile(r"\s*<[|｜][^<>]{1,64}[|｜]>\s*")
_PYTHON: Final = re.compile(
    r"(?:\w+\s*=\s*)?(?:await\s+)?(?P<print>print\s*\(\s*)?(?:(?:default_api|functions|tools)\s*\.\s*)?(?=[\w.-]+\s*\()"
)
_PYTHON_NAME: Final = re.compile(r"[\w.-]+")
_KEYWORDS: Final = re.compile(r"(?P<name>[\w.-]+)\s*\(\s*(?:\*\*\s*)?(?=\{)")
_NAMED: Final = re.compile(
    r"(?:=|\s(?:name|tool|tool[_-]?name|function)\s*=|\s)\s*[\"']?(?P<name>[^\"'<>={}]+?)[\"']?\s*(?:index=[^<>]*)?/?\s*>"
)
_BARS: Final = r"[ |｜]*(?:DSML[|｜]{1,2}|antml:)?"
_PARAMETER: Final = re.compile(
    rf"<{_BARS}(?:parameter|param|argument|arg)(?:\s*=\s*|\s+(?:name|key)\s*=\s*)[\"']?(?P<key>[^\"'<>\n]+?)[\"']?"
    r"(?:\s+string\s*=\s*[\"']?(?P<string>true|false)[\"']?|\s+type\s*=\s*[\"']?(?P<type>\w+)[\"']?)?\s*>(?P<line>\n?)"
    r"|<arg_key>\s*(?P<glm>[^<>\n]+?)\s*(?:</arg_key>)?\s*<arg_value>"
    r'|<\|open\|>argument key="(?P<xtml>[^"<>]+)"(?: type="(?P<kind>\w+)")?<\|sep\|>'
)
_VALUE_END: Final = re.compile(
    rf"</{_BARS}(?:parameter|param|argument|arg|arg_value)(?:=[^<>\n]*)?[ |｜]*>|<\|close\|>argument<\|sep\|>"
)
_CALL_END: Final = re.compile(
    rf"\s*(?:</{_BARS}(?:function|invoke|tool|tool_?calls?|function_?calls?|(?:minimax|seed):tool_call)"
    r"(?:=[^<>\n]*)?[ |｜]*>"
    r"|<\|close\|>call<\|sep\|>|\Z)"
)
_MARKUP: Final = re.compile(
    r"</?[ |｜]*(?:tool_call|function|invoke|parameter|arg_)"
    r"|(?:[</|｜>]\s*(?:parameter|param|argument|arg_\w+)|(?:parameter|argument|arg_\w+)\s*[<>|｜/])[^\n]{0,12}\s*\Z"
)
"""Remains of a damaged end tag in a value."""
_FIELD: Final = re.compile(
    r"<(?P<key>(?:tool_?|function_?)?name|tool|function)>\s*(?P<name>[\w.:/@-]+)\s*</(?P=key)>\s*"
    r"(?:<(?P<field>arguments|parameters|args|params|input)>\s*)?"
)
_CHILD: Final = re.compile(r"\s*<(?P<key>[^\W\d][\w.-]*)>(?P<value>.*?)</(?P=key)>", re.DOTALL)


def read_calls(text: str, start: int, tools: Tools, *, is_ended: bool, is_last: bool) -> tuple[Calls, int]:
    """The calls in `text` from `start` on, and where what follows them begins.

    `is_ended`: the text ends with the call's end, not with the output. `is_last`: no more text can complete it. No
    calls: they are the definitions or the results of tools. Raises: MalformedCall, EOFError.
    """
    is_escaped = '"' not in text and "&quot;" in text
    body = html.unescape(text[start:]) if is_escaped else text[start:]
    reading = _Reading(text[:start] + body, start, tools, is_ended=is_ended, is_last=is_last)
    reading.read()
    return reading.calls, len(text) if is_escaped else reading.at - reading.added


class _Reading:
    def __init__(self, text: str, start: int, tools: Tools, *, is_ended: bool, is_last: bool) -> None:
        self._text = text
        self._tools = tools
        self._is_ended = is_ended
        self._is_last = is_last
        self._is_other = False
        self.added = 0
        self.at = start
        self.calls: Calls = []

    def read(self) -> None:
        while (end := self._skip()) < len(self._text):
            count, text = len(self.calls), self._text
            if self._text[end] == "<":
                self._tag()
            elif self._text[end] == "{" or _LISTED.match(self._text, end):
                self._object()
            elif self._is_python(end):
                self._python()
            elif not self._named() and not self._leftover():
                break
            if len(self.calls) > _MAX_CALLS:
                raise MalformedCall(f"more than {_MAX_CALLS} calls stand together")
            if len(self.calls) == count and self.at == end and self._text is text:
                raise MalformedCall(f"expected a call, found {shown(self._text[end:])}")
        if not self.calls and not self._is_other:
            if not self._is_ended and not self._text[self.at :].strip():
                raise EOFError
            raise MalformedCall('expected an object with "name" and "arguments"')

    def _skip(self) -> int:
        """Separators, comments and the marks of fences."""
        while True:
            start = self.at
            self.at = skipped(self._text, self.at)
            if between := _BETWEEN.match(self._text, self.at):
                self.at = between.end()
            if self.at == start:
                return start

    def _blanks(self) -> None:
        self.at = _after_blanks(self._text, self.at)

    def _leftover(self) -> bool:
        """Brackets too many after calls, or prose before the first one."""
        if self.calls:
            if closers := _CLOSERS.match(self._text, self.at):
                self.at = closers.end()
                return True
            if self._text[self.at] in "{}[]\"'`“,:=":
                raise MalformedCall(f"{shown(self._text[self.at :])} follows the call")
            return False
        if self._text[self.at] in "\"'“" and re.match(r"[\"'“]\w+[\"'”]\s*:", self._text[self.at :]):
            self._text = f"{self._text[: self.at]}{{{self._text[self.at :]}"
            self.added = 1
            return True
        prose = _PROSE.match(self._text, self.at)
        is_head = prose is None or prose[0].startswith("functions.")  # of a result of gpt-oss
        if prose is None or is_head or self._text[prose.end() : prose.end() + 1] not in ("{", "[", "<"):
            return False
        word = re.search(r"([\w.:/@-]+)[\s:=]*\Z", prose[0])
        self.at = prose.end()
        if word is not None and self._text[self.at] == "{" and (name := resolved(word[1].rstrip(":"), self._tools)):
            self._arguments(name)
        return True

    # JSON

    def _json(self) -> str:
        value, end, missing = read_value(self._text, self.at)
        if missing and not self._is_ended and not has_whole_arguments(value, missing, self._text):
            raise EOFError
        self.at = end
        return value

    def _object(self) -> None:
        start, value = self.at, self._json()
        source = self._text[start : self.at]
        calls = calls_in(value, self._tools)
        self._is_other |= not calls
        self.calls += [(name, checked(name, arguments, source, self._tools)) for name, arguments in calls]

    def _arguments(self, name: str) -> None:
        start, value = self.at, self._json()
        source = self._text[start : self.at]
        if is_call_object(value, name, self._tools):
            self.calls += calls_in(value, self._tools)
        else:
            self.calls.append((name, checked(name, value.strip(), source, self._tools)))

    # a name, and what follows it

    def _named(self) -> bool:
        for header in filter(None, (pattern.match(self._text, self.at) for pattern in (_HARMONY, _LINES, _CALL))):
            self.at = header.end()
            if self._text[self.at :].strip():
                self._arguments(header["name"])
            else:
                self._without_arguments(header["name"])
            return True
        word = _WORD.match(self._text, self.at)
        while word is not None and resolved(word["name"].rstrip(":"), self._tools) is None:
            mark = _TO_NAME.match(self._text, word.end())
            word = _WORD.match(self._text, mark.end()) if mark else None
        if word is None or self.calls and "{" not in self._text[word.end() :]:
            return False
        name = word["name"].rstrip(":")
        if matched := _TO_OBJECT.match(self._text, word.end()):
            self.at = matched.end()
            self._arguments(name)
        elif _PARAMETER.match(self._text, skipped(self._text, word.end())):
            self.at = word.end()
            self._parameters(name)
        elif _NO_MORE.fullmatch(self._text, word.end()) and (self._is_ended or self._is_last) and not self.calls:
            self.at = len(self._text)
            self._without_arguments(name)
        else:
            return False
        return True

    def _without_arguments(self, name: str) -> None:
        if missing := required(self._schema(name)):
            raise MalformedCall(f"expected the arguments of {name}: {', '.join(missing)}")
        self.calls.append((name, "{}"))

    def _schema(self, name: str) -> Mapping[str, object]:
        tool = resolved(name, self._tools)
        return {} if tool is None else self._tools[tool]

    # Python

    def _is_python(self, at: int) -> bool:
        if self._text[at] == "[":
            at = _after_blanks(self._text, at + 1)
        head = _PYTHON.match(self._text, at)
        name = _PYTHON_NAME.match(self._text, head.end()) if head else None
        return name is not None and (self._text[self.at] == "[" or resolved(name[0], self._tools) is not None)

    def _python(self) -> None:
        is_list = self._text[self.at] == "["
        self.at += is_list
        while True:
            self._skip()
            head = _PYTHON.match(self._text, self.at)
            if head is None:
                break
            self.at = head.end()
            self._python_call()
            if head["print"]:
                self._close(")")
            if not is_list:
                return
        self._close("]")

    def _python_call(self) -> None:
        if keywords := _KEYWORDS.match(self._text, self.at):
            self.at = keywords.end()
            self._arguments(keywords["name"])
            arguments = members_of(self.calls[-1][1])
            if not arguments.keys() <= properties(self._schema(keywords["name"])).keys():
                raise MalformedCall("arguments need names: name=value")
            self._close(")")
            return
        calls, self.at = python_call_in(self._text, self.at, self._tools)
        self.calls += calls

    def _close(self, bracket: str) -> None:
        self.at = skipped(self._text, self.at)
        if self._text[self.at : self.at + 1] == bracket:
            self.at += 1
        elif self.at < len(self._text) or not (self._is_ended or self._is_last):
            raise MalformedCall(f"expected {bracket}")

    # elements

    def _tag(self) -> None:
        matched = _TAG.match(self._text, self.at)
        text = matched[0] if matched else ""
        if xtml := _XTML.match(self._text, self.at):
            self.at = xtml.end()
            self._element(html.unescape(xtml["name"]))
        elif field := _FIELD.match(self._text, self.at):
            self.at = field.end()
            self._field(field)
        elif (tag := tag_of(text)) and tag.kind == "named" and (name := _NAMED.search(text)):
            self.at += len(text)
            self._element(html.unescape(name["name"]))
        elif (tag := tag_of(text)) or text.startswith(("<|", "<｜", "</")):
            self.at += len(text)
        elif resolved(text.strip("<>/ "), self._tools):
            self.at += len(text)
            self._element(text.strip("<>/ "))
        elif self._is_cut(self.at):
            raise EOFError
        else:
            raise MalformedCall(f"expected a call, found {shown(self._text[self.at :])}")

    def _is_cut(self, start: int) -> bool:
        return not self._is_ended and ">" not in self._text[start:]

    def _element(self, name: str) -> None:
        """After the tag with the name."""
        start = skipped(self._text, self.at) if self._text[self.at :].lstrip()[:1] in "#/" else self.at
        start = _after_blanks(self._text, start)
        if _BETWEEN.match(self._text, start) or self._text[start : start + 1] == "{":
            self._skip()
            self._arguments(name)
            self._skip()
        elif _PARAMETER.match(self._text, start):
            self._parameters(name)
        elif _CHILD.match(self._text, start):
            self._children(name)
        elif (end := _CALL_END.match(self._text, start)) and (end[0].strip() or self._is_ended):
            self._without_arguments(name)
        elif self._is_cut(start):
            raise EOFError
        else:
            raise MalformedCall(f"expected an element for each argument of {name}")
        if end := _CALL_END.match(self._text, self.at):
            self.at = end.end()

    def _field(self, field: re.Match[str]) -> None:
        name = field["name"]
        if field["field"] is None and _CALL_END.match(self._text, self.at):
            self._without_arguments(name)
        elif self._text[self.at : self.at + 1] == "{":
            self._arguments(name)
        else:
            self._children(name)
        if field["field"]:
            end = re.compile(rf"\s*</{field['field']}>").match(self._text, self.at)
            self.at = end.end() if end else self.at

    def _children(self, name: str) -> None:
        """`<city>Bern</city>`, an element for each argument."""
        listed, members = properties(self._schema(name)), dict[str, str]()
        while (child := _CHILD.match(self._text, self.at)) and child["key"] in listed:
            value = typed_argument(self._schema(name), child["key"], child["value"], None, has_lines=True)
            add_argument(members, child["key"], value)
            self.at = child.end()
        if not members:
            raise MalformedCall(f"expected the arguments of {name}")
        self.calls.append((name, object_of(members)))

    def _parameters(self, name: str) -> None:
        members: dict[str, str] = {}
        self._blanks()
        while parameter := _PARAMETER.match(self._text, self.at):
            key = _key(parameter)
            start = parameter.start("line") if parameter["key"] else parameter.end()
            end, self.at = self._value_end(name, start, {*members, key})
            value = self._text[start:end]
            is_text = {"true": True, "false": False}.get(parameter["string"] or "")
            if kind := parameter["type"] or parameter["kind"]:
                is_text = kind == "string"
            has_lines = parameter["key"] is not None and parameter["string"] is None
            add_argument(members, key, typed_argument(self._schema(name), key, value, is_text, has_lines=has_lines))
            self._blanks()
        call_end = _CALL_END.match(self._text, self.at)
        if not (self._is_ended or (call_end and call_end[0].strip())) and self._is_cut(self.at):
            raise EOFError
        if call_end is None:
            raise MalformedCall(f"expected an element for an argument of {name}, found {shown(self._text[self.at :])}")
        self.calls.append((name, object_of(members)))

    def _value_end(self, name: str, start: int, named: set[str]) -> tuple[int, int]:
        """End of a value, and of its end tag; without one it ends before the next argument, or with the call."""
        closing = _VALUE_END.search(self._text, start)
        limit = closing.start() if closing else len(self._text)
        for following in _PARAMETER.finditer(self._text, start, limit):
            key = _key(following)
            if key in properties(self._schema(name)) and key not in named:
                return self._without_markup(start, following.start())
        if closing:
            return closing.start(), closing.end()
        if not self._is_last:
            raise EOFError
        ends = [end for end in _CALL_END.finditer(self._text, start) if end[0].strip()]
        end = next(
            (end for end in ends if not self._text[end.end() :].strip() or tag_of(self._text[end.end() :].strip())),
            None,
        )
        if end is None and not self._is_ended:
            raise EOFError
        return self._without_markup(start, end.start() if end else len(self._text))

    def _without_markup(self, start: int, end: int) -> tuple[int, int]:
        if _MARKUP.search(self._text[start:end]):
            raise MalformedCall("expected the end tag of an argument")
        return end, end


def _after_blanks(text: str, at: int) -> int:
    while text[at : at + 1].isspace():
        at += 1
    return at


def _key(parameter: re.Match[str]) -> str:
    return html.unescape((parameter["key"] or parameter["glm"] or parameter["xtml"]).strip())

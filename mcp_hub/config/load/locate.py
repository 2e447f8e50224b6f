"""Parses configuration text to plain data with lines.

YAML is composed by PyYAML and built here, to find duplicate keys and keep lines; keys are text (`on:` is "on"). JSON
may have comments and trailing commas. TOML has lines for tables only.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module

import msgspec
import yaml

from mcp_hub.config.findings import DataPath, Finding, on_one_line
from mcp_hub.config.load.texts import toml_data
from mcp_hub.errors import ConfigError, ConfigFinding

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_DEEPEST = 50  # PyYAML composes recursively, in C without a check: deeper text would end the process
_MOST_VALUES = 100_000  # aliases can multiply a few lines into more memory than there is
_LONGEST_NUMBER = 400  # 1:1:1:… is a number of base 60, which takes minutes to read
_MOST_MERGES = 200  # as above; also bounds a chain of them, which is followed recursively
_SUFFIXES = {"json": True, "jsonc": True, "json5": True, "yaml": False, "yml": False}
_TAG = "tag:yaml.org,2002:"
_JSON_TOKEN = re.compile(r'("(?:[^"\\]++|\\.)*+"?)|//[^\n]*|/\*.*?(?:\*/|\Z)|\t', re.DOTALL)
"""Linear: an unfinished string or comment is the rest of the text."""
_ESCAPE = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\\[^u]"
)
_CONTROL = re.compile(r"[\0-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff]")
_DIGITS = re.compile(r"\d[\d_]{399,}")
_LAST_COMMA = re.compile(r'("(?:[^"\\]++|\\.)*+"?)|,(?=\s*[}\]])', re.DOTALL)
_LARGEST_WITH_LINES = 1 << 20  # characters; lines are a help, and cost far more than the data
_LARGEST_JSON5 = 1 << 17  # characters, which json5 reads in 3 s: it is written in Python


_LONG_NUMBER = re.compile(r"0[xX][\da-fA-F_]{3570,}|0[oO][0-7_]{4760,}|0[bB][01_]{14280,}|\d[\d_]{4299,}")
_MOST_BITS = 14284  # of a number that Python writes
_TOO_LONG = "integer string conversion"
_SURROGATES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""JSON escapes: a pair, a half (the group), any other. Linear."""


class LocatedData(msgspec.Struct, frozen=True):
    """Plain data, 1-based lines of known paths, duplicate keys."""

    data: object
    lines: Mapping[DataPath, int] = msgspec.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    is_yaml: bool = True


def read_document(text: str, name: str) -> LocatedData:
    """Parses by suffix, else by first character. Raises `ConfigError`."""
    text = text.removeprefix("\ufeff")
    if len(text) > _LARGEST_WITH_LINES and not is_json(text, name):
        message = f"larger than {_LARGEST_WITH_LINES} characters"
        raise ConfigError(ConfigFinding("config_too_large", message, name))
    if _suffix(name) == "toml":
        return _read_toml(text, name)
    if is_json(text, name):
        return _read_json(text, name)
    try:
        return _read_yaml(text)
    except yaml.YAMLError as error:
        raise ConfigError(_yaml_problem(error, text, name)) from None
    except _Unreadable as error:
        raise ConfigError(ConfigFinding(error.code, str(error), name, error.line)) from None


class _DoubledKeys(dict[str, object]):
    """A JSON mapping with `doubled` keys; the last value counts."""

    doubled: frozenset[str] = frozenset()


def json_mapping(pairs: Iterable[tuple[str, object]]) -> dict[str, object]:
    """For `object_pairs_hook` of a JSON reader."""
    listed = list(pairs)
    mapping = dict(listed)
    if len(mapping) == len(listed):
        return mapping
    marked = _DoubledKeys(mapping)
    marked.doubled = frozenset(key for key, number in Counter(key for key, _ in listed).items() if number > 1)
    return marked


def doubled_keys(data: object, path: DataPath = ()) -> Iterator[DataPath]:
    """Paths of doubled keys in JSON data."""
    if isinstance(data, _DoubledKeys):
        yield from ((*path, key) for key in data.doubled)
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from doubled_keys(value, (*path, key))


def line_of_half(text: bytes) -> int | None:
    """The 1-based line of the first escaped lone surrogate."""
    position = next((escape.start(1) for escape in _SURROGATES.finditer(text) if escape[1]), None)
    return None if position is None else text.count(b"\n", 0, position) + 1


def long_number(error: Exception, text: str, code: str, name: str) -> ConfigFinding | None:
    """The finding for a number longer than Python reads, else None."""
    number = _LONG_NUMBER.search(text) if _TOO_LONG in str(error) else None
    if number is None:
        return None
    line = text.count("\n", 0, number.start()) + 1
    return ConfigFinding(code, "this number is too long. Put it in quotes.", name, line)


def _check_numbers(data: object) -> None:
    """Looks through a configuration for numbers that Python cannot write in decimal. Raises `ValueError`."""
    if isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            _check_numbers(value)
    elif isinstance(data, int) and data.bit_length() > _MOST_BITS:
        raise ValueError(_TOO_LONG)


def unseen(text: str, at: int) -> str:
    """Advice about a character that no editor shows, where JSON is invalid."""
    character = text[at : at + 1]
    if character == "\0":
        return " The file is damaged, or UTF-16 without a byte order mark."
    if not character or character.isspace() and character.isascii() or character.isprintable():
        return ""
    return f" Remove the character U+{ord(character):04X}, which is not visible."


def half_findings(tree: object, path: DataPath, text: str) -> list[Finding]:
    """An error for each text in `tree`, at `path`, with a lone surrogate."""
    paths = list(halves(tree, path)) if "\\" in text else []
    if not paths:
        return []
    start = max(0, text.find(json.dumps(path[-1]))) if path else 0
    line = line_of_half(text[start:].encode("utf-8", "replace"))
    if line is not None:
        line += text.count("\n", 0, start)
    message = "holds half of a character (a lone surrogate)"
    return [Finding(each, "invalid_text", message, line if each == paths[0] else None) for each in paths]


def halves(data: object, path: DataPath = ()) -> Iterator[DataPath]:
    """Paths of texts with a lone surrogate."""
    if isinstance(data, str) and any("\ud800" <= char <= "\udfff" for char in data):
        yield path
    elif isinstance(data, dict):
        for key, value in data.items():
            yield from halves(key, path)
            yield from halves(value, (*path, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from halves(item, (*path, index))


def is_json(text: str, name: str) -> bool:
    """Whether JSON, by the file's suffix or the first character."""
    return _SUFFIXES.get(_suffix(name), text.removeprefix("\ufeff").lstrip().startswith("{"))


def without_json_comments(text: str) -> str:
    """Blanks comments and tabs, for YAML; columns stay."""
    return _JSON_TOKEN.sub(_blanked, text)


def _suffix(name: str) -> str:
    return name.rpartition(".")[2].lower()


def _for_yaml(text: str) -> str:
    """JSON whose lines YAML can find, which refuses halves of characters, also of a pair, and long numbers."""
    return _DIGITS.sub("0", _ESCAPE.sub(_whole_character, without_json_comments(text)))


def _whole_character(escape: re.Match[str]) -> str:
    if escape[1] is None:
        return "\\ufffd" if escape[0].startswith("\\u") else escape[0]
    return escape[0].encode("ascii").decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")


def _read_json(text: str, name: str) -> LocatedData:
    try:
        located = _read_yaml(_for_yaml(text) if len(text) <= _LARGEST_WITH_LINES else "")
    except (yaml.YAMLError, _Unreadable):
        located = LocatedData(None)  # lines are a help, not a must
    try:
        data = _json_of(text)
        _check_numbers(data)
    except RecursionError:
        raise ConfigError(
            ConfigFinding("too_deep", f"nested deeper than {_DEEPEST} levels. Make it flatter.", name)
        ) from None
    except ValueError as error:
        if finding := long_number(error, text, "invalid_json", name):
            raise ConfigError(finding) from None
        match = re.match(r"<string>:(\d+) (.*) at column (\d+)", str(error), re.DOTALL)
        message = f"not valid JSON: {on_one_line(match[2] if match else getattr(error, 'msg', str(error)))}"
        position = (int(match[1]), int(match[3])) if match else _place_of(error)
        message += unseen(text, error.pos) if isinstance(error, json.JSONDecodeError) else ""
        raise ConfigError(ConfigFinding("invalid_json", message, name, *position)) from None
    if is_deep(data):
        raise ConfigError(ConfigFinding("too_deep", f"nested deeper than {_DEEPEST} levels. Make it flatter.", name))
    message = "duplicate key. Remove one of them."
    findings = located.findings or tuple(Finding(path, "duplicate_key", message) for path in doubled_keys(data))
    return LocatedData(data, located.lines, findings, is_yaml=False)


def _place_of(error: ValueError) -> tuple[int | None, int | None]:
    return (error.lineno, error.colno) if isinstance(error, json.JSONDecodeError) else (None, None)


def _read_toml(text: str, name: str) -> LocatedData:
    try:
        data, lines, findings = toml_data(text, name)
        _check_numbers(data)
    except (ValueError, RecursionError) as error:
        if finding := long_number(error, text, "invalid_toml", name):
            raise ConfigError(finding) from None
        message = f"not valid TOML: {on_one_line(str(error))}. Correct the line."
        raise ConfigError(ConfigFinding("invalid_toml", message, name)) from None
    if is_deep(data):
        raise ConfigError(ConfigFinding("too_deep", f"nested deeper than {_DEEPEST} levels. Make it flatter.", name))
    return LocatedData(data, lines, findings, is_yaml=False)


def _json_of(text: str) -> object:
    with suppress(ValueError):
        return json.loads(text, object_pairs_hook=json_mapping)
    try:
        return json.loads(plain_json(text), object_pairs_hook=json_mapping)
    except ValueError:
        if len(text) > _LARGEST_JSON5:
            raise
    loads: Callable[..., object] = import_module("json5").loads  # 0.4 MB that no other file needs
    return loads(text, object_pairs_hook=json_mapping)


def plain_json(text: str) -> str:
    """Blanks comments and trailing commas; columns stay."""
    return _LAST_COMMA.sub(_blanked, without_json_comments(text))


def is_deep(data: object, levels: int = _DEEPEST) -> bool:
    """Whether nested deeper than allowed."""
    children = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return levels < 0 or any(is_deep(child, levels - 1) for child in children)


def _blanked(token: re.Match[str]) -> str:
    return token[1] or re.sub(r"[^\n]", " ", token[0])


def _yaml_problem(error: yaml.YAMLError, text: str, name: str) -> ConfigFinding:
    """Leaves out excerpts and quoted words, which may be secrets."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        mark = error.problem_mark
        problem = re.sub(r" '[^'<]{2,}'", "", error.problem or error.context or "syntax error")
        message = f"not valid YAML: {_yaml_fix(text, on_one_line(problem), mark)}"
        return ConfigFinding(
            code="invalid_yaml", message=message, file=name, line=mark.line + 1, column=mark.column + 1
        )
    control = _CONTROL.search(text)
    line = None if control is None else text.count("\n", 0, control.start()) + 1
    message = "the text holds a control character. Remove it."
    if "\0" in text:
        message = "the text holds NUL characters: it is damaged, or of another encoding. Save the file as UTF-8."
    return ConfigFinding("invalid_yaml", f"not valid YAML: {message}", name, line)


def _yaml_fix(text: str, problem: str, mark: yaml.Mark) -> str:
    line = text.split("\n")[mark.line] if mark.line <= text.count("\n") else ""
    if "\t" in line[: len(line) - len(line.lstrip())]:
        return "the line is indented with a tab. Use spaces."
    if "another document" in problem:
        return "a file is one document. Remove the other one, with its line of ---."
    if "Unicode character escape" in problem:
        return "an escape is half of a character (a surrogate), or none. Write the character itself."
    if "']'" in problem or "'}'" in problem:
        return f"{problem}. A bracket or a comma is missing on this line or the one before."
    return f"{problem}. Check the indentation of this line and the one before."


class _Unreadable(Exception):
    def __init__(self, code: str, message: str, line: int) -> None:
        super().__init__(message)
        self.code = code
        self.line = line


def _read_yaml(text: str) -> LocatedData:
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise _Unreadable("too_deep", f"nested deeper than {_DEEPEST} levels. Make it flatter.", _line(event))
    root = yaml.compose(text, Loader=_LOADER)
    if root is None:
        return LocatedData(None)
    builder = _Builder()
    data = builder.build(root, ())
    return LocatedData(data, builder.lines, tuple(builder.duplicates.values()))


class _Builder:
    def __init__(self) -> None:
        self.lines: dict[DataPath, int] = {}
        self.duplicates: dict[int, Finding] = {}  # by key node: an alias is visited more than once
        self._merges = 0
        self._scalars = yaml.constructor.SafeConstructor()

    def build(self, node: yaml.Node, path: DataPath) -> object:
        line = _line(node)
        self.lines.setdefault(path, line)
        if len(self.lines) > _MOST_VALUES or len(path) > _DEEPEST:
            raise _Unreadable("too_deep", "too large or nested too deep. Remove an alias that holds itself.", line)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(item, (*path, index)) for index, item in enumerate(node.value)]
        return self._scalar(node) if isinstance(node, yaml.ScalarNode) else None

    def _mapping(self, node: yaml.MappingNode, path: DataPath) -> dict[str, object]:
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in self._merged(node):
            pairs[_key_text(key)] = (key, value)
        nodes: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            text = _key_text(key)
            if text in nodes:
                message = f"duplicate key (first on line {_line(nodes[text])}). Remove one of them."
                self.duplicates[id(key)] = Finding((*path, text), "duplicate_key", message, _line(key))
            nodes.setdefault(text, key)
            pairs[text] = (key, value)
        data: dict[str, object] = {}
        for text, (key, value) in pairs.items():
            self.lines[(*path, text)] = _line(key)
            data[text] = self.build(value, (*path, text))
        return data

    def _merged(self, node: yaml.MappingNode) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        for key, value in node.value:
            if key.tag != f"{_TAG}merge":
                continue
            sources = value.value if isinstance(value, yaml.SequenceNode) else [value]
            for source in reversed(sources):
                self._merges += 1
                if self._merges > _MOST_MERGES:
                    raise _Unreadable("too_deep", "too many merge keys (<<). Remove one that holds itself.", _line(key))
                if not isinstance(source, yaml.MappingNode):
                    raise _Unreadable(
                        "invalid_yaml", "a merge key (<<) takes mappings; give it an alias of a mapping", _line(key)
                    )
                yield from self._merged(source)
                yield from (pair for pair in source.value if pair[0].tag != f"{_TAG}merge")

    def _scalar(self, node: yaml.ScalarNode) -> object:
        text: str = node.value
        if len(text) > _LONGEST_NUMBER and node.tag.removeprefix(_TAG) in ("int", "float"):
            raise _Unreadable("invalid_yaml", "this number is too long. Put it in quotes.", _line(node))
        try:
            match node.tag.removeprefix(_TAG):
                case "str" | "timestamp" | "value" | "merge":
                    return text  # a date is text here
                case "null":
                    return None
                case "bool":
                    return self._scalars.bool_values[text.lower()]
                case "int":
                    return self._scalars.construct_yaml_int(node)
                case "float":
                    return self._scalars.construct_yaml_float(node)
        except (ValueError, LookupError, ArithmeticError):
            raise _Unreadable(
                "invalid_yaml", "this is not a value of its type. Put it in quotes.", _line(node)
            ) from None
        raise _Unreadable("invalid_yaml", "tags such as !this are not supported. Put the value in quotes.", _line(node))


def _line(part: yaml.Node | yaml.Event) -> int:
    return part.start_mark.line + 1 if part.start_mark else 1


def _key_text(key: yaml.Node) -> str:
    if not isinstance(key, yaml.ScalarNode):
        raise _Unreadable("invalid_yaml", "a key must be text. Put it in quotes.", _line(key))
    return str(key.value)

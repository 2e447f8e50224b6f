"""The arguments of `mcp-hub call`: `name=value` and JSON text become one encoded object.

Texts are checked before a server starts; the name and the type of a `name=value` wait for the tool's schema. JSON is
sent as it was written: its names are not checked, and numbers of any size keep their digits.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import BinaryIO, Final

import click
import msgspec

from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OF_CLIENTS, read_file
from mcp_hub.masking import hide_head
from mcp_hub.types import JsonObject, RawJson, RawObject

_DEEPEST: Final = 8
"""Steps through `$ref` and `anyOf` of a property; real schemas need two or three."""
_KINDS: Final = {str: "string", bool: "boolean", type(None): "null", list: "array", dict: "object", float: "number"}
_ALTERNATIVES: Final = ("anyOf", "oneOf")
_OPEN: Final = ("additionalProperties", "patternProperties", "allOf", "anyOf", "oneOf", "$ref", "if")
"""Keywords of a schema under which names that it does not list may still be meant."""


def spelled_out(args: Sequence[str]) -> list[str]:
    """The command line with `--json` given its empty value, unless arguments (`{…}` or `@FILE`) follow it.

    So `--json NAME` is the flag and the tool's name, as `NAME --json` is.
    """
    done: list[str] = []
    for place, arg in enumerate(args):
        if arg == "--":
            return [*done, *args[place:]]
        following = args[place + 1] if place + 1 < len(args) else ""
        is_flag = arg == "--json" and not following.lstrip().startswith(("{", "@"))
        done.append("--json=" if is_flag else arg)
    return done


def split_pairs(texts: Sequence[str]) -> dict[str, str]:
    """`["a=1", "b=x=y"]` → `{"a": "1", "b": "x=y"}`. Raises: `UsageError`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            how = " Give a JSON object with --args-json." if text.lstrip()[:1] in ("{", "@") else ""
            raise click.UsageError(f"{hide_head(text, 100)!r}: write an argument as name=value.{how}")
        if name in pairs:
            raise click.UsageError(f"The argument {name} is given twice. Write a list as {name}='[…, …]'.")
        check_text(text, f"The argument {name!r}")
        pairs[name] = value
    return pairs


def check_text(text: str, what: str) -> None:
    """Raises `UsageError` for text that is not Unicode, as arguments of a process can be."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{what} is not UTF-8 text. Use --args-json with \\u escapes.") from None


def read_object(source: str, option: str, stdin: BinaryIO) -> RawObject:
    """The members of the JSON object in `source`, in the file of `@FILE`, or on stdin (`-`). Raises: `UsageError`."""
    try:
        text = _text(source, option, stdin)
        if not text.strip():
            where = "on standard input" if source == "-" else f"in {source[1:]}" if source.startswith("@") else "there"
            raise click.UsageError(f'{option}: there is no JSON {where}. Write it as \'{{"name": "value"}}\'.')
        return msgspec.json.decode(text, type=RawObject)
    except msgspec.ValidationError:
        raise click.UsageError(f'{option}: give the arguments as a JSON object, {{"name": value}}.') from None
    except (msgspec.DecodeError, RecursionError) as problem:
        said = f"the text is not JSON: {str(problem).removeprefix('JSON is malformed: ')}"
        if _has_half(text):
            said = "the text holds half of a character (a lone surrogate)"
        elif "truncated" in said:
            said = "the JSON is not complete: a quotation mark or a bracket is missing at its end"
        raise click.UsageError(f'{option}: {said}. Write it as \'{{"name": "value"}}\'.') from None
    except UnicodeError:
        raise click.UsageError(f"{option}: the text is not UTF-8. Save it as UTF-8.") from None


def _has_half(text: bytes) -> bool:
    """Whether JSON cannot be decoded only because of a lone surrogate."""
    try:
        json.dumps(json.loads(text), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    except (ValueError, RecursionError):
        pass
    return False


def _text(source: str, option: str, stdin: BinaryIO) -> bytes:
    if source == "-":
        text = stdin.read(LARGEST_OF_CLIENTS + 1)
        if len(text) > LARGEST_OF_CLIENTS:
            raise click.UsageError(f"{option}: standard input has more than {LARGEST_OF_CLIENTS} bytes. Send less.")
        return text.removeprefix(b"\xef\xbb\xbf")
    if not source.startswith("@"):
        return source.encode()
    try:
        return read_file(source[1:], LARGEST_OF_CLIENTS).data.removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise click.UsageError(f"{option}: cannot read the file {source[1:]}: {error.strerror}. Correct it.") from None


def check_names(tool: str, given: Collection[str], base: Collection[str], definition: RawJson) -> None:
    """Raises `ConfigError` for a name in `given` that the tool does not have, and for a required one that is missing.

    `base` are the names that came as JSON, which are the server's to check.
    """
    properties, root = _properties(definition)
    required = root.get("required")
    wanted = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
    is_open = not isinstance(root.get("properties"), dict) or any(root.get(keyword) for keyword in _OPEN)
    check_known(tool, given, {*base, *given}, properties, wanted, is_open=is_open, more=" --args-json sends any.")


def check_known(
    what: str,
    given: Collection[str],
    present: Collection[str],
    known: Mapping[str, object],
    required: Sequence[str],
    *,
    is_open: bool = False,
    more: str = "",
) -> None:
    """Raises `ConfigError` for an unknown name in `given`, unless `is_open`, and for `required` ones not `present`.

    `more` is advice for an unknown name.
    """
    from mcp_hub.config.findings import nearest

    listed = f"Its parameters: {', '.join(known)}." if known else "It takes no arguments."
    for name in given:
        if not is_open and name not in known:
            hint = nearest(name, known) or "."
            said = f'{what} does not have a parameter "{name}"{hint} {listed}{more}'
            raise ConfigError(ConfigFinding("unknown_parameter", said))
    if missing := [name for name in required if name not in present]:
        said = f"{what} needs {' '.join(f'{name}=…' for name in missing)}. {listed}"
        raise ConfigError(ConfigFinding("missing_parameter", said))


def compose(base: RawObject, pairs: dict[str, str], definition: RawJson) -> msgspec.Raw:
    """The encoded arguments: `base`, over it each pair with the type that the tool's `definition` says."""
    properties, root = _properties(definition)
    typed = {name: _typed(text, _admitted(properties.get(name), root)) for name, text in pairs.items()}
    return msgspec.Raw(msgspec.json.encode({**base, **typed}))


def _properties(definition: RawJson) -> tuple[JsonObject, JsonObject]:
    """The tool's parameters, and the whole schema for its `$ref`s; empty for a schema that cannot be read."""
    try:
        schema = msgspec.json.decode(definition).get("inputSchema")
    except (msgspec.DecodeError, RecursionError):
        schema = None
    root = schema if isinstance(schema, dict) else {}
    properties = root.get("properties")
    return properties if isinstance(properties, dict) else {}, root


def _typed(text: str, admitted: frozenset[str]) -> msgspec.Raw:
    """JSON as written where it is JSON, unless the schema wants text there (nothing admitted: it does not say)."""
    encoded = msgspec.Raw(msgspec.json.encode(text))
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return encoded
    if "string" in admitted and (isinstance(parsed, str) or not _kinds(parsed) & admitted):
        return encoded
    return msgspec.Raw(text.strip().encode())


def _kinds(value: object) -> frozenset[str]:
    if type(value) is int:
        return frozenset({"integer", "number"})
    return frozenset({_KINDS[type(value)]})


def _admitted(schema: object, root: JsonObject, depth: int = 0) -> frozenset[str]:
    """The JSON types that a property's schema names, through alternatives and local references."""
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return frozenset()
    if isinstance(reference := schema.get("$ref"), str):
        return _admitted(_referred(reference, root), root, depth + 1)
    named = schema.get("type")
    if isinstance(named, str):
        return frozenset({named})
    if isinstance(named, list):
        return frozenset(kind for kind in named if isinstance(kind, str))
    if isinstance(values := schema.get("enum"), list):
        return frozenset().union(*map(_kinds, values))
    options = [option for key in _ALTERNATIVES for option in schema.get(key) or ()]
    return frozenset().union(*(_admitted(option, root, depth + 1) for option in options))


def _referred(reference: str, root: JsonObject) -> object:
    """The target of a local `$ref` (`#/$defs/Name`); None for any other."""
    at: object = root
    start, *steps = reference.split("/")
    for step in steps:
        at = at.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(at, dict) else None
    return at if start == "#" else None

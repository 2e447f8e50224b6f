"""The arguments of `mcp-hub call`: `name=value` and JSON text become one encoded object.

Texts are checked before a server starts; the name and the type of a `name=value` wait for the tool's schema. JSON is
sent as it was written: its names are not checked, and numbers of any size keep their digits.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import BinaryIO

import click
import msgspec

from mcp_hub.errors import ConfigError, ConfigFinding
from mcp_hub.files import LARGEST_OF_CLIENTS, read_file
from mcp_hub.masking import hide_head
from mcp_hub.schema import allowed_types, fits, input_schema, is_open, properties, required
from mcp_hub.types import JsonObject, RawJson, RawObject


def spelled_out(args: Sequence[str]) -> list[str]:
    """The command line with `--json` given its empty value, unless arguments (`{…}` or `@FILE`) follow it.

    So `--json NAME` is the flag and the tool's name, as `NAME --json` is.
    """
    words: list[str] = []
    for index, arg in enumerate(args):
        if arg == "--":
            return [*words, *args[index:]]
        following = args[index + 1] if index + 1 < len(args) else ""
        is_flag = arg == "--json" and not following.lstrip().startswith(("{", "@"))
        words.append("--json=" if is_flag else arg)
    return words


def split_pairs(texts: Sequence[str]) -> dict[str, str]:
    """`["a=1", "b=x=y"]` → `{"a": "1", "b": "x=y"}`. Raises: `UsageError`."""
    pairs: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            advice = " Give a JSON object with --args-json." if text.lstrip()[:1] in ("{", "@") else ""
            raise click.UsageError(f"{hide_head(text, 100)!r}: write an argument as name=value.{advice}")
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
        message = f"the text is not JSON: {str(problem).removeprefix('JSON is malformed: ')}"
        if _has_half(text):
            message = "the text holds half of a character (a lone surrogate)"
        elif "truncated" in message:
            message = "the JSON is not complete: a quotation mark or a bracket is missing at its end"
        raise click.UsageError(f'{option}: {message}. Write it as \'{{"name": "value"}}\'.') from None
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
    schema = _schema(definition)
    known, needed, more = properties(schema), required(schema), " --args-json sends any."
    check_known(tool, given, {*base, *given}, known, needed, is_open=is_open(schema), more=more)


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
            message = f'{what} does not have a parameter "{name}"{hint} {listed}{more}'
            raise ConfigError(ConfigFinding("unknown_parameter", message))
    if missing := [name for name in required if name not in present]:
        message = f"{what} needs {' '.join(f'{name}=…' for name in missing)}. {listed}"
        raise ConfigError(ConfigFinding("missing_parameter", message))


def compose(base: RawObject, pairs: dict[str, str], definition: RawJson) -> msgspec.Raw:
    """The encoded arguments: `base`, over it each pair with the type that the tool's `definition` says."""
    schema = _schema(definition)
    listed = properties(schema)
    typed = {name: _typed(text, allowed_types(listed.get(name), schema)) for name, text in pairs.items()}
    return msgspec.Raw(msgspec.json.encode({**base, **typed}))


def _schema(definition: RawJson) -> JsonObject:
    """The input schema of the tool; empty for one that cannot be read."""
    try:
        return input_schema(msgspec.json.decode(definition))
    except (msgspec.DecodeError, RecursionError):
        return {}


def _typed(text: str, allowed: Collection[str]) -> msgspec.Raw:
    """JSON as written where it is JSON, unless the schema wants text there (nothing allowed: it does not say)."""
    encoded = msgspec.Raw(msgspec.json.encode(text))
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return encoded
    if "string" in allowed and (isinstance(parsed, str) or not fits(parsed, allowed)):
        return encoded
    return msgspec.Raw(text.strip().encode())

"""The arguments of `mcp-hub call`: `name=value` and JSON, sent as written."""

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
    """Gives `--json` its empty value, unless `{…}` or `@FILE` follows."""
    words: list[str] = []
    for index, arg in enumerate(args):
        if arg == "--":
            return [*words, *args[index:]]
        following = args[index + 1] if index + 1 < len(args) else ""
        is_flag = arg == "--json" and not following.lstrip().startswith(("{", "@"))
        words.append("--json=" if is_flag else arg)
    return words


def split_pairs(texts: Sequence[str]) -> dict[str, str]:
    """`["a=1", "b=x=y"]` → `{"a": "1", "b": "x=y"}`. Raises `UsageError`."""
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


def check_text(text: str, subject: str) -> None:
    """Raises `UsageError` for text with lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise click.UsageError(f"{subject} is not UTF-8 text. Use --args-json with \\u escapes.") from None


def read_object(source: str, option: str, stdin: BinaryIO) -> RawObject:
    """The JSON object in `source`, `@FILE` or stdin (`-`). Raises `UsageError`."""
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


def check_names(tool: str, names: Collection[str], base: Collection[str], definition: RawJson) -> None:
    """Raises `ConfigError` for unknown or missing names; the server checks those in `base`."""
    schema = _schema(definition)
    parameters, needed, more = properties(schema), required(schema), " --args-json sends any."
    check_known(tool, names, {*base, *names}, parameters, needed, is_open=is_open(schema), more=more)


def check_known(
    subject: str,
    names: Collection[str],
    present: Collection[str],
    parameters: Mapping[str, object],
    required: Sequence[str],
    *,
    is_open: bool = False,
    more: str = "",
) -> None:
    """Raises `ConfigError` for unknown names, unless `is_open`, and for missing ones. `more` is advice."""
    from mcp_hub.config.findings import nearest

    listed = f"Its parameters: {', '.join(parameters)}." if parameters else "It takes no arguments."
    for name in names:
        if not is_open and name not in parameters:
            hint = nearest(name, parameters) or "."
            message = f'{subject} does not have a parameter "{name}"{hint} {listed}{more}'
            raise ConfigError(ConfigFinding("unknown_parameter", message))
    if missing := [name for name in required if name not in present]:
        message = f"{subject} needs {' '.join(f'{name}=…' for name in missing)}. {listed}"
        raise ConfigError(ConfigFinding("missing_parameter", message))


def compose(base: RawObject, pairs: dict[str, str], definition: RawJson) -> msgspec.Raw:
    """The encoded arguments: `base`, and each pair with the type in `definition`."""
    schema = _schema(definition)
    listed = properties(schema)
    typed = {name: _typed(text, allowed_types(listed.get(name), schema)) for name, text in pairs.items()}
    return msgspec.Raw(msgspec.json.encode({**base, **typed}))


def _schema(definition: RawJson) -> JsonObject:
    try:
        return input_schema(msgspec.json.decode(definition))
    except (msgspec.DecodeError, RecursionError):
        return {}


def _typed(text: str, allowed: Collection[str]) -> msgspec.Raw:
    """JSON as written, or a string where the schema wants one."""
    encoded = msgspec.Raw(msgspec.json.encode(text))
    try:
        parsed = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return encoded
    if "string" in allowed and (isinstance(parsed, str) or not fits(parsed, allowed)):
        return encoded
    return msgspec.Raw(text.strip().encode())

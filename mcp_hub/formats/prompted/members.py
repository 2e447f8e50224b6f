"""Arguments one by one, as members of a JSON object."""

import json
from typing import Final

import msgspec

from mcp_hub.formats.prompted.characters import Characters, MalformedCall
from mcp_hub.formats.prompted.json_calls import pass_value
from mcp_hub.formats.prompted.output import MAX_DEPTH, ParsedCall
from mcp_hub.schema import fits

_PYTHON: Final = {"True": "true", "False": "false", "None": "null"}
"""Words of Python that models write for those of JSON."""


class Members:
    """The object: for each member `begin`, then `text` or `value`; then `end`."""

    def __init__(self, call: ParsedCall) -> None:
        self._call = call
        self._names: set[str] = set()

    def begin(self, name: str) -> None:
        """Begins a member. Raises: MalformedCall for a duplicate."""
        if name in self._names:
            raise MalformedCall(f'"{name}" occurs twice')
        self._call.arguments(f"{', ' if self._names else '{'}{json.dumps(name, ensure_ascii=False)}: ")
        self._names.add(name)

    def text(self, piece: str) -> None:
        self._call.arguments(json.dumps(piece, ensure_ascii=False)[1:-1])

    def quote(self) -> None:
        self._call.arguments('"')

    def value(self, value: str) -> None:
        source = Characters(value, is_whole=True)
        for _ in pass_value(source, self._call.arguments, self._call.too_deep, MAX_DEPTH - 1):
            pass

    def end(self) -> None:
        self._call.arguments("}" if self._names else "{}")
        self._call.finish()


def typed(text: str, allowed: set[str]) -> str:
    """An unquoted value as JSON: a string only if nothing else fits."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        is_text = not allowed or "string" in allowed
        return json.dumps(text, ensure_ascii=False) if is_text else _PYTHON.get(text) or json.dumps(text)
    if isinstance(value, str) or ("string" in allowed and not fits(value, allowed)):
        return json.dumps(text, ensure_ascii=False)
    return text.strip()

"""Texts of a result that the messages written for it lack."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

Json = dict[str, Any]


def lost_texts(result: Json, messages: Sequence[Json]) -> list[str]:
    """Texts and structures of a result that are in no string of the messages, nor are JSON of a value there."""
    said = list(strings(messages))
    values = [value for text in said if (value := read_json(text)) is not None] + list(nodes(messages))
    given = [block["text"] for block in result.get("content", ()) if block.get("type") == "text"]
    lost = [text for text in given if text.strip() and not _is_said(text, said, values)]
    structured = result.get("structuredContent")
    if structured is None or structured in values or any(_ends_with(text, structured) for text in said):
        return lost
    return [*lost, json.dumps(structured)]


def _is_said(text: str, said: Sequence[str], values: Sequence[Any]) -> bool:
    inner = [node for value in values for node in nodes(value)]
    sound = text.encode("utf-8", "replace").decode()
    value = read_json(text)
    return any(sound in one for one in said) or text in inner or (value is not None and value in inner)


def _ends_with(text: str, structured: Any) -> bool:
    """Whether a line of the text is the JSON of the structure."""
    return any(read_json(line) == structured for line in text.splitlines() if line.startswith(("{", "[")))


def strings(value: Any) -> Iterator[str]:
    """Every string in a value."""
    return (node for node in nodes(value) if isinstance(node, str))


def nodes(value: Any) -> Iterator[Any]:
    """A value and all values in it."""
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def read_json(text: str) -> Any:
    """The value of a text that is JSON, else None."""
    try:
        return json.loads(text)
    except ValueError:
        return None

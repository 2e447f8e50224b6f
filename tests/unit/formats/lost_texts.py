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
    if structured is None or _has(structured, said, values) or _is_wrapped(structured, given):
        return lost
    return [*lost, json.dumps(structured)]


def _has(structured: Any, said: Sequence[str], values: Sequence[Any]) -> bool:
    """Whether the structure is there; the data of media need not be there twice."""
    without = json.loads(json.dumps(structured), object_hook=_without_data)
    seen = [json.loads(json.dumps(value), object_hook=_without_data) for value in values]
    return without in seen or any(_ends_with(text, without) for text in said)


def _without_data(value: Json) -> Json:
    return {name: member for name, member in value.items() if name not in ("data", "blob")}


def _is_wrapped(structured: Any, given: Sequence[str]) -> bool:
    """Whether its only member is a text of the result, its JSON, or the list of all of them."""
    if not isinstance(structured, dict) or len(structured) != 1:
        return False
    (member,) = structured.values()
    values = [text.strip() if isinstance(member, str) else read_json(text) for text in given]
    whole = [text if read_json(text) is None else read_json(text) for text in given]
    member = member.strip() if isinstance(member, str) else member
    return member in values or (isinstance(member, list) and (member == whole or member == list(given)))


def _is_said(text: str, said: Sequence[str], values: Sequence[Any]) -> bool:
    inner = [node.strip() if isinstance(node, str) else node for value in values for node in nodes(value)]
    sound = text.encode("utf-8", "replace").decode()
    value = read_json(text)
    return any(sound in one for one in said) or text.strip() in inner or (value is not None and value in inner)


def _ends_with(text: str, structured: Any) -> bool:
    """Whether a line of the text is the JSON of the structure."""
    lines = [read_json(line) for line in text.splitlines() if line.startswith(("{", "["))]
    return any(json.loads(json.dumps(line), object_hook=_without_data) == structured for line in lines)


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

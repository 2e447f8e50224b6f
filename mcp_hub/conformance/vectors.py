"""Scenarios, and templates that match messages. Pure."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from mcp_hub.files import LARGEST_OF_CLIENTS, read_file
from mcp_hub.types import JsonObject

_ANY: Final = "$_"
_SHOWN: Final = 120
"""Characters of a value that an explanation shows."""


class Mismatch(Exception):
    """The server differs from the specification."""


class Scenario(msgspec.Struct, frozen=True):
    """One file: a header, then one step a line."""

    name: str
    section: str
    says: str
    steps: tuple[JsonObject, ...]


class _Head(msgspec.Struct, forbid_unknown_fields=True):
    scenario: str
    section: str
    says: str


def read(path: Path) -> Scenario:
    """The scenario in a file. Raises `OSError`, `ValueError` with the line."""
    first, *lines = read_file(path, LARGEST_OF_CLIENTS).data.decode().splitlines() or [""]
    number = 1
    try:
        head = msgspec.json.decode(first, type=_Head)
        steps: list[JsonObject] = []
        for line in lines:
            number += 1
            steps.append(msgspec.json.decode(line, type=JsonObject))
    except msgspec.DecodeError as exc:
        raise ValueError(f"{path}:{number}: {exc}") from None
    return Scenario(head.scenario, head.section, head.says, tuple(steps))


def read_all(folder: Path) -> list[Scenario]:
    """The scenarios in a folder. Raises `OSError`, `ValueError`."""
    scenarios = [read(path) for path in sorted(folder.glob("*.jsonl"))]
    if not scenarios:
        raise ValueError(f"{folder} has no vectors (*.jsonl)")
    return scenarios


def filled(template: object, values: Mapping[str, object]) -> object:
    """The template with its variables replaced. Raises `Mismatch`."""
    if isinstance(template, str) and template.startswith("$"):
        if template not in values:
            raise Mismatch(f"{template} has no value yet")
        return values[template]
    if isinstance(template, dict):
        return {key: filled(value, values) for key, value in template.items()}
    if isinstance(template, list):
        return [filled(value, values) for value in template]
    return template


def matched(template: object, value: object, values: dict[str, object], path: str = "") -> None:
    """Binds new variables in `values`; objects may have more members. Raises `Mismatch`."""
    if template == _ANY:
        return
    if isinstance(template, str) and template.startswith("$"):
        if values.setdefault(template, value) != value:
            raise Mismatch(f"{path or 'the value'} is {shown(value)}, not {shown(values[template])}")
        return
    if isinstance(template, dict):
        for key, expected, its in _members(template, value, path):
            matched(expected, its, values, f"{path}.{key}" if path else key)
    elif type(value) is not type(template) or value != template:
        raise Mismatch(f"{path or 'the value'} is {shown(value)}, not {shown(template)}")


def _members(template: Mapping[str, object], value: object, path: str) -> Iterator[tuple[str, object, object]]:
    if not isinstance(value, dict):
        raise Mismatch(f"{path or 'the value'} is {shown(value)}, not an object")
    for key, expected in template.items():
        if key not in value:
            raise Mismatch(f"{path + '.' if path else ''}{key} is missing")
        yield key, expected, value[key]


def shown(value: object) -> str:
    """A value as JSON, cut if long."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"

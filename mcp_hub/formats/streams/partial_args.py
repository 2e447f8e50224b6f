"""Gemini's arguments, value by value under a JSON path."""

import re
from typing import Any, Final

from mcp_hub.formats.schemas.nodes import MAX_DEPTH
from mcp_hub.types import JsonObject

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d{1,5})\]|\['((?:[^'\\]|\\.)*)'\]|\[\"((?:[^\"\\]|\\.)*)\"\]")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_MOST_ITEMS: Final = 10_000


class PartialArguments:
    """Arguments so far."""

    def __init__(self) -> None:
        self.value: JsonObject = {}

    def add(self, partial: JsonObject) -> None:
        """Appends text to text. A path that leads nowhere is ignored."""
        steps = _steps(partial.get("jsonPath"))
        if not steps:
            return
        container: Any = self.value
        for step, following in zip(steps, steps[1:], strict=False):
            container = _entered(container, step, [] if isinstance(following, int) else {})
        new = next((partial[name] for name in _VALUES if partial.get(name) is not None), None)
        old = _entered(container, steps[-1], new)
        if isinstance(old, str) and isinstance(new, str) and old is not new:
            _set(container, steps[-1], old + new)


def _steps(path: object) -> list[str | int]:
    if not isinstance(path, str) or not path.startswith("$"):
        return []
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) <= MAX_DEPTH:
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, index, single, double = step.groups()
        quoted = single if single is not None else double
        steps.append(int(index) if index is not None else name if name is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = step.end()
    return steps


def _entered(container: Any, step: str | int, new: Any) -> Any:
    if isinstance(container, dict) and isinstance(step, str):
        return container.setdefault(step, new)
    if isinstance(container, list) and isinstance(step, int) and step < _MOST_ITEMS:
        if step >= len(container):
            container.extend([None] * (step - len(container)))
            container.append(new)
        elif container[step] is None:
            container[step] = new
        return container[step]
    return None


def _set(container: Any, step: str | int, value: Any) -> None:
    container[step] = value

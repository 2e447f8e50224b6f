"""How the tools of the fixture server are written down."""

import json
from collections.abc import Callable
from typing import Any

from tests.upstreams.instance import Runs, Tool


def registering(tools: dict[str, Tool]) -> Callable[..., Callable[[Runs], Runs]]:
    """A decorator that adds a tool to `tools`, under its function's name.

    `@tool("What it does.", is_slow=True, n="integer", nonce="string?")`; see `input_schema` for the types.
    """

    def tool(description: str, /, *, is_slow: bool = False, **types: str) -> Callable[[Runs], Runs]:
        def register(run: Runs) -> Runs:
            name = run.__name__
            definition = {"name": name, "description": description, "inputSchema": input_schema(types)}
            tools[name] = Tool(definition, run, is_slow)
            return run

        return register

    return tool


def input_schema(types: dict[str, str]) -> dict[str, Any]:
    """The schema of these arguments; `any` is any type, and a type that ends in `?` marks an optional one."""
    properties = {key: {"type": kind.rstrip("?")} if kind.rstrip("?") != "any" else {} for key, kind in types.items()}
    required = [key for key, kind in types.items() if not kind.endswith("?")]
    return {"type": "object", "properties": properties, "required": required}


def text(value: Any, **fields: Any) -> dict[str, Any]:
    """A result with one text: the string, or the value as JSON."""
    return {"content": [{"type": "text", "text": as_text(value)}], **fields}


def as_text(value: Any) -> str:
    """The string, or the value as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

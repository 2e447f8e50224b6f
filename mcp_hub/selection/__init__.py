"""Selections from JSON or texts by strangers' JSON paths and patterns, within bounds.

- `engine`: selects values, describes a value
- `patterns`: regular expressions
"""

from functools import lru_cache


@lru_cache(maxsize=512)
def check_path(path: str) -> None:
    """Raises `InvalidParams` unless a JSON path, with its `character` among the data."""
    from mcp_hub.selection.engine import parsed  # a tenth of a second, which most hubs do without

    parsed(path, lambda: False)

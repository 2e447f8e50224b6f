"""Selections by JSON paths and patterns, within bounds.

In: JSON or a text, and a path or pattern of a stranger.

Out: values, or an error that helps to write it right.

- `engine`: selects values, describes a value
- `patterns`: regular expressions
"""

from functools import lru_cache


@lru_cache(maxsize=512)
def check_path(path: str) -> None:
    """Raises `InvalidParams` for what is not a JSON path, with its `character` among the data."""
    from mcp_hub.selection.engine import parsed  # a tenth of a second, which most hubs do without

    parsed(path, lambda: False)

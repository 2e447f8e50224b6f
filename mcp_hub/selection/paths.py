"""JSON paths (RFC 9535), whose engine is loaded with the first one."""

from functools import lru_cache


@lru_cache(maxsize=512)
def check_path(path: str) -> None:
    """Raises `InvalidParams` for what is not a JSON path, with its `character` among the data."""
    from mcp_hub.selection.engine import parsed  # a tenth of a second, which most hubs do without

    parsed(path, lambda: False)

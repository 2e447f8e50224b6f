"""Limits of one client, checked at each message."""

from typing import Final

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.rpc_errors import PARSE_ERROR
from mcp_hub.protocol.jsonrpc.unparsed import is_deeper
from mcp_hub.types import RawJson

DEPTH: Final = 512
"""Levels of JSON."""
BATCH: Final = 100
"""Messages in an array."""
OPEN_REQUESTS: Final = 8192
"""Requests of one client that are not answered."""
LISTENS: Final = 64
"""Listen streams of one principal."""


def check_depth(params: RawJson) -> None:
    """Raises `RpcError` -32700 for params nested too deep."""
    # each level takes two bytes, so what is short is not looked at
    if len(memoryview(params)) >= 2 * DEPTH and is_deeper(bytes(params), DEPTH - 1):
        raise RpcError(f"JSON nested too deep: over {DEPTH} levels", code=PARSE_ERROR)

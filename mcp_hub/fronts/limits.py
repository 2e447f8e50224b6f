"""Limits of one client, checked at each message."""

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.rpc_errors import PARSE_ERROR
from mcp_hub.protocol.jsonrpc.unparsed import is_deeper
from mcp_hub.types import RawJson


class FrontLimits(msgspec.Struct, frozen=True):
    """Levels of JSON, messages in an array, open requests, listen streams of a principal."""

    depth: int = 512
    batch: int = 100
    open_requests: int = 8192
    listens: int = 64

    def check_depth(self, params: RawJson) -> None:
        """Raises `RpcError` -32700 for params nested too deep."""
        # each level takes two bytes, so what is short is not looked at
        if len(memoryview(params)) >= 2 * self.depth and is_deeper(bytes(params), self.depth - 1):
            raise RpcError(f"JSON nested too deep: over {self.depth} levels", code=PARSE_ERROR)

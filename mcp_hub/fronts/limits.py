"""The limits of one client at a front that are checked message by message."""

import msgspec

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc.depth import is_deeper
from mcp_hub.protocol.jsonrpc.rpc_errors import PARSE_ERROR
from mcp_hub.types import RawJson


class FrontLimits(msgspec.Struct, frozen=True):
    """Constants (limits.md): levels of JSON, messages in one array, unanswered requests of one stdio or SSE client,
    `subscriptions/listen` streams of one principal.
    """

    depth: int = 512
    batch: int = 100
    open_requests: int = 8192
    listens: int = 64

    def check_depth(self, params: RawJson) -> None:
        """Raises `RpcError` -32700 for a message whose params, one level in it, are nested too deep."""
        # each level takes two bytes, so what is short is not looked at
        if len(memoryview(params)) >= 2 * self.depth and is_deeper(bytes(params), self.depth - 1):
            raise RpcError(f"JSON nested too deep: over {self.depth} levels", code=PARSE_ERROR)

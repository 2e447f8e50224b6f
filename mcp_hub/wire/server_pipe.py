"""A pipe to a server: it splits a line with several messages, and reports answers to unknown requests.

A receiver must take an array of messages in 2025-03-26, and some servers write them in other versions.
"""

from typing import Final

from mcp_hub.errors import RpcError
from mcp_hub.protocol.jsonrpc import batches, envelope
from mcp_hub.protocol.jsonrpc.envelope import BadMessage, Envelope, Unset
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.wire.pipe import Pipe

_MOST: Final = 128
"""Messages of one array: nobody else has a turn meanwhile."""


class ServerPipe(Pipe):
    """Reports answers to unknown requests as bad lines: a call may wait for one. A second answer is not one of them."""

    def _cut(self, line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
        if bad.code != INVALID_REQUEST or not batches.is_array(line):
            return batches.several(line, bad)
        try:
            parts = batches.parts(line, _MOST)
        except RpcError:
            return [], (bad, line)
        return ([], (bad, line)) if any(map(batches.is_array, parts)) else (parts, None)

    def _take_answer(self, message: Envelope, line: bytes) -> None:
        strays = self.counts["stray"]
        super()._take_answer(message, line)
        if self.counts["stray"] == strays or message.id is Unset:
            return
        key = envelope.id_key(bytes(message.id))
        if not isinstance(key, int) or not self.requests.was_asked(key):
            self._handler.on_bad_line(BadMessage(INVALID_REQUEST, "an answer to an unknown request"), line)

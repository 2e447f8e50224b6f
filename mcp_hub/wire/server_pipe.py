"""A pipe to a server: what its threads write on one line is taken apart, answers to nothing that was asked are told.

A call may wait for one of them.
"""

from mcp_hub.protocol import envelope
from mcp_hub.protocol.envelope import BadMessage, Envelope, Unset
from mcp_hub.protocol.rpc_errors import INVALID_REQUEST
from mcp_hub.protocol.several import several
from mcp_hub.wire.pipe import Pipe

__all__ = ["ServerPipe"]


class ServerPipe(Pipe):
    """Tells its handler of them as of lines that cannot be read. One more answer to what was asked is none of them."""

    def _cut(self, line: bytes, bad: BadMessage) -> tuple[list[bytes], tuple[BadMessage, bytes] | None]:
        return several(line, bad)

    def _take_answer(self, message: Envelope, line: bytes) -> None:
        strays = self.counts["stray"]
        super()._take_answer(message, line)
        if self.counts["stray"] == strays or message.id is Unset:
            return
        key = envelope.id_key(bytes(message.id))
        if not isinstance(key, int) or not self.requests.was_asked(key):
            self._handler.on_bad_line(BadMessage(INVALID_REQUEST, "an answer to nothing that was asked"), line)

"""A stand-alone client of a running hub: its tools, calls of them, and streams that outlive a connection.

In: the URL of a hub, a token, the name and arguments of a tool or the id of a stream.

Out: `HubClient.call` is one MCP request of the modern era; closing it cancels the call. `HubClient.stream` makes a
durable call over REST: its events arrive over as many connections as necessary, each once and in order, and `resume`
continues it from a cursor, also after a restart of the hub.

Held together by `http.HubClient`, the only class that a caller creates. `rest` sends one REST request, `streams`
follows one durable call across connections. `messages`, `rest_messages`, `stream_reader` and `retrying` decide and
parse without I/O.

It imports `types`, `errors`, `events` and `protocol` only, so that it does not pull in the hub.

Not here: starting a hub, and showing anything (`cli`).
"""

from mcp_hub.client.http import HubCall, HubClient
from mcp_hub.client.streams import HubStream, StreamInterrupted
from mcp_hub.protocol.rest.servers import ServerInfo
from mcp_hub.protocol.rest.streams import QuestionInfo, StreamStatus

__all__ = ["HubCall", "HubClient", "HubStream", "QuestionInfo", "ServerInfo", "StreamInterrupted", "StreamStatus"]

"""A stand-alone client of a running hub: its tools, calls of them, and streams that outlive a connection.

`HubClient.call` is one MCP request of the modern era: closing its answer cancels it. `HubClient.stream` makes a durable
call over REST: its events come over as many connections as it takes, and `resume` goes on with it anywhere, also after
a restart of the hub. `messages`, `rest_messages` and `retrying` do no I/O; `http`, `rest` and `streams` do the rest.
"""

from mcp_hub.client.http import HubCall, HubClient
from mcp_hub.client.rest_messages import Question, ServerStatus, StreamStatus
from mcp_hub.client.streams import HubStream, StreamInterrupted

__all__ = ["HubCall", "HubClient", "HubStream", "Question", "ServerStatus", "StreamInterrupted", "StreamStatus"]

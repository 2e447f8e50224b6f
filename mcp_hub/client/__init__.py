"""A client of a hub: tools, servers, and calls that outlive a connection.

* `hub_client`: the client, a hub's lists and state
* `http`: to a URL; alone imports the HTTP library
* `in_process`: to a hub in this process, and on this machine
* `rest`: requests and their URLs, answers and errors, over any transport
* `streams`, `stream_reader`: one durable call, pauses
"""

from mcp_hub.client.hub_client import HubClient
from mcp_hub.client.streams import HubStream, StreamInterrupted

__all__ = ["HubClient", "HubStream", "StreamInterrupted"]

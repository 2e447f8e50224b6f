"""A client of a hub: its tools, its servers, and calls that outlive a connection. Stands beside the hub, not in it.

In: a hub (the URL of a running one, or one in this process), the name and arguments of a tool or the id of a stream.

Out: `HubClient.stream` makes a durable call over the REST front. Its events arrive over as many connections as
necessary, each once and in order; `resume` continues it from a cursor, also after a restart of the hub.

Held together by `hub_client.HubClient`, which speaks REST over a `transport`: `http.connect` reaches a URL,
`in_process.AsgiTransport` a hub in this process. `rest` sends one request, `lists` asks for what the hub has,
`streams` follows one durable call across connections. `rest_messages`, `stream_reader` and `retrying` decide and parse
without I/O.

It imports `types`, `errors`, `events` and `protocol` only. Only `http` imports the HTTP library, which a hub in this
process does without.

`hub_feed` is the state of a hub as the dashboard has it: a snapshot, and the feed behind it.

Not here: starting a hub, and showing anything (`cli`).
"""

from mcp_hub.client.hub_client import HubClient
from mcp_hub.client.streams import HubStream, StreamInterrupted

__all__ = ["HubClient", "HubStream", "StreamInterrupted"]

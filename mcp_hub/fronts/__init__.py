"""The fronts: every way into a hub. Each one turns a protocol into requests to the hub's port, and events into answers.

In: bytes from clients: over stdio, over HTTP, over the deprecated SSE transport; MCP, REST, probes and scrapes.

Out: answers, notifications and event streams in the form and era that the client speaks.

Held together by `mcp`, which answers MCP requests the same way on every transport, and `http`, which checks and bounds
every HTTP request. `stdio`, `legacy_sse` and `in_process` have one connection per client; `limits` bounds one client,
`following` reads durable streams.

Sub-packages: `mcp`, `http`, `rest` (the API at `/v1`), `monitoring` (health, metrics), `dashboard` (a page and its
API). `prefix` moves all paths below one.

A front pulls events from the log of a call at the speed of its client. It holds no state of a call that another front
would need.

Not here: names, filters and routing (`catalog`), the life of a call (`calls`), and servers (`upstreams`). Fronts reach
all of those through the port, `mcp_hub.hub`.
"""

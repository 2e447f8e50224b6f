"""The fronts: each turns a protocol into requests to the hub's port, and events into responses.

`mcp`: MCP on every transport
`http`: HTTP, and its MCP transport
`stdio`: two pipes
`legacy_sse`: the transport of 2024-11-05
`rest`: the API at `/v1`
`health`: `/livez`: the event loop runs; `/healthz`: the store works; `/readyz`: clients are welcome
`metrics`: `/metrics`: counters for Prometheus
`dashboard`: a page
`following`: durable streams
`limits`: per client
`prefix`: sub-paths
"""

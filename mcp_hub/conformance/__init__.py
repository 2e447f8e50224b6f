"""Conformance of servers to docs/specification/streams.md. Imports no part of the hub.

In: a server, by URL or command, a tool of it that streams, and vectors (JSON lines).

Out: for each scenario whether it passed, failed or was skipped, and why.

* `runner`: plays scenarios
* `peers`: raw MCP clients, without a client library
* `vectors`: scenarios and templates, and checks of event logs
"""

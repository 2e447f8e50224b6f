"""Conformance of servers to docs/specification/streams.md: the vectors there, replayed against any server.

In: a server, by URL or command, a tool of it that streams, and vectors: files of JSON lines, each a scenario.

Out: for each scenario whether it passed, failed and why, or was skipped and why.

Held together by `runner.Runner`, which plays one scenario after the other. `peers` speak raw MCP of either era over
stdio and HTTP, so that nothing of a client library comes between. `vectors` reads scenarios and matches templates,
`rules` checks logs of events; both are pure.

Not here: anything that knows how a hub works. It imports `protocol` and `types` only.
"""

"""Upstreams: sources of tools and skills. Child processes, remote servers, Python functions, folders, and workers.

In: a `Call` and the `CallChannel` for its events; subscriptions, log levels, and the orders of an operator.

Out: the result of the call or an `RpcError`; a `Snapshot` of what the source offers; an `UpstreamStatus` that says why
it is not ready. Changes are noted in `Notices`.

Held together by the protocol `mcp_hub.call.Upstream`, which every kind implements for calls, with a `Lifecycle` for its
owner. A server is a `supervision`
`ManagedUpstream`: it keeps one connection up (`process` or `remote`), speaks MCP over it (`peer`), and reads its lists
(`lists`). `functions` runs Python functions in this process, `folders` reads skills, `executors` hands calls to
workers, `auth` logs in to remote servers. `local_source` is common to sources without a connection.

A failing upstream changes nothing for another: each has its own tasks, limits and turns.

Not here: exported names and filters (`catalog`), the end of a call (`calls.runner`), and the choice of upstreams
(`app.upstream_factory`). Nothing here knows of sessions, catalogs or fronts.
"""

"""The REST front at `/v1`: tools, calls as durable streams, executors and administration, for programs without MCP.

In: HTTP requests that `fronts.http.endpoints` has let through.

Out: JSON bodies, server-sent events or NDJSON; every error is a problem document (RFC 9457) with a stable `code`.

Held together by the table in `routes`: `api` dispatches by it and `openapi` generates the OpenAPI document from it.
`exchange` is one request, `problem` translates errors.

`lists` shows and searches what there is, and reports what it costs a model. `calls` calls tools; `idempotency` finds
the earlier call of a repeated request. `streams`, `follow` and `info` serve durable streams. `executors` is for workers
that run tools themselves. `servers` restarts and reloads. `pages` has the pages for people, which need no token.

`formats` serves lists and calls in the formats of providers, `history` calls that have ended.

Not here: MCP, the shapes of bodies (`protocol.rest`), authentication (`fronts.http.auth`), and the rules about what a
worker may post (`upstreams.executors.posts`).
"""

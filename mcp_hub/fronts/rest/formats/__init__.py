"""Lists of tools, and calls, in the formats of model providers, over REST.

In: requests for `/v1/tools`, `/v1/search`, `/v1/tools/call` and `/v1/prompted` that name a `format`, and
the view of the caller.

Out: the members of a provider's request, or the answer to its model's search, as JSON. The same tools and options give
the same bytes, which are made once and kept as long as the view is.

Held together by `options`, what a query asks for: the format, strictness, deferral, and the tools that the user has
selected. `tools` answers with lists, `connectors` with entries for providers that connect to the hub themselves,
`search` with the tools that fit a query. `calls` makes calls, and `followed` follows the streams of one request.
`prompted` serves models whose calls are text.

Conversion is in `mcp_hub.formats`.

Not here: how a call becomes a stream (`fronts.rest.calls`), the ranking of hits (the hub's catalog), and lists in the
shape of MCP results besides tools (`fronts.rest.lists`).
"""

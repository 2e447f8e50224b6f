"""The HTTP front: checks and limits for every request, and the Streamable HTTP transport of MCP in both eras.

In: connections that uvicorn accepts, and ASGI requests on `/mcp` and the other paths.

Out: JSON responses and event streams; a refusal with a reason where a request may not pass.

Held together by `endpoints`, one plain ASGI application that hands a request to the front of its path after `auth` has
checked Host, Origin and token. `connections` bounds connections, `admission` bounds what one principal may do at once.

`streamable` serves `/mcp`: `handshake` requests with a session, `modern` ones without. `request` and `body` read a
message, `batches` an array of them. `response` writes one answer, as JSON or as an event stream; `stream` writes
notifications that belong to no call. `resume`, `replay` and `session_store` bring a client back to a stream that it
lost, in the same process or after a restart.

Not here: the meaning of MCP requests (`fronts.mcp`) and the server socket (`cli.commands.serve`).
"""

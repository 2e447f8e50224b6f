"""The HTTP front: checks and limits for every request, and the Streamable HTTP transport of MCP in both eras.

In: connections that uvicorn accepts, and ASGI requests on `/mcp` and the other paths.

Out: JSON responses and event streams; a refusal with a reason where a request may not pass.

Held together by `endpoints`, one plain ASGI application that hands a request to the front of its path after `auth` has
checked Host, Origin and token. `connections` bounds connections, `admission` bounds what one principal may do at once.

`streamable` serves `/mcp`: `handshake` requests with a session, `modern` ones without. `request` and `body` read a
message, `batches` an array of them. `response` writes whole and streamed responses, for every front; `call_response`
follows one call with one. `resume` and `replay` bring a client back to a stream that it lost, in the same process or
after a restart.

`cors` answers web pages of other origins. Sub-package: `oauth` checks access tokens.

Not here: the meaning of MCP requests (`fronts.mcp`) and the server socket (`cli.commands.serve`).
"""

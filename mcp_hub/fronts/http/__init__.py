"""HTTP: checks and limits of every request, and the Streamable HTTP transport of MCP.

`endpoints`: the ASGI application
`auth`: Host, Origin, token
`connections`: bounded
`admission`: limits of a principal
`streamable`: `/mcp`
`handshake`: with sessions
`modern`: without sessions
`request`: one message
`body`: reads it
`batches`: arrays of messages
`response`: whole or streamed
`call_response`: of one call
`resume`: outlives connections
`replay`: calls elsewhere
`cors`: other origins
`oauth`: access tokens
"""

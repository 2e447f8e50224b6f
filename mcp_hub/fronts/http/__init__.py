"""HTTP: checks and limits of every request, and the Streamable HTTP transport of MCP.

`endpoints`: the ASGI application
`auth`: Host, Origin, token
`connections`: bounded
`admission`: limits of a principal
`streamable`: `/mcp`
`handshake`: with sessions
`request`: one message
`body`: reads it
`response`: whole or streamed
`call_response`: of one call
`resume`: outlives connections
`replay`: calls elsewhere
`oauth`: access tokens
"""

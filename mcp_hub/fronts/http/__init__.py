"""HTTP: checks and limits of every request, and MCP's Streamable HTTP.

`endpoints`: the ASGI application
`auth`: Host, Origin, token
`connections`: bounded
`admission`: limits of a principal; bodies
`streamable`: `/mcp`
`handshake`: with sessions
`request`: one message, and its response
`response`: whole or streamed
`resume`: outlives connections
`replay`: calls elsewhere
`login_pages`: people's accounts
`cards`: public
`oauth`: access tokens
`authorization`: the hub gives them
"""

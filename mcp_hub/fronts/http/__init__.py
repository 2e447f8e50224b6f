"""HTTP: checks and limits of every request, and the Streamable HTTP transport of MCP.

`endpoints`: the ASGI application
`auth`: Host, Origin, token
`connections`: bounded
`admission`: limits of a principal; reads bodies
`streamable`: `/mcp`
`handshake`: with sessions
`request`: one message, and the response of its call
`response`: whole or streamed
`resume`: outlives connections
`replay`: calls elsewhere
`login_pages`: where people log in to their accounts
`cards`: what anybody may know before a connection
`oauth`: access tokens
`authorization`: the hub gives them
"""

"""MCP requests, answered in both eras on every transport.

`binding`: the hub as a server
`responder`: follows one call
`quick_call`: without events
`duplex`: two-way connections
`message_queue`: for clients that fetch, in this process too
`client_requests`: questions
`subscriptions`: changed lists, `subscriptions/listen`
`results`: for one client, partial ones too; after progress
`bonds`: clients that leave
`tasks`: the extension, and stored events
`events`: those of servers
"""

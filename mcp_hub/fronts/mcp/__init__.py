"""MCP requests in both eras, on every transport.

`binding`: the hub as a server
`responder`: follows one call
`quick_call`: without events
`duplex`: two-way connections
`message_queue`: for clients that fetch
`client_requests`: questions
`subscriptions`: changed lists, `subscriptions/listen`
`results`: for one client, partial ones too
`bonds`: clients that leave
`tasks`: the extension, and stored events
`events`: of servers
"""

"""MCP requests, answered in both eras on every transport.

`binding`: the hub as a server
`responder`: follows one call
`quick_call`: without events
`duplex`: two-way connections
`message_queue`: for clients that fetch
`client_requests`: questions
`announcer`: changed lists
`subscriptions`: `subscriptions/listen`
`results`: for one client
`held_answers`: after progress
`bonds`: clients that leave
`tasks`: the extension
`partials`: events as progress
`stream_reads`: stored events
"""

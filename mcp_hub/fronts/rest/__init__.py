"""REST at `/v1`: tools, calls as durable streams, executors and administration, for programs without MCP.

`routes`: the table of operations
`api`: dispatches by it; servers, restart, reload
`exchange`: one request
`problem`: errors (RFC 9457)
`calls`: calls of tools, repeated requests
`streams`: durable streams, their events and status
`events`: events of servers
`executors`: for workers
`history`: ended calls
`accounts`: accounts at servers
`formats`: of model providers
`pages`: public pages, the description of the routes
"""

"""REST at `/v1`: tools, calls as durable streams, executors and administration, for programs without MCP.

`routes`: the table of operations
`api`: dispatches by it; servers, restart, reload
`exchange`: one request
`problem`: errors (RFC 9457)
`calls`: of tools, repeated requests
`streams`: events and status
`events`: of servers
`executors`: for workers
`history`: ended calls
`accounts`: at servers
`formats`: of model providers
`pages`: public ones, the routes' description
"""

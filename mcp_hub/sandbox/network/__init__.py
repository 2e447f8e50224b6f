"""The hub's proxy for sandboxed servers.

In: a server's connection, and the hosts of its rule.

Out: a connection to an allowed host, or a refusal.

- `proxy`: serves connections
- `requests`: reads requests
- `dial`: resolves, checks, connects
- `interface`: the proxy's protocol, refusals
"""

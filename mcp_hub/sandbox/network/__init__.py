"""The hub's proxy for sandboxed servers: connects a server to allowed hosts of its rule, or refuses.

- `proxy`: serves connections
- `requests`: reads requests
- `dial`: resolves, checks, connects
- `interface`: the proxy's protocol, refusals
"""

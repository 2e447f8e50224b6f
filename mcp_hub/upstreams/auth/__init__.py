"""Logging in to remote servers (OAuth 2.1): the hub as a client of their authorization servers.

`grants` are what a login brought, `store` keeps them in files that several hubs share, `access` adds the token to what
is sent and renews it, `tokens` asks for a new one, `addresses` is the only way out for all that. A login itself
(`login`, by a person in a browser that comes back to `redirect`; or by the hub alone) goes through the SDK's client in
`flows`, the only module here that imports it. `watching` has a hub notice what `mcp-hub login` has done.
"""

"""Tools with user interfaces (MCP Apps, `io.modelcontextprotocol/ui`, specification of 2026-01-26).

In: the `_meta` of definitions, and the requests of a client that shows apps.

Out: which tools have an app and who may call them; definitions with the app's exported address, or without any trace of
apps for other clients; and for a request of an app, which knows its server's own names, the exported name.

Held together by: `metadata`, the members of `_meta` that the extension adds; `routing`, which finds the server of the
app that calls.

An app runs in a frame of the client. It calls tools and reads resources of the server that it came from, by that
server's names. The client passes these requests on over its own session, and nothing in them says which app it was.

Nothing here does I/O. Not here: which tools are listed (`catalog.exposure`), the addresses of apps
(`catalog.resources`), and the declaration of the extension (`protocol.capabilities`).
"""
